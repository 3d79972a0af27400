"""Operators of imports beside onnxruntime: eager, in traces by value and symbolic, and optimized, at two sizes."""

import copy

import numpy as np
import onnx
import pytest
from judge import run
from onnx import TensorProto, helper, numpy_helper

import megengine as mge
from megengine.fx.experimental.optimization import optimize_for_inference
from megengine.jit import trace
from megengine.onnx import OnnxError, load

DOUBLE = TensorProto.DOUBLE
RANDOM = np.random.RandomState(0)


def real(*shape, dtype="float32"):
    return RANDOM.normal(size=shape).astype(dtype)


def packed(array, element_type, name):
    """A tensor of numbers of four bits."""
    return helper.make_tensor(name, element_type, array.shape, array.reshape(-1))


def model(nodes, inputs, outputs, tensors=(), opset=21):
    """inputs: name -> (axes, array); outputs: name -> (axes, element type)."""
    given = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), axes) for name, (axes, array) in inputs.items()]
    made = [helper.make_tensor_value_info(name, kind, axes) for name, (axes, kind) in outputs.items()]
    held = [value if isinstance(value, TensorProto) else numpy_helper.from_array(np.asarray(value), name) for name, value in dict(tensors).items()]
    nodes = [helper.make_node(op, inputs, outputs, f"the_{op}_{place}", **attrs) for place, (op, inputs, outputs, attrs) in enumerate(nodes)]
    graph = helper.make_graph(nodes, "g", given, made, held)
    versions = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


FLOAT, NT = TensorProto.FLOAT, ("n", "t", 8)
BOXES = np.float32([[0, 0, 9, 9], [1.5, 2, 4, 3.5], [-3, 2, 30, 5]])
WEIGHTS = RANDOM.randint(-8, 8, (8, 6)).astype("int8")
DOUBLES = {
    "arithmetic": [("Mul", ["x", "c"], ["a"], {}), ("Sub", ["a", "x"], ["b"], {}), ("Pow", ["b", "c"], ["y"], {})],
    "functions": [("Exp", ["x"], ["a"], {}), ("Sqrt", ["a"], ["b"], {}), ("Sin", ["b"], ["c2"], {}), ("Abs", ["c2"], ["y"], {})],
    "reductions": [("ReduceMean", ["x", "last"], ["a"], {}), ("ReduceMax", ["x", "last"], ["b"], {}), ("Div", ["a", "b"], ["y"], {})],
    "products": [("Transpose", ["x"], ["xt"], {"perm": [0, 2, 1]}), ("MatMul", ["x", "xt"], ["y"], {})],
    "softmax": [("Softmax", ["x"], ["y"], {"axis": 1})],
    "normalized": [("LayerNormalization", ["x", "w", "w"], ["y"], {})],
    "casts": [("Cast", ["x"], ["f"], {"to": FLOAT}), ("Cast", ["f"], ["d"], {"to": DOUBLE}), ("Sub", ["x", "d"], ["y"], {})],
    "places": [("Slice", ["x", "zero", "one"], ["a"], {}), ("Concat", ["a", "x"], ["b"], {"axis": 0}), ("CumSum", ["b", "zero0"], ["y"], {})],
}
HELD = {"c": np.float64(3), "last": [-1], "w": real(8, dtype="float64"), "zero": [0], "one": [1], "zero0": np.array(0)}


