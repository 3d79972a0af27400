"""What passes of traced modules fold, for layers of megengine and for subclasses of a program, whose calls are functions."""

import numpy as np

import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm
from megengine import Tensor

X = Tensor(np.linspace(-1, 1, 96).reshape(2, 3, 4, 4).astype("float32"))


class Conv(M.Conv2d):
    def forward(self, x):
        return super().forward(x)


class Norm(M.BatchNorm2d):
    def forward(self, x):
        return super().forward(x)


class Net(M.Module):
    def __init__(self, body, conv, norm):
        super().__init__()
        self.conv, self.plain, self.bn = conv(3, 4, 3, padding=1), conv(3, 4, 3, padding=1, bias=False), norm(4)
        self.number, self.scale, self.shift = Tensor(3.0), Tensor([2.0, 3.0]), Tensor(np.zeros((1, 4, 1, 1), "float32"))
        self.body = body
        rng = np.random.RandomState(3)
        for _, tensor in self.named_tensors():
            tensor._reset(Tensor(rng.uniform(0.5, 1.5, tensor.shape).astype("float32")))

    def forward(self, x):
        return self.body(self, x)


def calls(module):
    told = []
    for expr in module.graph._exprs:
        if isinstance(expr, tm.expr.CallFunction):
            told.append(expr.func.__name__)
        elif isinstance(expr, tm.expr.CallMethod):
            told.append(type(expr.args[0].owner).__name__ if expr.method == "__call__" else expr.method)
    return told


def optimized(which, body, conv=M.Conv2d, norm=M.BatchNorm2d):
    net = Net(body, conv, norm)
    net.eval()
    traced = tm.trace_module(net, X).flatten()
    after = tm.optimize(traced, which)
    error = np.abs(after(X).numpy() - traced(X).numpy()).max()
    kept = [name for name in sorted(after.state_dict()) if not name.startswith("bn.")]  # ours drops a norm that nothing calls
    return calls(after), kept, bool(error < 1e-3)


SCALED = [
    lambda s, x: s.conv(x) * 3,
    lambda s, x: 3 * s.conv(x),
    lambda s, x: s.conv(x) / 4,
    lambda s, x: F.mul(s.conv(x), 3),
    lambda s, x: F.relu(s.conv(x)) * 3,
    lambda s, x: F.relu(s.conv(x)) * -3,
    lambda s, x: (s.conv(x) + 4) * 3,
    lambda s, x: F.relu(s.conv(x) + 4) * 3,
    lambda s, x: (s.conv(x) + s.shift) * 3,
    lambda s, x: F.reshape(s.conv(x), (2, -1)) * 3,
    lambda s, x: s.conv(x).reshape(2, -1) * 3,
    lambda s, x: F.max_pool2d(s.conv(x), 2) * 3,
    lambda s, x: F.avg_pool2d(s.conv(x), 2) * 3,
    lambda s, x: s.bn(s.conv(x)) * 3,
    lambda s, x: F.relu(s.bn(s.conv(x))) * 3,
    lambda s, x: s.conv(x) * s.number,
    lambda s, x: s.conv(x) * s.scale[0],
    lambda s, x: s.conv(x) * s.shift,
    lambda s, x: s.conv(x) * 3 * 2,
]


def ask_scales_folded_into_layers():
    return [optimized("BackwardFoldScale", body) for body in SCALED]


def ask_scales_folded_into_functions():
    return [optimized("BackwardFoldScale", body, Conv, Norm) for body in SCALED]


def ask_a_scale_of_a_sum():
    return optimized("BackwardFoldScale", lambda s, x: (s.conv(x) + s.plain(x)) * 3)


def ask_norms_fused():
    return [optimized("FuseConvBn", lambda s, x: s.bn(s.conv(x)), conv, norm) for conv in (M.Conv2d, Conv) for norm in (M.BatchNorm2d, Norm)]


def ask_a_norm_behind_a_convolution_without_bias():
    return optimized("FuseConvBn", lambda s, x: s.bn(s.plain(x)), Conv, Norm)


def ask_norms_called_as_functions():
    def body(s, x):
        y = F.conv2d(x, s.conv.weight, s.conv.bias, padding=1)
        return F.batch_norm(y, s.bn.running_mean, s.bn.running_var, s.bn.weight, s.bn.bias, training=False)

    return optimized("FuseConvBn", body)


def ask_norms_that_stay():
    return optimized("FuseConvBn", lambda s, x: (lambda y: s.bn(y) + y)(s.conv(x)), Conv, Norm)


def ask_a_norm_used_twice():
    return optimized("FuseConvBn", lambda s, x: s.bn(s.conv(x)) + s.bn(s.conv(x * 2)), Conv, Norm)
