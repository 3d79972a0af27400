"""Inference at level 3: weights are packed, and normalization folded into them, once for the parameters at hand."""

import threading

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import _core
from megengine.autodiff import GradManager
from megengine.jit import trace


class Block(M.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = M.Conv2d(16, 64, 3, padding=1, bias=True), M.BatchNorm2d(64)
        self.conv2, self.bn2 = M.Conv2d(64, 64, 3, padding=1, bias=False), M.BatchNorm2d(64)
        self.fc = M.Linear(64, 10)
        rng = np.random.RandomState(1)
        for bn in (self.bn1, self.bn2):
            bn.running_mean[...] = rng.randn(64).astype(np.float32)
            bn.running_var[...] = rng.uniform(0.5, 2, 64).astype(np.float32)
            bn.weight[...] = rng.randn(64).astype(np.float32)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)) + x)
        return self.fc(x.mean(axis=(2, 3)))


@pytest.fixture
def net():
    mge.random.seed(5)
    return Block().eval()


X = np.random.RandomState(0).randn(2, 16, 14, 14).astype(np.float32)


def test_a_traced_network_packs_its_weights_once(net):
    infer = trace(lambda x: net(x), symbolic=True, opt_level=3)
    want = net(mge.tensor(X)).numpy()
    for _ in range(3):
        np.testing.assert_allclose(infer(mge.tensor(X)).numpy(), want, rtol=2e-4, atol=2e-4)
    steps = "\n".join(infer.memory_plan().steps)
    assert steps.count("conv_epilogue") == 2 and "fma3" not in steps and "rsqrt" not in steps


def test_new_weights_are_seen(net):
    infer = trace(lambda x: net(x), symbolic=True, opt_level=3)
    infer(mge.tensor(X)), infer(mge.tensor(X))
    for parameter in (net.conv1.weight, net.conv2.weight, net.bn2.weight, net.conv1.bias, net.fc.weight):
        parameter[...] = parameter * 0.5 + 0.01
        np.testing.assert_allclose(infer(mge.tensor(X)).numpy(), net(mge.tensor(X)).numpy(), rtol=2e-4, atol=2e-4)
    net.bn1.running_var[...] = net.bn1.running_var * 3
    np.testing.assert_allclose(infer(mge.tensor(X)).numpy(), net(mge.tensor(X)).numpy(), rtol=2e-4, atol=2e-4)


def test_without_host_sees_them_too(net):
    infer = trace(lambda x: net(x), symbolic=True, opt_level=3, without_host=True)
    for _ in range(3):
        np.testing.assert_allclose(infer(mge.tensor(X)).numpy(), net(mge.tensor(X)).numpy(), rtol=2e-4, atol=2e-4)
        net.conv2.weight[...] = net.conv2.weight * 0.9


def test_threads_that_change_weights_get_a_result_of_one_of_them(net):
    infer = trace(lambda x: net(x), symbolic=True, opt_level=3)
    infer(mge.tensor(X)), infer.kernels()
    wanted = []
    weights = [net.fc.weight.numpy() * k for k in (1, 2)]
    for w in weights:
        net.fc.weight[...] = w
        wanted.append(net(mge.tensor(X)).numpy())
    results = []

    def run():
        for _ in range(20):
            results.append(infer(mge.tensor(X)).numpy())

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for k in range(20):
        net.fc.weight[...] = weights[k % 2]
    for thread in threads:
        thread.join()
    for result in results:
        assert any(np.allclose(result, want, rtol=1e-3, atol=1e-3) for want in wanted)


def test_level_2_exact_numerics_and_limits_stay_as_they_were(net):
    want = net(mge.tensor(X)).numpy()
    for options in ({"opt_level": 2}, {"opt_level": 3, "numerics": "exact"}):
        infer = trace(lambda x: net(x), symbolic=True, **options)
        for _ in range(2):
            np.testing.assert_array_equal(infer(mge.tensor(X)).numpy(), want)
    infer = trace(lambda x: net(x), symbolic=True, opt_level=3, memory_limit="1GB")
    infer(mge.tensor(X))
    assert "packed" not in str(infer.memory_plan().buffers)


