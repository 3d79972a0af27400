"""A packaged training file by libmegjit's C functions, without compilers: python packaged_test.py LIBRARY.

Exits with 77 where the package is not installed.
"""

import ctypes
import importlib.util
import os
import subprocess
import sys
import tempfile
from ctypes import POINTER, byref, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

LIBRARY = ctypes.CDLL(sys.argv[1])
BATCH, SIZE = 4, (4, 3, 12, 12)


class Options(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("device", c_char_p), ("limit", c_uint64), ("numerics", c_char_p), ("compiler", c_char_p),
                ("opt_level", c_int32), ("profile", c_int32), ("function", c_char_p), ("trusts_kernels", c_int32), ("reserved", c_int32), ("batch", c_int64)]  # fmt: skip


def check(status: int) -> None:
    LIBRARY.megjit_error_text.restype = c_char_p
    assert status == 0, LIBRARY.megjit_error_text().decode()


def tensor(array: Any, *shape: int, dtype: int = 1) -> c_void_p:
    made = c_void_p()
    check(LIBRARY.megjit_tensor_borrow(dtype, len(shape), (c_int64 * len(shape))(*shape), None, array, byref(made)))
    return made


def run(context: c_void_p, *inputs: c_void_p) -> bytes:
    made = (c_void_p * 1)()
    check(LIBRARY.megjit_run(context, (c_void_p * len(inputs))(*inputs), c_size_t(len(inputs)), made, c_size_t(1)))
    data, text = c_void_p(), Info()
    check(LIBRARY.megjit_tensor_data(c_void_p(made[0]), byref(data)))
    check(LIBRARY.megjit_tensor_describe(c_void_p(made[0]), byref(text)))
    return ctypes.string_at(data, text.bytes)


class Info(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("shape", POINTER(c_int64)), ("rank", c_int32), ("dtype", c_int32), ("bytes", c_size_t)]


def train(file: str, saved: str) -> None:
    """Prints the losses of some steps, and what predict gives before and after them; writes the file anew."""
    options = Options(size=ctypes.sizeof(Options), opt_level=3, function=b"step", trusts_kernels=1)
    step, predict, contexts = c_void_p(), c_void_p(), (c_void_p(), c_void_p())
    check(LIBRARY.megjit_model_load(file.encode(), byref(options), byref(step)))
    options.function = b"predict"
    check(LIBRARY.megjit_model_share(step, byref(options), byref(predict)))
    for model, context in zip((step, predict), contexts):
        check(LIBRARY.megjit_context_create(model, byref(context)))
    numbers = [(7 * i % 23 - 11) / 10 for i in range(BATCH * 3 * 12 * 12)]
    memory = (c_float * len(numbers))(*numbers), (c_int32 * BATCH)(0, 1, 2, 1)  # which tensors borrow
    x, labels = tensor(memory[0], *SIZE), tensor(memory[1], BATCH, dtype=4)
    results = [run(contexts[1], x)] + [run(contexts[0], x, labels) for _ in range(5)] + [run(contexts[1], x)]
    assert results[0] != results[-1], "predict does not see the trained state"
    check(LIBRARY.megjit_model_save(step, saved.encode()))
    print(*(result.hex() for result in results))


def write(file: Path) -> None:
    """A step that trains the last layer alone, and predict: the convolution is a constant of both."""
    import numpy as np

    import megengine as mge
    import megengine.functional as F
    import megengine.module as M
    import megengine.optimizer as optim
    from megengine.autodiff import GradManager
    from megengine.jit import dump_functions, trace

    mge.random.seed(3)
    body, head = M.Sequential(M.Conv2d(3, 16, 3, padding=1), M.ReLU(), M.Conv2d(16, 8, 1)).eval(), M.Linear(8, 3)
    opt, gm = optim.Adam(head.parameters(), lr=0.05), GradManager().attach(head.parameters())

    def logits(x):
        return head(body(x).mean(axis=(2, 3)))

    @trace(record_only=True)
    def step(x, y):
        with gm:
            loss = F.nn.cross_entropy(logits(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    predict = trace(lambda x: F.softmax(logits(x)), record_only=True)
    x = mge.tensor(np.zeros(SIZE, "float32"))
    step(x, mge.tensor(np.zeros(BATCH, "int32"))), predict(x)
    dump_functions(file, {"step": step, "predict": predict})


def by_c(file: Path, saved: Path, **environment: str) -> tuple[str, str]:
    words = [sys.executable, __file__, sys.argv[1], str(file), str(saved)]
    done = subprocess.run(words, env={**os.environ, "MEGJIT_COMPILE": "sync", **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def main() -> None:
    if importlib.util.find_spec("megengine") is None:
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain, packed = folder / "plain.dump", folder / "packed.dump"
        write(plain)
        words = [sys.executable, "-m", "megengine", "package", str(plain), "-o", str(packed)]
        told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        assert "avx2: 0 kernels" not in told and "packed weights, without the " in told, told
        (folder / "nothing").mkdir()
        bare = {"MEGJIT_PLUGIN_DIR": str(folder / "nothing"), "MEGJIT_CACHE_DIR": "", "MEGJIT_ISA": "avx2"}
        wanted, _ = by_c(plain, folder / "plain2.dump", MEGJIT_CACHE_DIR=str(folder / "cache"), MEGJIT_ISA="avx2")
        for again in range(2):  # the second time from what was saved
            found, warned = by_c(packed, folder / "packed2.dump", **bare)
            assert "no kernel compiler" not in warned, warned
            assert found == wanted, f"other bits, round {again}"
            plain, packed = folder / "plain2.dump", folder / "packed2.dump"
            wanted, _ = by_c(plain, folder / "plain2.dump", MEGJIT_CACHE_DIR=str(folder / "cache"), MEGJIT_ISA="avx2")
        assert b"kernel" in packed.read_bytes(), "the saved file has lost its kernels"
    print(told, "5 steps, twice: the same bits", sep="")


if len(sys.argv) > 2:
    train(*sys.argv[2:])
else:
    main()