def sums_of_bytes():
    """Convolutions and products between DequantizeLinear and QuantizeLinear, and the operators that are all three. Steps
    are powers of two, so that no sum is rounded.
    """
    steps = np.float32([2.0**-k for k in (3, 4, 5, 3, 4, 5)])
    held = {"xs": np.float32(2**-4), "xz": np.uint8(10), "ys": np.float32(0.5), "yz": np.uint8(100), "ws": steps, "bs": steps * 2.0**-4}
    held |= {"wz": np.zeros(6, np.int8), "bz": np.zeros(6, np.int32), "b": RANDOM.randint(-900, 900, 6).astype("int32")}
    ends = {
        "bytes": [("QuantizeLinear", ["sum", "ys", "yz"], ["q"], {}), ("DequantizeLinear", ["q", "ys", "yz"], ["y"], {})],
        "reals": [("Relu", ["sum"], ["y"], {})],
    }
    x, real_bias = ("DequantizeLinear", ["q0", "xs", "xz"], ["x0"], {}), ("DequantizeLinear", ["b", "bs", "bz"], ["b0"], {"axis": 0})
    given = [("QuantizeLinear", ["x", "xs", "xz"], ["q0"], {})]
    kinds = {
        "Conv": (("n", 4, "t"), (6, 4, 3), 0, {"pads": [1, 1], "strides": [2]}, ["x0", "w0", "b0"]),
        "Conv of groups": (("n", 4, "t"), (6, 2, 3), 0, {"pads": [0, 2], "group": 2}, ["x0", "w0"]),
        "MatMul": (("n", "t", 8), (8, 6), 1, {}, ["x0", "w0"]),
        "Gemm": (("n", 8), (6, 8), 0, {"transB": 1}, ["x0", "w0", "b0"]),
    }
    for name, (extents, weights, axis, attrs, operands) in kinds.items():
        tensors = held | {"w": RANDOM.randint(-90, 90, weights).astype("int8")}
        sizes = [tuple({"n": n, "t": t}.get(extent, extent) for extent in extents) for n, t in ((2, 9), (14, 5), (2, 9))]
        calls = [{"x": np.round(real(*size) * 40) / 16} for size in sizes]
        weight = ("DequantizeLinear", ["w", "ws", "wz"], ["w0"], {"axis": axis})
        types = {"x": (extents, calls[0]["x"])}, {"y": (tuple("abc")[: len(extents)], FLOAT)}
        for end, last in ends.items():
            yield f"{name} of bytes to {end}", model([*given, x, weight, real_bias, (name.split()[0], operands, ["sum"], attrs), *last], *types, tensors), calls
        if name in ("Conv", "MatMul"):
            own = (f"QLinear{name}", ["q0", "xs", "xz", "w", "ws", "wz", "ys", "yz", *(["b"] if name == "Conv" else [])], ["q"], attrs)
            yield f"QLinear{name}", model([*given, own, ends["bytes"][1]], *types, tensors), calls


MOVES = {  # operands behind the first one, attributes, rank of the result
    "Expand": (["wide"], {}, 4), "Flatten": ([], {"axis": 2}, 2), "Gather": (["picks"], {"axis": 2}, 4), "Pad": (["widths"], {}, 3),
    "Pad by edges": (["widths"], {"mode": "edge"}, 3), "Pad by a number": (["widths", "number"], {}, 3), "Reshape": (["extents"], {}, 3),
    "Slice": (["from", "to"], {}, 3), "Tile": (["times"], {}, 3), "Transpose": ([], {"perm": [2, 0, 1]}, 3), "Unsqueeze": (["place"], {}, 4),
}  # fmt: skip
MOVED_BY = {
    "wide": [2, 1, 1, 1], "picks": [[0, 3], [7, 1]], "widths": [0, 1, 2, 0, 0, 3], "number": np.float32(0.5), "extents": [0, -1, 4], "from": [0, 0, 1],
    "to": [9, 9, 7], "times": [1, 2, 1], "place": [1], "s": np.float32(0.1), "z": np.uint8(10), "s2": np.float32(0.2),
}  # fmt: skip


