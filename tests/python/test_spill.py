"""Values that wait in a file while memory has no room for them: `trace(memory_limit=, spill=)`."""

import gc
import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace

KINDS = {
    "sgd": lambda net: optim.SGD(net.parameters(), lr=0.01),
    "momentum": lambda net: optim.SGD(net.parameters(), lr=0.01, momentum=0.9),
    "adam": lambda net: optim.Adam(net.parameters(), lr=0.001),
}


def net_of(width=256, depth=4):
    mge.random.seed(0)
    return M.Sequential(*[M.Sequential(M.Linear(width, width), M.GELU()) for _ in range(depth)])


def step_of(kind="sgd", width=256, depth=4, **options):
    net = net_of(width, depth)
    gm, optimizer = GradManager().attach(net.parameters()), KINDS[kind](net)

    @trace(symbolic=True, **options)
    def step(x):
        with gm:
            loss = (net(x) ** 2).mean()
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    step.net, step.optimizer = net, optimizer
    return step


def batch(rows=512, width=256, seed=0):
    return mge.tensor(np.random.RandomState(seed).randn(rows, width).astype("float32"))


def bits(step):
    """The bits of all that a step has trained."""
    values = [p.numpy() for p in step.net.parameters()]
    for state in step.optimizer.state_dict()["state"].values():
        values += [np.asarray(value) for value in state.values() if not isinstance(value, (int, float))]
    return [value.tobytes() for value in values]


def least_limit(part=0.9, x=None, **options):
    """Such a part of what a call takes at least that moves nothing."""
    with pytest.raises(MemoryError) as refused:
        step_of(memory_limit=1, **options).plan(batch(width=options.get("width", 256)) if x is None else x)
    return int(refused.value.needed * part)


@pytest.mark.parametrize("level", [0, 2, 3])
@pytest.mark.parametrize("kind", list(KINDS))
def test_bits_are_those_without_a_limit(tmp_path, kind, level):
    x = batch()
    plain = step_of(kind, opt_level=level, numerics="exact")
    losses = [plain(batch(seed=i)).item() for i in range(4)]
    for limit in (plain.plan(x).planned_bytes * 7 // 10, least_limit(kind=kind, opt_level=level)):
        step = step_of(kind, opt_level=level, numerics="exact", memory_limit=limit, spill=tmp_path)
        assert step.plan(x).planned_bytes <= limit
        assert [step(batch(seed=i)).item() for i in range(4)] == losses
        assert bits(step) == bits(plain)
    assert step.memory_plan().transferred_bytes > 0
    assert os.listdir(tmp_path) == []  # the file has no name


def test_a_loop_in_the_step_is_no_step_of_its_own(tmp_path):
    """What leaves is chosen among the values of the step, also where an op holds a graph."""
    x = batch(64)

    def step_with_loop(**options):
        net = net_of()
        gm, optimizer = GradManager().attach(net.parameters()), optim.Adam(net.parameters(), lr=0.001)

        @trace(symbolic=True, opt_level=3, numerics="exact", **options)
        def step(x):
            with gm:
                h, _ = F.scan(lambda h, row: (F.tanh(h) + row, row), x, net(x)[:4])
                loss = (h**2).mean()
                gm.backward(loss)
            optimizer.step().clear_grad()
            return loss

        return step

    plain = step_with_loop()
    with pytest.raises(MemoryError) as refused:
        step_with_loop(memory_limit=1).plan(x)
    step = step_with_loop(memory_limit=int(refused.value.needed * 0.7), spill=tmp_path)
    assert step.plan(x).written_bytes > 2**20
    for _ in range(3):
        assert step(x).item() == plain(x).item()


def test_the_allocator_takes_no_more_than_the_limit(tmp_path):
    """Parameters and states are in the file between calls, too."""
    x, others = batch(), mge.device.get_allocated_memory()
    limit = least_limit(0.6, kind="adam")
    step = step_of("adam", memory_limit=limit, spill=tmp_path)
    step(x)  # the first call finds the values in memory, where the program has made them
    gc.collect()
    assert mge.device.get_allocated_memory() - others <= step.memory_plan().arena_bytes + 2**17
    for _ in range(2):
        mge.device.reset_max_memory_stats()
        loss = step(x)
        assert mge.device.get_max_allocated_memory() - others <= limit
    assert np.isfinite(loss.item())


def test_reads_between_calls_see_the_values(tmp_path):
    x = batch()
    plain = step_of("adam")
    limit = least_limit(kind="adam")
    step = step_of("adam", memory_limit=limit, spill=tmp_path)
    other = net_of()
    for seed in range(3):
        x = batch(seed=seed)
        assert step(x).item() == plain(x).item()
        weight, same = (each.net[1][0].weight for each in (step, plain))
        np.testing.assert_array_equal((weight * 2).numpy(), (same * 2).numpy())  # eagerly
        other.load_state_dict(step.net.state_dict())
        np.testing.assert_array_equal(other(x).numpy(), plain.net(x).numpy())
        np.testing.assert_array_equal(trace(lambda x: step.net(x), symbolic=True)(x).numpy(), plain.net(x).numpy())
        weight[...] = same  # written by the program
    assert bits(step) == bits(plain)
    held = step.net[0][0].weight.numpy()
    before = held.copy()
    step(x)
    np.testing.assert_array_equal(held, before)  # an array that somebody holds does not change


def run(program, tmp_path, **variables):
    """Runs a program in a process of its own, which has what this file has."""
    text = f"import sys\nsys.path.insert(0, {os.path.dirname(__file__)!r})\nfrom test_spill import *\nfolder = {str(tmp_path)!r}\n"
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text + textwrap.dedent(program)],
        capture_output=True, text=True, timeout=300, env={**os.environ, **variables},
    )  # fmt: skip


