"""Runs a forked child's work in a thread with its own pools of native libraries.

Our own pool needs no such thing. OpenMP (libgomp), which OpenCV, torch and others bring, keeps a pool of threads per
thread that has used it. A fork copies the record of the pool but not its threads, so the forked thread waits for ever in
its next parallel region; a thread that starts after the fork gets a new pool. (Seen with GCC's libgomp.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def run_in_fresh_thread(func: Callable[..., Any], *args: Any) -> Any:
    """Calls ``func(*args)`` in a new thread and returns its result; its exception is raised here.
    """
    outcome: list[Any] = [None, None]

    def body() -> None:
        try:
            outcome[0] = func(*args)
        except BaseException as error:
            outcome[1] = error

    thread = threading.Thread(
        target=body, daemon=True
    )  # Ctrl-C in the main thread must not wait for it
    thread.start()
    thread.join()
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]
