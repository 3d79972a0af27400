"""F18: regions of oneDNN's layouts, and the sets by which they are coloured."""

import copy
import logging
import pickle

import numpy as np
import pytest
from inference import RNG, Net, X, close, conv, conversions, layers, optimized, straight

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx
from megengine.fx.experimental.optimization import (
    MklSubgraph,
    UnionFind,
    modules_to_mkldnn,
    optimize_for_inference,
    reset_modules,
)
from megengine.jit import trace
from megengine.utils import mkldnn


def test_a_straight_network_is_converted_twice(caplog):
    net = straight()
    with caplog.at_level(logging.INFO):
        fast = optimize_for_inference(net)
    assert "conversions: 2" in caplog.text
    assert conversions(fast) == ["to_mkldnn", "to_dense"]
    close(fast(X), net(X))


def test_layers_get_packed_weights_and_rectify_what_they_store():
    fast = optimize_for_inference(straight())
    assert layers(fast) == ["MkldnnConv2d", "MkldnnConv2d", "AvgPool2d"]
    assert "relu = True" in fast.code and "functional.relu" not in fast.code
    fast(X)
    assert fast.a.weight._is_packed


def test_the_model_itself_stays_as_it_is():
    net = straight()
    before, weight = net(X).numpy(), net.a.weight
    optimize_for_inference(net, {"conv_bn_fuse": False, "remove_dropout": False})(X)
    assert type(net.a) is M.Conv2d and net.a.weight is weight and not weight.is_mkldnn
    assert np.array_equal(net(X).numpy(), before)


def test_a_residual_is_added_by_the_convolution_behind_it():
    net = Net(lambda self, x: F.relu(self.b(F.relu(self.a(x))) + self.skip(x)), a=conv(), b=conv(), skip=conv())
    fast = optimize_for_inference(net)
    assert fast.code.count("relu = True") == 2 and " + " not in fast.code
    close(fast(X), net(X))


def test_a_residual_that_is_broadcast():
    net = Net(lambda self, x: F.relu(self.a(x) + self.b(self.pool(x))), a=conv(), b=conv(), pool=M.AdaptiveAvgPool2d(1))
    close(optimize_for_inference(net)(X), net(X))


def test_what_others_read_is_neither_joined_nor_rectified():
    def body(self, x):
        y = self.a(x)
        z = self.b(y)
        return y + F.relu(z) + F.relu(y), z

    net = Net(body, a=conv(), b=conv())
    for got, want in zip(optimize_for_inference(net)(X), net(X)):
        close(got, want)


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (lambda self, x: x + self.a(x), 2),  # is beside a region: taken in
        (lambda self, x: x + x, 0),
        (lambda self, x: self.a(x) * 2 + 1, 2),
        (lambda self, x: F.exp(self.a(x)) + self.b(x), 5),  # exp reads it dense
        (lambda self, x: F.flatten(self.a(x), 1), 2),
        (lambda self, x: self.b(self.a(x).reshape(x.shape)), 4),
    ],
    ids=["sum with a region", "sum alone", "numbers", "unknown function", "flatten", "reshape"],
)
def test_functions_stay_laid_out_where_what_they_read_is(body, count):
    net = Net(body, a=conv(), b=conv())
    fast = optimized(net, lambda region: True)
    close(fast(X), net(X))
    assert len(conversions(fast)) <= count, fast.code


@pytest.mark.parametrize(
    "body",
    [
        lambda self, x: F.silu(self.a(x)),
        lambda self, x: F.sigmoid(y := self.a(x)) * y,
        lambda self, x: F.hswish(self.a(x)) - 1,
        lambda self, x: F.clip(self.a(x), 0, 6) / 6,
        lambda self, x: F.leaky_relu(self.a(x), 0.1),
        lambda self, x: self.act(self.a(x)),
        lambda self, x: F.concat([y := self.a(x), F.gelu(y)], axis=1),
    ],
    ids=["silu", "sigmoid", "hswish", "clip", "leaky relu", "a module", "concat"],
)
def test_activations_stay_laid_out_behind_layers(body):
    net = Net(body, a=conv(), b=conv(), act=M.SiLU())
    fast = optimized(net, lambda region: True)
    close(fast(X), net(X))
    assert conversions(fast) == ["to_mkldnn", "to_dense"], fast.code


