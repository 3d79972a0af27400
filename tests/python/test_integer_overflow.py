"""Integers from Python and NumPy that an integer dtype cannot hold are refused, by value and never by dtype."""

import subprocess
import sys

import numpy as np
import pytest

import megengine.functional as F
from megengine import Parameter, Tensor
from megengine.jit import trace

I32 = Tensor(np.array([1, 2], np.int32))
U8 = Tensor(np.array([44, 200], np.uint8))
I8 = Tensor(np.array([1, 2], np.int8))


def written(x, index, value):
    x = Tensor(x)
    x[index] = value
    return x


NEGATIVE = {
    "a Tensor": lambda dtype: Tensor(-200, dtype=dtype), "a list": lambda dtype: Tensor([1, -200], dtype=dtype),
    "an array": lambda dtype: Tensor(np.array([[-200]]), dtype=dtype), "full": lambda dtype: F.full((2,), -200, dtype=dtype),
    "a float": lambda dtype: Tensor(-200.0, dtype=dtype), "a sum": lambda dtype: Tensor([1], dtype=dtype) + -200,
    "a written number": lambda dtype: written(Tensor([1], dtype=dtype), 0, -200),
}  # fmt: skip

REFUSED = {
    "a sum": lambda: I32 + 2**40,
    "a sum of bytes": lambda: U8 + 300,
    "a sum from the left": lambda: 2**31 - I32,
    "a negative": lambda: I32 * -(2**31 + 1),
    "a Tensor": lambda: Tensor(2**40),
    "a Tensor of int8": lambda: Tensor(128, dtype="int8"),
    "a Tensor of a list": lambda: Tensor([1, 2**31]),
    "an int64 array": lambda: Tensor(np.array([[1, 2**40]])),
    "a uint64 array": lambda: Tensor(np.array([2**63], np.uint64)),
    "an array for int8": lambda: Tensor(np.array([1, 200]), dtype="int8"),
    "floats for int32": lambda: Tensor([1.0, 3e9], dtype="int32"),
    "a float for int32": lambda: Tensor(3e9, dtype="int32"),
    "NaN for int32": lambda: Tensor(float("nan"), dtype="int32"),
    "infinity for int32": lambda: Tensor(np.array([np.inf]), dtype="int32"),
    "a Parameter": lambda: Parameter(2**40),
    "full": lambda: F.full((2,), 3e9, dtype="int32"),
    "full of an int": lambda: F.full((2,), 2**31),
    "full_like": lambda: F.full_like(U8, 256),
    "pad": lambda: F.pad(U8, (1, 0), constant_value=256),
    "a written number": lambda: written(U8, 0, 256),
    "a written array": lambda: written(U8, slice(None), np.array([1, 300])),
    "where": lambda: F.where(I32 > 1, I32, 2**31),
    "a number far beyond": lambda: I32 + 2**70,
    "in a trace": lambda: trace(symbolic=True)(lambda x: x + 2**31)(I32),
    "clip": lambda: F.clip(I8, -1000, 1),
    **{
        f"{how} of -200 for {dtype}": lambda make=make, dtype=dtype: make(dtype)
        for dtype in ("int8", "uint8", "uint16") for how, make in NEGATIVE.items()
    },
    "below -1": lambda: Tensor(-2, dtype="uint8"),
    "a sum below -1": lambda: U8 + -5,
    "bits that there are not": lambda: U8 & ~300,
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(case):
    with pytest.raises(OverflowError):
        REFUSED[case]()


def test_the_error_names_value_place_dtype_and_the_way_out():
    with pytest.raises(OverflowError, match=r"1099511627776 at \[0, 1\] does not fit int32, which holds -2147483648 to 2147483647\n  fix: .*\n  at:  .*test_integer_overflow.py"):
        Tensor(np.array([[1, 2**40]]))
    with pytest.raises(OverflowError, match=r"256 does not fit uint8, which holds 0 to 255"):
        U8 + 256


FITS = {
    "int64 labels": (lambda: Tensor(np.array([0, 9])), [0, 9]),
    "the ends": (lambda: Tensor([2**31 - 1, -(2**31)]), [2**31 - 1, -(2**31)]),
    "-1 as all bits": (lambda: Tensor(-1, dtype="uint8"), 255),
    "-1 as all 16 bits": (lambda: F.full((1,), -1, dtype="uint16"), [65535]),
    "-1 in an array": (lambda: Tensor(np.array([-1, 3]), dtype="uint8"), [255, 3]),
    "a mask": (lambda: U8 & ~3, [44, 200]),
    "a mask from the left": (lambda: ~7 | U8, [252, 248]),
    "up to 0": (lambda: Tensor(-0.9, dtype="uint8"), 0),
    "minus one": (lambda: U8 + -1, [43, 199]),
    "truncation": (lambda: Tensor([1.5, -1.5], dtype="int32"), [1, -1]),
    "up to the next": (lambda: Tensor(255.9, dtype="uint8"), 255),
    "wrapping": (lambda: U8 + U8, [88, 144]),
    "float16": (lambda: Tensor(1e6, dtype="float16"), np.inf),
    "float32 of a large int": (lambda: Tensor(2**40, dtype="float32"), 2.0**40),
    "float32 of large int64": (lambda: Tensor(np.array([2**40]), dtype="float32"), [2.0**40]),
    "float64": (lambda: Tensor(1e300), np.inf),
    "a mask's -1e9": (lambda: I32 + -1e9, np.float32([1, 2]) - np.float32(1e9)),
    "equal": (lambda: U8 == 300, [False, False]),
    "not equal": (lambda: U8 != 300, [True, True]),
    "less": (lambda: U8 < 300, [True, True]),
    "greater than a negative": (lambda: U8 > -1, [True, True]),
    "less from the left": (lambda: 2**40 > I32, [True, True]),
    "beyond int32": (lambda: I32 == 2**31, [False, False]),
    "far beyond int32": (lambda: I32 >= -(2**70), [True, True]),
}


@pytest.mark.parametrize("case", FITS)
def test_what_fits_is_as_it_was(case):
    made, wanted = FITS[case]
    np.testing.assert_array_equal(made().numpy(), wanted)


def test_casts_of_tensors_truncate_and_give_the_least_integer_out_of_range():
    x = Tensor(np.array([3e9, -3e9, np.nan, np.inf, 1.9], np.float32))
    wanted = np.array([-(2**31)] * 4 + [1], np.int32)
    np.testing.assert_array_equal(x.astype("int32").numpy(), wanted)
    for level in (0, 3):
        fn = trace(symbolic=True, opt_level=level)(lambda x: x.astype("int32") + 0)
        fn(x)
        fn.kernels()
        np.testing.assert_array_equal(fn(x).numpy(), wanted)


def test_silence_is_a_switch():
    code = "import megengine as mge; print((mge.Tensor([1]) + 2**40).tolist(), mge.Tensor(3e9, dtype='int32').tolist())"
    done = subprocess.run([sys.executable, "-c", code], env={"MEGJIT_OVERFLOW": "silent"}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[-2147483647]", "-2147483648"]
