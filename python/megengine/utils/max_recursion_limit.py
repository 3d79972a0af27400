"""A high recursion limit for a while: pickling or copying deeply nested graphs and modules."""

from __future__ import annotations

import sys
import threading
from typing import Any

# Python frames that the C stack below carries with room to spare (about 8 KiB each).
_PY_LIMIT = 65536
_STACK_BYTES = 512 << 20


class AlternativeRecursionLimit:
    """Raises Python's recursion limit to at least ``new_py_limit`` inside a ``with`` block; nests
    and is thread-safe.

    The soft limit of the C stack is raised with it, as far as the hard limit allows.

    Parameters
    ----------
    new_py_limit : int
        Number of nested calls that Python allows at least.
    """

    def __init__(self, new_py_limit: int) -> None:
        self.new_py_limit = new_py_limit
        self.count = 0
        self.lock = threading.Lock()
        self.orig_py_limit = 0
        self.orig_rlim_stack_soft: int | None = None
        self.orig_rlim_stack_hard: int | None = None

    def __enter__(self) -> AlternativeRecursionLimit:
        with self.lock:
            if self.count == 0:
                self.orig_py_limit = sys.getrecursionlimit()
                self._raise_stack_limit()
                sys.setrecursionlimit(max(self.orig_py_limit, self.new_py_limit))
            self.count += 1
        return self

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        with self.lock:
            self.count -= 1
            if self.count == 0:
                self._restore()

    def _raise_stack_limit(self) -> None:
        try:
            import resource
        except ImportError:  # not a POSIX system
            return
        soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
        self.orig_rlim_stack_soft, self.orig_rlim_stack_hard = soft, hard
        wanted = _STACK_BYTES if hard == resource.RLIM_INFINITY else min(_STACK_BYTES, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))

    def _restore(self) -> None:
        try:
            sys.setrecursionlimit(self.orig_py_limit)
        except RecursionError:  # called from deeper than the old limit: keep the high one
            return
        if self.orig_rlim_stack_soft is not None and self.orig_rlim_stack_hard is not None:
            import resource

            resource.setrlimit(
                resource.RLIMIT_STACK, (self.orig_rlim_stack_soft, self.orig_rlim_stack_hard)
            )


_shared_limit = AlternativeRecursionLimit(_PY_LIMIT)


def max_recursion_limit() -> AlternativeRecursionLimit:
    """Returns a context manager: ``with max_recursion_limit(): ...`` runs the block with a high
    recursion limit.

    Returns
    -------
    AlternativeRecursionLimit
        A context manager.
    """
    return _shared_limit
