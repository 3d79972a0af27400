"""Tensors in oneDNN's orders of memory: whatever reads them, values are those of the dense ones."""

import copy
import io
import pickle
from pathlib import Path

import numpy as np
import pytest
from test_ops_battery import ALL, ELEMENTWISE, as_tuple, same_bits

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import _core
from megengine.autodiff import GradManager
from megengine.core import ops
from megengine.jit import trace
from megengine.utils.comp_graph_tools import GraphInference
from megengine.utils.mkldnn import (
    MkldnnBatchNorm,
    MkldnnConv1d,
    MkldnnConv2d,
    MkldnnConv3d,
    MkldnnLinear,
)

A = np.random.default_rng(0).normal(size=(2, 5, 4, 3)).astype(np.float32)
needs_onednn = pytest.mark.skipif(b"libdnnl" not in Path(_core.__file__).read_bytes(), reason="without oneDNN no weights are packed")


def laid(array=A):
    return mge.tensor(array).to_mkldnn()


def close(got, want, tolerance=1e-5):
    got, want = (value.numpy() if isinstance(value, mge.Tensor) else value for value in (got, want))
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * max(1, np.abs(want).max()))


# ---- what a program sees


def test_layout_is_another_order_of_the_same_value():
    x, dense = laid(), mge.tensor(A)
    assert x.is_mkldnn and not dense.is_mkldnn and not x.to_dense().is_mkldnn
    assert x.shape == dense.shape and x.dtype == dense.dtype
    assert same_bits(x.numpy(), A) and same_bits(x.to_dense().numpy(), A)


@pytest.mark.parametrize(
    "x", [np.float32(3), A[0, 0], np.zeros((1,) * 6, np.float32)], ids=["scalar", "matrix", "six axes"]
)
def test_what_has_no_such_order_stays_dense(x):
    tensor = mge.tensor(x).to_mkldnn()
    assert not tensor.is_mkldnn and same_bits(tensor.numpy(), np.asarray(x))


@pytest.mark.parametrize(
    "read",
    [
        lambda x: pickle.loads(pickle.dumps(x)).numpy(),
        lambda x: copy.deepcopy(x).numpy(),
        lambda x: np.from_dlpack(x),
        lambda x: np.array(x.tolist(), np.float32),
        lambda x: np.stack([row.numpy() for row in x]),
        lambda x: mge.Tensor(x).numpy(),
        lambda x: x.detach().numpy(),
        lambda x: x.transpose(3, 1, 0, 2).transpose(2, 1, 3, 0).numpy(),
        lambda x: x.reshape(4, -1).reshape(A.shape).numpy(),
    ],
    ids=["pickle", "deepcopy", "dlpack", "tolist", "iteration", "Tensor", "detach", "transpose", "reshape"],
)
def test_every_way_to_read_it_gives_the_value(read):
    assert same_bits(np.asarray(read(laid())), A)


@pytest.mark.parametrize("index", [0, -1, (1, 2), (slice(None), slice(1, 4, 2)), (..., 0), (0, 1, 2, 1), (slice(None, None, -1),)], ids=repr)
def test_indexing(index):
    assert same_bits(laid()[index].numpy(), A[index])


def test_item():
    assert laid(A[:1, :1, :1, :1]).item() == A[0, 0, 0, 0]


def test_in_place_writes():
    x, want = laid(), A.copy()
    x[0, 1] = 7
    x += 1
    want[0, 1] = 7
    assert same_bits(x.numpy(), want + 1)


@pytest.mark.parametrize("row", [row for row in ALL if row.op != "relayout"], ids=repr)
def test_every_op_computes_the_same(row):
    """Element-wise ops on [2, 3, 4]; all ways to mix laid out and dense operands."""
    inputs = row.inputs
    if row in ELEMENTWISE:
        inputs = [np.stack([x, x[::-1]]) if np.ndim(x) == 2 else x for x in inputs]
    dense = [mge.tensor(x) for x in inputs]
    want = as_tuple(row.call(*dense))
    for mix in range(1, 4):
        operands = [x.to_mkldnn() if mix >> min(i, 1) & 1 else x for i, x in enumerate(dense)]
        for got, expected in zip(as_tuple(row.call(*operands)), want):
            assert got.shape == expected.shape and got.dtype == expected.dtype
            if got.dtype != np.float32 or row in ELEMENTWISE:
                assert same_bits(got.numpy(), expected.numpy())
            else:
                close(got, expected)


