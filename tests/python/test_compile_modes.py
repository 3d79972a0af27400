"""When calls wait for kernels, and what happens when one cannot be compiled: with compilers that are slow, broken or wrong."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROLOGUE = """
import os, time
import numpy as np
import megengine as mge
import megengine.functional as F
from megengine.jit import trace
x = mge.tensor(np.linspace(-2, 2, 1000, dtype=np.float32))
right = x.numpy() * 2 + 1
f = trace(lambda x: x * 2 + 1, symbolic=True, opt_level=3)
def call():
    np.testing.assert_array_equal(f(x).numpy(), right)
def gate_is_open():  # may the slow compiler finish?
    return os.path.exists(os.environ["MEGJIT_FAKE_GATE"])
def open_gate():
    open(os.environ["MEGJIT_FAKE_GATE"], "w").close()
"""


@pytest.fixture(scope="module")
def fake_compiler(tmp_path_factory):
    """A folder with a plug-in that does what MEGJIT_FAKE says."""
    compiler = shutil.which("c++")
    if not compiler:
        pytest.skip("needs a C++ compiler")
    folder = tmp_path_factory.mktemp("plug-in")
    command = [compiler, "-std=c++20", "-shared", "-fPIC", f"-I{ROOT}", "-o", folder / "libmegjit_mlir.so"]
    subprocess.run([*command, Path(__file__).parent / "fake_compiler.cpp"], check=True)
    return folder


@pytest.fixture
def environment(tmp_path):
    clean = {name: value for name, value in os.environ.items() if name != "MEGJIT_CHECK"}  # another test file sets it
    folders = {"MEGJIT_CACHE_DIR": str(tmp_path / "kernels"), "MEGJIT_FAKE_GATE": str(tmp_path / "gate")}
    return {**clean, "MEGJIT_COMPILE": "async", **folders}


def run(program, environment, status=0):
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + program], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def with_fake(environment, folder, what):
    return {**environment, "MEGJIT_PLUGIN_DIR": str(folder), "MEGJIT_FAKE": what}


def test_the_first_calls_do_not_wait_and_later_ones_use_the_kernel(environment, fake_compiler):
    program = """
for _ in range(5): call()
open_gate()
(kernel,) = f.kernels()  # waits
assert kernel.backend == "MLIR" and not kernel.cached and kernel.bytes == 8000
call()
"""
    assert run(program, with_fake(environment, fake_compiler, "slow")).stderr == ""


def test_the_fused_program_takes_over_by_itself(environment, fake_compiler):
    program = """
call()
open_gate()
while f(x).numpy()[0] != 7:  # what the wrong kernel stores
    time.sleep(0.01)
"""
    run(program, with_fake(environment, fake_compiler, "slow, wrong"))


def test_sync_waits_and_off_compiles_nothing(environment, fake_compiler):
    slow = with_fake(environment, fake_compiler, "slow")
    waits = "import threading; threading.Timer(0.2, open_gate).start(); call(); assert gate_is_open()"
    run(waits, {**slow, "MEGJIT_COMPILE": "sync"})
    run("call(); assert f.kernels() == []", {**slow, "MEGJIT_COMPILE": "off"})


def test_a_signal_s_handler_does_not_wait_for_the_call_that_it_interrupts(environment, fake_compiler):
    program = """
import signal
w, told = mge.Parameter(x.numpy()), ""
step = trace(lambda: w._reset(w * 2 + 1), symbolic=True, opt_level=3)
def on_alarm(*_):
    global told
    try:
        w.numpy()
    except RuntimeError as error:
        told = str(error)
    if "this very thread" in told:
        open_gate()
    else:  # the body still runs
        signal.setitimer(signal.ITIMER_REAL, 0.05)
