"""F22: folding needs eval mode."""

import pytest

import megengine.module as M
from megengine.fx.experimental.optimization import (
    fuse,
)


def test_folding_needs_eval_mode():
    net = M.Sequential(M.Conv2d(1, 1, 1), M.BatchNorm2d(1))
    with pytest.raises(AssertionError, match="(?s)Fusion only for eval.*model.eval()"):
        fuse(net)
