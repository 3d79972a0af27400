"""QConfig: which observers and fake quantizers a model gets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Self

from ..module.module import Module
from .fake_quant import TQT, FakeQuantize, _FakeQuantize
from .observer import (
    ExponentialMovingAverageObserver,
    HistogramObserver,
    MinMaxObserver,
    Observer,
    PassiveObserver,
    SyncExponentialMovingAverageObserver,
    SyncMinMaxObserver,
)

__all__ = [
    "QConfig",
    "calibration_qconfig",
    "easyquant_qconfig",
    "ema_fakequant_qconfig",
    "ema_lowbit_fakequant_qconfig",
    "min_max_fakequant_qconfig",
    "passive_qconfig",
    "sync_ema_fakequant_qconfig",
    "tqt_qconfig",
]

_Factory = Callable[[], Any] | None


class _Fields(NamedTuple):
    weight_observer: _Factory
    act_observer: _Factory
    weight_fake_quant: _Factory
    act_fake_quant: _Factory


class QConfig(_Fields):
    """Says which observers and fake quantizers the layers of a model get.

    Parameters
    ----------
    weight_observer, act_observer, weight_fake_quant, act_fake_quant : callable or None
        Classes, or functools.partial of them, that make the observer and the fake quantizer for the
        weight and for the result (activation) of every layer; None makes none.

    Raises
    ------
    ValueError
        For an instance, which all layers would share.

    Notes
    -----
    These are ready: min_max_fakequant_qconfig, ema_fakequant_qconfig (the default of
    `quantize_qat`), sync_ema_fakequant_qconfig, ema_lowbit_fakequant_qconfig (4 bits),
    calibration_qconfig (no rounding), tqt_qconfig, passive_qconfig and easyquant_qconfig.

    Examples
    --------
    >>> from functools import partial
    >>> import megengine.quantization as Q
    >>> observer, rounder = (partial(cls, dtype="qint8") for cls in (Q.MinMaxObserver, Q.LSQ))
    >>> config = Q.QConfig(observer, observer, rounder, rounder)
    >>> Q.calibration_qconfig.act_fake_quant is None
    True
    """

    __slots__ = ()

    def __new__(
        cls,
        weight_observer: _Factory,
        act_observer: _Factory,
        weight_fake_quant: _Factory,
        act_fake_quant: _Factory,
    ) -> Self:
        fields = (weight_observer, act_observer, weight_fake_quant, act_fake_quant)
        for name, factory in zip(cls._fields, fields, strict=True):
            if isinstance(factory, Module):
                raise ValueError(
                    f"QConfig: {name} is an instance, which all layers would share\n"
                    f"  fix: pass {type(factory).__name__}, or functools.partial of it"
                )
        return super().__new__(cls, *fields)


def _config(
    weight_observer: type[Observer] | None,
    act_observer: type[Observer] | None,
    fake_quant: type[_FakeQuantize] | None,
    weight_dtype: str = "qint8_narrow",  # without -128, so that products of two fit 15 bits
    act_dtype: str = "qint8",
) -> QConfig:
    def factory(cls: type[Observer] | type[_FakeQuantize] | None, dtype: str) -> _Factory:
        return None if cls is None else partial(cls, dtype=dtype)

    return QConfig(
        factory(weight_observer, weight_dtype),
        factory(act_observer, act_dtype),
        factory(fake_quant, weight_dtype),
        factory(fake_quant, act_dtype),
    )


min_max_fakequant_qconfig = _config(MinMaxObserver, MinMaxObserver, FakeQuantize)
ema_fakequant_qconfig = _config(MinMaxObserver, ExponentialMovingAverageObserver, FakeQuantize)
sync_ema_fakequant_qconfig = _config(
    SyncMinMaxObserver, SyncExponentialMovingAverageObserver, FakeQuantize
)
ema_lowbit_fakequant_qconfig = _config(
    MinMaxObserver, ExponentialMovingAverageObserver, FakeQuantize, "qint4", "qint4"
)
calibration_qconfig = _config(MinMaxObserver, HistogramObserver, None)
tqt_qconfig = _config(None, None, TQT)
passive_qconfig = _config(PassiveObserver, PassiveObserver, FakeQuantize)
easyquant_qconfig = passive_qconfig
