"""Export: onnxruntime computes what the model does; names, types and refusals."""

import sys

import numpy as np
import onnx
import pytest
from judge import agrees, run
from op_samples import NOT_IN_ONNX, SAMPLES
from zoo import FULL_SIZE, SMALL

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.onnx
from megengine import fx, jit
from megengine import traced_module as tm
from megengine.autodiff import GradManager
from megengine.core import ops
from megengine.fx.experimental.optimization import optimize_for_inference
from megengine.onnx import OnnxError, export, load
from megengine.quantization import quantize_weights

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
NEWEST = min(onnx.defs.onnx_opset_version(), 23)  # what onnxruntime takes


def batch_for(name, table):
    make, describe = table[name]
    net = make()
    net.eval()
    shape = describe(2)[0]
    if "bert" in name or "gpt" in name:
        return net, np.random.default_rng(0).integers(0, 50, shape).astype(np.int32)
    return net, np.random.default_rng(0).normal(size=shape).astype(np.float32)


# ---- networks


@pytest.mark.parametrize("name", SMALL)
def test_a_network_computes_the_same(name):
    net, x = batch_for(name, SMALL)
    agrees(net, x)


@pytest.mark.parametrize("opset", [17, 18, 21, NEWEST])
@pytest.mark.parametrize("name", ["mobilenet", "gpt2", "lstm"])
def test_every_opset_computes_the_same(name, opset):
    net, x = batch_for(name, SMALL)
    proto = agrees(net, x, opset=opset)
    assert [entry.version for entry in proto.opset_import] == [opset]


RECURRENT = {
    "rnn": (1, 1, {"nonlinearity": "relu"}), "lstm": (4, 2, {}), "rounded": (4, 2, {"rounded": 1}), "lstm_of_bytes": (4, 2, {}), "gru": (3, 1, {}),
    "gru_reset_first": (3, 1, {}),
}  # fmt: skip


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("name", RECURRENT)
def test_a_recurrent_op_computes_the_same(name, reverse):
    chunks, states, attrs = RECURRENT[name]
    rng, hidden = np.random.default_rng(0), 5
    weight, *others = (mge.tensor(rng.normal(size=shape).astype(np.float32)) for shape in ((chunks * hidden, hidden), *[(2, hidden)] * states))
    if name == "lstm_of_bytes":
        weight = (weight * 40).astype("int8")
    if chunks == 3 or name == "lstm_of_bytes":  # a bias, or a scale for each column
        others.append(mge.tensor(rng.uniform(0.01, 0.02, chunks * hidden).astype(np.float32)))

    class Layer(M.Module):
        def forward(self, gates):
            found = getattr(ops, "lstm" if name == "rounded" else name)(gates, weight, *others, reverse=reverse, **attrs)
            return F.concat(found[:states]) if isinstance(found, (list, tuple)) else found

    agrees(Layer(), rng.normal(size=(3, 2, chunks * hidden)).astype(np.float32))


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_of_halves_computes_the_same(is_causal):
    class Attention(M.Module):
        def forward(self, x):
            x = x.astype("float16")
            return F.nn.multi_head_attention(x, x, x, 8, 2, 0.0, 0.0, None, is_causal=is_causal)[0].astype("float32")

    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype(np.float32)
    proto = agrees(Attention(), x, tolerance=3e-3)
    assert "Softmax" in [node.op_type for node in proto.graph.node]


@pytest.mark.parametrize("number", [-np.inf, -1e9])
def test_what_a_mask_hides_from_a_query_as_a_whole_is_the_same(number):
    mask = np.where(np.tri(5) > 0, np.float32(0), np.float32(number))
    mask[2] = number

    class Attention(M.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x, mge.Tensor(mask))

    x = np.random.default_rng(0).normal(size=(2, 3, 5, 8)).astype(np.float32)
    agrees(Attention(), x)


@pytest.mark.parametrize("make", [M.LSTM, M.GRU, M.RNN, lambda *sizes, **options: M.RNN(*sizes, nonlinearity="relu", **options)])
def test_recurrent_layers_compute_the_same(make):
    net = make(4, 5, num_layers=2, bidirectional=True, batch_first=True)
    x = np.random.default_rng(0).normal(size=(3, 6, 4)).astype(np.float32)

    def joined(x):
        output, last = net(x)
        states = last if isinstance(last, tuple) else (last,)
        return F.concat([F.flatten(part) for part in (output, *states)])

    agrees(joined, x)
    proto = export(lambda x: net(x)[0], mge.Tensor(x), dynamic_axes={"x": {0: "batch"}})
    for size in (1, 4):
        more = np.resize(x, (size, 6, 4))
        np.testing.assert_allclose(run(proto, more)[0], net(mge.Tensor(more))[0].numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "mobilenet_v2"])
