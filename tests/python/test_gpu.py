"""What only a GPU has, in this process, where gpu0 is the default device (conftest.py): on a card, or on an emulated one.

What takes several GPUs, and what is best judged in a process of its own, is in test_places.py.
"""

import os

import emulated
import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import amp, autodiff, config, device, jit
from megengine import module as M
from megengine import optimizer as optim

RNG = np.random.default_rng(7)


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


def both(compute, *arrays, dtype="float32"):
    """What ``compute`` and its gradients give on the CPU, and on the GPU."""
    results = []
    for place in ("cpu0", "gpu0"):
        operands = [mge.Parameter(mge.tensor(a, dtype=dtype, device=place)) for a in arrays]
        with autodiff.GradManager().attach(operands) as gm:
            y = compute(*operands)
            gm.backward(y, F.ones_like(y))
        assert y.device == place
        results.append([t.numpy().astype("float64") for t in (y, *(x.grad for x in operands))])
    return results


# ---- what it says of itself


def test_the_card_says_what_it_is():
    prop = device.get_cuda_device_property(0)
    assert prop.name and prop.total_memory == device.get_mem_status_bytes("gpu0")[0]
    assert device.get_cuda_compute_capability(0) == 10 * prop.major + prop.minor >= 70
    assert device.is_cuda_available() and device.get_device_count("gpu") >= 1
    assert device.get_cuda_driver_version() >= 12000


def test_a_card_that_there_is_not_is_told():
    with pytest.raises(RuntimeError, match="gpu99 does not exist; this machine has"):
        device.get_cuda_device_property(99)
    with pytest.raises(ValueError, match="ROCM has no compute capability"):
        device.get_cuda_compute_capability(0, device.DeviceType.ROCM)


# ---- compilers


@pytest.fixture
def asked_for(request, monkeypatch):
    monkeypatch.setenv("MGB_JIT_BACKEND", request.param)
    monkeypatch.setenv("MEGJIT_COMPILE_BUDGET", "600")  # a busy machine
    mge._core.reload_debug()
    yield request.param
    monkeypatch.undo()
    mge._core.reload_debug()


@pytest.mark.parametrize("asked_for", ["NVRTC", "MLIR", "HALIDE"], indirect=True)
def test_kernels_come_from_the_compiler_that_was_asked_for(asked_for):
    if asked_for not in {*mge._core.backends(), *(row[0] for row in mge._core.nvidia_libraries() if row[1])}:
        pytest.skip(f"there is no {asked_for}")
    f = jit.trace(lambda x, y: F.tanh(x * y + 1) * F.sigmoid(y) - F.exp(-x), symbolic=True, opt_level=3)
    x, y = normal(4, 1000), normal(4, 1000)
    expected = np.tanh(x * y + 1) / (1 + np.exp(-y)) - np.exp(-x)
    np.testing.assert_allclose(f(mge.tensor(x), mge.tensor(y)).numpy(), expected, rtol=1e-5, atol=1e-5)
    (kernel,) = f.kernels()
    assert kernel.backend == asked_for


# ---- streams and events


@pytest.mark.parametrize("asked_for", ["NVRTC", "MLIR", "HALIDE"], indirect=True)
@pytest.mark.parametrize("rows, joins", [(1, True), (4, True), (5, True), (32, True), (33, False)])
def test_few_rows_read_int8_weights_as_they_are(asked_for, rows, joins):
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((rows, 300)).astype(np.float32), rng.integers(-127, 128, (70, 300), dtype=np.int8)
    scale = rng.random((70, 1), dtype=np.float32)
    traced = jit.trace(lambda x, w, s: F.tanh(F.matmul(x, w.astype("float32") * s, transpose_b=True) * 1e-3), symbolic=True, opt_level=3)
    result = traced(mge.tensor(x), mge.tensor(weight), mge.tensor(scale)).numpy()
    np.testing.assert_allclose(result, np.tanh(x.astype(np.float64) @ (weight * scale).T * 1e-3), atol=1e-5)
    assert any("matmul" in kernel.ops for kernel in traced.kernels()) == joins


