"""``python -m megengine kernels`` and ``compile``, and what a traced function shows of its kernels."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import _core
from megengine.jit import trace

SCRIPT = """
import sys
import numpy as np, megengine as mge, megengine.functional as F
from megengine.jit import trace

@trace(symbolic=True, opt_level=3)
def f(x):
    return F.matmul(F.exp(x) * 2 + x, x)

for n in (64, 128):
    for _ in range(int(sys.argv[1])):
        f(mge.tensor(np.ones((n, n), np.float32)))
"""


def command(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "megengine", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "MEGJIT_COMPILE": "async"},
    )
    return done.returncode, done.stdout, done.stderr


def test_a_script_gets_a_table_of_its_kernels(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    status, out, err = command("kernels", tmp_path / "script.py", 5)
    assert status == 0 and err == ""
    head, *rows, note = out.splitlines()
    assert head.split() == ["time", "calls", "us/call", "GB/s", "of", "copy", "compiler", "kernel"]
    (fused,) = (row for row in rows if "exp mul add (3 ops)" in row)
    share, calls, us, gbs, of_copy, backend = fused.split()[:6]
    assert calls == "10" and backend == "MLIR" and "script.py:8" in fused
    assert float(us) > 0 and float(gbs) > 0 and re.fullmatch(r"\d+%", of_copy)
    assert any("matmul" in row and " - " in row for row in rows)
    assert "a copy reads and writes" in note


def test_the_scripts_own_failure_is_shown_with_the_table(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT + "raise OSError('broken')\n")
    status, out, err = command("kernels", tmp_path / "script.py", 3)
    assert status == 1 and "OSError: broken" in err and "exp mul add" in out


def test_the_scripts_exit_status_is_kept(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT + "sys.exit(7)\n")
    assert command("kernels", tmp_path / "script.py", 3)[0] == 7


def test_a_script_without_traced_functions_says_so(tmp_path):
    (tmp_path / "script.py").write_text("pass\n")
    status, out, err = command("kernels", tmp_path / "script.py")
    assert status == 1 and out == "" and "no traced function" in err


def test_a_missing_script_is_an_error_of_a_line(tmp_path):
    status, _, err = command("kernels", tmp_path / "nothing.py")
    assert status == 1 and "nothing.py" in err and len(err.splitlines()) <= 6


def test_compile_prints_the_code_of_a_kernel(tmp_path):
    (tmp_path / "kernel.txt").write_text("kernel rank=1\nin f32 contiguous\n%0: f32 = input 0\n%1: f32 = neg %0\nout f32 %1\n")
    status, out, _ = command("compile", tmp_path / "kernel.txt")
    assert status == 0 and "megjit_kernel" in out


@pytest.mark.parametrize("text", ["", "no kernel", "kernel rank=9\n"])
def test_compile_refuses_what_is_no_kernel(tmp_path, text):
    (tmp_path / "kernel.txt").write_text(text)
    status, _, err = command("compile", tmp_path / "kernel.txt")
    assert status == 1 and 0 < len(err.splitlines()) <= 6


@pytest.fixture(scope="module")
def traced():
    f = trace(lambda x: F.exp(x) * 2 + x, symbolic=True, opt_level=3)
    f(mge.tensor(np.ones((10, 100), np.float32)))
    return f


def test_a_kernel_tells_its_code_and_its_cost(traced):
    (kernel,) = traced.kernels()
    assert kernel.ops == ["exp", "mul", "add"] and kernel.bytes == 2 * 4 * 1000
    assert "define" in kernel.source and "megjit_kernel" in kernel.source
    assert "ret" in kernel.assembly and kernel.ir.startswith("kernel rank=1")
    assert "test_kernels_cli.py" in kernel.where


def test_the_graph_is_drawn_with_its_fusion_groups(traced):
    page = traced.graph_html()
    assert page.startswith("<!doctype html>") and "fused: exp mul add" in page


@pytest.mark.parametrize("stages", ["all", ""])
def test_stages_are_dumped_to_files(tmp_path, stages):
    environment = {**os.environ, "MEGJIT_DUMP": f"{stages}@{tmp_path}", "MEGJIT_CACHE_DIR": ""}
    program = "import megengine as m; from megengine.jit import trace; trace(lambda x: x * 2 + 1, symbolic=True, opt_level=3)(m.tensor([1.0]))"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    names = {path.name.split("-", 1)[1] for path in tmp_path.iterdir()}
    assert {"trace.txt", "fuse.txt", "fuse.html", "fuse.dot", "kernel.txt"} <= names


def test_a_folder_for_dumps_that_cannot_be_written_is_told_once(tmp_path):
    (tmp_path / "file").touch()
    program = "import megengine as m; from megengine.jit import trace; trace(lambda x: x * 2, symbolic=True)(m.tensor([1.0]))"
    environment = {**os.environ, "MEGJIT_DUMP": f"@{tmp_path}/file"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"megjit: MEGJIT_DUMP: .*/file/000-trace.txt cannot be written\n", done.stderr), done.stderr


@pytest.mark.parametrize(
    ("variable", "names", "message"),
    [
        ("MEGJIT_SKIP", "fuse,dedupp", "MEGJIT_SKIP: there is no pass 'dedupp'\n  why: valid are drop_dead, .*\n  fix: write dedup\n"),
        ("MEGJIT_SKIP", "kernel", "MEGJIT_SKIP: there is no pass 'kernel'\n  why: valid are "),
        ("MEGJIT_DUMP", "fuze@{}", "MEGJIT_DUMP: there is no stage 'fuze'\n  why: valid are .*, trace, kernel, plan, file, all\n  fix: write fuse\n"),
    ],
)
def test_names_that_nothing_has_are_refused(tmp_path, variable, names, message):
    program = "import megengine as m; from megengine.jit import trace; trace(lambda x: x * 2, symbolic=True)(m.tensor([1.0]))"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, variable: names.format(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 1 and re.search(message, done.stderr)


def test_copy_bandwidth_is_plausible():
    assert 1e8 < _core.copy_bandwidth() < 1e13
