"""DTR in eager mode: the threshold holds, the bits stay, errors say what is missing."""

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import _core, dtr, optimizer
from megengine.autodiff import GradManager
from megengine.core import get_option

MIB = 1 << 20


@pytest.fixture(autouse=True)
def restore():
    threshold, least = dtr.eviction_threshold, dtr.evictee_minimum_size
    gc.collect()
    yield
    dtr.disable()
    dtr.eviction_threshold, dtr.evictee_minimum_size = threshold, least
    dtr.enable_sqrt_sampling = False


def in_use() -> int:
    return _core.memory_stats()["in_use"]


class Peak:
    """Bytes in use at most inside the block, above those before it."""

    def __enter__(self):
        gc.collect()
        _core.reset_peak_memory()
        self.before = in_use()
        return self

    def __exit__(self, *error):
        self.bytes = _core.memory_stats()["peak_in_use"] - self.before


def budget(extra: int, least: int = 4096) -> None:
    """DTR with `extra` bytes above what is in use."""
    gc.collect()
    dtr.evictee_minimum_size = least
    dtr.eviction_threshold = in_use() + extra
    dtr.enable()


def chain(length: int = 30):
    values = [mge.tensor(np.linspace(-1, 1, MIB // 4, dtype="float32"))]
    for i in range(length):
        values.append(F.tanh(values[-1] * (1 + i / 7)))
    return values


@pytest.mark.parametrize("sampling", [False, True])
def test_a_chain_is_read_again_under_a_tenth_of_its_memory(sampling):
    plain = [value.numpy() for value in chain()]
    dtr.enable_sqrt_sampling = sampling
    with Peak() as peak:
        budget(6 * MIB)
        values = chain()
        for value, expected in list(zip(values, plain))[::-1]:
            assert np.array_equal(value.numpy(), expected)
    assert peak.bytes <= 6 * MIB
    assert _core.dtr_stats()["recomputations"] > 0


def peak_of_a_chain():
    with Peak() as peak:
        chain()
    return peak.bytes


def test_the_threshold_acts_from_when_it_is_enabled_until_it_is_disabled():
    dtr.eviction_threshold = f"{(in_use() >> 20) + 8}MB"  # as text
    assert get_option("enable_dtr_auto_drop") == 0 and peak_of_a_chain() >= 30 * MIB
    dtr.enable()
    assert get_option("enable_dtr_auto_drop") == 1 and peak_of_a_chain() <= 9 * MIB
    dtr.eviction_threshold = in_use() + 64 * MIB
    assert peak_of_a_chain() >= 30 * MIB
    dtr.eviction_threshold = in_use() + 8 * MIB
    dtr.evictee_minimum_size = 2 * MIB  # each tensor is smaller
    with pytest.raises(MemoryError, match="nothing is left to evict"):
        chain()
    dtr.evictee_minimum_size = "4KB"
    assert peak_of_a_chain() <= 9 * MIB
    dtr.disable()
    assert get_option("enable_dtr_auto_drop") == 0 and peak_of_a_chain() >= 30 * MIB


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.layers = [M.Linear(64, 64) for _ in range(12)]
        self.norms = [M.BatchNorm1d(64) for _ in range(12)]
        self.drop = M.Dropout(0.2)

    def forward(self, x):
        for linear, norm in zip(self.layers, self.norms):
            x = x + self.drop(F.relu(norm(linear(x))))
        return (x * x).mean()


def train(steps: int = 4):
    mge.random.seed(7)
    net = Net()
    manager = GradManager().attach(net.parameters())
    descent = optimizer.Adam(net.parameters(), lr=1e-2)
    numbers = np.random.RandomState(3)
    losses = []
    for _ in range(steps):
        with manager:
            loss = net(mge.tensor(numbers.randn(512, 64).astype("float32")))
            manager.backward(loss)
        descent.step().clear_grad()
        losses.append(loss.numpy())
    return losses, [p.numpy() for p in net.parameters()]


LITTLE = pytest.param(
    0.35, marks=pytest.mark.host("ops that a GPU makes of others need scratch memory of their own")
)


@pytest.mark.parametrize("share", [0.8, 0.5, LITTLE])
def test_training_keeps_threshold_and_bits(share):
    with Peak() as plain:
        expected = train()
    extra = int(plain.bytes * share)
    with Peak() as peak:
        budget(extra, least=32768)
        got = train()
    assert peak.bytes <= extra
    for a, b in zip(expected[0] + expected[1], got[0] + got[1]):
        assert np.array_equal(a, b)


class ConvNet(M.Module):
    """Two blocks with batch norm, dropout and a skip."""

    def __init__(self):
        super().__init__()
        self.stem = M.Conv2d(3, 16, 3, padding=1)
        self.convs = [M.Conv2d(16, 16, 3, padding=1, bias=False) for _ in range(4)]
        self.norms = [M.BatchNorm2d(16) for _ in range(4)]
        self.drop = M.Dropout(0.3)
        self.head = M.Linear(16, 10)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for conv, norm in zip(self.convs, self.norms):
            x = x + self.drop(F.relu(norm(conv(x))))
        return self.head(F.mean(x, axis=(2, 3)))


def train_images(steps: int = 5):
    mge.random.seed(11)
    net = ConvNet()
    manager = GradManager().attach(net.parameters())
    descent = optimizer.SGD(net.parameters(), lr=0.05, momentum=0.9)
    numbers = np.random.RandomState(5)
    losses = []
    for _ in range(steps):
        images = mge.tensor(numbers.randn(16, 3, 24, 24).astype("float32"))
        labels = mge.tensor(numbers.randint(0, 10, 16).astype("int32"))
        with manager:
            loss = F.nn.cross_entropy(net(images), labels)
            manager.backward(loss)
        descent.step().clear_grad()
        losses.append(loss.numpy())
    return losses + [value.numpy() for value in net.state_dict(keep_var=True).values()]


def test_a_convolutional_net_trains_to_the_bit_in_half_of_its_memory(monkeypatch):
    monkeypatch.setattr(mge.config, "deterministic_kernel", True)  # cuDNN's gradients may add in any order
    gc.collect()
    before = mge.device.get_allocated_memory()
    mge.device.reset_max_memory_stats()
    expected = train_images()
    plain = mge.device.get_max_allocated_memory() - before
    gc.collect()
    budget(plain // 2, least=16384)
    mge.device.reset_max_memory_stats()
    got = train_images()
    assert mge.device.get_max_allocated_memory() <= dtr.eviction_threshold
    assert len(got) == len(expected)
    for a, b in zip(got, expected):
        assert np.array_equal(a, b)


def test_a_net_that_cannot_fit_says_by_how_much_and_trains_with_more():
    budget(200_000, least=16384)
    with pytest.raises(MemoryError, match=r"eviction_threshold of .* is too small by [1-9]\d* bytes"):
        train_images()
    budget(64 * MIB)
    assert np.isfinite(train_images(1)[0])


def descend(weights, steps: int = 4):
    """A deep net of given weights; random numbers would come from a stream that threads share."""
    weights = [mge.Parameter(w) for w in weights]
    manager = GradManager().attach(weights)
    descent = optimizer.SGD(weights, lr=0.1)
    x = mge.tensor(np.linspace(-1, 1, 512 * 64, dtype="float32").reshape(512, 64))
    for _ in range(steps):
        with manager:
            y = x
            for w in weights:
                y = F.tanh(F.matmul(y, w)) + y
            manager.backward((y * y).mean())
        descent.step().clear_grad()
    return [w.numpy() for w in weights]


def test_two_threads_train_at_once():
    weights = [np.random.RandomState(i).randn(64, 64).astype("float32") / 8 for i in range(12)]
    with Peak() as plain:
        expected = descend(weights)
    budget(plain.bytes, least=32768)  # for both
    evictions, got = _core.dtr_stats()["evictions"], {}

    def work(name):
        got[name] = descend(weights)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _core.dtr_stats()["evictions"] > evictions
    for name in range(2):
        assert all(np.array_equal(a, b) for a, b in zip(got[name], expected))


def test_what_cannot_be_kept_is_told_in_bytes_and_the_next_step_works():
    budget(2 * MIB)
    x = mge.tensor(np.ones(MIB // 4, dtype="float32"))
    with pytest.raises(MemoryError, match=r"eviction_threshold .* is too small by 1048576 bytes"):
        F.concat([x, x])
    assert (x + 1).numpy()[0] == 2


def test_values_outlive_disable():
    before = _core.dtr_stats()["evictions"]
    budget(4 * MIB)
    values = chain(12)
    dtr.disable()
    assert _core.dtr_stats()["evictions"] > before
    plain = chain(12)
    assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(values, plain))


@pytest.mark.host("numbers that an accelerator has used stay there for a while")
def test_nothing_is_kept_when_all_is_gone():
    before, known = in_use(), _core.dtr_stats()["values"]
    budget(4 * MIB)
    values = chain(12)
    values[3].numpy()
    del values
    gc.collect()
    assert in_use() == before and _core.dtr_stats()["values"] == known


def test_a_dead_batch_is_not_kept():
    """x goes; y, which is in memory, becomes a source."""
    budget(64 * MIB)
    before = in_use()
    x = mge.tensor(np.ones(MIB, dtype="float32"))
    y = x[: MIB // 4] * 2
    del x
    gc.collect()
    assert in_use() - before <= MIB
    assert y.numpy()[0] == 2


def test_a_long_loop_forgets_its_past():
    budget(8 * MIB)
    known = _core.dtr_stats()["values"]
    x = start = mge.tensor(np.zeros(MIB // 64, dtype="float32"))
    for _ in range(10000):
        x = x + 1
    assert _core.dtr_stats()["values"] - known <= 2 * 4096
    assert x.numpy()[0] == 10000 and start.numpy()[0] == 0


def test_a_traced_function_reads_evicted_values_and_overwrites_none():
    plain = [value.numpy() for value in chain()]
    budget(8 * MIB)
    values = chain()

    @mge.jit.trace
    def add(a, b):
        return a + b

    for _ in range(3):
        assert np.array_equal(add(values[2], values[5]).numpy(), plain[2] + plain[5])
    assert all(np.array_equal(v.numpy(), p) for v, p in zip(values, plain))


@pytest.mark.host("a device that is in use does not survive a fork")
def test_a_forked_child_goes_on():
    plain = [value.numpy() for value in chain(12)]
    budget(4 * MIB)
    values = chain(12)
    child = os.fork()
    if child == 0:
        equal = all(np.array_equal(v.numpy(), p) for v, p in zip(values, plain))
        os._exit(0 if equal and np.isfinite((values[5] + values[7]).numpy()).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert all(np.array_equal(v.numpy(), p) for v, p in zip(values, plain))


def test_a_memory_cap_evicts_instead_of_failing():
    plain = [value.numpy() for value in chain(40)]
    gc.collect()
    mge.device.coalesce_free_memory()
    mge.device.set_memory_cap(mge.device.get_reserved_memory() + 12 * MIB)
    try:
        with pytest.raises(MemoryError, match="the cap is"):
            chain(40)
        dtr.eviction_threshold = 0
        dtr.enable()
        values = chain(40)
        assert all(np.array_equal(v.numpy(), p) for v, p in zip(values[::-1], plain[::-1]))
    finally:
        mge.device.set_memory_cap(None)


def test_small_batches_of_a_long_training_are_not_kept():
    """Found by reading: what a weight was made of held all small operands of 4,096 steps."""
    weight = mge.Parameter(np.eye(512, dtype="float32"))
    manager = GradManager().attach([weight])
    descent = optimizer.SGD([weight], lr=1e-3)
    dtr.enable()  # no threshold
    with Peak() as peak:
        for i in range(300):
            with manager:
                manager.backward((F.matmul(mge.tensor(np.full((64, 512), i % 3, "float32")), weight) ** 2).mean())
            descent.step().clear_grad()
    assert peak.bytes <= 40 * MIB


def test_the_environment_turns_it_on():
    program = """
import numpy as np, megengine as mge
from megengine import _core, dtr
assert (dtr.eviction_threshold, dtr.evictee_minimum_size) == (8 << 20, 4096)
values = [mge.tensor(np.ones(1 << 18, "float32"))]
for _ in range(20):
    values.append(values[-1] * 2)
assert values[3].numpy()[0] == 8 and _core.dtr_stats()["evictions"] > 0
assert mge.device.get_max_allocated_memory() <= 8 << 20
"""
    settings = {"AUTO_DROP": "1", "EVICTION_THRESHOLD": str(8 << 20), "EVICTEE_MINIMUM_SIZE": "4096"}
    environment = os.environ | {f"MEGENGINE_DTR_{name}": value for name, value in settings.items()}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    bad = environment | {"MEGENGINE_DTR_EVICTION_THRESHOLD": "-1"}
    result = subprocess.run([sys.executable, "-c", program], env=bad, capture_output=True, text=True)
    assert "ValueError: MEGENGINE_DTR_EVICTION_THRESHOLD: a size of -1 bytes is negative" in result.stderr


def test_switching_warns_of_nothing():
    code = "from megengine import dtr; dtr.enable(); dtr.disable()"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
