"""jit.replay: recorded once for each types of arguments, and run without the body."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.jit.replay import Replay


def ones(*shape):
    return mge.tensor(np.ones(shape, "float32"))


def test_the_body_runs_once_for_each_types():
    runs = []

    def body(x, y):
        runs.append(x._tuple_shape)
        return [F.tanh(x) + y, x]

    replay = Replay(body, opt_level=3)
    for shape in ((3,), (4, 2), (3,), (4, 2), (3,)):
        x, y = ones(*shape), ones(*shape) * 2
        result, same = replay([x, y])
        np.testing.assert_allclose(result.numpy(), np.tanh(1) + 2 * np.ones(shape), rtol=1e-6)
        np.testing.assert_array_equal(same.numpy(), x.numpy())
    assert runs == [(3,), (4, 2)]


def test_a_limit_is_refused_before_anything_runs():
    replay = Replay(lambda x: [F.matmul(x, F.tanh(F.matmul(x, x)))], memory_limit=1 << 20)
    with pytest.raises(MemoryError, match="memory_limit"):
        replay([ones(1024, 1024)])


def test_an_error_of_the_body_leaves_nothing_behind():
    fails = [True]

    def body(x):
        if fails.pop():
            raise ValueError("not yet")
        return [x + 1]

    replay = Replay(body)
    with pytest.raises(ValueError, match="not yet"):
        replay([ones(3)])
    fails.append(False)
    assert replay([ones(3)])[0].numpy().tolist() == [2, 2, 2]
    assert replay([ones(3) * 2])[0].numpy().tolist() == [3, 3, 3]
