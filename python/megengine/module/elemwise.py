"""Element-wise functions as a module, so that quantization can see them."""

from __future__ import annotations

from typing import Any

from ..core.tensor.elemwise_modes import function_of, mode_of
from ..tensor import Tensor
from .module import Module

__all__ = ["Elemwise"]


class Elemwise(Module):
    """Applies a function of `functional` by name, as a module that quantization can replace.

    method: name of the function in any case: "add", "RELU", "fuse_add_relu", "erfinv", ...;
    ValueError for an unknown one.

    >>> import megengine as mge, megengine.module as M
    >>> M.Elemwise("fuse_add_relu")(mge.Tensor([1.0, -3.0]), mge.Tensor([2.0, 1.0])).tolist()
    [3.0, 0.0]
    """

    def __init__(self, method: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.method = mode_of(method)
        function_of(self.method)  # an unknown name is an error here, not in the first call

    def forward(self, *inps: Tensor) -> Tensor:
        """Return the function of ``inps``, as many Tensors as it takes; shapes broadcast."""
        return function_of(self.method)(*inps)
