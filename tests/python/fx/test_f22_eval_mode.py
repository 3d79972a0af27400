"""F22: folding and optimizing need eval mode."""

import pytest
from inference import straight

import megengine.module as M
from megengine.fx.experimental.optimization import (
    fuse,
    optimize_for_inference,
)


def test_folding_needs_eval_mode():
    net = M.Sequential(M.Conv2d(1, 1, 1), M.BatchNorm2d(1))
    with pytest.raises(AssertionError, match="(?s)Fusion only for eval.*model.eval()"):
        fuse(net)


def test_only_for_eval():
    net = straight()
    net.b.train()
    with pytest.raises(AssertionError, match="only for eval! b is in training mode"):
        optimize_for_inference(net)
