"""Loops and conditions: scan, while_loop and cond as ONNX's Scan, Loop and If, in both directions."""

import io

import numpy as np
import onnx
import pytest
from judge import run
from onnx import TensorProto, helper, numpy_helper

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx
from megengine.autodiff import GradManager
from megengine.fx.experimental.optimization import optimize_for_inference
from megengine.jit import trace
from megengine.onnx import OnnxError, export, load

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
NEWEST = min(onnx.defs.onnx_opset_version(), 23)  # what onnxruntime takes
ROWS = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
ONES = np.ones(3, np.float32)


def results_of(found):
    return [part.numpy() for part in (found if isinstance(found, (tuple, list)) else [found])]


def assert_equal(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def all_graphs(graph):
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_graphs(attribute.g)


def ops_of(proto):
    return [node.op_type for graph in all_graphs(proto.graph) for node in graph.node]


# ---- export, and back


class Recurrent(M.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = M.RNNCell(3, 4), M.Linear(4, 70)

    def forward(self, xs):
        def step(h, x):
            h = self.cell(x, h)
            return h, F.softmax(self.head(h))

        return F.scan(step, F.zeros((2, 4)), xs)


def root(a):
    def better(state):
        new = (state[0] + a / state[0]) / 2
        return new, F.abs(new - state[0])

    return F.while_loop(lambda state: state[1] > 1e-5, better, (a, 1.0))[0]


def nested(x):
    def grow(v):
        return F.cond(v.sum() > 50, lambda: v + 10, lambda: F.scan(lambda c, _: (c + x, None), v, length=2)[0])

    return F.while_loop(lambda v: v.sum() < 100, grow, x)


def gradient(xs):
    with GradManager().attach([xs]) as gm:
        gm.backward(F.scan(lambda c, x: (F.matmul(x, c) + c, c.sum()), F.eye(3), xs.transpose(0, 2, 1) @ xs)[0].sum())
    return xs.grad


CASES = {
    "a module": (Recurrent(), [ROWS]),
    "rows": (lambda xs: F.scan(lambda c, x: (c + x, x.sum()), xs[0], xs), [ROWS]),
    "rows from the end": (lambda xs: F.scan(lambda c, x: (c + x, c), xs[0], xs, reverse=True), [ROWS]),
    "no carry": (lambda xs: F.scan(lambda c, x: (None, x + 1), None, xs)[1], [ROWS]),
    "no rows": (lambda x: F.scan(lambda c, _: (c * 2, c + x), x, length=4), [ONES]),
    "no rows, from the end": (lambda x: F.scan(lambda c, _: (c * 2, c + x), x, length=4, reverse=True), [ONES]),
    "no trips": (lambda xs: F.scan(lambda c, x: (c + x, c), xs[0], xs[1:1]), [ROWS]),
    "a carry as it came": (lambda xs: F.scan(lambda c, x: ((c[0], c[0] + x), (c[0], c[0])), (xs[0], xs[1]), xs)[0], [ROWS]),
    "a result that a body reads": (lambda xs: [y := xs.sum(), F.scan(lambda c, x: (c + y, x), y, xs)[0]], [ROWS]),
    "integers and bools": (lambda n: F.while_loop(lambda s: s[1], lambda s: (s[0] * 2, s[0] < 99), (n, True)), [np.array(3, np.int32)]),
    "a root": (root, [np.array(2, np.float32)]),
    "a root at once": (root, [np.array(1, np.float32)]),
    "a bounded loop": (lambda x: F.while_loop(lambda v: v.sum() < 100, lambda v: v * 2, x, max_trips=3), [ONES]),
    "true": (lambda x: F.cond(x.sum() > 0, lambda y: (y, x), lambda y: (x, y + 1), x * 2), [ONES]),
    "false": (lambda x: F.cond(x.sum() < 0, lambda y: F.exp(y), lambda y: F.gelu(x - y), x * 2), [ONES]),
    "one in another": (nested, [ONES]),
    "a gradient": (gradient, [ROWS]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_loop_is_exported_and_comes_back_the_same(name):
    function, arrays = CASES[name]
    expected = results_of(function(*map(mge.Tensor, arrays)))
    proto = export(function, [mge.Tensor(array) for array in arrays])
    assert_equal(run(proto, *arrays), expected)
    module = load(proto)
    module.graph.lint()
    file = io.BytesIO()
    module.save(file)
    file.seek(0)
    for again in (module, fx.load(file), trace(module, symbolic=True, opt_level=3)):
        assert_equal(results_of(again(*map(mge.Tensor, arrays))), expected)
    assert_equal(run(export(module, [mge.Tensor(array) for array in arrays]), *arrays), expected)


@pytest.mark.parametrize("opset", [17, 18, NEWEST])
def test_each_opset_writes_them(opset):
    proto = export(Recurrent(), mge.Tensor(ROWS), opset=opset)
    run(proto, ROWS)
    assert "Scan" in ops_of(proto)


def test_a_loop_is_one_node_however_many_trips_it_has():
    proto = export(root, mge.Tensor(2.0))
    assert ops_of(proto).count("Loop") == 1
    body = next(graph for graph in all_graphs(proto.graph) if graph.name.endswith("body"))
    assert ops_of(proto)[-len(body.node) :] == ["Div", "Add", "Div", "Sub", "Abs", "Greater"]


def test_parameters_that_a_body_reads_stand_in_the_model_under_their_names():
    net = Recurrent()
    proto = export(net, mge.Tensor(ROWS))
    assert {"cell.weight_ih", "head.weight"} <= {tensor.name for tensor in proto.graph.initializer}
    module = load(proto)
    np.testing.assert_array_equal(module.head.weight.numpy(), net.head.weight.numpy())
    assert "Gemm" in ops_of(proto)  # the bias is a part of it, as outside of a body


def test_a_parameter_that_both_branches_read_stands_once():
    w = mge.Parameter(np.ones((3, 70), np.float32))
    proto = export(lambda x: F.cond(x.sum() > 0, lambda: x @ w, lambda: x @ (w * 2)) + w.sum(), mge.Tensor(ROWS[0]))
    assert len(proto.graph.initializer) == 1 and len(load(proto).state_dict()) == 1


def test_no_name_stands_twice_in_a_file():
    proto = export(nested, mge.Tensor(ONES))
    made = [name for graph in all_graphs(proto.graph) for node in graph.node for name in node.output]
    made += [info.name for graph in all_graphs(proto.graph) for info in graph.input]
    assert len(made) == len(set(made))


@pytest.mark.parametrize("length", [1, 4])
def test_trips_and_rows_may_be_open(length):
    def forward(xs):
        last, ys = F.scan(lambda c, x: (c + x * xs[0], c.mean()), xs[0], xs)
        return last, ys, F.scan(lambda c, _: (c + 1, c.sum()), xs[0], length=xs.shape[0], reverse=True)[1]

    proto = export(forward, mge.Tensor(ROWS), dynamic_axes={"xs": {0: "time", 1: "batch"}})
    xs = np.resize(ROWS, (length, 3, 3))
    expected = results_of(forward(mge.Tensor(xs)))
    assert_equal(run(proto, xs), expected)
    assert_equal(results_of(load(proto)(mge.Tensor(xs))), expected)


def test_a_body_that_differs_otherwise_with_an_open_axis_is_refused():
    def forward(xs):
        return F.scan(lambda c, x: (c + x * (1.0 / xs.shape[0]), None), xs[0], xs)[0]

    with pytest.raises(OnnxError, match="a constant of shape .* read by mul: .*test_loops.py"):
        export(forward, mge.Tensor(ROWS), dynamic_axes={"xs": [0]})


def test_what_a_body_does_that_cannot_be_written_is_listed_with_the_line():
    def forward(xs):
        return F.scan(lambda c, x: (F.dropout(c, 0.5) + F.matinv(F.eye(3)), None), F.eye(3), xs)[0]

    with pytest.raises(OnnxError) as error:
        export(forward, mge.Tensor(ROWS))
    for op in ("matinv", "dropout_mask"):
        assert f"{op}: " in str(error.value) and "test_loops.py" in str(error.value)


# ---- import


def info(name, shape=(2, 3), dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model_of(nodes, inputs, outputs, tensors=(), opset=18):
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in dict(tensors).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def looping(nodes, outputs, *, trips="", first="", stacks=(), inputs=(), tensors=(), then="then", after=None):
    """A Loop over the state x. Its body sees trip, goes_on and c, and gives ``then``, new and ``outputs``."""
    body = helper.make_graph(
        nodes, "body", [info("trip", (), INT64), info("goes_on", (), BOOL), info("c")],
        [info(then, (), BOOL), info("new", after or (2, 3)), *(info(name) for name in stacks)],
    )  # fmt: skip
    loop = helper.make_node("Loop", [trips, first, "x"], outputs, "the_loop", body=body)
    shapes = [("a", "b"), *([("t", "a", "b")] * len(stacks))]
    return model_of([loop], [info("x"), *inputs], list(map(info, outputs, shapes)), tensors)


X = ROWS[0]
PASSED = helper.make_node("Identity", ["goes_on"], ["then"])
DOUBLED = helper.make_node("Add", ["c", "c"], ["new"])


def agrees(proto, *arrays):
    found = results_of(load(proto)(*(mge.Tensor(a.astype(np.int32) if a.dtype == np.int64 else a) for a in arrays)))
    assert_equal(found, run(proto, *arrays))


@pytest.mark.parametrize("trips", [0, 1, 4, -2])
def test_a_counted_loop_is_a_scan_and_has_gradients(trips):
    proto = looping([PASSED, DOUBLED, helper.make_node("Neg", ["c"], ["y"])], ["last", "ys"], trips="n", stacks=["y"], tensors={"n": trips})
    agrees(proto, X) if trips >= 0 else None
    x, module = mge.Parameter(X), trace(load(proto), symbolic=True)
    with GradManager().attach([x]) as gm:
        gm.backward(module(x)[0].sum())
    np.testing.assert_array_equal(x.grad.numpy(), np.full_like(X, 2.0 ** max(trips, 0)))


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("trips", [0, 3])
def test_trips_and_condition_may_be_inputs(trips, flag):
    given = [info("n", (), INT64), info("go", (), BOOL)]
    for stacks in ([], ["y"]):
        nodes = [PASSED, DOUBLED, helper.make_node("Cast", ["trip"], ["t"], to=FLOAT), helper.make_node("Add", ["c", "t"], ["y"])]
        outputs = ["last", *(["ys"] if stacks else [])]
        agrees(looping(nodes, outputs, trips="n", first="go", stacks=stacks, inputs=given), X, np.array(trips), np.array(flag))


@pytest.mark.parametrize("limit", ["", "n"])
def test_a_loop_ends_when_its_condition_says_so(limit):
    nodes = [
        DOUBLED,
        helper.make_node("ReduceMax", ["new"], ["most"], keepdims=0),
        helper.make_node("Less", ["most", "bound"], ["then"]),
    ]
    proto = looping(nodes, ["last"], trips=limit, tensors={"n": np.array([3]), "bound": np.float32(100)})
    agrees(proto, X)
    module = load(proto)
    traced = trace(module, symbolic=True)
    for factor in (1.0, 20.0):
        np.testing.assert_array_equal(traced(mge.Tensor(X * factor)).numpy(), module(mge.Tensor(X * factor)).numpy())


@pytest.mark.parametrize("in_direction, out_direction", [(0, 0), (1, 1), (1, 0), (0, 1)])
def test_a_scan_has_axes_and_directions(in_direction, out_direction):
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "a"], ["sum"]), helper.make_node("Mul", ["sum", "b"], ["y"]), helper.make_node("Identity", ["a"], ["z"])],
        "body", [info(name, (2, 3)) for name in "sab"], [info(name, (2, 3)) for name in ("sum", "y", "z")],
    )  # fmt: skip
    scan = helper.make_node(
        "Scan", ["x", "p", "q"], ["last", "ys", "zs"], body=body, num_scan_inputs=2, scan_input_axes=[1, -1],
        scan_input_directions=[in_direction, 1], scan_output_axes=[2, -2], scan_output_directions=[out_direction, 0],
    )  # fmt: skip
    outputs = [info("last"), info("ys", (2, 3, 4)), info("zs", (2, 4, 3))]
    proto = model_of([scan], [info("x"), info("p", (2, 4, 3)), info("q", (2, 3, 4))], outputs)
    p = np.random.default_rng(1).normal(size=(2, 4, 3)).astype(np.float32)
    agrees(proto, X, p, np.moveaxis(p, 1, 2) + 1)


def choosing(else_node, shape=(2, 3), then_node=None, condition=()):
    branches = [
        helper.make_graph([node], "branch", [], [info(node.output[0], extents)])
        for node, extents in ((then_node or helper.make_node("Add", ["x", "w"], ["a"]), (2, 3)), (else_node, shape))
    ]
    node = helper.make_node("If", ["go"], ["y"], "the_choice", then_branch=branches[0], else_branch=branches[1])
    return model_of([node], [info("x"), info("go", condition, BOOL)], [info("y", ("a", "b"))], {"w": X})


@pytest.mark.parametrize("condition", [(), (1,)])
def test_a_branch_is_taken_by_data_and_parameters_are_those_of_the_model(condition):
    proto = choosing(helper.make_node("Mul", ["x", "w"], ["b"]), condition=condition)
    for flag in (True, False):
        agrees(proto, X, np.full(condition, flag))
    module = load(proto)
    assert [node.target for node in module.graph.nodes if node.target is F.cond] == [F.cond]
    assert list(dict(module.named_parameters())) == ["w"]
    for run_it in (module, trace(module, symbolic=True)):
        with GradManager().attach(module.parameters()) as gm:
            gm.backward(run_it(mge.Tensor(X), mge.Tensor(np.full(condition, False))).sum())
        np.testing.assert_array_equal(module.w.grad.numpy(), X)
        module.w.grad = None


@pytest.mark.parametrize("symbolic", [None, False, True])
def test_branches_of_two_shapes_leave_the_graph_of_a_trace(symbolic):
    module = load(choosing(helper.make_node("Transpose", ["x"], ["b"], perm=[1, 0]), shape=(3, 2)))

    def gradient(x, flag):
        with GradManager().attach([x]) as gm:
            y = module(x, flag)
            gm.backward((y * y).sum())
        return x.grad

    called, trained = (module, gradient) if symbolic is None else (trace(module, symbolic=symbolic), trace(gradient, symbolic=symbolic))
    for flag in (True, False, True):
        want = X + X if flag else X.T
        np.testing.assert_array_equal(called(mge.Tensor(X), mge.Tensor(flag)).numpy(), want)
        np.testing.assert_array_equal(trained(mge.Tensor(X), mge.Tensor(flag)).numpy(), 2 * want if flag else 2 * X)


def test_sizes_of_branches_of_two_shapes_are_those_of_the_one_that_runs():
    proto = choosing(helper.make_node("Transpose", ["x"], ["b"], perm=[1, 0]), shape=(3, 2))
    proto.graph.node.append(helper.make_node("Shape", ["y"], ["sizes"]))
    proto.graph.output.append(info("sizes", (2,), INT64))
    for flag in (True, False):
        agrees(proto, X, np.array(flag))


@pytest.mark.parametrize("options", [None, {"symbolic": False}, {"symbolic": True}])
def test_branches_in_a_branch_of_types_that_nothing_tells(options):
    """As voice detectors have them: a chain of conditions on inputs without a known shape."""
    add, square, turned = (helper.make_node(op, inputs, [name], **more) for op, inputs, name, more in (
        ("Add", ["x", "w"], "a", {}), ("Mul", ["x", "x"], "b", {}), ("Transpose", ["x"], "t", {"perm": [1, 0]}),
    ))  # fmt: skip
    branch = lambda node, name: helper.make_graph([node], "branch", [], [info(name, None)])  # noqa: E731
    inner = helper.make_node("If", ["deep"], ["n"], then_branch=branch(square, "b"), else_branch=branch(turned, "t"))
    outer = helper.make_node("If", ["go"], ["y"], then_branch=branch(add, "a"), else_branch=branch(inner, "n"))
    proto = model_of([outer], [info("x", ("p", "q")), info("go", (), BOOL), info("deep", (), BOOL)], [info("y", ("r", "s"))], {"w": X})
    module = load(proto)
    called = module if options is None else trace(module, **options)
    for go, deep in ((True, True), (False, True), (False, False), (True, False)):
        want = X + X if go else X * X if deep else X.T
        np.testing.assert_array_equal(called(mge.Tensor(X), mge.Tensor(go), mge.Tensor(deep)).numpy(), want)


@pytest.mark.parametrize("options", [None, {}, {"symbolic": True}, {"symbolic": True, "without_host": True}])
@pytest.mark.parametrize("inside", [False, True])
def test_a_condition_on_sizes_takes_a_branch_in_each_call(options, inside):
    """Exporters write a squeeze of a tensor of open sizes so. A trace left its graph for it."""
    branch = lambda nodes, name: helper.make_graph(nodes, "branch", [], [info(name, None)])  # noqa: E731
    squeezed, negated = helper.make_node("Squeeze", ["x", "zero"], ["a"]), helper.make_node("Neg", ["x"], ["b"])
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "zero"], ["rows"]),
        helper.make_node("Equal", ["rows", "one"], ["is_one"]),
        helper.make_node("If", ["is_one"], ["same"], then_branch=branch([squeezed], "a"), else_branch=branch([negated], "b")),
        helper.make_node("ReduceSum", ["same"], ["sum"], keepdims=0),
    ]
    if inside:
        largest = helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0)
        nodes = [helper.make_node("If", ["go"], ["sum"], then_branch=branch(nodes, "sum"), else_branch=branch([largest], "most"))]
    inputs = [info("x", ("p", "q")), *([info("go", (), BOOL)] if inside else [])]
    proto = model_of(nodes, inputs, [info("sum", ())], {"zero": np.array([0]), "one": np.array([1])})
    module = load(proto)
    called = module if options is None else trace(module, **options)
    for x in (X, X[:1], X, X[1:]):
        for go in (True, False) if inside else (True,):
            want = (x.sum() if len(x) == 1 else -x.sum()) if go else x.max()
            given = [mge.Tensor(x), *([mge.Tensor(go)] if inside else [])]
            np.testing.assert_allclose(called(*given).numpy(), want, rtol=1e-6)


