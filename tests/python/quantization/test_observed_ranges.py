"""The ranges that observers show are those of the data; 0 joins where scales are computed. Against numbers of the original, and NaN."""

import numpy as np
import pytest

from megengine import Tensor
from megengine.quantization import (
    ExponentialMovingAverageObserver,
    HistogramObserver,
    MinMaxObserver,
    QuantMode,
)

LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("make", [MinMaxObserver, ExponentialMovingAverageObserver, HistogramObserver])
def test_a_range_is_that_of_the_data(make):
    observer = make(mode=QuantMode.ASYMMERTIC, dtype="quint8")
    assert (observer.min_val.item(), observer.max_val.item()) == (LARGEST, -LARGEST)
    assert observer.get_qparams().scale.item() == np.float32(1e-5)
    observer(Tensor([0.27, 1.24, float("nan")]))
    np.testing.assert_allclose((observer.min_val.item(), observer.max_val.item()), (0.27, 1.24), rtol=1e-6)
    qparams = observer.get_qparams()
    assert qparams.zero_point.item() == 0
    np.testing.assert_allclose(qparams.scale.item(), 1.24 / 255, rtol=2e-3)


def test_a_batch_of_nan_leaves_a_moving_average_as_it_is():
    observer = ExponentialMovingAverageObserver(momentum=0.5)
    observer(Tensor([float("nan")]))
    assert observer.min_val.item() == LARGEST
    for low in (-4.0, float("nan"), -8.0):
        observer(Tensor([low, low]))
    assert (observer.min_val.item(), observer.max_val.item()) == (-6.0, -6.0)


def test_a_histogram_of_one_sign_has_the_scale_of_the_original():
    """Recorded: 50 uniform numbers twice, as both packages draw them by NumPy."""
    draw = np.random.RandomState(0)
    parts = [draw.uniform(0.27, 1.24, (50,)).astype("float32") for _ in range(2)]
    observer = HistogramObserver(mode=QuantMode.ASYMMERTIC, dtype="quint8")
    for part in parts:
        observer(Tensor(part))
    np.testing.assert_allclose(observer.get_qparams().scale.item(), 0.0048173377, rtol=1e-5)
