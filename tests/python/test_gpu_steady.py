"""What a step costs on a GPU, once it runs again and again: counted in calls of the emulated card's driver."""

import emulated
import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import jit
from megengine import module as M
from megengine import optimizer as optim
from megengine.autodiff import GradManager

RNG = np.random.default_rng(0)
# Calls that make a graph, wait for the card, or load code.
COSTLY = [
    "cuStreamBeginCapture_v2", "cuGraphInstantiateWithFlags", "cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize",
    "cuModuleLoadDataEx", "cuMemAlloc_v2", "cuMemHostAlloc", "cuLaunchKernel", "a pageable copy",
]  # fmt: skip


class Recurrent(M.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.head = M.LSTM(6, 8), M.Linear(8, 5)

    def forward(self, x):
        return self.head(self.cells(x)[0][-1])


class Attending(M.Module):
    def __init__(self):
        super().__init__()
        self.words, self.norm, self.attention, self.head = M.Embedding(11, 16), M.LayerNorm(16), M.MultiHeadAttention(16, 2), M.Linear(16, 5)

    def forward(self, words):
        x = self.words(words)
        y = self.norm(x)
        return self.head(F.mean(x + self.attention(y, y, y)[0], 1))


class Convolutional(M.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second, self.head = M.Conv2d(3, 8, 3, padding=1), M.BatchNorm2d(8), M.Conv2d(8, 8, 1), M.Linear(8, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return self.head(F.mean(F.relu(x + self.second(x)), (2, 3)))


def normal(*shape):
    return RNG.standard_normal(shape).astype("float32")


NETWORKS = {
    "perceptron": (lambda: M.Sequential(M.Linear(20, 32), M.ReLU(), M.Linear(32, 5)), normal(4, 20)),
    "convolutions": (Convolutional, normal(4, 3, 8, 8)),
    "recurrent": (Recurrent, normal(5, 4, 6)),
    "attention": (Attending, RNG.integers(0, 11, (4, 6)).astype("int32")),
}
LABELS = RNG.integers(0, 5, 4).astype("int32")
OPTIMIZERS = {"SGD": lambda p: optim.SGD(p, 0.1, momentum=0.9), "Adam": lambda p: optim.Adam(p, 0.1)}


def costs(step, warm=6, runs=5):
    """Calls of each costly function in the runs behind the warm ones."""
    calls = emulated.calls()
    for _ in range(warm):
        step()
    before = {name: calls(name) for name in COSTLY}
    for _ in range(runs):
        step()
    return {name: calls(name) - before[name] for name in COSTLY if calls(name) != before[name]}


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_training_step_is_one_launch(name, optimizer, level):
    make, data = NETWORKS[name]
    network = make()
    parameters, rule = GradManager().attach(network.parameters()), OPTIMIZERS[optimizer](network.parameters())

    @jit.trace(symbolic=True, opt_level=level)
    def step(x, labels):
        with parameters:
            loss = F.nn.cross_entropy(network(x), labels)
            parameters.backward(loss)
        rule.step().clear_grad()
        return loss

    assert costs(lambda: step(mge.tensor(data), mge.tensor(LABELS))) == {}


@pytest.mark.parametrize("name", NETWORKS)
def test_inference_is_one_launch(name):
    make, data = NETWORKS[name]
    network = make()
    network.eval()
    predict = jit.trace(lambda x: network(x), symbolic=True, opt_level=3)
    assert costs(lambda: predict(mge.tensor(data))) == {}


def test_results_that_never_lie_where_they_did_make_no_graphs():
    linear, x, kept = M.Linear(20, 5), mge.tensor(normal(4, 20)), []
    predict = jit.trace(lambda x: linear(x), symbolic=True, opt_level=3)
    assert costs(lambda: kept.append(predict(x)), warm=20) == {}
    for result in kept:
        np.testing.assert_allclose(result.numpy(), linear(x).numpy(), rtol=1e-5, atol=1e-6)
