"""G7: insertions compute with the example value of a node."""

import numpy as np
import pytest
from nets import affine, tensor

import megengine.functional as F
import megengine.traced_module as tm


@tm.wrap
def looked_at(value):
    """Notes what it is computed with."""
    SEEN.append(value.numpy())
    return value + 0


@tm.wrap
def divided(value, divisor):
    """Notes what comes out."""
    SEEN.append((value / divisor).numpy())
    return value / divisor


SEEN = []


@pytest.fixture(autouse=True)
def nothing_seen():
    SEEN.clear()


def test_insertions_compute_with_the_value_that_was_given():
    _, graph, x, _ = affine()
    x.value = tensor(3)
    with graph.insert_exprs():
        looked_at(x)
    np.testing.assert_array_equal(SEEN, [tensor(3).numpy()])


def test_without_a_value_they_compute_with_zeros_of_the_traced_shape():
    _, graph, x, _ = affine()
    with graph.insert_exprs():
        looked_at(x)
    np.testing.assert_array_equal(SEEN, [np.zeros(3, np.float32)])


def test_a_value_keeps_zero_from_being_divided_by_zero():
    _, graph, x, out = affine()
    divisor = graph.add_input_node(shape=(3,), name="y")
    with graph.insert_exprs():
        divided(x, divisor)
    divisor.value = F.ones(3)
    with graph.insert_exprs():
        divided(x, divisor)
    without, given = SEEN
    assert np.isnan(without).all() and (given == 0).all()


def test_a_value_tells_its_shape_and_dtype():
    _, graph, x, _ = affine()
    x.value = tensor(5, 2).astype("float16")
    assert x.shape == (5, 2) and x.dtype == np.float16
    x.value = None
    assert x.value is None
