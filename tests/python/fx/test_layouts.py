"""Models laid out for inference: regions, heuristics, configuration, aliases (F18 to F22)."""

import copy
import logging
import pickle
import time

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx
from megengine.fx.experimental import _layouts, optimization
from megengine.fx.experimental.optimization import (
    MklSubgraph,
    gen_mkl_autotuner,
    modules_to_mkldnn,
    optimize_for_inference,
    reset_modules,
    use_mkl_length,
)
from megengine.jit import trace
from megengine.utils import mkldnn

RNG = np.random.RandomState(0)


def tensor(*shape):
    return mge.tensor(RNG.randn(*shape).astype(np.float32))


def close(got, want):
    got, want = got.numpy(), want.numpy()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * max(1, np.abs(want).max()))


class Net(M.Module):
    """Modules given by name, and a forward given as a function of the module and x."""

    def __init__(self, body, **modules):
        super().__init__()
        self.body = body
        for name, module in modules.items():
            setattr(self, name, module)
        self.eval()

    def forward(self, x):
        return self.body(self, x)


def conv(cin=4, cout=4, **options):
    return M.Conv2d(cin, cout, 3, padding=1, **options)


def straight():
    """Five layers in a row."""
    return Net(
        lambda self, x: F.flatten(self.pool(self.relu(self.b(F.relu(self.a(x))))), 1),
        a=conv(), b=conv(), relu=M.ReLU(), pool=M.AvgPool2d(2),
    )  # fmt: skip


X = tensor(2, 4, 6, 6)


def conversions(gm):
    return [node.target for node in gm.graph.nodes if node.target in ("to_mkldnn", "to_dense")]


def layers(gm):
    modules = dict(gm.named_modules())
    return [type(modules[node.target]).__name__ for node in gm.graph.nodes if node.op == "call_module"]


def optimized(net, heuristic=use_mkl_length, **config):
    return optimize_for_inference(net, {"mkldnn_layout_optimize": {"heuristic": heuristic}, **config})


# ---- F18: regions


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


# ---- F19: heuristics


@pytest.mark.parametrize(("length", "is_kept"), [(1, False), (2, False), (3, True)])
def test_length(length, is_kept):
    region = MklSubgraph(None)
    region.nodes = [None] * length
    assert use_mkl_length(region) is is_kept


def test_the_tuner_runs_both_ways_and_keeps_the_faster(monkeypatch):
    net = straight()
    close(optimized(net, gen_mkl_autotuner(X, iters=2))(X), net(X))
    slow = mkldnn.MkldnnConv2d.forward

    def forward(self, *args, **kwargs):
        time.sleep(0.02)
        return slow(self, *args, **kwargs)

    monkeypatch.setattr(mkldnn.MkldnnConv2d, "forward", forward)
    assert conversions(optimized(net, gen_mkl_autotuner(X, iters=2))) == []
    monkeypatch.undo()
    dense = M.Conv2d.forward
    monkeypatch.setattr(M.Conv2d, "forward", lambda self, x: (time.sleep(0.02), dense(self, x))[1])
    assert len(conversions(optimized(net, gen_mkl_autotuner(X, iters=2)))) == 2


def test_the_tuner_measures_what_it_is_told(monkeypatch):
    calls = []
    forward = mkldnn.MkldnnConv2d.forward
    monkeypatch.setattr(mkldnn.MkldnnConv2d, "forward", lambda self, *args, **kwargs: (calls.append(self), forward(self, *args, **kwargs))[1])
    optimized(straight(), gen_mkl_autotuner((X,), iters=4, warmup=3))
    assert len(calls) == 2 * (1 + 3 + 4)  # two convolutions; the first run finds example values


def test_one_tuner_serves_several_models():
    tuner = gen_mkl_autotuner(X, iters=1)
    for _ in range(2):
        net = Net(lambda self, x: F.avg_pool2d(F.relu(self.a(x)), x.shape[-1]) * self.scale, a=conv(), scale=tensor(4, 1, 1))
        close(optimized(net, tuner)(X), net(X))


# ---- F20: configuration


def test_layouts_can_be_left_alone():
    net = straight()
    fast = optimize_for_inference(net, {"mkldnn_layout_optimize": False})
    assert conversions(fast) == [] and np.array_equal(fast(X).numpy(), net(X).numpy())


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"mkldnn_layout_optimize": True}, "mkldnn_layout_optimize config is not a dict"),
        ({"mkldnn_layout_optimize": {}}, "Heuristic not found in mkldnn_layout_optimize config"),
        ({"mkldnn_layout_optimize": {"heuristic": 3}}, "heuristic in mkldnn_layout_optimize is 3"),
        ({"conv_bn_fold": True}, "unknown options"),
    ],
)
def test_a_wrong_configuration_is_refused(config, says):
    with pytest.raises(RuntimeError, match=says):
        optimize_for_inference(straight(), config)


def test_only_float32():
    net = straight()
    net.a.weight = mge.Parameter(net.a.weight.astype("float16"))
    with pytest.raises(AssertionError, match="only for float32 modules"):
        optimize_for_inference(net)


def test_only_the_cpu(monkeypatch):
    class OnAGpu:
        dtype, device = np.float32, mge.device.Device("gpu0") if hasattr(mge.device, "Device") else None

    layer = conv()
    monkeypatch.setattr(layer, "parameters", lambda: [OnAGpu])
    with pytest.raises(AssertionError, match="only for CPU modules"):
        _layouts._check_parameters(layer)


def test_the_tracer_says_what_is_a_leaf():
    class Leaves(fx.Tracer):
        def is_leaf_module(self, m, path):
            return isinstance(m, M.Sequential) or super().is_leaf_module(m, path)

    net = Net(lambda self, x: self.inner(self.a(x)), a=conv(), inner=M.Sequential(conv(), M.ReLU()))
    kept = optimize_for_inference(net, {"conv_bn_fuse": False, "remove_dropout": False}, tracer=Leaves)
    assert any(node.target == "inner" for node in kept.graph.nodes)
    close(kept(X), net(X))


# ---- F21: aliases


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


# ---- F22


def test_only_for_eval():
    net = straight()
    net.b.train()
    with pytest.raises(AssertionError, match="only for eval! b is in training mode"):
        optimize_for_inference(net)


def test_names_are_public():
    for name in ("MklSubgraph", "UnionFind", "fuse", "gen_mkl_autotuner", "mkldnn_map", "mkldnn_supported", "remove_dropout"):
        assert name in optimization.__all__ and hasattr(optimization, name)
