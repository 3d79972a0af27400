"""G16: formats, lookups by name and id, watching, end points, registration, checks, loaders."""

import pickle

import numpy as np
import pytest
from nets import ConvNet, Scale, same, tensor

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm
from megengine.core.ops import builtin
from megengine.fx import GraphError
from megengine.quantization.utils import create_qparams
from megengine.traced_module import expr as E
from megengine.traced_module import module_tracer, serialization, tm_config, traced_module
from megengine.traced_module.pytree import LeafDef, tree_flatten


@pytest.fixture
def traced():
    net = ConvNet()
    net.eval()
    return tm.trace_module(net, tensor(1, 3, 4, 4))


def test_graphs_print_as_text():
    assert repr(tm.trace_module(Scale(), tensor(2)).graph) == (
        "Scale.Graph (self, x) {\n"
        "\t%2:\tmul_out = x.__mul__(8, )\n"
        "\t%3:\ttruediv_out = mul_out.__truediv__(128, )\n"
        "\treturn truediv_out\n}"
    )


def test_graphs_print_as_tables(capsys):
    graph = tm.trace_module(M.Sequential(Scale()), tensor(2)).graph
    graph.print_tabular()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["kind", "value", "call", "module", "type"]
    assert lines[4:] == [
        'attribute  _0             getattr(self, "0") -> (TracedModule)',
        "module     _0_out         _0(inp)                               Scale   float32[2]",
        "attribute    self",
        "input        x                                                          float32[2]",
        "method       mul_out      x.__mul__(8)                                  float32[2]",
        "method       truediv_out  mul_out.__truediv__(128)                      float32[2]",
        "output     return         return _0_out                                 float32[2]",
    ]


def test_formats_show_ids_and_graphs():
    graph = tm.trace_module(Scale(), tensor(2)).graph
    assert f"{graph:i}".splitlines()[1] == "\t%2:\t%2_mul_out = %1_x.__mul__(8, )"
    assert f"{graph.inputs[1]:p}" == "Scale_x"
    assert f"{graph.inputs[1]:ip}" == "%1_Scale_x"


def test_nodes_and_exprs_are_found_by_name_and_id(traced):
    graph = traced.graph
    (node,) = graph.get_node_by_name("convnet_conv_out").as_list()
    assert node.name == "conv_out"
    assert graph.get_node_by_name("convnet_conv_out", ignorecase=False).as_list() == []
    assert graph.get_node_by_name("*_bn*").as_count() > 3
    assert graph.get_node_by_id(node._id).as_unique() is node
    assert graph.get_expr_by_id(node.expr._id).as_unique() is node.expr
    assert graph.get_expr_by_id([0, 1]).as_count() == 2
    assert [e._id for e in graph.exprs()] == list(range(graph.exprs().as_count()))


def test_a_node_can_be_renamed_to_a_free_name(traced):
    node = traced.graph.outputs[0]
    node.name = "logits"
    assert traced.graph.get_node_by_name("ConvNet_logits").as_unique() is node
    with pytest.raises(AssertionError, match="is the name of another node"):
        node.name = "conv_out"


def test_a_name_given_in_forward_names_the_node():
    class Net(M.Module):
        def forward(self, x):
            y = x + 1
            y.name = "plus"
            return y * 2

    graph = tm.trace_module(Net(), tensor(2)).graph
    assert graph.exprs().as_list()[2].outputs[0].name == "plus"


def test_the_exprs_that_a_node_needs(traced):
    node = traced.graph.get_node_by_name("ConvNet_bn_out").as_unique()
    assert [e.outputs[0].name for e in traced.graph.get_dep_exprs(node)] == [
        "self", "x", "conv", "conv_out", "bn", "bn_out",
    ]  # fmt: skip


def test_an_expr_by_itself_is_given_inputs_and_outputs(traced):
    x = traced.graph.inputs[1]
    expr = E.CallFunction(F.add)
    expr.add_inputs(x)
    expr.add_inputs([x])
    value = F.ones((2, 3))
    expr.add_outputs((value, [value, 3]))
    first, (second, three) = expr.return_val
    assert expr.args == (x, x) and expr in x.readers and expr.outputs == [first, second] and three == 3
    assert first.expr is expr and first.shape == (2, 3) and first.dtype == np.float32
    same(expr.unflatten_args([value])[0][1], value)


