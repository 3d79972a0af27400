"""Rounding to the grid of a quantized dtype, and its gradients."""

import math

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.core.tensor.dtype import convert_from_qint8, convert_to_qint8, qint8
from megengine.jit import trace
from megengine.quantization import (
    LSQ,
    TQT,
    FakeQuantize,
    QParams,
    QuantMode,
    create_qparams,
    fake_quant_bias,
    fake_quant_tensor,
)
from megengine.quantization.utils import (
    LSQParams,
    Round,
    lsq_forward,
    register_method_to_class,
    tqt_forward,
)

VALUES = np.array([-3.1, -1.0, -0.26, -0.25, 0.0, 0.24, 0.25, 0.74, 2.9, np.nan], np.float32)


def gradients(function, *inputs):
    """Gradient of the result's sum with respect to every input, as arrays."""
    tensors = [mge.Tensor(np.asarray(value, np.float32)) for value in inputs]
    with GradManager().attach(tensors) as gm:
        gm.backward(function(*tensors).sum())
    return [tensor.grad.numpy() for tensor in tensors]


def test_values_are_rounded_half_away_from_zero_and_clipped():
    qparams = create_qparams(QuantMode.SYMMERTIC, "qint4", mge.Tensor(0.5))
    out = fake_quant_tensor(mge.Tensor([0.25, -0.25, 0.2, 100, -100]), qparams)
    np.testing.assert_array_equal(out.numpy(), np.float32([0.5, -0.5, 0, 3.5, -4]))


def test_fake_quantization_is_quantization_and_back():
    x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    scale = np.float32(0.017)
    out = fake_quant_tensor(
        mge.Tensor(x), create_qparams(QuantMode.SYMMERTIC, "qint8", mge.Tensor(scale))
    )
    there = convert_to_qint8(x, qint8(float(scale)))
    np.testing.assert_allclose(out.numpy(), convert_from_qint8(there), rtol=1e-6)


def test_zero_point_shifts_the_range():
    qparams = create_qparams(QuantMode.ASYMMERTIC, "quint8", mge.Tensor(1.0), mge.Tensor(3))
    out = fake_quant_tensor(mge.Tensor([-10.0, -3.0, 0.0, 252.0, 300.0]), qparams)
    np.testing.assert_array_equal(out.numpy(), np.float32([-3, -3, 0, 252, 252]))


def test_result_carries_its_parameters_and_the_input_does_not():
    x, qparams = mge.Tensor([1.0]), create_qparams(QuantMode.SYMMERTIC, "qint8", mge.Tensor(0.1))
    assert fake_quant_tensor(x, qparams).qparams == qparams
    assert x.qparams.scale is None


def test_gradient_passes_in_range_and_stops_outside():
    qparams = create_qparams(QuantMode.SYMMERTIC, "qint4", mge.Tensor(1.0))
    (grad,) = gradients(lambda x: fake_quant_tensor(x, qparams), [-8.6, -8.4, 0.3, 7.4, 7.6])
    np.testing.assert_array_equal(grad, np.float32([0, 1, 1, 1, 0]))


def test_gradient_of_the_step_size():
    """Esser et al. 2020, equation 3: round(v) - v in range, the level outside; times the weight."""
    grad_x, grad_step = gradients(
        lambda x, s: lsq_forward(-8, 7, x, s, None, 0.5), [1.3, -9.0, 20.0], 1.0
    )
    np.testing.assert_array_equal(grad_x, np.float32([1, 0, 0]))
    np.testing.assert_allclose(grad_step, 0.5 * (-0.3 - 8 + 7), rtol=1e-5)


def test_gradient_of_the_step_size_where_all_is_clipped_is_the_finite_difference():
    def result(step):
        return lsq_forward(0, 15, mge.Tensor([90.0, -50.0]), step, mge.Tensor(3.0)).sum()

    (grad,) = gradients(result, 1.0)
    difference = (result(mge.Tensor(1.25)) - result(mge.Tensor(0.75))).item() / 0.5
    assert grad == pytest.approx(difference, rel=1e-5)


def test_gradient_of_the_log_of_the_scale():
    """Jain et al. 2020, equation 8: scale * ln 2 times the gradient of the step size."""
    (_, grad) = gradients(lambda x, t: tqt_forward(-8, 7, x, t), [0.7, 40.0], 1.0)
    np.testing.assert_allclose(grad, 2 * math.log(2) * ((0 - 0.35) + 7), rtol=1e-5)


def test_scale_per_channel_gets_a_gradient_per_channel():
    x = np.float32([[100, 100], [-100, 0]])
    _, grad = gradients(lambda x, s: lsq_forward(-8, 7, x, s), x, np.float32([[1], [2]]))
    np.testing.assert_array_equal(grad, np.float32([[14], [-8]]))


