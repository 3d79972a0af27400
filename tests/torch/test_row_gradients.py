"""Tables with sparse=True have torch's sparse gradients, and SGD and Adam train them as torch's SGD and SparseAdam."""

import numpy as np
import pytest
import torch
from torch import nn

import megengine as mge
import megengine.module as M
import megengine.optimizer as optim
from megengine import fx, jit
from megengine.autodiff import GradManager, RowGradient

rng = np.random.default_rng(2)
BATCHES = [rng.integers(0, 20, (3, 4)).astype(np.int32) for _ in range(5)]
SCALE = rng.uniform(0.5, 2.0, (3, 4, 6)).astype(np.float32)  # SparseAdam scales eps, which Adam does not: gradients are far above it
LAYERS = {
    "rows": (M.Embedding(20, 6, sparse=True), nn.Embedding(20, 6, sparse=True)),
    "padding": (M.Embedding(20, 6, padding_idx=3, sparse=True), nn.Embedding(20, 6, padding_idx=3, sparse=True)),
    "sum": (M.EmbeddingBag(20, 6, "sum", sparse=True), nn.EmbeddingBag(20, 6, mode="sum", sparse=True)),
    "mean": (M.EmbeddingBag(20, 6, sparse=True), nn.EmbeddingBag(20, 6, sparse=True)),
}
OPTIMIZERS = {
    "SGD": (lambda params: optim.SGD(params, lr=0.1), lambda params: torch.optim.SGD(params, lr=0.1)),
    "Adam": (lambda params: optim.Adam(params, lr=0.1), lambda params: torch.optim.SparseAdam(params, lr=0.1)),
}


@pytest.mark.parametrize("wrap", [lambda f: f, jit.trace], ids=["eager", "traced"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("layer", LAYERS)
def test_tables_are_trained_as_by_torch(layer, optimizer, wrap):
    ours, theirs = LAYERS[layer]
    ours.reset_parameters()
    theirs.weight.data = torch.tensor(ours.weight.numpy())
    manager = GradManager().attach(ours.parameters())
    opt, reference = (make(each.parameters()) for make, each in zip(OPTIMIZERS[optimizer], (ours, theirs), strict=True))

    def step(x, scale):
        opt.clear_grad()
        with manager:
            manager.backward((ours(x) * scale).sum())
        opt.step()

    step = wrap(step)
    for batch in BATCHES:
        scale = SCALE if layer in ("rows", "padding") else SCALE[:, 0]
        step(mge.tensor(batch), mge.tensor(scale))
        reference.zero_grad()
        (theirs(torch.tensor(batch)) * torch.tensor(scale)).sum().backward()
        assert theirs.weight.grad.is_sparse and isinstance(ours.weight.grad, RowGradient)
        np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad.to_dense().numpy(), rtol=2e-5, atol=2e-5)
        reference.step()
        np.testing.assert_allclose(ours.weight.numpy(), theirs.weight.detach().numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("layer", [nn.Embedding(20, 6, sparse=True), nn.EmbeddingBag(20, 6, mode="sum", sparse=True)], ids=lambda each: type(each).__name__)
def test_torchs_layers_keep_sparse(layer):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = layer
            self.weight = nn.Parameter(torch.ones(20, 6))

        def forward(self, x):
            return self.table(x).sum() + nn.functional.embedding(x, self.weight, sparse=True).sum()

    net = fx.from_torch(torch.fx.symbolic_trace(Net()))
    manager = GradManager().attach(net.parameters())
    with manager:
        manager.backward(net(mge.tensor(BATCHES[0])))
    assert all(isinstance(each.grad, RowGradient) for each in net.parameters()) and len(list(net.parameters())) == 2
