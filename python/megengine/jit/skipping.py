"""Calls of ``trace(without_host=...)``: decides when the body must run, and records it for calls
without it.

In: a call that the extension cannot answer by the facts of a version (python/bindings/facts.h).
Out: the result of a program whose guards hold, or of the body, which is recorded, or only run if
"auto" finds that it must.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from ..core._tree import flatten
from ..core._tree import leaves as tree_leaves
from ..tensor import Tensor
from .parts import Part
from .results import reason_in_results, refuse_used_up

_P = ParamSpec("_P")
_MOST_TRIALS = 7  # recordings, after which "auto" lets the body run for some calls
_READS = "the body reads values of tensors"
_MOST_RECORDINGS = 4  # recordings in a row, with without_host=True, before a warning


class Skipping(Part[_P]):
    """The base of ``trace`` whose calls skip the body while its guards hold."""

    def trace_without_host(self, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        """Runs one call without the Python body, once it was recorded and while its guards hold.

        Parameters
        ----------
        *args : object
            Positional arguments of the call: the input tensors.
        **kwargs : object
            Keyword arguments of the call: modules, optimizers and other captured objects.

        Returns
        -------
        object
            The result of the function.
        """
        if self._walks:
            return self._walk(args, kwargs)
        leaves = self.flatten_inputs(*args, **kwargs)
        guards = self._known.get(self._function.guards_for(leaves)) if self._known else None
        if guards is not None:
            self._guard_reason = guards.reason(args, kwargs, leaves)
            if self._guard_reason is None:
                run: Callable[..., Any] = self._function.run_direct
                if self._check_interval and self._is_checked():
                    from .checked_calls import Trial  # slow to import

                    run = Trial(self._function, self._options, self._body, args, kwargs, leaves, guards).run_direct
                if self._was_recorded:
                    self._was_recorded = False
                    with self._compiling():
                        flat = run(leaves, guards.number)
                else:
                    flat = run(leaves, guards.number)
                if flat is not None:
                    if self._needs_no_python:
                        self._function.set_facts(guards.number, guards.facts, guards.make_result)
                    return guards.make_result(flat)
        if self._trials is None:
            return self._capture(args, kwargs, leaves)
        if self._known and guards is None:  # the decision holds for other shapes, too
            return self._captured_or_walked(args, kwargs, leaves)
        return self._decide(args, kwargs, leaves)

    def _is_checked(self) -> bool:
        """Whether it is the first, or an n-th, call without the body."""
        self._skipped += 1
        return (self._skipped - 1) % self._check_interval == 0

    def _decide(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Tensor]) -> Any:
        """Runs one call with the body, which shows whether later calls need it: the first is
        recorded as usual, the second for calls without the body.
        """
        from .effects import acting_part  # slow to import

        if self._function.version is None or any(isinstance(leaf, np.ndarray) for leaf in tree_leaves(args)):
            return self.trace_normal(*args, **kwargs)
        if self._trials == _MOST_TRIALS:
            reason = f"it was recorded {_MOST_TRIALS} times: {self._guard_reason}"
        elif found := acting_part(self.__wrapped__, args, kwargs):
            reason = f"the body acts on the outside: {found}"
        else:
            return self._captured_or_walked(args, kwargs, leaves)
        self._begin_walking(reason)
        return self._walk(args, kwargs)

    def _captured_or_walked(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Tensor]) -> Any:
        result = self._capture(args, kwargs, leaves)
        self._trials = (self._trials or 0) + 1
        if self._guards is None:
            self._begin_walking(self._guard_reason)
        return result

    def _begin_walking(self, reason: str | None) -> None:
        """Calls run the body from here on; the decision is made anew after some, each time after twice as many."""
        self._guard_reason, self._trials = reason, 0
        self._walks, self._pause = self._pause, 2 * self._pause
        if self._known:  # recordings of other shapes that were not checked
            self._known = {}
            self._function.clear()

    def _walk(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs one of these calls. After one that raises, or reads no values any more, the function
        counts as new.
        """
        walks, self._walks = self._walks, 0
        result = self.trace_normal(*args, **kwargs)
        if self._guard_reason != _READS or self._function.has_read:
            self._walks = walks - 1
        return result

    def _capture(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Tensor]) -> Any:
        """Runs one call with the body, and records it for calls without it."""
        from .guards import Guards  # slow to import

        last, self._guards = self._guards, None
        # counts recordings in a row
        self._recordings = self._recordings + 1 if self._was_recorded else 1
        self._was_recorded = True
        guards = last and last.for_other_sizes(args, kwargs, leaves)
        guards = guards or Guards(self.__wrapped__, args, kwargs, leaves)
        with self._compiling():
            try:
                self._function.begin_capture(leaves)
                result = self._named_body(*args, **kwargs)
                found: list[Tensor] = []
                guards.result_tree = flatten(result, found, {})
                guards.make_result = guards.result_maker()
                if self._trials is None:
                    refuse_used_up(guards.result_tree)
            except BaseException:
                self._function.abort(leaves)
                raise
            try:
                outside = [guards.has_seen(tensor) for tensor in found]
                unrepeatable = self._function.finish_capture(leaves, found, guards.number, outside, self._trials is not None)
            except BaseException:
                self._function.abort(leaves)  # nothing where the call has ended
                raise
        made = [tensor for tensor, was_there in zip(found, outside, strict=True) if not was_there]
        unrepeatable = unrepeatable or reason_in_results(guards.result_tree, leaves, made, guards.has_seen)
        guards.leave_grads_of(self._function.tensors_with_grads(), kwargs, leaves)
        reason = unrepeatable or guards.reason_after_recording(args, kwargs, leaves)
        for number in self._function.take_gone_guards():
            self._known.pop(number, None)
        if reason is None:
            self._guards = self._known[guards.number] = guards
        else:
            self._guard_reason = reason
            if self._recordings == _MOST_RECORDINGS and self._trials is None:
                warnings.warn(
                    f"{self._name_of_function()} is recorded again in each call, which takes longer than without without_host=True: {reason}",
                    stacklevel=4,
                )
        return result