def test_traced_and_fused_rounding_gives_the_same_bits():
    scale, x = mge.Tensor(0.37), mge.Tensor(VALUES)

    def rounded(x):
        return F.relu(lsq_forward(-8, 7, x * 2.0, scale) + 1.0)

    np.testing.assert_array_equal(trace(rounded)(x).numpy(), rounded(x).numpy())


def test_round_passes_the_gradient_on():
    (grad,) = gradients(lambda x: Round()(x), [0.4, 2.5])
    np.testing.assert_array_equal(grad, np.float32([1, 1]))
    np.testing.assert_array_equal(Round()(mge.Tensor([0.4, 2.5])).numpy(), np.float32([0, 3]))


@pytest.mark.parametrize(("cls", "step"), [(TQT, 0.05), (LSQ, 0.01)])
def test_learned_scales_start_where_they_are_set_and_go_down_the_error(cls, step):
    module = cls("qint4")
    module.set_qparams(create_qparams(QuantMode.SYMMERTIC, "qint4", mge.Tensor(0.01)))
    assert float(module.get_qparams().scale) == pytest.approx(0.01, rel=1e-5)
    x = mge.Tensor(np.random.default_rng(0).normal(size=512).astype(np.float32))
    (parameter,) = module.parameters()

    def error():
        return ((module(x) - x) ** 2).sum()

    first = error().item()
    for _ in range(100):
        with GradManager().attach([parameter]) as gm:
            gm.backward(error())
        parameter[...] = parameter - step * F.sign(parameter.grad)
        parameter.grad = None
    assert error().item() < 0.1 * first


def test_lsq_weighs_its_gradient_as_the_paper_says():
    x = np.full(4, 100, np.float32)
    for grad_scale, weight in ((None, 1 / math.sqrt(4 * 7)), (mge.Tensor(0.5), 0.5)):
        module = LSQ("qint4")
        params = LSQParams(QuantMode.SYMMERTIC, module.dtype, mge.Tensor(1.0), None, grad_scale)
        module.set_qparams(params)
        with GradManager().attach(module.parameters()) as gm:
            gm.backward(module(mge.Tensor(x)).sum())
        np.testing.assert_allclose(module.step_size.grad.numpy(), 4 * 7 * weight, rtol=1e-5)


def test_disabled_quantizers_return_their_input():
    x = mge.Tensor([0.123])
    for module in (FakeQuantize("qint8"), TQT("qint8"), LSQ("qint8", enable=False)):
        module.disable()
        assert module(x) is x
        module.enable()
        assert module.enabled


def test_bias_is_rounded_to_the_product_of_the_scales():
    def carrying(dtype, scale):
        value = mge.Tensor([0.0])
        value.qparams.update(create_qparams(QuantMode.SYMMERTIC, dtype, mge.Tensor(scale)))
        return value

    bias = mge.Tensor([0.26])
    out = fake_quant_bias(bias, carrying("qint8", 0.5), carrying("qint8_narrow", 0.25))
    np.testing.assert_array_equal(out.numpy(), np.float32([0.25]))
    assert fake_quant_bias(bias, carrying("qint4", 0.5), carrying("qint4", 0.25)) is bias
    assert fake_quant_bias(bias, mge.Tensor([0.0]), carrying("qint8", 0.5)) is bias
    assert fake_quant_bias(None, mge.Tensor([0.0]), carrying("qint8", 0.5)) is None


def test_qparams_compare_by_value_and_update():
    a = create_qparams(QuantMode.SYMMERTIC, "qint8", mge.Tensor(0.5))
    b = create_qparams(QuantMode.SYMMERTIC, "qint8", mge.Tensor(0.25))
    assert a != b and a != "qint8"
    b.update(a)
    assert a == b and "qint8" in repr(a) and isinstance(a, QParams)


def test_register_method_to_class():
    class Thing:
        pass

    @register_method_to_class(Thing)
    def double(self, x):
        return 2 * x

    assert Thing().double(4) == 8 == double(None, 4)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: create_qparams(dtype_meta="int9"), "quantized dtype 'int9' is unknown"),
        (lambda: fake_quant_tensor(mge.Tensor([1.0]), create_qparams()), "is not complete"),
        (lambda: FakeQuantize("qint8")(mge.Tensor([1.0])), "needs the parameters of an observer"),
        (lambda: FakeQuantize("qint8")(mge.Tensor([1.0]), create_qparams(dtype_meta="qint4")), "of qint8 got"),
        (lambda: TQT("qint8").set_qparams(create_qparams(QuantMode.ASYMMERTIC, "qint8")), "TQT is symmetric"),
    ],
)  # fmt: skip
def test_errors(act, words):
    with pytest.raises(ValueError, match=words):
        act()
