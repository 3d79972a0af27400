"""Import: graphs of our functions that compute what the file says; hostile files are refused."""

import operator
import os
import pickle

import numpy as np
import onnx
import pytest
from judge import run
from onnx import TensorProto, helper, numpy_helper
from op_samples import NOT_IN_ONNX, SAMPLES
from zoo import SMALL

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import _core, fx
from megengine.fx.experimental.optimization import optimize_for_inference
from megengine.jit import trace
from megengine.onnx import OnnxError, export, load

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model_of(nodes, inputs, outputs, initializers=(), opset=18):
    """inputs, outputs: name -> shape, of float32."""
    infos = [[helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in part.items()] for part in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *infos, [numpy_helper.from_array(a, name) for name, a in dict(initializers).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def one(op, *, shape=(2, 3), inputs=("x",), initializers=(), opset=18, **attrs):
    return model_of([helper.make_node(op, list(inputs), ["y"], **attrs)], {"x": shape}, {"y": ("a", "b")}, initializers, opset)


# ---- round trips


@pytest.mark.parametrize("name", SMALL)
def test_a_network_comes_back_the_same(name):
    make, describe = SMALL[name]
    net, shape = make(), describe(2)[0]
    net.eval()
    rng = np.random.default_rng(0)
    x = rng.integers(0, 50, shape).astype(np.int32) if name in ("bert", "gpt2") else rng.normal(size=shape).astype(np.float32)
    module = load(export(net, mge.Tensor(x)))
    assert isinstance(module, fx.GraphModule)
    np.testing.assert_allclose(module(mge.Tensor(x)).numpy(), net(mge.Tensor(x)).numpy(), rtol=1e-5, atol=1e-5)
    own = net.state_dict()
    for key, value in module.state_dict().items():
        if key in own:
            np.testing.assert_array_equal(np.ravel(value), np.ravel(own[key]))


@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.name not in NOT_IN_ONNX], ids=repr)
def test_a_function_comes_back_the_same(sample, opset):
    tensors = [mge.Tensor(np.asarray(array)) for array in sample.inputs]
    expected = sample.call(*tensors)
    found = load(export(sample.call, tensors, opset=opset))(*tensors)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=2e-5, atol=2e-6)


def test_a_quantized_network_comes_back_the_same():
    from megengine.quantization import min_max_fakequant_qconfig, quantize, quantize_qat

    x = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
    net = M.Sequential(M.QuantStub(), M.ConvRelu2d(3, 8, 3), M.DequantStub())
    qat = quantize_qat(net, qconfig=min_max_fakequant_qconfig)
    qat(mge.Tensor(x))
    qat.eval()
    proto = export(quantize(qat), mge.Tensor(x))
    (expected,) = run(proto, x)
    np.testing.assert_allclose(load(proto)(mge.Tensor(x)).numpy(), expected, atol=np.diff(np.unique(expected)).min() * 1.01)


# ---- what the graph is


def test_layers_become_functions_and_parameters_keep_their_names():
    net = M.Sequential(M.Conv2d(3, 4, 3, groups=1), M.ReLU(), M.MaxPool2d(2), M.Conv2d(4, 8, 1, groups=2))
    x = mge.Tensor(np.ones((1, 3, 8, 8), np.float32))
    module = load(export(net, x))
    called = [node.target for node in module.graph.nodes if node.op == "call_function"]
    assert called == [F.nn.conv2d, F.relu, F.nn.max_pool2d, F.nn.conv2d]
    assert {k: v.shape for k, v in module.state_dict().items()} == {k: v.shape for k, v in net.state_dict().items()}
    assert all(isinstance(p, mge.Parameter) for p in module.parameters())


def test_shape_arithmetic_is_done_while_loading():
    def forward(x):
        n = x.shape[0]
        return F.flatten(x, 1).reshape(n, -1)

    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["y"]),
    ]
    proto = model_of(nodes, {"x": (2, 3, 4)}, {"y": (2, 12)}, {"zero": np.array([0]), "rest": np.array([-1])})
    module = load(proto)
    assert [node.target for node in module.graph.nodes if node.op == "call_function"] == [F.reshape]


