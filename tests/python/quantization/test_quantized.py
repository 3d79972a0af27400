"""Layers that compute on integers: the integers are those of the fake-quantized layers."""

import copy
import pickle
import warnings
from functools import partial

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.functional.quantized as FQ
import megengine.module as M
import megengine.module.qat as QAT
import megengine.module.quantized as Quantized
import megengine.traced_module as tm
from megengine.core import ops
from megengine.core.tensor import dtype as dt
from megengine.jit import trace
from megengine.quantization import (
    QConfig,
    disable_fake_quant,
    ema_lowbit_fakequant_qconfig,
    enable_fake_quant,
    min_max_fakequant_qconfig,
    quantize,
    quantize_qat,
)

RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def same_numbers_each_time():
    global RNG
    RNG = np.random.default_rng(11)
    mge.random.seed(3)


def random(*shape):
    return mge.Tensor(RNG.normal(size=shape).astype(np.float32))


class Between(M.Module):
    """A layer between the stubs."""

    def __init__(self, *layers):
        super().__init__()
        self.quant, self.dequant = M.QuantStub(), M.DequantStub()
        self.layers = list(layers)

    def forward(self, x):
        x = self.quant(x)
        for layer in self.layers:
            x = layer(x)
        return self.dequant(x)


def both(net, x, qconfig=min_max_fakequant_qconfig):
    """The fake-quantized model in evaluation, and the one of integers."""
    for module in net.modules():
        if isinstance(module, (M.BatchNorm1d, M.BatchNorm2d)):
            module.running_mean[...] = random(*module.running_mean.shape)
            module.weight[...] = RNG.uniform(0.5, 2, module.weight.shape).astype(np.float32)
        if getattr(module, "bias", None) is not None:
            module.bias[...] = random(*module.bias.shape)
    qat = quantize_qat(net, qconfig=qconfig)
    disable_fake_quant(qat)
    qat(x)
    qat.eval()
    for module in qat.modules():
        if hasattr(module, "act_observer"):
            module.set_observer(True)
    qat(x)
    qat.eval()
    enable_fake_quant(qat)
    return qat, quantize(qat, inplace=False)


