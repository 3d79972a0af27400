"""Progress of long calls, by tqdm, on terminals only; ``MEGJIT_PROGRESS=0`` switches it off.

In: what a call does, and how far it is. Out: a bar on stderr that is gone when the call ends. A call of less than a
second shows none.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..logger import stderr_is_terminal

_PATIENCE = 1.0  # seconds
_BEAT = 0.2


def is_shown() -> bool:
    """Whether progress is shown: stderr is a terminal, and the user has not switched it off."""
    return os.environ.get("MEGJIT_PROGRESS") != "0" and stderr_is_terminal()


class Progress:
    """A bar for a loop that knows how far it is; also a context manager.

    what: the text in front of the bar. total: units until the end; None: unknown. options: options
    of tqdm.
    """

    def __init__(self, what: str, total: int | None, **options: Any) -> None:
        self._bar: Any = None
        if is_shown():
            from tqdm import tqdm  # slow to import

            self._bar = tqdm(desc=what, total=total, leave=False, delay=_PATIENCE, **options)

    def update(self, count: int = 1) -> None:
        """Adds to the number of units that are done."""
        if self._bar is not None:
            self._bar.update(count)

    def close(self) -> None:
        """Takes the bar off the screen."""
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextlib.contextmanager
def while_waiting(what: str, part: Callable[[], float] = lambda: 0.0) -> Iterator[None]:
    """Shows how long the block runs already, which is one native call without Python's lock.

    part: the share of the call that is done, 0 to 1; 0 if unknown.
    """
    if not is_shown():
        yield
        return
    ended = threading.Event()
    shown = threading.Thread(target=_show, args=(what, part, ended), daemon=True)
    shown.start()
    try:
        yield
    finally:
        ended.set()
        shown.join()


def _show(what: str, part: Callable[[], float], ended: threading.Event) -> None:
    if ended.wait(_PATIENCE):
        return
    from tqdm import tqdm

    with tqdm(desc=what, total=1.0, leave=False, bar_format="{desc}: {elapsed}") as bar:
        while not ended.wait(_BEAT):
            bar.n = part()
            bar.bar_format = "{desc}: {percentage:3.0f}%|{bar:30}| {elapsed}" if bar.n else "{desc}: {elapsed}"
            bar.refresh()
