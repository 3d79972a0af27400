"""Attention that programs write themselves becomes one op at level 3, with the same numbers, or stays as it is."""

import math

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.jit import keep, trace

rng = np.random.default_rng(3)
N, H, L, D = 2, 3, 70, 16
CAUSAL = np.where(np.tri(L) > 0, 0, -np.inf).astype(np.float32)


def normal(*shape):
    return rng.normal(size=shape, scale=0.7).astype(np.float32)


PADDING = normal(N, 1, 1, L)
HIDDEN = normal(N, 1, 1, L) > 1


def assert_close(got, want):
    assert np.abs(got - want).max() <= 2e-5 * max(1, np.abs(want).max())


def heads(x):
    return F.transpose(x.reshape(N, L, H, D), (0, 2, 1, 3))


def turned(x):
    return F.transpose(x.reshape(N, L, H, D), (0, 2, 3, 1))


def plain(q, k, v):
    return F.matmul(F.softmax(F.matmul(q, k, transpose_b=True), axis=-1), v)


def scaled(q, k, v):
    return F.matmul(F.softmax(F.matmul(q, k, transpose_b=True) * (1 / math.sqrt(D)) / 2.0, axis=3), v)


def as_often_written(x, y, z):
    scores = F.matmul(heads(x), turned(y)) / math.sqrt(D) + Tensor(CAUSAL)
    return F.transpose(F.matmul(F.softmax(scores, axis=-1), heads(z)), (0, 2, 1, 3)).reshape(N, L, H * D)


def two_masks(q, k, v):
    scores = F.matmul(q * 0.25, k, transpose_b=True) + Tensor(PADDING) + Tensor(CAUSAL)
    return F.matmul(F.softmax(scores, axis=-1), v)


def seen(q, k, v):
    scores = F.where(Tensor(~HIDDEN), F.matmul(q, k, transpose_b=True) * 0.25, F.full((), -1e9))
    return F.matmul(F.softmax(scores, axis=-1), v)


def hidden(q, k, v):
    scores = F.where(Tensor(HIDDEN), F.full((), -1e9), F.matmul(q, k, transpose_b=True) * 0.25)
    return F.matmul(F.softmax(scores, axis=-1), v)


def hidden_by_a_full_tensor(q, k, v):
    scores = F.matmul(q, k, transpose_b=True) * 0.25
    scores = F.where(Tensor(HIDDEN), F.full_like(scores, -1e9), scores)
    return F.matmul(F.softmax(F.where(Tensor(CAUSAL == 0), scores, F.broadcast_to(Tensor(-1e9), scores.shape)), axis=-1), v)


def hidden_by_a_tensor_of_one_element(q, k, v):
    scores = F.where(Tensor(HIDDEN), Tensor(np.full((1, 1), -5, np.float32)), F.matmul(q, k, transpose_b=True) * 0.25)
    return F.matmul(F.softmax(scores, axis=-1), v)


def three_masks(q, k, v):
    scores = F.matmul(q * 0.25, k, transpose_b=True) + Tensor(PADDING) + Tensor(CAUSAL)
    scores = F.where(Tensor(~HIDDEN), scores, Tensor(PADDING)) + Tensor(PADDING)
    return F.matmul(F.softmax(scores, axis=-1), v)


def dropped(q, k, v):
    return F.matmul(F.dropout(F.softmax(F.matmul(q, k, transpose_b=True) * 0.25, axis=-1), 0.3), v)


def three_axes(q, k, v):
    q, k, v = (x.reshape(N * H, L, D) for x in (q, k, v))
    return F.matmul(F.softmax(F.matmul(q, k, transpose_b=True) * 0.25, axis=-1), v)


def two_axes(q, k, v):
    return F.matmul(F.softmax(F.matmul(q[0, 0], k[0, 0], transpose_b=True) * 0.25, axis=-1), v[0, 0])


def itself(q, k, v):
    return plain(q, q, q) + k + v


