"""G6: the users of a node, and the outputs, read another one."""

from nets import Affine, affine, same, tensor

import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm


def test_replacing_never_makes_a_loop():
    traced, graph, x, out = affine()
    with graph.insert_exprs():
        doubled = x * 2
    graph.replace_node({x: doubled})
    assert doubled.expr.inputs == [x]
    graph.lint()
    same(traced(tensor(3)), Affine()(tensor(3) * 2))


def test_users_and_outputs_read_the_new_node():
    traced, graph, x, out = affine()
    exp = out.expr.inputs[0]
    with graph.insert_exprs():
        new = F.sqrt(exp)
    graph.replace_node({exp: new})
    assert out.expr.inputs == [new] and list(exp.users) == [new.expr]
    same(traced(tensor(3)), F.sqrt(F.exp(tensor(3))) + 1)
    graph.replace_node({out: exp})
    assert graph.outputs == [exp]
    same(traced(tensor(3)), F.exp(tensor(3)))


def test_the_calling_graph_is_not_touched():
    outer = tm.trace_module(M.Sequential(Affine(), M.ReLU()), tensor(3))
    inner = getattr(outer, "0").graph
    text = repr(outer.graph)
    with inner.insert_exprs():
        negative = -inner.outputs[0]
    inner.replace_node({inner.outputs[0]: negative})
    assert repr(outer.graph) == text and (outer(tensor(3)).numpy() == 0).all()
