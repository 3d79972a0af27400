"""Convolution, pooling, normalization, attention: against plain loops in float64."""

import math

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import Tensor, jit
from megengine.autodiff import GradManager

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def close(got, want, tolerance=1e-4):
    got = got.numpy() if isinstance(got, Tensor) else got
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def windows(x, kernel, stride, padding, dilation=(1, 1), fill=0.0):
    """[n, c, oh, ow, kh, kw] in float64."""
    x = np.pad(x.astype(np.float64), [(0, 0)] * 2 + [(p, p) for p in padding], constant_values=fill)
    out = [(x.shape[2 + i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in (0, 1)]
    result = np.empty(x.shape[:2] + tuple(out) + tuple(kernel))
    for i, j in np.ndindex(*out):
        top, left = i * stride[0], j * stride[1]
        rows = slice(top, top + dilation[0] * (kernel[0] - 1) + 1, dilation[0])
        cols = slice(left, left + dilation[1] * (kernel[1] - 1) + 1, dilation[1])
        result[:, :, i, j] = x[:, :, rows, cols]
    return result


def conv2d(x, w, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
    """w: [groups, out, in, kh, kw]."""
    columns = windows(x, w.shape[-2:], stride, padding, dilation)
    n, c, oh, ow, kh, kw = columns.shape
    columns = columns.reshape(n, groups, c // groups, oh, ow, kh, kw)
    y = np.einsum("ngchwij,gocij->ngohw", columns, w.astype(np.float64))
    return y.reshape(n, -1, oh, ow)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2},
        {"padding": (1, 2)},
        {"dilation": 2, "padding": 2},
        {"stride": (2, 1), "padding": 1},
    ],
    ids=repr,
)
def test_conv2d(options):
    x, w, b = normal(2, 3, 7, 6), normal(4, 3, 3, 2), normal(1, 4, 1, 1)
    pairs = {k: (v, v) if isinstance(v, int) else v for k, v in options.items()}
    close(F.conv2d(Tensor(x), Tensor(w), Tensor(b), **options), conv2d(x, w[None], **pairs) + b)


def test_conv2d_in_groups_takes_weights_with_a_group_axis():
    x, w = normal(2, 4, 5, 5), normal(2, 3, 2, 3, 3)
    close(F.conv2d(Tensor(x), Tensor(w), groups=2), conv2d(x, w, groups=2))
    with pytest.raises(ValueError, match="groups=2"):
        F.conv2d(Tensor(x), Tensor(w[0]), groups=2)


def test_conv1d_and_conv3d_agree_with_conv2d():
    x, w = normal(2, 3, 8), normal(4, 3, 3)
    close(
        F.conv1d(Tensor(x), Tensor(w), stride=2, padding=1),
        conv2d(x[:, :, None], w[None, :, :, None], (1, 2), (0, 1))[:, :, 0],
    )
    x, w = normal(1, 2, 4, 5, 5), normal(3, 2, 2, 3, 3)
    want = sum(
        np.stack([conv2d(x[:, :, d + k], w[None, :, :, k]) for d in range(3)], 2) for k in range(2)
    )
    close(F.conv3d(Tensor(x), Tensor(w)), want)


def test_only_cross_correlation_is_possible():
    with pytest.raises(ValueError, match="cross_correlation"):
        F.conv2d(F.ones((1, 1, 3, 3)), F.ones((1, 1, 3, 3)), conv_mode="convolution")


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2}, {"stride": 2, "padding": 1, "output_padding": 1}, {"dilation": 2}],
    ids=repr,
)
def test_conv_transpose2d_is_the_adjoint_of_conv2d(options):
    x, w = normal(2, 3, 4, 4), normal(3, 5, 3, 3)
    y = F.conv_transpose2d(Tensor(x), Tensor(w), **options)
    back = {k: v for k, v in options.items() if k != "output_padding"}
    z = normal(*y.shape)
    forward = F.conv2d(Tensor(z), Tensor(w), **back).numpy()
    np.testing.assert_allclose((y.numpy() * z).sum(), (forward * x).sum(), rtol=1e-3)


def test_output_padding_must_be_below_the_stride():
    with pytest.raises(AssertionError, match="output_padding"):
        F.conv_transpose2d(F.ones((1, 1, 3, 3)), F.ones((1, 1, 3, 3)), output_padding=1)


def test_local_conv2d_with_equal_weights_is_conv2d():
    x, w = normal(2, 4, 5, 5), normal(2, 3, 2, 3, 3)
    local = np.broadcast_to(w.transpose(0, 2, 3, 4, 1)[:, None, None], (2, 3, 3, 2, 3, 3, 3))
    close(F.local_conv2d(Tensor(x), Tensor(np.ascontiguousarray(local))), conv2d(x, w, groups=2))