FOUR, THREE = (N, H, L, D), (N, L, H * D)
FOUND = {
    plain: FOUR, scaled: FOUR, as_often_written: THREE, two_masks: FOUR, seen: FOUR, hidden: FOUR, hidden_by_a_full_tensor: FOUR,
    hidden_by_a_tensor_of_one_element: FOUR, three_masks: FOUR, dropped: FOUR, three_axes: FOUR, two_axes: FOUR, itself: FOUR,
}  # fmt: skip


def returns_weights(q, k, v):
    p = F.softmax(F.matmul(q, k, transpose_b=True) * 0.25, axis=-1)
    return F.matmul(p, v) + p.mean()


def keeps_weights(q, k, v):
    return F.matmul(keep(F.softmax(F.matmul(q, k, transpose_b=True) * 0.25, axis=-1)), v)


def over_queries(q, k, v):
    return F.matmul(F.softmax(F.matmul(q, k, transpose_b=True) * 0.25, axis=2), v)


def scaled_after_the_mask(q, k, v):
    return F.matmul(F.softmax((F.matmul(q, k, transpose_b=True) + Tensor(PADDING)) * 0.25, axis=-1), v)


def broadcast_values(q, k, v):
    return F.matmul(F.softmax(F.matmul(q, k, transpose_b=True) * 0.25, axis=-1), v[0, 0])


def turned_values(q, k, v):
    return F.matmul(F.softmax(F.matmul(q, k, transpose_b=True) * 0.25, axis=-1), v + 0, transpose_b=False, transpose_a=True)


def by_a_tensor(q, k, v):
    return F.matmul(F.softmax(F.matmul(q, k, transpose_b=True) * v[:, :, :, :1].mean(), axis=-1), v)


def four_masks(q, k, v):
    scores = F.matmul(q, k, transpose_b=True) * 0.25 + Tensor(PADDING) + Tensor(PADDING) + Tensor(PADDING) + Tensor(PADDING)
    return F.matmul(F.softmax(scores, axis=-1), v)


LEFT = [four_masks, returns_weights, keeps_weights, over_queries, scaled_after_the_mask, broadcast_values, turned_values, by_a_tensor]


def ops_of(traced):
    """Attention of parts of tensors (test_placed_heads.py) is attention here."""
    return [step.split()[1].removesuffix("_of_parts") for step in traced.memory_plan().steps]


def step_of(function, tensors, wanted=(True, True, True)):
    gm = GradManager().attach([x for x, is_wanted in zip(tensors, wanted, strict=True) if is_wanted])

    def step():
        with gm:
            y = function(*tensors)
            gm.backward((y * y).sum())
        return (y, *(x.grad for x in tensors if x.grad is not None))

    return step


def run(function, inputs, wrap, **options):
    """Results of a second call, and the ops of the plan."""
    tensors = [mge.Parameter(x) for x in inputs]
    mge.random.seed(9)
    step = wrap(step_of(function, tensors, **options))
    for _ in range(2):
        found = [x.numpy() for x in step()]
        for x in tensors:
            x.grad = None
    return found, ops_of(step) if isinstance(step, trace) else []


def level_3(function):
    return trace(symbolic=True, opt_level=3)(function)


@pytest.mark.parametrize("function", FOUND, ids=lambda f: f.__name__)
@pytest.mark.parametrize("wanted", [(True, True, True), (True, False, False), (False, True, False), (False, False, True)], ids=str)
def test_training_steps(function, wanted):
    inputs = [normal(*FOUND[function]) for _ in range(3)]
    found, steps = run(function, inputs, level_3, wanted=wanted)
    want, _ = run(function, inputs, lambda f: f, wanted=wanted)
    assert "attention" in steps and "softmax" not in steps
    for got, plain_ in zip(found, want, strict=True):
        assert_close(got, plain_)