signal.signal(signal.SIGALRM, on_alarm)
signal.setitimer(signal.ITIMER_REAL, 0.05)
step()
np.testing.assert_array_equal(w.numpy(), right)
"""
    run(program, {**with_fake(environment, fake_compiler, "slow"), "MEGJIT_COMPILE": "sync"})


def test_an_unknown_mode_is_an_error(environment):
    done = run("call()", {**environment, "MEGJIT_COMPILE": "later"}, status=1)
    assert "async, sync and off" in done.stderr


def test_what_is_on_disk_is_used_in_the_first_call(environment, fake_compiler):
    wrong = with_fake(environment, fake_compiler, "wrong")
    run("f(x); f.kernels()", wrong)
    run("assert f(x).numpy()[0] == 7", wrong)


def test_after_the_budget_calls_go_on_without_the_kernel(environment, fake_compiler):
    slow = {**with_fake(environment, fake_compiler, "slow"), "MEGJIT_COMPILE": "sync", "MEGJIT_COMPILE_BUDGET": "0.1"}
    done = run("call(); call(); assert f.kernels() == []; open_gate()", slow)
    assert done.stderr.count("\n") == 1 and "1 of 1 kernels" in done.stderr and "BUDGET" in done.stderr


def test_under_a_limit_calls_wait_for_what_the_plan_counts_on(environment, fake_compiler):
    program = """
import threading
f = trace(lambda x: x * 2 + 1, symbolic=True, opt_level=3, memory_limit=8000)
threading.Timer(0.3, open_gate).start()
call()
assert gate_is_open() and len(f.kernels()) == 1 and f.memory_plan().planned_bytes == 8000
"""
    slow = {**with_fake(environment, fake_compiler, "slow"), "MEGJIT_COMPILE_BUDGET": "0.05"}
    assert run(program, slow).stderr == ""


def test_under_a_limit_a_kernel_that_fails_makes_another_plan_or_is_told_before_the_run(environment, fake_compiler):
    program = """
import re
def g(x):
    return sum(F.exp(F.sin(x * i) + i) for i in range(1, 9))
def told(limit):
    try:
        trace(g, symbolic=True, opt_level=3, memory_limit=limit)(x)
    except MemoryError as error:
        return int(re.search(r"at least (\\d+) bytes", str(error))[1])
limit = told(1)
h = trace(g, symbolic=True, opt_level=3, memory_limit=limit)
for _ in range(2):
    np.testing.assert_array_equal(h(x).numpy(), g(x).numpy())
assert h.kernels() == [] and h.memory_plan().planned_bytes <= limit
assert told(limit - 1) == limit
"""
    run(program, with_fake(environment, fake_compiler, "fail"))


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_group_whose_kernel_fails_runs_unfused_with_one_warning(environment, fake_compiler, mode):
    program = """
for _ in range(3): call()
assert f.kernels() == []
g = trace(lambda x: F.softmax(x * 2) + F.sum(x * x) + F.exp(x), symbolic=True, opt_level=3)
for _ in range(3): y = g(x)
assert g.kernels() == []
z = F.softmax(x * 2) + F.sum(x * x) + F.exp(x)
np.testing.assert_allclose(y.numpy(), z.numpy(), rtol=1e-5)
"""
    broken = {**with_fake(environment, fake_compiler, "fail"), "MEGJIT_COMPILE": mode}
    done = run(program, broken)
    assert done.stderr.count("\n") == 1 and "no register is left" in done.stderr, done.stderr
    dump = done.stderr.split()[-1]
    again = subprocess.run([sys.executable, "-m", "megengine", "compile", dump], env=broken, capture_output=True, text=True)
    assert again.returncode == 1 and "no register is left" in again.stderr
    whole = subprocess.run([sys.executable, "-m", "megengine", "compile", dump], env=environment, capture_output=True, text=True)
    assert whole.returncode == 0 and "MLIR" in whole.stdout


def test_a_plug_in_that_cannot_be_opened_is_one_warning(environment, tmp_path):
    (tmp_path / "libmegjit_mlir.so").write_bytes(b"not a library")
    done = run("for _ in range(3): call()\nf.kernels()", {**environment, "MEGJIT_PLUGIN_DIR": str(tmp_path)})
    assert done.stderr.count("\n") == 1 and "cannot open its plug-in" in done.stderr


def test_without_a_compiler_operations_run_one_by_one(environment, tmp_path):
    done = run("for _ in range(3): call()\nf.kernels()", {**environment, "MEGJIT_PLUGIN_DIR": str(tmp_path)})
    assert done.stderr.count("\n") == 1 and "no kernel compiler is installed" in done.stderr


def test_a_compiler_that_is_not_built_in_is_replaced_with_one_warning(environment):
    done = run("for _ in range(3): call()\nassert f.kernels()", {**environment, "MGB_JIT_BACKEND": "NVRTC"})
    assert done.stderr.count("\n") == 1 and "serves GPUs only; MLIR is used" in done.stderr


def test_an_unknown_compiler_is_an_error_that_lists_the_three(environment):
    done = run("call()", {**environment, "MGB_JIT_BACKEND": "TVM"}, status=1)
    assert all(name in done.stderr for name in ("TVM", "NVRTC", "HALIDE", "MLIR"))


def test_check_finds_a_wrong_kernel(environment, fake_compiler):
    wrong = {**with_fake(environment, fake_compiler, "wrong"), "MEGJIT_CHECK": "1", "MEGJIT_COMPILE": "sync"}
    done = run("call()", wrong, status=1)
    assert "the MLIR kernel of mul add" in done.stderr and "gives 7 at element 0 of output 0; the interpreter gives -3" in done.stderr


@pytest.mark.parametrize("where", ["call()", "f(x); f.kernels()"])
def test_ctrl_c_leaves_a_wait(environment, fake_compiler, where):
    program = f"""
