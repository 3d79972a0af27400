"""What a step costs on a GPU, once it runs again and again: counted in calls of the emulated card's driver."""

import gc

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
    """Calls of each costly function in the runs behind the warm ones; the places of results are not those that other tests left free."""
    gc.collect()
    mge.device.coalesce_free_memory()
    calls = emulated.calls()
    for _ in range(warm):
        step()
    before = {name: calls(name) for name in COSTLY}
    for _ in range(runs):
        step()
    return {name: calls(name) - before[name] for name in COSTLY if calls(name) != before[name]}


def training_step(network, optimizer, **options):
    parameters, rule = GradManager().attach(network.parameters()), OPTIMIZERS[optimizer](network.parameters())

    @jit.trace(symbolic=True, **options)
    def step(x, labels):
        with parameters:
            loss = F.nn.cross_entropy(network(x), labels)
            parameters.backward(loss)
        rule.step().clear_grad()
        return loss

    return step


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_training_step_is_one_launch(name, optimizer, level):
    make, data = NETWORKS[name]
    step = training_step(make(), optimizer, opt_level=level)
    assert costs(lambda: step(mge.tensor(data), mge.tensor(LABELS))) == {}


class Digits(M.Module):
    """The network of examples/train_digits.py, narrow."""

    def __init__(self):
        super().__init__()
        self.first, self.second = M.ConvBnRelu2d(1, 4, 3, padding=1), M.ConvBnRelu2d(4, 8, 3, padding=1)
        self.pool, self.hidden, self.drop, self.head = M.MaxPool2d(2), M.Linear(32, 16), M.Dropout(0.2), M.Linear(16, 10)

    def forward(self, x):
        x = self.pool(self.second(self.pool(self.first(x))))
        return self.head(self.drop(F.relu(self.hidden(F.flatten(x, 1)))))


class Block(M.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.first, self.second = M.ConvBnRelu2d(width, out, 3, stride, 1, bias=False), M.ConvBn2d(out, out, 3, 1, 1, bias=False)
        self.way_by = M.ConvBn2d(width, out, 1, stride, bias=False) if stride > 1 else M.Identity()

    def forward(self, x):
        return F.relu(self.second(self.first(x)) + self.way_by(x))


def resnet18():
    widths = [4, 8, 12, 16]
    blocks = [Block(widths[max(0, i - (k == 0))], w, 2 if i and k == 0 else 1) for i, w in enumerate(widths) for k in range(2)]
    stem = M.ConvBnRelu2d(3, 4, 7, 2, 3, bias=False), M.MaxPool2d(3, 2, 1)
    return M.Sequential(*stem, *blocks, M.AdaptiveAvgPool2d(1), M.Conv2d(16, 10, 1), Flat())


class Flat(M.Module):
    def forward(self, x):
        return F.flatten(x, 1)


@pytest.mark.parametrize("name, make, data, numbers", [
    ("digits", Digits, normal(4, 1, 8, 8), 1),  # the key of dropout
    ("resnet18", resnet18, normal(2, 3, 32, 32), 0),
    ("attention", *NETWORKS["attention"], 0),
])  # fmt: skip
def test_a_steady_step_sends_what_has_changed(name, make, data, numbers):
    """Beside the batch and its labels. The driver is called a few times: the batch and the step ask for the context, labels and keys are sent with the step."""
    step = training_step(make(), "Adam", opt_level=3)
    labels = np.zeros(len(data), "int32")
    for _ in range(8):
        step(mge.tensor(data), mge.tensor(labels))
    calls, runs = emulated.calls(), 16
    sends, all_calls = calls("cuMemcpyHtoDAsync_v2"), calls("")
    for _ in range(runs):
        step(mge.tensor(data), mge.tensor(labels))
    assert calls("cuMemcpyHtoDAsync_v2") - sends == (2 + numbers) * runs
    assert calls("") - all_calls <= 8 * runs


def test_small_uploads_wait_for_work_and_nobody_sees_that():
    """They are sent with the work behind them, in their order, also where a call of the driver fails between."""
    calls = emulated.calls()
    total, sends = mge.tensor(normal(4)), calls("cuMemcpyHtoDAsync_v2")
    numbers = [mge.tensor(np.full(4, i, "float32")) for i in range(5)]
    assert calls("cuMemcpyHtoDAsync_v2") == sends
    with emulated.failing("cuMemcpyHtoDAsync_v2", 3), pytest.raises(RuntimeError, match="cuMemcpyHtoDAsync"):
        numbers[0] + numbers[4]
    assert [each.tolist() for each in numbers] == [[i] * 4 for i in range(5)]
    assert calls("cuMemcpyHtoDAsync_v2") == sends + 7  # that of `total`, five, and one again
    elsewhere = mge.tensor(np.full(4, 7, "float32")).to("gpu0:1")  # another stream waits for it
    many = [mge.tensor([float(i)]) for i in range(500)]  # more than may wait
    assert elsewhere.tolist() == [7] * 4 and sum(each.item() for each in many) == 499 * 250 and total.shape == (4,)


def test_a_rate_that_changes_is_sent_and_numbers_are_not_written_over():
    """Numbers that bodies make lie on the card once, whoever makes them."""
    x = mge.tensor(normal(4))

    @jit.trace(symbolic=True, opt_level=3)
    def step(rate):
        half = mge.tensor(np.float32(0.5))
        half += 1  # another value, not the number's memory
        return x * mge.tensor(np.float32(rate)) + half, mge.tensor(np.float32(0.5))

    for rate in [0.25, 0.25, 0.5, 0.125, 0.5]:
        y, number = step(rate)
        np.testing.assert_allclose(y.numpy(), x.numpy() * np.float32(rate) + 1.5, rtol=1e-6)
        number += 1
        assert number.item() == 1.5


@pytest.mark.parametrize("make, shape", [(Digits, (4, 1, 8, 8)), (resnet18, (2, 3, 32, 32))])
def test_a_step_of_a_whole_network_is_one_launch(make, shape):
    step, x = training_step(make(), "SGD", opt_level=3), normal(*shape)
    labels = (np.arange(shape[0]) % 5).astype("int32")
    assert costs(lambda: step(mge.tensor(x), mge.tensor(labels))) == {}


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
