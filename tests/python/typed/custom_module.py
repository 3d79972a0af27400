"""A network of modules of the user's own: shapes, parameters, buffers, hooks."""

from collections.abc import Sequence

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor


class Block(M.Module):
    def __init__(self, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = M.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn = M.BatchNorm2d(channels)
        self.scale = Parameter(np.ones((1, channels, 1, 1), "float32"))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)) * self.scale + x)


class Net(M.Module):
    def __init__(self, channels: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.stem = M.Conv2d(3, channels, 3, padding=1)
        self.blocks = [Block(channels) for _ in widths]
        self.head = M.Sequential(M.Linear(channels, widths[0]), M.GELU(), M.Linear(widths[0], 10))
        self.seen = mge.tensor(0)
        M.init.msra_normal_(self.stem.weight)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        n = x.shape[0]
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        features = F.mean(x, axis=(2, 3)).reshape(n, -1)
        if mask is not None:
            features = F.where(mask, features, F.zeros_like(features))
        self.seen += n
        return self.head(features), features


net = Net(8, [16, 16])
scores, features = net(F.ones((2, 3, 8, 8)))
count = sum(int(np.prod(parameter.shape)) for parameter in net.parameters())
first, last = net.head[0], net.head[-1]
handle = net.head.register_forward_hook(lambda module, inputs, outputs: outputs * 2)
print(count, scores.shape[1], features.ndim, first.name, [name for name, _ in net.named_parameters()][:2])
print(F.softmax(net.head(features), axis=1).numpy().sum(), len(net.head[1:]), last.training)
handle.remove()
with_bias = {name: module for name, module in net.named_modules() if isinstance(module, M.Linear)}
for linear in with_bias.values():
    print(linear.weight.shape, linear.in_features + linear.out_features)