def test_work_of_two_streams_waits_for_what_it_reads():
    x = mge.tensor(np.arange(1e5, dtype="float32"), device="gpu0:1")
    for i in range(20):
        y = (x + i).to("gpu0") * 2
        np.testing.assert_array_equal((y.to("gpu0:1") - x).numpy(), x.numpy() + 2 * i)


def _whole_write(x):
    y = F.zeros_like(x)
    y[...] = x
    return y


@pytest.mark.parametrize("made", [lambda x: x, jit.trace(symbolic=True)(lambda x: x * 1 + 0), _whole_write], ids=["uploaded", "traced", "written"])
def test_a_copy_to_another_stream_follows_what_wrote_its_source(made):
    for i in range(40):
        x = mge.tensor(np.full(1 << 20, i, "float32"), device="gpu0")
        np.testing.assert_array_equal(made(x).to("gpu0:1").numpy(), np.full(1 << 20, i, "float32"))


def test_profiles_are_times_of_the_card():
    f = jit.trace(lambda x: F.matmul(x, x), symbolic=True, profiling=True)
    x = F.ones((512, 512))
    for _ in range(3):
        f(x).numpy()
    profile = f.get_profile()["profiler"]
    (step,) = profile["steps"]
    assert 2 * 512**3 / 1e15 < step["seconds"] / profile["runs"] < 1


# ---- graphs


def test_a_repeated_step_sees_other_operands():
    """From the second run on it is a CUDA graph, whose kernels get new addresses where they changed."""
    f = jit.trace(lambda x, y: F.exp(x - y).sum(axis=1) + F.matmul(x, y)[0], symbolic=True)
    kept = []
    for i in range(8):
        x, y = normal(32, 32), normal(32, 32)
        kept.append(f(mge.tensor(x), mge.tensor(y)))
        np.testing.assert_allclose(kept[-1].numpy(), np.exp(x - y).sum(1) + (x @ y)[0], rtol=1e-4, atol=1e-4, err_msg=str(i))
    first = kept[0].numpy()
    f(mge.tensor(normal(32, 32)), mge.tensor(normal(32, 32))).numpy()
    np.testing.assert_array_equal(kept[0].numpy(), first)


class Classifier(M.Module):
    """An embedding and a loss with labels: both check places."""

    def __init__(self):
        super().__init__()
        self.table, self.norm, self.out = M.Embedding(7, 8), M.BatchNorm1d(8), M.Linear(8, 5)

    def forward(self, words):
        return self.out(self.norm(self.table(words).mean(axis=1)))


LEVELS = {"level 2": {}, "level 3": {"opt_level": 3}, "without host": {"opt_level": 3, "without_host": True}}


def trained(options, optimizer=optim.Adam):
    """A traced training step, and everything that it updates."""
    net = Classifier()
    gm, opt = autodiff.GradManager().attach(net.parameters()), optimizer(net.parameters(), lr=0.1)

    @jit.trace(**{"symbolic": True, **options})
    def step(words, labels):
        with gm:
            loss = F.nn.cross_entropy(net(words), labels)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    def state():
        return [t.numpy() for t in (*net.parameters(), *net.buffers())] + [
            t.numpy() for s in opt._state.values() for t in s.values()
        ]

    return step, state


WORDS = RNG.integers(0, 7, (6, 3)).astype("int32")
LABELS = RNG.integers(0, 5, 6).astype("int32")


@pytest.mark.parametrize("level", LEVELS)
def test_a_step_that_checks_values_is_one_graph(level):
    launches = emulated.launches()
    step, _ = trained(LEVELS[level])
    words, labels = mge.tensor(WORDS), mge.tensor(LABELS)
    for _ in range(3):
        step(words, labels).numpy()
    for _ in range(3):
        launches()
        loss = step(words, labels)
        assert launches() == 1
    assert np.isfinite(loss.item())


