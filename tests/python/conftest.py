"""Before anything is imported: the workers of pytest-xdist share the cores, one thread each.

Measured with -n 2 on two busy cores: 102 s, against 182 s with two threads in each worker. The C++ tests run threads.
"""

import os
import signal

import pytest

# A shell that runs the tests in the background has them ignore Ctrl-C, and with them each process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests look at what the fused program gives, not at which call it takes over.
os.environ.setdefault("MEGJIT_COMPILE", "sync")

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items):
    if not int(os.environ.get("MEGJIT_EMULATED_GPUS") or 0):
        return
    for item in items:
        if mark := item.get_closest_marker("host"):
            item.add_marker(pytest.mark.skip(reason=mark.args[0]))
