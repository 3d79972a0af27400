"""Exchange of tensors by the DLPack protocol. Values are copied unless ``copy=False`` says that the memory is to be shared."""

from typing import Any

import numpy as np

from .. import _core
from ..core._streams import Stream
from ..core._telling import no_effect
from ..tensor import Tensor

_HOST, _CUDA = 1, 2  # kinds of device

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor, stream: int | None = None) -> Any:
    """Makes a DLPack capsule of a copy of the tensor's value.

    Parameters
    ----------
    tensor : Tensor
        Tensor of any shape, whose value is copied.
    stream : int or None
        Driver's number for the stream that will read a GPU's memory; has no effect for a tensor of
        the host.

    Returns
    -------
    object
        The capsule, which can be read once.

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
        return (_HOST, 0)


def from_dlpack(ext_tensor: object, stream: int | None = None, *, copy: bool | None = None) -> Tensor:
    """Makes a Tensor of the values of another library's tensor, or of a DLPack capsule, on the same
    device.

    Parameters
    ----------
    ext_tensor : object
        An object with ``__dlpack__``, or with ``__cuda_array_interface__``, or a capsule.
    stream : int or None
        Driver's number for the stream that computes the memory of a capsule on a GPU (1 and None:
        the legacy default stream; 2: the thread's; -1: the memory is complete). Other objects order
        the streams themselves. It has no effect on the host.
    copy : bool or None
        Whether the tensor has memory of its own, as for None. False shares the memory, which stays
        as long as the tensor does, and until the work that reads it has run. Then writes of others
        to that memory change the tensor. A write to the tensor (``x[0] = 1``, an optimizer's step)
        gives it a new value elsewhere, as always, which the others do not see.

    Returns
    -------
    Tensor
        Tensor of the same shape and dtype.

    Raises
    ------
    BufferError
        For memory that cannot be shared: on a device that is neither the host nor a GPU of NVIDIA's, neither in row-major order nor
        channels-last (on a GPU with a copy, too), of a dtype that tensors do not have (uint32, complex128).
    TypeError
        For other objects.
    RuntimeError
        For a GPU's memory where there is no GPU.

    Examples
    --------
    >>> import numpy as np
    >>> array = np.zeros(2, "float32")
    >>> x = from_dlpack(array, copy=False)
    >>> array[0] = 7
    >>> x.numpy()
    array([7., 0.], dtype=float32)
    """
    exchanges = hasattr(ext_tensor, "__dlpack__")
    kind, number = _place(ext_tensor) if exchanges else (_HOST, 0)
    cuda = None if exchanges else getattr(ext_tensor, "__cuda_array_interface__", None)
    if cuda is not None:
        borrowed = _core.borrow_array(cuda, ext_tensor)
        _wait(borrowed, cuda.get("stream", -1))
    elif kind == _CUDA:
        ours = Stream(f"gpu{number}")
        borrowed = _core.borrow(ext_tensor.__dlpack__(stream=ours.native))  # type: ignore[attr-defined]  # it orders the streams
    elif exchanges or not _core.is_on_gpu(ext_tensor):
        no_effect("from_dlpack", "the memory is the host's, which has no streams", stream=stream)
        if copy is False:
            return _core.borrow(ext_tensor)
        if not exchanges and type(ext_tensor).__name__ != "PyCapsule":
            raise TypeError(
                f"from_dlpack: {type(ext_tensor).__name__} has neither __dlpack__ nor __cuda_array_interface__, and is no capsule\n  fix: Tensor(...) copies other data"
            )
        array = np.from_dlpack(ext_tensor if exchanges else _Capsule(ext_tensor))  # type: ignore[arg-type]
        return Tensor(array, dtype=array.dtype if array.dtype in (np.int64, np.float64) else None)
    else:
        borrowed = _core.borrow(ext_tensor)
        _wait(borrowed, stream)
    return borrowed if copy is False else _core.borrow(_core.lend_in_place(borrowed, True))


def _place(array: Any) -> tuple[int, int]:
    """Returns kind and number of a device. One without a kind in DLPack counts as the host, and is
    refused when its memory is asked for.
    """
    try:
        kind, number = array.__dlpack_device__()
    except (AttributeError, BufferError, ValueError):
        return (_HOST, 0)
    return (int(kind), number)


def _wait(tensor: Tensor, stream: int | None) -> None:
    if stream != -1:
        Stream(tensor.device.logical_name).wait_stream(1 if stream is None else stream)
