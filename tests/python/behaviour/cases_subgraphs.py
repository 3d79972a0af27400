"""Constants, indices and axes of ops that a program composes."""

import numpy as np

from megengine import Tensor
from megengine.core._imperative_rt.core2 import apply
from megengine.core.ops import builtin
from megengine.core.tensor.utils import subgraph

X = np.arange(6, dtype="float32").reshape(2, 3)


def composed(body):
    op = subgraph("Composed", np.float32, Tensor(0.0).device, 1)(body)()
    return apply(op, Tensor(X))


def ask_constants():
    def body(inputs, f, c):
        made = c(3), c(3, dtype="int32"), c([1, 2], "int32"), c([1, 2]), c(np.array([[1, 2]]))
        return made, (False,) * len(made)

    return composed(body)


def ask_a_constant_as_an_index():
    return composed(lambda inputs, f, c: ((f(builtin.Subtensor([(0, False, False, False, True)]), inputs[0], c(1, dtype="int32")),), (True,)))


def ask_constants_as_bounds():
    def body(inputs, f, c):
        return (f(builtin.Subtensor([(1, True, True, False, False)]), inputs[0], c(0, dtype="int32"), c(2, "int32")),), (True,)

    return composed(body)


def ask_axes_and_modes():
    def body(inputs, f, c):
        return (f(builtin.AddAxis(axis=[0]), inputs[0]), f(builtin.Elemwise("ADD"), inputs[0], c(1)), f("-", inputs[0], c(1))), (True,) * 3

    return composed(body)
