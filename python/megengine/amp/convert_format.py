"""The order of memory of tensors and modules."""

from copy import deepcopy
from typing import TYPE_CHECKING

from ..tensor import Parameter, Tensor

if TYPE_CHECKING:
    from ..module import Module


def convert_tensor_format(x: Tensor, inplace: bool = True) -> Tensor:
    """Puts a 4-D or 5-D tensor in the memory order "nhwc"; its shape stays NCHW.

    Parameters
    ----------
    x : Tensor
        Tensor of any shape; one that is neither 4-D nor 5-D stays as it is.
    inplace : bool
        Whether to change ``x`` itself; False makes a new tensor.

    Returns
    -------
    Tensor
        The tensor.

    Examples
    --------
    >>> import megengine as mge
    >>> from megengine.amp import convert_tensor_format
    >>> x = convert_tensor_format(mge.functional.ones((1, 3, 4, 4)))
    >>> x.format, x.shape
    ('nhwc', (1, 3, 4, 4))
    """
    if x.ndim not in (4, 5):
        return x
    if not inplace:
        x = type(x)(x) if isinstance(x, Parameter) else Tensor(x)
    x.format = "nhwc"
    return x


def convert_module_format(module: "Module", inplace: bool = True) -> "Module":
    """Puts the 4-D and 5-D parameters and buffers of a module in the memory order "nhwc".

    Parameters
    ----------
    module : Module
        Module whose parameters and buffers are reordered.
    inplace : bool
        Whether to change ``module`` itself; False changes a copy.

    Returns
    -------
    Module
        The module.

    Examples
    --------
    >>> import megengine.module as M
    >>> from megengine.amp import convert_module_format
    >>> convert_module_format(M.Conv2d(3, 8, 3)).weight.format
    'nhwc'
    """
    if not inplace:
        module = deepcopy(module)
    for _, x in (
        module.named_tensors() if hasattr(module, "named_tensors") else module.named_parameters()
    ):
        convert_tensor_format(x)
    return module
