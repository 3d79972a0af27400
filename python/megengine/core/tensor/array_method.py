"""Methods of a tensor that mirror NumPy's ndarray."""

import operator
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import DTypeLike

from ... import _core
from ..._core import Tensor as _Tensor
from ..._core import apply_const, note_extent_read
from .. import ops
from . import products, shapes
from .dtype import dtype_name, is_quantize
from .indexing import getitem, setitem

if TYPE_CHECKING:
    from ...device import Device
    from ...tensor import Tensor
    from .shapes import IntsLike


class ArrayMethodMixin(_Tensor):
    """Methods that work by shapes, indices and host values; arithmetic lies in the extension."""

    __array_priority__ = 1001  # higher than ndarray's, so that ndarray + Tensor is a Tensor

    if TYPE_CHECKING:  # attributes that megengine.Tensor and `quantized` add

        _quantized_as: "Callable[[Any, Any], Tensor]"

        @property
        def device(self) -> "Device": ...
        def item(self, *args: Any) -> float: ...
        @classmethod
        def _plain(cls, data: Any, dtype: Any = None, device: str | None = None) -> "Tensor": ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """A copy; with ``copy=False`` the tensor's own memory, read-only."""
        if copy is False:
            lent = np.asarray(_core.lend(self))  # NumPy has no bfloat16 elements
            if lent.dtype != self.dtype or (dtype is not None and self.dtype != dtype):
                raise ValueError(f"a tensor of {self.dtype} cannot become an array of {dtype or self.dtype} without a copy")
            return lent
        array = self.numpy()
        return array if dtype is None or array.dtype == dtype else array.astype(dtype)

    def __array_wrap__(
        self, array: np.ndarray, context: Any = None, return_scalar: bool = False
    ) -> "Tensor":
        return type(self)._plain(array, device=str(self.device))

    def __array_function__(self, function: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Lets NumPy's functions take tensors: its reductions are the tensor's, with gradients and in traces; others compute on the host."""
        reduce = _REDUCTIONS.get(function.__name__)
        axis, *rest = args[1:] or (kwargs.get("axis"),)
        if reduce and isinstance(args[0] if args else None, _Tensor) and not rest and not kwargs.keys() - {"axis", "keepdims"}:
            return reduce(args[0], axis, bool(kwargs.get("keepdims")))
        try:
            return function._implementation(*args, **kwargs)
        except TypeError as error:  # NumPy calls methods of arrays, with arguments that those of tensors lack
            arrays = [_on_host(each) for each in (*args, *kwargs.values())]
            if not any(isinstance(each, _Tensor) for each in (*args, *kwargs.values())) or isinstance(kwargs.get("out"), _Tensor):
                raise TypeError(f"numpy.{function.__name__} of a tensor: {error}\n  fix: use megengine.functional, or x.numpy()") from None
            return function(*arrays[: len(args)], **dict(zip(kwargs, arrays[len(args) :], strict=True)))

    def __pos__(self) -> Self:
        return self

    def __round__(self, ndigits: int = 0) -> "Tensor":
        if ndigits:
            scale = 10.0**ndigits
            return ops.true_div(ops.round(ops.mul(self, scale)), scale)
        return ops.round(self)

    def __trunc__(self) -> "Tensor":
        return ops.trunc(self)

    def __floor__(self) -> "Tensor":
        return ops.floor(self)

    def __ceil__(self) -> "Tensor":
        return ops.ceil(self)

    def __matmul__(self, other: Any) -> "Tensor":
        return products.matmul(self, as_tensor(other))  # type: ignore[arg-type]  # the one subclass is Tensor

    def __rmatmul__(self, other: Any) -> "Tensor":
        return products.matmul(as_tensor(other), self)  # type: ignore[arg-type]  # as above

    def __imatmul__(self, other: Any) -> Self:
        self._reset(self.__matmul__(other))
        return self

    def __index__(self) -> int:
        return operator.index(self.item())  # type: ignore[arg-type]  # whose TypeError this is for a float

    def __bool__(self) -> bool:
        if prod(self._tuple_shape) != 1:
            raise ValueError(
                f"the truth value of a tensor of shape {list(self._tuple_shape)} is ambiguous: 'if', 'and' or 'not' needs one element\n"
                "  fix: reduce it first, as in F.all(x > 0), or choose element by element with F.where"
            )
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and not self._tuple_shape else super().__format__(spec)

    def __len__(self) -> int:
        shape = self._tuple_shape
        if not shape:
            raise TypeError("ndim is 0\n  why: a 0-d tensor has no length\n  fix: use x.reshape(-1) for a tensor with one axis")
        note_extent_read(self, 0)
        return shape[0]

    def __iter__(self) -> Iterator["Tensor"]:
        for i in range(len(self)):
            yield getitem(self, i)

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).numpy().any())

    def __getitem__(self, index: Any) -> "Tensor":
        return getitem(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if index is Ellipsis:
            if not isinstance(value, _Tensor):
                value = type(self)._plain(value, dtype=self.dtype, device=str(self.device))
            shape = self._tuple_shape
            if not shapes.broadcasts(value._tuple_shape, shape):
                note_extent_read(value)  # of another batch it might fit
                note_extent_read(self)
            elif _core.records_for_dump():
                value = shapes.broadcast_to(value, _core.extents_tensor(self))
            elif value._tuple_shape != shape:
                value = ops.broadcast_to(value, shape=shape)
            self._assign(
                value
            )  # a value of another shape replaces the old one
        else:
            self._reset(setitem(self, index, value))

    @property
    def size(self) -> int:
        """The number of elements."""
        note_extent_read(self)
        return prod(self._tuple_shape)

    @property
    def T(self) -> "Tensor":
        """The tensor with its axes reversed."""
        return self.transpose()

    def tolist(self) -> Any:
        """Returns nested lists of Python numbers; a number for a 0-d tensor."""
        return self.numpy().tolist()

    def astype(self, dtype: DTypeLike) -> "Tensor":
        """Returns the tensor converted to another dtype.

        Parameters
        ----------
        dtype : DTypeLike
            The new dtype, such as "float16" or ``np.int32``; quantized dtypes as well.

        Returns
        -------
        Tensor
            The same shape, in the new dtype.
        """
        if is_quantize(dtype) or is_quantize(self.dtype):
            return type(self)._quantized_as(self, dtype)
        name = dtype_name(dtype)
        if name == "complex64" and self.dtype.kind != "c":
            real = ops.cast(self, dtype="float32")
            return ops.complex(real, shapes.full_like(self, 0.0, "float32"))
        if self.dtype.kind == "c":
            return (
                ops.identity(self) if name == "complex64" else ops.cast(ops.real(self), dtype=name)
            )
        return ops.cast(self, dtype=name)

    def reshape(self, *args: "IntsLike") -> "Tensor":
        """Returns the same elements in another shape.

        Parameters
        ----------
        *args : int, Tensor or sequence of int or Tensor
            The new shape, as one sequence or as several extents; one extent may be -1, which is
            computed from the number of elements.

        Returns
        -------
        Tensor
            The same elements and dtype, in row-major order.

        Raises
        ------
        ValueError
            If the numbers of elements differ.
        """
        shape: Any = args[0] if len(args) == 1 else args
        return shapes.reshape(self, shape)

    def transpose(self, *args: Any) -> "Tensor":
        """Returns the tensor with its axes in another order.

        Parameters
        ----------
        *args : object
            Axes in their new order, as one sequence or as several numbers; "x" makes a new axis of
            size 1. Without arguments the order is reversed.

        Returns
        -------
        Tensor
            The same elements, with the axes in that order.

        Raises
        ------
        ValueError
            For an order that lacks an axis of another size than 1, or repeats one.
        """
        pattern: Any = args
        if not args:
            pattern = range(self.ndim - 1, -1, -1)
        elif len(args) == 1 and not isinstance(args[0], (int, str)):
            pattern = args[0]
        return shapes.transpose(self, pattern if isinstance(pattern, _Tensor) else tuple(pattern))

    def flatten(self, start_axis: int = 0, end_axis: int = -1) -> "Tensor":
        """Joins the axes from ``start_axis`` to ``end_axis``, both included, into one.

        Parameters
        ----------
        start_axis, end_axis : int
            The first and the last axis that are joined; negative ones count from the end.

        Returns
        -------
        Tensor
            The same elements; a 0-d tensor becomes a vector of one element.
        """
        return shapes.flatten(self, start_axis, end_axis)

    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> "Tensor":
        """Returns the sum along ``axis``; bool is summed as int32.

        Parameters
        ----------
        axis : int, sequence of int or None
            Axes that are reduced, one or several; negative ones count from the end. None reduces
            all.
        keepdims : bool
            Whether the reduced axes stay in the result with size 1.

        Returns
        -------
        Tensor
            The shape of the tensor without ``axis``, in its dtype.

        Raises
        ------
        AssertionError
            For ``keepdims`` without an axis.
        """
        return shapes.reduce(self, ops.reduce_sum, axis, keepdims, "sum")

    def any(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> "Tensor":
        """Returns whether an element along ``axis`` is not 0.

        Parameters
        ----------
        axis : int, sequence of int or None
            Axes that are reduced, one or several; negative ones count from the end. None reduces
            all.
        keepdims : bool
            Whether the reduced axes stay in the result with size 1.

        Returns
        -------
        Tensor
            The shape of the tensor without ``axis``, dtype bool.

        Raises
        ------
        AssertionError
            For ``keepdims`` without an axis.
        """
        return ops.not_equal(shapes.reduce(ops.not_equal(self, 0), ops.reduce_sum, axis, keepdims, "any"), 0)

    def all(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> "Tensor":
        """Returns whether no element along ``axis`` is 0.

        Parameters
        ----------
        axis : int, sequence of int or None
            Axes that are reduced, one or several; negative ones count from the end. None reduces
            all.
        keepdims : bool
            Whether the reduced axes stay in the result with size 1.

        Returns
        -------
        Tensor
            The shape of the tensor without ``axis``, dtype bool.

        Raises
        ------
        AssertionError
            For ``keepdims`` without an axis.
        """
        return ops.equal(shapes.reduce(ops.equal(self, 0), ops.reduce_sum, axis, keepdims, "all"), 0)

    def prod(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> "Tensor":
        """Returns the product along ``axis``.

        Parameters
        ----------
        axis : int, sequence of int or None
            Axes that are reduced, one or several; negative ones count from the end. None reduces
            all.
        keepdims : bool
            Whether the reduced axes stay in the result with size 1.

        Returns
        -------
        Tensor
            The shape of the tensor without ``axis``, in its dtype, int32 for bool.

        Raises
        ------
        AssertionError
            For ``keepdims`` without an axis.
        """
        return shapes.reduce(self, ops.reduce_prod, axis, keepdims, "prod")

    def min(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> "Tensor":
        """Returns the smallest element along ``axis``.

        Parameters
        ----------
        axis : int, sequence of int or None
            Axes that are reduced, one or several; negative ones count from the end. None reduces
            all.
        keepdims : bool
            Whether the reduced axes stay in the result with size 1.

        Returns
        -------
        Tensor
            The shape of the tensor without ``axis``, in its dtype.

        Raises
        ------
        AssertionError
            For ``keepdims`` without an axis.
        ValueError
            For an empty axis.
        """
        return shapes.reduce(self, ops.reduce_min, axis, keepdims, "min")

    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> "Tensor":
        """Returns the largest element along ``axis``.

        Parameters
        ----------
        axis : int, sequence of int or None
            Axes that are reduced, one or several; negative ones count from the end. None reduces
            all.
        keepdims : bool
            Whether the reduced axes stay in the result with size 1.

        Returns
        -------
        Tensor
            The shape of the tensor without ``axis``, in its dtype.

        Raises
        ------
        AssertionError
            For ``keepdims`` without an axis.
        ValueError
            For an empty axis.
        """
        return shapes.reduce(self, ops.reduce_max, axis, keepdims, "max")

    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> "Tensor":
        """Returns the arithmetic mean along ``axis``.

        Parameters
        ----------
        axis : int, sequence of int or None
            Axes that are reduced, one or several; negative ones count from the end. None reduces
            all.
        keepdims : bool
            Whether the reduced axes stay in the result with size 1.

        Returns
        -------
        Tensor
            The shape of the tensor without ``axis``, float32.

        Raises
        ------
        AssertionError
            For ``keepdims`` without an axis.
        """
        return shapes.reduce(self, ops.reduce_mean, axis, keepdims, "mean")

    def var(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> "Tensor":
        """Returns the biased variance along ``axis``.

        Parameters
        ----------
        axis : int, sequence of int or None
            Axes that are reduced, one or several; negative ones count from the end. None reduces
            all.
        keepdims : bool
            Whether the reduced axes stay in the result with size 1.

        Returns
        -------
        Tensor
            The shape of the tensor without ``axis``, float32.

        Raises
        ------
        AssertionError
            For ``keepdims`` without an axis.
        """
        return products.var(self, axis, keepdims)  # type: ignore[arg-type]  # as above


def _std(x: Any, axis: Any, keepdims: bool) -> "Tensor":
    return ops.sqrt(x.var(axis, keepdims))


# Name of a NumPy function that is a method of tensors -> the function called with (tensor, axis, keepdims).
_REDUCTIONS: dict[str, Callable[[Any, Any, bool], "Tensor"]] = {
    **{name: getattr(ArrayMethodMixin, name) for name in ("sum", "prod", "min", "max", "mean", "var", "any", "all")},
    "amin": ArrayMethodMixin.min, "amax": ArrayMethodMixin.max, "std": _std,
}  # fmt: skip


def _on_host(x: Any) -> Any:
    """Returns a tensor as a read-only array: a write would reach no tensor."""
    if not isinstance(x, _Tensor):
        return x
    array = np.asarray(x)
    array.flags.writeable = False
    return array


def as_tensor(x: object) -> "Tensor":
    """``x`` if it is a tensor, else a constant tensor of it."""
    if isinstance(x, _Tensor):
        return x  # type: ignore[return-value]  # every tensor is a megengine.Tensor
    return apply_const(np.asarray(x))


def require_tensors(op: str, *values: object) -> None:
    """Raises TypeError that names the first value that is not a Tensor."""
    for value in values:
        if not isinstance(value, _Tensor):
            text = " ".join(repr(value).split())
            raise TypeError(
                f"{op}: {text if len(text) < 60 else text[:57] + '...'} is not a Tensor but of type "
                f"{type(value).__name__}\n  fix: pass megengine.tensor(value)"
            )
