"""Graph, Node and generated code: text, edits, checks and files (F3, F4, F5, F7, F8)."""

import copy
import operator
import pickle

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx


def tensor(*shape):
    return mge.tensor(np.random.RandomState(0).randn(*shape).astype(np.float32))


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.linear = M.Linear(4, 4)
        self.spare = M.ReLU()

    def forward(self, x):
        return F.topk(F.sum(F.relu(self.linear(x + self.linear.weight)), axis=-1), 3)


def sum_of_two():
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    add = graph.call_function(operator.add, (x, y))
    graph.output(add)
    return graph, x, y, add


def names(graph):
    return [node.name for node in graph.nodes]


def test_the_table():
    graph = fx.symbolic_trace(Net()).graph
    assert graph.tabular().splitlines() == [
        "opcode         name           target                     args                kwargs",
        "-------------  -------------  -------------------------  ------------------  ------------",
        "placeholder    x              x                          ()                  {}",
        "get_attr       linear_weight  linear.weight              ()                  {}",
        "call_function  add            <built-in function add>    (x, linear_weight)  {}",
        "call_module    linear         linear                     (add,)              {}",
        "call_function  relu           megengine.functional.relu  (linear,)           {}",
        "call_function  sum_1          megengine.functional.sum   (relu,)             {'axis': -1}",
        "call_function  topk           megengine.functional.topk  (sum_1, 3)          {}",
        "output         output         output                     (topk,)             {}",
    ]
    assert {node.op for node in graph.nodes} <= set(fx.node.OPCODES)


def test_code_frees_values_after_their_last_use():
    gm = fx.symbolic_trace(lambda x, y: (x * y).sum() + y)
    assert gm.code == (
        "def forward(self, x, y):\n"
        "    mul = x * y;  x = None\n"
        "    sum_1 = mul.sum();  mul = None\n"
        "    add = sum_1 + y;  sum_1 = y = None\n"
        "    return add\n"
    )


def test_inputs_keep_their_names():
    gm = fx.symbolic_trace(lambda input, class_=2: input * class_)
    assert "def forward(self, input, class_ = 2):\n    input_1 = input;  input = None" in gm.code
    assert gm(input=3, class_=4) == 12


@pytest.mark.parametrize(
    "value", [1.5, -2, float("inf"), "a'b", None, (1,), [1, {"k": 2}], slice(1, None), Ellipsis, np.float32, F.relu]
)  # fmt: skip
def test_constants_of_all_kinds_are_written(value):
    graph = fx.Graph()
    graph.output(graph.call_function(fx.map_arg, (value, str)))
    assert repr(fx.GraphModule(M.Module(), graph)()) == repr(value)


def test_operators_keep_their_meaning():
    program = lambda x: (-x) ** 2 @ x - (x < 3) + (-1) ** x + ~(x > 1) + abs(x)[0]  # noqa: E731

    class Number(int):
        def __matmul__(self, other):
            return Number(self + other)

        def __getitem__(self, index):
            return self

        __pow__ = lambda self, other: Number(int(self) ** other)  # noqa: E731
        __neg__ = lambda self: Number(-int(self))  # noqa: E731
        __abs__ = lambda self: self  # noqa: E731

    assert fx.symbolic_trace(program)(Number(3)) == program(Number(3))


def test_a_changed_target_is_what_runs():
    gm = fx.symbolic_trace(lambda x, y: F.add(x, y))
    for node in gm.graph.nodes:
        if node.target is F.add:
            node.target = F.mul
    gm.graph.lint()
    assert "functional.mul" in gm.recompile()
    np.testing.assert_array_equal(gm(tensor(3), tensor(3)).numpy(), tensor(3).numpy() ** 2)


def test_nodes_go_to_the_insertion_point():
    graph, x, _, add = sum_of_two()
    with graph.inserting_before(add):
        graph.call_function(operator.neg, (x,))
    with graph.inserting_after(add):
        graph.call_method("sum", (add,))
    graph.inserting_before(x)
    graph.get_attr("w")
    assert names(graph) == ["w", "x", "y", "neg", "add", "sum_1", "output"]


def test_erasing_a_used_node_names_its_users():
    graph, x, y, add = sum_of_two()
    with pytest.raises(
        fx.GraphError, match=r"cannot erase 'x' \(.*test_graph.py:\d+\): it is used by 'add'"
    ):
        graph.erase_node(x)
    add.replace_all_uses_with(y)
    graph.erase_node(add)
    with pytest.raises(fx.GraphError, match="not in this graph"):
        graph.erase_node(add)
    assert names(graph) == ["x", "y", "output"] and not x.users


def test_uses_follow_edits():
    graph, x, y, add = sum_of_two()
    add.replace_input_with(y, x)
    assert add.all_input_nodes == [x] and not y.users and list(x.users) == [add]
    add.update_arg(1, y)
    add.update_kwarg("k", x)
    add.insert_arg(0, 7)
    assert add.args == (7, x, y) and list(y.users) == [add]
    assert add.replace_all_uses_with(x, lambda user: False) == [] and len(add.users) == 1


def test_nodes_move():
    graph, x, y, add = sum_of_two()
    x.append(add)
    assert names(graph) == ["x", "add", "y", "output"] and add.next is y and add.prev is x
    add.prepend(y)
    graph.lint()


