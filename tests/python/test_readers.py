"""Threads that read what another thread's traced calls update, or ask what they compiled."""

import copy
import os
import pickle
import signal
import sys
import threading
import time

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import jit
from test_trace import t

READS = {
    "numpy": lambda w: w.numpy(),
    "item": lambda w: w[0, 0].item(),
    "shape": lambda w: w.shape and w.numpy(),
    "op": lambda w: (w + 0).numpy(),
    "traced": jit.trace(lambda w: w * 1).__call__,
    "detach": lambda w: w.detach().numpy(),
    "copy": lambda w: copy.deepcopy(w).numpy(),
    "pickle": lambda w: pickle.loads(pickle.dumps(w)).numpy(),
}


@pytest.fixture
def gives_way_only_when_it_waits():
    """A thread keeps Python's lock until it waits for something: a program that runs, or a sleep."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(interval)


def beside(work, read, times=300):
    """Calls `read` in this thread until another has called `work` so often; what `read` gave, and errors."""
    found, over = [], threading.Event()

    def run():
        try:
            for _ in range(times):
                work()
        except BaseException as error:
            found.append(error)
        over.set()

    thread = threading.Thread(target=run)
    thread.start()
    while not over.is_set():
        time.sleep(0)  # gives way
        try:
            found.append(read())
        except BaseException as error:
            found.append(error)
            break
    thread.join()
    for error in found:
        if isinstance(error, BaseException):
            raise error
    return found


@pytest.mark.parametrize("options", [{"without_host": True}, {}, {"symbolic": True}, {"symbolic": True, "without_host": True}])
@pytest.mark.parametrize("name", READS)
def test_a_reader_of_a_parameter_waits_for_the_program_that_updates_it(name, options, gives_way_only_when_it_waits):
    w = mge.Parameter(np.zeros((300, 300), np.float32))

    @jit.trace(**options)
    def step():
        w[...] = w + 1

    read = READS[name]
    step()
    read(w)
    seen = [np.asarray(value) for value in beside(step, lambda: read(w))]
    assert all((value == value.flat[0]).all() for value in seen)  # never half of an update
    counts = [value.flat[0] for value in seen]
    assert counts == sorted(counts) and (w.numpy() == 301).all()


def test_a_reader_of_an_argument_waits_too(gives_way_only_when_it_waits):
    w = mge.Parameter(np.zeros((300, 300), np.float32))

    @jit.trace(without_host=True)
    def step(w):
        w[...] = w + 1

    step(w)
    beside(lambda: step(w), w.numpy)
    assert (w.numpy() == 301).all()


def test_a_write_beside_an_update_is_not_lost(gives_way_only_when_it_waits):
    w = mge.Parameter(np.zeros((300, 300), np.float32))
    written = [0.0]

    @jit.trace(without_host=True)
    def step():
        w[...] = w + 1

    def write():
        written[0] += 1000
        w[...] = np.full((300, 300), written[0], np.float32)
        time.sleep(0)  # gives way
        assert (w.numpy() >= written[0]).all()

    step()
    step()
    beside(step, write)


def test_two_functions_update_one_parameter(gives_way_only_when_it_waits):
    w = mge.Parameter(np.zeros((300, 300), np.float32))

    def add_one():
        w[...] = w + 1

    one, other = (jit.trace(add_one, without_host=True) for _ in range(2))
    calls = []
    for function in (one, other, one, other):
        function()
    beside(one, lambda: calls.append(other()))
    assert (w.numpy() == 4 + 300 + len(calls)).all()


def test_a_reader_beside_a_program_that_fails_gets_the_old_value(gives_way_only_when_it_waits):
    w = mge.Parameter(np.full((300, 300), 7, np.float32))
    index = mge.tensor(np.zeros(1, np.int32))

    @jit.trace(without_host=True)
    def step(index):
        w[...] = w + F.indexing_one_hot(t(1, 2, 3).reshape(1, 3), index, 1).sum()

    step(index)
    wrong = mge.tensor(np.full(1, 5, np.int32))

    def fail():
        with pytest.raises(Exception, match="index"):
            step(wrong)

    assert all((value == 8).all() for value in beside(fail, w.numpy))


def test_a_fork_beside_an_update_does_not_wait_for_it(gives_way_only_when_it_waits):
    w = mge.Parameter(np.zeros((300, 300), np.float32))

    @jit.trace(without_host=True)
    def step():
        w[...] = w + 1

    def fork():
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # ends a child that waits
            try:
                w.numpy()  # or an error
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0

    step()
    step()
    beside(step, fork, times=3000)


ASKED = {
    "memory_plan": lambda f: f.memory_plan(),
    "kernels": lambda f: f.kernels(),
    "graph_text": lambda f: (f.graph_text(), f.graph_text(optimized=False)),
    "profiles": lambda f: f._function.profiles(of_all_versions=True),
    "explain": lambda f: f.explain(),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_was_compiled_is_told_while_calls_replace_it(name):
    # A call that keeps one more value than those before gives the program one more result: it is made anew.
    kept = []

    @jit.trace
    def f(x):
        values = [x * i for i in range(100)]
        kept[:] = values[: len(kept) + 1]
        return values[-1]

    x = t(*range(10))
    f(x)
    f(x)
    beside(lambda: f(x), lambda: ASKED[name](f), times=80)
    assert len(kept) == 82 and kept[81].numpy()[1] == 81