def test_a_network_of_full_size_computes_the_same(name):
    net = FULL_SIZE[name][0]()
    net.eval()
    agrees(net, np.random.default_rng(0).normal(size=(1, 3, 64, 64)).astype(np.float32), tolerance=1e-4)


def test_a_network_laid_out_for_inference_computes_the_same():
    net, x = batch_for("resnet_basic", SMALL)
    fast = optimize_for_inference(net)
    fast(mge.Tensor(x))  # packs the weights
    agrees(fast, x)
    always = {"mkldnn_layout_optimize": {"heuristic": lambda region: True}}
    fast = optimize_for_inference(M.Sequential(M.Linear(3, 4), M.ReLU()).eval(), always)
    assert [node.op_type for node in agrees(fast, X).graph.node][-2:] == ["Add", "Relu"]


def test_what_was_traced_by_trace_fx_and_traced_module_is_exported_alike():
    net, x = batch_for("resnet_basic", SMALL)
    for model in (jit.trace(lambda x: net(x)), fx.symbolic_trace(net), tm.trace_module(net, mge.Tensor(x))):
        proto = agrees(model, x)
        assert [given.name for given in proto.graph.input] == ["x"]
        assert "head.weight" in [tensor.name for tensor in proto.graph.initializer]


# ---- operations

def is_since_18(sample):
    return sample.name.startswith("bitwise")


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.name not in NOT_IN_ONNX and not is_since_18(s)], ids=repr)
def test_a_function_computes_the_same(sample, opset):
    agrees(sample.call, *map(np.asarray, sample.inputs), tolerance=1e-4, opset=opset)


INTS = np.array([[7, -7, 0], [5, -2, 3]], np.int32)
OTHERS = np.array([[2, 2, -3], [-5, 3, 0]], np.int32)
# Rests and quotients by 0, and of the least number by -1.
AT_BOUNDS = [(np.array([0, 7, 100, bounds.min, bounds.max, bounds.min], dtype), np.array([0, 0, 7, bounds.max, bounds.min + 1, -1 if bounds.min else 1], dtype))
             for dtype in ("int8", "uint8", "int16", "int32") for bounds in [np.iinfo(dtype)]]  # fmt: skip
SPECIAL = np.array([0.0, -0.0, 1e-3, -1e-3, 2.0, -2.0, np.inf, -np.inf, np.nan], np.float32)
IMAGE = np.random.default_rng(3).normal(size=(2, 4, 7, 5)).astype(np.float32)
KERNEL = np.random.default_rng(4).normal(size=(4, 3, 3, 2)).astype(np.float32)


