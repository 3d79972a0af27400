"""Operands of a concat are computed where the result has them, slices stay where they are: same bits, fewer bytes."""

import numpy as np
import pytest
from test_memory_figures import plan
from zoo import SMALL

import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.jit import trace

ROWS, COLUMNS = 64, 256
BYTES = 4 * ROWS * COLUMNS


def joined(x):
    return F.sum(F.exp(F.concat([F.sin(x), F.cos(x), F.tanh(x)])))


def with_an_input_and_twice(x):
    y = F.sin(x)
    return F.concat([x, y, y, F.cos(y)]) * 2 + 1


def nested(x):
    inner = F.concat([F.sin(x), F.cos(x)])
    return F.sum(F.concat([F.exp(inner), inner, F.reshape(F.tanh(x), x.shape)]) ** 2, axis=0)


def in_two_results(x):
    y = F.sin(x)
    return F.concat([y, F.cos(x)]), F.concat([F.exp(x), y])


def overwritten_behind(x):
    y = F.sin(x)
    joint = F.concat([y, F.cos(y)])
    return F.exp(joint), F.tanh(y)


def strided(x):
    return F.exp(F.concat([F.sin(x), F.cos(x)], axis=1))


def in_thirds(x):
    a, b, c = F.split(F.exp(F.concat([x, x, x])), 3)
    return F.sin(a) + F.cos(b) * c


def overwritten_slice(x):
    y = F.exp(x)
    return F.sin(y[: ROWS // 2]) + 1, y[ROWS // 2 :] * y[: ROWS // 2], F.sum(y)


def slices_of_an_input(x):
    return F.exp(x[: ROWS // 2]) * x[ROWS // 2 :], x[1:2]


def misaligned(x):
    y = F.exp(F.flatten(x))
    return F.concat([F.sin(y[:3]), F.cos(y[3:10]), F.tanh(y[10:])])


FUNCTIONS = [joined, with_an_input_and_twice, nested, in_two_results, overwritten_behind, strided, in_thirds, overwritten_slice,
             slices_of_an_input, misaligned]  # fmt: skip


def bits(results):
    return [np.asarray(r.numpy()).tobytes() for r in (results if isinstance(results, tuple) else (results,))]


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_parts_in_place_have_the_same_bits(fn, level, monkeypatch):
    monkeypatch.setenv("MEGJIT_CHECK", "1")
    x = mge.tensor(np.random.RandomState(0).randn(ROWS, COLUMNS).astype(np.float32))
    want = bits(fn(x))
    traced = trace(symbolic=True, opt_level=level, numerics="exact")(fn)
    for _ in range(3):
        assert bits(traced(x)) == want


@pytest.mark.parametrize("name", ["densenet", "unet"])
def test_networks_that_join_train_to_the_same_bits_with_one_image(name, monkeypatch):
    monkeypatch.setenv("MEGJIT_CHECK", "1")
    make, batch = SMALL[name]
    shape, classes = batch(1)
    rng = np.random.RandomState(0)
    x = mge.tensor(rng.randn(*shape).astype(np.float32))
    net = make()
    net.eval()  # one image has no statistics at the last layers
    gm = GradManager().attach(net.parameters())

    def step(x):
        with gm:
            scores = net(x)
            loss = F.mean(scores * scores)
            gm.backward(loss)
        grads = [p.grad for p in net.parameters() if p.grad is not None]
        for p in net.parameters():
            p.grad = None
        return (loss, *grads)

    want = bits(step(x))
    assert bits(trace(symbolic=True, opt_level=2)(step)(x)) == want


def arena(fn):
    return trace(symbolic=True, opt_level=2)(fn).plan(mge.tensor(np.zeros((ROWS, COLUMNS), np.float32))).arena_bytes


def test_a_concat_takes_no_more_than_its_result():
    assert arena(joined) <= 3 * BYTES + 1024


def test_slices_take_nothing():
    assert arena(slices_of_an_input) < 1024


def test_a_network_that_joins_takes_less_with_one_image():
    one, eight = (plan("densenet121", batch, opt_level=1) for batch in (1, 8))  # nothing is computed again
    assert 8 * one.arena_bytes <= 0.85 * eight.arena_bytes
