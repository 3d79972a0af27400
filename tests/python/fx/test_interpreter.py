"""Interpreter, Transformer, ShapeProp and drawings (F10, F17)."""

import weakref

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx
from megengine.fx.passes.graph_drawer import FxGraphDrawer
from megengine.fx.passes.shape_prop import ShapeProp


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.drop, self.fc = M.Conv2d(3, 4, 3), M.Dropout(0.5), M.Linear(4, 2)
        self.shift = mge.Parameter(np.ones(2, np.float32))

    def forward(self, x, scale=2.0):
        x = self.drop(F.relu(self.conv(x)))
        a, b = F.split(self.fc(x.mean((2, 3))) * scale + self.shift, 2, axis=1)
        return a - b


def tensor(*shape):
    return mge.tensor(np.random.RandomState(0).randn(*shape).astype(np.float32))


def test_it_gives_the_bits_of_the_module():
    net = Net()
    net.eval()
    gm, x = fx.symbolic_trace(net), tensor(2, 3, 5, 5)
    np.testing.assert_array_equal(fx.Interpreter(gm).run(x).numpy(), net(x).numpy())
    np.testing.assert_array_equal(fx.Interpreter(gm).run(x, 3.0).numpy(), net(x, 3.0).numpy())


@pytest.mark.parametrize(
    ("opcode", "times"),
    [
        ("placeholder", 2),
        ("get_attr", 1),
        ("call_module", 3),
        ("call_function", 7),
        ("call_method", 1),
        ("output", 1),
    ],
)
def test_every_opcode_has_a_method_to_override(opcode, times):
    seen = []

    class Watch(fx.Interpreter):
        pass

    def method(self, target, args, kwargs):
        seen.append(target)
        return getattr(fx.Interpreter, opcode)(self, target, args, kwargs)

    setattr(Watch, opcode, method)
    net = Net()
    net.eval()
    Watch(fx.symbolic_trace(net)).run(tensor(2, 3, 5, 5))
    assert len(seen) == times


def test_values_are_forgotten_after_their_last_use():
    made = []

    class Value:
        pass

    def make(_):
        assert all(ref() is None for ref in made[:-1])
        value = Value()
        made.append(weakref.ref(value))
        return value

    graph = fx.Graph()
    node = graph.placeholder("x")
    for _ in range(4):
        node = graph.call_function(make, (node,))
    graph.output(node)
    gm = fx.GraphModule(M.Module(), graph)
    fx.Interpreter(gm).run(0)
    made.clear()
    gm(0)


def test_errors_name_the_node_and_its_line():
    gm = fx.symbolic_trace(lambda x: F.reshape(x, (7, 7)))
    with pytest.raises(Exception) as caught:  # noqa: PT011 (whatever reshape raises)
        fx.Interpreter(gm).run(tensor(3))
    (note,) = caught.value.__notes__
    assert "'reshape'" in note and "test_interpreter.py:" in note
    with pytest.raises(TypeError, match="no value was given for the input 'x'"):
        fx.Interpreter(gm).run()


def test_known_values_are_not_computed():
    gm = fx.symbolic_trace(lambda x: F.exp(x) + 1)
    (exp,) = [node for node in gm.graph.nodes if node.target is F.exp]
    assert fx.Interpreter(gm).run(0, initial_env={exp: 5}) == 6


def test_a_transformer_records_anew():
    class Relu6(fx.Transformer):
        def call_function(self, target, args, kwargs):
            if target is F.relu:
                return F.minimum(F.maximum(args[0], 0), 6)
            return super().call_function(target, args, kwargs)

    out = Relu6(fx.symbolic_trace(lambda x: F.relu(x) * 2)).transform()
    assert "relu" not in out.code
    np.testing.assert_array_equal(out(mge.tensor([-1.0, 9.0])).numpy(), [0, 12])


def test_a_transformer_that_changes_nothing_keeps_code_and_modules():
    gm = fx.symbolic_trace(Net())
    out = fx.Transformer(gm).transform()
    assert out.code == gm.code and out.conv is gm.conv


def test_shapes_are_noted_in_nodes():
    net, x = Net(), tensor(2, 3, 5, 5)
    gm = fx.symbolic_trace(net)
    ShapeProp(gm).propagate(x)
    nodes = {node.name: node for node in gm.graph.nodes}
    assert nodes["conv"].shape == nodes["conv"].meta["tensor_meta"].shape == (2, 4, 3, 3)
    assert nodes["conv"].dtype == np.float32 and nodes["fc"].meta["tensor_meta"].device == "xpux:0"
    assert [meta.shape for meta in nodes["split"].meta["tensor_meta"]] == [(2, 1), (2, 1)]
    assert "tensor_meta" not in nodes["scale"].meta and nodes["scale"].meta["type"] is float


def test_drawings_show_nodes_edges_and_shapes(tmp_path):
    gm = fx.symbolic_trace(Net())
    ShapeProp(gm).propagate(tensor(2, 3, 5, 5))
    drawn = FxGraphDrawer(gm, "net").get_dot_graph()
    assert '"x" -> "conv"' in drawn and "float32[2, 4, 3, 3]" in drawn.to_string()
    drawn.write(tmp_path / "net.dot")
    assert (tmp_path / "net.dot").read_text() == drawn
    assert "shift" not in FxGraphDrawer(gm, "net", ignore_getattr=True).get_dot_graph()


def test_a_picture_without_graphviz_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    drawn = FxGraphDrawer(fx.symbolic_trace(lambda x: x), "g").get_dot_graph()
    with pytest.raises(RuntimeError, match="Graphviz"):
        drawn.write_svg(tmp_path / "g.svg")
