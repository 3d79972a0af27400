"""``python -m megengine cache``: the kernels on disk, and carrying them to another machine."""

import os
import subprocess
import sys

import pytest
from emulated import gpus

PROGRAM = """
import numpy as np, megengine as mge
from megengine.jit import trace
f = trace(lambda x: x * 2 + 1, symbolic=True, opt_level=3)
for _ in range(2):
    assert f(mge.tensor([1.0, 2.0])).numpy().tolist() == [3, 5]
print(f.kernels()[0].cached)
"""


def run(*command, status=0, **environment):
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        env={**os.environ, "MEGJIT_COMPILE": "sync", **environment},
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGJIT_CACHE_DIR", str(tmp_path / "kernels"))
    return lambda *action, status=0: run("-m", "megengine", "cache", *map(str, action), status=status)


def test_a_second_process_finds_the_kernels_of_the_first(cache):
    assert run("-c", PROGRAM) == "False\n"
    assert run("-c", PROGRAM) == "True\n"
    assert "1 kernels" in cache("info") and "MLIR" in cache("info")


def test_verify_removes_what_is_broken(cache, tmp_path):
    run("-c", PROGRAM)
    assert cache("verify").startswith("1 kernels are sound, 0")
    (file,) = (tmp_path / "kernels").iterdir()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert cache("verify", status=1).startswith("0 kernels are sound, 1")
    assert not list((tmp_path / "kernels").iterdir())
    assert run("-c", PROGRAM) == "False\n"


def test_clear_removes_everything(cache):
    run("-c", PROGRAM)
    assert cache("clear") == "1 kernels removed\n"
    assert "0 kernels" in cache("info")


def test_kernels_travel_in_an_archive(cache, tmp_path, monkeypatch):
    run("-c", PROGRAM)
    assert cache("export", tmp_path / "archive").startswith("1 kernels")
    monkeypatch.setenv("MEGJIT_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert cache("import", tmp_path / "archive").startswith("1 kernels")
    assert run("-c", PROGRAM) == "True\n"


def test_imported_kernels_run_without_a_compiler(cache, tmp_path, monkeypatch):
    run("-c", PROGRAM)
    cache("export", tmp_path / "archive")
    monkeypatch.setenv("MEGJIT_CACHE_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("MEGJIT_PLUGIN_DIR", str(tmp_path))  # there is none
    said = run("-c", PROGRAM.replace("print(f.kernels()[0].cached)", "assert not f.kernels()"))
    assert said.count("\n") == 1 and "no kernel compiler is installed" in said
    cache("import", tmp_path / "archive")
    assert run("-c", PROGRAM) == "True\n"


@pytest.mark.parametrize("content", [b"", b"no archive" * 10, b"megjita1" + b"\xff" * 16, None])
def test_a_bad_archive_is_an_error_of_a_few_lines(cache, tmp_path, content):
    if content is not None:
        (tmp_path / "archive").write_bytes(content)
    said = cache("import", tmp_path / "archive", status=1)
    assert str(tmp_path / "archive") in said and len(said.splitlines()) <= 6
    assert "0 kernels" in cache("info")


def test_a_folder_that_others_can_write_is_refused(cache, tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels").chmod(0o777)
    assert "other users can write" in cache("info", status=1)
    assert "other users can write" in run("-c", PROGRAM)


def test_unknown_actions_are_refused(cache):
    assert "invalid choice" in cache("burn", status=2)


def test_kernels_written_for_gpus_travel_too(cache, tmp_path, monkeypatch):
    """Sorting has a kernel of ours in CUDA C++, which NVRTC compiles where there is one."""
    program = "import megengine as mge, megengine.functional as F\nprint(F.sort(mge.tensor([3.0, 1, 2], device='gpu0'))[0].tolist())"
    assert run("-c", program, **gpus()) == "[1.0, 2.0, 3.0]\n"
    cache("export", tmp_path / "archive")
    monkeypatch.setenv("MEGJIT_CACHE_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("MEGJIT_NVRTC", "/nowhere")
    assert "need NVRTC" in run("-c", program, status=1, **gpus())
    cache("import", tmp_path / "archive")
    assert run("-c", program, **gpus()) == "[1.0, 2.0, 3.0]\n"
