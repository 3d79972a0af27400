"""`Replay`: a recorded function whose guards the caller keeps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..tensor import Tensor
from .report import MemoryPlan, OutsideProgram
from .tracing import trace

_GUARDS = 1  # the caller's, which are not checked


def _named(body: Callable[..., list[Tensor]], name: str) -> Callable[..., list[Tensor]]:
    named = functools.partial(body)
    named.__name__ = name  # type: ignore[attr-defined]  # it has no line, either
    return named


class Replay:
    """A function of tensors that is recorded at its first call with their types, and run without its body from then on.

    Unlike `trace`, nothing of what the body reads is watched: the caller knows that it would do the same again (a compiler whose own guards
    hold, a graph that never changes). The body returns a list of tensors. name: in plans and
    errors, the body's own if empty. outside: the caller's part, for plans. uses: name of an
    argument in the body -> its use in plans. options: those of `trace`
    (``opt_level``, ``memory_limit``, ``numerics``).

    >>> import megengine as mge
    >>> from megengine.jit.replay import Replay
    >>> double = Replay(lambda x: [x * 2])
    >>> [y.item() for y in double([mge.tensor(3.0)])], [y.item() for y in double([mge.tensor(4.0)])]
    ([6.0], [8.0])
    """

    def __init__(self, body: Callable[..., list[Tensor]], name: str = "", outside: Sequence[OutsideProgram] = (), uses: Mapping[str, str] | None = None, **options: Any) -> None:
        self._body = body
        self.traced = trace(_named(body, name) if name else body, symbolic=True, **options)
        self.traced._beside_plan, self.traced._uses = tuple(outside), dict(uses or {})
        self.function = self.traced._function
        # (arguments) -> results of the recording for their types, or None
        self.recorded = self.function.replay

    def __call__(self, arguments: list[Tensor]) -> list[Tensor]:
        """Returns the body's results. MemoryError, before anything runs, for a ``memory_limit`` that cannot be kept."""
        found = self.recorded(arguments)
        return self._record(arguments) if found is None else found

    def plan(self, arguments: list[Tensor]) -> MemoryPlan:
        """Returns the memory plan of a call with tensors of these types; nothing is computed. MemoryError as of a call."""
        return self.traced._plan_call(tuple(arguments), {})[0]

    def share_arena(self, other: Replay) -> None:
        """Lets values within a call use the arena of ``other``, which never runs at the same time.
        Called before the first call.
        """
        self.function.share_arena(other.function)

    def _record(self, arguments: list[Tensor]) -> list[Tensor]:
        if trace._planned_by is not None:
            planned: list[Tensor] = trace._planned_by(self.traced, tuple(arguments), {})
            return planned
        function = self.function
        try:
            function.begin_capture(arguments)
            results = self._body(*arguments)
        except BaseException:
            # nothing reads them, and a limit has no room for them
            function.abort(arguments, wants_values=False)
            raise
        if (why := function.finish_capture(arguments, results, _GUARDS)) is not None:
            raise RuntimeError(f"Replay: the body cannot be recorded: {why}")
        return results
