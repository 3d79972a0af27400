"""Other batches by the C API's `options.batch`: the bodies of tests/python/batch_bodies.py give what a call with that batch gives, or loading
is refused: python batches_test.py LIBRARY.

Exits with 77 where the package is not installed.
"""

import ctypes
import importlib.util
import sys
import tempfile
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

LIBRARY = ctypes.CDLL(sys.argv[1])
INVALID_ARGUMENT = 1
DTYPES = {1: "float32", 4: "int32"}


class Options(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("device", c_char_p), ("limit", c_uint64), ("numerics", c_char_p), ("compiler", c_char_p),
                ("opt_level", c_int32), ("profile", c_int32), ("function", c_char_p), ("trusts_kernels", c_int32), ("reserved", c_int32), ("batch", c_int64)]  # fmt: skip


class Info(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("shape", POINTER(c_int64)), ("rank", c_int32), ("dtype", c_int32), ("bytes", c_size_t)]


def check(status: int) -> None:
    LIBRARY.megjit_error_text.restype = c_char_p
    assert status == 0, LIBRARY.megjit_error_text().decode()


def run(path: Path, batch: int, x: Any) -> Any:
    """The first result, or None where loading is refused."""
    import numpy as np

    model, context, given, made = c_void_p(), c_void_p(), c_void_p(), (c_void_p * 1)()
    options = Options(size=ctypes.sizeof(Options), opt_level=2, batch=batch)
    status = LIBRARY.megjit_model_load(str(path).encode(), byref(options), byref(model))
    if status == INVALID_ARGUMENT:
        return None
    check(status)
    check(LIBRARY.megjit_context_create(model, byref(context)))
    check(LIBRARY.megjit_tensor_borrow(1, x.ndim, (c_int64 * x.ndim)(*x.shape), None, x.ctypes.data_as(c_void_p), byref(given)))
    check(LIBRARY.megjit_run(context, (c_void_p * 1)(given), c_size_t(1), made, c_size_t(1)))
    data, text = c_void_p(), Info()
    check(LIBRARY.megjit_tensor_data(c_void_p(made[0]), byref(data)))
    check(LIBRARY.megjit_tensor_describe(c_void_p(made[0]), byref(text)))
    result = np.frombuffer(ctypes.string_at(data, text.bytes), DTYPES[text.dtype])
    return result.reshape(text.shape[: text.rank])


def main() -> None:
    if importlib.util.find_spec("megengine") is None:
        sys.exit(77)
    sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
    import numpy as np
    from batch_bodies import BODIES, FOLLOW, IMAGES_FOLLOW, RECORDED, WANTED, dumped, values

    from megengine import Tensor

    counts = [0, 0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "body.dump"
        for name, body, images in BODIES:
            for recorded in RECORDED:
                try:
                    path.write_bytes(dumped(body, values(recorded, images)).getvalue())
                except (ValueError, IndexError, RuntimeError, TypeError):
                    continue
                for batch in WANTED:
                    x = values(batch, images)
                    found = run(path, batch, x)
                    counts[found is None] += 1
                    if found is None:
                        assert name not in (IMAGES_FOLLOW if images else FOLLOW), f"{name}: {recorded} to {batch} is refused"
                        continue
                    expected = body(Tensor(x)).numpy()
                    assert found.shape == expected.shape, f"{name}: {recorded} to {batch}"
                    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6, err_msg=f"{name}: {recorded} to {batch}")
    print(*counts, "equal and refused")


main()
