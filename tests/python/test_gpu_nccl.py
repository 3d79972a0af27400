"""Two processes on two GPUs, by NCCL itself; test_nccl.py judges the same on emulated ones."""

import os

import pytest
import test_nccl

import megengine as mge
from megengine import _core


@pytest.fixture
def world(tmp_path):
    count = mge.get_device_count("gpu")
    if "MEGJIT_EMULATED_GPUS" in os.environ:
        pytest.skip("an emulated GPU does not run NCCL")
    if count < 2:
        pytest.skip(f"needs two GPUs; this machine has {count}")
    why_not = {row[0]: row[4] for row in _core.nvidia_libraries()}["NCCL"]
    if why_not:
        pytest.skip(f"needs NCCL: {why_not}")
    return lambda source: test_nccl.run_world(tmp_path, source, [{}, {}])


def test_results_are_those_of_the_host(world):
    for output in test_nccl.good(world('dist.backend = "nccl"\n' + test_nccl.textwrap.dedent(test_nccl.AGREES))):
        assert output.endswith("all agree\n") and "through the host" not in output, output


def test_who_is_killed_while_gpus_exchange_is_named(world):
    """Its GPU has minutes of other work before the exchange."""
    source = """
        import time
        x = mge.tensor(np.ones((4096, 4096), "float32"))
        DF.all_reduce_sum(x).numpy()
        y = x
        for _ in range(20000 if rank else 0):
            y = y @ x
        begin = time.monotonic()
        try:
            total = DF.all_reduce_sum(y)
            if rank:
                os.kill(os.getpid(), 9)
            total.numpy()
        except RuntimeError as error:
            print("told " + json.dumps([str(error), time.monotonic() - begin]))
    """
    results = world(source)
    assert results[1][0] == -9
    text, seconds = test_nccl.told(results)[0]
    assert "rank 1 is gone while rank 0 waits in all_reduce_sum of f32[4096, 4096] on GPUs, by NCCL," in text
    assert seconds < 30  # with the wait until both have met