LAYERS = {
    "conv": (lambda: M.Conv2d(4, 6, 3, padding=1), (2, 4, 7, 7)),
    "conv-strided-groups": (lambda: M.Conv2d(4, 6, 3, 2, groups=2), (2, 4, 7, 7)),
    "conv-reflecting": (lambda: M.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), (2, 4, 7, 7)),
    "conv-depthwise": (lambda: M.ConvRelu2d(4, 4, 3, groups=4, bias=False), (2, 4, 7, 7)),
    "conv-bn": (lambda: M.ConvBn2d(4, 6, 3), (2, 4, 7, 7)),
    "conv-bn-relu": (lambda: M.ConvBnRelu2d(4, 6, 3, dilation=2), (2, 4, 7, 7)),
    "transposed": (lambda: M.ConvTranspose2d(4, 6, 3, 2), (2, 4, 5, 5)),
    "transposed-bn-relu": (lambda: M.ConvTransposeBnRelu2d(4, 6, 3, 2), (2, 4, 5, 5)),
    "linear": (lambda: M.Linear(8, 5), (3, 8)),
    "linear-relu": (lambda: M.LinearRelu(8, 5, bias=False), (2, 3, 8)),
    "linear-bn": (lambda: M.LinearBn1d(8, 5), (3, 8)),
    "bmm": (lambda: M.BatchMatMulActivation(2, 3, 4, nonlinear_mode="relu"), (2, 3, 5)),
    "elemwise": (lambda: M.Elemwise("silu"), (3, 8)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_integers_are_those_of_the_fake_quantized_layer(name):
    make, shape = LAYERS[name]
    x = random(*shape)
    qat, integers = both(Between(make()), x)
    layer = integers.layers[0]
    assert type(layer).__module__.startswith("megengine.module.quantized")
    scale = dt.get_scale(layer.output_dtype)
    got, wanted = integers(x).numpy() / scale, qat(x).numpy() / scale
    np.testing.assert_allclose(got, np.round(got), atol=1e-3)
    # A sum that lies on the border of two levels in float32 may fall to either side.
    assert np.abs(got - wanted).max() < 1.01 and (np.abs(got - wanted) > 0.5).mean() < 0.01
    assert np.abs(got).max() > 30  # the range, which training has widened, is used


@pytest.mark.parametrize("kind", ["qint4", "quint8"])
def test_other_dtypes_are_computed_in_float_between_the_roundings(kind):
    asymmetric = mge.quantization.QuantMode.ASYMMERTIC

    def observer():
        return mge.quantization.MinMaxObserver(asymmetric, dtype="quint8")

    def rounding():
        return mge.quantization.FakeQuantize("quint8")

    unsigned = QConfig(observer, observer, rounding, rounding)
    qconfig = ema_lowbit_fakequant_qconfig if kind == "qint4" else unsigned
    x = random(2, 4, 7, 7)
    qat, integers = both(Between(M.ConvRelu2d(4, 6, 3), M.Conv2d(6, 3, 3)), x, qconfig)
    scale = dt.get_scale(integers.layers[1].output_dtype)
    assert (np.abs(integers(x).numpy() - qat(x).numpy()) > 0.5 * scale).mean() < 0.02


class Residual(M.Module):
    def __init__(self, pool=F.avg_pool2d):
        super().__init__()
        self.pool = pool
        self.quant, self.dequant = M.QuantStub(), M.DequantStub()
        self.stem = M.ConvBnRelu2d(3, 16, 3, 2, 1)
        self.left, self.right = M.ConvBnRelu2d(16, 16, 3, 1, 1), M.ConvBn2d(16, 16, 1)
        self.add, self.concat = M.Elemwise("fuse_add_relu"), M.Concat()
        self.head = M.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool2d(self.stem(self.quant(x)), 2)
        y = self.add(self.left(x), self.right(x))
        y = F.flatten(self.pool(self.concat([x, y], 1), 4), 1)
        return self.dequant(self.head(y))


def test_a_residual_network_on_integers_agrees_with_its_fake_quantized_model():
    x = random(64, 3, 16, 16)
    qat, integers = both(Residual(), x)
    wanted, got = qat(x).numpy(), integers(x).numpy()
    assert np.corrcoef(wanted.ravel(), got.ravel())[0, 1] > 0.99
    assert (wanted.argmax(1) == got.argmax(1)).mean() > 0.9


@pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d])
def test_traced_networks_of_integers_give_the_same_integers(pool):
    """Averages of pixels that lie channels-last are added up in another order, and one between two steps may get the other."""
    x = random(4, 3, 16, 16)
    _, integers = both(Residual(pool), x)
    want = integers(x).numpy()
    step = 1.01 * np.diff(np.unique(want)).min() if pool is F.avg_pool2d else 0
    for level in (2, 3):
        traced = trace(lambda value: integers(value), symbolic=True, opt_level=level)
        for _ in range(2):
            found = traced(x).numpy()
            np.testing.assert_allclose(found, want, rtol=1e-6, atol=step)
            assert (found != want).mean() < 0.1


def test_weights_are_stored_in_8_bits_and_survive_pickling():
    x = random(2, 4, 7, 7)
    _, integers = both(Between(M.ConvBn2d(4, 6, 3)), x)
    weight = integers.layers[0].weight
    assert weight.numpy().dtype == np.int8 and dt.is_quantize(weight.dtype)
    for twin in (copy.deepcopy(integers), pickle.loads(pickle.dumps(integers))):
        np.testing.assert_array_equal(twin(x).numpy(), integers(x).numpy())


def test_state_dicts_keep_the_scales_of_weights():
    x = random(2, 4, 7, 7)
    (_, first), (_, second) = (
        both(Between(M.Conv2d(4, 6, 3)), x),
        both(Between(M.Conv2d(4, 6, 3)), x),
    )
    assert first.layers[0].weight.dtype.metadata != second.layers[0].weight.dtype.metadata
    second.load_state_dict(first.state_dict())
    wanted, got = first.layers[0].weight, second.layers[0].weight
    assert got.dtype.metadata == wanted.dtype.metadata
    np.testing.assert_array_equal(got.numpy(), wanted.numpy())


