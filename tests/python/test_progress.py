"""Long calls show progress where stderr is a terminal, and write nothing where it is not."""

import os
import pty
import subprocess
import sys
import termios

import pytest

# Bars come at once, so that no test takes a second.
HASTE = "from megengine.reports import progress; progress._PATIENCE, progress._BEAT = 0.0, 0.01\n"
DOWNLOAD = """
import pathlib, sys
from megengine.utils.http_download import download_from_url
source = pathlib.Path("source"); source.write_bytes(bytes(500_000))
download_from_url(source.absolute().as_uri(), "copy")
"""
ONNX = """
import megengine as mge, megengine.functional as F, megengine.onnx
proto = megengine.onnx.export(lambda x: F.relu(x) + 1, mge.Tensor([1.0, -1.0]))
megengine.onnx.load(proto)
"""
BY_VALUE = """
import megengine as mge, megengine.functional as F
from megengine import jit
x = F.ones((8, 8))
for without_host in (False, True):
    function = jit.trace(lambda x: F.exp(x) * 2, without_host=without_host, opt_level=3)
    for call in range(4):
        function(x)
"""
PLAN = """
import megengine as mge, megengine.functional as F
from megengine import Parameter, autodiff, jit
x = Parameter(F.ones((64, 64)))
gm = autodiff.GradManager().attach(x)
config = jit.SublinearMemoryConfig(genetic_nr_iter=10, num_worker=1)
@jit.trace(symbolic=True, sublinear_memory_config=config)
def step():
    with gm:
        y = x
        for _ in range(30):
            y = F.tanh(F.matmul(y, x))
        gm.backward(y.sum())
step()
"""


def run(code, folder, terminal, **environment):
    """What the program writes to stderr, a terminal or a pipe."""
    environment = {**os.environ, "TERM": "xterm", "MEGJIT_COMPILE": "sync", **environment}
    command = [sys.executable, "-c", HASTE + code]
    if not terminal:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=theirs)
    os.close(theirs)
    written = b""
    try:
        while part := os.read(ours, 4096):
            written += part
    except OSError:  # so a terminal says that nobody writes any more
        pass
    os.close(ours)
    assert process.wait() == 0, written.decode()
    return written.decode()


CALLS = {"download": (DOWNLOAD, "download"), "ONNX": (ONNX, "reading ONNX"), "plan": (PLAN, "compiling step")}


@pytest.mark.parametrize("call", CALLS)
def test_a_terminal_shows_progress(call, tmp_path):
    code, words = CALLS[call]
    written = run(code, tmp_path, terminal=True)
    assert words in written
    assert written.endswith("\r"), "the bar is gone at the end"


# A block that lasts until the bar has been drawn, whatever the machine does beside it.
UNTIL_SEEN = """
import sys, threading
asked = threading.Event()
def part():
    asked.set()
    return 0.4
def until_seen():
    for _ in range(2):
        asked.wait()
        asked.clear()
"""


def test_loading_a_dumped_model_shows_it(tmp_path):
    code = """
import io, threading, tqdm, megengine as mge, megengine.functional as F
from megengine.utils.comp_graph_tools import GraphInference
drawn = threading.Event()
class Bar(tqdm.tqdm):
    def refresh(self, *args, **kwargs):
        super().refresh(*args, **kwargs)
        drawn.set()
tqdm.tqdm = Bar
class File(io.FileIO):
    def read(self):
        drawn.wait()
        return super().read()
f = mge.jit.trace(lambda x: F.exp(x) * 2, symbolic=True, capture_as_const=True)
f(F.ones((8, 8)))
f.dump("model.mge", arg_names=["x"])
drawn.clear()
GraphInference(File("model.mge"))
"""
    assert "loading model.mge: " in run(code, tmp_path, terminal=True)


def test_calls_that_compile_nothing_wait_for_nothing(tmp_path):
    counted = """
import contextlib
from megengine.jit import tracing
shown = []
tracing.while_waiting = lambda what, part: shown.append(what) or contextlib.nullcontext()
"""
    run(f"{counted}{BY_VALUE}assert len(shown) == 4, shown", tmp_path, terminal=False)


def test_a_part_that_is_known_is_a_bar(tmp_path):
    code = f"{UNTIL_SEEN}\nwith progress.while_waiting('search', part): until_seen()"
    assert "search:  40%|" in run(code, tmp_path, terminal=True)


def test_the_search_for_a_plan_says_how_far_it_is(tmp_path):
    watch = """
from megengine import _core
seen, ended = [], threading.Event()
def look():
    while not ended.wait(0.001):
        seen.append(_core.searched_part())
looks = threading.Thread(target=look); looks.start()
"""
    end = "ended.set(); looks.join(); assert 0 < max(seen) <= 1 and _core.searched_part() == 0"
    run(f"import threading\n{watch}{PLAN}{end}", tmp_path, terminal=False)


@pytest.mark.parametrize("call", CALLS)
def test_elsewhere_nothing_is_written(call, tmp_path):
    assert run(CALLS[call][0], tmp_path, terminal=False) == ""


@pytest.mark.parametrize("call", CALLS)
def test_a_variable_turns_it_off(call, tmp_path):
    assert run(CALLS[call][0], tmp_path, terminal=True, MEGJIT_PROGRESS="0") == ""


def test_an_error_ends_the_bar_and_comes_through(tmp_path):
    code = f"""{UNTIL_SEEN}
try:
    with progress.while_waiting("thinking", part):
        until_seen()
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print("caught", file=sys.stderr)
"""
    written = run(code, tmp_path, terminal=True)
    assert "thinking" in written and written.endswith("caught\r\n")
