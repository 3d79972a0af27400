"""TracedModule: find calls, fold a factor into a layer, insert a call, save and load."""

import os
import tempfile

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = M.Conv2d(3, 16, 1)
        self.bn = M.BatchNorm2d(16)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = self.bn(self.conv(x))
        return F.relu(x) * 8 / 128


net = Net()
net.eval()
x = mge.tensor(np.random.rand(1, 3, 8, 8).astype("float32"))
expected = net(x).numpy()
traced = tm.trace_module(net, x)
graph = traced.graph

divide = graph.get_method_by_type("__truediv__").as_unique()
times = divide.inputs[0].expr
factor = float(times.args[1]) / float(divide.args[1])
bn = graph.get_module_by_type(M.BatchNorm2d).as_unique().owner
assert bn.weight is not None and bn.bias is not None
bn.weight = mge.Parameter(bn.weight * factor)
bn.bias = mge.Parameter(bn.bias * factor)
graph.replace_node({divide.outputs[0]: times.inputs[0]})
graph.compile()

with graph.outputs[0].top_graph.insert_exprs():
    doubled = F.add(graph.outputs[0], graph.outputs[0])
graph.replace_node({graph.outputs[0]: doubled})
graph.compile()
result: mge.Tensor = traced(x)
print(np.abs(result.numpy() - 2 * expected).max() < 1e-5, len(graph.exprs().as_list()))

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "net.tm")
    mge.save(traced, path)
    again: tm.TracedModule = mge.load(path)
    print(again.graph.inputs[1].name, type(again).__name__)
