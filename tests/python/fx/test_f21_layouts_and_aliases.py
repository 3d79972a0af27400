"""F21: programs whose values share memory compute the same when they are laid out."""

import copy

import pytest
from inference import Net, X, close, conv, layers, straight

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx
from megengine.fx.experimental.optimization import (
    gen_mkl_autotuner,
    optimize_for_inference,
    use_mkl_length,
)


def write_after(self, x):
    y = self.a(x)
    z = y
    z += 1  # in place: y too
    return self.b(y) + y


def write_a_part(self, x):
    y = F.relu(self.a(x))
    y[:, 0] = 2
    return self.b(y) + y


def write_through_an_identity(self, x):
    y = self.a(x)
    z = self.same(y)
    z *= 2
    return self.b(y) + z


def write_into_the_input(self, x):
    y = self.a(x)
    x += 3
    return y + self.b(x)


def write_by_a_leaf(self, x):
    y = self.a(x)
    return self.writer(y) + self.b(y)


def write_weights(self, x):
    y = self.a(x)
    self.b.weight[...] = self.b.weight * 0.5
    return self.b(y)


def read_weights(self, x):
    return F.conv2d(F.relu(self.a(x)), self.a.weight, padding=1) + self.a.bias


def call_twice(self, x):
    return self.a(F.relu(self.a(x))) + F.relu(self.a(x))


def tied(self, x):
    self.a.weight += 0.25
    return self.b(self.a(x))


def residual_in_place(self, x):
    y = self.b(F.relu(self.a(x)))
    y += x
    return F.relu(y)


def view_then_write(self, x):
    y = self.a(x)
    z = y.reshape(y.shape)
    y += 1
    return self.b(z) + self.b(y)


class Writer(M.Module):
    def forward(self, x):
        x *= 2
        return x + 1


class LeafWriter(fx.Tracer):
    def is_leaf_module(self, m, path):
        return isinstance(m, Writer) or super().is_leaf_module(m, path)


@pytest.mark.parametrize("heuristic", [use_mkl_length, lambda region: True, gen_mkl_autotuner(X, iters=1)], ids=["length", "always", "tuner"])
@pytest.mark.parametrize(
    "body",
    [write_after, write_a_part, write_through_an_identity, write_into_the_input, write_by_a_leaf, write_weights,
     read_weights, call_twice, tied, residual_in_place, view_then_write],
)  # fmt: skip
def test_programs_with_aliases_compute_the_same(body, heuristic):
    net = Net(body, a=conv(), b=conv(), same=M.Identity(), writer=Writer())
    if body is tied:
        net.b.weight = net.a.weight
    twin = copy.deepcopy(net)
    config = {"mkldnn_layout_optimize": {"heuristic": heuristic}, "conv_bn_fuse": False, "remove_dropout": False}
    fast = optimize_for_inference(net, config, tracer=LeafWriter)
    for _ in range(2):  # writes into weights are seen by the second call
        close(fast(mge.tensor(X)), twin(mge.tensor(X)))


def test_a_sum_in_place_that_nobody_else_reads_is_a_sum():
    net = Net(residual_in_place, a=conv(), b=conv())
    fast = optimize_for_inference(net)
    assert layers(fast) == ["MkldnnConv2d", "MkldnnConv2d"] and "+" not in fast.code
    close(fast(mge.tensor(X)), net(mge.tensor(X)))


def test_hooks_are_refused():
    net = straight()
    net.b.register_forward_hook(lambda module, inputs, outputs: outputs * 2)
    with pytest.raises(RuntimeError, match="b has hooks"):
        optimize_for_inference(net)