def test_deformable_conv2d_without_offsets_is_conv2d():
    x, w = normal(2, 4, 6, 5), normal(3, 4, 3, 3)
    offset, mask = np.zeros((2, 18, 6, 5), np.float32), np.ones((2, 9, 6, 5), np.float32)
    y = F.deformable_conv2d(Tensor(x), Tensor(w), Tensor(offset), Tensor(mask), padding=1)
    close(y, conv2d(x, w[None], padding=(1, 1)))


def test_deformable_conv2d_moves_its_taps():
    x, w = normal(1, 2, 6, 6), normal(3, 2, 1, 1)
    offset = np.zeros((1, 2, 6, 6), np.float32)
    offset[:, 1] = 1  # one pixel to the right
    y = F.deformable_conv2d(Tensor(x), Tensor(w), Tensor(offset), F.ones((1, 1, 6, 6)))
    moved = np.pad(x[..., 1:], [(0, 0)] * 3 + [(0, 1)])
    close(y, conv2d(moved, w[None]))


def test_region_restricted_conv_sums_within_regions():
    x, w = normal(1, 2, 4, 4), normal(2, 1, 1, 3, 3)
    regions = np.zeros((1, 4, 4), np.int32)
    regions[..., 2:] = 1
    y = F.region_restricted_conv(
        Tensor(x), Tensor(w), Tensor(regions), Tensor(regions), padding=1, groups=2
    )
    left = conv2d(x * (regions[:, None] == 0), w, padding=(1, 1), groups=2)
    right = conv2d(x * (regions[:, None] == 1), w, padding=(1, 1), groups=2)
    close(y, np.where(regions[:, None] == 0, left, right))


def test_max_pool2d():
    x = normal(2, 3, 7, 6)
    want = windows(x, (3, 2), (2, 2), (1, 0), fill=-np.inf).max((4, 5))
    close(F.max_pool2d(Tensor(x), (3, 2), 2, (1, 0)), want)


def test_avg_pool2d_leaves_padding_out_unless_told():
    x = normal(2, 3, 7, 6)
    total = windows(x, (3, 3), (2, 2), (1, 1)).sum((4, 5))
    count = windows(np.ones_like(x), (3, 3), (2, 2), (1, 1)).sum((4, 5))
    close(F.avg_pool2d(Tensor(x), 3, 2, 1), total / count)
    close(F.avg_pool2d(Tensor(x), 3, 2, 1, mode="average"), total / 9)
    assert F.avg_pool2d(Tensor(x), 2).shape == (2, 3, 3, 3)


def test_adaptive_pools_split_evenly():
    x = normal(1, 2, 7, 6)
    y = F.adaptive_avg_pool2d(Tensor(x), (1, 3))
    close(y, x.reshape(1, 2, 7, 3, 2).mean((2, 4))[:, :, None])
    close(F.adaptive_max_pool2d(Tensor(x), 1), x.max((2, 3), keepdims=True))


def test_sliding_windows_and_their_adjoint():
    x = normal(1, 2, 6, 5)
    y = F.sliding_window(Tensor(x), (3, 2), padding=1, stride=2)
    close(y, windows(x, (3, 2), (2, 2), (1, 1)))
    z = normal(*y.shape)
    back = F.sliding_window_transpose(Tensor(z), (6, 5), (3, 2), padding=1, stride=2)
    np.testing.assert_allclose((back.numpy() * x).sum(), (y.numpy() * z).sum(), rtol=1e-3)


def test_batch_norm_in_training_moves_the_running_statistics():
    x, w, b = normal(4, 3, 2, 2), normal(3), normal(3)
    mean, var = Tensor(np.zeros((1, 3, 1, 1))), Tensor(np.ones((1, 3, 1, 1)))
    y = F.batch_norm(Tensor(x), mean, var, Tensor(w), Tensor(b), training=True, momentum=0.9)
    m, v = x.mean((0, 2, 3)), x.var((0, 2, 3))
    across = (1, 3, 1, 1)
    scale = (w / np.sqrt(v + 1e-5)).reshape(across)
    close(y, (x - m.reshape(across)) * scale + b.reshape(across))
    close(mean, 0.1 * m.reshape(across))
    close(var, 0.9 + 0.1 * (v * 16 / 15).reshape(across))


