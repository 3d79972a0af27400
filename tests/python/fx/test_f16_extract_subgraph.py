"""F16: `extract_subgraph`."""

import numpy as np
import pytest
from small_modules import tensor

import megengine.module as M
from megengine import fx
from megengine.fx.experimental.optimization import (
    extract_subgraph,
)


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