def moved_bytes():
    """Bytes that are moved as real numbers, and become bytes again of the same grid, or of another one."""
    calls = [{"x": real(n, t, 8) * 9} for n, t in ((2, 3), (1, 5), (2, 3))]
    for name, (operands, attrs, rank) in MOVES.items():
        for step in ("s", "s2"):
            nodes = [("QuantizeLinear", ["x", "s", "z"], ["q"], {}), ("DequantizeLinear", ["q", "s", "z"], ["a"], {})]
            nodes += [(name.split()[0], ["a", *operands], ["b"], attrs), ("QuantizeLinear", ["b", step, "z"], ["c"], {})]
            nodes += [("DequantizeLinear", ["c", step, "z"], ["y"], {})]
            yield f"{name} of bytes to {step}", model(nodes, {"x": (NT, calls[0]["x"])}, {"y": (tuple("abcd"[:rank]), FLOAT)}, MOVED_BY), calls


def rows():
    """name -> model, inputs of each call."""
    for name, nodes in DOUBLES.items():
        calls = [{"x": real(n, t, 8, dtype="float64")} for n, t in ((2, 3), (1, 5), (2, 3))]
        yield f"float64 {name}", model(nodes, {"x": (NT, calls[0]["x"])}, {"y": (tuple("abc"), DOUBLE)}, HELD), calls
    image = real(2, 3, 12, 14)
    calls = [{"x": image, "r": BOXES * scale, "i": np.array([0, 1, 1])} for scale in (1, 0.5, 1)]
    for ratio, mode in ((0, "avg"), (0, "max"), (2, "max"), (2, "avg")):
        for how in ("half_pixel", "output_half_pixel"):
            attrs = {"output_height": 3, "output_width": 2, "sampling_ratio": ratio, "spatial_scale": 0.7, "mode": mode, "coordinate_transformation_mode": how}
            inputs = {"x": (("n", 3, "h", "w"), image), "r": (("b", 4), BOXES), "i": (("b",), calls[0]["i"])}
            yield f"RoiAlign {ratio} {mode} {how}", model([("RoiAlign", ["x", "r", "i"], ["y"], attrs)], inputs, {"y": (tuple("abcd"), FLOAT)}), calls
    for element_type, low in ((TensorProto.INT4, 0), (TensorProto.UINT4, 8)):
        weights = packed(WEIGHTS + low, element_type, "w")
        tensors = {"w": weights, "s": np.abs(real(4, 6)), "z": packed(np.full((4, 6), low), element_type, "z")}
        nodes = [("DequantizeLinear", ["w", "s", "z"], ["real"], {"axis": 0, "block_size": 2}), ("MatMul", ["x", "real"], ["y"], {})]
        calls = [{"x": real(n, t, 8)} for n, t in ((2, 3), (1, 5), (2, 3))]
        yield f"blocks of four bits, type {element_type}", model(nodes, {"x": (NT, calls[0]["x"])}, {"y": (tuple("abc"), FLOAT)}, tensors), calls
    nodes = [("Cast", ["x"], ["small"], {"to": TensorProto.FLOAT8E4M3FN}), ("Cast", ["small"], ["y"], {"to": FLOAT})]
    calls = [{"x": real(n, t, 8) * np.float32(50)} for n, t in ((2, 3), (1, 5), (2, 3))]
    yield "eight bits", model(nodes, {"x": (NT, calls[0]["x"])}, {"y": (tuple("abc"), FLOAT)}), calls
    few = [{"x": np.sign(real(n, 6)) * np.float32(n), "c": RANDOM.rand(6) > 0.5} for n in (3, 4, 3)]
    shapes = {"x": (("n", 6), few[0]["x"]), "c": ((6,), few[0]["c"])}
    yield "NonZero", model([("Add", ["x", "one"], ["a"], {}), ("NonZero", ["a"], ["b"], {}), ("Cast", ["b"], ["y"], {"to": FLOAT})], {"x": shapes["x"]}, {"y": ((2, "k"), FLOAT)}, {"one": np.float32(3)}), [{"x": call["x"]} for call in few]
    yield "Unique", model([("Unique", ["x"], ["y"], {})], {"x": shapes["x"]}, {"y": (("k",), FLOAT)}), [{"x": call["x"]} for call in few]
    yield "Compress", model([("Compress", ["x", "c"], ["y"], {"axis": 1})], shapes, {"y": (("n", "k"), FLOAT)}), few
    boxes = [{"x": np.sort(RANDOM.rand(2, n, 4).astype("float32"), 2), "s": RANDOM.rand(2, 3, n).astype("float32")} for n in (9, 12, 9)]
    nodes = [("NonMaxSuppression", ["x", "s", "most", "overlap", "least"], ["p"], {}), ("Cast", ["p"], ["y"], {"to": FLOAT})]
    limits = {"most": [3], "overlap": np.float32([0.3]), "least": np.float32([0.6])}
    yield "NonMaxSuppression", model(nodes, {"x": ((2, "n", 4), boxes[0]["x"]), "s": ((2, 3, "n"), boxes[0]["s"])}, {"y": (("k", 3), FLOAT)}, limits), boxes
    attrs = {"direction": "bidirectional", "hidden_size": 5}
    calls = [{"x": real(t, n, 4)} for n, t in ((2, 3), (1, 5), (2, 3))]
    for op, gates in (("GRU", 3), ("LSTM", 4), ("RNN", 1)):
        tensors = {"w": real(2, gates * 5, 4), "r": real(2, gates * 5, 5), "b": real(2, 2 * gates * 5)}
        node = [(op, ["x", "w", "r", "b"], ["y"], attrs)]
        yield f"{op}", model(node, {"x": (("t", "n", 4), calls[0]["x"])}, {"y": (tuple("tdnh"), FLOAT)}, tensors), calls
        how = {"input_forget": 1} if op == "LSTM" else {"clip": 0.5}
        clipped = [(op, ["x", "w", "r", "b"], ["y"], attrs | how)]
        yield f"{op} step by step", model(clipped, {"x": (("t", "n", 4), calls[0]["x"])}, {"y": (tuple("tdnh"), FLOAT)}, tensors), calls
    yield from sums_of_bytes()
    yield from moved_bytes()
    for kind, zero in (("int8", 0), ("uint8", 120)):
        weights = RANDOM.randint(-100, 100, (2, 9, 20)) + zero
        tensors = {
            "w": weights[:, :4].astype(kind), "r": weights[:, 4:].astype(kind), "b": real(2, 40), "z": np.full(2, zero, kind),
            "ws": np.float32([0.01, 0.02]), "rs": np.float32([0.02, 0.01]),
        }  # fmt: skip
        node = ("DynamicQuantizeLSTM", [*"xwrb", *[""] * 4, "ws", "z", "rs", "z"], ["y"], attrs | {"domain": "com.microsoft"})
        calls = [{"x": np.round(real(t, 1, 4) * 40).clip(-127, 127)} for t in (2, 1, 2)]
        yield f"LSTM of {kind}", model([node], {"x": (("t", 1, 4), calls[0]["x"])}, {"y": (tuple("tdnh"), FLOAT)}, tensors), calls