def test_copies_of_graphs_and_nodes():
    graph, x, y, add = sum_of_two()
    add.meta["mark"] = 1
    copied = copy.deepcopy(graph)
    assert str(copied) == str(graph) and copied.nodes.__len__() == 4
    assert [node.meta for node in copied.nodes] == [{}, {}, {"mark": 1}, {}]
    other = fx.Graph()
    a = other.placeholder("a")
    assert str(other.graph_copy(graph, {x: a, y: 3})) == "add"
    again = other.node_copy(add, lambda node: a)
    assert again.name == "add_1" and again.args == (a, a)
    with pytest.raises(fx.GraphError, match="a node of another graph"):
        other.call_function(operator.neg, (x,))
    assert list(x.users) == [add]
    with pytest.raises(TypeError, match="copy or save its graph"):
        copy.deepcopy(add)


def test_dead_code_goes_and_effects_stay():
    gm = fx.symbolic_trace(lambda x, y: (F.exp(x) * y, x)[1])
    assert gm.graph.eliminate_dead_code() and names(gm.graph) == ["x", "y", "output"]
    assert not gm.graph.eliminate_dead_code()
    training = fx.symbolic_trace(Dead())
    assert not training.graph.eliminate_dead_code()
    training.eval()
    assert training.graph.eliminate_dead_code()


class Dead(M.Module):
    def __init__(self):
        super().__init__()
        self.bn = M.BatchNorm2d(3)

    def forward(self, x):
        self.bn(x)
        return x


def break_order(graph, x, y, add):
    graph.move(add, before=y)


def break_by_cycle(graph, x, y, add):
    add.args = (add, y)


def break_by_erased_input(graph, x, y, add):
    neg = graph.call_function(operator.neg, (x,))
    graph.erase_node(neg)
    add.args = (neg, y)


def break_names(graph, x, y, add):
    add.name = "x"


def break_output(graph, x, y, add):
    graph.call_function(operator.neg, (x,))


def break_inputs(graph, x, y, add):
    graph.move(y, before=graph.following(add))
    add.args = (x, x)


def break_function(graph, x, y, add):
    add.target = "add"


def break_method(graph, x, y, add):
    with graph.inserting_after(add):
        graph.call_method("sum")


def break_attribute(graph, x, y, add):
    graph.inserting_after(y)
    graph.get_attr("nothing")


def break_module(graph, x, y, add):
    graph.inserting_after(y)
    graph.call_module("weight", (x,))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (break_order, "'add' .*reads 'y' before it is made"),
        (break_by_cycle, "'add' .*reads its own result"),
        (break_by_erased_input, "'add' .*reads 'neg', which is not in this graph"),
        (break_names, "two nodes are called 'x'"),
        (break_output, "'neg' .*stands after the output"),
        (break_inputs, "the input 'y' .*stands after other nodes"),
        (break_function, "'add' .*calls 'add', which is not callable"),
        (break_method, "'sum_1' .*calls a method of nothing"),
        (break_attribute, "'nothing' .*the module has nothing at 'nothing'"),
        (break_module, "'weight' .*is a Parameter, not a module"),
    ],
)
def test_lint_finds_broken_graphs(damage, says):
    graph, *nodes = sum_of_two()
    graph.owning_module = M.Linear(2, 2)
    graph.lint()
    damage(graph, *nodes)
    with pytest.raises(fx.GraphError, match=says):
        graph.lint()


def test_code_of_a_cycle_is_refused():
    gm = fx.symbolic_trace(lambda x: F.exp(x))
    (exp,) = [node for node in gm.graph.nodes if node.op == "call_function"]
    exp.args = (exp,)
    with pytest.raises(fx.GraphError, match=r"'exp' \(.*test_graph.py:\d+\) reads its own result"):
        gm.recompile()


def test_unknown_opcodes_and_wrong_targets_are_refused():
    graph = fx.Graph()
    with pytest.raises(
        ValueError, match="unknown opcode 'call'.*\n.*placeholder, get_attr, call_function"
    ):
        graph.create_node("call", "f")
    with pytest.raises(ValueError, match="must be callable, got 'f'"):
        graph.call_function("f")
    with pytest.raises(ValueError, match="must be a str"):
        graph.call_module(F.relu)
    assert len(graph) == 0


def test_arguments_cannot_be_changed_behind_the_graph():
    graph, x, y, _ = sum_of_two()
    node = graph.call_function(F.concat, ([x, y],))
    with pytest.raises(TypeError, match="assign a new tree"):
        node.args[0].append(x)


def test_graphs_are_saved_as_they_are():
    gm = fx.symbolic_trace(lambda x: F.concat([x, x[1:]], axis=0))
    graph = pickle.loads(pickle.dumps(gm.graph))
    assert str(graph) == str(gm.graph)
    graph.lint()
    assert str(pickle.loads(pickle.dumps(fx.Graph()))) == "graph():"


def test_10_000_nodes_are_quick():
    graph = fx.Graph()
    node = graph.placeholder("x")
    for _ in range(10_000):
        node = graph.call_function(operator.neg, (node,))
    graph.output(node)
    graph.lint()
    gm = fx.GraphModule(M.Module(), graph)
    assert gm(3) == 3 and copy.deepcopy(gm)(3) == 3


def test_text_in_a_graph_is_never_run_as_code():
    graph = fx.Graph()
    hostile = 'a"), print("run"), ("'
    x = graph.placeholder(hostile)
    graph.get_attr(hostile)
    graph.call_method(f"sum(); {hostile}", (x,))
    graph.output(graph.call_function(operator.add, (x, x), {hostile: 1, "class": 2}))
    code = compile(graph.python_code("self").src, "test", "exec")
    assert "print" not in {
        *code.co_names,
        *next(c for c in code.co_consts if hasattr(c, "co_names")).co_names,
    }
    x.name = "y; print()"
    with pytest.raises(fx.GraphError, match="no name of a variable"):
        graph.python_code()