def test_an_expr_in_a_graph_reads_more_but_makes_what_it_makes(traced):
    last = traced.graph.outputs[0].expr
    with pytest.raises(ValueError, match="is made after"):
        traced.graph.exprs().as_list()[3].add_inputs(last.outputs[0])
    with pytest.raises(GraphError, match="is in a graph\n  fix: insert another call"):
        last.add_outputs(F.ones(2))


def test_eval_takes_the_arguments_and_interpret_the_module_too(traced):
    x = tensor(1, 3, 4, 4)
    same(traced.graph.eval(x)[0], traced(x))
    same(traced.graph.interpret(traced, x)[0], traced(x))


def test_watch_points_keep_values_of_any_graph(traced):
    inner = traced.conv_bn.graph
    nodes = [traced.graph.get_node_by_name("ConvNet_conv_out").as_unique(), inner.outputs[0]]
    traced.set_watch_points(nodes)
    x = tensor(1, 3, 4, 4)
    traced(x)
    same(traced.watch_node_value[nodes[0]], traced.conv(x))
    assert set(traced.watch_node_value) == set(nodes)
    traced.clear_watch_points()
    assert traced.watch_node_value == {}


def test_calls_end_at_end_points(traced):
    nodes = traced.conv_bn.graph.outputs
    traced.set_end_points(nodes)
    x = tensor(1, 3, 4, 4)
    (value,) = traced(x)
    same(value, traced.conv_bn(traced.bn(traced.conv(x)) * traced.scale))
    traced.clear_end_points()
    assert traced(x).ndim == 2


class Opaque(M.Module):
    def forward(self, x):
        return x * 3


def test_a_registered_module_is_one_expr(monkeypatch):
    monkeypatch.setattr(traced_module, "USER_REGISTERED_MODULE", known := [])
    monkeypatch.setattr(module_tracer, "USER_REGISTERED_MODULE", known)
    assert tm.register_as_builtin(Opaque) is Opaque
    net = M.Sequential(Opaque())
    traced = tm.trace_module(net, tensor(2))
    assert type(getattr(traced, "0")) is Opaque
    same(traced(tensor(2)), tensor(2) * 3)


@tm.wrap
def thrice(x):
    return x + x + x


class Thrice(M.Module):
    def forward(self, x):
        return thrice(x)


def test_a_wrapped_function_is_one_expr_also_in_a_copy():
    traced = pickle.loads(pickle.dumps(tm.trace_module(Thrice(), tensor(2))))
    assert traced.graph.get_function_by_type(thrice).as_count() == 1
    same(traced(tensor(2)), tensor(2) * 3)
    with pytest.raises(AssertionError, match="not at the top of its module"):
        tm.wrap(lambda x: x)


class Box:
    def __init__(self, held):
        self.held = held


class Unboxed(M.Module):
    def forward(self, box):
        return Box(box.held + 1)


def test_a_registered_type_goes_in_and_out():
    tm.register_supported_type(Box, lambda box: ([box.held], None), lambda held, aux: Box(*held))
    traced = tm.trace_module(Unboxed(), Box(tensor(2)))
    same(traced(Box(tensor(2))).held, tensor(2) + 1)
    with pytest.raises(AssertionError, match="go together"):
        tm.register_supported_type(set, lambda x: x)


def test_trees_are_flattened_and_put_together():
    tree = {"a": [tensor(2), 3], "b": (None, tensor(3))}
    leaves, arrangement = tree_flatten(tree)
    assert len(leaves) == 2 and arrangement.num_leaves == 2
    again = arrangement.unflatten(leaves)
    assert again["a"][0] is leaves[0] and again["a"][1] == 3 and again["b"][0] is None
    assert tree_flatten(again)[1] == arrangement and hash(tree_flatten(again)[1]) == hash(
        arrangement
    )
    assert tree_flatten({"a": [tensor(2), 4], "b": (None, tensor(3))})[1] != arrangement
    assert repr(LeafDef(int)) == "int"


