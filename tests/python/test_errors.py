"""User mistakes: the right class, at most six lines, the first one says what and with which values; the next call works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.onnx
import megengine.optimizer as optim
import megengine.serialization
from megengine import _core, fx
from megengine.autodiff import Function, GradManager
from megengine.jit import SublinearMemoryConfig, TraceError, trace
from megengine.quantization.quantize import quantize_qat

X = mge.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
Y = mge.tensor(np.ones((4, 5), np.float32))
I = mge.tensor(np.arange(3, dtype=np.int32))
IMAGE = mge.tensor(np.ones((1, 3, 8, 8), np.float32))
HERE = os.path.basename(__file__)


def backward_without_recording():
    GradManager().attach(X).backward(X)


def record_twice():
    gm = GradManager().attach(X)
    gm.record()
    try:
        gm.record()
    finally:
        gm.release()


def gradient_of_another_shape():
    x = mge.Parameter(np.ones((2, 3), np.float32))
    with GradManager().attach(x) as gm:
        gm.backward(x * 2, mge.tensor(np.ones(4, np.float32)))


def shapes_do_not_broadcast_in_a_trace():
    trace(lambda x, y: x + y, symbolic=True)(X, Y)


def a_read_in_symbolic_mode():
    trace(lambda x: x * x.sum().item(), symbolic=True)(X)


def another_branch():
    state = [True]
    f = trace(lambda x: x + 1 if state[0] else x - 1)
    f(X)
    state[0] = False
    f(X)


def a_host_read_without_host():
    trace(lambda x: x * x.sum().item(), without_host=True)(X)


class Forward(Function):
    def forward(self, x):
        return x

    def backward(self, dy):
        return dy


class Unfinished(M.Module):
    def __init__(self):
        self.w = mge.Parameter([1.0])

    def forward(self, x):
        return x * self.w


class Bare(M.Module):
    def __init__(self):
        self.factor = 2

    def forward(self, x):
        return x * self.factor


def consumed_parameters():
    parameters = M.Linear(2, 3).parameters()
    list(parameters)
    optim.SGD(parameters, lr=0.1)


def bad_state_dict():
    M.Linear(2, 3).load_state_dict({"weight": np.ones((2, 2), np.float32), "bias": np.ones(3, np.float32)})


# name: (mistake, class, words of the first line, does an op of C++ raise it?)
MISTAKES = {
    "add shapes": (lambda: X + Y, ValueError, r"add.*\[2, 3\].*\[4, 5\]", True),
    "in place shapes": (lambda: X.__iadd__(Y), ValueError, r"add.*\[2, 3\].*\[4, 5\]", True),
    "compare shapes": (lambda: X < Y, ValueError, r"less.*\[2, 3\].*\[4, 5\]", True),
    "none operand": (lambda: X + None, TypeError, "the operand is None and is not supported.", True),
    "and of floats": (lambda: X & X, TypeError, "and.*f(loat)?32", True),
    "invert floats": (lambda: ~X, TypeError, "not.*f(loat)?32", True),
    "shift of floats": (lambda: X << 1, TypeError, "left_shift.*f(loat)?32", True),
    "text operand": (lambda: X + "a", TypeError, "'?Tensor'?.*str|str", False),
    "matmul shapes": (lambda: F.matmul(X, Y), ValueError, r"matmul.*\[2, 3\].*\[4, 5\]", True),
    "matmul operator": (lambda: X @ Y, ValueError, r"matmul.*\[2, 3\].*\[4, 5\]", True),
    "reshape count": (lambda: X.reshape(4, 2), ValueError, r"reshape.*\[2, 3\]", False),
    "reshape two -1": (lambda: X.reshape(-1, -1), ValueError, "reshape.*-1", False),
    "reshape below -1": (lambda: X.reshape(-3, 2), ValueError, "reshape.*-3", False),
    "broadcast": (lambda: F.broadcast_to(X, (2, 4)), RuntimeError, r"broadcast.*\[2, 3\]|broadcast.*\(2, 3\)", False),
    "transpose axes": (lambda: F.transpose(X, (0, 0)), ValueError, r"transpose.*\[0, 0\]", False),
    "concat shapes": (lambda: F.concat([X, Y], 0), ValueError, r"concat.*\[2, 3\].*\[4, 5\]", True),
    "concat nothing": (lambda: F.concat([]), ValueError, "concat", False),
    "stack shapes": (lambda: F.stack([X, Y]), ValueError, r"stack.*\[2, 3\].*\[4, 5\]", False),
    "split pieces": (lambda: F.split(X, 5, axis=1), ValueError, "3 at dim 1.*5 sections", False),
    "axis too large": (lambda: F.sum(X, axis=5), ValueError, "sum: axis 5.*2 axes", False),
    "index too large": (lambda: X[5], IndexError, "5.*2", False),
    "too many indices": (lambda: X[0, 0, 0], IndexError, "3.*2|indices", False),
    "two ellipses": (lambda: X[..., ...], IndexError, r"[Ee]llips|\.\.\.", False),
    "index by text": (lambda: X["a"], (IndexError, TypeError), "a|str", False),
    "mask shape": (lambda: X[mge.tensor([True, False, True])], IndexError, r"3.*2|\[3\]|shape", False),
    "index out of range": (lambda: X[mge.tensor([7])].numpy(), IndexError, "7", True),
    "write shape": (lambda: X.__setitem__(0, Y), ValueError, r"\[4, 5\]|\(4, 5\)", False),
    "item of many": (lambda: X.item(), ValueError, r"item.*\[2, 3\]", False),
    "truth of many": (lambda: bool(X), ValueError, r"truth value of a tensor of shape \[2, 3\]", False),
    "gather dtype": (lambda: F.gather(X, 0, X), TypeError, "gather.*float32", False),
    "one_hot dtype": (lambda: F.one_hot(X, 3), (TypeError, ValueError), "one_hot.*f(loat)?32", False),
    "topk": (lambda: F.topk(X, 0), ValueError, "topk.*0.*3", False),
    "where mask": (lambda: F.where(X, X, X), ValueError, "^mask must be bool, where got float32", False),
    "svd of a vector": (lambda: F.svd(I.astype("float32")), ValueError, r"svd.*\[3\]", True),
    "matinv not square": (lambda: F.matinv(X), ValueError, r"matinv.*\[2, 3\]", True),
    "conv channels": (lambda: M.Conv2d(4, 2, 3)(IMAGE), ValueError, r"conv.*\[1, 3, 8, 8\].*\[2, 4, 3, 3\]", True),
    "conv rank": (lambda: F.conv2d(X, IMAGE), ValueError, r"conv.*\[2, 3\]", True),
    "linear features": (lambda: M.Linear(4, 2)(X), ValueError, r"(matmul|linear).*\[2, 3\].*\[2, 4\]", True),
    "pool kernel": (lambda: F.max_pool2d(IMAGE, 20), ValueError, r"max_pool.*\[1, 3, 8, 8\]", True),
    "batch norm channels": (lambda: M.BatchNorm2d(4)(IMAGE), (ValueError, AssertionError), r"batch_?norm.*\b(3|4)\b", False),
    "cross entropy label": (lambda: F.loss.cross_entropy(X, X), ValueError, "cross_entropy|loss.*label|label", False),
    "cross entropy of fewer labels": (lambda: F.loss.cross_entropy(X, I), ValueError, r"cross_entropy: label has shape \[3\], pred \[2, 3\]", False),
    "loss reduction": (lambda: F.loss.square_loss(X, X, reduction="max"), ValueError, "^max is not a valid value for reduction", False),
    "dropout rate": (lambda: F.dropout(X, 2.0), (ValueError, AssertionError), r"dropout.*2", False),
    "interpolate both": (lambda: F.vision.interpolate(IMAGE, size=(4, 4), scale_factor=2), ValueError, "^scale_factor must be None when size is provided", False),
    "interpolate corners": (lambda: F.vision.interpolate(IMAGE, size=(4, 4), mode="nearest", align_corners=True), ValueError, "align_corners", False),
    "backward outside": (backward_without_recording, RuntimeError, r"^no computation history\. did you forget record\(\)", False),
    "record twice": (record_twice, RuntimeError, "^already recording", False),
    "attach integers": (lambda: GradManager().attach(I), AssertionError, "attach.*int32", False),
    "gradient shape": (gradient_of_another_shape, ValueError, r"\[4\]|\(4,\)", False),
    "function of numbers": (lambda: Forward()(1.0), TypeError, "float", False),
    "optimizer of tensors": (lambda: optim.SGD([X], lr=0.1), TypeError, "Tensor", False),
    "optimizer of nothing": (lambda: optim.SGD([], lr=0.1), ValueError, "empty", False),
    "optimizer of a module": (lambda: optim.SGD(M.Linear(2, 3), lr=0.1), TypeError, "Linear", False),
    "optimizer of a generator that was read": (consumed_parameters, ValueError, "empty", False),
    "rate as text": (lambda: optim.SGD([mge.Parameter([1.0])], lr="0.1"), TypeError, "SGD: lr.*'0.1'", False),
    "negative rate": (lambda: optim.SGD([mge.Parameter([1.0])], lr=-1), ValueError, "^Invalid learning rate: -1", False),
    "betas": (lambda: optim.Adam([mge.Parameter([1.0])], lr=1, betas=(2, 0)), ValueError, "^Invalid beta parameter at index 0: 2", False),
    "no super().__init__": (lambda: Unfinished()(X), AttributeError, r"^cannot assign tensor before Module.__init__\(\) call", False),
    "no super().__init__ of a module without tensors": (lambda: Bare()(X), AttributeError, r"^cannot assign attributes before Module.__init__\(\) call", False),
    "no such attribute": (lambda: M.Linear(2, 3).wieght, AttributeError, "'Linear' object has no attribute 'wieght'", False),
    "no such function": (lambda: mge.tenser(1), AttributeError, "'megengine' has no attribute 'tenser'", False),
    "state dict of a module": (lambda: M.Linear(2, 3).load_state_dict(M.Linear(2, 3)), TypeError, "^`state_dict` must load a dict or callable.*Linear", False),
    "state dict of a path": (lambda: M.Linear(2, 3).load_state_dict("net.pkl"), TypeError, "^`state_dict` must load a dict or callable.*str", False),
    "state dict shape": (bad_state_dict, (ValueError, RuntimeError), r"weight.*2, 2.*3, 2|weight.*3, 2.*2, 2", False),
    "trace shapes": (shapes_do_not_broadcast_in_a_trace, ValueError, r"add.*\[2, 3\].*\[4, 5\]", True),
    "symbolic read": (a_read_in_symbolic_mode, ValueError, r"f32\[\].*symbolic=True", True),
    "other branch": (another_branch, TraceError, "trace error because operator mismatch", True),
    "without_host read": (a_host_read_without_host, RuntimeError, "without_host", True),
    "trace option": (lambda: trace(lambda x: x, opt_level=9), ValueError, "opt_level.*9", False),
    "trace of an array": (lambda: trace(lambda x: x, without_host=True)(np.ones(3)), TypeError, "positional argument 0", False),
    "sublinear": (lambda: SublinearMemoryConfig(thresh_nr_try=-1), AssertionError, "thresh_nr_try.*-1", False),
    "dtype name": (lambda: X.astype("float99"), (TypeError, ValueError), "float99", False),
    "dtype of a number": (lambda: mge.Tensor(2, 3), TypeError, "dtype 3 is not supported", False),
    "tensor of nothing": (lambda: mge.tensor(None), TypeError, "Tensor: data is None", False),
    "ragged list": (lambda: mge.tensor([[1, 2], [3]]), ValueError, "inhomogeneous|ragged", False),
    "tensor of an object": (lambda: mge.tensor(object()), (TypeError, ValueError), "object", False),
    "device": (lambda: mge.tensor([1.0], device="tpu7"), (ValueError, RuntimeError), "tpu7", False),
    "uniform bounds": (lambda: mge.random.uniform(2, 1, (3,)), AssertionError, "^Uniform is not defined when low >= high, got 2 and 1", False),
    "seed": (lambda: mge.random.seed(-5), ValueError, "seed.*-5", False),
    "negative extent": (lambda: F.zeros((2, -1)), ValueError, r"^expect shape\[1\] >= 0, got -1", False),
    "huge": (lambda: F.zeros((1 << 31, 1 << 31)), (ValueError, MemoryError), r"2147483648|bytes", False),
    "qconfig": (lambda: quantize_qat(M.Linear(2, 3), qconfig="int8"), TypeError, "quantize_qat: qconfig.*'int8'", False),
    "save nowhere": (lambda: mge.save({}, "/nonexistent/file.pkl"), FileNotFoundError, "no such folder.*'/nonexistent'", False),
    "load nothing": (lambda: mge.load("/nonexistent/file.pkl"), FileNotFoundError, "nonexistent", False),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(name):
    mistake, kind, words, is_op = MISTAKES[name]
    with pytest.raises(kind) as caught:
        mistake()
    text = str(caught.value)
    lines = text.splitlines()
    assert len(lines) <= 6
    assert re.search(words, lines[0]), lines[0]
    if is_op:
        assert re.search(rf"{HERE}:\d+", text), text
    np.testing.assert_array_equal((X + 1).numpy(), [[1, 2, 3], [4, 5, 6]])  # the next call works


def test_tracebacks_name_errors_as_programs_import_them():
    errors = (fx.ModelFileError, fx.TraceError, fx.VerificationError, megengine.onnx.OnnxError, megengine.serialization.RefusedClassError)
    for error in errors:
        assert getattr(sys.modules[error.__module__], error.__name__) is error


@pytest.mark.parametrize(
    ("begin", "words"),
    [
        (b"PK\x03\x04 and so on", "torch.save.*torch.load"), (b"PK\x03\x04 and a.npy", "NumPy.*numpy.load"), (b"\x93NUMPY\x01", "numpy.load"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "torch.load"), (b"MEGJITGF\x03", "trace.dump.*GraphInference"),
        (b"MGBC\0\0\0\0", "MegEngine dumped"), (b"\xfc\2\0\0\x1c\0\0\0mgv2\x14", "MegEngine dumped"), (b"\x08\x0a\x12\x06megjit", "megengine.onnx.load"),
        (b"\x89HDF\r\n\x1a\n", "h5py"), (b"\x1f\x8b\x08", "unpack"), (b"<!DOCTYPE html>", "download"), (b"version https://git-lfs.github.com", "git lfs pull"),
        (b"\x40\0\0\0\0\0\0\0{", "its header alone.*damaged"),
        (b"GGUF\3\0\0\0", "ends at 16.*truncated"),
        (b"words", "damaged"), (b"", "truncated"),
    ],
)  # fmt: skip
def test_a_file_of_another_kind_says_who_reads_it(tmp_path, begin, words):
    file = tmp_path / "file.pkl"
    file.write_bytes(begin)
    with pytest.raises(RuntimeError, match=rf"(?s)cannot read {file}: .*{words}") as caught:
        mge.load(file)
    assert re.search("\n  fix: ", str(caught.value))
    if b"words" not in begin and begin[8:9] != b"{" and begin and not begin.startswith(b"GGUF"):
        with pytest.raises(fx.ModelFileError, match=f"(?s){words}"):
            fx.load(file)


def test_messages_have_no_codes_of_rules():
    """The rules of an op have numbers in its source, for those who read it."""
    code = re.compile(r'"[^"\n]*\b[A-Z]{1,2}\d{1,2}: ')
    root = Path(__file__).parents[2]
    files = [path for room in ("runtime", "jit") for path in (root / room).rglob("*.cpp")]
    found = [f"{path.relative_to(root)}: {line.strip()}" for path in files for line in path.read_text(encoding="utf-8").splitlines() if code.search(line)]
    assert len(files) > 100 and not found


@pytest.mark.parametrize("bytes", [1, 1023, 1024, 10240, 45240, 10**5, 2**20, 10**7, 2**30, 5 * 10**10, 2**40])
def test_sizes_that_differ_look_different(bytes):
    for other in (bytes + 1, bytes * 101 // 100 + 1, 2 * bytes):
        assert _core.size_text(bytes, other) != _core.size_text(other, bytes)
        assert _core.bytes_text(bytes, other).startswith(f"{bytes} bytes")


def test_sizes_have_the_unit_that_fits():
    sizes = {0: "0 B", 800: "800 B", 1536: "1.5 KiB", 45240: "44.2 KiB", 2**20: "1.0 MiB", 3 * 2**30: "3.0 GiB", 2**42: "4096.0 GiB"}
    assert {size: _core.size_text(size) for size in sizes} == sizes
    assert _core.bytes_text(800) == "800 bytes" and _core.bytes_text(45240, 10240) == "45240 bytes (44.2 KiB)"
    assert _core.bytes_text(2**20 + 1, 2**20) == "1048577 bytes (1.000001 MiB)"


def test_a_reader_that_goes_away_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m megengine info | true", shell=True, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


def test_an_exception_of_the_body_passes_through():
    @trace
    def f(x):
        raise KeyError("mine")

    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            f(X)


def test_an_error_in_the_middle_of_a_trace_names_its_line():
    @trace(symbolic=True)
    def f(x, y):
        x = x * 2
        return F.matmul(x, y)

    for _ in range(2):
        with pytest.raises(ValueError, match=rf"(?s)matmul.*{HERE}:\d+ in f"):
            f(X, Y)
    np.testing.assert_array_equal(f(X, X.T).numpy(), (X.numpy() * 2) @ X.numpy().T)


def test_a_key_error_prints_its_lines():
    """KeyError prints the repr of its text: a fix stood behind "\\n" in quotes."""
    layer = M.Linear(2, 2)
    optimizer = optim.SGD(layer.parameters(), lr=0.1)
    for wrong in (lambda: layer.load_state_dict({}), lambda: optim.MultiStepLR(optimizer, [1], current_epoch=3)):
        with pytest.raises(KeyError) as told:
            wrong()
        assert "\\n" not in str(told.value) and not str(told.value).startswith(("'", '"'))
