"""Layers whose weights lie in blocks of 4 or 8 bits, against the formula of a block in NumPy."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.quantization as Q
from megengine.autodiff import GradManager
from megengine.core import ops
from megengine.jit import trace
from megengine.module.quantized import BlockwiseEmbedding, BlockwiseLinear, WeightOnlyLinear
from megengine.utils.comp_graph_tools import GraphInference

FORMS = [(bits, group) for bits in (4, 8) for group in (32, 64, 128)]
forms = pytest.mark.parametrize(("bits", "group"), FORMS)


def random_blocks(rng, rows, columns, bits, group):
    """Any bytes, with scales that are finite."""
    blocks = rng.integers(0, 256, (rows, columns // group, 2 + group * bits // 8)).astype(np.uint8)
    scales = (rng.standard_normal(blocks.shape[:2]) * 0.1).astype(np.float16)
    blocks[..., :2] = scales[..., None].view(np.uint8)
    return blocks


def real(blocks, bits):
    """What the blocks stand for, in float32."""
    scale = blocks[..., :2].copy().view(np.float16).astype(np.float32)
    integers = blocks[..., 2:]
    if bits == 8:
        values = integers.view(np.int8).astype(np.float32)
    else:
        values = np.concatenate([integers & 15, integers >> 4], axis=-1).astype(np.float32) - 8
    return (values * scale).reshape(*blocks.shape[:-2], blocks.shape[-2] * values.shape[-1])


def close(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=2e-6 * max(1, np.abs(wanted).max(initial=0)))


@forms
@pytest.mark.parametrize("shape", [(1, 256), (5, 128), (18, 384), (530, 256), (0, 128), (3, 0)])
def test_a_block_is_its_formula(bits, group, shape):
    rng = np.random.default_rng(group + bits)
    blocks = random_blocks(rng, *shape, bits, group)
    np.testing.assert_array_equal(ops.dequantize_blocks(mge.tensor(blocks), bits=bits).numpy(), real(blocks, bits))


def test_each_scale_of_float16_is_read_as_it_is():
    scales = np.arange(65536, dtype=np.uint16)
    blocks = np.zeros((65536, 1, 34), np.uint8)
    blocks[..., :2] = scales[:, None, None].view(np.uint8)
    blocks[..., 2:] = 1
    with np.errstate(invalid="ignore"):
        wanted = np.broadcast_to(scales.view(np.float16).astype(np.float32)[:, None], (65536, 32))
    np.testing.assert_array_equal(ops.dequantize_blocks(mge.tensor(blocks), bits=8).numpy(), wanted)


@forms
@pytest.mark.parametrize("rows", [(), (1,), (2, 3), (5,), (16,), (17,), (2, 20), (0,)])
def test_products_with_blocks(bits, group, rows):
    """Both directions, for few rows, which read the blocks, and for more, which decode strips of them."""
    rng = np.random.default_rng(group)
    for outputs, inputs in ((1, 128), (21, 256), (700, 384)):
        blocks = random_blocks(rng, outputs, inputs, bits, group)
        w = real(blocks, bits).astype(np.float64)
        x = rng.standard_normal((*rows, inputs)).astype(np.float32)
        dy = rng.standard_normal((*rows, outputs)).astype(np.float32)
        close(ops.matmul_of_blocks(mge.tensor(x), mge.tensor(blocks), bits=bits).numpy(), x @ w.T)
        close(ops.matmul_of_blocks(mge.tensor(dy), mge.tensor(blocks), bits=bits, transposed=1).numpy(), dy @ w)


def test_products_by_several_strips():
    rng = np.random.default_rng(1)
    blocks = random_blocks(rng, 8200, 256, 4, 32)  # the product with the weights as they are has two strips
    x, dy = rng.standard_normal((20, 256)).astype(np.float32), rng.standard_normal((20, 8200)).astype(np.float32)
    w = real(blocks, 4).astype(np.float64)
    close(ops.matmul_of_blocks(mge.tensor(x), mge.tensor(blocks), bits=4).numpy(), x @ w.T)
    close(ops.matmul_of_blocks(mge.tensor(dy), mge.tensor(blocks), bits=4, transposed=1).numpy(), dy @ w)


@forms
def test_threads_change_no_bit(bits, group):
    rng = np.random.default_rng(2)
    blocks = mge.tensor(random_blocks(rng, 1300, 512, bits, group))
    before = mge.get_num_threads()
    try:
        for rows in (1, 6, 40):
            x = mge.tensor(rng.standard_normal((rows, 512)).astype(np.float32))
            dy = mge.tensor(rng.standard_normal((rows, 1300)).astype(np.float32))
            found = []
            for threads in (1, 2):
                mge.set_num_threads(threads)
                found.append([ops.matmul_of_blocks(x, blocks, bits=bits).numpy()])
                if rows > 1:  # the library shares the sums of a single row among threads at AVX2
                    found[-1].append(ops.matmul_of_blocks(dy, blocks, bits=bits, transposed=1).numpy())
            for one, two in zip(*found, strict=True):
                np.testing.assert_array_equal(one, two)
    finally:
        mge.set_num_threads(before)


@forms
@pytest.mark.parametrize("level", [None, 0, 2, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_the_layer_and_its_gradients(bits, group, level, bias):
    rng = np.random.default_rng(3)
    linear = M.Linear(256, 40, bias=bias)
    layer = Q.quantize_weights(linear, inplace=False, bits=bits, group=group)
    assert type(layer) is BlockwiseLinear and len(list(layer.parameters())) == bias
    w = real(layer.weight.numpy(), bits).astype(np.float64)
    x, dy = mge.Parameter(rng.standard_normal((3, 256))), mge.tensor(rng.standard_normal((3, 40)).astype(np.float32))
    gm = GradManager().attach([x, *layer.parameters()])

    def step():
        with gm:
            y = layer(x)
            gm.backward((F.tanh(y) * dy).sum())
        return y, x.grad

    run = step if level is None else trace(step, symbolic=True, opt_level=level)
    y, grad = run()
    wanted = x.numpy() @ w.T + (linear.bias.numpy() if bias else 0)
    close(y.numpy(), wanted)
    close(grad.numpy(), (dy.numpy() * (1 - np.tanh(wanted) ** 2)) @ w)


def test_halves_stay_halves():
    rng = np.random.default_rng(4)
    layer = Q.quantize_weights(M.Linear(64, 8), bits=4)
    x = rng.standard_normal((2, 64)).astype(np.float16)
    result = layer(mge.tensor(x))
    assert result.dtype == np.float16
    np.testing.assert_allclose(result.numpy(), x.astype(np.float32) @ real(layer.weight.numpy(), 4).T + layer.bias.numpy(), atol=4e-3)


@forms
@pytest.mark.parametrize("draw", ["normal", "uniform", "one large", "tiny", "zeros"])
def test_rounding_is_as_near_as_a_scale_allows(bits, group, draw):
    """The error of a block is no larger than that of the plain rule: a scale by the largest magnitude."""
    rng = np.random.default_rng(5)
    w = {
        "normal": rng.standard_normal((50, 256)),
        "uniform": rng.uniform(-1, 1, (50, 256)),
        "one large": rng.standard_normal((50, 256)) * np.where(rng.random((50, 256)) < 0.01, 50, 1),
        "tiny": rng.standard_normal((50, 256)) * 1e-6,
        "zeros": np.zeros((50, 256)),
    }[draw].astype(np.float32)
    blocks = F.quantized.quantize_blocks(w, bits, group)
    assert blocks.shape == (50, 256 // group, 2 + group * bits // 8) and blocks.dtype == np.uint8
    got = F.quantized.dequantize_blocks(blocks, bits).numpy()
    groups = w.reshape(-1, group)
    largest = groups[np.arange(len(groups)), np.abs(groups).argmax(axis=1)][:, None]
    scale = (largest / np.float32(-8) if bits == 4 else np.abs(largest) / np.float32(127)).astype(np.float16).astype(np.float32)
    integers = np.clip(np.rint(np.divide(groups, scale, out=np.zeros_like(groups), where=scale != 0)), *((-8, 7) if bits == 4 else (-127, 127)))
    plain = np.square(groups - integers * scale).sum(axis=1)
    ours = np.square(w - got).reshape(-1, group).sum(axis=1)
    assert (ours <= plain * (1 + 1e-5) + 1e-30).all()
    if bits == 4 and draw == "normal":
        assert ours.sum() < 0.98 * plain.sum()


def test_a_table_of_words():
    rng = np.random.default_rng(6)
    table = M.Embedding(50, 96)
    words = mge.tensor(rng.integers(0, 50, (2, 7)).astype(np.int32))
    made = Q.quantize_weights(table, inplace=False, bits=4)
    assert type(made) is BlockwiseEmbedding and made.bits == 8
    wanted = real(made.weight.numpy(), 8)
    for run in (made, trace(lambda words: made(words), symbolic=True, opt_level=3)):
        np.testing.assert_array_equal(run(words).numpy(), wanted[words.numpy()])
    np.testing.assert_allclose(wanted, table.weight.numpy(), atol=np.abs(table.weight.numpy()).max() / 200)
    with pytest.raises(IndexError):
        made(mge.tensor([50])).numpy()


def test_which_layers_are_replaced():
    net = M.Sequential(M.Embedding(8, 64), M.Linear(64, 64), M.ReLU(), M.LinearRelu(64, 32), M.Linear(64, 5))
    net[4].disable_quantize()
    copy = Q.quantize_weights(net, inplace=False, bits=4, group=64)
    assert [type(one) for one in copy] == [BlockwiseEmbedding, BlockwiseLinear, M.ReLU, M.LinearRelu, M.Linear]
    assert type(net[1]) is M.Linear
    assert type(Q.quantize_weights(M.Linear(64, 2))) is WeightOnlyLinear
    assert type(Q.quantize_weights(M.Linear(64, 2), group=32)) is BlockwiseLinear


@pytest.mark.host("on a GPU the library's product reads float weights")
def test_no_float_weights_exist_in_a_step():
    """A frozen layer of 4 bits trains what stands before it in the memory of its blocks and a strip."""
    layer = Q.quantize_weights(M.Linear(4096, 4096, bias=False), bits=4)
    scale = mge.Parameter(np.ones(4096, np.float32))
    gm = GradManager().attach([scale])

    @trace(symbolic=True, opt_level=3)
    def step(x):
        with gm:
            loss = F.square(layer(x * scale)).mean()
            gm.backward(loss)
        return loss, scale.grad

    plan = step.plan(mge.tensor(np.zeros((64, 4096), np.float32)))
    assert plan.planned_bytes < layer.weight.size + 20e6 < 4096 * 4096 * 4 / 2


def test_states_dumps_and_blocks_of_files(tmp_path):
    rng = np.random.default_rng(7)
    net = Q.quantize_weights(M.Sequential(M.Linear(64, 32), M.ReLU(), M.Linear(32, 3)), bits=4)
    mge.save(net.state_dict(), str(tmp_path / "state.pkl"))
    other = M.Sequential(BlockwiseLinear(64, 32), M.ReLU(), BlockwiseLinear(32, 3))
    other.load_state_dict(mge.load(str(tmp_path / "state.pkl")))
    x = mge.tensor(rng.standard_normal((2, 64)).astype(np.float32))
    wanted = net(x).numpy()
    np.testing.assert_array_equal(other(x).numpy(), wanted)
    assert "in_features=64, out_features=32, bias=True, bits=4, group=32" in repr(other)
    step = trace(lambda x: net(x), symbolic=True, capture_as_const=True)
    step(x)
    step.dump(str(tmp_path / "net.mge"), arg_names=["x"])
    (got,) = GraphInference(str(tmp_path / "net.mge")).run(x.numpy()).values()
    np.testing.assert_array_equal(got, wanted)
    layer = BlockwiseLinear.from_blocks(net[0].weight, net[0].bias)
    np.testing.assert_array_equal(layer(x).numpy(), net[0](x).numpy())
    np.testing.assert_array_equal(F.quantized.linear_of_blocks(x, layer.weight, layer.bias).numpy(), net[0](x).numpy())
    assert (layer.in_features, layer.out_features, layer.group) == (64, 32, 32)
    table = BlockwiseEmbedding.from_blocks(net[0].weight, bits=4)
    np.testing.assert_array_equal(table(mge.tensor([31, 0])).numpy(), real(net[0].weight.numpy(), 4)[[31, 0]])
    assert repr(table) == "BlockwiseEmbedding(32, 64, bits=4, group=32)"


MISTAKES = {
    "blocks of 64 do not divide the 96 in_features of 1": lambda: Q.quantize_weights(M.Sequential(M.ReLU(), M.Linear(96, 4)), bits=4, group=64),
    "bits is 4 or 8, not 3": lambda: Q.quantize_weights(M.Linear(64, 4), bits=3),
    "group is 32, 64 or 128, not 16": lambda: Q.quantize_weights(M.Linear(64, 4), bits=4, group=16),
    "is not finite, or beyond float16's range": lambda: F.quantized.quantize_blocks(np.full((1, 32), 1e6, np.float32)),
    "blocks of 32 do not divide the last axis of": lambda: F.quantized.quantize_blocks(np.zeros((1, 40), np.float32)),
    "blocks are uint8, not float32": lambda: F.quantized.dequantize_blocks(F.zeros((1, 2, 18))),
    "a block of 19 bytes has no 32, 64 or 128 elements of 4 bits": lambda: F.quantized.dequantize_blocks(mge.tensor(np.zeros((1, 2, 19), np.uint8))),
    "the last axis of x has to have 64 elements": lambda: BlockwiseLinear(64, 4)(F.zeros((2, 32))),
    "got uint8 (4, 2, 19)": lambda: BlockwiseLinear.from_blocks(mge.tensor(np.zeros((4, 2, 19), np.uint8))),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_are_named(words):
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        MISTAKES[words]()
    assert words in str(caught.value) and len(str(caught.value).splitlines()) <= 6


@pytest.mark.host("on a GPU the weights are converted")
def test_a_head_of_blocks_runs_by_parts_of_its_rows():
    """Whole logits never exist where nothing but the rows' losses is made of them."""
    rows, inputs, words = 1024, 64, 32000
    head = BlockwiseLinear(inputs, words, bias=False, bits=8)
    scale = mge.Parameter(np.ones(inputs, np.float32))
    gm = GradManager().attach([scale])

    @trace(symbolic=True, opt_level=3)
    def step(x, labels):
        with gm:
            loss = F.loss.cross_entropy(head(x * scale).reshape(-1, words), labels.reshape(-1))
            gm.backward(loss)
        return loss, scale.grad

    plan = step.plan(F.zeros((1, rows, inputs)), F.zeros((1, rows), dtype="int32"))
    assert plan.planned_bytes < 0.5 * rows * words * 4


def test_nothing_changes_where_a_layer_is_refused():
    net = M.Sequential(M.Linear(64, 96), M.Linear(96, 4))
    with pytest.raises(ValueError, match="do not divide"):
        Q.quantize_weights(net, bits=4, group=64)
    assert [type(one) for one in net] == [M.Linear, M.Linear]