def test_versions_of_several_sizes_hold_packed_weights_once():
    layer = M.Linear(512, 1024)
    infer = trace(lambda x: layer(x), symbolic=True, opt_level=3)
    sizes = [40, 41, 42, 43]
    inputs = [mge.tensor(np.ones((n, 512), np.float32)) for n in sizes]
    infer(inputs[0]), infer(inputs[0])
    packed = 512 * 1024 * 4
    before = mge.get_allocated_memory()
    for x in inputs[1:]:
        infer(x), infer(x)
    assert mge.get_allocated_memory() - before < packed
    layer.weight[...] = layer.weight * 0.5
    for x in inputs:  # each version finds what the first of them has packed anew
        np.testing.assert_allclose(infer(x).numpy(), layer(x).numpy(), rtol=1e-5, atol=1e-5)
    assert mge.get_allocated_memory() - before < packed
    del infer
    assert mge.get_allocated_memory() <= before - packed


def test_weights_stay_packed_where_something_cheap_is_computed_twice():
    """The table is not kept in between: passes that list a graph's ops anew must keep its prologue."""
    convolutions = [M.Conv2d(64, 64, 3, padding=1) for _ in range(2)]

    def body(x, row):
        table = row.reshape(-1, 1) * row  # small operands, a large result
        x = x + F.sum(F.matmul(table, table)) * 1e-6
        for convolution in convolutions:
            x = F.relu(convolution(x))
        return F.matmul(table, table + F.mean(x))

    infer = trace(body, symbolic=True, opt_level=3)
    operands = [mge.tensor(np.ones(shape, np.float32)) for shape in ((2, 64, 14, 14), 256)]
    for _ in range(2):
        np.testing.assert_allclose(infer(*operands).numpy(), body(*operands).numpy(), rtol=1e-3)
    plan = infer.memory_plan()
    assert plan.recompute_flops_ratio > 0 and any("conv_epilogue" in step for step in map(str, plan.steps))


def packs(function, x):
    found = trace(function, symbolic=True, opt_level=3)
    found(x), found(x)
    return "packed" in str(found.memory_plan().buffers)


@pytest.mark.parametrize("trained", ["all", "none", "last"])
def test_weights_that_are_trained_are_not_packed(trained):
    """An optimizer outside of the trace gives them new values before the next call. Frozen layers stay packed."""
    net = M.Sequential(*(M.Linear(256, 256) for _ in range(3)))
    x = mge.tensor(np.ones((8, 256), "float32"))
    wanted = {"all": list(net.parameters()), "none": [x], "last": list(net[2].parameters())}[trained]
    manager = GradManager().attach(wanted)

    @trace(symbolic=True, opt_level=3)
    def gradients(x):
        with manager:
            loss = (F.relu(net(x)) ** 2).mean()
            manager.backward(loss)
        return loss

    for _ in range(2):
        gradients(x)
        for each in wanted:
            each.grad = None
    buffers = [str(each) for each in gradients.memory_plan().buffers]
    # Backward reads the weights of frozen layers in the other order, which some instruction sets do not pack: then forward's would be a second copy.
    frozen = net[0].weight
    expects = {"all": False, "none": packs(lambda x: F.matmul(x, frozen), x), "last": packs(lambda x: F.matmul(x, frozen, transpose_b=True), x)}
    assert any("packed" in each for each in buffers) == expects[trained]
    assert trained != "all" or gradients.memory_plan().planned_bytes < 8.5 * 256 * 256 * 4  # weights, gradients, and what is small


MADE = {
    "as they are": lambda w: w,
    "selected": lambda w: F.where(w > 0, w, w * 0.1),
    "of unit norm": lambda w: w / F.sqrt((w * w).sum(axis=1, keepdims=True)),
    "of halves": lambda w: w.astype("float16").astype("float32"),
    "turned twice": lambda w: F.transpose(F.transpose(w, (1, 0)) * 2, (1, 0)),
}


@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize("made", MADE)
def test_what_weights_are_made_of_leaves_the_graph(made, rows, monkeypatch):
    """With the verifier, which finds nodes that nobody needs."""
    w, x = mge.Parameter(np.random.RandomState(3).randn(64, 17).astype(np.float32)), mge.tensor(np.random.RandomState(4).randn(rows, 17).astype(np.float32))

    def infer(x):
        return F.gelu(F.matmul(x, MADE[made](w), transpose_b=True))

    monkeypatch.setenv("MEGJIT_CHECK", "1")
    _core.reload_debug()
    try:
        traced = trace(infer, symbolic=True, opt_level=3)
        for _ in range(2):
            np.testing.assert_allclose(traced(x).numpy(), infer(x).numpy(), rtol=1e-4, atol=1e-5)
    finally:
        monkeypatch.undo()
        _core.reload_debug()