ROWS = {name: (proto, calls) for name, proto, calls in rows()}
WAYS = {"eager": None, "value": {}, "symbolic": {"symbolic": True}, "compiled": {"symbolic": True, "opt_level": 3}}


def given(array):
    return mge.Tensor(array.astype("int32") if array.dtype == np.int64 else array, dtype="float64" if array.dtype == np.float64 else None)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ROWS)
def test_an_operator_is_onnxruntimes(name, way):
    proto, calls = ROWS[name]
    module = load(proto)
    for made in (module, optimize_for_inference(module.eval())):
        called = made if WAYS[way] is None else trace(lambda *tensors, made=made: made(*tensors), **WAYS[way])
        for arrays in calls:
            (want,) = run(proto, *arrays.values())
            found = called(*map(given, arrays.values())).numpy()
            assert found.dtype == want.dtype
            near = 1e-12 if want.dtype == np.float64 else 2e-5
            np.testing.assert_allclose(found, want, rtol=near, atol=near)


@pytest.mark.parametrize("name", MOVES)
def test_bytes_of_one_grid_are_moved_as_they_are(name):
    """What is padded with a number that is not 0 is rounded, as are bytes that get another grid."""
    for step in ("s", "s2"):
        found = load(ROWS[f"{name} of bytes to {step}"][0]).code.count("quantize_linear(")
        assert found == (4 if name == "Pad by a number" or step == "s2" else 2)


