"""Mixed precision: which functions change precision, the switch, and the loss scaler."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor, amp, autodiff
from megengine.autodiff import GradManager

HALF = F.ones((2, 2), dtype="float16")


def test_products_run_in_low_precision():
    with amp.autocast():
        assert F.matmul(F.ones((2, 3)), F.ones((3, 2))).dtype == np.float16
        assert F.linear(F.ones((2, 3)), F.ones((4, 3)), F.ones((4,))).dtype == np.float16
        assert F.conv2d(F.ones((1, 1, 3, 3)), F.ones((1, 1, 2, 2))).dtype == np.float16


def test_transcendental_functions_run_in_high_precision():
    with amp.autocast():
        assert F.exp(HALF).dtype == np.float32 and F.pow(HALF, 2).dtype == np.float32
        assert F.relu(HALF).dtype == np.float16
        assert F.layer_norm(HALF, 2, False).dtype == np.float32


def test_the_precisions_can_be_chosen():
    with amp.autocast(low_prec_dtype="bfloat16"):
        assert F.matmul(F.ones((2, 2)), F.ones((2, 2))).dtype.name == "bfloat16"
    with pytest.raises(ValueError, match="int8"):
        amp.autocast(low_prec_dtype="int8")


def test_settings_come_back_after_the_block_and_after_errors():
    with pytest.raises(ZeroDivisionError), amp.autocast():
        assert amp.enabled
        with amp.autocast(enabled=False):
            assert not amp.enabled and F.exp(HALF).dtype == np.float16
        assert amp.enabled
        1 / 0  # noqa: B018
    assert not amp.enabled and amp.low_prec_dtype == "float16"


def test_a_decorated_function_runs_with_it():
    @amp.autocast()
    def run():
        return F.matmul(F.ones((2, 2)), F.ones((2, 2)))

    assert run().dtype == np.float16 and not amp.enabled


def test_the_properties_of_the_module_are_live():
    amp.enabled = True
    try:
        assert F.matmul(F.ones((2, 2)), F.ones((2, 2))).dtype == np.float16
    finally:
        amp.enabled = False


def in_another_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_a_block_holds_in_its_own_thread_and_the_setting_in_all():
    with amp.autocast():
        assert in_another_thread(lambda: F.matmul(F.ones((2, 2)), F.ones((2, 2))).dtype) == np.float32
        assert amp.enabled
    amp.enabled = True
    try:
        assert in_another_thread(lambda: amp.enabled)
    finally:
        amp.enabled = False


def scaled_step(scaler, factor):
    x = Tensor([1.0, 2.0])
    gm = autodiff.GradManager().attach(x)
    with gm:
        scaler.backward(gm, (x * factor).sum())
    return x.grad


def test_the_scaler_unscales_what_it_scaled():
    assert scaled_step(amp.GradScaler(init_scale=1024), 3.0).tolist() == [3, 3]


def test_the_scale_grows_after_good_steps():
    scaler = amp.GradScaler(init_scale=4, growth_interval=2)
    for want in (4, 8, 8, 16):
        scaled_step(scaler, 1.0)
        assert scaler.scale_factor == want


def test_an_overflow_drops_the_gradients_and_shrinks_the_scale():
    scaler = amp.GradScaler(init_scale=4)
    assert scaled_step(scaler, float("inf")) is None and scaler.scale_factor == 2


def test_a_growth_interval_of_zero_fixes_the_scale():
    scaler = amp.GradScaler(init_scale=4, growth_interval=0)
    assert not np.isfinite(scaled_step(scaler, float("inf")).numpy()).any()
    assert scaler.scale_factor == 4


def test_the_state_of_a_scaler_can_be_restored():
    scaler, other = amp.GradScaler(init_scale=4, growth_interval=1), amp.GradScaler()
    scaled_step(scaler, 1.0)
    other.load_state_dict(scaler.state_dict())
    assert other.scale_factor == 8 and other.growth_interval == 1


def test_a_format_is_an_order_of_memory():
    x = amp.convert_tensor_format(F.ones((1, 2, 3, 3)))
    assert x.format == "nhwc" and x.shape == (1, 2, 3, 3) and x.is_mkldnn
    assert F.conv2d(x, F.ones((2, 2, 1, 1))).format == "nhwc"
    x.format = "default"
    assert x.format == "default" and not x.is_mkldnn
    assert amp.convert_tensor_format(F.ones((2, 2))).format == "default"


def test_a_whole_step_scaler_restores_parameters_after_an_overflow():
    model = M.Linear(2, 1, bias=False)
    scaler = amp.Xla_GradScaler(model, init_scale=4.0)
    before = model.weight.numpy()
    gm = autodiff.GradManager().attach(model.parameters())
    with gm:
        scaler.backward(gm, scaler.scale_factor, model(Tensor([[1.0, 2.0]])).sum())
    assert model.weight.grad.tolist() == [[1, 2]]
    model.weight[...] = Tensor([[np.inf, 0.0]])
    scaler.update(model)
    np.testing.assert_array_equal(model.weight.numpy(), before)
    assert scaler.scale_factor.item() == 2


def test_division_and_powers_by_operators_are_computed_in_high_precision():
    """The cases of the original are in behaviour/cases_functional.py; here the values, and that blocks end."""
    x = Tensor([3.0, 1e-3], dtype="float16")
    with amp.autocast():
        assert [y.dtype.name for y in (x / 3, 3 / x, x**3, x**2)] == ["float32"] * 4
        np.testing.assert_array_equal((x**2).numpy(), x.numpy().astype("float32") ** 2)
    assert (x / 3).dtype.name == (x**2).dtype.name == "float16"
    before, amp.enabled = amp.enabled, True
    try:
        assert (x / 3).dtype.name == "float32"
    finally:
        amp.enabled = before
    with pytest.raises(TypeError):
        x / "3"


def test_a_power_by_the_number_two_has_the_bits_and_the_gradient_of_a_product():
    for dtype in ("float32", "float16", "bfloat16"):
        x = Parameter(Tensor(np.random.default_rng(0).normal(size=1000)).astype(dtype))
        with GradManager().attach(x) as gm:
            y = x**2
            gm.backward(y.sum())
        np.testing.assert_array_equal(y.astype("float32").numpy(), (x * x).astype("float32").numpy())
        np.testing.assert_array_equal(x.grad.astype("float32").numpy(), (x * 2).astype("float32").numpy())
    assert (Tensor([3]) ** 2).dtype.name == "float32" and (Tensor([3]) ** 2).item() == 9
    assert (Tensor([3.0]) ** 2**70).item() == np.inf and (Tensor([True]) ** 2).item() == 1
