"""Layers against NumPy: linear, convolution, normalization, pooling, activation and the rest."""

import warnings

import numpy as np
import pytest
import reference_layers as R
from drawn import counts_follow, follows
from scipy import stats

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager
from megengine.jit import trace


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(got, want, rtol=2e-4, atol=2e-5):
    np.testing.assert_allclose(got.numpy(), want, rtol=rtol, atol=atol)


def values(module):
    return {name: tensor.numpy().astype(np.float64) for name, tensor in module.named_tensors()}


def gradient_of(module, x):
    """d sum(module(x)) / dx."""
    with GradManager().attach(x) as gm:
        gm.backward(module(x))
    return x.grad.numpy()


# -- linear --------------------------------------------------------------------------------------


def test_linear_is_an_affine_map_of_the_last_axis():
    layer, x = M.Linear(5, 3), array(2, 4, 5)
    layer.bias[...] = array(3, seed=1)
    v = values(layer)
    close(layer(Tensor(x)), x @ v["weight"].T + v["bias"])
    assert M.Linear(5, 3, bias=False).bias is None


def test_linear_relu_and_linear_bn():
    x = array(6, 5)
    layer = M.LinearRelu(5, 3)
    close(layer(Tensor(x)), np.maximum(x @ values(layer)["weight"].T, 0))
    fused = M.LinearBnRelu1d(5, 3)
    want = R.normalize(x.astype(np.float64) @ values(fused)["linear.weight"].T, 0)
    close(fused(Tensor(x)), np.maximum(want, 0), atol=1e-3)
    plain = M.LinearBn1d(5, 3)
    close(plain(Tensor(x)), R.normalize(x @ values(plain)["linear.weight"].T, 0), atol=1e-3)


@pytest.mark.parametrize("mode", ["identity", "RELU"])
def test_batch_matmul_activation(mode):
    layer, x = M.BatchMatMulActivation(2, 4, 3, nonlinear_mode=mode), array(2, 4, 5)
    layer.bias[...] = array(3)
    v = values(layer)
    want = v["weight"] @ x + v["bias"][:, None]
    close(layer(Tensor(x)), want if mode == "identity" else np.maximum(want, 0))
    with pytest.raises(ValueError, match="tanh"):
        M.BatchMatMulActivation(2, 4, 3, nonlinear_mode="tanh")


# -- convolution ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (M.Conv1d(4, 6, 3, stride=2, padding=1), (2, 4, 9)),
        (M.Conv1d(4, 6, 3, dilation=2, groups=2), (2, 4, 9)),
        (M.Conv2d(4, 6, 3, stride=2, padding=1), (2, 4, 7, 8)),
        (M.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(0, 1), dilation=(2, 1)), (2, 4, 7, 8)),
        (M.Conv2d(4, 6, 3, groups=2), (2, 4, 5, 5)),
        (M.Conv2d(4, 8, 3, padding=1, groups=4, bias=False), (1, 4, 5, 5)),
        (M.Conv3d(2, 4, 2, padding=1), (1, 2, 4, 3, 5)),
        (M.Conv3d(2, 4, 2, stride=2, groups=2), (1, 2, 4, 4, 4)),
    ],
    ids=lambda value: repr(value) if isinstance(value, M.Module) else "",
)
def test_convolutions(layer, shape):
    x = array(*shape)
    if layer.bias is not None:
        layer.bias[...] = array(*layer.bias.shape, seed=2)
    v = values(layer)
    want = R.conv(
        x, v["weight"], v.get("bias"), layer.stride, layer.padding, layer.dilation, layer.groups
    )
    close(layer(Tensor(x)), want)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (M.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), (2, 4, 5, 4)),
        (M.ConvTranspose2d(4, 6, 2, stride=2, groups=2), (1, 4, 3, 3)),
        (M.ConvTranspose2d(3, 2, 3, dilation=2, bias=False), (1, 3, 4, 4)),
        (M.ConvTranspose3d(2, 4, 2, stride=2), (1, 2, 3, 2, 3)),
    ],
    ids=lambda value: repr(value) if isinstance(value, M.Module) else "",
)
def test_transposed_convolutions(layer, shape):
    x = array(*shape)
    v = values(layer)
    want = R.conv_transpose(
        x, v["weight"], v.get("bias"), layer.stride, layer.padding, layer.output_padding,
        layer.dilation, layer.groups,
    )  # fmt: skip
    close(layer(Tensor(x)), want)