def test_a_body_in_a_body_reads_from_all_around():
    inner = choosing(helper.make_node("Sub", ["c", "x"], ["b"]), then_node=helper.make_node("Add", ["c", "w"], ["a"])).graph.node[0]
    inner.input[0], inner.output[0] = "even", "new"
    nodes = [
        PASSED,
        helper.make_node("Mod", ["trip", "two"], ["odd"]),
        helper.make_node("Equal", ["odd", "zero"], ["even"]),
        inner,
    ]
    proto = looping(nodes, ["last"], trips="n", tensors={"n": 5, "two": 2, "zero": 0, "w": X + 1})
    agrees(proto, X)
    assert_equal(results_of(trace(load(proto), symbolic=True)(mge.Tensor(X))), run(proto, X))


# ---- states that change, and sequences


def grown(rows=2, trips=3):
    """A state with twice as many rows after each trip. rows: of the input, or a name. trips: None for an input."""
    tensors, inputs = ({}, [info("n", (), INT64)]) if trips is None else ({"n": trips}, [])
    nodes = [PASSED, helper.make_node("Concat", ["c", "c"], ["new"], axis=0)]
    proto = looping(nodes, ["last"], trips="n", tensors=tensors, inputs=inputs, after=("rows", 3))
    proto.graph.input[0].CopyFrom(info("x", (rows, 3)))
    proto.graph.node[0].attribute[0].g.input[2].CopyFrom(info("c", ("before", 3)))
    return proto


