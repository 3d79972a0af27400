"""``MEGJIT_CHECK``: a call that skips the Python body is compared with one that runs it.

In: a call that the guards let through. Out: its result, or a TraceError that tells the body's
result and the line at which the body differs. The body runs in a trial, which leaves tensors,
gradients and random generators as they were.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ..core._tree import Branch, flatten
from ..core.row_gradient import RowGradient
from ..tensor import Tensor
from .watched import same

if TYPE_CHECKING:
    from .guards import Guards

_NOISE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}  # level 3 may sum in another order while kernels are compiled


def _words_for(tensor: Any) -> str:
    return f"the {type(tensor).__name__} {tensor.name or ''}".rstrip()


def _parts_of_grad(tensor: Tensor) -> list[Tensor]:
    """Returns the gradient, its rows and values if it is kept as rows, or nothing."""
    grad: Any = tensor.grad
    if isinstance(grad, RowGradient):
        return [grad.rows, grad.values]
    return [] if grad is None else [grad]


def _alike(a: Any, b: Any) -> bool:
    """Whether they are containers of one form whose values that are not tensors are the same."""
    if not (isinstance(a, Branch) and isinstance(b, Branch)):
        return same(a, b)
    return a.kind is b.kind and a.names == b.names and len(a.parts) == len(b.parts) and all(map(_alike, a.parts, b.parts))


class Trial:
    """One call whose body runs first, as a trial that leaves nothing changed."""

    def __init__(
        self,
        function: _core.TraceFunction,
        options: _core.TraceOptions,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: list[Tensor],
        guards: Guards,
    ) -> None:
        self._function = function
        self._was_there = guards.has_seen
        self._tolerates = options.pipeline.opt_level >= 3 and not options.pipeline.exact
        options = options.copy()
        options.symbolic = True
        options.pipeline.memory = _core.MemoryOptions()  # a limit may hold only where states are replaced in place
        self._reference = _core.TraceFunction(options)
        self._flat: list[Tensor] = []  # tensors that the body returned
        self._values: list[Tensor] = []
        self._differs = ""
        self._raised: Exception | None = None
        try:
            self._reference.begin(leaves)
            result_tree = flatten(body(*args, **kwargs), self._flat, {})
            self._changed, self._values = self._reference.try_out(leaves, self._flat)
        except BaseException as error:
            self._reference.abort_trial(leaves)
            if not isinstance(error, Exception):
                raise
            self._raised = error
            return
        if not _alike(result_tree, guards.result_tree):
            self._differs = "the body returns other containers or other values that are no tensors"

    def run_direct(self, leaves: list[Tensor], number: int) -> list[Tensor] | None:
        """Runs `TraceFunction.run_direct`. TraceError if its results, or the tensors that it
        updates, differ from the body's, or if the body alone raises.
        """
        if self._raised is not None:
            if self._function.run_direct(leaves, number) is None:  # raises the same where an op refuses the values
                return None
            self._refuse(f"the body raises {type(self._raised).__name__}: {str(self._raised).partition(chr(10))[0]}", self._raised)
        changed = {id(tensor) for tensor, is_grad, _ in self._changed if not is_grad}
        kept = [(tensor, Tensor(tensor)) for tensor in self._function.updated(number) if id(tensor) not in changed and self._was_there(tensor)]
        flat = self._function.run_direct(leaves, number)
        if flat is not None:
            self._compare(flat, kept)
        return flat

    def _compare(self, flat: list[Tensor], kept: list[tuple[Tensor, Tensor]]) -> None:
        tensor: Any
        rows: list[tuple[str, Any, Any]] = []
        for place, (result, of_body, value) in enumerate(zip(flat, self._flat, self._values, strict=False)):
            if result is not of_body:
                rows.append((f"result {place}", result, value))
        for tensor, is_grad, wanted in self._changed:
            what, got = (f"the gradient of {_words_for(tensor)}", _parts_of_grad(tensor)) if is_grad else (_words_for(tensor), [tensor])
            rows += [(what, *parts) for parts in itertools.zip_longest(got, wanted)]
        rows += [(_words_for(tensor), tensor, before) for tensor, before in kept]
        differs = self._differs or next((text for row in rows if (text := self._difference(*row))), "")
        if differs:
            self._refuse(differs)

    def _difference(self, what: str, got: Tensor | None, wanted: Tensor | None) -> str:
        if got is None or wanted is None:
            return "" if got is wanted else f"{what} is {'None' if got is None else 'a tensor'}, and the body makes it {'None' if wanted is None else 'a tensor'}"
        a, b = got.numpy(), wanted.numpy()
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{what} is {a.dtype}{list(a.shape)}, and the body gives {b.dtype}{list(b.shape)}"
        noise = _NOISE.get(got.dtype.name, 0.0) if self._tolerates else 0.0
        if a.tobytes() == b.tobytes() or (noise and np.allclose(a.astype("float64"), b.astype("float64"), rtol=noise, atol=noise, equal_nan=True)):
            return ""
        same = (a == b) | ((a != a) & (b != b))
        if np.all(same):  # they differ in the sign of a zero, or the payload of a NaN
            same = np.signbit(a) == np.signbit(b)
        if np.all(same):
            return ""
        at = tuple(int(i) for i in np.argwhere(~same)[0])
        return f"{what} is {a[at]} at {list(at)}, and the body gives {b[at]}"

    def _refuse(self, differs: str, cause: Exception | None = None) -> None:
        line, ops = self._first_other_line()
        raise _core.TraceError(
            f"MEGJIT_CHECK: a call without the Python body does not do what the body does now: {differs}\n"
            f"  why: {ops or 'the body issues the recorded operations, on other tensors or with other constants'}\n"
            "  fix: pass what varies as a tensor, or keep it where guards look (globals, attributes, arguments); or leave out without_host"
            + (f"\n  at:  {line}" if line else "")
        ) from cause

    def _first_other_line(self) -> tuple[str, str]:
        """Returns the line at which the body leaves the record, and what it does there; empty if it
        does not.
        """
        if self._reference.version is None:  # the body has raised
            return "", ""
        then, now = ("\n".join(function.graphs(optimized=False)).splitlines() for function in (self._function, self._reference))
        for at, (old, new) in enumerate(itertools.zip_longest(then, now, fillvalue="")):
            before, after = (text.partition("  # ")[0].strip() for text in (old, new))
            if before != after:  # a constant has no line, but its reader has one
                line = next((text.partition("  # ")[2] for text in (*now[at:], *then[at:]) if "  # " in text), "")
                return line, f"the body does `{after or 'nothing'}`, where `{before or 'nothing'}` was recorded"
        return "", ""
