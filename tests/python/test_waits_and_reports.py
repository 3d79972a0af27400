"""A report of a traced function never waits for a run that waits for something else: both would wait forever."""

import faulthandler
import threading

import numpy as np
import pytest

import megengine as mge
import megengine.distributed as dist
from megengine.jit import trace

REPORTS = ("get_profile", "memory_plan", "kernels", "explain", "graph_html")


def run_beside_reports(wait, reports):
    """Rank 1 comes late to each exchange; meanwhile rank 0 reports on the function that waits for it."""
    faulthandler.dump_traceback_later(100, exit=True)  # finds hangs alone
    late = threading.Event()
    x = mge.tensor(np.ones(1000, np.float32))

    def body(x):
        return dist.functional.all_reduce_sum(x * 2) + 1

    options = {"without_host": True} if wait == "without_host" else {}
    step = trace(symbolic=True, profiling=True, **options)(body)
    other = trace(symbolic=True)(lambda x: x * 3)
    for _ in range(3):
        step(x)
    counts = dict.fromkeys(reports, 0)
    for report in reports:
        if dist.get_rank() == 1:
            late.wait(0.3)  # longer than a wait goes without looking for Ctrl-C
            step(x) if wait != "eager" else body(x)
            continue
        results = []
        thread = threading.Thread(target=lambda: results.append(step(x) if wait != "eager" else body(x)))
        thread.start()
        while thread.is_alive():
            getattr(step, report)()
            other(x)
            counts[report] += 1
        thread.join()
        np.testing.assert_array_equal(results[0].numpy(), 5)
    faulthandler.cancel_dump_traceback_later()
    return counts


@pytest.mark.parametrize("wait", ["traced", "without_host", "eager"])
def test_reports_beside_a_run_that_waits_for_another_process(wait):
    counts = dist.launcher(n_gpus=2, device_type="cpu")(run_beside_reports)(wait, REPORTS)
    assert all(count > 0 for count in counts[0].values()), counts[0]


def test_a_call_beside_one_that_waits_takes_its_turn():
    def main():
        faulthandler.dump_traceback_later(100, exit=True)

        @trace(symbolic=True)
        def step(x):
            return dist.functional.all_reduce_sum(x)

        x = mge.tensor(np.ones(10, np.float32))
        step(x), step(x)
        results = []
        threads = [threading.Thread(target=lambda: results.append(step(x).numpy()[0])) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        faulthandler.cancel_dump_traceback_later()
        return results

    assert dist.launcher(n_gpus=2, device_type="cpu")(main)() == [[2.0] * 4] * 2
