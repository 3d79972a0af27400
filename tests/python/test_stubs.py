"""The checked-in stub of the extension is what `make stubs` writes."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "python/megengine/_core.pyi"


def made(tmp_path):
    pytest.importorskip("nanobind")
    target = tmp_path / "_core.pyi"
    subprocess.run([sys.executable, str(ROOT / "tools/make_stubs.py"), str(target)], check=True)
    return target.read_text(encoding="utf-8")


def test_the_stub_is_up_to_date(tmp_path):
    new, old = made(tmp_path).splitlines(), STUB.read_text(encoding="utf-8").splitlines()
    differing = [line for line in set(new) ^ set(old) if line.strip()]
    assert new == old, (
        "python/megengine/_core.pyi differs from the installed extension: run `make stubs` and commit it "
        f"(nanobind {version('nanobind')}); first lines: {sorted(differing)[:5]}"
    )


def test_every_op_has_a_signature():
    import inspect

    from megengine import _core

    conv = inspect.signature(_core.ops.conv)
    assert list(conv.parameters) == ["x", "w", "stride", "padding", "dilation", "groups"]
    assert all(inspect.signature(getattr(_core.ops, row["name"])) for row in _core.op_table())