@pytest.mark.parametrize("function", FOUND, ids=lambda f: f.__name__)
def test_inference(function):
    tensors = [Tensor(normal(*FOUND[function])) for _ in range(3)]
    traced = trace(symbolic=True, opt_level=3)(function)
    mge.random.seed(9)
    got = traced(*tensors).numpy()
    mge.random.seed(9)
    assert_close(got, function(*tensors).numpy())
    assert "attention" in ops_of(traced)
    assert "attend" in str(traced.explain())


@pytest.mark.parametrize("function", LEFT, ids=lambda f: f.__name__)
def test_what_is_no_attention_stays(function):
    inputs = [normal(*FOUR) for _ in range(3)]
    found, steps = run(function, inputs, level_3)
    want, _ = run(function, inputs, lambda f: f)
    assert "attention" not in steps
    for got, plain_ in zip(found, want, strict=True):
        assert_close(got, plain_)


@pytest.mark.parametrize("axis", [2, 3])
def test_a_gradient_written_by_hand_is_one_only_if_it_sums_over_the_keys(axis):
    def function(q, k, v, dy):
        p = F.softmax(F.matmul(q, k, transpose_b=True), axis=-1)
        y = F.matmul(p, v)
        dp = F.matmul(dy, v, transpose_b=True)
        ds = p * (dp - (p * dp).sum(axis=axis, keepdims=True))
        return y, F.matmul(ds, k)

    tensors = [Tensor(normal(*FOUR)) for _ in range(4)]
    traced = level_3(function)
    for _ in range(2):
        for got, want in zip(traced(*tensors), function(*tensors), strict=True):
            assert_close(got.numpy(), want.numpy())
    assert ("attention" in ops_of(traced)) == (axis == 3)


# Rows 3, 17 and the last one are hidden as a whole.
ROWS = rng.random((1, 1, L, L)) < 0.4
ROWS[:, :, [3, 17, -1]] = True

# How people hide keys; `number` is a float.
FORMS = {
    "added": lambda s, number: s + Tensor(np.where(ROWS, np.float32(number), np.float32(0))),
    "a bool times the number": lambda s, number: s + Tensor(ROWS).astype("float32") * number,
    "hidden": lambda s, number: F.where(Tensor(ROWS), F.full_like(s, number), s),
    "seen": lambda s, number: F.where(Tensor(~ROWS), s, F.full((), number)),
    "of one element": lambda s, number: F.where(Tensor(ROWS), Tensor(np.float32(number)), s),
    "padded and causal": lambda s, number: (
        s + Tensor(np.where(HIDDEN, np.float32(number), np.float32(0))) + Tensor(np.where(np.tri(L) > 0, np.float32(0), np.float32(number)))
    ),
    "selected twice": lambda s, number: F.where(Tensor(np.tri(L) > 0), F.where(Tensor(ROWS), F.full((), number), s), F.full((), number)),
    "selected, then added": lambda s, number: F.where(Tensor(ROWS), F.full((), number), s) + Tensor(PADDING.round(1)),
}


def quarters(*shape):
    """Float32 has the scores without rounding: what a number leaves of them does not hang on the order of sums."""
    return np.round(normal(*shape) * 4) / 4


@pytest.mark.parametrize("number", [-1e4, -1e6, -1e9, float(np.finfo("float32").min), -5.0, 0.0, 3.0])
@pytest.mark.parametrize("form", FORMS)
def test_masks_act_as_written(form, number):
    def masked(q, k, v):
        return F.matmul(F.softmax(FORMS[form](F.matmul(q, k, transpose_b=True) * 0.25, number), axis=-1), v)

    inputs = [quarters(*FOUR) for _ in range(3)]
    found, steps = run(masked, inputs, level_3)
    want, _ = run(masked, inputs, lambda f: f)
    assert "attention" in steps
    for got, plain_ in zip(found, want, strict=True):
        assert_close(got, plain_)


