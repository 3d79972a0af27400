"""F20: configuration of `optimize_for_inference`, and what it refuses."""


import numpy as np
import pytest
from inference import Net, X, close, conv, conversions, straight

import megengine as mge
import megengine.module as M
from megengine import fx
from megengine.fx.experimental import _layouts, optimization
from megengine.fx.experimental.optimization import (
    optimize_for_inference,
)


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


def test_names_are_public():
    for name in ("MklSubgraph", "UnionFind", "fuse", "gen_mkl_autotuner", "mkldnn_map", "mkldnn_supported", "remove_dropout"):
        assert name in optimization.__all__ and hasattr(optimization, name)