@pytest.mark.parametrize("row", [row for row in ALL if row.grad], ids=repr)
def test_every_gradient_is_the_same(row):
    def gradients(prepare):
        inputs = [mge.tensor(np.stack([x, x[::-1]]) if row in ELEMENTWISE and np.ndim(x) == 2 else x) for x in row.inputs]
        with GradManager().attach([inputs[i] for i in row.grad]) as gm:
            y = as_tuple(row.call(*(prepare(x) for x in inputs)))[0]
            gm.backward((y * y).sum())
        return [inputs[i].grad for i in row.grad]

    for got, want in zip(gradients(lambda x: x.to_mkldnn()), gradients(lambda x: x)):
        close(got, want, 1e-4)


# ---- layers with packed weights

LAYERS = {
    "conv1d": (MkldnnConv1d, lambda: M.Conv1d(8, 16, 3, padding=1), (2, 8, 9)),
    "conv2d": (MkldnnConv2d, lambda: M.Conv2d(8, 24, 3, stride=2, padding=1), (2, 8, 9, 7)),
    "dilated": (MkldnnConv2d, lambda: M.Conv2d(8, 16, 3, dilation=2, bias=False), (1, 8, 9, 8)),
    "groups": (MkldnnConv2d, lambda: M.Conv2d(16, 32, 3, groups=2), (2, 16, 6, 7)),
    "depthwise": (MkldnnConv2d, lambda: M.Conv2d(32, 32, 3, padding=1, groups=32), (1, 32, 7, 7)),
    "winograd": (MkldnnConv2d, lambda: M.Conv2d(16, 64, 3, padding=1), (2, 16, 9, 12)),
    "odd": (MkldnnConv2d, lambda: M.Conv2d(3, 7, 5), (2, 3, 9, 9)),
    "conv3d": (MkldnnConv3d, lambda: M.Conv3d(4, 8, 2), (2, 4, 5, 4, 3)),
    "linear": (MkldnnLinear, lambda: M.Linear(32, 48), (3, 32)),
    "linear of a batch": (MkldnnLinear, lambda: M.Linear(32, 48, bias=False), (2, 3, 32)),
    "linear of a vector": (MkldnnLinear, lambda: M.Linear(32, 48), (32,)),
}
layers = pytest.mark.parametrize("name", LAYERS)


def layer(name):
    kind, make, shape = LAYERS[name]
    dense = make()
    if dense.bias is not None:
        dense.bias[...] = mge.tensor(np.random.default_rng(1).normal(size=dense.bias.shape).astype(np.float32))
    return dense, kind(dense), mge.tensor(np.random.default_rng(2).normal(size=shape).astype(np.float32))


@layers
def test_a_layer_computes_what_the_dense_one_does(name):
    dense, packed, x = layer(name)
    for given in (x.to_mkldnn(), x, x.to_mkldnn()):
        close(packed(given), dense(x))


@layers
def test_a_layer_adds_and_rectifies(name):
    dense, packed, x = layer(name)
    y = dense(x)
    addend = mge.tensor(np.random.default_rng(3).normal(size=y.shape).astype(np.float32))
    close(packed(x.to_mkldnn(), addend.to_mkldnn(), relu=True), F.relu(y + addend))
    close(packed(x.to_mkldnn(), addend[:1], relu=True), F.relu(y + addend[:1]))  # broadcast
    close(packed(x.to_mkldnn(), 2), y + 2)


@layers
def test_packed_weights_have_the_value_of_the_dense_ones(name):
    dense, packed, x = layer(name)
    packed(x.to_mkldnn())
    weight = packed.weight
    want = dense.weight.numpy().reshape(weight.shape)
    assert same_bits(weight.numpy(), want) and same_bits(weight.to_dense().numpy(), want)
    assert same_bits((weight + 1).numpy(), want + 1)
    assert same_bits(packed.state_dict()["weight"], want)


@needs_onednn
def test_weights_are_packed():
    _, packed, x = layer("conv2d")
    packed(x.to_mkldnn())
    assert packed.weight._layout.startswith("packed")


@layers
def test_new_weights_are_packed_anew(name):
    dense, packed, x = layer(name)
    packed(x.to_mkldnn())
    packed.weight[...] = packed.weight * 2
    doubled = copy.deepcopy(dense)
    doubled.weight[...] = dense.weight * 2
    close(packed(x.to_mkldnn()), doubled(x))
    packed.load_state_dict({key: value / 2 if key == "weight" else value for key, value in packed.state_dict().items()})
    close(packed(x.to_mkldnn()), dense(x))


@layers
def test_layers_travel(name):
    dense, packed, x = layer(name)
    packed(x.to_mkldnn())
    for copied in (copy.deepcopy(packed), pickle.loads(pickle.dumps(packed))):
        close(copied(x.to_mkldnn()), dense(x))


