"""Exchange of tensors by the DLPack protocol. Values are copied unless ``copy=False`` says that the memory is to be shared."""

from typing import Any

import numpy as np

from .. import _core
from ..core._telling import no_effect
from ..tensor import Tensor

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor, stream: int | None = None) -> Any:
    """A DLPack capsule of a copy of the tensor's value.

    Parameters
    ----------
    tensor : Tensor
        Any shape.
    stream : int or None
        Is not needed on the host.

    Returns
    -------
    object
        A capsule.

    Raises
    ------
    BufferError
        For a dtype that DLPack lacks.
    TypeError
        Unless it is a Tensor.

    Examples
    --------
    >>> from megengine import Tensor
    >>> from_dlpack(to_dlpack(Tensor([1.0, 2.0]))).numpy()
    array([1., 2.], dtype=float32)
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"to_dlpack: {type(tensor).__name__} is not a Tensor")
    return tensor.__dlpack__(stream=stream)


class _Capsule:
    """Gives a bare capsule of host memory the form that NumPy reads."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU


def from_dlpack(ext_tensor: object, stream: int | None = None, *, copy: bool | None = None) -> Tensor:
    """A Tensor of what another library's tensor, or a DLPack capsule, holds.

    Parameters
    ----------
    ext_tensor : object
        An object with ``__dlpack__``, or a capsule; on the host.
    stream : int or None
        Is not needed on the host.
    copy : bool or None
        True or None: the tensor has memory of its own. False: it has the other one's memory, which
        stays as long as the tensor does. Whoever writes to that memory changes the tensor; a write
        to the tensor (``x[0] = 1``, an optimizer's step) gives it a new value elsewhere, as always,
        and shows nowhere else.

    Returns
    -------
    Tensor
        Of its shape and dtype.

    Raises
    ------
    BufferError
        For memory that cannot be shared: on another device, neither in row-major order nor channels-last, of a dtype that
        tensors do not have (uint32, complex128).

    Examples
    --------
    >>> import numpy as np
    >>> array = np.zeros(2, "float32")
    >>> x = from_dlpack(array, copy=False)
    >>> array[0] = 7
    >>> x.numpy()
    array([7., 0.], dtype=float32)
    """
    no_effect("from_dlpack", "the memory is the host's, which has no streams", stream=stream)
    if copy is False:
        return _core.borrow(ext_tensor)
    source = ext_tensor if hasattr(ext_tensor, "__dlpack__") else _Capsule(ext_tensor)
    array = np.from_dlpack(source)
    return Tensor(array, dtype=array.dtype if array.dtype in (np.int64, np.float64) else None)
