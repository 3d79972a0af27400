"""vmap and the derivatives in it against torch.func: gradients of each example, Hessians, axes, indices."""

import numpy as np
import pytest
import torch

import megengine.functional as F
from megengine import Tensor
from megengine.autodiff import hessian, jacobian, vmap

RNG = np.random.default_rng(0)
W, X, Y = (RNG.normal(size=shape).astype(np.float32) for shape in ((3, 2), (4, 3), (4, 2)))
I = np.array([[0, 2], [1, 1], [2, 0], [0, 0]])


def loss(tanh):
    return lambda w, x, y: ((tanh(x @ w) - y) ** 2).sum()


CASES = {
    "gradients": (
        lambda w, x, y: vmap(lambda w, x, y: jacobian(lambda w: loss(F.tanh)(w, x, y), w), in_axes=(None, 0, 0))(w, x, y),
        lambda w, x, y: torch.func.vmap(torch.func.grad(loss(torch.tanh)), in_dims=(None, 0, 0))(w, x, y),
        (W, X, Y),
    ),
    "Hessians": (
        lambda w, x, y: vmap(lambda x, y: hessian(lambda x: loss(F.tanh)(w, x, y), x))(x, y),
        lambda w, x, y: torch.func.vmap(torch.func.jacrev(torch.func.jacrev(lambda x, y: loss(torch.tanh)(w, x, y))))(x, y),
        (W, X, Y),
    ),
    "axes": (
        lambda x: vmap(lambda a: a[:, None] * a, in_axes=1, out_axes=-1)(x),
        lambda x: torch.func.vmap(lambda a: a[:, None] * a, in_dims=1, out_dims=-1)(x),
        (X,),
    ),
    "indices": (lambda x, i: vmap(lambda x, i: x[i])(x, i), lambda x, i: torch.func.vmap(lambda x, i: x[i])(x, i), (X, I)),
    "in one another": (
        lambda x, w: vmap(lambda x: vmap(lambda w: x @ w, in_axes=1)(w))(x),
        lambda x, w: torch.func.vmap(lambda x: torch.func.vmap(lambda w: x @ w, in_dims=1)(w))(x),
        (X, W),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_batch_is_as_torch_has_it(name):
    ours, theirs, inputs = CASES[name]
    want = theirs(*map(torch.tensor, inputs)).numpy()
    np.testing.assert_allclose(ours(*map(Tensor, inputs)).numpy(), want, rtol=1e-4, atol=1e-5)
