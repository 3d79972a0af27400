"""Folding of batch normalization, removal of dropout, parts of graphs (F12 to F16, F22)."""

import copy
import itertools

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx
from megengine.fx.experimental.optimization import (
    UnionFind,
    extract_subgraph,
    fuse,
    matches_module_pattern,
    remove_dropout,
    replace_node_module,
)
from megengine.utils.fusion import fuse_conv_bn_eval, fuse_conv_bn_weights

RNG = np.random.RandomState(0)


def tensor(*shape):
    return mge.tensor(RNG.randn(*shape).astype(np.float32))


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


class Calls(M.Module):
    """Modules a, b, ... and a forward given as a function of the module and x."""

    def __init__(self, forward, **modules):
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)
        self.__dict__["_program"] = forward

    def forward(self, x):
        return self._program(self, x)


CONVS = {
    "1d": (lambda **kw: M.Conv1d(4, 6, 3, **kw), M.BatchNorm1d, (2, 4, 7)),
    "2d": (lambda **kw: M.Conv2d(4, 6, 3, **kw), M.BatchNorm2d, (2, 4, 7, 7)),
    "3d": (lambda **kw: M.Conv3d(4, 6, 3, **kw), M.SyncBatchNorm, (2, 4, 5, 5, 5)),
    "2d grouped": (lambda **kw: M.Conv2d(4, 6, 3, groups=2, **kw), M.BatchNorm2d, (2, 4, 7, 7)),
    "2d depthwise": (lambda **kw: M.Conv2d(4, 4, 3, groups=4, **kw), M.BatchNorm2d, (2, 4, 7, 7)),
}


@pytest.mark.parametrize(
    ("kind", "bias", "affine"), list(itertools.product(CONVS, (True, False), (True, False)))
)
def test_a_folded_convolution_computes_both(kind, bias, affine):
    make, norm, shape = CONVS[kind]
    conv = make(bias=bias)
    net = warmed(M.Sequential(conv, norm(conv.out_channels, affine=affine)), *shape)
    x = tensor(*shape)
    fused = fuse_conv_bn_eval(net[0], net[1])
    close(fused(x), net(x), rtol=1e-5)
    close(fuse(net)(x), net(x), rtol=1e-5)
    assert norms(fuse(net)) == 0 and fused.bias.shape == conv._infer_bias_shape()


def test_weights_may_be_given_without_bias_scale_and_shift():
    weight, mean, var = tensor(6, 4, 3, 3), tensor(6), F.abs(tensor(6))
    new_weight, new_bias = fuse_conv_bn_weights(weight, None, mean, var, 1e-5, None, None)
    factor = 1 / np.sqrt(var.numpy() + 1e-5)
    np.testing.assert_allclose(
        new_weight.numpy(), weight.numpy() * factor[:, None, None, None], rtol=1e-5
    )
    np.testing.assert_allclose(new_bias.numpy().ravel(), -mean.numpy() * factor, rtol=1e-5)
    assert new_bias.shape == (1, 6, 1, 1) and isinstance(new_bias, mge.Parameter)


def test_folding_needs_eval_mode():
    net = M.Sequential(M.Conv2d(1, 1, 1), M.BatchNorm2d(1))
    with pytest.raises(AssertionError, match="(?s)Fusion only for eval.*model.eval()"):
        fuse(net)


def test_the_model_stays_as_it_was():
    net = warmed(M.Sequential(M.Conv2d(3, 4, 1), M.BatchNorm2d(4)))
    before = copy.deepcopy(net.state_dict())
    for inplace in (False, True):
        fused = fuse(net, inplace)
        assert norms(net) == 1 and norms(fused) == 0
    for key, value in net.state_dict().items():
        np.testing.assert_array_equal(value, before[key])


def test_a_convolution_that_two_read_stays():
    def forward(self, x):
        y = self.conv(x)
        return self.bn(y) + y

    net = warmed(Calls(forward, conv=M.Conv2d(3, 4, 1), bn=M.BatchNorm2d(4)))
    x = tensor(2, 3, 4, 4)
    assert norms(fuse(net)) == 1
    close(fuse(net)(x), net(x))


def test_a_shared_convolution_is_folded_once_for_each_normalization():
    def forward(self, x):
        return self.b(self.conv(self.a(self.conv(x)))) + self.conv(x)

    net = warmed(Calls(forward, conv=M.Conv2d(3, 3, 1), a=M.BatchNorm2d(3), b=M.BatchNorm2d(3)))
    x, fused = tensor(2, 3, 4, 4), fuse(net)
    assert norms(fused) == 0
    close(fused(x), net(x))