def stacked_while(trips="n"):
    nodes = [DOUBLED, helper.make_node("ReduceMax", ["new"], ["most"], keepdims=0), helper.make_node("Less", ["most", "bound"], ["then"])]
    nodes.append(helper.make_node("Neg", ["c"], ["y"]))
    return looping(nodes, ["last", "ys"], trips=trips, stacks=["y"], tensors={"n": 3, "bound": np.float32(100)})


def grown_until():
    """A state that grows until it has more than ten elements."""
    nodes = [
        helper.make_node("Concat", ["c", "c"], ["new"], axis=0),
        helper.make_node("ReduceSum", ["new"], ["sum"], keepdims=0),
        helper.make_node("Less", ["sum", "bound"], ["then"]),
    ]
    return looping(nodes, ["last"], tensors={"bound": np.float32(5)}, after=("rows", 3))


def collected(trips=3):
    """A sequence that takes in a row more after each trip, joined at the end."""
    rows = helper.make_tensor_sequence_value_info("rows", FLOAT, None)
    nodes = [
        PASSED,
        helper.make_node("Cast", ["trip"], ["number"], to=FLOAT),
        helper.make_node("Mul", ["x", "number"], ["row"]),
        helper.make_node("SequenceInsert", ["rows", "row"], ["more"]),
    ]
    body = helper.make_graph(
        nodes, "body", [info("trip", (), INT64), info("goes_on", (), BOOL), rows],
        [info("then", (), BOOL), helper.make_tensor_sequence_value_info("more", FLOAT, None)],
    )  # fmt: skip
    made = [
        helper.make_node("SequenceConstruct", ["x"], ["none"]),
        helper.make_node("Loop", ["n", "", "none"], ["all"], "the_loop", body=body),
        helper.make_node("ConcatFromSequence", ["all"], ["joined"], axis=1),
        helper.make_node("SequenceAt", ["all", "minus"], ["last"]),
        helper.make_node("SequenceLength", ["all"], ["count"]),
    ]
    return model_of(made, [info("x")], [info("joined", (2, "t")), info("last"), info("count", (), INT64)], {"n": trips, "minus": -1})