@pytest.mark.parametrize(("mode", "numpy_mode"), [("reflect", "reflect"), ("replicate", "edge")])
def test_padding_modes_of_convolutions(mode, numpy_mode):
    x, layer = array(1, 2, 5, 6), M.Conv2d(2, 3, 3, padding=(1, 2), padding_mode=mode)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (2, 2)], mode=numpy_mode)
    assert layer.get_pad_witdth() == ((0, 0), (0, 0), (1, 1), (2, 2))
    close(layer(Tensor(x)), R.conv(padded, values(layer)["weight"]))
    with pytest.raises(ValueError, match="circular"):
        M.Conv2d(2, 3, 3, padding_mode="circular")


def test_shapes_of_weights():
    assert M.Conv2d(4, 6, (3, 2)).weight.shape == (6, 4, 3, 2)
    assert M.Conv2d(4, 6, 3, groups=2).weight.shape == (2, 3, 2, 3, 3)
    assert M.Conv2d(4, 6, 3).bias.shape == (1, 6, 1, 1)
    assert M.Conv1d(4, 6, 3).bias.shape == (1, 6, 1)
    assert M.Conv3d(4, 6, 3).weight.shape == (6, 4, 3, 3, 3)
    assert M.ConvTranspose2d(4, 6, 3).weight.shape == (4, 6, 3, 3)
    assert M.ConvTranspose2d(4, 6, 3, groups=2).weight.shape == (2, 2, 3, 3, 3)
    assert M.LocalConv2d(4, 6, 5, 5, 3, groups=2).weight.shape == (2, 3, 3, 2, 3, 3, 3)


def test_channels_that_groups_do_not_divide_are_a_value_error():
    with pytest.raises(ValueError, match="groups=2"):
        M.Conv2d(3, 4, 3, groups=2)
    with pytest.raises(ValueError, match="groups=3"):
        M.ConvTranspose2d(3, 4, 3, groups=3)


def test_a_kernel_of_a_wrong_rank_is_a_value_error():
    with pytest.raises(ValueError, match="kernel_size: give one int or 2 values"):
        M.Conv2d(3, 4, (3, 3, 3))


def test_initial_weights_have_variance_one_over_fan_in_whatever_the_groups():
    mge.random.seed(5)
    for layer, fan_in in (
        (M.Linear(400, 300), 400),
        (M.Conv2d(64, 64, 3), 64 * 9),
        (M.Conv2d(128, 128, 3, groups=4), 128 * 9),
    ):
        assert follows(layer.weight.numpy() * np.sqrt(fan_in), stats.norm())
        np.testing.assert_array_equal(layer.bias.numpy(), 0)