# ---- functions that are layers


def held(*shape):
    return mge.Parameter(RNG.randn(*shape).astype(np.float32))


FUNCTIONS = {
    "conv2d": (lambda self, x: F.conv2d(x, self.w, self.b, 1, (1, 1)), {"w": (4, 4, 3, 3), "b": (1, 4, 1, 1)}, ["MkldnnConv2d"]),
    "conv2d by keywords": (lambda self, x: F.conv2d(x, self.w, stride=2, groups=2, dilation=(1, 2)), {"w": (2, 3, 2, 3, 2)}, ["MkldnnConv2d"]),
    "conv1d": (lambda self, x: F.conv1d(x[:, :, 0], self.w, padding=1), {"w": (5, 4, 3)}, ["MkldnnConv1d"]),
    "conv3d": (lambda self, x: F.conv3d(x.reshape(2, 1, 4, 6, 6), self.w), {"w": (5, 1, 2, 2, 2)}, ["MkldnnConv3d"]),
    "normalized": (
        lambda self, x: F.nn.batch_norm(F.conv2d(x, self.w), self.m, self.v, self.s, self.b, eps=0.5),
        {"w": (6, 4, 1, 1), "m": (6,), "v": (6,), "s": (6,), "b": (6,)}, ["MkldnnConv2d"],
    ),
    "linear": (lambda self, x: F.linear(x, self.w, self.b), {"w": (5, 6), "b": (5,)}, ["MkldnnLinear"]),
    "matmul": (lambda self, x: F.relu(F.matmul(x, self.w) + self.b), {"w": (6, 5), "b": (5,)}, ["MkldnnLinear"]),
    "a row and a matrix": (lambda self, x: F.matmul(x[0, 0, 0], self.w), {"w": (6, 5)}, ["MkldnnLinear"]),
    "a tensor that is read elsewhere": (lambda self, x: F.conv2d(x, self.w) + self.w.sum(), {"w": (4, 4, 1, 1)}, ["MkldnnConv2d"]),
    "a computed weight": (lambda self, x: F.conv2d(x, self.w * 2), {"w": (4, 4, 1, 1)}, []),
    "a padding by name": (lambda self, x: F.conv2d(x, self.w, padding="same"), {"w": (4, 4, 3, 3)}, []),
    "a convolution that scales": (lambda self, x: F.nn.batch_norm(x, self.m, F.abs(self.m)), {"m": (4,)}, []),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_with_tensors_of_the_model_are_layers(name):
    body, shapes, made = FUNCTIONS[name]
    net = Net(body)
    for key, shape in shapes.items():
        setattr(net, key, mge.Parameter(F.abs(held(*shape))) if key == "v" else held(*shape))
    state = mge.random.get_state()
    fast = optimized(net, lambda region: True)
    again = mge.random.get_state()
    assert layers(fast) == made and str(state) == str(again)
    close(fast(X), net(X))
    for options in ({}, {"symbolic": True}, {"symbolic": True, "opt_level": 3, "without_host": True}):
        traced = trace(lambda x: fast(x), **options)
        for _ in range(3):
            close(traced(X), net(X))


def test_a_tensor_that_the_model_writes_stays_a_tensor():
    def body(self, x):
        y = F.conv2d(x, self.w)
        self.w[...] = self.w * 2
        return y

    net, same = Net(body), Net(body)
    net.w = held(4, 4, 1, 1)
    same.w = mge.Parameter(net.w)
    fast = optimize_for_inference(net)
    for _ in range(2):
        close(fast(X), same(X))


def test_a_trace_without_its_body_knows_layers_with_packed_weights():
    """Each call was recorded again: 0.3 ms for each layer."""
    fast = optimize_for_inference(straight())
    traced = trace(lambda x: fast(x), symbolic=True, without_host=True, opt_level=3)
    for _ in range(5):
        close(traced(X), fast(X))
    assert traced._guard_reason is None


def test_shapes_are_read_without_conversion():
    net = Net(lambda self, x: F.avg_pool2d(F.relu(self.a(x)), self.a(x).shape[-1]), a=conv())
    fast = optimized(net, lambda region: True)
    close(fast(X), net(X))
    assert conversions(fast).count("to_dense") == 1


def test_all_kinds_of_layers():
    net = Net(
        lambda self, x: self.e(F.flatten(self.d(self.c(self.b(self.n(self.a(x.reshape(2, 4, 36))).reshape(2, 6, 2, 3, 6)))), 1)),
        a=M.Conv1d(4, 6, 3, padding=1), n=M.BatchNorm1d(6, track_running_stats=True),
        b=M.Conv3d(6, 5, 2), c=M.ReLU(), d=M.Identity(), e=M.Linear(5 * 1 * 2 * 5, 3),
    )  # fmt: skip
    fast = optimized(net, lambda region: True, conv_bn_fuse=False)
    assert {"MkldnnConv1d", "MkldnnBatchNorm", "MkldnnConv3d", "MkldnnLinear"} <= set(layers(fast))
    close(fast(X), net(X))


def test_other_paddings_stay_dense():
    net = Net(lambda self, x: self.a(self.b(x)), a=conv(padding_mode="reflect"), b=conv())
    fast = optimized(net, lambda region: True)
    assert layers(fast) == ["MkldnnConv2d", "Conv2d"]
    close(fast(X), net(X))


def test_regions_that_are_not_kept_have_the_bits_of_the_model():
    net = straight()
    fast = optimized(net, lambda region: False)
    assert conversions(fast) == [] and layers(fast) == ["Conv2d", "Conv2d", "ReLU", "AvgPool2d"]
    assert np.array_equal(fast(X).numpy(), net(X).numpy())


def test_each_region_is_judged_alone():
    net = Net(lambda self, x: F.relu(F.relu(self.b(F.exp(F.relu(F.relu(self.a(x))) * 0.1)))), a=conv(), b=conv())
    seen = []

    def first_alone(region):
        seen.append(region)
        return len(seen) == 1

    fast = optimized(net, first_alone)
    assert len(seen) == 2 and layers(fast) == ["MkldnnConv2d", "Conv2d"]
    close(fast(X), net(X))


def test_a_region_knows_its_nodes_and_borders():
    regions = []
    optimized(straight(), regions.append)
    (region,) = regions
    assert isinstance(region, MklSubgraph)
    assert [len(nodes) for nodes in (region.nodes, region.start_nodes, region.end_nodes)] == [5, 1, 1]
    assert all(node.op != "placeholder" for node in region.nodes)


def test_modules_are_exchanged_and_given_back():
    gm = fx.symbolic_trace(straight())
    modules = dict(gm.named_modules())
    former = dict(modules)
    old = modules_to_mkldnn(list(gm.graph.nodes), modules)
    assert isinstance(gm.a, mkldnn.MkldnnConv2d) and sorted(map(id, old.values())) == sorted([id(former["a"]), id(former["b"])])
    reset_modules(list(gm.graph.nodes), modules, old)
    assert gm.a is former["a"] and modules["b"] is former["b"]


def test_optimized_models_travel_and_are_traced(tmp_path):
    net = straight()
    fast = optimize_for_inference(net)
    want = fast(X)
    fast.save(tmp_path / "fast.mge")
    for copied in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast)), fx.load(tmp_path / "fast.mge")):
        assert copied.code == fast.code
        close(copied(X), want)
    for level in (2, 3):
        traced = trace(lambda x: fast(x), symbolic=True, opt_level=level)
        for _ in range(2):
            close(traced(X), want)
    close(fx.symbolic_trace(fast)(X), want)


def test_batch_norm_and_dropout_are_folded_first():
    net = Net(lambda self, x: self.drop(F.relu(self.norm(self.a(x)))), a=conv(), norm=M.BatchNorm2d(4), drop=M.Dropout(0.5))
    fast = optimized(net, lambda region: True)
    assert layers(fast) == ["MkldnnConv2d"]
    close(fast(X), net(X))
    kept = optimize_for_inference(net, {"conv_bn_fuse": False, "remove_dropout": False}, verify=X)
    assert layers(kept) == ["MkldnnConv2d", "MkldnnBatchNorm", "Dropout"]


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
