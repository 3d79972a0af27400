"""Tensors from outside that have another dtype in later calls: the body rebinds them, or the program does between two calls.

Casts come and go with the dtype, wherever the body reads the tensor: later calls are recorded again, and give what eager mode gives.
"""

import numpy as np
import pytest

import megengine.functional as F
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.jit import trace


def gradient(x, low):
    x = x * 1
    manager = GradManager().attach(x)
    with manager:
        manager.backward((x * low).sum())
    return x.grad


READS = {
    "first": lambda x, low: F.minimum(low, x),
    "beside a value": lambda x, low: F.minimum(low, x + 1),
    "behind it": lambda x, low: F.minimum(x + 1, low),
    "beside its own type": lambda x, low: F.minimum(low, x.astype("float16")),
    "behind its own type": lambda x, low: F.minimum(x.astype("float16"), low),
    "beside an integer": lambda x, low: F.minimum(low, x.astype("int32") + 1),
    "alone": lambda x, low: low.astype("float32"),
    "alone and last": lambda x, low: (x * 2, low.astype("float32"))[1],
    "back and forth": lambda x, low: low.astype("float32").astype("float16"),
    "twice": lambda x, low: F.maximum(low, x * 3) + F.minimum(low, x + 1),
    "in a product": lambda x, low: F.matmul(F.stack([low, low]).astype("float32"), F.stack([x, x * 2]).T),
    "in a gradient": gradient,
    "behind a value that is read": lambda x, low: ((x + 1).numpy(), F.minimum(low, x))[1],
}  # fmt: skip
BY_THE_BODY = {
    "to float32": lambda low, x: low * 0.5 + x,
    "to integers": lambda low, x: (low * 3).astype("int32"),
    "back and forth": lambda low, x: (low + 1).astype("float32" if low.dtype == np.float16 else "float16"),
}
BETWEEN_CALLS = {
    "to float32": lambda low, x: Tensor(low.numpy().astype(np.float32)),
    "to integers": lambda low, x: Tensor(low.numpy().astype(np.int32)),
}
MODES = [{}, {"symbolic": True}, {"symbolic": True, "opt_level": 3}, {"without_host": True}, {"without_host": "auto"}]


def run(read, change, is_inside, wrap):
    low = Tensor(np.array([0.5, 2.5, -1.5], np.float16))

    def body(x):
        found = read(x, low)
        if is_inside:
            low[...] = change(low, x)
        return found

    call, results = wrap(body), []
    for number in range(4):
        x = Tensor(np.array([1.0, -2.0, 3.0 + number], np.float32))
        results.append((call(x).numpy(), low.numpy()))
        if not is_inside and number == 1:
            low[...] = change(low, x)
    return results


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize(
    ("change", "is_inside"),
    [(name, True) for name in BY_THE_BODY] + [(name, False) for name in BETWEEN_CALLS],
)
@pytest.mark.parametrize("read", READS)
def test_calls_give_what_eager_mode_gives(read, change, is_inside, mode):
    if "value that is read" in read and mode:
        pytest.skip("only calls that compute values as they go read them")
    function = (BY_THE_BODY if is_inside else BETWEEN_CALLS)[change]
    found = run(READS[read], function, is_inside, lambda body: trace(body, **mode))
    expected = run(READS[read], function, is_inside, lambda body: body)
    for (result, state), (wanted, wanted_state) in zip(found, expected, strict=True):
        assert result.dtype == wanted.dtype and state.dtype == wanted_state.dtype
        np.testing.assert_allclose(result, wanted, rtol=1e-3 if result.dtype == np.float16 else 1e-6)
        np.testing.assert_allclose(state, wanted_state, rtol=1e-3 if state.dtype == np.float16 else 1e-6)


def test_a_body_that_changes_once_its_types_stay_is_refused():
    low, is_other = Tensor(np.ones(3, np.float16)), False

    @trace
    def step(x):
        low[...] = low * 0.5 + x
        return (x - 1) * 2 if is_other else (x + 1) * 2

    for _ in range(3):
        step(Tensor([1.0, 2.0, 3.0]))
    is_other = True
    with pytest.raises(RuntimeError, match="operator mismatch"):
        step(Tensor([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_an_error_of_earlier_ops_is_raised_though_the_body_catches_those_of_later_ones(mode):
    weight, low, table = Tensor(np.ones(3, np.float32)), Tensor(np.ones(3, np.float16)), Tensor(np.ones((2, 8), np.float32))

    def body(x, places):
        weight[...] = weight + x
        written = x * 1
        written[places] = 7
        try:
            found = F.matmul(x, table)
        except ValueError:
            found = written * 2
        low[...] = low * 0.5 + x
        return found

    step, x = trace(body, **mode), Tensor([1.0, 2.0, 3.0])
    for number, places in enumerate([[0, 1], [0, 3], [1, 2], [0, 3]]):
        if 3 in places:
            with pytest.raises(IndexError):
                step(x, Tensor(np.int32(places))).numpy()
            weight[...] = 1 + x * (number + 1)
        else:
            expected = x.numpy() * 2
            expected[places] = 14
            np.testing.assert_array_equal(step(x, Tensor(np.int32(places))).numpy(), expected)
        np.testing.assert_array_equal(weight.numpy(), 1 + x.numpy() * (number + 1))