BEGIN = """
x = batch()
plain = step_of("adam")
limit = least_limit(kind="adam")
step = step_of("adam", memory_limit=limit, spill=folder)
"""

BEGIN_WIDE = """
x = batch(width={width})
plain = step_of("adam", width={width}, depth=2)
limit = least_limit(x=x, kind="adam", width={width}, depth=2)
step = step_of("adam", width={width}, depth=2, memory_limit=limit, spill=folder)
"""


def test_a_full_disk_is_an_error_of_the_call_and_loses_nothing(tmp_path):
    """RLIMIT_FSIZE plays the disk."""
    done = run(BEGIN + """
import resource
step.plan(x)  # measures the disk
before = bits(step)
resource.setrlimit(resource.RLIMIT_FSIZE, (33 << 20, resource.RLIM_INFINITY))
big = step_of("adam", width=1024, memory_limit="40MB", spill=folder)
start = bits(big)
try:
    big(batch(width=1024))
except OSError as error:
    assert folder in str(error) and "has no room for" in str(error) and len(str(error).splitlines()) <= 6, error
else:
    raise AssertionError("it fits")
assert bits(big) == start
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
plain = step_of("adam", width=1024)
for seed in range(2):
    x = batch(width=1024, seed=seed)
    assert big(x).item() == plain(x).item()
assert bits(big) == bits(plain)
""", tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr


def spill_file():
    """The open file without a name."""
    for number in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{number}"
        if "(deleted)" in os.path.realpath(path) or "(deleted)" in os.readlink(path):
            if "spill" in os.readlink(path) or os.readlink(path).startswith(os.environ["SPILL"]):
                return path
    raise AssertionError("no file is open")


def test_values_of_many_chunks_come_back_as_they_were(tmp_path):
    """Two threads move the chunks of 1 MiB of one value; the last of this one is shorter."""
    x = batch(width=1056)
    plain = step_of("adam", width=1056, depth=2)
    limit = least_limit(x=x, kind="adam", width=1056, depth=2)
    step = step_of("adam", width=1056, depth=2, memory_limit=limit, spill=tmp_path)
    for _ in range(3):
        assert step(x).item() == plain(x).item()
    assert bits(step) == bits(plain)
    assert step.memory_plan().written_bytes > 2 * 1056 * 1056 * 4


@pytest.mark.parametrize("width", [256, 1024])  # values of one chunk, and of four
@pytest.mark.parametrize("fault", ["bytes", "end"])
def test_what_does_not_come_back_as_it_was_is_an_error(tmp_path, fault, width):
    done = run(BEGIN_WIDE.format(width=width) + f"""
assert step(x).item() == plain(x).item()
with open(spill_file(), "r+b") as file:
    size = file.seek(0, 2)
    if {fault!r} == "end":
        file.truncate(0)
    for at in range(0, size if {fault!r} == "bytes" else 0, 4096):
        file.seek(at)
        file.write(b"damage")
for look in (lambda: step.net[0][0].weight.numpy(), lambda: step(x)):
    try:
        look()
    except OSError as error:
        assert folder in str(error) and "did not give back" in str(error) and len(str(error).splitlines()) <= 6, error
    else:
        raise AssertionError("nobody saw it")
""", tmp_path, SPILL=str(tmp_path))  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_an_interrupt_loses_nothing(tmp_path):
    """Wherever Ctrl-C comes in a run, the step has been taken as a whole or not at all. (In the body it is as without a trace.)"""
    done = run(BEGIN.replace('step_of("adam"', 'step_of("adam", without_host=True') + """
import signal
def stop(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, stop)
states = [bits(plain)]
for _ in range(8):
    plain(x)
    states.append(bits(plain))
step(x), step(x)
taken = 2
for wait in range(5):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.004 * wait)
        step(x)
        signal.pause()  # the call was faster
    except KeyboardInterrupt:
        pass
    assert bits(step) in states[taken : taken + 2]
    taken = states.index(bits(step))
step(x)
assert bits(step) == states[taken + 1]
""", tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_child_of_fork_goes_on_by_itself(tmp_path):
    done = run(BEGIN + """
step(x), plain(x)
child = os.fork()
if child == 0:
    try:
        assert bits(step) == bits(plain)
        assert step(x).item() == plain(x).item() and bits(step) == bits(plain)
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
for _ in range(3):
    assert step(x).item() == plain(x).item()
assert bits(step) == bits(plain)
""", tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_threads_take_turns(tmp_path):
    """Two functions in one folder."""
    x = batch()
    plain = step_of("momentum")
    limit = least_limit(kind="momentum")
    steps = [step_of("momentum", memory_limit=limit, spill=tmp_path) for _ in range(2)]
    for _ in range(3):
        plain(x)
    failures = []

    def work(step):
        try:
            for _ in range(3):
                step(x)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert bits(steps[0]) == bits(steps[1]) == bits(plain)


@pytest.mark.parametrize("without_host", [False, True])
def test_versions_of_one_function(tmp_path, without_host):
    """Batches of several sizes read and replace the same states."""
    plain = step_of("adam", without_host=without_host)
    limit = least_limit(kind="adam")
    step = step_of("adam", memory_limit=limit, spill=tmp_path, without_host=without_host)
    for rows in (512, 64, 512, 256, 64):
        x = batch(rows, seed=rows)
        assert step(x).item() == plain(x).item()
    assert bits(step) == bits(plain)


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"spill": "/"}, ValueError, "there is none"),
        ({"spill": "/no/such/folder", "memory_limit": "1GB"}, FileNotFoundError, "/no/such/folder"),
        ({"spill": 3, "memory_limit": "1GB"}, TypeError, "3"),
    ],
)
def test_what_is_no_folder_is_refused(options, error, words):
    with pytest.raises(error, match=words):
        trace(lambda x: x, **options)