def test_shapes_that_are_not_known_are_taken_from_the_input():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], end=1),
        helper.make_node("Concat", ["s", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["y"]),
    ]
    module = load(model_of(nodes, {"x": ("n", 3, 4)}, {"y": ("n", 12)}, {"rest": np.array([-1])}))
    for n in (1, 5):
        assert module(mge.Tensor(np.zeros((n, 3, 4), np.float32))).shape == (n, 12)


def test_several_outputs_are_a_tuple_and_names_of_the_file_name_nodes():
    nodes = [helper.make_node("Split", ["x"], ["left/1", "right"], axis=1, num_outputs=2)]
    module = load(model_of(nodes, {"x": (2, 4)}, {"left/1": ("a", "b"), "right": ("a", "b")}))
    left, right = module(mge.Tensor(np.arange(8, dtype=np.float32).reshape(2, 4)))
    np.testing.assert_array_equal(left.numpy(), [[0, 1], [4, 5]])
    assert right.shape == (2, 2)
    assert [n.name for n in module.graph.nodes if n.target is operator.getitem] == ["left_1", "right"]


def test_a_module_can_be_edited_trained_and_pickled():
    module = load(export(M.Linear(3, 2), mge.Tensor(X)))
    again = pickle.loads(pickle.dumps(module))
    np.testing.assert_array_equal(again(mge.Tensor(X)).numpy(), module(mge.Tensor(X)).numpy())
    gm = mge.autodiff.GradManager().attach(module.parameters())
    with gm:
        gm.backward(module(mge.Tensor(X)).sum())
    assert module.weight.grad is not None


def test_a_module_is_saved_without_pickle(tmp_path):
    make, describe = SMALL["lstm"]
    x = mge.Tensor(np.ones(describe(1)[0], np.float32))
    module = load(export(make(), x))
    module.save(tmp_path / "m.mge")
    again = fx.load(tmp_path / "m.mge")
    np.testing.assert_array_equal(again(x).numpy(), module(x).numpy())


def test_names_that_would_hide_parts_of_a_module_are_changed():
    names = ("forward", "__class__", "a", "a.b", "training", "..", "a b")
    nodes, last = [], "x"
    for place, name in enumerate(names):
        nodes.append(helper.make_node("Add", [last, name], [f"y{place}"]))
        last = f"y{place}"
    values = {name: np.full(3, 10.0**place, np.float32) for place, name in enumerate(names)}
    module = load(model_of(nodes, {"x": (2, 3)}, {last: ("a", "b")}, values))
    np.testing.assert_allclose(module(mge.Tensor(X)).numpy(), X + 1111111, rtol=1e-6)
    assert len(module.state_dict()) == len(names) and module.training is True


