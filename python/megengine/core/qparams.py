"""Quantization parameters, which relate the integers of a quantized tensor to real values."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from .tensor.dtype import QuantDtypeMeta, _builtin_quant_dtypes

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["LSQParams", "QParams", "QuantMode", "create_qparams"]

_IN_FILES = "megengine.quantization.utils"  # where pickles, ours and those of MegEngine, look for these classes


class QuantMode(Enum):
    """Names the position of a quantized tensor's range relative to 0.

    SYMMERTIC: 0 is the middle of the range. ASYMMERTIC: the range is that of the data, with a zero
    point. The spelling is that of MegEngine 1.x.

    Examples
    --------
    >>> import megengine.quantization as Q
    >>> [mode.name for mode in Q.QuantMode]
    ['SYMMERTIC', 'ASYMMERTIC']
    """

    __module__ = _IN_FILES
    SYMMERTIC = 1
    ASYMMERTIC = 2

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return QuantMode, (
            self.value,
        )  # Enum's own way is a getattr, which `megengine.load` refuses


def dtype_meta_of(dtype: str | QuantDtypeMeta) -> QuantDtypeMeta:
    """The kind of quantized dtype of that name. ValueError for an unknown one."""
    if isinstance(dtype, QuantDtypeMeta):
        return dtype
    if dtype not in _builtin_quant_dtypes:
        known = ", ".join(sorted(_builtin_quant_dtypes))
        raise ValueError(f"quantized dtype {dtype!r} is unknown; there are {known}")
    return _builtin_quant_dtypes[dtype]


class QParams:
    """Describes how a tensor is quantized: real value = scale * (q - zero_point), where q is an
    integer.

    Parameters
    ----------
    mode : QuantMode
        Whether 0 is the middle of the range.
    dtype_meta : QuantDtypeMeta or None
        Kind of quantized dtype, which bounds q.
    scale, zero_point : Tensor or None
        0-d, or None while unknown (a zero_point of None is 0).

    Notes
    -----
    Two objects are equal if all their values are. `create_qparams` makes one from a dtype's name.

    Examples
    --------
    >>> import megengine as mge, megengine.quantization as Q
    >>> qparams = Q.create_qparams(Q.QuantMode.SYMMERTIC, "qint8", mge.Tensor(0.5))
    >>> qparams.mode.name, qparams.dtype_meta.name, qparams.scale.item()
    ('SYMMERTIC', 'qint8', 0.5)
    """

    __module__ = _IN_FILES
    __slots__ = ("dtype_meta", "mode", "scale", "zero_point")

    def __init__(
        self,
        mode: QuantMode,
        dtype_meta: QuantDtypeMeta | None,
        scale: Tensor | None,
        zero_point: Tensor | None,
    ) -> None:
        self.mode = mode
        self.dtype_meta = dtype_meta
        self.scale = scale
        self.zero_point = zero_point

    def update(self, qparams: QParams) -> None:
        """Takes over the values of ``qparams``.

        Parameters
        ----------
        qparams : QParams
            Quantization parameters whose values are taken.
        """
        for name in QParams.__slots__:
            setattr(self, name, getattr(qparams, name))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QParams):
            return NotImplemented
        return (
            self.mode == other.mode
            and self.dtype_meta == other.dtype_meta
            and _same(self.scale, other.scale)
            and _same(self.zero_point, other.zero_point)
        )

    __hash__ = None  # type: ignore[assignment]  # scale and zero_point change

    def __repr__(self) -> str:
        name = None if self.dtype_meta is None else self.dtype_meta.name
        return (
            f"{type(self).__name__}(mode={self.mode.name}, dtype_meta={name}, "
            f"scale={self.scale}, zero_point={self.zero_point})"
        )


class LSQParams(QParams):
    """Holds `QParams` and ``grad_scale``, the weight of the scale's gradient.

    Parameters
    ----------
    mode : QuantMode
        Whether 0 is the middle of the range.
    dtype_meta : QuantDtypeMeta or None
        Kind of quantized dtype, which bounds q.
    scale, zero_point : Tensor or None
        0-d tensors, or None while unknown (a zero_point of None is 0).
    grad_scale : Tensor or None
        0-d, or None for the formula of `LSQ`.
    """

    __module__ = _IN_FILES
    __slots__ = ("grad_scale",)

    def __init__(
        self,
        mode: QuantMode,
        dtype_meta: QuantDtypeMeta | None,
        scale: Tensor | None,
        zero_point: Tensor | None,
        grad_scale: Tensor | None,
    ) -> None:
        super().__init__(mode, dtype_meta, scale, zero_point)
        self.grad_scale = grad_scale


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return np.array_equal(np.asarray(a), np.asarray(b))


def create_qparams(
    mode: QuantMode = QuantMode.SYMMERTIC,
    dtype_meta: str | QuantDtypeMeta | None = None,
    scale: Tensor | None = None,
    zero_point: Tensor | None = None,
) -> QParams:
    """Makes `QParams` from a dtype or its name.

    Parameters
    ----------
    mode : QuantMode
        Whether 0 is the middle of the range.
    dtype_meta : str, QuantDtypeMeta or None
        Kind of quantized dtype, or its name: qint8, qint8_narrow (without -128), quint8, qint4,
        quint4, qint32, ....
    scale, zero_point : Tensor or None
        0-d, or None while unknown.

    Returns
    -------
    QParams
        The description of how a tensor is quantized.

    Raises
    ------
    ValueError
        For an unknown dtype.

    Examples
    --------
    >>> import megengine as mge, megengine.quantization as Q
    >>> meta = Q.create_qparams(dtype_meta="qint8_narrow", scale=mge.Tensor(0.5)).dtype_meta
    >>> meta.qmin, meta.qmax
    (-127, 127)
    """
    meta = None if dtype_meta is None else dtype_meta_of(dtype_meta)
    return QParams(mode, meta, scale, zero_point)
