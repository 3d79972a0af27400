"""Tensor: a handle on an immutable value. In-place writes make the handle hold another value."""

from collections.abc import Callable
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from . import _core
from ._core import Tensor as _Tensor
from ._words import explain_names
from .core import ops
from .core._streams import Stream
from .core._telling import deprecated, no_effect
from .core.qparams import QParams, create_qparams
from .core.tensor.array_method import ArrayMethodMixin
from .core.tensor.dtype import dtype_name
from .core.tensor.shapes import in_order_of, use_symbolic_shape
from .device import Device, device_of, shown_name
from .reports.page import escaped

_HOST, _CUDA = 1, 2  # kinds of device, as DLPack counts them
_FORMATS = ("default", "nchw", "nhwc")


class Tensor(ArrayMethodMixin):
    """An n-dimensional array on one device.

    Parameters
    ----------
    data : array_like
        A number, nested sequence, NumPy array or Tensor; it is copied.
    dtype : DTypeLike or None
        By default that of the data, with 64 bits narrowed: int to int32, float to float32.
    device : str, Device or None
        A name such as "cpu0"; by default `megengine.get_default_device()`.
    is_const : bool
        Whether the value never changes from call to call of a traced function.
    no_cache : bool
        Has no effect, and warns so; taken for compatibility.
    name : str or None
        Name that graphs and dumped models show.
    format : str
        Memory order; "nhwc" is channels last, see `Tensor.format`.

    Raises
    ------
    RuntimeError
        If data is a Tensor and another dtype or device is asked for (use astype, to).
    TypeError
        For a dtype that is not supported.

    Notes
    -----
    Operators work element by element, with NumPy's rules of broadcasting. An in-place write makes
    the tensor hold another value; values that were computed from it before stay.

    Examples
    --------
    >>> import megengine as mge
    >>> (mge.Tensor([1, 2]) + 0.5).numpy()
    array([1.5, 2.5], dtype=float32)
    >>> x = mge.Tensor([[1, 2], [3, 4]])
    >>> x[0] = 9
    >>> x.shape, x.dtype.name, x.tolist()
    ((2, 2), 'int32', [[9, 9], [3, 4]])
    """

    grad: "Tensor | None" = None  # the gradient that a GradManager found
    dmap_callback: Callable[[str], str] | None = None  # maps device names while loading
    _qparams: QParams | None = None
    # address -> memory that __cuda_array_interface__ gave, which stays
    _lent: dict[int, Any] | None = None
    _format = "default"  # the program's word; channels-last tensors are known by their layout
    _name: str | None = None

    def __new__(
        cls,
        data: ArrayLike,
        dtype: DTypeLike | None = None,
        device: str | Device | None = None,
        is_const: bool = False,
        no_cache: bool = False,
        name: str | None = None,
        format: str = "default",
    ) -> Self:
        # Built here and not in __init__, so that pickles that only call __new__ make whole tensors.
        self = _Tensor.__new__(cls)
        if device is not None:
            if cls.dmap_callback is not None:
                device = cls.dmap_callback(str(device))
            device = str(device)
        if isinstance(data, Tensor):
            if format == "default":
                format = data.format
        elif data is None:
            raise TypeError("Tensor: data is None\n  fix: pass numbers, a list or an array; F.zeros(shape) makes zeros")
        elif dtype is not None:
            dtype = dtype_name(dtype)
            if dtype == "complex64":
                data = np.asarray(data, np.complex64)
        if no_cache:
            no_effect("Tensor", "values of tensors are not cached", no_cache=no_cache)
        _Tensor.__init__(self, data, dtype, device, is_const, no_cache, name)
        if format != "default":
            self.format = format
        if name is not None:
            self._name = name
        return self

    def __init__(
        self,
        data: ArrayLike,
        dtype: DTypeLike | None = None,
        device: str | Device | None = None,
        is_const: bool = False,
        no_cache: bool = False,
        name: str | None = None,
        format: str = "default",
    ) -> None:
        pass

    @classmethod
    def _plain(cls, data: Any, dtype: Any = None, device: str | None = None) -> "Tensor":
        """Returns a plain Tensor of the same value."""
        return Tensor(data, dtype=dtype, device=device)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents as a tuple; in a trace with symbolic_shape as a Tensor, so that arithmetic on
        it is recorded. With a tuple or a list (``x.shape[:1] + (3,)``, ``x.shape == (2, 3)``) that
        acts as the tuple does, so type checkers are told of the tuple alone.
        """
        shape = self._tuple_shape
        if shape and use_symbolic_shape():
            return _Shape._of(_core.extents_tensor(self))  # type: ignore[return-value]  # it acts as the tuple
        if _core.records_for_dump():
            _core.note_extent_read(self)
        return shape

    @property
    def device(self) -> Device:
        """The device that holds the value; it equals every name of that device."""
        return device_of(self._device_name)

    @property
    def graph(self) -> _core.GraphEditor:
        """The graph of the network whose variable this is. AttributeError for a tensor with a
        value."""
        raise AttributeError(
            "Tensor.graph: this tensor has a value and belongs to no graph\n"
            "  fix: trace records functions; variables of a megengine.utils.network.Network have a graph"
        )

    @property
    def format(self) -> str:
        """The order of axes in memory: "nhwc" for channels last, else "default" or "nchw"; the
        shape is NCHW in any case.

        Writing "nhwc" to a tensor of 4 or 5 axes reorders its elements. Functions
        that work in that order (elementwise ones, convolution, pooling, concat, ...) give results
        in it.
        """
        return "nhwc" if self._layout == "channels_last" and self.ndim > 3 else self._format

    @format.setter
    def format(self, fmt: str) -> None:
        if fmt not in _FORMATS:
            raise ValueError(f"format: {fmt!r} is not one of {', '.join(_FORMATS)}")
        if fmt != self.format and self.ndim in (4, 5):
            self._reset(self.to_mkldnn() if fmt == "nhwc" else self.to_dense())
        self._format = "default" if self._layout == "channels_last" else fmt

    @property
    def qparams(self) -> QParams:
        """The quantization parameters; made when they are first asked for."""
        if self._qparams is None:
            self._qparams = create_qparams()
        return self._qparams

    @property
    def name(self) -> str:
        """Name in graphs and dumped models; "" when not set."""
        return self._name or ""

    @name.setter
    def name(self, name: str) -> None:
        self._name = name
        _core.set_name(self, name or "")

    @property
    def requires_grad(self) -> NoReturn:
        """Not supported: gradients are asked for with a GradManager."""
        raise AttributeError(
            "requires_grad is not supported; attach the tensor to a GradManager instead"
        )

    @requires_grad.setter
    def requires_grad(self, value: object) -> NoReturn:
        raise AttributeError(
            "requires_grad is not supported; attach the tensor to a GradManager instead"
        )

    __hash__ = object.__hash__  # tensors hash by identity, as == compares elements

    def item(self, *args: Any) -> float:
        """Returns the only element, or the one at ``*args``, as a Python number.

        Parameters
        ----------
        *args : object
            The index, if there are several elements: one number for the flattened tensor, or one
            for each axis.

        Returns
        -------
        bool, int or float
            The element.

        Raises
        ------
        ValueError
            For several elements and no index.
        """
        if args:
            return self.numpy().item(*args)
        return self._item()

    def detach(self) -> "Tensor":
        """Returns a tensor of the same value, through which no gradient flows.

        Returns
        -------
        Tensor
            The same value.
        """
        return in_order_of(self, super().detach())

    def _dev_tensor(self) -> "Tensor":
        """Returns the value alone, which programs give to inputs of ``core.tensor.megbrain_graph``.
        """
        return self.detach()

    def value_id(self) -> int:
        """Returns the number of the value that the handle holds now; in-place writes change it.

        Returns
        -------
        int
            The value's number in this process.
        """
        return self._value_id()

    @deprecated("Tensor.set_value")
    def set_value(self, value: "Tensor | ArrayLike") -> None:
        """Replaces all elements by ``value``, which is broadcast.

        Parameters
        ----------
        value : Tensor, number or array_like
            New value of the elements, which is broadcast to the tensor's shape.
        """
        self[...] = value

    @deprecated("Tensor.reset_zero")
    def reset_zero(self) -> None:
        """Sets all elements to 0."""
        self._reset(ops.full(shape=self._tuple_shape, value=0.0, dtype=self.dtype.name, device=self))

    def to(self, device: str | Device, *, _borrow: bool = False) -> "Tensor":
        """Returns the value on another device.

        Parameters
        ----------
        device : str or Device
            A name such as "gpu0", or a Device.

        Returns
        -------
        Tensor
            The value on that device; the tensor itself if it is there already.

        Raises
        ------
        ValueError
            For a malformed name.
        RuntimeError
            For a device that does not exist.
        """
        if _borrow:
            no_effect("Tensor.to", "a value that lies there already is never copied", _borrow=_borrow)
        target = _core.find_device(str(device))
        return ops.identity(self) if target == self._device_name else ops.copy_to(self, device=target)

    def __repr__(self) -> str:
        piece = "" if self.dtype == np.float32 else f", dtype={self.dtype}"
        values = str(self.numpy()) if self._is_readable() else f"<shape {list(self._tuple_shape)}>"
        return f"{type(self).__name__}({values}{piece}, device={shown_name(self.device)})"

    def _repr_html_(self) -> str:
        """Returns the HTML that notebooks show: dtype, shape and device above the values."""
        values = "no value yet"
        if self._is_readable():
            values = np.array2string(self.numpy(), precision=4, suppress_small=True, threshold=200)
        kind = f"{type(self).__name__} {self.dtype}{list(self._tuple_shape)}, {shown_name(self.device)}"
        return f"<code>{escaped(kind)}</code><pre>{escaped(values)}</pre>"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (
            self.numpy(),
            self.dtype,
            self.device.logical_name,
            False,
            False,
            None,
            self.format,
        )

    def __getstate__(self) -> dict[str, Any]:
        state = {"qparams": self._qparams, "name": self.name or None}
        return {key: value for key, value in state.items() if value is not None}

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        state = state or {}
        if state.get("qparams") is not None:
            self._qparams = state["qparams"]
        if state.get("name"):
            self.name = str(state["name"])

    def __dlpack__(self, stream: Any = None, **options: Any) -> Any:
        kind, number = self.__dlpack_device__()
        device, version = options.get("dl_device"), options.get("max_version")
        if device is not None and tuple(device) not in ((kind, number), (_HOST, 0)):
            raise BufferError(f"Tensor.__dlpack__: a value of {shown_name(self.device)} is given there or on the host, not on {device!r}")
        # shared memory is read-only, as a tensor never changes
        copies = options.get("copy") is not False
        if kind == _CUDA and device is not None and device[0] == _HOST and not copies:
            raise BufferError("Tensor.__dlpack__: a value on a GPU comes to the host as a copy\n  fix: leave copy=False out")
        if kind == _CUDA and (device is None or device[0] == _CUDA):
            return self._lend_on_gpu(stream, copies).__dlpack__(max_version=version)
        no_effect("Tensor.__dlpack__", "the memory is the host's, which has no streams", stream=stream)
        return self.numpy().__dlpack__() if copies else _core.lend(self).__dlpack__(max_version=version)

    def _lend_on_gpu(self, stream: int | None, copies: bool) -> Any:
        if stream == 0:
            raise ValueError("Tensor.__dlpack__: stream 0 is ambiguous\n  fix: 1 is the driver's legacy default stream, 2 the thread's")
        lent = _core.lend_in_place(self, copies)
        if stream != -1:  # a caller that passes -1 orders the streams itself
            Stream(self.device.logical_name).let_wait(1 if stream is None else stream)
        return lent

    def __dlpack_device__(self) -> tuple[int, int]:
        """Kind and number of the device, as DLPack counts them: (1, 0) is the host, (2, 0) the first GPU."""
        name = self.device.physical_name
        return (_CUDA, int(name[3:].split(":")[0])) if name.startswith("gpu") else (_HOST, 0)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The memory of a tensor on a GPU, to be read by Numba, CuPy and others; no attribute of others (version 3).

        The tensor keeps what it gave as long as it lives itself.
        """
        if self.__dlpack_device__()[0] != _CUDA or self.dtype.kind not in "biufc":
            raise AttributeError("__cuda_array_interface__: a tensor on a GPU has it, of a dtype of NumPy's own")
        lent = _core.lend_in_place(self, False)
        address = _core.address(self)
        self._lent = {**(self._lent or {}), address: lent}
        return {
            "shape": self._tuple_shape,
            "typestr": np.dtype(self.dtype).str,
            "data": (address, True),
            "version": 3,
            "stream": Stream(self.device.logical_name).native,
        }