@pytest.mark.parametrize(
    "function, arrays",
    [
        (lambda x, y: x // y, (INTS, OTHERS)),
        (lambda x, y: x % (F.abs(y) + 1), (INTS, OTHERS)),
        *((lambda x, y: x % y, pair) for pair in AT_BOUNDS),
        *((lambda x, y: x // y, pair) for pair in AT_BOUNDS),
        (lambda x: (x.astype("int64") * 3_000_000_000) // 7, (INTS,)),
        (lambda x: (x.astype("int64") * 3_000_000_000) % 7, (INTS,)),
        (F.atan2, (np.repeat(SPECIAL, SPECIAL.size), np.tile(SPECIAL, SPECIAL.size))),
        (lambda x, y: (x < y).astype("float32") + (x != y), (INTS, OTHERS)),
        (lambda x: F.left_shift(x, 2) + F.right_shift(x, 1), (INTS,)),
        (lambda x: F.sum(x > 0) + F.max(x > 0), (INTS,)),
        (lambda x: x + 120, (np.array([10, -128], np.int8),)),
        (lambda x: (x * 2).astype("uint8"), (np.array([10, 100], np.int32),)),
        (lambda x: x.astype("bool").astype("int32"), (X,)),
        (lambda x: F.round(x * 0.5) + F.floor(x) + F.ceil(x), (X,)),
        (lambda x: F.sort(x, descending=True)[1], (X,)),
        (lambda x: F.topk(x, 2, descending=False)[0], (X,)),
        (lambda x: x[::-1, 1:], (X,)),
        (lambda x: x[:, ::-2], (X,)),
        (lambda x: x[mge.Tensor([1, 0, -1]), mge.Tensor([0, 2, 1])], (X,)),
        (lambda x: x[:, mge.Tensor([[1, 0], [2, 1]]), :, mge.Tensor([[1, 0], [2, -1]])], (IMAGE,)),
        (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (IMAGE,)),
        (lambda x: F.adaptive_max_pool2d(x, (3, 2)), (IMAGE,)),
        (lambda x: F.adaptive_avg_pool2d(x, 1), (IMAGE,)),
        (lambda x: F.vision.interpolate(x, scale_factor=2), (IMAGE,)),
        (lambda x: F.nn.conv_transpose2d(x, mge.Tensor(KERNEL), stride=2, output_padding=1), (IMAGE,)),
        (lambda x: F.nn.pixel_shuffle(x, 2), (IMAGE,)),
        (lambda x: F.nn.group_norm(x, 2, True, F.ones((4,)), F.zeros((4,))), (IMAGE,)),
        (lambda x: F.split(x, 2, axis=1)[1], (IMAGE,)),
        (lambda x: F.mean(x), (X,)),
        *((lambda x, axis=axis: F.mean(x[:0], axis=axis), (X,)) for axis in (None, 0, 1)),
        (lambda x: F.loss.l1_loss(x[:0], x[:0] * 2), (X,)),
        *((f, (X > 0,)) for f in (F.abs, F.neg, F.square, F.sign, F.relu, F.relu6, lambda x: x + x, lambda x: x - x, lambda x: x * x, lambda x: F.maximum(x, x[::-1]))),
        *((lambda x, mode=mode: F.pad(F.sum(x), (), mode=mode), (X,)) for mode in ("constant", "reflect", "replicate")),
        *((f, (np.int32(3),)) for f in (lambda x: F.expand_dims(x, 0), lambda x: x.reshape(-1), lambda x: F.transpose(x, ()), lambda x: F.one_hot(x, 5))),
    ],
)  # fmt: skip
def test_an_expression_computes_the_same(function, arrays):
    agrees(function, *arrays)


def test_writes_into_a_tensor_are_scattered():
    def forward(x):
        x[0, 1:] = 7
        x[mge.Tensor([1, 1]), mge.Tensor([0, 2])] = mge.Tensor([1.0, 2.0])
        return x

    proto = export(forward, [mge.Tensor(X)])
    (found,) = run(proto, X)
    np.testing.assert_array_equal(found, [[-2, 7, 7], [1, 2, 2]])


def test_scalars_stay_scalars():
    proto = agrees(lambda x: x * 2, np.float32(3))
    assert not proto.graph.input[0].type.tensor_type.shape.dim
    assert agrees(F.flatten, np.float32(3)).graph.output[0].type.tensor_type.shape.dim


def test_layers_of_a_file_are_single_nodes():
    net = M.Sequential(M.Conv2d(3, 4, 3), M.ReLU(), M.MaxPool2d(2), M.Conv2d(4, 4, 1, groups=2))
    proto = agrees(net, IMAGE[:, :3])
    assert [node.op_type for node in proto.graph.node] == ["Conv", "Relu", "MaxPool", "Conv"]
    assert [node.op_type for node in agrees(M.Linear(3, 2), X).graph.node] == ["Gemm"]
    gelu = agrees(lambda x: F.gelu(F.softmax(x)), X, opset=20)
    assert [node.op_type for node in gelu.graph.node] == ["Softmax", "Gelu"]


# ---- integers


def test_a_quantized_network_is_written_with_its_integers():
    from megengine.quantization import min_max_fakequant_qconfig, quantize, quantize_qat

    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.quant, self.dequant = M.QuantStub(), M.DequantStub()
            self.conv, self.again = M.ConvBnRelu2d(3, 8, 3, padding=1), M.ConvBn2d(8, 8, 3, padding=1)
            self.sum, self.head = M.Elemwise("FUSE_ADD_RELU"), M.Linear(8, 5)

        def forward(self, x):
            x = self.conv(self.quant(x))
            x = self.sum(x, self.again(x))
            return self.dequant(self.head(F.flatten(F.max_pool2d(x, 8), 1)))

    x = np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32)
    qat = quantize_qat(Net(), qconfig=min_max_fakequant_qconfig)
    qat(mge.Tensor(x))
    qat.eval()
    net = quantize(qat)
    expected = net(mge.Tensor(x)).numpy()
    proto = export(net, mge.Tensor(x))
    (found,) = run(proto, x)
    step = np.diff(np.unique(expected)).min()
    assert np.abs(found - expected).max() <= 3 * step  # halves are rounded to the even number there
    kinds = [node.op_type for node in proto.graph.node]
    assert kinds.count("QuantizeLinear") >= 5 and "Round" not in kinds and "Cast" not in kinds
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    assert weights["conv.weight"].data_type == onnx.TensorProto.INT8
    assert weights["head.weight"].data_type == onnx.TensorProto.INT8


WORDS = np.array([[3, 0, 17], [1, 5, 5]], np.int32)


@pytest.mark.parametrize("opset", [17, 20, NEWEST])
@pytest.mark.parametrize("bits, group", [(4, 32), (4, 64), (8, 32)])
def test_weights_in_blocks(bits, group, opset):
    net = M.Sequential(M.Embedding(18, 64), M.Linear(64, 128), M.ReLU(), M.Linear(128, 5, bias=False))
    quantize_weights(net, bits=bits, group=group)
    proto = agrees(net, WORDS, opset=opset)
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    assert weights["0.weight"].data_type == onnx.TensorProto.INT8  # words have 8 bits
    kinds = [node.op_type for node in proto.graph.node]
    has_blocks = opset >= 21
    assert kinds.count("DequantizeLinear") == (2 if has_blocks else 0)
    packed = onnx.TensorProto.INT4 if has_blocks else onnx.TensorProto.UINT8
    assert weights["1.weight"].data_type == (packed if bits == 4 else onnx.TensorProto.INT8)
    back = load(proto)(mge.Tensor(WORDS))
    np.testing.assert_allclose(back.numpy(), net(mge.Tensor(WORDS)).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [17, NEWEST])
@pytest.mark.parametrize("bits", [4, 8])
def test_functions_of_weights_in_blocks(bits, opset):
    table = np.random.default_rng(0).normal(size=(7, 64)).astype(np.float32)
    blocks = F.quantized.quantize_blocks(table, bits=bits, group=32)

    given = np.random.default_rng(2).normal(size=(3, 7)).astype(np.float32)

    def gradient(x):
        x = x * 1
        manager = GradManager().attach(x)
        with manager:
            manager.backward(F.quantized.linear_of_blocks(x, blocks, bits=bits), mge.Tensor(given))
        return x.grad

    agrees(gradient, np.random.default_rng(1).normal(size=(3, 64)).astype(np.float32), opset=opset)
    agrees(lambda x: x @ F.quantized.dequantize_blocks(blocks, bits=bits).T, table[:2], opset=opset)


def test_an_odd_number_of_nibbles_is_padded():
    from megengine.onnx._emitter import Emitter
    from megengine.onnx._recorded import Recording

    emit = Emitter(Recording([], [], [], [], [], [], [], {}), NEWEST)
    integers = np.array([-8, 7, -1], np.int8)
    emit.initializer_of_nibbles(integers, "w")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(emit.initializers[0]).astype(np.int8), integers)


def test_blocks_that_are_computed_are_refused():
    blocks = F.quantized.quantize_blocks(np.ones((4, 32), np.float32), bits=8, group=32)
    with pytest.raises(OnnxError, match="dequantize_blocks"):
        export(lambda x: F.quantized.dequantize_blocks(x, bits=8), blocks)


# ---- names and types


def test_parameters_have_their_names_in_the_state_dict():
    net = M.Sequential(M.Linear(3, 4), M.Linear(4, 2, bias=False))
    proto = export(net, mge.Tensor(X))
    assert {tensor.name for tensor in proto.graph.initializer} == set(net.state_dict())
    for tensor in proto.graph.initializer:
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), net.state_dict()[tensor.name])