def parts(**attrs):
    nodes = [
        helper.make_node("SplitToSequence", ["x", *(["sizes"] if "axis" in attrs else [])], ["all"], **attrs),
        helper.make_node("SequenceErase", ["all", "zero"], ["rest"]),
        helper.make_node("SequenceInsert", ["rest", "x", "zero"], ["more"]),
        helper.make_node("SequenceAt", ["more", "zero"], ["first"]),
        helper.make_node("SequenceAt", ["more", "minus"], ["last"]),
        helper.make_node("ConcatFromSequence", ["all"], ["joined"], axis=1, new_axis=int("axis" not in attrs)),
    ]
    outputs = [info("first", ("a", "b")), info("last", ("c", "d") if "axis" in attrs else ("c",)), info("joined", ("e", "f"))]
    return model_of(nodes, [info("x")], outputs, {"zero": 0, "minus": -1, "sizes": np.array([2, 1])})


CHANGING = {
    "a state that grows": (grown(), {}),
    "a state that grows, of open rows": (grown("r"), {}),
    "a state that grows as often as an input says": (grown(2, None), {"trips": np.array(2)}),
    "a state that grows until data says so": (grown_until(), {}),
    "results of as many trips as data allows": (stacked_while(), {}),
    "results of trips without a bound": (stacked_while(""), {}),
    "a sequence that grows": (collected(), {}),
    "a sequence that stays": (collected(0), {}),
    "a sequence of parts": (parts(axis=1), {}),
    "a sequence of rows": (parts(keepdims=0), {}),
}


