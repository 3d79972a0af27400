"""Element-wise functions as a module, so that quantization can see them."""

from __future__ import annotations

from typing import Any

from ..core.tensor.elemwise_modes import function_of, mode_of
from ..tensor import Tensor
from .module import Module

__all__ = ["Elemwise"]


class Elemwise(Module):
    """Applies the function named ``method``, in any case: "add", "RELU", "fuse_add_relu", "erfinv", ...

    ValueError for an unknown name.
    >>> import megengine as mge
    >>> Elemwise("add")(mge.Tensor([1.0]), mge.Tensor([2.0])).numpy()
    array([3.], dtype=float32)
    """

    def __init__(self, method: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.method = mode_of(method)
        function_of(self.method)  # an unknown name is an error here, not in the first call

    def forward(self, *inps: Tensor) -> Tensor:
        return function_of(self.method)(*inps)
