"""Gradients that are handed to functions, as older programs ask for them; `megengine.autodiff.GradManager` adds them to
``.grad``.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from ..._core import Tape, apply_const
from ..._core import Tensor as _Tensor

if TYPE_CHECKING:
    from ...tensor import Tensor

__all__ = ["Grad"]


class Grad:
    """Records what is computed in its ``with`` block, and differentiates it when it is called.

    Grads nest as GradManagers do: an outer one sees the backward pass of an inner one.

    >>> from megengine import Tensor
    >>> x, found = Tensor([3.0]), []
    >>> with Grad().wrt(x, callback=found.append) as grad:
    ...     y = x * x
    ...     grad(y, Tensor([1.0]))
    >>> found[0].numpy()
    array([6.], dtype=float32)
    """

    def __init__(self) -> None:
        self._tape = Tape()
        self._wanted: list[tuple[Tensor, Callable[[Tensor], object] | None]] = []

    def wrt(self, *tensors: "Tensor", callback: "Callable[[Tensor], object] | None" = None) -> Self:
        """Asks for the gradients of these tensors, as they are now; callback gets each. TypeError for other things."""
        for tensor in tensors:
            if not isinstance(tensor, _Tensor):
                raise TypeError(f"Grad.wrt takes Tensors, got a {type(tensor).__name__}")
            self._tape.watch(tensor)
            value = apply_const(0.0)
            value._reset(tensor)
            self._wanted.append((value, callback))
        return self

    def __call__(self, ys: "Tensor | Sequence[Tensor]", dys: "Tensor | Sequence[Tensor]") -> None:
        """Gives callbacks the gradients of ``ys``, where those of the result are ``dys``, and ends the recording.

        A tensor that ys do not depend on gets none. ValueError where the numbers of ys and dys differ.
        """
        ys, dys = ([x] if isinstance(x, _Tensor) else list(x) for x in (ys, dys))
        if len(ys) != len(dys):
            raise ValueError(f"Grad: {len(ys)} tensors y but {len(dys)} gradients dy")
        wanted, self._wanted = self._wanted, []
        grads = self._tape.backward(ys, dys, [tensor for tensor, _ in wanted], [])
        self._close()
        for (_, callback), grad in zip(wanted, grads, strict=True):
            if callback is not None and grad is not None:
                callback(grad)

    def _close(self) -> None:
        self._wanted = []
        self._tape.close()
        self._tape.clear()

    def __enter__(self) -> Self:
        self._tape.open()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._close()
