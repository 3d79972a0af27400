"""Exchange of tensors without copying, by the DLPack protocol."""

from .. import _core
from ..tensor import Tensor

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor, stream=None):
    """A DLPack capsule of the tensor's memory."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"to_dlpack: {type(tensor).__name__} is not a Tensor")
    return tensor.__dlpack__(stream=stream)


def from_dlpack(ext_tensor, stream=None) -> Tensor:
    """A Tensor of what another library's tensor (or a DLPack capsule) holds."""
    return _core.from_dlpack(ext_tensor)