def test_quantized_tensors_hold_integers_and_convert_back():
    q = mge.Tensor([0.26, -0.25, 100.0]).astype(dt.qint8(0.1))
    assert q.numpy().tolist() == [3, -3, 127] and dt.get_scale(q.dtype) == 0.1
    np.testing.assert_allclose(q.astype("float32").numpy(), [0.3, -0.3, 12.7], rtol=1e-6)
    u = q.astype(dt.quint8(0.1, 128))
    assert u.numpy().tolist() == [131, 125, 255]
    assert dt.get_zero_point(u.reshape(3, 1).dtype) == 128
    assert dt.is_quantize(F.flatten(u.reshape(3, 1)).dtype)


def test_8_bit_convolution_is_exact_where_float32_would_round():
    """3000 products of 127 * 127 need 26 bits."""
    x = mge.Tensor(np.full((1, 3000, 1, 1), 127, np.int8))
    w = mge.Tensor(np.concatenate([np.full((1, 2999, 1, 1), 127), [[[[126]]]]], 1).astype(np.int8))
    scale = mge.Tensor(np.float32([1.0]))
    got = ops.quantized_conv(x, w, scale, mge.Tensor(np.float32([0])), dtype="float32")
    assert got.item() == np.float32(3000 * 127 * 127 - 127)


def test_weights_that_change_between_calls_are_packed_again():
    """Packed weights are kept from call to call."""
    x = mge.Tensor(RNG.integers(-128, 128, (1, 16, 6, 6)).astype(np.int8))
    scale, bias = mge.Tensor(np.float32([1.0])), mge.Tensor(np.zeros(16, np.float32))
    for seed in (0, 1, 1, 0):
        values = np.random.default_rng(seed).integers(-127, 128, (16, 16, 3, 3)).astype(np.int8)
        got = ops.quantized_conv(x, mge.Tensor(values), scale, bias, dtype="float32").numpy()
        wanted = F.conv2d(x.astype("float32"), mge.Tensor(values.astype(np.float32))).numpy()
        np.testing.assert_array_equal(got, wanted)


def test_conv_transpose2d_of_quantized_tensors():
    x, w = random(1, 3, 4, 4), random(3, 2, 3, 3)
    x, w = x.astype(dt.qint8(0.03)), w.astype(dt.qint8(0.03))
    got = FQ.conv_transpose2d(x, w, None, dt.qint8(0.2), 2)
    wanted = F.conv_transpose2d(x.astype("float32"), w.astype("float32"), None, 2).astype(dt.qint8(0.2))
    np.testing.assert_array_equal(got.numpy(), wanted.numpy())


def test_integers_that_lost_their_scale_are_refused():
    _, integers = both(Between(M.Conv2d(4, 6, 3)), random(2, 4, 7, 7))
    with pytest.raises(TypeError, match="a tensor of int8 has no scale"):
        integers.layers[0](mge.Tensor(np.zeros((2, 4, 7, 7), np.int8)))


def test_training_mode_is_refused():
    _, integers = both(Between(M.Conv2d(4, 6, 3)), random(2, 4, 7, 7))
    integers.train()
    with pytest.raises(ValueError, match="cannot be trained\n  fix: call eval"):
        integers(random(2, 4, 7, 7))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": np.zeros((1, 4, 5, 5), np.float32)}, "x is int8 or uint8, w int8"),
        ({"x": np.zeros((1, 4), np.int8)}, "the ranks are 2 and 4"),
        ({"groups": 3}, "groups = 3 with 4 input channels"),
        ({"bias": np.zeros(5, np.float32)}, "bias 5 elements for 6 output channels"),
        ({"x": np.zeros((1, 4, 2, 2), np.int8)}, "a kernel of 3 does not fit into 2"),
        ({"dtype": "int32"}, "the result cannot be int32"),
    ],
)
def test_what_the_8_bit_convolution_refuses(change, words):
    given = {
        "x": np.zeros((1, 4, 5, 5), np.int8), "w": np.zeros((6, 4, 3, 3), np.int8),
        "scale": np.ones(1, np.float32), "bias": np.zeros(6, np.float32), "groups": 1, "dtype": "int8",
    } | change  # fmt: skip
    operands = [mge.Tensor(given.pop(name)) for name in ("x", "w", "scale", "bias")]
    with pytest.raises((ValueError, TypeError), match=words):
        ops.quantized_conv(*operands, **given)