g = trace(lambda x: x * 3 + 1, symbolic=True, opt_level=3)
os.environ["MEGJIT_COMPILE"] = "sync" if {where!r} == "call()" else "async"
mge._core.reload_debug()
try:
    print("ready", flush=True)
    {where}
except KeyboardInterrupt:
    open_gate()
else:
    raise SystemExit("was not interrupted")
call()  # waits for what still compiles
assert len(f.kernels()) == 1
"""
    slow = with_fake(environment, fake_compiler, "slow")
    process = subprocess.Popen([sys.executable, "-c", PROLOGUE + program], env=slow, stdout=subprocess.PIPE, text=True)
    with process:
        process.stdout.readline()
        time.sleep(0.25)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=300) == 0


def test_ctrl_c_ends_the_process_while_a_kernel_compiles(environment, fake_compiler):
    slow = {**with_fake(environment, fake_compiler, "slow"), "MEGJIT_COMPILE": "sync"}
    command = [sys.executable, "-c", PROLOGUE + 'print("ready", flush=True)\ncall()']
    process = subprocess.Popen(command, env=slow, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with process:
        process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=300) != 0


def test_a_process_ends_while_kernels_compile(environment):
    program = """
for i in range(40):
    g = trace(lambda x: F.tanh(x * i) + F.exp(x) * i, symbolic=True, opt_level=3)
    g(x), g(x)
"""
    assert run(program, environment).stderr == ""


def test_a_forked_child_compiles_and_runs_what_is_cached(environment):
    program = """
g = trace(lambda x: F.tanh(x) * 3 + x, symbolic=True, opt_level=3)
call(), f.kernels(), call(), g(x), g(x)  # one kernel is ready, one compiles
child = os.fork()
if child == 0:
    import signal
    signal.alarm(200)
    call()
    fresh = trace(lambda x: F.exp(x) * 5 - x, symbolic=True, opt_level=3)
    for traced in (g, fresh):
        traced(x)
        assert len(traced.kernels()) == 1
        np.testing.assert_array_equal(traced(x).numpy(), traced.__wrapped__(x).numpy())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert len(g.kernels()) == 1
"""
    run(program, environment)


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("name", ["torch", "jax", "numba", "llvmlite.binding", "halide"])
def test_other_libraries_with_an_llvm_of_their_own(environment, name, order):
    try:
        __import__(name.split(".")[0])
    except ImportError:
        pytest.skip(f"{name} is not installed")
    program = f"import {name}\n" + PROLOGUE if order == "before" else f"call(); f.kernels(); import {name}"
    run(program + "\ncall(); assert len(f.kernels()) == 1; call()", environment)
