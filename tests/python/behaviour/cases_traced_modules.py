from functools import partial

import numpy as np

import megengine.functional as F
import megengine.module as M
import megengine.quantization as Q
import megengine.traced_module as tm
from megengine import Parameter, Tensor
from megengine.module.qat import QATModule

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


class Unused(M.Module):
    def __init__(self):
        super().__init__()
        self.used, self.other, self.layers = M.Linear(2, 2), M.Linear(2, 2), M.Sequential(M.Linear(2, 2), M.ReLU())
        self.scale, self.shift, self.buffer = Parameter([1.0]), Parameter([2.0]), Tensor([3.0])

    def forward(self, x):
        return self.used(x) * self.scale


UNUSED = "used", "other", "layers", "scale", "shift", "buffer"


def ask_what_a_traced_module_keeps():
    traced = tm.trace_module(Unused(), Tensor([[1.0, 2.0]]))
    kept = [hasattr(traced, name) for name in UNUSED], sorted(traced.state_dict())
    traced.shift, traced.other = Parameter([4.0]), M.Linear(2, 2)
    return kept, sorted(traced.state_dict()), traced.shift


class UserConv(QATModule):
    def __init__(self):
        super().__init__()
        self.weight = Parameter(np.ones((3, 3, 1, 1), "float32"))

    def forward(self, x):
        return self.apply_quant_activation(F.conv2d(x, self.apply_quant_weight(self.weight)))

    @classmethod
    def from_float_module(cls, float_module):
        return cls()


class UserNet(M.Module):
    def __init__(self, qconfig):
        super().__init__()
        self.block, self.conv = M.Sequential(UserConv()), UserConv()
        for layer in (self.block[0], self.conv):
            layer.set_qconfig(qconfig)

    def forward(self, x):
        return self.conv(self.block(x))


ROUNDING = "is_qat", "act_observer", "act_fake_quant", "weight_observer", "weight_fake_quant", "with_act", "with_weight"


def ask_traced_modules_of_quantization():
    told = []
    for qconfig in (Q.ema_fakequant_qconfig, Q.QConfig(Q.MinMaxObserver, None, partial(Q.FakeQuantize, "qint8"), None)):
        traced = tm.trace_module(UserNet(qconfig), X)
        inner = traced.conv
        calls = [expr.func.__name__ for expr in inner.graph._exprs if isinstance(expr, tm.expr.CallFunction)]
        held = [(name, type(getattr(inner, name)).__name__) for name in ROUNDING]
        flat = [expr.method for expr in traced.flatten().graph._exprs if isinstance(expr, tm.expr.CallMethod)]
        told.append((held, inner.with_act, inner.with_weight, calls, flat))
    return told