@pytest.mark.skipif(
    os.environ.get("MEGJIT_CHECK", "0") != "0", reason="a check of a kernel waits for it, and meets the failure"
)
@pytest.mark.parametrize("wrong", ["words", "labels"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_failed_step_leaves_everything_as_it_was(level, wrong):
    step, state = trained(LEVELS[level])
    words, labels = mge.tensor(WORDS), mge.tensor(LABELS)
    bad = {"words": words, "labels": labels}
    bad[wrong] = mge.tensor(np.full_like(bad[wrong].numpy(), 99))
    for _ in range(3):
        step(words, labels).numpy()
    for reads_state in (False, True):  # who is told
        before = state()
        lost, behind = step(**bad), step(words, labels)
        with pytest.raises(IndexError, match=r"99.*\n(.*\n)*.*test_gpu.py:\d+"):
            (state if reads_state else lost.numpy)()
        for kept, now in zip(before, state(), strict=True):
            np.testing.assert_array_equal(kept, now)
        for loss in (lost, behind):
            with pytest.raises(IndexError):
                loss.numpy()
        assert np.isfinite(step(words, labels).item())
        assert any((kept != now).any() for kept, now in zip(before, state(), strict=True))


@pytest.mark.parametrize("place", ["cpu0", "gpu0"])
def test_a_scaled_step_of_parameters_on_a_card(place):
    """The scale goes to the gradients in the first traced step, and is read from there by eager code."""
    mge.set_default_device(place)
    try:
        rows = scaled_rows()
    finally:
        mge.set_default_device("gpu0")
    assert rows[0] == rows[1] and rows[0][-1][-2:] == [16, 0]


def scaled_rows():
    rows = []
    for wrap in (lambda step: step, lambda step: jit.trace(step, symbolic=True, without_host=True)):
        scaler = amp.GradScaler(init_scale=8.0, growth_interval=2)
        param = mge.Parameter(np.arange(4, dtype="float32"), device="gpu0")
        gm, optimizer = autodiff.GradManager().attach(param), optim.Adam([param], lr=0.1)

        @wrap
        def step(x, param=param, gm=gm, optimizer=optimizer, scaler=scaler):
            with gm:
                scaler.backward(gm, (param * x).sum())
            optimizer.step().clear_grad()

        rows.append([])
        for factor in (1.0, 1.0, np.inf, 1.0, 1.0):
            step(mge.tensor(np.float32(factor), device="gpu0"))
            rows[-1].append([*param.tolist(), scaler.scale_factor, scaler._growth_tracker])
    return rows


def test_what_takes_the_place_of_two_values_is_lost_and_neither_of_them():
    a, b = mge.Parameter([1.0, 2.0]), mge.Parameter([3.0, 4.0])

    @jit.trace(symbolic=True)
    def step(index):
        mean = (a + b)[index] / 2
        a._reset(mean), b._reset(mean)

    step(mge.tensor([1, 9]))
    for p in (a, b, a, b):
        with pytest.raises(IndexError):
            p.numpy()
    a[...], b[...] = [1.0, 2.0], [3.0, 4.0]
    step(mge.tensor([1, 0]))
    assert a.numpy().tolist() == b.numpy().tolist() == [3, 2]


# ---- offload


def test_values_that_wait_on_the_host_come_back_with_their_bits():
    def train(offloads):
        weights = [mge.Parameter(w) for w in start]
        gm, opt = autodiff.GradManager().attach(weights), optim.SGD(weights, lr=0.1)

        @jit.trace(symbolic=True)
        def step(x):
            with gm:
                for w in weights:
                    x = F.relu(F.matmul(x, w))
                    if offloads:
                        x = jit.offload(x)
                loss = (x**2).mean()
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        losses = [step(mge.tensor(data)).item() for _ in range(4)]
        return losses, [w.numpy() for w in weights], step.memory_plan().transferred_bytes

    start, data = [normal(256, 256) / 16 for _ in range(6)], normal(256, 256)
    plain, moved = train(False), train(True)
    assert moved[2] > 0 == plain[2]
    assert plain[0] == moved[0]
    for a, b in zip(plain[1], moved[1], strict=True):
        np.testing.assert_array_equal(a, b)


# ---- errors


def test_an_index_out_of_range_is_told_and_harms_nothing():
    x = mge.tensor([1.0, 2.0])
    y = x[mge.tensor([7])]
    with pytest.raises(IndexError, match="index 7 is out of range"):
        (y + 1).numpy()
    assert (x + 1).numpy().tolist() == [2, 3]


def test_a_full_memory_is_told_with_what_fills_it():
    x = F.zeros((1 << 20,))
    x.numpy()
    device.set_memory_cap(device.get_reserved_memory() + (6 << 20))
    try:
        with pytest.raises(MemoryError, match="the largest tensors alive: 4.0 MiB"):
            kept = [x + i for i in range(100)]
            del kept
    finally:
        device.set_memory_cap(None)
    assert (x + 1).sum().item() == 1 << 20


def test_a_child_of_a_fork_is_told_what_to_do():
    x = mge.tensor([1.0])
    x.numpy()
    child = os.fork()
    if child == 0:
        try:
            x.numpy()
        except RuntimeError as error:
            os._exit(7 if "before fork()" in str(error) else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert (x + 1).numpy() == 2


@pytest.mark.skipif("MEGJIT_EMULATED_GPUS" not in os.environ, reason="a system's cards read pageable memory, or do not")
def test_arrays_may_change_after_uploads_where_cards_read_pageable_memory(monkeypatch):
    monkeypatch.setenv("MEGJIT_CARD_HMM", "1")
    for _ in range(100):
        array = np.ones(1000, "float32")
        there = mge.tensor(array)
        array[:] = 2
        np.testing.assert_array_equal(there.numpy(), np.ones(1000, "float32"))


# ---- what NVIDIA's libraries compute, against the CPU

PRODUCTS = {
    "matmul": (F.matmul, (24, 40), (40, 16)),
    "matmul of batches": (F.matmul, (4, 24, 40), (4, 40, 16)),
    "matmul of batches of batches": (F.matmul, (2, 1, 5, 7), (3, 7, 9)),  # the second begins between multiples of 16 bytes
    "matmul over nothing": (F.matmul, (24, 0), (0, 16)),
    "linear": (F.linear, (24, 40), (16, 40), (16,)),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, padding=1), (2, 16, 12, 12), (32, 16, 3, 3), (1, 32, 1, 1)),
    "strided conv2d": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), (2, 16, 12, 12), (32, 16, 3, 3)),
    "conv2d of groups": (lambda x, w: F.conv2d(x, w, groups=4), (2, 16, 12, 12), (4, 8, 4, 3, 3)),
    "conv2d of no images": (lambda x, w: F.conv2d(x, w, padding=1), (0, 16, 12, 12), (32, 16, 3, 3)),
    "conv3d": (F.conv3d, (2, 8, 6, 6, 6), (16, 8, 3, 3, 3)),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2), (2, 16, 6, 6), (16, 8, 4, 4)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 8, 12, 12)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), (2, 8, 12, 12)),
    "layer_norm": (lambda x, w, b: F.nn.layer_norm(x, (64,), True, w, b), (12, 64), (64,), (64,)),
    "attention": (lambda q, k: F.nn.multi_head_attention(q, k, k, 32, 2, 0.0, 0.0, None)[0], (2, 24, 32), (2, 40, 32)),
    "causal attention": (lambda x: F.nn.multi_head_attention(x, x, x, 32, 2, 0.0, 0.0, None, is_causal=True)[0], (2, 24, 32)),
    "softmax": (lambda x: F.softmax(x, axis=-1) ** 2, (12, 64)),
}
TOLERANCE = {"float32": 1e-4, "float16": 4 * 2.0**-11, "bfloat16": 4 * 2.0**-8}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_and_their_gradients_are_those_of_the_cpu(name, dtype):
    compute, *shapes = PRODUCTS[name]
    if dtype != "float32" and name == "layer_norm":
        pytest.skip("its weights are float32")
    operands = [normal(*shape) / 2 for shape in shapes]
    here, there = both(compute, *operands, dtype=dtype)
    for a, b in zip(here, there, strict=True):
        np.testing.assert_allclose(b, a, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * np.abs(a).max(initial=1))


