"""F8: nodes are added, moved, copied and erased, and users follow."""

import copy
import operator
import pickle

import pytest
from small_modules import names, sum_of_two

import megengine.functional as F
import megengine.module as M
from megengine import fx


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
        fx.GraphError, match=r"cannot erase 'x' \(.*(small_modules|test_f07_lint).py:\d+\): it is used by 'add'"
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


def test_arguments_are_mapped_node_by_node():
    graph, x, y, _ = sum_of_two()
    assert fx.map_arg((x, [y, 1], {"k": slice(x, None)}), str) == (
        "x", ["y", 1], {"k": slice("x", None)},
    )  # fmt: skip
    with pytest.raises(TypeError, match="fn must be callable"):
        fx.map_arg(x, y)
