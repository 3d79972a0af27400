"""Functions whose gradient a program defines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from .. import _core
from ..tensor import Tensor

__all__ = ["Function"]

if TYPE_CHECKING:
    _P = ParamSpec("_P")
    _R = TypeVar("_R", covariant=True)

    class _Computes(Protocol[_P, _R]):
        def forward(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...


class Function:
    """Base of functions with a gradient of their own: define ``forward`` and ``backward``, and call
    a new instance each time.

    Attributes of the instance keep what ``backward`` needs from ``forward``, so each call needs an
    instance of its own. Instances can be copied and pickled, if their attributes can.

    See Also
    --------
    GradManager : Calls ``backward``.

    Examples
    --------
    >>> import megengine as mge, megengine.functional as F
    >>> class Exp(Function):
    ...     def forward(self, x):
    ...         self.y = F.exp(x)
    ...         return self.y
    ...     def backward(self, dy):
    ...         return dy * self.y
    >>> Exp()(mge.Tensor([0.0])).numpy()
    array([1.], dtype=float32)
    """

    def forward(self, *args: Any, **kwargs: Any) -> Tensor | Sequence[Tensor]:
        """Computes the result, one Tensor or a sequence of them; not recorded by GradManagers.

        Parameters
        ----------
        *args : object
            Positional arguments of the call, Tensors and others.
        **kwargs : object
            Keyword arguments of the call.

        Returns
        -------
        Tensor or sequence of Tensor
            The results, which become outputs of the call.

        Raises
        ------
        TypeError
            Unless a subclass defines it.
        """
        raise TypeError(f"{type(self).__name__} does not define forward(self, *inputs)")

    if TYPE_CHECKING:  # subclasses have one argument for each output

        def backward(
            self, *args: Any, **kwargs: Any
        ) -> Tensor | None | Sequence[Tensor | None]: ...
    else:

        def backward(self, *output_grads: Tensor | None) -> Tensor | None | Sequence[Tensor | None]:
            """Computes the gradients of the inputs from those of the outputs.

            Outer GradManagers record what it computes.

            Parameters
            ----------
            *output_grads : Tensor or None
                Gradient of each output, of its shape; None if the output was not used.

            Returns
            -------
            Tensor, sequence of Tensor or None or None
                One gradient, or None, for each Tensor that was an argument.

            Raises
            ------
            TypeError
                Unless a subclass defines it.
            """
            raise TypeError(f"{type(self).__name__} does not define backward(self, *output_grads)")

    if TYPE_CHECKING:  # a call has the types of the class's forward

        def __call__(self: _Computes[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    else:

        def __call__(self, *args: Tensor) -> Tensor | tuple[Tensor, ...]:
            """Runs ``forward``. TypeError unless all arguments, and all results, are Tensors."""
            for position, arg in enumerate(args):
                if not isinstance(arg, Tensor):
                    raise TypeError(
                        f"op Function expect type Tensor as inputs, got {type(arg)}\n"
                        f"  why: argument {position} of {type(self).__name__} is no Tensor\n"
                        "  fix: pass other values to the constructor and keep them in attributes"
                    )
            with _core.pause_tapes():
                results = self.forward(*args)
            single = isinstance(results, Tensor)
            outputs = [results] if single else list(results)
            for output in outputs:
                if not isinstance(output, Tensor):
                    raise TypeError(
                        f"{type(self).__name__}.forward must return Tensors, got a {type(output).__name__}"
                    )
            linked = _core.custom_apply(list(args), outputs, self._backward_of(args))
            return linked[0] if single else tuple(linked)

    def _backward_of(self, args: tuple[Tensor, ...]) -> Any:
        shapes = [arg._tuple_shape for arg in args]
        name = f"{type(self).__name__}.backward"

        def backward(output_grads: Sequence[Tensor | None]) -> list[Tensor | None]:
            grads = self.backward(*output_grads)
            grads = [grads] if grads is None or isinstance(grads, Tensor) else list(grads)
            if len(grads) < len(shapes):
                raise ValueError(
                    f"{name} returned {len(grads)} gradients for {len(shapes)} inputs\n"
                    "  fix: return one Tensor or None per argument of the call"
                )
            del grads[len(shapes) :]  # surplus gradients, of arguments that forward lacks
            for position, (grad, shape) in enumerate(zip(grads, shapes, strict=True)):
                if grad is None:
                    continue
                if not isinstance(grad, Tensor):
                    raise TypeError(
                        f"{name} must return Tensors or None, got a {type(grad).__name__}"
                    )
                if grad._tuple_shape != shape:
                    raise ValueError(
                        f"{name}: gradient {position} has shape {grad._tuple_shape}, its input {shape}\n"
                        "  fix: sum over the axes that forward broadcast"
                    )
            return grads

        return backward

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