class Raw(M.Module):
    def forward(self, x):
        return builtin.apply(builtin.Elemwise(mode="exp"), x)[0]


def test_a_raw_operator_is_one_apply():
    traced = pickle.loads(pickle.dumps(tm.trace_module(Raw(), tensor(2))))
    (_, _, expr) = traced.graph.exprs()
    assert E.is_apply_def(expr, builtin.Elemwise)
    same(traced(tensor(2)), F.exp(tensor(2)))


def test_what_an_expr_is_can_be_asked(traced):
    graph = traced.graph
    assert sum(map(E.is_getattr, graph.exprs(recursive=False))) == 4
    assert sum(E.is_call_module(e, M.BatchNorm2d) for e in graph.exprs()) == 2
    assert sum(E.is_call_tensor_method(e, "reshape") for e in graph.exprs()) == 1
    assert sum(E.is_call_function(e, F.concat) for e in graph.exprs()) == 1
    assert E.is_input(graph.inputs[0].expr) and not any(map(E.is_constant, graph.exprs()))


class Counter(M.Module):
    def __init__(self):
        super().__init__()
        self.calls = [0]

    def forward(self, x):
        return x + Counter.noise()

    @staticmethod
    def noise():
        return mge.tensor(np.zeros(2, np.float32))


def test_a_graph_that_computes_something_else_is_found(monkeypatch):
    run = E.CallMethod.compute
    monkeypatch.setattr(E.CallMethod, "compute", lambda self, a, k: run(self, a, k) + 1)
    with pytest.raises(RuntimeError, match="truediv_out = .*gives another result"):
        tm.trace_module(Scale(), tensor(2))
    monkeypatch.setattr(tm_config, "check_exprs", False)
    tm.enable_expr_checker()
    with pytest.raises(RuntimeError, match="mul_out = .*gives another result"):
        tm.trace_module(Scale(), tensor(2))
    monkeypatch.setattr(tm_config, "check_exprs", False)
    monkeypatch.setattr(tm_config, "check_result", True)
    tm.disable_default_checker()
    tm.trace_module(Scale(), tensor(2))


def test_a_loader_rewrites_what_an_older_release_saved(monkeypatch):
    monkeypatch.setattr(serialization, "TENSORMETHOD_LOADER", {})
    monkeypatch.setattr(traced_module, "__version__", "0.0")

    @serialization.register_tensor_method_loader("__mul__")
    def load(expr):
        expr.set_args_kwargs(expr.args[0], 16)

    data = pickle.dumps(tm.trace_module(Scale(), tensor(2)))
    monkeypatch.undo()
    monkeypatch.setattr(serialization, "TENSORMETHOD_LOADER", {"__mul__": load})
    same(pickle.loads(data)(tensor(2)), tensor(2) * 16 / 128)


class Rounded(M.Module):
    def forward(self, x, qparams):
        return x * qparams.scale, qparams


def test_parameters_of_quantization_are_arguments_and_results():
    qparams = create_qparams(dtype_meta="qint8", scale=mge.tensor(0.5))
    traced = tm.trace_module(Rounded(), tensor(3), qparams)
    other = create_qparams(dtype_meta="qint8", scale=mge.tensor(2.0))
    scaled, given = traced(tensor(3), other)
    same(scaled, tensor(3) * 2)
    assert given == other
    assert other == tree_flatten(other)[1].unflatten(tree_flatten(other)[0])


def test_arguments_of_a_traced_module_have_the_names_of_its_forward():
    graph = tm.trace_module(M.Sequential(Scale()), tensor(2)).graph
    (call,) = graph.get_method_by_type("__call__")
    assert call.named_args == {"self": call.args[0], "x": graph.inputs[1]}
    call.set_arg("x", graph.inputs[1])
    assert call.args == (call.args[0], graph.inputs[1])