def test_a_shared_pair_is_folded():
    def forward(self, x):
        return self.bn(self.conv(self.bn(self.conv(x))))

    net = warmed(Calls(forward, conv=M.Conv2d(3, 3, 1), bn=M.BatchNorm2d(3)))
    x, fused = tensor(2, 3, 4, 4), fuse(net)
    assert norms(fused) == 0
    close(fused(x), net(x))


def test_a_weight_that_is_read_elsewhere_keeps_its_value():
    def forward(self, x):
        return self.bn(self.conv(x)) + self.conv.weight.sum()

    net = warmed(Calls(forward, conv=M.Conv2d(3, 3, 1), bn=M.BatchNorm2d(3)))
    x, fused = tensor(2, 3, 4, 4), fuse(net)
    assert norms(fused) == 0
    close(fused(x), net(x))


def test_a_convolution_written_in_place_is_not_folded_past_the_write():
    def forward(self, x):
        y = self.conv(x)
        y += 1
        return self.bn(y)

    net = warmed(Calls(forward, conv=M.Conv2d(3, 3, 1), bn=M.BatchNorm2d(3)))
    x = tensor(2, 3, 4, 4)
    close(fuse(net)(x), net(x))


def test_a_normalization_without_statistics_stays():
    net = M.Sequential(M.Conv2d(3, 4, 1), M.BatchNorm2d(4, track_running_stats=False))
    net.eval()
    assert norms(fuse(net)) == 1
    with pytest.raises(ValueError, match="without running statistics"):
        fuse_conv_bn_eval(net[0], net[1])


def test_the_printed_model_has_no_normalization():
    block = Calls(
        lambda self, x: self.bn(self.conv(x)) + self.downsample(x),
        conv=M.Conv2d(3, 4, 1, bias=False),
        bn=M.BatchNorm2d(4),
        downsample=M.Sequential(M.Conv2d(3, 4, 1, bias=False), M.BatchNorm2d(4)),
    )
    assert repr(fuse(warmed(M.Sequential(block)))) == (
        "Sequential(\n  (0): Module(\n"
        "    (conv): Conv2d(3, 4, kernel_size=(1, 1))\n"
        "    (downsample): Module(\n"
        "      (0): Conv2d(3, 4, kernel_size=(1, 1))\n    )\n  )\n)"
    )


def test_the_helpers_of_a_fuser_written_by_hand(capsys):
    model = warmed(M.Sequential(M.Conv2d(1, 1, 1), M.BatchNorm2d(1)))
    gm = fx.symbolic_trace(copy.deepcopy(model))
    modules = dict(gm.named_modules())
    pattern = (M.Conv2d, M.BatchNorm2d)
    matched = [node for node in gm.graph.nodes if matches_module_pattern(pattern, node, modules)]
    assert [node.target for node in matched] == ["1"]
    conv_node = matched[0].args[0]
    replace_node_module(conv_node, modules, fuse_conv_bn_eval(modules["0"], modules["1"]))
    matched[0].replace_all_uses_with(conv_node)
    gm.graph.erase_node(matched[0])
    gm.graph.lint()
    gm.recompile()
    x = tensor(5, 1, 1, 1)
    close(gm(x), model(x))


def test_dropout_is_removed_as_module_and_as_function():
    net = Calls(lambda self, x: F.dropout(self.drop(x), 0.5), drop=M.Dropout(0.5))
    out = remove_dropout(net)
    assert [node.op for node in out.graph.nodes] == ["placeholder", "output"]


def test_a_part_of_a_graph_is_a_module():
    net = M.Sequential(M.Linear(3, 4), M.ReLU(), M.Linear(4, 2))
    gm = fx.symbolic_trace(net)
    x, first, relu, last, _ = gm.graph.nodes
    part = extract_subgraph(gm, [relu, last], [first], [last, relu])
    value = tensor(2, 4)
    for got, want in zip(part(value), (net[2](net[1](value)), net[1](value)), strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())
    with pytest.raises(ValueError, match="is read, but is neither an input"):
        extract_subgraph(gm, [last], [x], [last])


def test_sets_unite():
    sets = UnionFind(6)
    for number in range(5):
        sets.make_set(number)
    sets.join(0, 1)
    sets.join(3, 4)
    sets.join(1, 4)
    assert len({sets.find(number) for number in (0, 1, 3, 4)}) == 1 != sets.find(2)
    with pytest.raises(KeyError, match="make_set"):
        sets.find(5)
