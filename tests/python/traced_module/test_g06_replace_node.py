"""G6: the users of a node, and the outputs, read another one."""

from nets import Affine, affine, same, tensor


def test_replacing_never_makes_a_loop():
    traced, graph, x, out = affine()
    with graph.insert_exprs():
        doubled = x * 2
    graph.replace_node({x: doubled})
    assert doubled.expr.inputs == [x]
    graph.lint()
    same(traced(tensor(3)), Affine()(tensor(3) * 2))
