"""F19: which regions are kept, by length or by measurement."""

import time

import pytest
from inference import Net, X, close, conv, conversions, optimized, straight, tensor

import megengine.functional as F
import megengine.module as M
from megengine.fx.experimental.optimization import (
    MklSubgraph,
    gen_mkl_autotuner,
    use_mkl_length,
)
from megengine.utils import mkldnn


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
