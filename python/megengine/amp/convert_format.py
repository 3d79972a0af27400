"""The memory format tag of tensors and modules."""

from copy import deepcopy
from typing import TYPE_CHECKING

from ..tensor import Parameter, Tensor

if TYPE_CHECKING:
    from ..module import Module


def _tagged(x: Tensor, inplace: bool) -> Tensor:
    if x.ndim not in (4, 5):
        return x
    if not inplace:
        x = type(x)(x) if isinstance(x, Parameter) else Tensor(x)
    x.format = "nhwc"
    return x


def convert_tensor_format(x: Tensor, inplace: bool = True) -> Tensor:
    """Tags a 4-d or 5-d tensor as "nhwc"; the shape stays NCHW. ValueError for other ranks."""
    if x.ndim not in (4, 5):
        raise ValueError(f"convert_tensor_format: a tensor with {x.ndim} axes; 4 or 5 are possible")
    return _tagged(x, inplace)


def convert_module_format(module: "Module", inplace: bool = True) -> "Module":
    """Tags the 4-d and 5-d parameters and buffers of a module as "nhwc"; returns it (a copy unless
    inplace).
    """
    if not inplace:
        module = deepcopy(module)
    for _, x in (
        module.named_tensors() if hasattr(module, "named_tensors") else module.named_parameters()
    ):
        _tagged(x, True)
    return module
