"""What a Tensor prints: NumPy's own text of its array, to the letter."""

import numpy as np
import pytest

from megengine import Tensor

TEXTS = [
    (1e-5, "1e-05"), (3.14159265, "3.1415927"), (2.0, "2.0"), (1e8, str(np.float32(1e8))), ([1e-5, 1.0], "[1.e-05 1.e+00]"),
    (np.arange(3000.0), "[0.000e+00 1.000e+00 2.000e+00 ... 2.997e+03 2.998e+03 2.999e+03]"),
    ([[1.5, 2.0], [3.0, 4e-4]], "[[1.5e+00 2.0e+00]\n [3.0e+00 4.0e-04]]"), ([float("nan"), float("-inf")], "[ nan -inf]"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), TEXTS)
def test_a_tensor_prints_as_its_array(value, text):
    assert repr(Tensor(np.array(value, np.float32))) == f"Tensor({text}, device=xpux:0)"
    assert str(Tensor(np.array(value, np.float32))) == f"Tensor({text}, device=xpux:0)"
