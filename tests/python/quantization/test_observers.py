"""Observers: the ranges they find."""

import numpy as np
import pytest

import megengine as mge
from megengine.core.tensor import dtype as dt
from megengine.quantization import (
    ExponentialMovingAverageObserver,
    HistogramObserver,
    MinMaxObserver,
    Observer,
    PassiveObserver,
    QuantMode,
    SyncExponentialMovingAverageObserver,
    SyncMinMaxObserver,
    create_qparams,
    fake_quant_tensor,
)
from megengine.quantization.utils import QParamsModuleMixin

NORMAL = np.random.default_rng(0).normal(size=20000).astype(np.float32)


def seen(observer, *batches):
    for batch in batches:
        x = mge.Tensor(np.asarray(batch, np.float32))
        assert observer(x) is x
    return observer


def range_of(observer):
    return observer.min_val.item(), observer.max_val.item()


@pytest.mark.parametrize("cls", [MinMaxObserver, SyncMinMaxObserver])
def test_min_max_keeps_the_extremes_of_all_batches(cls):
    assert range_of(seen(cls(), [-1, 2], [-3, 1])) == (-3, 2)


@pytest.mark.parametrize(
    "cls", [ExponentialMovingAverageObserver, SyncExponentialMovingAverageObserver]
)
def test_moving_average_starts_at_the_first_batch(cls):
    observer = seen(cls(momentum=0.75), [-4, 8])
    assert range_of(observer) == (-4, 8)
    assert range_of(seen(observer, [0, 4])) == (-3, 7)
    observer.set_momentum(0.0)
    assert range_of(seen(observer, [0, 4], [0, 4])) == (0, 4)


def test_symmetric_parameters():
    qparams = seen(MinMaxObserver(dtype="qint8_narrow"), [-2.54, 1]).get_qparams()
    assert qparams.scale.item() == pytest.approx(0.02) and qparams.zero_point is None
    assert qparams.dtype_meta.name == "qint8_narrow" and qparams.mode == QuantMode.SYMMERTIC


def test_symmetric_parameters_of_an_unsigned_dtype_have_their_zero_in_the_middle():
    observer = seen(MinMaxObserver(dtype="quint8"), [-2.55, 2.55])
    assert observer.get_qparams().zero_point.item() == 128


def test_asymmetric_parameters():
    observer = seen(MinMaxObserver(QuantMode.ASYMMERTIC, dtype="quint8"), [-1, 4.1])
    qparams = observer.get_qparams()
    assert qparams.scale.item() == pytest.approx(0.02) and qparams.zero_point.item() == 50
    assert observer.get_quantized_dtype().metadata["mgb_dtype"]["zero_point"] == 50


def test_scale_is_at_least_eps():
    assert seen(MinMaxObserver(eps=0.5), [0.0]).get_qparams().scale.item() == 0.5


def test_observers_watch_only_while_enabled_and_training():
    observer = MinMaxObserver()
    observer.eval()
    assert range_of(seen(observer, [9])) == range_of(MinMaxObserver())
    observer.train()
    observer.disable()
    assert range_of(seen(observer, [9])) == range_of(MinMaxObserver())
    observer.enable()
    assert range_of(seen(observer, [9])) == (9, 9)


def test_ranges_are_in_the_state_dict():
    other = ExponentialMovingAverageObserver()
    other.load_state_dict(seen(ExponentialMovingAverageObserver(), [-1, 5]).state_dict())
    assert range_of(other) == (-1, 5) and other.runtime_momentum.item() == pytest.approx(0.9)


def test_histogram_finds_a_better_range_than_the_extremes():
    errors = []
    for cls in (MinMaxObserver, HistogramObserver):
        qparams = seen(cls(mode=QuantMode.ASYMMERTIC, dtype="quint4"), NORMAL[:10000], NORMAL[10000:]).get_qparams()
        out = fake_quant_tensor(mge.Tensor(NORMAL), qparams).numpy()
        errors.append(((out - NORMAL) ** 2).mean())
    assert errors[1] < 0.75 * errors[0]


def test_histogram_keeps_its_counts_when_the_range_grows():
    observer = seen(HistogramObserver(bins=16), NORMAL[:1000], 4 * NORMAL[1000:2000], [50.0])
    counts = observer.histogram.numpy()
    assert counts.sum() == pytest.approx(2001, rel=1e-4) and 50 <= range_of(observer)[1] < 51
    edges = np.linspace(*range_of(observer), 17)
    everything = np.concatenate([NORMAL[:1000], 4 * NORMAL[1000:2000], [50.0]])
    expected = np.histogram(everything, edges)[0]
    assert np.abs(counts - expected).sum() < 0.1 * 2001


def test_passive_observer_holds_what_is_set():
    observer = PassiveObserver("qint8")
    observer.set_qparams(create_qparams(QuantMode.SYMMERTIC, "qint8", mge.Tensor(0.5)))
    observer.scale = 0.75
    seen(observer, [100.0])
    assert observer.get_qparams().scale.item() == 0.75 and observer.orig_scale.item() == 0.5
    with pytest.raises(ValueError, match="is not positive"):
        observer.scale = 0.0


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: MinMaxObserver(dtype="int8"), "quantized dtype 'int8' is unknown"),
        (lambda: PassiveObserver("qint8").get_qparams(), "has no quantization parameters"),
        (lambda: PassiveObserver("qint8").set_qparams(create_qparams(dtype_meta="qint4")), "cannot take"),
    ],
)  # fmt: skip
def test_errors(act, words):
    with pytest.raises(ValueError, match=words):
        act()


def test_observers_and_rounders_know_their_dtype_once_they_have_seen_data():
    for observer in (MinMaxObserver(), ExponentialMovingAverageObserver()):
        assert isinstance(observer, Observer) and isinstance(observer, QParamsModuleMixin)
        observer(mge.Tensor([-2.55, 1.0]))
        assert dt.get_scale(observer.get_quantized_dtype()) == pytest.approx(0.02)  # of 255 steps
    assert observer.eval().enabled is False and observer.train().enabled is True
    with pytest.raises(TypeError, match="abstract"):
        Observer("qint8")


def test_a_dtype_without_a_scale_is_refused():
    class Unknown(QParamsModuleMixin):
        def get_qparams(self):
            return mge.quantization.create_qparams(dtype_meta="qint8")

    with pytest.raises(ValueError, match="Unknown has seen no data"):
        Unknown().get_quantized_dtype()


def test_one_nan_does_not_ruin_the_range():
    for make in (mge.quantization.MinMaxObserver, mge.quantization.ExponentialMovingAverageObserver):
        observer = make()
        observer(mge.Tensor([1.0, float("nan"), -2.0]))
        observer(mge.Tensor([1.0, -2.0]))
        np.testing.assert_allclose([observer.min_val.item(), observer.max_val.item()], [-2, 1], rtol=1e-6)
