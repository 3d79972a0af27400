"""``python -m megengine plan FILE``: what the tensors of a file take, before they are read."""

import json
import pickle
import sys

import numpy as np
import pytest
from writing import floats, gguf, halves, safetensors, written

import megengine as mge
import megengine.module as M
from megengine import fx
from megengine.__main__ import main


@pytest.fixture
def plan(capsys, monkeypatch):
    """Runs the command: its status, what it printed, and its errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["megengine", "plan", *map(str, arguments)])
        status = main()
        return status, *capsys.readouterr()

    return run


def test_tensors_and_sums_of_a_safetensors_file(plan, tmp_path):
    tensors = {"weight": ("F32", [2, 3], bytes(24)), "b": ("BF16", [3], bytes(6))}
    path = written(tmp_path / "a.safetensors", safetensors(tensors))
    status, told, _ = plan(path)
    assert status == 0 and told.splitlines() == [
        "weight  F32        24 B  [2, 3]",
        "b       BF16        6 B  [3]",
        "a.safetensors: 2 tensors, 30 B: 24 B F32 (1), 6 B BF16 (1)",
        "  read (load): 30 B in each process",
        "  mapped (load with mmap=True): the pages that are used, 30 B at most for all processes",
    ]


def test_blocks_are_told_as_float32_too(plan, tmp_path):
    content = gguf({"w": ("Q4_0", (1, 64), (halves(1) + bytes(16)) * 2)})
    status, told, _ = plan(written(tmp_path / "a.gguf", content))
    assert status == 0 and told.splitlines()[0] == "w  Q4_0       36 B  [1, 64]"
    assert told.splitlines()[-1] == "  as float32 (dequantize): 256 B for what is in blocks"


def test_an_index_a_folder_and_a_model_file(plan, tmp_path):
    written(tmp_path / "m.safetensors", safetensors({"a": ("F32", [1], floats(1))}))
    index = json.dumps({"weight_map": {"a": "m.safetensors"}}).encode()
    path = written(tmp_path / "model.safetensors.index.json", index)
    assert plan(path) == plan(tmp_path) and plan(path)[1].startswith("a  F32")
    fx.symbolic_trace(M.Sequential(M.Linear(3, 2))).save(tmp_path / "net.mge")
    assert "0.weight  F32        24 B  [2, 3]" in plan(tmp_path / "net.mge")[1]


def test_a_file_without_tensors(plan, tmp_path):
    _, told, _ = plan(written(tmp_path / "a.safetensors", safetensors({})))
    assert told.splitlines()[0] == "a.safetensors: 0 tensors, 0 B"


def test_files_that_tell_nothing_are_refused_by_name(plan, tmp_path):
    path = written(tmp_path / "a.pkl", pickle.dumps({"x": np.zeros(3)}))
    status, _, why = plan(path)
    assert status == 1 and "a.pkl is a pickle" in why and "fix: load it with megengine.load" in why
    status, _, why = plan(written(tmp_path / "a.gguf", b"GGUF\3"))
    assert status == 1 and "a.gguf: it has 5 bytes" in why and "\n  fix: " in why


@pytest.mark.parametrize("options", [["--limit", "3GB"], ["argument"], ["--", "argument"]])
def test_options_are_for_scripts(options, plan, tmp_path):
    mge.save({"x": np.zeros(3)}, tmp_path / "a.safetensors")
    status, _, why = plan(tmp_path / "a.safetensors", *options)
    assert status == 1 and "is a file of tensors, and options are for scripts\n  fix: " in why