def test_local_convolution_has_a_kernel_for_every_place():
    x, layer = array(2, 4, 5, 4), M.LocalConv2d(4, 6, 5, 4, 3, padding=1, stride=2, groups=2)
    w = values(layer)["weight"]
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]).astype(np.float64)
    want = np.zeros((2, 6, *w.shape[1:3]))
    for g in range(2):
        for i, j in np.ndindex(w.shape[1:3]):
            patch = padded[:, 2 * g : 2 * g + 2, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
            want[:, 3 * g : 3 * g + 3, i, j] = np.einsum("ncxy,cxyo->no", patch, w[g, i, j])
    close(layer(Tensor(x)), want)


def test_deformable_convolution_without_offsets_is_a_convolution():
    x, layer = array(2, 4, 5, 5), M.DeformableConv2d(4, 6, 3, padding=1)
    offset = Tensor(np.zeros((2, 18, 5, 5), np.float32))
    mask = Tensor(np.ones((2, 9, 5, 5), np.float32))
    close(layer(Tensor(x), offset, mask), R.conv(x, values(layer)["weight"], padding=1))


def test_region_restricted_convolution_sees_only_its_region():
    x, layer = array(1, 2, 4, 4), M.RegionRestrictedConv(2, 2, 3, groups=2, padding=1, bias=False)
    rin = np.zeros((1, 4, 4), np.int32)
    rin[:, :, 2:] = 1
    w = values(layer)["weight"].reshape(2, 1, 1, 3, 3)
    both = [R.conv(x * (rin == r)[:, None], w, padding=1, groups=2) for r in (0, 1)]
    want = np.where(rin[:, None] == 0, *both)
    close(layer(Tensor(x), Tensor(rin), Tensor(rin)), want)


def test_conv_bn_relu_combinations():
    x = array(3, 2, 6, 6)
    for make, relu in ((M.ConvBn2d, False), (M.ConvBnRelu2d, True)):
        layer = make(2, 4, 3, padding=1, bias=False)
        want = R.normalize(R.conv(x, values(layer)["conv.weight"], padding=1), (0, 2, 3))
        close(layer(Tensor(x)), np.maximum(want, 0) if relu else want, atol=1e-3)
    for make, relu in ((M.ConvTransposeBn2d, False), (M.ConvTransposeBnRelu2d, True)):
        layer = make(2, 4, 3, bias=False)
        weight = values(layer)["conv_transpose2d.weight"]
        want = R.normalize(R.conv_transpose(x, weight), (0, 2, 3))
        close(layer(Tensor(x)), np.maximum(want, 0) if relu else want, atol=1e-3)
    layer = M.ConvRelu2d(2, 4, 3)
    close(layer(Tensor(x)), np.maximum(R.conv(x, values(layer)["weight"]), 0))
    layer = M.ConvTransposeRelu2d(2, 4, 3)
    close(layer(Tensor(x)), np.maximum(R.conv_transpose(x, values(layer)["weight"]), 0))


# -- pooling and shapes --------------------------------------------------------------------------


def windows(x, kernel, stride, padding, fill):
    x = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)], constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (2, 3))
    return view[:, :, ::stride, ::stride]


def test_pooling():
    x = array(2, 3, 7, 6)
    close(M.MaxPool2d(2)(Tensor(x)), windows(x, 2, 2, 0, 0).max((-1, -2)))
    close(M.MaxPool2d(3, 2, 1)(Tensor(x)), windows(x, 3, 2, 1, -np.inf).max((-1, -2)))
    close(M.AvgPool2d(3, 2, 1, mode="average")(Tensor(x)), windows(x, 3, 2, 1, 0).mean((-1, -2)))
    inside = windows(np.ones_like(x), 3, 2, 1, 0).sum((-1, -2))
    close(M.AvgPool2d(3, 2, 1)(Tensor(x)), windows(x, 3, 2, 1, 0).sum((-1, -2)) / inside)


def test_adaptive_pooling():
    x = array(2, 3, 6, 8)
    blocks = x.reshape(2, 3, 2, 3, 4, 2)
    close(M.AdaptiveAvgPool2d((2, 4))(Tensor(x)), blocks.mean((3, 5)))
    close(M.AdaptiveMaxPool2d((2, 4))(Tensor(x)), blocks.max((3, 5)))
    close(M.AdaptiveAvgPool2d(1)(Tensor(x)), x.mean((2, 3), keepdims=True))


def test_pad_pixel_shuffle_and_sliding_windows():
    x = array(1, 4, 3, 3)
    want = np.pad(x, [(0, 0), (0, 0), (1, 0), (0, 2)], constant_values=2)
    close(M.Pad(((0, 0), (0, 0), (1, 0), (0, 2)), constant_val=2.0)(Tensor(x)), want)
    shuffled = x.reshape(1, 1, 2, 2, 3, 3).transpose(0, 1, 4, 2, 5, 3).reshape(1, 1, 6, 6)
    close(M.PixelShuffle(2)(Tensor(x)), shuffled)
    cut = M.SlidingWindow(2)(Tensor(x))
    close(cut, windows(x, 2, 1, 0, 0))
    back = M.SlidingWindowTranspose((3, 3), 2)(cut)
    times = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]])
    close(back, x * times)


