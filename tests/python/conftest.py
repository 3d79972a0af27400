"""Before anything is imported: the workers of pytest-xdist share the cores, one thread each.

Measured with -n 2 on two busy cores: 102 s, against 182 s with two threads in each worker. The C++ tests run threads.
"""

import os
import signal
import sys
from pathlib import Path

import pytest

# A shell that runs the tests in the background has them ignore Ctrl-C, and with them each process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests look at what the fused program gives, not at which call it takes over.
os.environ.setdefault("MEGJIT_COMPILE", "sync")

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")


# What must hold on a GPU, too: `pytest -m gpu` on a card, or on an emulated one (MEGJIT_EMULATED_GPUS=1), as `make test` does.
# gpu0 is the default device then. Other runs see no card.
GPU_TESTS = {
    "test_ops_battery.py", "test_functional_ops.py", "test_autodiff.py", "test_trace.py", "test_capture_battery.py",
    "test_without_host.py", "test_module_training.py", "test_optimizer.py", "test_dtr.py", "test_fault_injection.py",
    "test_dump.py", "test_dump_state.py", "test_selected_rows.py", "test_network.py", "test_random.py", "test_eight_threads.py", "quantization", "test_gpu.py",
    "test_gpu_memory.py", "test_gpu_steady.py", "test_gpu_failures.py", "test_gpu_nccl.py", "test_recurrent.py", "test_control_flow.py",
    "test_control_flow_in_graphs.py", "test_attention.py", "test_attention_found.py", "test_placed_heads.py", "test_integer_products.py",
    "test_ctc.py", "test_gpu_contractions.py", "test_gpu_exchange.py", "test_gpu_bits.py", "test_wide_dtypes.py", "test_usual_functions.py",
    "test_constants.py", "test_integer_means.py", "test_gpu_joint_launches.py", "test_gpu_kept_copies.py", "test_products_of_halves.py", "test_mapped_rows.py",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_told():
    """What warns once in a process warns once in each test: no test depends on those before it."""
    for name in ("megengine.core._telling",):
        if name in sys.modules:
            sys.modules[name]._told.clear()


def _is_on_gpu(config):
    return config.option.markexpr == "gpu" or int(os.environ.get("MEGJIT_EMULATED_GPUS") or 0) > 0


def _is_in_gpu_tests(path):
    here = Path(__file__).parent
    return path.is_relative_to(here) and path != here and path.relative_to(here).parts[0] in GPU_TESTS


def pytest_ignore_collect(collection_path, config):
    """With -m gpu nothing else is even imported."""
    if config.option.markexpr == "gpu" and collection_path.suffix == ".py" and not _is_in_gpu_tests(collection_path):
        return True
    return None


def _seed():
    import megengine as mge  # not before pytest_configure

    mge.random.seed(7)


def pytest_collectstart(collector):
    """What a test's file makes as it is imported, and what a test draws without a seed of its own, is the same in every run."""
    if isinstance(collector, pytest.Module):
        _seed()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    _seed()


def pytest_addoption(parser):
    parser.addoption("--one-in", type=int, default=1, metavar="N", help="run each Nth test, and the first of each file")


def _some(items, step):
    """An emulated processor takes fifty times as long, and runs a part of the tests (tools/test_arm.sh)."""
    files = set()
    return [item for number, item in enumerate(items) if number % step == 0 or item.path not in files and not files.add(item.path)]


def pytest_configure(config):
    if not _is_on_gpu(config):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def _why_no_gpu():
    import megengine as mge  # not before pytest_configure

    try:
        mge.tensor(0, device="gpu0")
    except RuntimeError as error:
        return str(error)
    return ""


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config, items):
    items[:] = _some(items, config.option.one_in)
    for item in items:
        if _is_in_gpu_tests(item.path):
            item.add_marker(pytest.mark.gpu)
    is_on_gpu = _is_on_gpu(config)
    why_not = _why_no_gpu() if is_on_gpu else "run `pytest -m gpu`"
    for item in items:
        if is_on_gpu and (mark := item.get_closest_marker("host")):
            item.add_marker(pytest.mark.skip(reason=mark.args[0]))
        if why_not and item.get_closest_marker("gpu") and (is_on_gpu or item.path.name.startswith("test_gpu")):
            item.add_marker(pytest.mark.skip(reason=why_not))
