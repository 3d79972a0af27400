"""lint: what is broken is an error with its expr, what is shared is remarked, what trains is refused on demand."""

import pytest
from nets import ConvNet, affine, tensor

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm
from megengine import fx


def net():
    return tm.trace_module(ConvNet(), tensor(1, 3, 4, 4))


def break_result(traced, graph):
    graph.fx_graph._unlink(graph.outputs[0].expr)


def break_user(traced, graph):
    graph.inputs[1].readers.clear()


def break_maker(traced, graph):
    first, second = graph.exprs(recursive=False).as_list()[-2:]
    second.outputs[0].expr = first


def break_names(traced, graph):
    first, second = graph.exprs(recursive=False).as_list()[-2:]
    second.outputs[0]._name = first.outputs[0]._name


def break_module(traced, graph):
    del traced.conv_bn


def break_kind(traced, graph):
    traced.__dict__["bn"] = 3


def break_signature(traced, graph):
    traced.conv_bn.argdef_graph_map.clear()


def break_owner(traced, graph):
    traced.argdef_graph_map.clear()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (break_result, "the result of ConvNet reads .*, which is not in this graph"),
        (break_user, "does not list its user"),
        (break_maker, "which another expr makes"),
        (break_names, "two nodes are called"),
        (break_module, "the module has nothing at 'conv_bn'"),
        (break_kind, "the attribute is of type int, not a Module"),
        (break_signature, "was not traced for such arguments"),
        (break_owner, "TracedModule runs another graph than this one"),
    ],
)
def test_broken_graphs_are_named(damage, says):
    traced = net()
    graph = traced.graph
    assert graph.lint() == []
    damage(traced, graph)
    with pytest.raises(RuntimeError, match=says):
        graph.lint()


class Shared(M.Module):
    """A convolution that is called twice, and whose weight is read as well."""

    def __init__(self):
        super().__init__()
        self.conv = M.Conv2d(3, 3, 1)
        self.scale = mge.Parameter([1.0])

    def forward(self, x):
        return self.conv(self.conv(x)) * self.conv.weight.mean() * self.scale


@pytest.mark.parametrize(
    "traced", [fx.symbolic_trace(Shared()), tm.trace_module(Shared(), tensor(1, 3, 4, 4))]
)
def test_what_is_shared_is_remarked(traced):
    called, read = traced.graph.lint()
    assert called.startswith("'conv' is called by ") and "test_lint.py:" in called
    assert "reads 'conv.weight', which " in read
    traced.__dict__.update(factor=traced.scale, second=traced.conv)
    named, tied, *others = traced.graph.lint()
    assert tied == "'factor' and 'scale' are one Parameter: an edit of one is an edit of all"
    assert named == "'conv' and 'second' are one Conv2d: an edit of one is an edit of all"
    assert others == [called, read]


class Block(M.Module):
    def __init__(self):
        super().__init__()
        self.fc = M.Linear(3, 3)

    def forward(self, x):
        return self.fc(x)


class Twice(M.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(self.block(x))


def test_a_graph_that_is_called_twice_is_remarked():
    (remark,) = tm.trace_module(Twice(), tensor(2, 3)).graph.lint()
    assert remark.startswith("'block' is called by %") and "edit of it changes all" in remark


class Dropped(M.Module):
    def forward(self, x):
        return F.dropout(x, 0.5, training=True)


@pytest.mark.parametrize(
    ("module", "what"),
    [
        (M.Sequential(M.BatchNorm2d(3)), "BatchNorm2d"),
        (M.Sequential(M.Dropout(0.5)), "Dropout"),
        (Dropped(), "dropout"),
    ],
)
def test_what_trains_is_refused_where_a_graph_is_for_inference(module, what):
    graphs = [fx.symbolic_trace(module).graph, tm.trace_module(module, tensor(1, 3, 2, 2)).graph]
    for graph in graphs:
        assert graph.lint() == []
        with pytest.raises(
            RuntimeError, match=f"(?s)is in training mode.*{what}|{what}.*is in training mode"
        ):
            graph.lint(for_inference=True)


def test_what_is_the_same_in_both_modes_is_let_through():
    net = M.Sequential(M.Linear(3, 3), M.Dropout(0.0), M.BatchNorm1d(3, freeze=True), M.ReLU())
    assert fx.symbolic_trace(net).graph.lint(for_inference=True) == []
    assert affine()[1].lint(for_inference=True) == []
    traced = net2 = tm.trace_module(ConvNet().eval(), tensor(1, 3, 4, 4))
    assert traced.graph.lint(for_inference=True) == net2.graph.lint()


def test_a_graph_that_its_module_does_not_run_is_refused():
    gm = fx.symbolic_trace(M.Sequential(M.ReLU()))
    other = fx.Graph(gm)
    other.output(other.placeholder("x"))
    with pytest.raises(fx.GraphError, match="runs another graph than this one"):
        other.lint()