LAYERS = {"RNN": (1, {}), "RNN of relu": (1, {"activations": ["Relu"]}), "LSTM": (4, {}), "GRU": (3, {"linear_before_reset": 1})}


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_recurrent_layer_is_one_op_a_direction(layer, direction):
    rng, op = np.random.default_rng(0), layer.split()[0]
    directions, (gates, options) = 1 + (direction == "bidirectional"), LAYERS[layer]
    if "activations" in options:
        options = {"activations": options["activations"] * directions}
    shapes = {"w": (gates * 5, 4), "r": (gates * 5, 5), "b": (2 * gates * 5,), "h": (2, 5)}
    values = {name: rng.normal(size=(directions, *shape)).astype(np.float32) for name, shape in shapes.items()}
    x = mge.Tensor(rng.normal(size=(6, 2, 4)).astype(np.float32))

    def outcome(lengths=None, **attrs):
        inputs = ["x", "w", "r", "b", "" if lengths is None else "lengths", "h"]
        node = helper.make_node(op, inputs, ["y", "last"], hidden_size=5, direction=direction, **options, **attrs)
        given = values if lengths is None else {**values, "lengths": np.asarray(lengths, np.int32)}
        module = load(model_of([node], {"x": (6, 2, 4)}, {"y": ("t", "d", "n", "h"), "last": ("d", "n", "h")}, given))
        _core.start_call_log(False)
        results = [part.numpy() for part in module(x)]
        return results, [row[0] for row in _core.stop_call_log()]

    def layers_in(called):
        return [row.split()[0] for row in called].count(op.lower())

    stepwise, called = outcome(clip=1e4)  # which changes no value
    assert layers_in(called) == 0
    for lengths in (None, [6, 6]):
        found, called = outcome(lengths)
        assert layers_in(called) == directions
        assert not [row for row in called if f"[{gates * 5}, " in row], "weights are laid out once, when the model is loaded"
        for a, b in zip(found, stepwise, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert layers_in(outcome([6, 3])[1]) == 0


def test_older_opsets_are_brought_up():
    squeeze = model_of([helper.make_node("Squeeze", ["x"], ["y"], axes=[0])], {"x": (1, 3)}, {"y": (3,)}, opset=11)
    assert load(squeeze)(mge.Tensor(X[:1])).shape == (3,)


def test_functions_of_the_model_are_inlined():
    twice = helper.make_function("own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 18)])
    proto = model_of([helper.make_node("Twice", ["x"], ["y"], domain="own")], {"x": (2, 3)}, {"y": ("a", "b")})
    proto.functions.append(twice)
    proto.opset_import.append(helper.make_opsetid("own", 1))
    np.testing.assert_array_equal(load(proto)(mge.Tensor(X)).numpy(), X + X)


def test_paths_files_and_bytes_are_read(tmp_path):
    proto = one("Relu")
    path = tmp_path / "m.onnx"
    onnx.save_model(proto, path)
    with open(path, "rb") as file:
        found = load(file)
    np.testing.assert_array_equal(found(mge.Tensor(X)).numpy(), np.maximum(X, 0))
    for source in (path, str(path), path.read_bytes(), proto):
        np.testing.assert_array_equal(load(source)(mge.Tensor(X)).numpy(), np.maximum(X, 0))


def chosen(condition, known):
    """If, with branches that read x from outside."""
    branches = [
        helper.make_graph([helper.make_node(op, ["x"], [f"{op}_y"])], op, [], [helper.make_tensor_value_info(f"{op}_y", FLOAT, (2, 3))])
        for op in ("Relu", "Neg")
    ]
    node = helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    proto = model_of([node], {"x": (2, 3)}, {"y": (2, 3)}, {"c": np.array(condition)} if known else {})
    if not known:
        proto.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, ()))
    return proto


def test_a_branch_is_taken_while_loading_where_its_condition_is_known():
    np.testing.assert_array_equal(load(chosen(True, True))(mge.Tensor(X)).numpy(), np.maximum(X, 0))
    np.testing.assert_array_equal(load(chosen(False, True))(mge.Tensor(X)).numpy(), -X)
    assert F.cond in [node.target for node in load(chosen(True, False)).graph.nodes]


# ---- refusals


def test_all_operators_without_a_counterpart_are_listed():
    nodes = [
        helper.make_node("StringNormalizer", ["x"], ["a"], name="first"),
        helper.make_node("Own", ["a"], ["b"], domain="com.us", name="second"),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Cast", ["c"], ["y"], to=TensorProto.STRING, name="third"),
    ]
    proto = model_of(nodes, {"x": (2, 3)}, {"y": ("a", "b")})
    proto.opset_import.append(helper.make_opsetid("com.us", 1))
    with pytest.raises(OnnxError, match="3 kinds") as error:
        load(proto)
    for line in ("StringNormalizer: first", "com.us.Own: second", "no tensors of string: third"):
        assert line in str(error.value)


def without(proto, change):
    change(proto)
    return proto


