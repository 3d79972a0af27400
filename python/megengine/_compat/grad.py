"""Gradients that are handed to callbacks, and `megengine.autodiff.Function`.

>>> from megengine import tensor
>>> x = tensor([3.0])
>>> with Grad() as grad:
...     grad.wrt(x, callback=lambda dx: print(dx.numpy()))  # doctest: +ELLIPSIS
...     y = x * x
...     grad(y, tensor([1.0]))
<...Grad object at ...>
[6.]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import _core
from ..autodiff.function import Function
from ..tensor import Tensor

__all__ = ["Function", "Grad"]


class Grad:
    """Records from the beginning of its ``with`` block, or from `wrt`, until it is called or the block ends.

    Unlike a GradManager it leaves ``.grad`` of tensors alone. name: for the program's own use.
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self._tape: Any = None
        self._wanted: list[tuple[Tensor, Callable[[Tensor], Any] | None]] = []

    def wrt(self, *tensors: Tensor, callback: Callable[[Tensor], Any] | None = None) -> Grad:
        """Asks for gradients with respect to ``tensors``, for each of which ``callback(gradient)`` is called. Returns self."""
        self.__enter__()
        for tensor in tensors:
            if self._tape.watches(tensor):  # another handle of one value
                tensor._reset(tensor.detach())
            self._tape.watch(tensor)
            as_it_is = Tensor(0.0)  # later in-place writes do not change what is differentiated
            as_it_is._hold(tensor)
            self._wanted.append((as_it_is, callback))
        return self

    def __call__(self, ys: Tensor | Sequence[Tensor], dys: Tensor | Sequence[Tensor]) -> None:
        """Hands gradients to the callbacks, those of the last tensor first, and ends the recording; tensors that no y depends on get none.

        ys: one tensor or several. dys: the gradient of the sought quantity with respect to each. RuntimeError unless recording.
        """
        if self._tape is None:
            raise RuntimeError("Grad: nothing is recorded\n  fix: compute y inside `with Grad() as grad:`, and call grad once")
        ys, dys = ([given] if isinstance(given, Tensor) else list(given) for given in (ys, dys))
        wanted = self._wanted
        grads = self._tape.backward(ys, dys, [tensor for tensor, _ in wanted], [])
        self.__exit__()
        for (_, callback), grad in zip(reversed(wanted), reversed(grads), strict=True):
            if grad is not None and callback is not None:
                callback(grad)

    def __enter__(self) -> Grad:
        if self._tape is None:
            self._tape = _core.Tape()
            self._tape.open()
        return self

    def __exit__(self, *error: object) -> None:
        tape, self._tape, self._wanted = self._tape, None, []
        if tape is not None:
            tape.close()
            tape.clear()
