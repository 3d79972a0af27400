"""A full disk: the error names the file and says what to do, and a file that was there is as it was."""

import errno
import os

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.onnx
from megengine import fx
from megengine._files import disk
from megengine.fx.passes.graph_drawer import FxGraphDrawer
from megengine.jit import trace

FULL = "/dev/full"  # each write to it fails as on a full disk
pytestmark = pytest.mark.skipif(not os.path.exists(FULL), reason="Linux's device that is always full")


def dump(path):
    double = trace(lambda x: x * 2, symbolic=True, capture_as_const=True)
    double(F.ones(3))
    double.dump(path)


WRITERS = {
    "save": lambda path: mge.save({"x": F.ones(300000)}, path),
    "a module graph": lambda path: fx.symbolic_trace(M.Linear(2, 3)).save(path),
    "a dumped function": dump,
    "onnx": lambda path: mge.onnx.export(M.Linear(2, 3), np.ones((1, 2), np.float32), path),
    "a picture": lambda path: FxGraphDrawer(fx.symbolic_trace(M.Linear(2, 3)), "g").get_dot_graph().write(path),
    "a page": lambda path: disk.write_text(path, "<html>" * 9999),
}


@pytest.mark.parametrize("case", WRITERS)
def test_the_error_names_the_file(case):
    with pytest.raises(OSError) as full:
        WRITERS[case](FULL)
    assert full.value.errno == errno.ENOSPC and full.value.filename == FULL and FULL in str(full.value)
    assert full.value.__notes__ == ["  fix: make room, or write to another disk"]


def test_what_was_there_stays(tmp_path):
    path = tmp_path / "x.txt"
    disk.write_text(path, "before")
    with pytest.raises(OSError, match=f"No space.*{path.name}'"), disk.replaced(path) as partial:
        with open(partial, "wb") as file:
            file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["x.txt"]


def test_other_errors_keep_their_names(tmp_path):
    with pytest.raises(FileNotFoundError) as missing, disk.replaced(tmp_path / "x"):
        open(tmp_path / "nothing")
    assert missing.value.filename == str(tmp_path / "nothing") and not getattr(missing.value, "__notes__", [])