@layers
def test_gradients_pass_through_packed_weights(name):
    dense, packed, x = layer(name)
    packed(x.to_mkldnn())

    def gradients(net):
        with GradManager().attach([x, net.weight]) as gm:
            gm.backward((net(x.to_mkldnn()) ** 2).sum())
        found = x.grad.numpy(), net.weight.grad.numpy().reshape(packed.weight.shape)
        x.grad = None
        return found

    for got, want in zip(gradients(packed), gradients(dense)):
        close(got, want, 1e-4)


@needs_onednn
def test_weights_that_were_packed_for_other_attributes():
    weight = mge.tensor(np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32))
    x = mge.tensor(np.random.default_rng(1).normal(size=(8, 64)).astype(np.float32))
    _core._pack_operand("matmul", [x, weight], 1, {"transpose_b": 1})
    close(ops.matmul(x, weight, transpose_b=1), x.numpy() @ weight.numpy().T)
    close(ops.matmul(x, weight), x.numpy() @ weight.numpy())
    kernel = np.random.default_rng(0).normal(size=(32, 16, 3, 3)).astype(np.float32)
    image = mge.tensor(np.random.default_rng(1).normal(size=(1, 32, 6, 6)).astype(np.float32))
    packed = mge.tensor(kernel)
    _core._pack_operand("conv", [image, packed], 1, {"groups": 2})
    assert packed._is_packed
    close(ops.conv(image, packed, groups=2), ops.conv(image, mge.tensor(kernel), groups=2))
    close(ops.conv(image[:, :16], packed), ops.conv(image[:, :16], mge.tensor(kernel)))


def test_a_layer_of_another_dtype_computes_in_it():
    dense, packed, x = layer("conv2d")
    close(packed(x.astype("float16").to_mkldnn()), dense(x), 2.0**-11)
    dense.weight = mge.Parameter(dense.weight.astype("float16"))
    with pytest.raises(AssertionError, match="float32"):
        MkldnnConv2d(dense)


@pytest.mark.parametrize("shape", [(3, 6), (3, 6, 5), (2, 6, 5, 4), (2, 6, 5, 4, 3)], ids=repr)
def test_batch_norm(shape):
    norm = M.SyncBatchNorm(6)
    rng = np.random.default_rng(0)
    for tensor in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
        tensor[...] = mge.tensor(rng.uniform(0.5, 2, size=tensor.shape).astype(np.float32))
    norm.eval()
    x = mge.tensor(rng.normal(size=shape).astype(np.float32))
    close(MkldnnBatchNorm(norm)(x.to_mkldnn()), norm(x))
    norm.train()
    with pytest.raises(AssertionError, match="only for eval"):
        MkldnnBatchNorm(norm)


# ---- traces


def network():
    """Some layers, called once, so that their weights are packed."""
    _, first, x = layer("conv2d")
    second = MkldnnConv2d(M.Conv2d(24, 8, 1))

    def body(x):
        y = first(x.to_mkldnn(), relu=True)
        return F.flatten(F.avg_pool2d(second(y, second(y) * 0.5), 2), 1), y

    return body, x, [value.numpy() for value in body(x)]


@pytest.mark.parametrize("opt_level", [0, 2, 3])
@pytest.mark.parametrize("options", [{}, {"symbolic": True}, {"without_host": True}], ids=["value", "symbolic", "without_host"])
def test_a_traced_network_computes_the_same(options, opt_level):
    body, x, want = network()
    traced = trace(body, opt_level=opt_level, **options)
    for _ in range(3):
        for got, expected in zip(traced(x), want):
            close(got, expected)


def test_a_trace_takes_laid_out_and_dense_arguments():
    traced = trace(lambda x: F.relu(x) + 1, symbolic=True)
    for x in (laid(), mge.tensor(A), laid()):
        assert same_bits(traced(x).numpy(), np.maximum(A, 0) + 1)


def test_weights_packed_between_two_calls_of_a_trace():
    dense, packed, x = layer("conv2d")
    traced = trace(lambda x: packed(x.to_mkldnn()))
    close(traced(x), dense(x))
    packed(x.to_mkldnn())
    close(traced(x), dense(x))


def test_a_dumped_network_holds_dense_weights():
    body, x, want = network()
    traced = trace(body, capture_as_const=True, symbolic=True)
    traced(x)
    file = io.BytesIO()
    traced.dump(file)
    for got, expected in zip(GraphInference(io.BytesIO(file.getvalue())).run(x.numpy()).values(), want):
        close(got, expected)