def test_unobserved_models_cannot_be_quantized():
    with pytest.raises(TypeError, match="expected a Module"):
        quantize(3)
    passive = quantize_qat(M.Conv2d(1, 1, 1), qconfig=mge.quantization.passive_qconfig)
    with pytest.raises(ValueError, match="has no quantization parameters"):
        quantize(passive)
    with pytest.warns(UserWarning, match="1 layers have seen no data"):
        assert type(quantize(quantize_qat(M.Linear(2, 2)))) is Quantized.Linear


@pytest.mark.parametrize("kind", ["TQT", "LSQ"])
@pytest.mark.parametrize("place", ["act", "weight", "both"])
def test_scales_that_are_not_learned_are_told(kind, place):
    learned = {f"{name}_fake_quant": partial(getattr(mge.quantization, kind), dtype=dtype) for name, dtype in (("act", "qint8"), ("weight", "qint8_narrow")) if place in (name, "both")}
    qconfig = min_max_fakequant_qconfig._replace(**learned)
    qat = quantize_qat(M.Sequential(M.QuantStub(), M.Linear(2, 2)), qconfig=qconfig)
    qat(random(4, 2))
    with pytest.warns(UserWarning, match=r"(?s)scales of \d layers are those that TQT and LSQ start with.*fix: .*set_qparams"):
        quantize(qat, inplace=False)
    for layer in (qat[0], qat[1]):
        for name in ("act", "weight"):
            observer, fake_quant = (getattr(layer, f"{name}_{part}", None) for part in ("observer", "fake_quant"))
            if isinstance(fake_quant, getattr(mge.quantization, kind)):
                fake_quant.set_qparams(observer.get_qparams())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quantize(qat)


def test_a_traced_module_is_quantized_like_the_module():
    x = random(2, 3, 16, 16)
    net = tm.trace_module(Residual(), x)
    qat, integers = both(net, x)
    wanted, got = qat(x).numpy(), integers(x).numpy()
    assert np.corrcoef(wanted.ravel(), got.ravel())[0, 1] > 0.99
    assert type(integers.stem) is Quantized.ConvBnRelu2d


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("is_8_bit", [True, False])
def test_a_convolution_with_a_weight_for_each_sample_is_one_for_each_sample(
    groups, count, is_8_bit
):
    dtype = dt.qint8(0.1) if is_8_bit else None
    x = random(count, 4, 6, 6).astype(dt.qint8(0.05))
    shape = (count, 2, 3, 2, 3, 3) if groups == 2 else (count, 6, 4, 3, 3)
    weight, bias = random(*shape).astype(dt.qint8(0.02)), random(1, 6, 1, 1)
    options = {"padding": 1, "groups": groups, "nonlinear_mode": "relu", "dtype": dtype}
    got = FQ.batch_conv_bias_activation(x, weight, bias, **options)

    def part(tensor, i):
        return F.expand_dims(tensor.astype("float32")[i], 0).astype(tensor.dtype)

    for i in range(count):
        one = part(weight, i)
        one = one.reshape(*one.shape[1:])
        want = FQ.conv_bias_activation(part(x, i), one, bias, **options)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(
            got.astype("float32").numpy()[i],
            want.astype("float32").numpy()[0],
            rtol=1e-5,
            atol=1e-5,
        )


def test_each_sample_needs_a_weight():
    x, weight = random(2, 4, 6, 6), random(3, 6, 4, 3, 3)
    with pytest.raises(ValueError, match="2 samples and 3 weights"):
        FQ.batch_conv_bias_activation(x, weight, None)


