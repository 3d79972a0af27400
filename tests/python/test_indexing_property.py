"""Random indices on random shapes: reading and writing follow NumPy. The seed is in the test's name."""

import numpy as np
import pytest

from megengine import Tensor


def random_item(rng, extent):
    bound = [None, *range(-extent - 2, extent + 3)]
    kind = rng.integers(7)
    if kind == 0:
        return int(rng.integers(-extent, extent))
    if kind == 1:
        start, stop = (bound[rng.integers(len(bound))] for _ in range(2))
        return slice(start, stop, [None, 1, 2, -1, -3][rng.integers(5)])
    if kind == 2:
        return rng.integers(-extent, extent, [(3,), (1,), (2, 3), (2, 1), ()][rng.integers(5)])
    if kind == 3:
        return [int(i) for i in rng.integers(-extent, extent, 3)]
    if kind == 4:
        return rng.random(extent) < 0.5
    return None if kind == 5 else slice(None)


def random_index(rng, shape):
    items, axis = [], 0
    while axis < len(shape) and rng.random() < 0.8 and len(items) < 6:
        item = random_item(rng, shape[axis])
        axis += item is not None
        items.append(item)
    if rng.random() < 0.3 and axis == len(shape):
        items.insert(rng.integers(len(items) + 1), Ellipsis)
    return tuple(items)


@pytest.mark.parametrize("seed", range(300))
def test_any_index_reads_and_writes_as_in_numpy(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 5, rng.integers(1, 4)))
    a = rng.integers(0, 100, shape).astype(np.int32)
    index = random_index(rng, shape)
    try:
        want = a[index]
    except IndexError:
        with pytest.raises(IndexError):
            Tensor(a)[index]
        return
    np.testing.assert_array_equal(Tensor(a)[index].numpy(), want, err_msg=repr((shape, index)))
    value = rng.integers(-9, 0, want.shape).astype(np.int32)
    x = Tensor(a)
    x[index] = Tensor(value)
    a[index] = value
    np.testing.assert_array_equal(x.numpy(), a, err_msg=repr((shape, index)))
