"""F10: Interpreter and Transformer run a graph node by node."""

import numpy as np
import pytest
from small_modules import Net, tensor

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx


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


def test_errors_name_the_node_and_its_line():
    gm = fx.symbolic_trace(lambda x: F.reshape(x, (7, 7)))
    with pytest.raises(Exception) as caught:  # noqa: PT011 (whatever reshape raises)
        fx.Interpreter(gm).run(tensor(3))
    (note,) = caught.value.__notes__
    assert "'reshape'" in note and "test_f10_interpreter.py:" in note
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


class DropoutRemover(fx.Transformer):
    def call_module(self, target, args, kwargs):
        if isinstance(self.submodules[target], M.Dropout):
            assert len(args) == 1
            return args[0]
        return super().call_module(target, args, kwargs)


def test_a_transformer_removes_all_dropout_and_changes_no_bit():
    net = M.Sequential(M.Linear(4, 4), M.Dropout(0.5), M.Sequential(M.Dropout(0.1), M.ReLU()))
    net.eval()
    removed = DropoutRemover(fx.symbolic_trace(net)).transform()
    assert not any(isinstance(module, M.Dropout) for module in removed.modules())
    np.testing.assert_array_equal(removed(tensor(3, 4)).numpy(), net(tensor(3, 4)).numpy())


def test_what_a_transformer_records_keeps_its_line_and_its_module():
    gm = fx.symbolic_trace(M.Sequential(M.Sequential(M.ReLU())))
    for old, new in zip(gm.graph.nodes, fx.Transformer(gm).transform().graph.nodes, strict=True):
        if old.op == "call_module":
            assert (new.source, new.meta) == (old.source, old.meta) and old.meta["module"] == "0"
