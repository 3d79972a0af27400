"""Modules that the tests of traced_module trace."""

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm


def tensor(*shape, seed=0):
    return mge.tensor(np.random.RandomState(seed).rand(*shape).astype(np.float32))


class ConvNet(M.Module):
    """Convolutions and normalizations, some in a Sequential, a parameter, shapes that are read."""

    def __init__(self):
        super().__init__()
        self.conv = M.Conv2d(3, 4, 1, bias=False)
        self.bn = M.BatchNorm2d(4)
        self.conv_bn = M.Sequential(M.Conv2d(4, 4, 1, bias=False), M.BatchNorm2d(4))
        self.scale = mge.Parameter(np.full((1, 4, 1, 1), 0.5, np.float32))

    def forward(self, x):
        x = self.bn(self.conv(x)) * self.scale
        y = F.concat((x, self.conv_bn(x)), 1)
        n = y.shape[0]
        return F.relu(y).reshape(n, -1)


class Scale(M.Module):
    def forward(self, x):
        x = x * 8
        return x / 128


class Affine(M.Module):
    def forward(self, x):
        return F.exp(x) + 1


def same(actual, expected, **tolerance):
    np.testing.assert_allclose(
        actual.numpy(), expected.numpy(), **{"rtol": 1e-5, "atol": 1e-6, **tolerance}
    )


def affine():
    """exp(x) + 1, its graph, and its nodes x and exp(x) + 1."""
    traced = tm.trace_module(Affine(), tensor(3))
    return traced, traced.graph, traced.graph.inputs[1], traced.graph.outputs[0]