# -- normalization -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "shape"), [(M.BatchNorm1d, (8, 3)), (M.BatchNorm1d, (4, 3, 5)), (M.BatchNorm2d, (4, 3, 5, 6)),
                        (M.SyncBatchNorm, (4, 3, 5, 6)), (M.SyncBatchNorm, (8, 3))]
)  # fmt: skip
def test_batch_norm_trains_on_the_batch_and_keeps_running_statistics(make, shape):
    x = array(*shape) * 3 + 1
    layer = make(3)
    layer.weight[...] = array(1, 3, 1, 1, seed=1)
    layer.bias[...] = array(1, 3, 1, 1, seed=2)
    w, b = (p.numpy().reshape(3, *(1,) * (x.ndim - 2)) for p in (layer.weight, layer.bias))
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    close(layer(Tensor(x)), R.normalize(x, axes) * w + b, atol=1e-4)
    mean, var = x.mean(axes), x.astype(np.float64).var(axes, ddof=1)
    np.testing.assert_allclose(layer.running_mean.numpy().ravel(), 0.1 * mean, rtol=1e-4)
    np.testing.assert_allclose(layer.running_var.numpy().ravel(), 0.9 + 0.1 * var, rtol=1e-4)
    layer.eval()
    before = layer.running_mean.numpy()
    spread = np.sqrt(0.9 + 0.1 * var + 1e-5)
    shape = (3, *(1,) * (x.ndim - 2))
    want = (x - 0.1 * mean.reshape(shape)) / spread.reshape(shape) * w + b
    close(layer(Tensor(x)), want, atol=1e-4)
    np.testing.assert_array_equal(layer.running_mean.numpy(), before)


def test_batch_norm_without_running_statistics_uses_the_batch_in_eval_too():
    x, layer = array(4, 3, 2, 2) + 5, M.BatchNorm2d(3, affine=False, track_running_stats=False)
    layer.eval()
    assert layer.weight is None and layer.running_mean is None
    close(layer(Tensor(x)), R.normalize(x, (0, 2, 3)), atol=1e-4)


def test_a_frozen_batch_norm_neither_updates_nor_differentiates():
    layer, x = M.BatchNorm2d(3, freeze=True), Tensor(array(4, 3, 2, 2))
    layer.running_var[...] = np.full((1, 3, 1, 1), 4, np.float32)
    with GradManager().attach([x, *layer.parameters()]) as gm:
        y = layer(x)
        gm.backward(y.sum())
    close(y, x.numpy() / np.sqrt(4 + 1e-5))
    assert layer.weight.grad is None and layer.bias.grad is None
    np.testing.assert_allclose(x.grad.numpy(), 0.5, rtol=1e-4)
    np.testing.assert_array_equal(layer.running_mean.numpy(), 0)


@pytest.mark.parametrize("mode", ["eager", "traced"])
@pytest.mark.parametrize("make, shape", [(M.BatchNorm1d, (1, 3)), (M.BatchNorm1d, (1, 3, 1)), (M.BatchNorm2d, (1, 3, 1, 1)), (M.SyncBatchNorm, (1, 3, 1, 1))])
def test_batch_norm_of_one_value_a_channel_is_told_once(make, shape, mode):
    layer, x = make(3), mge.Tensor(np.full(shape, 7, np.float32))
    run = layer if mode == "eager" else trace(lambda x: layer(x), symbolic=True)
    with pytest.warns(UserWarning, match=r"(?s)input of shape \[1, 3.*\] has one value.*\n  fix: ") as caught:
        assert not run(x).numpy().any()
        run(x)
    assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(x)
        layer.eval()(x)
        make(3)(mge.Tensor(np.ones((2, *shape[1:]), np.float32)))


def test_batch_norm_checks_the_rank():
    with pytest.raises(ValueError, match=r"^expected 4D input \(got 2D input\)"):
        M.BatchNorm2d(3)(Tensor(array(4, 3)))
    with pytest.raises(ValueError, match=r"^expected 2D or 3D input \(got 4D input\)"):
        M.BatchNorm1d(3)(Tensor(array(4, 3, 2, 2)))


