import numpy as np

import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm
from megengine import Tensor

X = Tensor(np.linspace(0.1, 0.9, 12).reshape(1, 3, 2, 2).astype("float32"))


class Inner(M.Module):
    def __init__(self):
        super().__init__()
        self.conv = M.Conv2d(3, 3, 1)

    def forward(self, x):
        return F.relu(self.conv(x))


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        x = self.inner(x)
        a, b, c = F.split(x, 3, axis=1)
        y = F.avg_pool2d(a, kernel_size=2, stride=1) + b
        return F.concat([y, c], axis=1).mean(axis=1, keepdims=True) + F.softmax(x, axis=1).max() + F.zeros(1)


TRACED = tm.trace_module(Net(), X)  # held: graphs of the original know their module weakly


def is_a_call(expr):
    return isinstance(expr, tm.expr.CallFunction) or isinstance(expr, tm.expr.CallMethod) and expr.method != "__call__"


def ask_arguments_by_position_with_defaults():
    calls = [expr for expr in TRACED.graph.exprs() if is_a_call(expr)]
    return [repr((expr.args, sorted(expr.kwargs.items()))) for expr in calls], [repr(sorted(expr.named_args.items(), key=str)) for expr in calls]


def ask_ids_of_exprs_and_their_results():
    return [(type(expr).__name__, expr._id, [node._id for node in expr.outputs]) for expr in TRACED.graph.exprs()]


def ask_where_nodes_were_made():
    return [node.qualname for node in TRACED.graph.nodes()]


def ask_texts_of_calls():
    net = M.Sequential(Inner())
    lines = str(tm.trace_module(net, X)[0].graph).splitlines() + str(TRACED.graph).splitlines()
    return [line.strip() for line in lines if "Module)" not in line and "return" not in line and "split" not in line]


def ask_arguments_replaced():
    class Pooled(M.Module):
        def forward(self, x):
            return F.avg_pool2d(x, 2) + F.dropout(x, 0.5, training=False).sum(axis=1)

    traced = tm.trace_module(Pooled(), X)
    pool = traced.graph.get_function_by_type(F.avg_pool2d).as_unique()
    pool.set_arg("kernel_size", 1)
    total = traced.graph.get_method_by_type("sum").as_unique()
    total.set_args_kwargs(total.args[0], keepdims=True)
    return repr(pool.args), repr(total.args), traced(X)


def ask_an_argument_that_a_function_does_not_take():
    pool = TRACED.graph.get_function_by_type(F.avg_pool2d).as_unique()
    pool.set_args_kwargs(pool.args[0], 2, steps=1)


def ask_what_a_node_depends_on():
    node = TRACED.graph.get_function_by_type(F.avg_pool2d).as_unique().outputs[0]
    return sorted(expr._id for expr in TRACED.graph.get_dep_exprs(node))


def ask_inserted_and_added_nodes():
    traced = tm.trace_module(Net(), X)
    graph = traced.graph
    with graph.insert_exprs():
        y = F.relu(graph.outputs[0]) * 2
    return y.qualname, y.expr.inputs[0].qualname, y._id - y.expr.inputs[0]._id, graph.add_input_node((1, 2), name="more").qualname


def ask_what_runs():
    return [type(expr).__name__ for expr in TRACED.graph._exprs]
