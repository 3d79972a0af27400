"""mge.device: memory counters, the cap and its variable, and what goes back to the system."""

import os
import subprocess
import sys

import numpy as np
import pytest

import megengine as mge
from megengine import device

MB = 1 << 20


@pytest.fixture(autouse=True)
def no_cap_is_left():
    yield
    device.set_memory_cap(None)


def large(megabytes):
    return mge.tensor(np.ones(megabytes * MB // 4, np.float32))


def test_counters_follow_what_is_alive():
    device.coalesce_free_memory()
    device.reset_max_memory_stats()
    before = device.get_allocated_memory()
    x = large(8)
    assert device.get_allocated_memory() == before + 8 * MB
    del x
    assert device.get_allocated_memory() == before
    assert device.get_max_allocated_memory() == before + 8 * MB
    assert device.get_reserved_memory() >= before
    assert device.get_max_reserved_memory() >= device.get_max_allocated_memory()
    device.reset_max_memory_stats()
    assert device.get_max_allocated_memory() == before


def test_free_memory_goes_back():
    x = large(64)
    reserved = device.get_reserved_memory()
    del x
    device.coalesce_free_memory()
    assert device.get_reserved_memory() <= reserved - 64 * MB


def test_a_cap_imitates_a_smaller_card():
    device.set_memory_cap("8GB")
    assert device.get_memory_cap() == 8 << 30
    cap = device.get_allocated_memory() + 512 * MB  # what earlier tests hold counts too
    device.set_memory_cap(cap)
    total, free = device.get_mem_status_bytes()
    assert total == cap and free <= 512 * MB
    with pytest.raises(MemoryError, match=f"{cap}|{cap >> 20} MiB"):
        large(600)
    device.set_memory_cap(None)
    assert device.get_memory_cap() is None
    assert large(600).size == 150 * MB


@pytest.mark.parametrize(
    "cap, error, words",
    [
        ("11 apples", ValueError, "set_memory_cap: '11 apples' is not a size"),
        (-1, ValueError, "negative"),
        (0, ValueError, "leaves no memory"),
        ("0GB", ValueError, "leaves no memory"),
        ("9" * 400 + "GB", ValueError, "beyond any memory"),
        (1 << 70, ValueError, "beyond any memory"),
        (1.5, TypeError, "float"),
        (True, TypeError, "bool"),
    ],
)
def test_a_wrong_cap_is_refused(cap, error, words):
    with pytest.raises(error, match=words):
        device.set_memory_cap(cap)


def test_the_variable_sets_the_cap_from_the_start():
    code = "import megengine as mge; print(mge.device.get_memory_cap())"
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "MEGJIT_MEMORY_CAP": "3GB"}, capture_output=True, text=True
    )
    assert run.stdout.strip() == str(3 << 30), run.stderr


def test_a_wrong_variable_is_told():
    run = subprocess.run(
        [sys.executable, "-c", "import megengine"], env={**os.environ, "MEGJIT_MEMORY_CAP": "x"}, capture_output=True, text=True
    )
    assert "MEGJIT_MEMORY_CAP: 'x' is not a size" in run.stderr