def test_a_network_in_training_is_that_of_the_cpu():
    """Biases, residuals and relu behind convolutions and matrix products, as steps of them or as kernels of their own."""

    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = M.Conv2d(3, 16, 3, padding=1), M.Conv2d(16, 16, 3, padding=1)
            self.norm, self.out = M.BatchNorm2d(16), M.Linear(16, 10)

        def forward(self, x):
            x = F.relu(self.conv1(x))
            x = F.relu(self.conv2(x) + x)
            return self.out(F.relu(self.norm(x)).mean(axis=(2, 3)))

    def train(place):
        default = mge.get_default_device()
        mge.set_default_device(place)
        try:
            rng = np.random.default_rng(1)
            net = Net()
            for p in net.parameters():
                p._reset(mge.tensor(rng.normal(size=p.shape).astype("float32") / 4, device=place))
            gm, opt = autodiff.GradManager().attach(net.parameters()), optim.Adam(net.parameters(), lr=0.01)

            @jit.trace(symbolic=True, opt_level=3)
            def step(x, label):
                with gm:
                    loss = F.nn.cross_entropy(net(x), label)
                    gm.backward(loss)
                opt.step().clear_grad()
                return loss

            x, label = rng.normal(size=(8, 3, 12, 12)).astype("float32"), rng.integers(0, 10, 8).astype("int32")
            return [step(mge.tensor(x), mge.tensor(label)).item() for _ in range(6)]
        finally:
            mge.set_default_device(default)

    here, there = train("cpu0"), train("gpu0")
    np.testing.assert_allclose(there, here, rtol=1e-3)
    assert there[-1] < there[0]


