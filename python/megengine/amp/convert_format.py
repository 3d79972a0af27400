"""The order of memory of tensors and modules."""

from copy import deepcopy
from typing import TYPE_CHECKING

from ..tensor import Parameter, Tensor

if TYPE_CHECKING:
    from ..module import Module


def convert_tensor_format(x: Tensor, inplace: bool = True) -> Tensor:
    """A 4-d or 5-d tensor in the order "nhwc"; the shape stays NCHW. Others stay as they are."""
    if x.ndim not in (4, 5):
        return x
    if not inplace:
        x = type(x)(x) if isinstance(x, Parameter) else Tensor(x)
    x.format = "nhwc"
    return x


def convert_module_format(module: "Module", inplace: bool = True) -> "Module":
    """Puts the 4-d and 5-d parameters and buffers of a module in the order "nhwc"; returns it (a copy unless
    inplace).
    """
    if not inplace:
        module = deepcopy(module)
    for _, x in (
        module.named_tensors() if hasattr(module, "named_tensors") else module.named_parameters()
    ):
        convert_tensor_format(x)
    return module