@pytest.mark.parametrize("form", ["added", "hidden", "seen"])
def test_minus_infinity_gives_nan_as_softmax_does(form):
    def masked(q, k, v):
        return F.matmul(F.softmax(FORMS[form](F.matmul(q, k, transpose_b=True) * 0.25, -np.inf), axis=-1), v)

    inputs = [quarters(*FOUR) for _ in range(3)]
    found, steps = run(masked, inputs, level_3)
    want, _ = run(masked, inputs, lambda f: f)
    assert "attention" in steps and np.isnan(want[0]).any()
    for got, plain_ in zip(found, want, strict=True):
        np.testing.assert_allclose(got, plain_, atol=2e-5)


def test_a_number_that_comes_as_an_argument_is_that_of_the_call():
    def masked(q, k, v, number):
        return F.matmul(F.softmax(F.where(Tensor(ROWS), number, F.matmul(q, k, transpose_b=True) * 0.25), axis=-1), v)

    inputs = [Tensor(quarters(*FOUR)) for _ in range(3)]
    traced = level_3(masked)
    for number in (-1e9, -5.0, 0.0, 3.0):
        number = Tensor(np.float32(number))
        assert_close(traced(*inputs, number).numpy(), masked(*inputs, number).numpy())
    assert "attention" in ops_of(traced)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("form", "number", "is_found"), [("added", -1e4, False), ("added", -65504.0, False), ("hidden", -1e4, True), ("hidden", -5.0, True)])
def test_halves_are_added_as_halves(form, number, is_found, dtype):
    """At -1e4 float16 has multiples of 8 and float32 of 1/1024: a mask that is added stays with its parts."""

    def masked(q, k, v):
        s = F.matmul(q, k, transpose_b=True) * 0.25
        if form == "added":
            s = s + Tensor(np.where(ROWS, np.float32(number), np.float32(0))).astype(dtype)
        else:
            s = F.where(Tensor(ROWS), F.full_like(s, number), s)
        return F.matmul(F.softmax(s, axis=-1), v)

    inputs = [Tensor(4 * quarters(*FOUR)).astype(dtype) for _ in range(3)]
    traced = level_3(masked)
    got, want = (f(*inputs).astype("float32").numpy() for f in (traced, masked))
    tolerance = {"float16": 2.0**-8, "bfloat16": 2.0**-5}[dtype]
    assert np.abs(got - want).max() <= tolerance * np.abs(want).max()
    if not is_found:
        assert "attention" not in ops_of(traced)


def test_a_mask_that_is_trained_keeps_the_scores():
    mask = mge.Parameter(normal(1, 1, L, L))
    inputs = [normal(*FOUR) for _ in range(3)]

    def masked(q, k, v):
        return F.matmul(F.softmax(F.matmul(q, k, transpose_b=True) * 0.25 + mask, axis=-1), v)

    q, k, v = map(Tensor, inputs)
    gm = GradManager().attach([mask])

    @trace(symbolic=True, opt_level=3)
    def step():
        with gm:
            gm.backward((masked(q, k, v) ** 2).sum())
        return mask.grad

    assert step().shape == mask.shape
    assert "attention" not in ops_of(step)


def test_exact_numerics_and_lower_levels_leave_the_parts():
    inputs = [normal(*FOUR) for _ in range(3)]
    for options in ({"opt_level": 2}, {"opt_level": 3, "numerics": "exact"}):
        found, steps = run(plain, inputs, trace(symbolic=True, **options))
        want, _ = run(plain, inputs, lambda f: f)
        assert "attention" not in steps
        for got, same in zip(found, want, strict=True):
            assert np.array_equal(got, same)


def test_memory_of_a_training_step_grows_with_the_length_alone():
    length = 512 if "gpu" in Tensor(0).device.physical_name else 2048  # a card may be emulated
    tensors = [mge.Parameter(normal(1, 4, length, 16)) for _ in range(3)]
    step = level_3(step_of(dropped, tensors))
    step()
    scores = 4 * length * length * 4
    assert step.memory_plan().arena_bytes < scores / 8