def test_batch_norm_not_in_place_returns_the_statistics():
    x, mean, var = Tensor(normal(4, 3)), Tensor(np.zeros(3)), Tensor(np.ones(3))
    y, new_mean, new_var = F.batch_norm(x, mean, var, training=True, inplace=False)
    assert y.shape == (4, 3) and mean.tolist() == [0, 0, 0]
    close(new_mean, 0.1 * x.numpy().mean(0))
    close(new_var, 0.9 + 0.1 * x.numpy().var(0, ddof=1))


def test_batch_norm_in_inference_uses_the_running_statistics():
    x, m, v = normal(2, 3, 2, 2), normal(1, 3, 1, 1), 1 + normal(1, 3, 1, 1) ** 2
    close(F.batch_norm(Tensor(x), Tensor(m), Tensor(v)), (x - m) / np.sqrt(v + 1e-5))
    with pytest.raises(AssertionError, match="running_mean"):
        F.batch_norm(Tensor(x))


def standardized(x, axes):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def test_layer_group_and_instance_norm():
    x, w, b = normal(2, 4, 3, 5), normal(3, 5), normal(3, 5)
    close(
        F.layer_norm(Tensor(x), (3, 5), True, Tensor(w), Tensor(b)), standardized(x, (2, 3)) * w + b
    )
    close(F.layer_norm(Tensor(x), 5, False), standardized(x, 3))
    grouped = standardized(x.reshape(2, 2, -1), 2).reshape(x.shape)
    close(F.group_norm(Tensor(x), 2, False), grouped)
    c = normal(4)
    across = c.reshape(1, 4, 1, 1)
    close(F.group_norm(Tensor(x), 2, True, Tensor(c), Tensor(c)), grouped * across + across)
    close(F.instance_norm(Tensor(x), False), standardized(x, (2, 3)))


def test_general_norm_takes_any_axes():
    x, w = normal(2, 4, 3), normal(2, 3)
    want = standardized(x, (0, 2)) * w[:, None] + w[:, None]
    close(F.general_norm(Tensor(x), (0, 2), True, Tensor(w), Tensor(w)), want)


def test_local_response_norm():
    x = normal(1, 4, 2, 2)
    squares = np.pad(x.astype(np.float64) ** 2, [(0, 0), (2, 2), (0, 0), (0, 0)])
    total = sum(squares[:, i : i + 4] for i in range(5))
    close(F.local_response_norm(Tensor(x)), x / (2 + 1e-4 * total) ** 0.75)


def test_pixel_shuffle_inverts_its_own_layout():
    x = np.arange(2 * 4 * 2 * 3, dtype=np.float32).reshape(2, 4, 2, 3)
    y = F.pixel_shuffle(Tensor(x), 2).numpy()
    assert y.shape == (2, 1, 4, 6)
    np.testing.assert_array_equal(y[:, 0, 1::2, 0::2], x[:, 2])


def test_dropout_is_the_identity_in_inference_and_keeps_the_mean_in_training():
    x = F.ones((100, 100))
    assert F.dropout(x, 0.5, training=False) is x
    y = F.dropout(x, 0.25).numpy()
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)} and abs(y.mean() - 1) < 0.05
    with pytest.raises(AssertionError, match="1.0 is not in"):
        F.dropout(x, 1.0)


def test_dropout_of_integers_is_refused_as_its_factor_would_be_cut_off():
    x = F.ones((10,)).astype("int32")
    with pytest.raises(TypeError, match=r"int32 cannot be scaled by 1.333\n  fix: astype"):
        F.dropout(x, 0.25)
    assert F.dropout(x, 0.25, training=False) is x


def test_attention_without_projections_is_its_formula():
    q, k, v = normal(2, 3, 8), normal(2, 5, 8), normal(2, 5, 8)
    out, weights = F.nn.multi_head_attention(
        Tensor(q), Tensor(k), Tensor(v), 8, 2, 0.0, 0.0, None, need_weights=True
    )
    qh, kh, vh = (t.reshape(2, -1, 2, 4).transpose(0, 2, 1, 3) for t in (q, k, v))
    scores = qh @ kh.swapaxes(-1, -2) / 2
    share = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    close(weights, share)
    close(out, (share @ vh).transpose(0, 2, 1, 3).reshape(2, 3, 8))


def test_causal_attention_ignores_what_comes_later():
    q = normal(1, 4, 6)
    packed = Tensor(normal(4 * 36 + 4 * 6))
    sizes = {f"{name}proj_size": 6 for name in "qkvo"} | {f"{name}bias": True for name in "qkvo"}

    def first_rows(x):
        x = Tensor(x)
        out, _ = F.nn.multi_head_attention(x, x, x, 6, 3, 0.0, 0.0, packed, **sizes, is_causal=True)
        return out.numpy()[:, :2]

    changed = q.copy()
    changed[:, 2:] += 1
    np.testing.assert_allclose(first_rows(q), first_rows(changed), rtol=1e-5)