def test_group_instance_layer_and_general_norm():
    x = array(2, 6, 4, 5) * 2 + 1
    w, b = array(6, seed=1), array(6, seed=2)
    layer = M.GroupNorm(3, 6)
    layer.weight[...], layer.bias[...] = w, b
    want = R.normalize(x.reshape(2, 3, -1), 2).reshape(x.shape)
    close(layer(Tensor(x)), want * w[:, None, None] + b[:, None, None], atol=1e-4)
    layer = M.InstanceNorm(6)
    layer.weight[...] = w
    close(layer(Tensor(x)), R.normalize(x, (2, 3)) * w[:, None, None], atol=1e-4)
    layer = M.LayerNorm((4, 5))
    layer.weight[...] = array(4, 5, seed=3)
    close(layer(Tensor(x)), R.normalize(x, (2, 3)) * array(4, 5, seed=3), atol=1e-4)
    close(M.LayerNorm(5, affine=False)(Tensor(x)), R.normalize(x, 3), atol=1e-4)
    layer = M.GeneralNorm(6, 1)
    layer.weight[...] = w
    close(layer(Tensor(x)), R.normalize(x, 1) * w[:, None, None], atol=1e-4)
    with pytest.raises(ValueError, match="4 equal groups"):
        M.GroupNorm(4, 6)


def test_local_response_norm():
    x = array(2, 7, 3, 3)
    square = np.pad(x**2, [(0, 0), (2, 2), (0, 0), (0, 0)])
    total = sum(square[:, i : i + 7] for i in range(5))
    close(M.LocalResponseNorm(5, 2.0, 0.1, 0.75)(Tensor(x)), x / (2 + 0.1 * total) ** 0.75)


# -- activation, dropout, embedding, elemwise ----------------------------------------------------


def test_activations():
    x = array(3, 4, 2, 2)
    t = Tensor(x)
    close(M.ReLU()(t), np.maximum(x, 0))
    close(M.Sigmoid()(t), R.sigmoid(x))
    close(M.SiLU()(t), x * R.sigmoid(x))
    close(M.LeakyReLU(0.2)(t), np.where(x > 0, x, 0.2 * x))
    erf = np.vectorize(__import__("math").erf)
    close(M.GELU()(t), x * 0.5 * (1 + erf(x / np.sqrt(2))))
    e = np.exp(x)
    close(M.Softmax()(t), e / e.sum(1, keepdims=True))
    close(M.Softmax(axis=-1)(t), e / e.sum(-1, keepdims=True))
    close(M.PReLU()(t), np.where(x > 0, x, 0.25 * x))
    prelu = M.PReLU(4, init=0.5)
    assert prelu.weight.shape == (1, 4, 1, 1)
    close(prelu(t), np.where(x > 0, x, 0.5 * x))
    close(prelu(Tensor(x[:, :, 0, 0])), np.where(x > 0, x, 0.5 * x)[:, :, 0, 0])
    with pytest.raises(ValueError, match="4 channels"):
        prelu(Tensor(array(3, 5)))


def test_dropout_scales_what_it_keeps_and_rests_in_eval():
    mge.random.seed(4)
    layer, x = M.Dropout(0.25), Tensor(np.ones((100, 100), np.float32))
    y = layer(x).numpy()
    assert set(np.unique(y)) == {np.float32(0), np.float32(1) / np.float32(0.75)}
    assert counts_follow(y == 0, [0.75, 0.25].__getitem__, range(2))
    layer.eval()
    np.testing.assert_array_equal(layer(x).numpy(), 1)