def test_inputs_and_outputs_have_the_given_names():
    proto = export(lambda a, b: (a + b, a), [mge.Tensor(X)] * 2, input_names=["left", "right"], output_names=["sum", "same"])
    assert [given.name for given in proto.graph.input] == ["left", "right"]
    assert [made.name for made in proto.graph.output] == ["sum", "same"]
    np.testing.assert_array_equal(run(proto, X, X)[1], X)


def test_a_result_that_is_an_argument_has_a_name_of_its_own():
    for function in (lambda x: x, lambda x: (x, x * 2), lambda x: (x, x), lambda x: {"x": x, "y": x + 1}):
        proto = export(function, mge.Tensor(X), input_names=["x"])
        onnx.checker.check_model(proto, full_check=True)
        np.testing.assert_array_equal(run(proto, X)[0], X)
    with pytest.raises(ValueError, match="'x' is the name of an input and of an output"):
        export(lambda x: x, mge.Tensor(X), input_names=["x"], output_names=["x"])


def test_float64_is_written():
    wide = agrees(lambda x: F.tanh(x.astype("float64") * 2 + 1), X)
    assert wide.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.DOUBLE
    assert agrees(lambda x: (x.astype("float64") / 3).astype("float32"), X).graph.node


def test_results_of_a_dict_have_its_keys():
    proto = export(lambda x: {"y": x + 1, "again": x + 1}, mge.Tensor(X))
    assert [made.name for made in proto.graph.output] == ["again", "y"]