# ---- rules of products (megengine.config)


def plan_of(compute, *operands):
    f = jit.trace(compute, symbolic=True)
    f(*operands)
    return "\n".join(f.memory_plan().steps)


@pytest.mark.parametrize("setting", ["tf32", "deterministic_kernel", "benchmark_kernel"])
def test_rules_of_products_are_live(setting):
    x = mge.tensor(normal(64, 64))
    expected = F.matmul(x, x).numpy()
    with config._override(**{setting: True}):
        there = F.matmul(x, x).numpy()
    tolerance = 1e-2 if setting == "tf32" else 1e-4
    np.testing.assert_allclose(there, expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(F.matmul(x, x).numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not any(row[0] == "cuBLASLt" and row[1] for row in mge._core.nvidia_libraries()), reason="there is no cuBLASLt")
def test_tf32_is_another_plan():
    x = mge.tensor(normal(64, 64))
    strict = plan_of(F.matmul, x, x)
    assert "cuBLASLt" in strict and "tf32" not in strict
    with config._override(tf32=True):
        assert "64x64x64 tf32" in plan_of(F.matmul, x, x)


def test_any_number_of_kernels_that_check_values_may_live_in_graphs():
    def gathers(x, index):
        total = x.sum() * 0
        for _ in range(80):
            index = index + 0
            total = total + x[index].sum()
        return total

    f = jit.trace(gathers, symbolic=True, opt_level=1)
    for n in range(2, 16):
        x, index = mge.tensor(np.arange(n, dtype="float32")), mge.tensor(np.array([0, n - 1], "int32"))
        for _ in range(3):  # the first records, the third is a graph
            assert f(x, index).item() == 80 * (n - 1)
    with pytest.raises(IndexError):
        f(x, mge.tensor(np.array([0, 99], "int32"))).item()
    assert f(x, index).item() == 80 * (n - 1)
