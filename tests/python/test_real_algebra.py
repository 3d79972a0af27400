"""What a traced function may compute otherwise than eager mode: formulas that are equal in the reals alone. ``numerics="exact"`` forbids it,
and ``explain`` tells where it was done."""

import re

import numpy as np
import pytest

import megengine.functional as F
from megengine import Tensor
from megengine.core import ops
from megengine.jit import trace


def twice(function, *args, **options):
    """The result of a call that runs the compiled program, and the function."""
    traced = trace(function, symbolic=True, **options)
    traced(*args)
    return traced(*args).numpy(), traced


REAL = {
    "a quotient of one value": (lambda x: x / x, [0.0, 2.0], [1.0, 1.0]),
    "a quotient of what is written twice": (lambda x: (x * 2) / (x * 2), [0.0, 2.0], [1.0, 1.0]),
    "log of exp": (lambda x: F.log(F.exp(x)), [1e4, 1.0], [1e4, 1.0]),
    "exp of log": (lambda x: F.exp(F.log(x)), [-3.0, 1.0], [-3.0, 1.0]),
    "log of two exps": (lambda x: F.log(F.exp(x) + F.exp(x * 0)), [1e4, 0.0], [1e4, np.log(2)]),
}


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("case", REAL)
def test_a_formula_has_its_value_where_the_literal_one_has_none(case, level):
    body, given, wanted = REAL[case]
    x = Tensor(given)
    literal = body(x).numpy()
    assert not np.isfinite(literal[0])
    result, traced = twice(body, x, opt_level=level)
    np.testing.assert_allclose(result, wanted if level else literal, rtol=1e-6)
    assert ("not bit for bit as eager mode: cancel (" in traced.explain()) is (level > 0)
    exact, traced = twice(body, x, opt_level=level, numerics="exact")
    np.testing.assert_array_equal(exact, literal)
    assert "not bit for bit" not in traced.explain()


def test_explain_names_the_ops_and_their_lines():
    _, traced = twice(lambda x: F.softmax(x / x), Tensor([1.0, 2.0]), opt_level=2)
    assert re.search(r"cancel \(true_div at .*test_real_algebra\.py:\d+\)", traced.explain()), traced.explain()


SAME_BITS = {
    "times one": lambda x: x * 1,
    "minus zero": lambda x: x - 0,
    "divided by one": lambda x: x / 1,
    "to the first": lambda x: x**1,
    "to the second": lambda x: x**2,
    "negated twice": lambda x: -(-x),
    "through float32": lambda x: x.astype("float16").astype("float32").astype("float16"),
    "reshaped and turned twice": lambda x: x.reshape(1, -1).transpose(1, 0).transpose(1, 0).reshape(-1),
}


@pytest.mark.parametrize("case", SAME_BITS)
def test_a_rewrite_that_keeps_the_bits_is_made_in_exact_mode_too(case):
    body, x = SAME_BITS[case], Tensor([0.0, -0.0, 1.5, -2.25, 1e-45, 3e38, np.inf, -np.inf, np.nan])
    exact, traced = twice(lambda x: F.abs(body(x)), x, opt_level=1, numerics="exact")
    np.testing.assert_array_equal(exact.view(np.uint8), F.abs(body(x)).numpy().view(np.uint8))
    recorded, optimized = traced.graph_text(optimized=False).count("\n"), traced.graph_text().count("\n")
    assert optimized < recorded or "square" in traced.graph_text(), traced.graph_text()


def test_pow_by_two_and_by_one_has_the_bits_of_a_product_and_of_its_operand():
    x = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
    x = Tensor(x[~np.isnan(x)])
    for given, wanted in ((ops.pow(x, Tensor(2.0)), x * x), (ops.pow(x, Tensor(1.0)), x)):
        np.testing.assert_array_equal(given.numpy().view(np.uint32), wanted.numpy().view(np.uint32))


def test_explain_names_products_that_kernels_compute():
    ones = Tensor(np.ones((16, 16), np.float32))
    _, traced = twice(lambda x: F.tanh(F.matmul(x, ones)), ones, opt_level=3)
    assert re.search(r"fuse \(matmul at .*test_real_algebra\.py:\d+\)", traced.explain()), traced.explain()
    _, traced = twice(lambda x: F.tanh(F.matmul(x, ones)), ones, opt_level=3, numerics="exact")
    assert "not bit for bit" not in traced.explain()
