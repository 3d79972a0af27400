"""dtypes: names, narrowing, and quantised dtypes (NumPy dtypes that carry scale and zero
point).

A quantised dtype is ``np.dtype`` of the stored integer with metadata ``{"mgb_dtype": {"name",
"scale", "zero_point"}}``: real value = scale * (stored - zero_point).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Self, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

_UNSUPPORTED = {"uint64": "int32", "uint32": "int32", "complex128": "complex64"}
_BITS = {
    "intb1": 1, "intb2": 2, "intb4": 4, "qint1": 1, "qint2": 2, "quint2": 2, "qint4": 4, "quint4":
    4, "bool": 8, "int8": 8, "uint8": 8, "qint8": 8, "quint8": 8, "int16": 16, "uint16": 16,
    "float16": 16, "bfloat16": 16, "int32": 32, "float32": 32, "qint32": 32, "complex64": 64,
    "float64": 64, "int64": 64,
}  # fmt: skip
_PLAIN = frozenset("float32 float16 bfloat16 int32 int16 int8 uint16 uint8 bool complex64 float64 int64".split())


def dtype_name(dtype: DTypeLike) -> str:
    """Name of a plain dtype as ops take it; unsigned ones above 16 bits become int32, complex128
    complex64. TypeError for an unsupported one.
    """
    if type(dtype) is str and dtype in _PLAIN:
        return dtype
    try:
        name = getattr(dtype, "name", None) or (np.dtype(dtype).name if dtype is not None else "None")
    except TypeError:  # NumPy does not know the dtype either
        name = ""
    name = _UNSUPPORTED.get(name, name)
    if name not in _PLAIN:
        raise TypeError(f"dtype {dtype!r} is not supported; use one of {', '.join(sorted(_PLAIN))}")
    return name


def get_dtype_bit(dtype_name: str) -> int:
    """Bits of one element. ValueError for an unknown name."""
    if dtype_name not in _BITS:
        raise ValueError(f"no dtype {dtype_name!r}; there are {', '.join(sorted(_BITS))}")
    return _BITS[dtype_name]


def is_lowbit(dtype: DTypeLike) -> bool:
    """Whether an element takes 1, 2 or 4 bits."""
    return _BITS.get(_name_of(dtype), 8) < 8


def is_bfloat16(dtype: DTypeLike) -> bool:
    return _name_of(dtype) == "bfloat16"


def is_differentible_dtype(dtype: DTypeLike) -> bool:
    """Whether gradients exist for tensors of this dtype."""
    return _name_of(dtype) in ("float32", "float16", "bfloat16", "float64")


def _name_of(dtype: Any) -> str:
    return dtype if isinstance(dtype, str) else np.dtype(dtype).name


class _QuantDtypeMeta(NamedTuple):
    name: str
    cname: str | None
    np_dtype_str: str
    qmin: int
    qmax: int
    is_unsigned: bool


class QuantDtypeMeta(_QuantDtypeMeta):
    """One kind of quantised dtype: its range and the NumPy dtype that stores it."""

    def __new__(
        cls,
        name: str,
        cname: str | None,
        np_dtype_str: str,
        qmin: int,
        qmax: int,
        is_unsigned: bool | None = None,
    ) -> Self:
        if is_unsigned is None:
            is_unsigned = np_dtype_str.startswith("u")
        elif not isinstance(is_unsigned, bool):
            raise ValueError(f"QuantDtypeMeta: is_unsigned is {is_unsigned!r}, not a bool")
        return super().__new__(cls, name, cname, np_dtype_str, qmin, qmax, is_unsigned)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        return self


_builtin_quant_dtypes = {
    "quint8": QuantDtypeMeta("quint8", "Quantized8Asymm", "uint8", 0, 255),
    "qint8": QuantDtypeMeta("qint8", "QuantizedS8", "int8", -128, 127),
    "qint8_narrow": QuantDtypeMeta("qint8_narrow", "QuantizedS8", "int8", -127, 127),
    "quint4": QuantDtypeMeta("quint4", "Quantized4Asymm", "uint8", 0, 15),
    "qint4": QuantDtypeMeta("qint4", "QuantizedS4", "int8", -8, 7),
    "qint1": QuantDtypeMeta("qint1", "QuantizedS1", "int8", 0, 1),
    "qint32": QuantDtypeMeta("qint32", "QuantizedS32", "int32", -(2**31), 2**31 - 1),
    "quint2": QuantDtypeMeta("quint2", None, "uint8", 0, 3),
    "qint2": QuantDtypeMeta("qint2", None, "int8", -2, 1),
}
_KIND = "mgb_dtype"


def create_quantized_dtype(
    dtype_meta: QuantDtypeMeta, scale: SupportsFloat, zp: float | None
) -> np.dtype:
    """The dtype of one kind, scale and zero point. ValueError for a zero point that the kind cannot
    have.
    """
    if dtype_meta.is_unsigned:
        if zp is None or int(zp) != zp:
            raise ValueError(f"{dtype_meta.name}: zero_point {zp!r} is not an integer")
        if not dtype_meta.qmin <= int(zp) <= dtype_meta.qmax:
            raise ValueError(
                f"{dtype_meta.name}: zero_point {zp} is outside [{dtype_meta.qmin}, {dtype_meta.qmax}]"
            )
        zp = int(zp)
    elif zp is not None and int(zp) != 0:
        raise ValueError(f"{dtype_meta.name} is symmetric and takes no zero_point, got {zp!r}")
    elif dtype_meta.cname is None:
        raise ValueError(
            f"{dtype_meta.name} has no storage; use a quantised dtype of 1, 4, 8 or 32 bits"
        )
    entry: dict[str, Any] = {"name": dtype_meta.cname, "scale": float(scale)}
    if dtype_meta.is_unsigned:
        entry["zero_point"] = zp
    return np.dtype(dtype_meta.np_dtype_str, metadata={_KIND: entry})


def quint8(scale: SupportsFloat, zero_point: float) -> np.dtype:
    """Unsigned 8 bits: real = scale * (q - zero_point)."""
    return create_quantized_dtype(_builtin_quant_dtypes["quint8"], scale, zero_point)


def qint8(scale: SupportsFloat) -> np.dtype:
    """Signed 8 bits: real = scale * q."""
    return create_quantized_dtype(_builtin_quant_dtypes["qint8"], scale, None)


def qint32(scale: SupportsFloat) -> np.dtype:
    """Signed 32 bits: real = scale * q."""
    return create_quantized_dtype(_builtin_quant_dtypes["qint32"], scale, None)


def quint4(scale: SupportsFloat, zero_point: float) -> np.dtype:
    """Unsigned 4 bits, stored in uint8: real = scale * (q - zero_point)."""
    return create_quantized_dtype(_builtin_quant_dtypes["quint4"], scale, zero_point)


def qint4(scale: SupportsFloat) -> np.dtype:
    """Signed 4 bits, stored in int8: real = scale * q."""
    return create_quantized_dtype(_builtin_quant_dtypes["qint4"], scale, None)


def qint1(scale: SupportsFloat) -> np.dtype:
    """One bit, stored in int8: real = scale * q."""
    return create_quantized_dtype(_builtin_quant_dtypes["qint1"], scale, None)


def is_quantize(dtype: DTypeLike) -> bool:
    """Whether ``dtype`` is quantised."""
    metadata = getattr(dtype, "metadata", None)
    return metadata is not None and _KIND in metadata


def get_quantize_entry(dtype: np.dtype) -> dict[str, Any]:
    """{"name", "scale", "zero_point"} of a quantised dtype. ValueError for another."""
    metadata = dtype.metadata if is_quantize(dtype) else None
    if metadata is None:
        raise ValueError(f"{dtype!r} is not a quantised dtype; make one with qint8(scale)")
    return metadata[_KIND]


def get_scale(dtype: np.dtype) -> float:
    return get_quantize_entry(dtype)["scale"]


def get_zero_point(dtype: np.dtype) -> int:
    """Zero point of an unsigned quantised dtype. ValueError for a symmetric one."""
    entry = get_quantize_entry(dtype)
    if "zero_point" not in entry:
        raise ValueError(f"{entry['name']} is symmetric and has no zero point")
    return entry["zero_point"]


def _meta_of(dtype: Any) -> QuantDtypeMeta:
    wanted = get_quantize_entry(dtype)["name"]
    return next(m for m in _builtin_quant_dtypes.values() if m.cname == wanted)


def _convert_to(arr: ArrayLike, q: np.dtype) -> np.ndarray:
    meta = _meta_of(q)
    zero = get_quantize_entry(q).get("zero_point", 0)
    rounded = np.asarray(arr, np.float64) / get_scale(q)
    rounded = np.trunc(rounded + np.copysign(0.5, rounded))  # half away from zero
    return np.clip(rounded + zero, meta.qmin, meta.qmax).astype(q)


def _convert_from(arr: np.ndarray) -> np.ndarray:
    entry = get_quantize_entry(arr.dtype)
    return ((np.asarray(arr, np.float32) - entry.get("zero_point", 0)) * entry["scale"]).astype(
        np.float32
    )


def _converters(
    name: str,
) -> tuple[Callable[[ArrayLike, np.dtype], np.ndarray], Callable[[np.ndarray], np.ndarray]]:
    def to(arr: ArrayLike, q: np.dtype) -> np.ndarray:
        if get_quantize_entry(q)["name"] != _builtin_quant_dtypes[name].cname:
            raise ValueError(f"convert_to_{name}: {q!r} is not a {name}")
        return _convert_to(arr, q)

    def back(arr: np.ndarray) -> np.ndarray:
        return _convert_from(arr)

    to.__name__, back.__name__ = f"convert_to_{name}", f"convert_from_{name}"
    to.__doc__ = f"Rounds and clips a float array to the {name} dtype ``q``."
    back.__doc__ = f"Real values (float32) of a {name} array."
    return to, back


convert_to_quint8, convert_from_quint8 = _converters("quint8")
convert_to_qint8, convert_from_qint8 = _converters("qint8")
convert_to_qint32, convert_from_qint32 = _converters("qint32")
convert_to_quint4, convert_from_quint4 = _converters("quint4")
convert_to_qint4, convert_from_qint4 = _converters("qint4")
convert_to_qint1, convert_from_qint1 = _converters("qint1")
