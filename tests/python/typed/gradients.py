"""GradManager, by itself: gradients of inputs, of gradients, and of a function of the user's."""

import numpy as np

import megengine as mge
import megengine.functional as F
from megengine.autodiff import Function, GradManager


class Rounded(Function):
    """Rounds, and lets the gradient through."""

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return F.round(x)

    def backward(self, dy: mge.Tensor) -> mge.Tensor:
        return dy


def fit(steps: int, lr: float) -> mge.Parameter:
    w = mge.Parameter(np.zeros(3, "float32"))
    x = mge.tensor(np.eye(3, dtype="float32"))
    gm = GradManager().attach([w])
    for _ in range(steps):
        with gm:
            error = F.matmul(x, w) - mge.tensor([1.0, 2.0, 3.0])
            gm.backward((error**2).sum())
        if w.grad is not None:
            w -= lr * w.grad
            w.grad = None
    return w


print(fit(100, 0.1).numpy().round(2))

x = mge.tensor([0.5, 1.5])
outer, inner = GradManager().attach(x), GradManager().attach(x)
with outer:
    with inner:
        y = (x**3).sum() + 1 / (1 + F.exp(-x)).sum()
        inner.backward(y)
    first = x.grad
    if first is not None:
        outer.backward(first.sum())
print(x.grad is not None)

gm = GradManager().attach([x], callbacks=[lambda tensor, grad: 2 * grad])
with gm:
    rounded = Rounded()(x * 4)
    gm.backward(F.maximum(rounded, 0).sum() - F.clip(rounded, 0, 1).mean())
print(rounded.shape, float(rounded[0]))