def test_every_value_has_a_type():
    net, x = batch_for("resnet_basic", SMALL)
    graph = export(net, mge.Tensor(x)).graph
    known = {info.name for part in (graph.input, graph.output, graph.value_info) for info in part}
    assert {node.output[0] for node in graph.node if node.op_type not in ("Mul", "Constant")} <= known


@pytest.mark.parametrize("count", [lambda v: v.shape[0], lambda v: int(v.shape[0]), len, lambda v: v.size, lambda v: v.reshape(-1, 1).shape[0], lambda v: mge.Tensor(v.shape[0])])
@pytest.mark.parametrize("select", [lambda a: F.cond_take(a > 0, a)[0], lambda a: a[a > 0], F.unique])
def test_how_many_are_selected_is_no_number_of_a_file(select, count):
    with pytest.raises(RuntimeError, match=r"test_export\.py:\d+"):
        export(lambda a: a * count(select(a)), mge.tensor([1.0, -1.0, 2.0, 3.0]))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
@pytest.mark.parametrize("axes", [None, 0, 1])
def test_sums_of_integers_wrap(dtype, axes):
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([[least, most], [least, 5]], dtype)
    agrees(lambda a: F.sum(a, axis=axes), x)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "int32"])
@pytest.mark.parametrize("axes", [None, 0, 1])
def test_means_of_integers_hold_every_integer(dtype, axes):
    least, most = (False, True) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x = np.array([[least, most], [most, least], [1, 5], [most, 3]]).astype(dtype)
    agrees(lambda a: F.mean(a, axis=axes), x)


def test_arguments_that_are_no_tensors_are_fixed():
    proto = export(lambda x, times: x * times, (mge.Tensor(X), 3))
    np.testing.assert_array_equal(run(proto, X)[0], X * 3)


def test_a_path_or_an_open_file_is_written(tmp_path):
    with open(tmp_path / "open.onnx", "wb") as file:
        export(lambda x: x + 1, mge.Tensor(X), file)
    export(lambda x: x + 1, mge.Tensor(X), tmp_path / "path.onnx")
    for name in ("open.onnx", "path.onnx"):
        np.testing.assert_array_equal(run(onnx.load(tmp_path / name), X)[0], X + 1)


# ---- refusals


def test_all_operations_without_a_counterpart_are_listed_with_their_lines():
    def forward(x):
        y = F.matinv(x)
        u = F.svd(y)[1]
        return u + F.dropout(u, 0.5)

    with pytest.raises(OnnxError, match="these operations") as error:
        export(forward, mge.Tensor(np.eye(3, dtype=np.float32)))
    line = forward.__code__.co_firstlineno
    for number, op in enumerate(("matinv", "svd", "dropout_mask"), 1):
        assert f"  {op}: {__file__}:{line + number}" in str(error.value)
    assert "eval()" in str(error.value)


@pytest.mark.parametrize("sample", [*filter(is_since_18, SAMPLES)], ids=repr)
def test_a_function_that_came_with_opset_18(sample):
    inputs = [*map(np.asarray, sample.inputs)]
    agrees(sample.call, *inputs, opset=18)
    with pytest.raises(OnnxError, match="before opset 18"):
        export(sample.call, [*map(mge.Tensor, inputs)], opset=17)


