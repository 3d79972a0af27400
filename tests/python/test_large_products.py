"""Products whose second factor oneDNN reorders: large ones run some columns at a time, in a small workspace, and with the same bits everywhere."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.jit import trace

MOST = 17 << 20  # bytes of workspace: of 16 MiB of copied columns, and what the product takes itself

# Rows, columns and length of the sum; is the first factor transposed? The second one takes 32, 24 and 36 MiB.
SIZES = [(768, 2048, 4096, True), (800, 1536, 4096, False), (768, 3072, 3072, True)]


def product(a, b, turned):
    return F.matmul(a, b, transpose_a=turned)


BODIES = {
    "product": lambda a, b, bias, more, turned: product(a, b, turned),
    "bias": lambda a, b, bias, more, turned: product(a, b, turned) + bias,
    "bias, relu": lambda a, b, bias, more, turned: F.relu(product(a, b, turned) + bias),
    "sum, relu": lambda a, b, bias, more, turned: F.relu(product(a, b, turned) + more),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize(("rows", "columns", "length", "turned"), SIZES)
def test_columns_run_in_a_small_workspace_with_the_bits_of_eager(rows, columns, length, turned, body):
    draw = np.random.RandomState(0)
    a, b, bias, more = (
        mge.tensor(draw.randn(*shape).astype("float32"))
        for shape in ((length, rows) if turned else (rows, length), (length, columns), (columns,), (rows, columns))
    )
    eager = body(a, b, bias, more, turned).numpy()
    for level in (2, 3):
        traced = trace(lambda *args: body(*args, turned), symbolic=True, opt_level=level, numerics="exact")
        assert traced.plan(a, b, bias, more).workspace_bytes <= MOST
        assert np.array_equal(traced(a, b, bias, more).numpy(), eager)
    some = [0, 1, columns // 2 - 1, columns // 2, columns - 1]
    wide = [t.numpy().astype("float64") for t in (a, b, bias, more)]
    factor = wide[0].T if turned else wide[0]
    expected = body(*(mge.tensor(v) for v in (factor, wide[1][:, some], wide[2][some], wide[3][:, some])), False)
    np.testing.assert_allclose(eager[:, some], expected.numpy(), rtol=1e-4, atol=1e-2)
