"""tools/gpu_bits.py, which compares a card with the emulated one; and both compilers with each other."""

import importlib.util
import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def tool():
    path = Path(__file__).parents[2] / "tools" / "gpu_bits.py"
    spec = importlib.util.spec_from_file_location("gpu_bits", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def compilers(monkeypatch):
    monkeypatch.setenv("MGB_JIT_BACKEND", "NVRTC")  # the tool sets it; it is put back
    monkeypatch.setenv("MEGJIT_COMPILE", "sync")


def test_both_compilers_give_the_same_bits(tool, compilers):
    found = tool.all_bits()
    by_case = {}
    for name, bits in found.items():
        by_case.setdefault(name.rpartition(" by ")[0], set()).add(bits)
    assert len(by_case) == len(tool.DTYPES) * len(list(tool.cases()))
    assert [case for case, bits in by_case.items() if len(bits) != 1] == []


def test_other_bits_are_named(tool, compilers, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(tool, "DTYPES", ("float32",))
    monkeypatch.setattr(tool, "ONE", ["exp"])
    monkeypatch.setattr(tool, "TWO", [])
    file = tmp_path / "bits.json"
    assert tool.main("write", str(file)) == 0 and tool.main("compare", str(file)) == 0
    bits = json.loads(file.read_text())
    file.write_text(json.dumps(bits | {"exp of float32 by MLIR": "0"}))
    capsys.readouterr()
    assert tool.main("compare", str(file)) == 1
    assert "other bits: exp of float32 by MLIR" in capsys.readouterr().out
