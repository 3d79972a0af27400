"""In a trace x.shape is a Tensor: functions that take shapes accept it, and other shapes may follow."""

import numpy as np
import pytest

import megengine.functional as F
from megengine import Tensor, jit

USES = {
    "zeros": lambda x: F.zeros(x.shape) + x,
    "zeros of parts": lambda x: F.zeros((x.shape[0], 4)),
    "reshape": lambda x: x.reshape(x.shape[0], -1),
    "reshape by arithmetic": lambda x: F.reshape(x, (x.shape[0] * x.shape[1], -1)),
    "full": lambda x: F.full((x.shape[0] // 2, 2), 3.0),
    "broadcast_to": lambda x: F.broadcast_to(x[:1], x.shape),
    "arange": lambda x: F.arange(x.shape[0]),
    "linspace": lambda x: F.linspace(0, 1, x.shape[0]),
    "slices": lambda x: x[: x.shape[0] // 2, x.shape[1] - 1],
    "int of an axis": lambda x: x[int(x.shape[0]) - 1],
    "unpacked": lambda x: x.reshape([x.shape[i] for i in (3, 2, 1, 0)]),
    "interpolate": lambda x: F.vision.interpolate(x, size=(x.shape[2] * 2, x.shape[3] * 2)),
    "pool": lambda x: F.adaptive_avg_pool2d(x, (x.shape[2] // 2, x.shape[3] // 2)),
    "split": lambda x: F.split(x, x.shape[0])[0],
    "repeat": lambda x: F.repeat(x[:1], x.shape[0], axis=0),
    "tile": lambda x: F.tile(x, (x.shape[0], 1, 1, 1)),
    "eye": lambda x: F.eye(x.shape[0]),
    "factor": lambda x: x / x.shape[0],
    "len and size": lambda x: x * len(x) / x.size,
    "ndim": lambda x: F.zeros(x.ndim),
    "one_hot": lambda x: F.one_hot(F.argmax(x, 1), x.shape[1]),
    "write": lambda x: written(x),
}


def written(x):
    x = x * 1
    x[: x.shape[0] // 2] = 0
    return x


@pytest.mark.parametrize("symbolic", [False, True], ids=["value", "symbolic"])
@pytest.mark.parametrize("name", USES)
def test_a_shape_is_read_from_the_record(name, symbolic):
    traced = jit.trace(USES[name], symbolic=symbolic)
    for batch in (2, 2, 4, 2):
        x = Tensor(np.random.default_rng(batch).normal(size=(batch, 3, 4, 4)).astype(np.float32))
        np.testing.assert_allclose(traced(x).numpy(), USES[name](x).numpy(), rtol=1e-6, atol=1e-7)


def test_the_shape_is_a_tensor_only_inside():
    kinds = []

    @jit.trace
    def look(x):
        kinds.append((isinstance(x.shape, Tensor), x._tuple_shape, Tensor(1.0).shape))
        return x * 1

    x = Tensor([1.0, 2.0])
    look(x)
    assert kinds == [(True, (2,), ())] and x.shape == (2,)


def test_symbolic_shape_off_gives_tuples():
    kinds = []

    @jit.trace(symbolic_shape=False)
    def look(x):
        kinds.append(x.shape)
        return x * 1

    look(Tensor([1.0, 2.0]))
    assert kinds == [(2,)]


TUPLES = {
    "a tuple behind": lambda x: F.zeros(x.shape[:1] + (3,)),
    "a tuple before": lambda x: F.zeros((5,) + x.shape[1:]),
    "a list behind": lambda x: F.zeros(tuple(x.shape[:1]) + (2, 2)) + len(list(x.shape) + [3]),
    "in place": lambda x: F.zeros(grown(x.shape)),
    "equal": lambda x: x * (2 if x.shape == (2, 3) else 3),
    "equal from behind": lambda x: x * (2 if (2, 3) == x.shape else 3),
    "another rank": lambda x: x * (2 if x.shape == (2, 3, 1) else 3),
    "a part is equal": lambda x: x * (2 if x.shape[1:] == (3,) else 3),
    "not equal": lambda x: x * (2 if x.shape != (2, 3) else 3),
    "among tuples": lambda x: x * (2 if x.shape in [(1, 2), (2, 3)] else 3),
    "of extents of another": lambda x: x * (2 if x.shape == (x.shape[0], 3) else 3),
    "reshape": lambda x: x.reshape(x.shape[:1] + (3, 1)),
    "a slice of a slice": lambda x: F.zeros(x.shape[:2][1:] + (4,)),
}


def grown(shape):
    shape += (7,)
    return shape


@pytest.mark.parametrize("symbolic", [False, True], ids=["value", "symbolic"])
@pytest.mark.parametrize("name", TUPLES)
def test_with_a_tuple_a_shape_is_a_tuple(name, symbolic):
    body = TUPLES[name]
    traced = jit.trace(body, symbolic=symbolic)
    for batch in (2, 2, 4, 2, 4):
        x = Tensor(np.arange(batch * 3, dtype=np.float32).reshape(batch, 3))
        expected = body(x).numpy()
        np.testing.assert_array_equal(traced(x).numpy(), expected)
        np.testing.assert_array_equal(jit.trace(body, symbolic=symbolic, without_host=True)(x).numpy(), expected)


def test_arithmetic_of_a_shape_with_tensors_and_numbers_is_a_tensors():
    def body(x):
        shape = x.shape
        parts = shape + 1, 1 + shape, shape + Tensor([1, 2]), shape == np.array([2, 3]), shape // 2, shape * Tensor(2), shape * np.array([1, 2])
        shape += 1
        return [F.stack([part.astype("int32") for part in parts]), shape]

    x = Tensor(np.zeros((2, 3), np.float32))
    traced = jit.trace(body, symbolic=True)
    for _ in range(2):
        stacked, grown_by_one = traced(x)
        assert stacked.numpy().tolist() == [[3, 4], [3, 4], [3, 5], [1, 1], [1, 1], [4, 6], [2, 6]]
        assert grown_by_one.numpy().tolist() == [3, 4]


@pytest.mark.parametrize("times", [lambda s: s * 2, lambda s: 2 * s, lambda s: s[1:] * 2])
def test_times_a_number_has_two_meanings(times):
    with pytest.raises(TypeError, match="two meanings"):
        jit.trace(lambda x: F.zeros(times(x.shape)))(Tensor(np.zeros((2, 3), np.float32)))