def test_embedding_looks_rows_up():
    layer, index = M.Embedding(5, 3), np.int32([[0, 4], [2, 2]])
    close(layer(Tensor(index)), values(layer)["weight"][index])
    table = array(5, 3)
    close(M.Embedding(5, 3, initial_weight=Tensor(table))(Tensor(index)), table[index])
    frozen = M.Embedding.from_pretrained(Tensor(table))
    with GradManager().attach(frozen.parameters()) as gm:
        with pytest.warns(UserWarning, match="depends on none of the 1 attached"):
            gm.backward(frozen(Tensor(index)).sum())
    assert frozen.weight.grad is None and isinstance(frozen.weight, Parameter)
    for option in ({"padding_idx": 5}, {"max_norm": 1.0}, {"norm_type": 2.0}):
        with pytest.raises(ValueError, match=next(iter(option))):
            M.Embedding(5, 3, **option)
    with pytest.raises(ValueError, match=r"\(4, 3\)"):
        M.Embedding(5, 3, initial_weight=Tensor(table[:4]))
    with pytest.raises(ValueError, match="2-D"):
        M.Embedding.from_pretrained(Tensor(table[0]))


@pytest.mark.parametrize(
    ("method", "count", "want"),
    [("add", 2, lambda a, b: a + b), ("RELU", 1, lambda a: np.maximum(a, 0)),
     ("FUSE_ADD_RELU", 2, lambda a, b: np.maximum(a + b, 0)), ("exp", 1, np.exp),
     ("fuse_mul_add3", 3, lambda a, b, c: a * b + c)],
)  # fmt: skip
def test_elemwise_takes_modes_in_any_case(method, count, want):
    x = [array(2, 3, seed=i) for i in range(count)]
    close(M.Elemwise(method)(*(Tensor(v) for v in x)), want(*x))


def test_an_unknown_elemwise_mode_is_a_value_error():
    with pytest.raises(ValueError, match="no_such"):
        M.Elemwise("no_such")


def test_gradients_flow_through_layers():
    x = array(2, 4, 5, 5)
    conv = M.Conv2d(4, 6, 3, padding=1)
    weight = values(conv)["weight"]
    want = R.conv_transpose(np.ones((2, 6, 5, 5)), weight, padding=1)
    np.testing.assert_allclose(gradient_of(conv, Tensor(x)), want, rtol=1e-3, atol=1e-4)
    linear = M.Linear(5, 3)
    want = np.broadcast_to(values(linear)["weight"].sum(0), x.shape)
    np.testing.assert_allclose(gradient_of(linear, Tensor(x)), want, rtol=1e-4, atol=1e-5)


def test_deformable_psroi_pooling_without_offsets_averages_its_bin():
    x = np.full((1, 4, 8, 8), 3, np.float32)
    layer = M.DeformablePSROIPooling(True, 2, 2, 2, 2, 1.0)
    rois = Tensor(np.float32([[0, 1, 1, 6, 6]]))
    out = layer(Tensor(x), rois, Tensor(np.zeros((1, 2, 2, 2), np.float32)))
    pooled = out[0] if isinstance(out, (tuple, list)) else out
    np.testing.assert_allclose(pooled.numpy(), 3, rtol=1e-5)


def test_functional_and_module_agree_under_compute_mode():
    x, layer = Tensor(array(2, 5)), M.Linear(5, 3, compute_mode="float32")
    np.testing.assert_array_equal(
        layer(x).numpy(), F.nn.linear(x, layer.weight, layer.bias).numpy()
    )


def test_running_statistics_that_are_switched_off_later_stay():
    layer = M.BatchNorm2d(2)
    layer.track_running_stats = False
    x = mge.Tensor(np.random.default_rng(0).standard_normal((4, 2, 3, 3)).astype(np.float32))
    y = layer(x).numpy()
    np.testing.assert_allclose(y.mean(axis=(0, 2, 3)), 0, atol=1e-6)  # the batch's
    assert layer.running_mean.numpy().ravel().tolist() == [0, 0] and layer.running_var.numpy().ravel().tolist() == [1, 1]
    layer.eval()
    with pytest.raises(AssertionError, match="track_running_stats"):
        layer(x)


@pytest.mark.parametrize("probability", [2.0, 1.0, -0.1, float("nan")])
def test_dropout_of_all_or_more_is_refused_when_it_is_made(probability):
    for make in (lambda: M.Dropout(probability), lambda: M.LSTM(2, 2, num_layers=2, dropout=probability)):
        with pytest.raises(ValueError, match=str(probability)):
            make()