@pytest.mark.parametrize("is_causal", [False, True], ids=["all keys", "causal"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_attention_of_halves_is_that_of_floats(dtype, is_causal):
    """Halves take one op, whose scores nobody sees; a call that wants the weights is composed. In value and gradient."""
    parts = [Tensor(normal(2, length, 8)).astype(dtype) for length in (3, 5, 5)]

    def run(parts, need_weights):
        with GradManager().attach(parts) as gm:
            out, _ = F.nn.multi_head_attention(
                *parts, 8, 2, 0.0, 0.0, None, is_causal=is_causal, need_weights=need_weights
            )
            gm.backward((out.astype("float32") ** 2).sum())
        return [out.numpy(), *(part.grad.numpy() for part in parts)]

    fused = run(parts, False)
    assert fused[0].dtype.name == dtype
    for got, want in zip(fused, run([part.astype("float32") for part in parts], True)):
        np.testing.assert_allclose(
            got.astype(np.float32), want, rtol=0, atol=abs(want).max() * {"float16": 4e-3, "bfloat16": 3e-2}[dtype]
        )


def test_a_padding_mask_hides_keys():
    q, k = normal(1, 2, 4), normal(1, 3, 4)
    mask = Tensor([[False, False, True]])
    full, _ = F.nn.multi_head_attention(
        Tensor(q), Tensor(k), Tensor(k), 4, 1, 0, 0, None, key_padding_mask=mask
    )
    part, _ = F.nn.multi_head_attention(
        Tensor(q), Tensor(k[:, :2]), Tensor(k[:, :2]), 4, 1, 0, 0, None
    )
    close(full, part.numpy())


def ctc_by_enumeration(p, label, blank=0):
    """Sum over all frame labellings that collapse to the label."""
    time, classes = p.shape
    total = 0.0
    for path in np.ndindex(*[classes] * time):
        collapsed = [c for i, c in enumerate(path) if c != blank and (i == 0 or path[i - 1] != c)]
        if collapsed == list(label):
            total += np.prod([p[t, c] for t, c in enumerate(path)])
    return -np.log(total)


def test_ctc_loss_sums_over_all_alignments():
    p = np.exp(normal(4, 2, 3))
    p /= p.sum(-1, keepdims=True)
    lengths, label, label_lengths = [4, 3], [1, 1, 2], [2, 1]
    want = [ctc_by_enumeration(p[:, 0], [1, 1]), ctc_by_enumeration(p[:3, 1], [2])]
    args = Tensor(p), Tensor(lengths), Tensor(label), Tensor(label_lengths)
    close(F.loss.ctc_loss(*args, reduction="none"), want)
    close(F.loss.ctc_loss(*args), (want[0] / 2 + want[1]) / 2)
    padded = Tensor([[1, 1], [2, 0]])
    close(F.loss.ctc_loss(args[0], args[1], padded, args[3], reduction="sum"), sum(want))


def test_the_published_example_of_ctc_loss():
    pred = [[[0.0614, 0.9386], [0.8812, 0.1188]], [[0.699, 0.301], [0.2572, 0.7428]]]
    loss = F.loss.ctc_loss(Tensor(pred), Tensor([2, 2]), Tensor([1, 1]), Tensor([1, 1]))
    assert abs(loss.item() - 0.1504417) < 1e-5


def test_topk_accuracy():
    logits = Tensor([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]])
    one, two = F.topk_accuracy(logits, Tensor([2, 0]), (1, 2))
    assert one.item() == 0.5 and two.item() == 1


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_reduce_as_told(reduction):
    y = F.loss.l1_loss(Tensor([1.0, 3.0]), Tensor([0.0, 0.0]), reduction=reduction)
    assert y.numpy().tolist() == {"mean": 2, "sum": 4, "none": [1, 3]}[reduction]


def test_an_unknown_reduction_is_a_value_error():
    with pytest.raises(ValueError, match="^average is not a valid value for reduction"):
        F.loss.square_loss(Tensor([1.0]), Tensor([1.0]), reduction="average")


@pytest.mark.parametrize("eps_mode", ["additive", "max"])
def test_sync_batch_norm_outside_of_a_group_is_batch_norm(eps_mode):
    x = normal(4, 3, 2, 2)
    mean, var = Tensor(np.zeros((1, 3, 1, 1))), Tensor(np.ones((1, 3, 1, 1)))
    y = F.nn.sync_batch_norm(Tensor(x), mean, var, training=True, eps=1e-3, eps_mode=eps_mode)
    m, v = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    close(y, (x - m) / np.sqrt(v + 1e-3 if eps_mode == "additive" else np.maximum(v, 1e-3)))
    close(mean, 0.1 * m)
    close(var, 0.9 + 0.1 * v * 16 / 15)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("extra", ["bias", "zero", "both", "none"])
def test_causal_attention_is_that_of_the_same_mask_with_keys_that_are_appended(extra, dtype):
    draw = np.random.default_rng(0)
    x = Tensor(draw.normal(size=(2, 5, 8)).astype(np.float32)).astype(dtype)
    more = {} if extra in ("zero", "none") else {name: Tensor(draw.normal(size=(1, 1, 8)).astype(np.float32)).astype(dtype) for name in ("bias_k", "bias_v")}
    more["add_zero_attn"] = extra in ("zero", "both")
    mask = Tensor(np.triu(np.ones((5, 5), bool), 1))
    causal, masked = (F.nn.multi_head_attention(x, x, x, 8, 2, 0.0, 0.0, None, **more, **how)[0] for how in ({"is_causal": True}, {"attn_mask": mask}))
    close(causal.astype("float32"), masked.astype("float32").numpy(), 1e-6 if dtype == "float32" else 2e-3)


@pytest.mark.parametrize("dtype", [np.bool_, np.float32])
@pytest.mark.parametrize("need_weights", [False, True])
def test_causal_attention_hides_besides_what_its_mask_hides(need_weights, dtype):
    """Also where the mask is the causal one, as PyTorch wants it beside is_causal."""
    draw = np.random.default_rng(0)
    x = Tensor(draw.normal(size=(2, 5, 8)).astype(np.float32))
    causal = np.triu(np.ones((5, 5), bool), 1)
    first = np.zeros((5, 5), bool)
    first[1:, 0] = True

    def attend(hidden, **how):
        mask = hidden if dtype == np.bool_ else np.where(hidden, -1e9, 0)
        return F.nn.multi_head_attention(x, x, x, 8, 2, 0.0, 0.0, None, attn_mask=Tensor(mask.astype(dtype)), need_weights=need_weights, **how)[0]

    want = attend(first | causal).numpy()
    close(attend(first, is_causal=True), want)
    close(attend(causal, is_causal=True), attend(causal).numpy())
    assert np.abs(attend(first).numpy() - want).max() > 0.01


@pytest.mark.parametrize("name", "qkvo")
def test_a_bias_without_a_projection_is_refused(name):
    x = F.ones((1, 3, 4))
    with pytest.raises(ValueError, match=f"{name}bias without {name}proj_size"):
        F.nn.multi_head_attention(x, x, x, 4, 2, 0.0, 0.0, F.ones(100), **{f"{name}bias": True})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gelu_of_every_half(dtype):
    """Value and gradient are rounded once, but for 2**-13 of what they sum up; eager mode and kernels give the same bits."""
    bits = np.arange(2**16, dtype=np.uint32)
    wide = bits.astype(np.uint16).view(np.float16).astype(np.float32) if dtype == "float16" else (bits << 16).view(np.float32)
    wide = wide[np.abs(wide) < 1e4]

    def both(x):
        gm = GradManager().attach([x])
        with gm:
            y = F.gelu(x)
            gm.backward(y.sum())
        return y, x.grad

    x = mge.tensor(wide).astype(dtype)
    eager = [value.astype("float32").numpy() for value in both(x)]
    traced = [value.astype("float32").numpy() for value in jit.trace(both, symbolic=True, opt_level=3)(mge.tensor(wide).astype(dtype))]
    np.testing.assert_array_equal(eager, traced)
    a = np.abs(wide.astype(np.float64))
    tail = np.array([math.erfc(v / math.sqrt(2)) / 2 for v in a])
    pull = a * np.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    slope, normal = np.where(wide < 0, tail - pull, 1 - tail + pull), np.where(wide < 0, tail, 1 - tail)
    digits, least = (11, 2.0**-24) if dtype == "float16" else (8, 2.0**-120)
    for got, expected, parts in [(eager[0], wide * normal, np.abs(wide) * normal), (eager[1], slope, np.where(wide < 0, tail + pull, 1))]:
        bound = np.abs(expected) * 2.0**-digits + parts * 2.0**-13 + least
        worst = np.argmax(np.abs(got - expected) / bound)
        assert np.abs(got - expected)[worst] <= bound[worst], (wide[worst], got[worst], expected[worst])
