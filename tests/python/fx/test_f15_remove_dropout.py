"""F15: `remove_dropout`."""

import numpy as np
from small_modules import Calls, tensor

import megengine.functional as F
import megengine.module as M
from megengine.fx.experimental.optimization import (
    remove_dropout,
)


def test_dropout_is_removed_as_module_and_as_function():
    net = Calls(lambda self, x: F.dropout(self.drop(x), 0.5), drop=M.Dropout(0.5))
    out = remove_dropout(net)
    assert [node.op for node in out.graph.nodes] == ["placeholder", "output"]


def test_the_model_keeps_its_dropout():
    net = M.Sequential(M.Linear(3, 3), M.Dropout(0.5))
    net.eval()
    out = remove_dropout(net)
    assert not any(isinstance(module, M.Dropout) for module in out.modules())
    assert any(isinstance(module, M.Dropout) for module in net.modules())
    np.testing.assert_array_equal(out(tensor(2, 3)).numpy(), net(tensor(2, 3)).numpy())
