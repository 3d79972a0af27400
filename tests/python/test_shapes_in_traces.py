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
        kinds.append((type(x.shape), x._tuple_shape, Tensor(1.0).shape))
        return x * 1

    x = Tensor([1.0, 2.0])
    look(x)
    assert kinds == [(Tensor, (2,), ())] and x.shape == (2,)


def test_symbolic_shape_off_gives_tuples():
    kinds = []

    @jit.trace(symbolic_shape=False)
    def look(x):
        kinds.append(x.shape)
        return x * 1

    look(Tensor([1.0, 2.0]))
    assert kinds == [(2,)]