@pytest.mark.parametrize("options", [None, {"symbolic": False}, {"symbolic": True}, {"symbolic": True, "opt_level": 3}])
@pytest.mark.parametrize("name", CHANGING)
def test_states_that_change_and_sequences(name, options):
    proto, more = CHANGING[name]
    module = load(proto)
    for made in (module, optimize_for_inference(module.eval())):
        called = made if options is None else trace(lambda *given, made=made: made(*given), **options)
        for factor in (1.0, 40.0, 1.0):
            given = [np.abs(X) * np.float32(factor), *more.values()]
            tensors = [mge.Tensor(a.astype(np.int32) if a.dtype == np.int64 else a) for a in given]
            assert_equal(results_of(called(*tensors)), run(proto, *given))


def test_a_state_that_grows_has_gradients():
    x, module = mge.Parameter(X), load(grown())
    for called in (module, trace(module, symbolic=True)):
        with GradManager().attach([x]) as gm:
            gm.backward(called(x).sum())
        np.testing.assert_array_equal(x.grad.numpy(), np.full_like(X, 8))
        x.grad = None


@pytest.mark.parametrize(
    "proto, words",
    [
        (model_of([helper.make_node("SequenceEmpty", [], ["s"]), helper.make_node("SequenceAt", ["s", "n"], ["y"])], [], [info("y", None)], {"n": 4}), "SequenceAt: position 4 of a sequence of 0"),
        (model_of([helper.make_node("SequenceEmpty", [], ["s"]), helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)], [], [info("y", None)]), "ConcatFromSequence: the sequence is empty"),
    ],
)  # fmt: skip
def test_a_sequence_that_lacks_an_element_is_an_error_of_its_node(proto, words):
    with pytest.raises(ValueError, match=words):
        load(proto)()


