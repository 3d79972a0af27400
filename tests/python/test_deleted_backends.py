"""Each folder of backends/ can be deleted: what is left still makes the extension module."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nanobind", reason="an installed wheel has nothing to build with")

ROOT = Path(__file__).parents[2]
BACKENDS = sorted(path.parent.name for path in ROOT.glob("backends/*/CMakeLists.txt"))


def test_the_backends_are_found():
    assert {"cpu", "cuda", "nvrtc", "mlir", "halide"} <= set(BACKENDS)


@pytest.mark.parametrize("deleted", BACKENDS)
def test_the_rest_still_makes_the_extension_module(deleted, tmp_path):
    source, build = tmp_path / "source", tmp_path / "build"
    (source / "backends").mkdir(parents=True)
    for path in [*ROOT.iterdir(), *(ROOT / "backends").iterdir()]:
        if path.name not in (deleted, "backends", "build"):
            (source / path.relative_to(ROOT)).symlink_to(path)
    done = subprocess.run(
        ["cmake", "-G", "Ninja", "-S", source, "-B", build, "-DMEGJIT_TESTS=ON"]
        + [f"-DPython_EXECUTABLE={sys.executable}"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    plan = subprocess.run(
        ["ninja", "-C", build, "-t", "commands", "_core"], capture_output=True, text=True
    )
    assert plan.returncode == 0, plan.stdout + plan.stderr
    assert f"backends/{deleted}" not in plan.stdout
    others = {name for name in BACKENDS if f"backends/{name}/CMakeFiles" in plan.stdout}
    commands = json.loads((build / "compile_commands.json").read_text())
    binding = next(row["command"] for row in commands if "_core.dir" in row["command"])
    assert f"-DMEGJIT_WITH_{deleted.upper()} " not in binding
    assert "cpu" in others or deleted == "cpu"