@pytest.mark.parametrize("opset", [16, 1000])
def test_an_opset_that_is_not_covered_is_refused(opset):
    with pytest.raises(ValueError, match=f"opset {opset}"):
        export(lambda x: x, mge.Tensor(X), opset=opset)


def test_without_the_package_the_error_tells_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    megengine.onnx._proto.onnx.cache_clear()
    with pytest.raises(ImportError, match=r"megjit\[onnx\]"):
        export(lambda x: x, mge.Tensor(X))


# ---- open axes


@pytest.mark.parametrize("name", ["mobilenet", "gpt2", "lstm", "unet"])
def test_a_batch_that_is_open_has_any_size(name):
    make, describe = SMALL[name]
    net = make()
    net.eval()
    _, x = batch_for(name, SMALL)
    key = "ids" if name == "gpt2" else "x"
    proto = export(net, mge.Tensor(x), dynamic_axes={key: {0: "batch"}})
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    module = load(proto)
    for size in (1, 3):
        x = np.resize(x, describe(size)[0])
        expected = net(mge.Tensor(x)).numpy()
        for found in (run(proto, x)[0], module(mge.Tensor(x)).numpy()):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def attention(q, k):
    n, t, width = q.shape
    scores = F.matmul(q, k, transpose_b=True).reshape(n * t, -1)
    return F.matmul(F.softmax(scores).reshape(n, t, k.shape[1]), k)[:, 1:] + F.zeros((n, 1, width))


def test_several_open_axes_and_what_is_computed_of_them():
    rng = np.random.default_rng(0)
    axes = {"q": {0: "n", 1: "t"}, "k": {0: "n", 1: "s"}}
    proto = export(attention, [F.zeros((2, 3, 4)), F.zeros((2, 5, 4))], dynamic_axes=axes, opset=17)
    assert [dim.dim_param for dim in proto.graph.output[0].type.tensor_type.shape.dim] == ["n", "t-1", ""]
    for n, t, s in ((1, 4, 4), (3, 2, 7)):
        q, k = rng.normal(size=(n, t, 4)).astype(np.float32), rng.normal(size=(n, s, 4)).astype(np.float32)
        (found,) = run(proto, q, k)
        np.testing.assert_allclose(found, attention(mge.Tensor(q), mge.Tensor(k)).numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    "function, words",
    [
        (lambda x: sum((x[i] for i in range(x.shape[0])), x[0]), "other operations"),
        (lambda x: x + mge.Tensor(np.arange(x.shape[0] * 3, dtype=np.float32).reshape(-1, 3)), "a constant of shape"),
        (lambda x: F.flatten(x * (1.0 / x.shape[0])), "a constant of shape"),
        (lambda x: F.broadcast_to(x, (x.shape[0] ** 2, *x.shape)), "broadcast_to"),
        (lambda x: F.adaptive_avg_pool2d(F.broadcast_to(x, (1, 1, *x.shape)), 2), "avg_pool"),
    ],
)
def test_what_depends_on_an_open_axis_otherwise_is_refused(function, words):
    with pytest.raises(OnnxError, match=words):
        export(function, mge.Tensor(X), dynamic_axes={"x": [0]})


@pytest.mark.parametrize("axes, words", [({"y": [0]}, "'y'"), ({"x": [2]}, "no axis 2")])
def test_an_open_axis_that_is_not_there_is_refused(axes, words):
    with pytest.raises(ValueError, match=words):
        export(lambda x: x + 1, mge.Tensor(X), dynamic_axes=axes)


# ---- what is left alone


def test_tensors_that_the_model_writes_into_keep_their_values():
    net, x = M.BatchNorm2d(4), mge.Tensor(IMAGE)

    def forward(x):
        y = net(x)
        x[0] = 0
        return y

    before = net.running_mean.numpy()
    (found,) = run(export(net, x), IMAGE)
    export(forward, x)
    np.testing.assert_array_equal(x.numpy(), IMAGE)
    np.testing.assert_array_equal(net.running_mean.numpy(), before)
    np.testing.assert_allclose(found, net(x).numpy(), rtol=1e-4, atol=1e-5)


def test_nothing_is_exported_or_loaded_inside_of_a_recording():
    proto = export(lambda x: x + 1, mge.Tensor(X))
    with mge.autodiff.GradManager():
        for call in (lambda: export(lambda x: x + 1, mge.Tensor(X)), lambda: load(proto)):
            with pytest.raises(RuntimeError, match="GradManager"):
                call()
