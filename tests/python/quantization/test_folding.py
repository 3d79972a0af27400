"""Layers with batch normalization for quantization-aware training: folding, and training like the float layers."""

import copy

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.module.qat as Q
from megengine.autodiff import GradManager
from megengine.quantization import disable_fake_quant, quantize_qat

RNG = np.random.default_rng(7)

LAYERS = [
    pytest.param(lambda: M.ConvBn2d(4, 6, 3, padding=1), (2, 4, 5, 5), id="conv"),
    pytest.param(lambda: M.ConvBnRelu2d(4, 6, 3, groups=2), (2, 4, 5, 5), id="conv-groups-relu"),
    pytest.param(lambda: M.ConvBn2d(4, 6, 1, bias=False), (2, 4, 5, 5), id="conv-without-bias"),
    pytest.param(lambda: M.ConvBn2d(4, 6, 1, affine=False), (2, 4, 5, 5), id="conv-not-affine"),
    pytest.param(lambda: M.ConvTransposeBn2d(4, 6, 3, 2), (2, 4, 5, 5), id="transposed"),
    pytest.param(lambda: M.ConvTransposeBnRelu2d(4, 6, 3, groups=2), (2, 4, 5, 5), id="transposed-groups-relu"),
    pytest.param(lambda: M.LinearBn1d(4, 6), (5, 4), id="linear"),
    pytest.param(lambda: M.LinearBnRelu1d(4, 6, bias=False), (5, 4), id="linear-relu"),
]  # fmt: skip


def random(*shape):
    return mge.Tensor(RNG.normal(size=shape).astype(np.float32))


def trained(layer):
    """The layer with statistics, scales, shifts and biases as after some training."""
    for path, tensor in layer.named_tensors():
        if "bn" in path or "bias" in path:
            tensor[...] = RNG.uniform(0.5, 2.0, tensor.shape).astype(np.float32)
    return layer


def unrounded(layer):
    """Its QAT layer, which rounds nothing."""
    qat = quantize_qat(layer, inplace=False)
    disable_fake_quant(qat)
    return qat


@pytest.mark.parametrize(("make", "shape"), LAYERS)
def test_folded_layer_computes_what_the_two_layers_do(make, shape):
    layer = trained(make())
    qat = unrounded(layer)
    layer.eval()
    qat.eval()
    x = random(*shape)
    np.testing.assert_allclose(qat(x).numpy(), layer(x).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("make", "shape"), LAYERS)
def test_training_step_without_rounding_is_that_of_the_float_layer(make, shape):
    layer = trained(make())
    qat = unrounded(layer)
    x, weights = random(*shape), None
    results = []
    for module in (layer, qat):
        gm = GradManager().attach(module.parameters())
        with gm:
            y = module(x)
            weights = random(*y.shape) if weights is None else weights
            gm.backward((y * weights).sum())
        grads = {path: p.grad.numpy() for path, p in module.named_parameters()}
        statistics = [module.bn.running_mean.numpy(), module.bn.running_var.numpy()]
        results.append((y.numpy(), grads, statistics))
    (y, grads, statistics), (qat_y, qat_grads, qat_statistics) = results
    np.testing.assert_allclose(qat_y, y, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(qat_statistics[0], statistics[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(qat_statistics[1], statistics[1], rtol=1e-4, atol=1e-5)
    for path, grad in grads.items():
        np.testing.assert_allclose(qat_grads[path], grad, rtol=1e-3, atol=1e-4, err_msg=path)


def test_scale_of_zero_gives_the_shift_and_no_nan():
    layer = M.ConvBn2d(2, 3, 1)
    layer.bn.weight[...] = 0
    layer.bn.bias[...] = layer.bn.bias + 2.0
    out = unrounded(layer)(random(2, 2, 3, 3))
    np.testing.assert_array_equal(out.numpy(), np.full((2, 3, 3, 3), 2.0))


def test_frozen_batch_normalization_is_folded_in_training():
    layer = trained(M.ConvBn2d(2, 3, 1))
    layer.bn.freeze = True
    qat, x = unrounded(layer), random(2, 2, 3, 3)
    np.testing.assert_allclose(qat(x).numpy(), layer(x).numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(qat.bn.running_mean.numpy(), layer.bn.running_mean.numpy())


def test_fold_weight_bias_of_any_object_with_conv_and_bn():
    """As programs that fuse layers in a graph call it."""

    class Pair:
        def __init__(self, conv, bn):
            self.conv, self.bn = conv, bn

        def apply_quant_weight(self, weight):
            return weight

    conv, bn = M.Conv2d(3, 4, 1, bias=False), trained(M.BatchNorm2d(4))
    trained(bn).running_mean[...] = RNG.normal(size=(1, 4, 1, 1)).astype(np.float32)
    bn.eval()
    weight, bias = Q.ConvBn2d.fold_weight_bias(Pair(conv, bn), bn.running_mean, bn.running_var)
    assert weight.shape == conv.weight.shape and bias.shape == (1, 4, 1, 1)
    x = random(2, 3, 5, 5)
    np.testing.assert_allclose(
        F.conv2d(x, weight, bias).numpy(), bn(conv(x)).numpy(), rtol=1e-5, atol=1e-5
    )


def test_evaluation_rounds_the_folded_weight_as_training_did():
    """In training the weight is rounded as folded with the running statistics, so both see the same range."""
    layer = trained(M.ConvBn2d(4, 6, 3))
    qat = quantize_qat(copy.deepcopy(layer))
    qat(random(2, 4, 5, 5))
    seen = qat.get_weight_qparams().scale.numpy()
    layer.eval()
    folded, _ = Q.ConvBn2d.fold_weight_bias(
        unrounded(layer), layer.bn.running_mean, layer.bn.running_var
    )
    np.testing.assert_allclose(seen, np.abs(folded.numpy()).max() / 127, rtol=1e-5)


def test_traced_training_is_that_of_eager():
    qat = quantize_qat(trained(M.ConvBnRelu2d(2, 3, 3)))
    twin, x = copy.deepcopy(qat), random(2, 2, 5, 5)
    traced = mge.jit.trace(lambda value: twin(value))
    for _ in range(3):
        np.testing.assert_allclose(traced(x).numpy(), qat(x).numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        twin.act_observer.max_val.numpy(), qat.act_observer.max_val.numpy(), rtol=1e-6
    )
