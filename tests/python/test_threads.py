"""Threads of the host: how many there are, the same bits with any number, forks, machines that grant little."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import _core, device
from megengine.autodiff import GradManager
from megengine.jit import trace

COUNTS = (1, 2, 3, 4, 96)


@pytest.fixture(autouse=True)
def granted_afterwards():
    yield
    device.set_num_threads(None)


def run(program, **environment):
    """What a new process prints."""
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**env, **environment}, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_number_is_what_was_set():
    granted = device.get_num_threads()
    assert granted >= 1
    for count in (3, 1, np.int64(2)):
        device.set_num_threads(count)
        assert device.get_num_threads() == count
    device.set_num_threads(None)
    assert device.get_num_threads() == granted


@pytest.mark.parametrize("count", [0, -1])
def test_less_than_one_thread_is_refused(count):
    with pytest.raises(ValueError, match=f"set_num_threads: {count}"):
        device.set_num_threads(count)


@pytest.mark.parametrize("count", ["2", 1.5])
def test_what_is_no_integer_is_refused(count):
    with pytest.raises(TypeError):
        device.set_num_threads(count)


COUNT = "import megengine; print(megengine.device.get_num_threads())"


def test_the_variable_bounds_it():
    cores = len(os.sched_getaffinity(0))
    assert run(COUNT, OMP_NUM_THREADS="1") == "1"
    assert int(run(COUNT, OMP_NUM_THREADS="1000")) <= cores
    assert int(run(COUNT, OMP_NUM_THREADS="nonsense")) <= cores
    assert "OMP_NUM_THREADS" in _core.switches()


def test_one_core_is_one_thread():
    one = "import os; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])\n"
    assert run(one + COUNT) == "1"


def test_a_call_goes_before_variable_and_affinity():
    program = COUNT.replace("print", "megengine.device.set_num_threads(3); print")
    assert run(program, OMP_NUM_THREADS="1") == "3"


# Results that reach several threads, by name. None goes through oneDNN, which cuts products by the number of threads.
def values():
    rng = np.random.RandomState(3)
    return {
        "wide": mge.tensor(rng.randn(6, 70001).astype(np.float32)),
        "tall": mge.tensor(rng.randn(30011, 9).astype(np.float32)),
        "image": mge.tensor(rng.randn(8, 24, 37, 41).astype(np.float32)),
        "kernel": mge.tensor(rng.randn(20, 24, 3, 3).astype(np.float32)),
        "scale": mge.tensor(rng.rand(1, 24, 1, 1).astype(np.float32)),
    }


def gradients(function, *inputs):
    gm = GradManager().attach(list(inputs))
    with gm:
        y = function(*inputs)
        gm.backward((y * F.sin(y.detach())).sum())
    results = [y, *(x.grad for x in inputs)]
    for x in inputs:
        x.grad = None
    return results


def gradient_of_weights(x, w, stride):
    gm = GradManager().attach([w])
    with gm:
        y = F.conv2d(x, w, stride=stride, padding=1)
        gm.backward(y, F.linspace(-1, 1, y.size).reshape(y.shape))
    gradient, w.grad = w.grad, None
    return gradient


def depthwise(x):
    kernel = F.reshape(F.linspace(-1, 1, 24 * 49), (24, 1, 1, 7, 7))
    return gradients(lambda x, w: F.conv2d(x, w, padding=3, groups=24), x, kernel)


def batch_norm(x, scale):
    return F.batch_norm(x, weight=scale, bias=scale * 2, training=True)


def layer_norm(x):
    return F.layer_norm(x, (x.shape[1],), False)


PROGRAMS = {
    "sums": lambda v: [f(v[name], axis=axis) for f in (F.sum, F.mean, F.max, F.prod) for name in ("wide", "tall") for axis in (None, 0, 1)],
    "places": lambda v: [F.argmax(v["wide"], axis=1), F.argmin(v["tall"], axis=0), F.argsort(v["wide"])],
    "cumsum": lambda v: [F.cumsum(v["wide"], axis=1), F.cumsum(v["tall"], axis=0)],
    "softmax": lambda v: [y for name in ("wide", "tall") for y in gradients(lambda x: F.softmax(x, axis=1), v[name])],
    "batch_norm": lambda v: gradients(batch_norm, v["image"], v["scale"]),
    "batch_norm_rows": lambda v: gradients(lambda x: F.batch_norm(x, training=True), v["tall"]),
    "layer_norm": lambda v: [y for name in ("wide", "tall") for y in gradients(layer_norm, v[name])],
    "pools": lambda v: [y for pool in (F.max_pool2d, F.avg_pool2d) for y in gradients(lambda x: pool(x, 3, 2, 1), v["image"])],
    "weights": lambda v: [gradient_of_weights(v["image"], v["kernel"], stride) for stride in (1, 2)],
    "depthwise": lambda v: depthwise(v["image"]),
    "choices": lambda v: [v["tall"][v["tall"][:, 0] > 0], F.gather(v["wide"], 1, F.argsort(v["wide"]))],
    "elements": lambda v: [F.gelu(v["wide"]) * 3 + v["wide"], F.concat([v["tall"], v["tall"]], axis=1)],
}


def bits(program):
    return [y.numpy().tobytes() for y in program(values())]


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_number_of_threads_gives_the_same_bits(name):
    found = []
    for count in COUNTS:
        device.set_num_threads(count)
        found.append(bits(PROGRAMS[name]))
    assert all(other == found[0] for other in found[1:])


@pytest.mark.parametrize("backend", _core.backends()[:2])
@pytest.mark.parametrize("name", ["sums", "softmax", "batch_norm_rows", "layer_norm", "elements"])
def test_any_number_of_threads_gives_the_same_bits_when_fused(name, backend, monkeypatch):
    if backend not in ("MLIR", "HALIDE"):
        pytest.skip("compiles for no CPU")
    monkeypatch.setenv("MGB_JIT_BACKEND", backend)
    _core.reload_debug()
    try:
        function = trace(lambda: PROGRAMS[name](inputs), symbolic=True, opt_level=3)
        inputs = values()
        found = []
        for count in COUNTS:
            device.set_num_threads(count)
            found.append([y.numpy().tobytes() for y in function()])
        assert all(other == found[0] for other in found[1:])
    finally:
        monkeypatch.undo()
        _core.reload_debug()


def test_random_numbers_do_not_depend_on_threads():
    found = []
    for count in COUNTS:
        device.set_num_threads(count)
        mge.random.seed(5)
        found.append([f(size=(300, 1000)).numpy().tobytes() for f in (mge.random.uniform, mge.random.normal)])
    assert all(other == found[0] for other in found[1:])


def network(x, w, m):
    return F.conv2d(x, w, padding=1).sum(axis=(2, 3)) @ m


def test_products_made_for_one_number_run_with_another():
    rng = np.random.RandomState(0)
    x, w, m = (mge.tensor(rng.randn(*s).astype(np.float32)) for s in ((4, 16, 20, 20), (32, 16, 3, 3), (32, 64)))
    want = network(x, w, m).numpy()
    for made in COUNTS:
        device.set_num_threads(made)
        function = trace(lambda: network(x, w, m), symbolic=True)
        function()
        for count in COUNTS:
            device.set_num_threads(count)
            np.testing.assert_allclose(function().numpy(), want, rtol=1e-4, atol=1e-3)


def test_python_threads_compute_at_once():
    device.set_num_threads(3)
    rng = np.random.RandomState(0)
    a = mge.tensor(rng.randn(200, 300).astype(np.float32))
    b = mge.tensor(rng.randn(300, 200).astype(np.float32))
    want, failed = (a @ b).numpy(), []

    def work():
        for _ in range(60):
            if not np.allclose((a @ b).numpy(), want, atol=1e-3) or F.sum(F.exp(a) * 0).item() != 0:
                failed.append(1)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


FORK = """
import os, threading
import numpy as np
import megengine as mge, megengine.functional as F
mge.device.set_num_threads(3)
x = mge.tensor(np.ones((300, 300), np.float32))

