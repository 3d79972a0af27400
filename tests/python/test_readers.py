"""Threads that ask what another thread's traced calls compile."""

import threading
import time

import pytest

from megengine import jit
from test_trace import t


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