@pytest.mark.parametrize(
    "op, attrs, words",
    [
        ("MaxPool", {"kernel_shape": [2, 2]}, "MaxPool of float64: the_MaxPool_0"),
        ("Resize", {"mode": "linear"}, "Resize of float64: the_Resize_0"),
    ],
)
def test_what_does_not_compute_float64_is_refused_by_name(op, attrs, words):
    more = ["", "scales"] if op == "Resize" else []
    tensors = {"scales": np.float32([1, 1, 2, 2])}
    proto = model([(op, ["x", *more], ["y"], attrs)], {"x": ((1, 3, 8, 8), np.ones((1, 3, 8, 8)))}, {"y": (tuple("abcd"), DOUBLE)}, tensors, 18)
    with pytest.raises(OnnxError, match=words):
        load(proto)


@pytest.mark.parametrize("way", WAYS)
def test_a_convolution_computes_float64(way):
    """onnxruntime has none."""
    x, w = np.random.default_rng(0).normal(size=(2, 3, 8, 7)), np.random.default_rng(1).normal(size=(4, 3, 3, 3))
    module = load(model([("Conv", ["x", "w"], ["y"], {})], {"x": ((2, 3, 8, 7), x)}, {"y": (tuple("abcd"), DOUBLE)}, {"w": w}, 18))
    called = module if WAYS[way] is None else trace(lambda x: module(x), **WAYS[way])
    want = np.einsum("nchwij,ocij->nohw", np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3)), w)
    for _ in range(2):
        np.testing.assert_allclose(called(given(x)).numpy(), want, rtol=1e-12, atol=1e-12)


def test_weights_of_four_bits_lie_in_a_file_beside_the_model(tmp_path):
    proto, calls = ROWS[f"blocks of four bits, type {TensorProto.INT4}"]
    proto = copy.deepcopy(proto)
    (want,) = run(proto, calls[0]["x"])
    for tensor in proto.graph.initializer:  # onnx writes raw bytes into the file
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    onnx.save_model(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    np.testing.assert_allclose(load(tmp_path / "m.onnx")(given(calls[0]["x"])).numpy(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT4E2M1"])
def test_all_narrow_numbers_and_what_lies_between(kind):
    """Each value stays, halves go to the even one, and what is above the largest becomes that."""
    element_type = getattr(TensorProto, kind)
    own = helper.tensor_dtype_to_np_dtype(element_type)
    values = np.arange(16 if "4E" in kind[5:8] else 256, dtype=np.uint8).view(np.uint8).astype(np.uint8)
    exact = np.array([code for code in values], np.uint8).view(own).astype(np.float32)
    exact = np.unique(exact[np.isfinite(exact)])
    halves = (exact[1:] + exact[:-1]) / 2
    x = np.concatenate([exact, halves, np.nextafter(halves, np.float32(np.inf)), np.nextafter(halves, np.float32(-np.inf))]).astype(np.float32)
    nodes = [("Cast", ["x"], ["y"], {"to": element_type})]
    proto = model(nodes, {"x": (("n",), x)}, {"y": (("n",), element_type)}, opset=23)
    want = onnx.numpy_helper.saturate_cast(x, own).astype(np.float32)
    np.testing.assert_array_equal(load(proto)(mge.Tensor(x)).numpy(), want)