def test_a_folder_that_cannot_be_written_to_is_an_error_of_the_call():
    step = step_of("adam", memory_limit="4MB", spill="/proc")
    before = bits(step)
    with pytest.raises(OSError, match="/proc"):
        step(batch())
    assert bits(step) == before


def test_a_limit_that_is_kept_without_it_moves_nothing(tmp_path):
    plan = step_of("adam", memory_limit="1GB", spill=tmp_path).plan(batch())
    assert plan.host_bytes == plan.transferred_bytes == plan.written_bytes == 0


def test_parameters_are_trained_while_backward_runs(tmp_path):
    """What trains a layer is written to the file while the gradients of others are computed, and not behind all of them."""
    step = step_of("adam", opt_level=3, memory_limit=least_limit(kind="adam", opt_level=3), spill=tmp_path)
    steps = step.plan(batch()).steps
    written = [i for i, text in enumerate(steps) if "to_host f32[256, 256]" in text]
    gradients = [i for i, text in enumerate(steps) if "weight.grad" in text]
    assert len(written) == 12 and len(gradients) == 4
    assert sum(i < gradients[-1] for i in written) >= 6


def test_the_plan_tells_what_moves(tmp_path):
    x = batch()
    limit = least_limit(kind="adam")
    plan = step_of("adam", memory_limit=limit, spill=tmp_path).plan(x)
    assert 0 < plan.written_bytes < plan.transferred_bytes
    assert 0 <= plan.waiting_seconds and 0 < plan.transfer_seconds
    text = str(plan)
    assert "in a file, beside that" in text and "written there in a call" in text and "read back in a call" in text
    assert "of these transfers beside steps" in text and "of these transfers beside steps" in plan.html()
