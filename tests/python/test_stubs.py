"""The checked-in stubs of the extension are what `make stubs` writes."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STUBS = ["_core.pyi", "core/ops/__init__.pyi"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    pytest.importorskip("nanobind")
    folder = tmp_path_factory.mktemp("stubs")
    subprocess.run([sys.executable, str(ROOT / "tools/make_stubs.py"), str(folder)], check=True)
    return folder


@pytest.mark.parametrize("name", STUBS)
def test_the_stub_is_up_to_date(made, name):
    new = (made / name).read_text(encoding="utf-8").splitlines()
    old = (ROOT / "python/megengine" / name).read_text(encoding="utf-8").splitlines()
    differing = [line for line in set(new) ^ set(old) if line.strip()]
    assert new == old, (
        f"python/megengine/{name} differs from the installed extension: run `make stubs` and commit it "
        f"(nanobind {version('nanobind')}); first lines: {sorted(differing)[:5]}"
    )


def test_every_op_has_a_signature():
    import inspect

    from megengine import _core

    conv = inspect.signature(_core.ops.conv)
    assert list(conv.parameters) == ["x", "w", "stride", "padding", "dilation", "groups"]
    assert all(inspect.signature(getattr(_core.ops, row["name"])) for row in _core.op_table() if "custom." not in row["name"])