def good():
    return (x @ x).numpy().min() == 300 and F.sum(F.exp(x * 0)).item() == 90000

assert good()
over = threading.Event()
other = threading.Thread(target=lambda: [good() for _ in iter(over.is_set, True)])
other.start()
for _ in range(5):
    child = os.fork()
    if child == 0:
        right = mge.device.get_num_threads() == 1 and good()
        mge.device.set_num_threads(2)
        os._exit(0 if right and good() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert good()
over.set()
other.join()
print("ok")
"""


def test_children_of_a_process_that_computes():
    assert run(FORK) == "ok"


REFUSED = """
import os, resource
import numpy as np
import megengine as mge
x = mge.tensor(np.ones((300, 300), np.float32))
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
if os.geteuid() == 0:
    os.setuid(54321)  # root is not bound by it
mge.device.set_num_threads(4)
assert ((x @ x + x).numpy() == 301).all()
print(mge.device.get_num_threads())
"""


def test_threads_that_the_system_refuses_are_done_without():
    assert run(REFUSED) == "1"


OTHERS_RUN = """
import sys, threading, time
import numpy as np
import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager
sys.setswitchinterval(1e6)  # nobody runs but when another gives up the lock
x = mge.Parameter(np.random.rand(512, 512).astype("float32"))
seen = []
computes = False
def look():
    while not seen or seen[-1] != "end":
        if computes:
            seen.append("beside")
        time.sleep(0)  # gives up the lock
gm = GradManager().attach([x])
threading.Thread(target=look).start()
for _ in range(2000):
    with gm:
        y = x * 2 if {is_backward} else x
        computes = True
        gm.backward(y) if {is_backward} else F.matmul(y, y)
        computes = False
    if seen:
        break
seen.append("end")
print(seen[0])
"""


@pytest.mark.parametrize("is_backward", [False, True])
def test_other_threads_run_beside_a_kernel(is_backward):
    assert run(OTHERS_RUN.format(is_backward=is_backward)) == "beside"


AT_EXIT = """
import threading
import numpy as np
import megengine as mge
import megengine.functional as F
x = mge.tensor(np.random.rand(300, 300).astype("float32"))
started = threading.Event()
def work():
    while True:
        F.matmul(x, x)
        started.set()
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
started.wait()
"""


def test_daemon_threads_that_compute_do_not_break_the_end_of_the_process():
    for _ in range(5):
        assert run(AT_EXIT) == ""
