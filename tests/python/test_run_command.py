"""``python -m megengine run``: a model file's results, times, memory, differences."""

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx
from megengine.__main__ import main, parser
from megengine.jit import trace
from megengine.onnx import export
from megengine.reports import models
from megengine.traced_module import trace_module

X = np.random.RandomState(0).rand(2, 3, 8, 8).astype("float32")


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = M.Conv2d(3, 4, 3, padding=1), M.Linear(4, 5)

    def forward(self, x):
        return self.fc(F.relu(self.conv(x)).mean(axis=(2, 3)))


@pytest.fixture(scope="module")
def net():
    mge.random.seed(3)
    return Net().eval()


@pytest.fixture
def files(net, tmp_path):
    """A file of each kind, and what it gives for X."""
    export(net, mge.Tensor(X), path=str(tmp_path / "open.onnx"), input_names=["x"], dynamic_axes={"x": {0: "batch"}})
    dumped = trace(lambda x: net(x), symbolic=True, capture_as_const=True)
    dumped(mge.Tensor(X))
    dumped.dump(str(tmp_path / "dumped.mge"), arg_names=["x"], output_names=["y"])
    fx.symbolic_trace(net).save(str(tmp_path / "module.mge"))
    trace_module(net, mge.Tensor(X)).save(str(tmp_path / "traced.mge"))
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "y.npz", y=net(mge.Tensor(X)).numpy())
    return tmp_path


def run(*words):
    return models.run(parser().parse_args(["run", *map(str, words), "--repeat", "2"]))


def test_an_onnx_model_is_compared_with_onnxruntime(files, capsys):
    assert run(files / "open.onnx", "--size", "batch=3", "--check", "onnxruntime", "--profile") == 0
    said = capsys.readouterr().out
    for words in ("ONNX, ", "x: float32[3, 3, 8, 8]", "float32[3, 5]", "median", "a call by its plan", "slowest steps:", "differs from onnxruntime by at most"):
        assert words in said


@pytest.mark.parametrize("name", ["open.onnx", "dumped.mge", "module.mge", "traced.mge"])
def test_each_kind_of_file_is_compared_with_arrays(files, name, capsys):
    assert run(files / name, "--input", f"{files / 'x.npy'}", "--check", files / "y.npz") == 0
    np.savez(files / "other.npz", np.load(files / "y.npz")["y"] + 0.1)
    assert run(files / name, "--input", f"{files / 'x.npy'}", "--check", files / "other.npz") == 1
    np.savez(files / "other.npz", np.zeros((5, 2), "float32"))
    assert run(files / name, "--input", f"{files / 'x.npy'}", "--check", files / "other.npz") == 1
    assert "too far" in capsys.readouterr().out


def test_a_limit_is_kept_and_c_is_written(files):
    for name, words in (("open.onnx", ["--size", "batch=2", "--memory-limit", "1MB"]), ("dumped.mge", [])):
        folder = files / f"c_{name}"
        assert run(files / name, *words, "--package", folder) == 0
        assert (folder / "net.h").exists() and (folder / "CMakeLists.txt").exists()
    with pytest.raises(MemoryError, match="memory_limit"):
        run(files / "open.onnx", "--size", "batch=2", "--memory-limit", "100")


@pytest.mark.parametrize(
    ("name", "words", "match"),
    [
        ("open.onnx", [], r"x float32\[batch, 3, 8, 8\]: these extents are open\n  fix: --size batch=N"),
        ("module.mge", [], r"x: these extents are open\n  fix: --input x=SHAPE"),
        ("open.onnx", ["--input", "z=1"], "there is no input 'z'"),
        ("open.onnx", ["--input", "1xa"], "'1xa' is no shape"),
        ("open.onnx", ["--input", "2x3x8x8:what"], "is no shape"),
        ("open.onnx", ["--size", "batch"], "is no extent"),
        ("dumped.mge", ["--check", "onnxruntime"], "is nothing that"),
        ("dumped.mge", ["--input", "1x3x8x8"], r"\[1, 3, 8, 8\]"),
        ("open.onnx", ["--size", "batch=999999999999999"], r"no array is x float32\[999999999999999, 3, 8, 8\]"),
        ("x.npy", [], "an array of NumPy's"),
        ("absent.onnx", [], "No such file"),
    ],
)
def test_what_lacks_is_asked_for_by_name(files, name, words, match):
    with pytest.raises((ValueError, OSError), match=match):
        run(files / name, *words)


def test_a_damaged_file_is_an_error(files):
    for name in ("open.onnx", "dumped.mge", "module.mge"):
        whole = (files / name).read_bytes()
        for length in (0, 9, 40, len(whole) // 2, len(whole) - 3):
            (files / f"cut_{name}").write_bytes(whole[:length])
            with pytest.raises((ValueError, OSError, RuntimeError)):
                run(files / f"cut_{name}", "--input", files / "x.npy")


@pytest.mark.parametrize(
    ("node", "tensors", "words"),
    [
        (("Squeeze", ["x", "twice"]), {"twice": np.array([1, 1])}, "duplicated indices"),
        (("RoiAlign", ["x", "far", "zero"]), {"far": np.float32([[0, 0, 1e9, 9]]), "zero": np.array([0])}, "a box of 1e[+]09 pixels"),
        (("MatMul", ["x", "square"]), {"square": np.ones((7, 7), "float32")}, "8 columns"),
        (("NonMaxSuppression", ["one", "x"]), {"one": np.float32(1)}, "too many indices"),
    ],
)  # fmt: skip
def test_what_nothing_can_compute_is_an_error_that_tells_the_node(node, tensors, words, tmp_path, monkeypatch, capsys):
    held = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, axes) for name, axes in (("x", (2, 1, 8, 8)), ("y", None)))
    graph = helper.make_graph([helper.make_node(*node, ["y"], "the_node")], "g", [given], [made], held)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save_model(proto, tmp_path / "m.onnx")
    monkeypatch.setattr("sys.argv", ["megengine", "run", str(tmp_path / "m.onnx")])
    assert main() == 1
    assert re.search(words, told := capsys.readouterr().err)
    assert "the_node" in told or "while running '" in told
