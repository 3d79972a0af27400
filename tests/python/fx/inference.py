"""Small networks for the tests of what `optimize_for_inference` does, and what they look at."""


import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.fx.experimental.optimization import (
    optimize_for_inference,
    use_mkl_length,
)

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