KINDS = {
    "bmm": (lambda: M.BatchMatMulActivation(2, 3, 4), (2, 3, 5), QAT.BatchMatMulActivation, Quantized.BatchMatMulActivation),
    "conv": (lambda: M.Conv2d(4, 6, 3), (2, 4, 7, 7), QAT.Conv2d, Quantized.Conv2d),
    "conv-relu": (lambda: M.ConvRelu2d(4, 6, 3), (2, 4, 7, 7), QAT.ConvRelu2d, Quantized.ConvRelu2d),
    "conv-bn": (lambda: M.ConvBn2d(4, 6, 3), (2, 4, 7, 7), QAT.ConvBn2d, Quantized.ConvBn2d),
    "conv-bn-relu": (lambda: M.ConvBnRelu2d(4, 6, 3), (2, 4, 7, 7), QAT.ConvBnRelu2d, Quantized.ConvBnRelu2d),
    "transposed": (lambda: M.ConvTranspose2d(4, 6, 3), (2, 4, 5, 5), QAT.ConvTranspose2d, Quantized.ConvTranspose2d),
    "transposed-relu": (lambda: M.ConvTransposeRelu2d(4, 6, 3), (2, 4, 5, 5), QAT.ConvTransposeRelu2d, Quantized.ConvTransposeRelu2d),
    "transposed-bn": (lambda: M.ConvTransposeBn2d(4, 6, 3), (2, 4, 5, 5), QAT.ConvTransposeBn2d, Quantized.ConvTransposeBn2d),
    "transposed-bn-relu": (lambda: M.ConvTransposeBnRelu2d(4, 6, 3), (2, 4, 5, 5), QAT.ConvTransposeBnRelu2d, Quantized.ConvTransposeBnRelu2d),
    "linear": (lambda: M.Linear(8, 5), (3, 8), QAT.Linear, Quantized.Linear),
    "linear-relu": (lambda: M.LinearRelu(8, 5), (3, 8), QAT.LinearRelu, Quantized.LinearRelu),
    "linear-bn": (lambda: M.LinearBn1d(8, 5), (3, 8), QAT.LinearBn1d, Quantized.LinearBn1d),
    "linear-bn-relu": (lambda: M.LinearBnRelu1d(8, 5), (3, 8), QAT.LinearBnRelu1d, Quantized.LinearBnRelu1d),
    "elemwise": (lambda: M.Elemwise("relu"), (3, 8), QAT.Elemwise, Quantized.Elemwise),
}


@pytest.mark.parametrize("name", KINDS)
def test_each_layer_becomes_its_kind_and_only_infers(name):
    make, shape, trained_kind, integer_kind = KINDS[name]
    x = random(*shape)
    qat, integers = both(Between(make()), x)
    layer = integers.layers[0]
    assert type(qat.layers[0]) is trained_kind and type(layer) is integer_kind and isinstance(layer, Quantized.QuantizedModule)
    assert type(integers.quant) is Quantized.QuantStub and type(integers.dequant) is Quantized.DequantStub
    if "relu" in name or name == "elemwise":
        assert integers(x).numpy().min() >= 0 > M.Sequential(make())(random(*shape)).numpy().min() - 1
    integers.train()
    with pytest.raises(ValueError, match="cannot be trained"):
        integers(x)


def test_a_layer_without_a_rule_is_refused():
    with pytest.raises(TypeError, match="Own does not define from_qat_module"):
        type("Own", (Quantized.QuantizedModule,), {}).from_qat_module(None)


def test_concatenated_values_get_one_scale():
    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.quant, self.dequant, self.concat = M.QuantStub(), M.DequantStub(), M.Concat()

        def forward(self, x):
            x = self.quant(x)
            return self.dequant(self.concat([x, x], 1))

    x = random(2, 3)
    qat, integers = both(Net(), x)
    assert type(qat.concat) is QAT.Concat and type(integers.concat) is Quantized.Concat
    np.testing.assert_allclose(integers(x).numpy(), qat(x).numpy(), atol=1e-6)
