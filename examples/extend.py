"""Three ways to add to megjit from outside: an operation with a gradient, a pass over module graphs, a layer that saved files may name.

    python examples/extend.py
"""

import operator

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx
from megengine.autodiff import Function, GradManager
from megengine.jit import trace

# 1. An operation. Made of operations that are there, it needs nothing but a function: it is differentiated, traced and fused.


def swish(x: mge.Tensor) -> mge.Tensor:
    return x * F.sigmoid(x)


# With a gradient of its own, it is a Function: here rounding, whose true gradient is zero, lets gradients pass (Bengio et al. 2013).


class StraightRound(Function):
    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return F.round(x)

    def backward(self, dy: mge.Tensor) -> mge.Tensor:
        return dy


def operation() -> None:
    x = mge.Parameter(np.array([0.4, 0.6, 1.6], "float32"))
    gm = GradManager().attach([x])

    @trace(symbolic=True, opt_level=3)
    def step() -> tuple[mge.Tensor, mge.Tensor]:
        with gm:
            y = StraightRound()(swish(x * 4))
            gm.backward(y.sum())
        assert x.grad is not None
        return y, x.grad

    y, grad = step()
    print("rounded", y.numpy(), "gradient", grad.numpy().round(2))
    print("one kernel for", step.kernels()[0].ops)


# 2. A pass: a function from a module graph to a module graph. This one finds x * sigmoid(x), however it is written, and calls SiLU.


def use_silu(gm: fx.GraphModule) -> tuple[fx.GraphModule, int]:
    def written(x: mge.Tensor) -> mge.Tensor:
        return x * F.sigmoid(x)

    matches = fx.replace_pattern(gm, written, lambda x: F.silu(x))
    return gm, len(matches)


# A pass may also walk the nodes: this one drops multiplications by one.


def drop_times_one(gm: fx.GraphModule) -> fx.GraphModule:
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is operator.mul and 1 in node.args:
            node.replace_all_uses_with(next(arg for arg in node.args if isinstance(arg, fx.Node)))
            gm.graph.erase_node(node)
    gm.graph.lint()
    gm.recompile()
    return gm


def graph_pass() -> None:
    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = M.Linear(4, 4), M.Linear(4, 4)

        def forward(self, x: mge.Tensor) -> mge.Tensor:
            y = self.a(x) * 1
            y = F.sigmoid(y) * y
            return swish(self.b(y))

    net, x = Net(), mge.tensor(np.random.RandomState(0).randn(2, 4).astype("float32"))
    gm, count = use_silu(fx.symbolic_trace(net))
    gm = drop_times_one(gm)
    fx.verify_same(net, gm, x)  # raises, and says by how much, if the pass changed a result
    print(f"{count} patterns replaced;", [node.name for node in gm.graph.nodes])


# 3. A layer of your own in a file: the reader says that it trusts the class.


class Scale(M.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return x * self.factor


class KeepScale(fx.Tracer):
    """Calls of Scale stay single nodes, instead of being traced into."""

    def is_leaf_module(self, module: M.Module, name: str) -> bool:
        return isinstance(module, Scale) or super().is_leaf_module(module, name)


def file() -> None:
    net = M.Sequential(M.Linear(2, 2), Scale(3.0))
    fx.GraphModule(net, KeepScale().trace(net)).save("scaled.mge")
    loaded = fx.load("scaled.mge", trusted=[Scale])
    x = F.ones((1, 2))
    print("loaded:", bool((loaded(x) == net(x)).numpy().all()))


if __name__ == "__main__":
    operation()
    graph_pass()
    file()