tensor = Tensor


class Parameter(Tensor):
    """A Tensor that modules list and optimizers update.

    Operations on it give plain Tensors.

    Parameters
    ----------
    data : array_like
        A number, nested sequence, NumPy array or Tensor; it is copied.
    dtype : DTypeLike or None
        By default that of the data, with 64 bits narrowed: int to int32, float to float32.
    device : str, Device or None
        Name such as "cpu0"; None takes `megengine.get_default_device()`.
    is_const, no_cache : bool
        Whether the value never changes from call to call of a traced function; and what is taken
        for compatibility and warns that it has no effect.
    name : str or None
        Name that graphs and dumped models show.
    format : str
        Memory order; "nhwc" is channels last, see `Tensor.format`.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> class Scale(M.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor, self.unit = mge.Parameter(2.0), mge.Tensor(1.0)
    >>> [name for name, value in Scale().named_parameters()]
    ['factor']
    """


class _Shape(Tensor):
    """A shape that is a Tensor. Arithmetic with tensors and numbers is that of a tensor; with a
    tuple or a list, that of a tuple.
    """

    @classmethod
    def _of(cls, extents: Tensor) -> Tensor:
        extents.__class__ = cls
        return extents

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return self._of(found) if isinstance(index, slice) else found

    def __add__(self, other: Any) -> Any:
        return (*self, *other) if isinstance(other, (tuple, list)) else super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        return (*other, *self) if isinstance(other, (tuple, list)) else super().__radd__(other)

    __iadd__ = __add__

    def __eq__(self, other: Any) -> Any:
        if isinstance(other, (tuple, list)):
            return self.tolist() == [int(extent) for extent in other]
        return super().__eq__(other)

    def __ne__(self, other: Any) -> Any:
        return not self == other if isinstance(other, (tuple, list)) else super().__ne__(other)

    __hash__ = Tensor.__hash__

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, int):
            raise TypeError(
                f"x.shape * {other} has two meanings: a tuple is repeated, a tensor is multiplied\n"
                f"  why: inside trace with symbolic_shape=True x.shape is a Tensor, elsewhere a tuple\n"
                f"  fix: write [extent * {other} for extent in x.shape], or tuple(x.shape) * {other}"
            )
        return super().__mul__(other)

    __rmul__ = __mul__


_Shape.__name__ = Tensor.__name__  # it prints as a Tensor


_core._set_tensor_class(Tensor)
explain_names(Tensor)
