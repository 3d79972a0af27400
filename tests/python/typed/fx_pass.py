"""A pass over a graph of fx: relu becomes relu6, and a layer is seen by its class."""

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx
from megengine.fx.experimental.optimization import fuse


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = M.Conv2d(3, 4, 3)
        self.bn = M.BatchNorm2d(4)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return F.relu(self.bn(self.conv(x))) + 1


def use_relu6(graph_module: fx.GraphModule) -> int:
    """How many calls it changed."""
    changed = 0
    graph = graph_module.graph
    for node in graph.nodes:
        if node.op == "call_function" and node.target is F.relu:
            with graph.inserting_after(node):
                new = graph.call_function(F.relu6, node.args, node.kwargs)
            node.replace_all_uses_with(new)
            graph.erase_node(node)
            changed += 1
    graph.lint()
    graph_module.recompile()
    return changed


net = Net()
net.eval()
graph_module = fx.symbolic_trace(net)
assert use_relu6(graph_module) == 1
modules = dict(graph_module.named_modules())
layers = [modules[str(node.target)] for node in graph_module.graph.nodes if node.op == "call_module"]
print([type(layer).__name__ for layer in layers], graph_module.code.count("relu6"))

x = mge.tensor(np.ones((1, 3, 8, 8), "float32"))
ours: mge.Tensor = graph_module(x)
fused: mge.Tensor = fuse(graph_module)(x)
print(abs(ours - fused).max().item() < 1e-4, ours.shape)


def clipped(v: mge.Tensor) -> mge.Tensor:
    return F.clip(v, 0, 6)


matches = fx.replace_pattern(graph_module, F.relu6, clipped)
print(len(matches), [node.name for node in graph_module.graph.nodes][-1])
