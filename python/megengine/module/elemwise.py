"""Functions as modules, so that quantization can see and replace them, and the module that does nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from .. import functional as F
from ..core.tensor.elemwise_modes import function_of, mode_of
from ..tensor import Tensor
from .module import Module

__all__ = ["Concat", "Elemwise", "Identity"]

_T = TypeVar("_T")


class Concat(Module):
    """Joins tensors along an axis, as a module that quantization can replace.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.Concat()([mge.Tensor([1.0]), mge.Tensor([2.0, 3.0])]).tolist()
    [1.0, 2.0, 3.0]
    """

    def forward(self, inps: Iterable[Tensor], axis: int = 0) -> Tensor:
        """Returns ``inps`` joined along ``axis`` (0 by default); other extents must be equal.

        Parameters
        ----------
        inps : iterable of Tensor
            Tensors whose extents are equal, except along ``axis``.
        axis : int
            Axis along which to join; negative numbers count from the end.

        Returns
        -------
        Tensor
            The tensors, joined along ``axis``.
        """
        return F.concat(inps, axis)


class Elemwise(Module):
    """Applies a function of `functional` by name, as a module that quantization can replace.

    Parameters
    ----------
    method : object
        Name of the function in any case: "add", "RELU", "fuse_add_relu", "erfinv", ....
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        For an unknown function.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.Elemwise("fuse_add_relu")(mge.Tensor([1.0, -3.0]), mge.Tensor([2.0, 1.0])).tolist()
    [3.0, 0.0]
    """

    def __init__(self, method: object, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.method = mode_of(method)
        function_of(self.method)  # an unknown name is an error here, not in the first call

    def forward(self, *inps: Tensor) -> Tensor:
        """Returns the function of ``inps``, as many Tensors as it takes; shapes broadcast.

        Parameters
        ----------
        *inps : Tensor
            Operands, as many Tensors as the function takes; their shapes broadcast.

        Returns
        -------
        Tensor
            The broadcast shape.
        """
        return function_of(self.method)(*inps)


class Identity(Module):
    """Returns its input: a placeholder where a model wants a layer.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> model = M.Sequential(M.Linear(4, 8), M.Linear(8, 2))
    >>> model[1] = M.Identity()  # features instead of classes
    >>> model(mge.functional.ones((1, 4))).shape
    (1, 8)
    """

    if TYPE_CHECKING:

        def __call__(self, x: _T) -> _T: ...

    def forward(self, x: Any) -> Any:
        """Returns ``x`` itself.

        Parameters
        ----------
        x : object
            Any object, which is returned as it is.

        Returns
        -------
        object
            ``x`` itself.
        """
        return x
