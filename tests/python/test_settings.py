"""config, dtr, device, dtypes, execution strategy: kept, checked, and told in words."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import config, device, dtr
from megengine.core import get_option, set_option
from megengine.core._imperative_rt.core2 import apply
from megengine.core.ops import builtin
from megengine.core.tensor import dtype as dt
from megengine.core.tensor.utils import astensor1d, convert_inputs, result_type


@pytest.fixture(autouse=True)
def restore():
    level, threshold = config.async_level, dtr.eviction_threshold
    yield
    config.async_level = level
    dtr.eviction_threshold = threshold
    dtr.disable()


@pytest.mark.parametrize("level", [0, 1, 2])
def test_whatever_the_async_level_the_call_that_is_wrong_raises(level):
    config.async_level = level
    assert config.async_level == level and get_option("async_level") == level
    with pytest.raises(ValueError, match="matmul"):
        F.matmul(F.ones((2, 3)), F.ones((2, 3)))
    with pytest.raises(AssertionError, match="3 is not"):
        config.async_level = 3


def test_options_are_known_by_name():
    with pytest.warns(UserWarning, match="enable_drop has no effect"):
        set_option("enable_drop", 1)
    assert get_option("enable_drop") == 1
    set_option("enable_drop", 0)
    with pytest.raises(ValueError, match="enable_drop"):
        get_option("enable_drops")


@pytest.mark.parametrize(
    "value, size", [(100, 100), ("2KB", 2048), ("1.5MB", 3 << 19), ("5GB", 5 << 30)]
)
def test_sizes_are_ints_or_texts(value, size):
    dtr.eviction_threshold = value
    assert dtr.eviction_threshold == get_option("dtr_eviction_threshold") == size


def test_wrong_sizes_are_told_apart():
    with pytest.raises(ValueError, match="'5 apples'"):
        dtr.eviction_threshold = "5 apples"
    with pytest.raises(TypeError, match="float"):
        dtr.evictee_minimum_size = 0.5


def test_devices_are_counted_by_kind():
    assert mge.get_device_count("cpu") >= 1 and mge.get_device_count("gpu") >= 0
    with pytest.raises(ValueError, match="'toaster'"):
        mge.get_device_count("toaster")


def test_the_default_device_is_the_name_that_was_set():
    assert mge.get_default_device() == "xpux"
    mge.set_default_device("cpux")
    try:
        assert mge.get_default_device() == "cpux" and mge.Tensor([1]).device == "cpu0"
    finally:
        mge.set_default_device("xpux")
    with pytest.raises(ValueError, match="'gpu:x:y'"):
        mge.set_default_device("gpu:x:y")


def test_a_missing_gpu_is_told():
    with pytest.raises(RuntimeError, match="gpu63"):
        mge.Tensor([1.0], device="gpu63")


def test_memory_counters_rise_with_tensors():
    before = device.get_allocated_memory()
    x = F.zeros((1024, 1024))
    assert device.get_allocated_memory() >= before + 4 * x.size
    assert device.get_max_allocated_memory() >= device.get_allocated_memory()
    total, free = device.get_mem_status_bytes()
    assert 0 < free <= total


def test_whoever_waits_for_all_work_gets_nothing_but_its_end():
    y = F.ones((2, 2)) * 2
    assert mge.synchronize() is None and mge._full_sync() is None and y.tolist() == [[2, 2], [2, 2]]


def test_strategies_are_words_joined_by_underscores():
    with pytest.warns(UserWarning, match="benchmark_kernel has no effect"):
        F.debug_param.set_execution_strategy("PROFILE_REPRODUCIBLE")
    try:
        strategy = F.debug_param.get_execution_strategy()
        assert strategy == F.debug_param.Strategy.PROFILE | F.debug_param.Strategy.REPRODUCIBLE
    finally:
        F.debug_param.set_execution_strategy("HEURISTIC")
    with pytest.raises(ValueError, match="'FASTEST' is unknown"):
        F.debug_param.set_execution_strategy("FASTEST")


def test_quantised_dtypes_carry_scale_and_zero_point():
    q = dt.quint8(0.5, 3)
    assert dt.get_scale(q) == 0.5 and dt.get_zero_point(q) == 3 and q == np.uint8
    x = np.array([-1.0, 0.0, 0.75, 1000.0])
    stored = dt.convert_to_quint8(x, q)
    assert stored.tolist() == [1, 3, 5, 255]
    assert dt.convert_from_quint8(stored).tolist() == [-1, 0, 1, 126]


def test_zero_points_that_cannot_be_are_value_errors():
    with pytest.raises(ValueError, match="256"):
        dt.quint8(1.0, 256)
    with pytest.raises(ValueError, match="symmetric"):
        dt.create_quantized_dtype(dt._builtin_quant_dtypes["qint8"], 1.0, 3)


def test_old_op_objects_still_apply():
    x = mge.Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert apply(builtin.Elemwise(mode="add"), x, x)[0].tolist() == [[2, 4], [6, 8]]
    assert apply(builtin.Elemwise(builtin.Elemwise.Mode.LT), x, x)[0].dtype == np.bool_
    (total,) = apply(builtin.Reduce(mode="sum", axis=1), x)
    assert total.tolist() == [[3], [7]]
    assert apply(builtin.RemoveAxis(axis=[1]), total)[0].tolist() == [3, 7]
    with pytest.raises(ValueError, match="'frobnicate'"):
        builtin.Elemwise("frobnicate")


def test_old_conversion_functions():
    a, b = convert_inputs(mge.Tensor([1], dtype="int8"), 2.5)
    assert a.dtype == b.dtype == np.float32 and convert_inputs(None, mge.Tensor(1))[0] is None
    assert result_type(mge.Tensor([1]), mge.Tensor([1], dtype="int8")) == np.int32
    assert astensor1d([1, mge.Tensor(2)]).tolist() == [1, 2]


def test_devices_of_other_makers_are_not_there_and_cannot_be_used():
    assert not (mge.is_rocm_available() or mge.is_atlas_available() or mge.is_cambricon_available())
    for name in ("rocm", "atlas", "cambricon"):
        with pytest.raises((ValueError, RuntimeError)):
            mge.Tensor([1.0], device=f"{name}0")
    assert mge.device.get_tensorrt_version() == 0  # as the original without TensorRT
