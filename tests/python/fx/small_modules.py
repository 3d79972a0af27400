"""Modules and programs that the tests of fx trace."""

import operator

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx


def tensor(*shape):
    return mge.tensor(np.random.RandomState(0).randn(*shape).astype(np.float32))


def same(a, b):
    np.testing.assert_array_equal(a.numpy(), b.numpy())


def ops(gm):
    return [(node.op, node.target) for node in gm.graph.nodes]


def names(graph):
    return [node.name for node in graph.nodes]


def sum_of_two():
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    add = graph.call_function(operator.add, (x, y))
    graph.output(add)
    return graph, x, y, add


class Affine(M.Module):
    def __init__(self):
        super().__init__()
        self.scale = mge.Parameter(np.full(4, 2, np.float32))
        self.layers = [M.Linear(4, 4), M.ReLU()]
        self.shifts = [mge.tensor(np.ones(4, np.float32))]

    def forward(self, x, flag=True):
        for layer in self.layers:
            x = layer(x)
        return (self.shifts[0] + self.scale.reshape(1, 4) * x).sum(axis=-1)


class Calls(M.Module):
    """Modules a, b, ... and a forward given as a function of the module and x."""

    def __init__(self, forward, **modules):
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)
        self.__dict__["_program"] = forward

    def forward(self, x):
        return self._program(self, x)


def warmed(net, *shape):
    """In eval mode, with running statistics, scales and shifts that are not the initial ones."""
    for module in net.modules():
        if getattr(module, "running_mean", None) is not None:
            module.running_mean[...] = mge.tensor(
                RNG.randn(*module.running_mean.shape).astype(np.float32)
            )
            module.running_var[...] = mge.tensor(
                RNG.rand(*module.running_var.shape).astype(np.float32) + 0.5
            )
            if module.affine:
                module.weight[...] = mge.tensor(
                    RNG.rand(*module.weight.shape).astype(np.float32) + 0.5
                )
                module.bias[...] = mge.tensor(RNG.randn(*module.bias.shape).astype(np.float32))
    net.eval()
    return net


def close(a, b, rtol=1e-4):
    scale = np.abs(b.numpy()).max()
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=rtol, atol=rtol * scale)


def norms(net):
    return sum("BatchNorm" in type(module).__name__ for module in net.modules())


RNG = np.random.RandomState(0)


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.drop, self.fc = M.Conv2d(3, 4, 3), M.Dropout(0.5), M.Linear(4, 2)
        self.shift = mge.Parameter(np.ones(2, np.float32))

    def forward(self, x, scale=2.0):
        x = self.drop(F.relu(self.conv(x)))
        a, b = F.split(self.fc(x.mean((2, 3))) * scale + self.shift, 2, axis=1)
        return a - b