def cyclic():
    nodes = [helper.make_node("Relu", ["b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    return model_of(nodes, {"x": (2, 3)}, {"b": ("c", "d")})


def with_tensor(**fields):
    proto = one("Add", inputs=("x", "w"), initializers={"w": np.ones(3, np.float32)})
    tensor = proto.graph.initializer[0]
    for name, value in fields.items():
        if name == "dims":
            tensor.dims[:] = value
        else:
            setattr(tensor, name, value)
    return proto


@pytest.mark.parametrize(
    "proto, words",
    [
        (cyclic(), "not sound"),
        (one("Add", inputs=("x", "nowhere")), "not sound"),
        (one("Conv", inputs=("x",)), "not sound"),
        (one("Relu", alpha=1.0), "not sound"),
        (model_of([], {"x": (2, 3)}, {"y": ("a", "b")}), "nothing makes|not sound"),
        (with_tensor(dims=[-3]), r"shape \[-3\]"),
        (with_tensor(dims=[2**40, 2**40]), "needs .* bytes and has 12"),
        (with_tensor(dims=[4]), "needs 16 bytes and has 12"),
        (with_tensor(data_type=99), "tensors"),
        (b"not a model at all", "not an ONNX model"),
        (b"", "no graph"),
        (one("Relu").SerializeToString()[:-7], "not an ONNX model|no graph|not sound"),
    ],
)
def test_an_unsound_model_is_refused(proto, words):
    with pytest.raises(OnnxError, match=words):
        load(proto)


def test_a_wrong_shape_is_an_error_of_the_node_when_the_model_runs():
    module = load(one("Add", inputs=("x", "w"), initializers={"w": np.ones(5, np.float32)}))
    with pytest.raises(ValueError, match="cannot broadcast"):
        module(mge.Tensor(X))


def test_a_huge_result_is_no_memory_before_it_is_asked_for():
    module = load(one("Expand", inputs=("x", "s"), initializers={"s": np.array([2**20, 2**20, 2, 3])}))
    with pytest.raises((MemoryError, ValueError, RuntimeError)):
        module(mge.Tensor(X))


# ---- tensors in other files


def external(tmp_path, **entries):
    """A model whose tensor w lies in another file."""
    proto = with_tensor()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    folder = tmp_path / "inner"
    folder.mkdir(exist_ok=True)
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_tensors_in_a_file_beside_the_model_are_read(tmp_path):
    path = external(tmp_path, location="w.bin", offset=4, length=12)
    (path.parent / "w.bin").write_bytes(np.float32([9, 1, 2, 3]).tobytes())
    np.testing.assert_array_equal(load(path)(mge.Tensor(X)).numpy(), X + [1, 2, 3])


@pytest.mark.parametrize(
    "entries, words",
    [
        ({"location": "../secret"}, "not a file in the folder"),
        ({"location": "link"}, "not a file in the folder"),
        ({"location": "missing"}, "not a file in the folder"),
        ({"location": ""}, "not a file in the folder"),
        ({"location": "w.bin", "offset": 8}, "needs 12 bytes"),
        ({"location": "w.bin", "offset": -4}, "needs 12 bytes"),
        ({"location": "w.bin", "length": 2**60}, "needs 12 bytes"),
        ({"location": "w.bin", "offset": "x"}, "is not a number"),
    ],
)
def test_tensors_that_lie_elsewhere_are_refused(tmp_path, entries, words):
    (tmp_path / "secret").write_bytes(bytes(12))
    path = external(tmp_path, **entries)
    (path.parent / "w.bin").write_bytes(bytes(12))
    os.symlink(tmp_path / "secret", path.parent / "link")
    with pytest.raises(OnnxError, match=words):
        load(path)


def test_an_absolute_path_is_refused(tmp_path):
    (tmp_path / "secret").write_bytes(bytes(12))
    with pytest.raises(OnnxError, match="not a file in the folder"):
        load(external(tmp_path, location=tmp_path / "secret"))
    with pytest.raises(OnnxError, match="from its path"):
        load(external(tmp_path, location="w.bin").read_bytes())


def test_a_node_without_its_inputs_is_refused():
    with pytest.raises(OnnxError, match="Concat .* lacks an input"):
        load(one("Concat", inputs=("", "x"), axis=0))


def test_a_model_on_which_the_tools_of_onnx_crash_is_refused(monkeypatch):
    monkeypatch.setattr("megengine.onnx._read.sys.executable", "/bin/false")
    squeeze = model_of([helper.make_node("Squeeze", ["x"], ["y"], axes=[0])], {"x": (1, 3)}, {"y": (3,)}, opset=11)
    with pytest.raises(OnnxError, match="it crashed"):
        load(squeeze)


def test_extents_that_are_open_stay_open():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Slice", ["s", "one", "three"], ["c"]),
        helper.make_node("ReduceProd", ["c"], ["p"], keepdims=1),
        helper.make_node("Concat", ["minus", "p"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["y"]),
    ]
    values = {"one": np.array([1]), "three": np.array([3]), "minus": np.array([-1])}
    module = load(model_of(nodes, {"x": ("n", 3, 4)}, {"y": ("n", 12)}, values))
    assert [node.target for node in module.graph.nodes if node.op == "call_function"] == [F.reshape]
    assert module(mge.Tensor(np.zeros((5, 3, 4), np.float32))).shape == (5, 12)

@pytest.mark.parametrize("first", ["Conv", "Gemm"])
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_layers_share_a_tensor_that_each_wants_in_its_own_shape(first, copied, groups):
    """As torch's exporter writes models: it stores equal tensors once, and names the others by Identity."""
    conv = helper.make_node("Conv", ["x", "w", "b"], ["conv"], group=groups, pads=[1, 1, 1, 1])
    gemm = helper.make_node("Gemm", ["rows", "v", "b2" if copied else "b"], ["gemm"], transB=1)
    weights = helper.make_node("Mul", ["w", "w2" if copied else "w"], ["squares"])
    copies = [helper.make_node("Identity", ["b"], ["b2"]), helper.make_node("Identity", ["w"], ["w2"])] if copied else []
    nodes = [*copies, *([conv, gemm, weights] if first == "Conv" else [weights, gemm, conv])]
    r = np.random.RandomState(0)
    tensors = {"w": r.rand(4, 4 // groups, 3, 3), "b": r.rand(4), "v": r.rand(4, 5)}
    proto = model_of(
        nodes, {"x": (2, 4, 6, 6), "rows": (3, 5)}, {"conv": (2, 4, 6, 6), "gemm": (3, 4), "squares": tensors["w"].shape},
        {name: value.astype(np.float32) for name, value in tensors.items()},
    )  # fmt: skip
    x, rows = r.rand(2, 4, 6, 6).astype("float32"), r.rand(3, 5).astype("float32")
    module = load(proto)
    assert set(dict(module.named_parameters())) == {"w", "b", "v"}
    for found, want in zip(module(mge.Tensor(x), mge.Tensor(rows)), run(proto, x, rows), strict=True):
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-4, atol=1e-5)


SIZES = {  # of x, float32[n, t, 4]
    "reshape": [("Concat", ["n", "rest"], ["to"], {"axis": 0}), ("Reshape", ["x", "to"], ["y"], {})],
    "expand": [("Concat", ["two", "s"], ["to"], {"axis": 0}), ("Expand", ["x", "to"], ["y"], {})],
    "expand where": [
        ("Concat", ["n", "minus", "minus"], ["raw"], {"axis": 0}),
        ("Shape", ["raw"], ["rank"], {}),
        ("ConstantOfShape", ["rank"], ["ones"], {"value": helper.make_tensor("one", TensorProto.INT64, [1], [1])}),
        ("Mul", ["ones", "minus"], ["negative"], {}),
        ("Equal", ["raw", "negative"], ["open"], {}),
        ("Where", ["open", "ones", "raw"], ["to"], {}),
        ("Expand", ["x", "to"], ["y"], {}),
    ],
    "slice": [("Div", ["n", "two"], ["half"], {}), ("Slice", ["x", "zero", "half", "zero"], ["y"], {})],
    "range": [
        ("Squeeze", ["n"], ["count"], {}),
        ("Range", ["zero0", "count", "one0"], ["places"], {}),
        ("Cast", ["places"], ["floats"], {"to": TensorProto.FLOAT}),
        ("Reshape", ["floats", "column"], ["weights"], {}),
        ("Mul", ["x", "weights"], ["y"], {}),
    ],
    "casts": [
        ("Cast", ["n"], ["n32"], {"to": TensorProto.INT32}),
        ("Cast", ["n32"], ["nf"], {"to": TensorProto.FLOAT}),
        ("Sqrt", ["nf"], ["root"], {}),
        ("Floor", ["root"], ["down"], {}),
        ("Cast", ["down"], ["low"], {"to": TensorProto.INT64}),
        ("Slice", ["x", "zero", "low", "zero"], ["part"], {}),
        ("Div", ["part", "root"], ["y"], {}),
    ],
    "tile": [("Concat", ["n", "one", "one"], ["often"], {"axis": 0}), ("Tile", ["x", "often"], ["y"], {})],
    "pad": [("Concat", ["n", "zero", "zero", "one", "zero", "zero"], ["widths"], {"axis": 0}), ("Pad", ["x", "widths"], ["y"], {})],
    "size": [("Size", ["x"], ["count"], {}), ("Cast", ["count"], ["floats"], {"to": TensorProto.FLOAT}), ("Div", ["x", "floats"], ["y"], {})],
}  # fmt: skip
HELD = {"i0": [0], "rest": [-1], "minus": [-1], "two": [2], "zero": [0], "one": [1], "column": [-1, 1, 1]}


@pytest.mark.parametrize("options", [None, {"symbolic": False}, {"symbolic": True}, {"symbolic": True, "opt_level": 3}, {"memory_limit": "1MB"}, {"without_host": True}])
@pytest.mark.parametrize("name", SIZES)
def test_arithmetic_of_open_extents(name, options):
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Gather", ["s", "i0"], ["n"])]
    nodes += [helper.make_node(op, inputs, outputs, **attrs) for op, inputs, outputs, attrs in SIZES[name]]
    held = {key: np.array(value) for key, value in HELD.items()} | {"zero0": np.array(0), "one0": np.array(1)}
    proto = model_of(nodes, {"x": ("n", "t", 4)}, {"y": tuple("abcd"[: 4 if name == "expand" else 2 if name == "reshape" else 3])}, held)
    module = load(proto)
    for called in (module, optimize_for_inference(module.eval())):
        traced = called if options is None else trace(lambda x, called=called: called(x), **options)
        for n, t in ((5, 3), (4, 3), (1, 6), (5, 3)):
            x = np.random.RandomState(n).rand(n, t, 4).astype("float32")
            np.testing.assert_allclose(traced(mge.Tensor(x)).numpy(), run(proto, x)[0], rtol=1e-6)


@pytest.mark.parametrize("options", [None, {"symbolic": True, "opt_level": 3}, {"memory_limit": "4MB"}])
@pytest.mark.parametrize("shape", [("n", "t"), ("n", "t", 1)])
def test_spectra_of_signals_of_any_length(shape, options):
    nodes = [
        helper.make_node("STFT", ["x", "step", "window"], ["frames"]),
        helper.make_node("ReduceSumSquare", ["frames", "last"], ["y"], keepdims=0),
    ]
    window = np.hanning(32).astype("float32")
    proto = model_of(nodes, {"x": shape}, {"y": tuple("abc")}, {"step": np.array(10), "window": window, "last": np.array([-1])})
    called = load(proto)
    called = called if options is None else trace(lambda x, module=called: module(x), **options)
    for n, t in ((2, 100), (1, 57), (2, 100)):
        x = np.random.RandomState(t).randn(n, t, *shape[2:]).astype("float32")
        frames = np.stack([x.reshape(n, t)[:, start : start + 32] * window for start in range(0, t - 31, 10)], 1)
        np.testing.assert_allclose(called(mge.Tensor(x)).numpy(), np.abs(np.fft.rfft(frames)) ** 2, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("opset", [11, 18])
def test_inputs_and_outputs_need_no_shape(opset):
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Concat", ["r", "r"], ["y"], axis=0)]
    proto = model_of(nodes, {"x": None}, {"y": None}, opset=opset)
    module = load(proto)
    for shape in ((3,), (2, 3, 4)):
        x = np.random.RandomState(0).randn(*shape).astype("float32")
        np.testing.assert_array_equal(module(mge.Tensor(x)).numpy(), np.concatenate([x.clip(0)] * 2))


def test_huge_declared_sizes_cost_nothing_while_loading():
    proto = model_of([helper.make_node("Trilu", ["x"], ["y"])], {"x": (2**20, 2**20)}, {"y": (2**20, 2**20)})
    assert load(proto)(mge.Tensor(X)).shape == X.shape