# ---- refusals


def of_another_dtype():
    proto = looping([PASSED, helper.make_node("Cast", ["c"], ["new"], to=TensorProto.FLOAT16)], ["last"], trips="n", tensors={"n": 3})
    proto.graph.node[0].attribute[0].g.output[1].type.tensor_type.elem_type = TensorProto.FLOAT16
    return proto


def changed(proto, change):
    change(proto.graph.node[0])
    return proto


def plain():
    return looping([PASSED, DOUBLED], ["last"], trips="n", tensors={"n": 3})


def old_scan():
    body = helper.make_graph([helper.make_node("Identity", ["c"], ["new"])], "body", [info("c"), info("r")], [info("new")])
    scan = helper.make_node("Scan", ["", "s", "x"], ["last"], num_scan_inputs=1, body=body)
    return model_of([scan], [info("s", (1, 2, 3)), info("x", (1, 4, 2, 3))], [info("last", (1, 2, 3))], opset=8)


REFUSED = {
    "another dtype": (of_another_dtype, r"not sound|Loop the_loop: the state 'x' comes back(.|\n)*float16"),
    "a name that nothing makes": (lambda: looping([PASSED, helper.make_node("Add", ["c", "no"], ["new"])], ["last"], trips="n", tensors={"n": 3}), "not sound(.|\n)*no"),
    "a body that reads its own loop": (lambda: looping([PASSED, helper.make_node("Add", ["c", "last"], ["new"])], ["last"], trips="n", tensors={"n": 3}), "not sound(.|\n)*last"),
    "too few results": (lambda: changed(plain(), lambda node: node.attribute[0].g.output.pop()), r"Loop the_loop: its graph 'body' has 3 inputs and 1 outputs\n  why: .*3 and 2"),
    "too few inputs": (lambda: changed(plain(), lambda node: node.attribute[0].g.input.pop(0)), "the_loop|not sound"),
    "more results than the body": (lambda: changed(plain(), lambda node: node.output.append("more")), "the_loop|not sound"),
    "no body": (lambda: changed(plain(), lambda node: node.attribute.pop()), "not sound|lacks"),
    "no state": (lambda: changed(plain(), lambda node: node.input.__setitem__(2, "")), "the_loop lacks an input|not sound"),
    "a branch without results": (lambda: changed(choosing(helper.make_node("Neg", ["x"], ["b"])), lambda node: node.attribute[0].g.output.pop()), "If the_choice|not sound"),
    "a branch with more results": (
        lambda: changed(choosing(helper.make_node("Neg", ["x"], ["b"])), lambda node: node.attribute[0].g.output.append(info("a"))),
        "If the_choice: its graph 'branch' has 0 inputs and 2 outputs|not sound",
    ),
    "a result that nothing makes": (lambda: looping([PASSED], ["last"], trips="n", tensors={"n": 3}), "nothing makes the output 'new'|not sound"),
    "a body with an operator that there is not": (
        lambda: looping([PASSED, helper.make_node("StringNormalizer", ["c"], ["new"], "inside")], ["last"], trips="n", tensors={"n": 3}),
        r"1 kinds of nodes have no counterpart\n  StringNormalizer: inside$",
    ),
    "a Scan with an axis for batches": (old_scan, "Scan of opset 8(.|\n)*opset 9"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_loop_that_cannot_be_loaded_says_why(name):
    make, words = REFUSED[name]
    with pytest.raises(OnnxError, match=words) as error:
        load(make())
    assert len(str(error.value).splitlines()) <= 6


@pytest.mark.parametrize("trips", [2**31 - 2, 2**63 - 1])
def test_a_bound_that_is_none_costs_nothing(trips):
    nodes = [
        DOUBLED,
        helper.make_node("ReduceMax", ["new"], ["most"], keepdims=0),
        helper.make_node("Less", ["most", "bound"], ["then"]),
    ]
    agrees(looping(nodes, ["last"], trips="n", tensors={"n": trips, "bound": np.float32(100)}), X)
    load(looping([PASSED, DOUBLED], ["last"], trips="n", tensors={"n": trips}))  # which takes long to run
