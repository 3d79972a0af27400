"""Processes that get ready beside each other, with all cores for their compilers, and are measured alone."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Command = dict[str, Any]


class Process:
    """Answers one JSON command a line. It leads a group of its own, so that its compilers stop with it."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str] | None = None) -> None:
        self.name, self.fault = name, ""
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip

    def ask(self, do: str, **arguments: Any) -> Command:
        """RuntimeError where it answers with an error, or has ended."""
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except (BrokenPipeError, ValueError):
            line = ""
        answer = json.loads(line) if line else {"error": f"{do}: the process ended"}
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass

    def close(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what could not be written any more
                pipe.close()


def measure_alone(
    groups: dict[str, list[Process]], prepare: Callable[[Process], None], measure: Callable[[str, list[Process]], None],
    left: Callable[[], float],
) -> tuple[list[str], dict[str, str]]:
    """Calls `prepare` for all processes at once, then `measure` for each group that is ready while all others are stopped.

    A group is ready when each of its processes is, or has a `fault`. Returns the groups for which time was too short,
    and what was wrong with others: either may throw a RuntimeError.
    """  # fmt: skip
    ready: queue.Queue[Process] = queue.Queue()

    def get_ready(process: Process) -> None:
        try:
            prepare(process)
        except RuntimeError as error:
            process.fault = str(error)
        ready.put(process)

    faults: dict[str, str] = {}
    waiting = {name: list(group) for name, group in groups.items()}
    for group in groups.values():
        for process in group:
            threading.Thread(target=get_ready, args=(process,), daemon=True).start()
    try:
        while waiting:
            try:
                process = ready.get(timeout=max(0.0, left()))
            except queue.Empty:
                break
            name = next(name for name, group in waiting.items() if process in group)
            waiting[name].remove(process)
            if waiting[name]:
                continue
            del waiting[name]
            others = [other for group in waiting for other in groups[group]]
            for other in others:
                other.signal(signal.SIGSTOP)
            try:
                measure(name, groups[name])
            except RuntimeError as error:
                faults[name] = str(error)
            finally:
                for each in groups[name]:
                    each.close()
                for other in others:
                    other.signal(signal.SIGCONT)
    finally:
        processes = [process for group in groups.values() for process in group]
        for process in processes:  # all, before one is waited for
            process.signal(signal.SIGKILL)
        for process in processes:
            process.close()
    return list(waiting), faults
