"""G9: `compile` drops what outputs do not need."""

from nets import affine, tensor

import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm


def test_compile_removes_what_no_output_needs_and_does_no_more_the_second_time():
    _, graph, x, out = affine()
    with graph.insert_exprs():
        F.exp(F.exp(x))
    kept = out.expr
    assert graph.exprs().as_count() == 6
    for _ in range(2):
        graph.compile()
        assert graph.exprs().as_count() == 4 and kept in list(graph.exprs())


def test_an_expr_can_be_kept_through_compile():
    _, graph, x, out = affine()
    with graph.insert_exprs():
        unused = F.cos(x)
    unused.expr.disable_remove()
    graph.compile()
    assert graph.get_function_by_type(F.cos).as_unique() is unused.expr
    unused.expr.enable_remove()
    graph.compile()
    assert graph.get_function_by_type(F.cos).as_count() == 0


def test_compile_merges_reads_of_one_attribute():
    traced = tm.trace_module(M.Sequential(M.ReLU()), tensor(2))
    graph = traced.graph
    with graph.insert_exprs():
        out = getattr(graph.inputs[0], "0")(graph.outputs[0])
    graph.replace_node({graph.outputs[0]: out})
    graph.compile()
    assert graph.get_module_by_type(M.ReLU).as_count() == 1
    assert len(graph.get_module_by_type(M.ReLU).as_unique().users) == 2
