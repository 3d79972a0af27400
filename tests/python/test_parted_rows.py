"""Heads of language models by parts of their rows (jit/plan/passes/part_rows.cpp): what programs write between logits and gradients."""

import re

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import amp
from megengine.autodiff import GradManager
from megengine.jit import trace

ROWS, WORDS, WIDTH = 4096, 8192, 16
LOGITS = ROWS * WORDS * 4


def cross_entropy(**options):
    return lambda logits, labels: F.nn.cross_entropy(logits.reshape(-1, WORDS), labels, **options)


def by_hand(logits, labels):
    log_p = F.logsoftmax(logits.reshape(-1, WORDS), axis=-1)
    return -F.gather(log_p, 1, labels.reshape(-1, 1)).mean()


def with_z_loss(logits, labels):
    flat = logits.reshape(-1, WORDS)
    return F.nn.cross_entropy(flat, labels) + 1e-3 * (F.logsumexp(flat, 1) ** 2).mean()


def by_weights_of_rows(logits, labels):
    losses = F.nn.cross_entropy(logits.reshape(-1, WORDS), labels, reduction="none")
    return (losses * F.linspace(0, 1, ROWS)).sum()


def scaled(logits, labels):
    return 128.0 * F.nn.cross_entropy(30 * F.tanh(logits.reshape(-1, WORDS) / 30), labels)


LOSSES = {
    "mean": cross_entropy(),
    "sum": cross_entropy(reduction="sum"),
    "smooth": cross_entropy(label_smooth=0.1),
    "ignored": cross_entropy(ignore_index=3),
    "both": cross_entropy(label_smooth=0.1, ignore_index=3),
    "by hand": by_hand,
    "z-loss": with_z_loss,
    "weights of rows": by_weights_of_rows,
    "capped and scaled": scaled,
}


class Model(M.Module):
    def __init__(self, bias=False, tied=False):
        super().__init__()
        self.embedding = M.Embedding(WORDS, WIDTH)
        self.hidden = M.Linear(WIDTH, WIDTH)
        self.head = M.Linear(WIDTH, WORDS, bias=bias)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(F.relu(self.hidden(self.embedding(x))))


def batch(shape):
    rng = np.random.default_rng(1)
    x = rng.integers(0, WORDS, shape).astype("int32")
    labels = rng.integers(0, WORDS, ROWS).astype("int32")
    return mge.tensor(x), mge.tensor(labels)


def training(loss_of, shape=(ROWS,), bias=False, tied=False, halves=False, **options):
    """The plan of a step, and the loss and gradients of one call."""
    mge.random.seed(5)
    model = Model(bias, tied)
    manager = GradManager().attach(model.parameters())

    def step(x, labels):
        with manager:
            with amp.autocast(enabled=halves, low_prec_dtype="bfloat16"):
                logits = model(x)
            loss = loss_of(logits.astype("float32") if halves else logits, labels)
            manager.backward(loss)
        return [loss] + [p.grad for p in model.parameters()]

    fn = trace(step, symbolic=True, **options)
    plan = fn.plan(*batch(shape))
    return plan, [value.numpy() for value in fn(*batch(shape))]


def close(got, want, tolerance=1e-5):
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1e-3, np.abs(b).max()))


@pytest.mark.parametrize("name", LOSSES)
def test_logits_never_lie_in_memory_as_a_whole(name):
    plan, got = training(LOSSES[name], opt_level=3)
    assert plan.arena_bytes < 0.75 * LOGITS
    close(got, training(LOSSES[name], opt_level=2)[1])


@pytest.mark.parametrize("options", [{"shape": (8, ROWS // 8)}, {"shape": (1, ROWS)}, {"bias": True}, {"tied": True}, {"shape": (4, ROWS // 4), "bias": True, "tied": True}], ids=str)
def test_shapes_biases_and_shared_weights(options):
    plan, got = training(LOSSES["mean"], opt_level=3, **options)
    assert plan.arena_bytes < 0.75 * LOGITS
    close(got, training(LOSSES["mean"], opt_level=2, **options)[1])


def test_halves_are_summed_in_float32():
    plan, got = training(LOSSES["mean"], opt_level=3, halves=True)
    assert plan.arena_bytes < 0.75 * LOGITS
    close(got, training(LOSSES["mean"], opt_level=2, halves=True)[1], 1e-2)


def test_a_limit_changes_no_bit():
    _, want = training(LOSSES["mean"], opt_level=3)
    with pytest.raises(MemoryError) as refused:
        training(LOSSES["mean"], opt_level=3, memory_limit="1MB")
    least = int(re.search(r"(\d+) bytes", str(refused.value).partition("at least")[2])[1])
    _, got = training(LOSSES["mean"], opt_level=3, memory_limit=least)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_exact_numbers_keep_the_head_whole():
    _, want = training(LOSSES["mean"], opt_level=0)
    plan, got = training(LOSSES["mean"], opt_level=3, numerics="exact")
    assert plan.arena_bytes >= LOGITS
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)



def across_rows(logits, labels):
    flat = logits.reshape(-1, WORDS)
    return F.nn.cross_entropy(flat - flat.mean(axis=0, keepdims=True), labels)


def of_their_own_loss(logits, labels):  # the gradient of each row depends on the loss of all
    loss = F.nn.cross_entropy(logits.reshape(-1, WORDS), labels)
    return loss * loss


@pytest.mark.parametrize("loss_of", [across_rows, of_their_own_loss])
def test_what_needs_all_rows_stays_whole(loss_of):
    plan, got = training(loss_of, opt_level=3)
    assert plan.arena_bytes >= LOGITS
    close(got, training(loss_of, opt_level=2)[1])


def test_results_stay_whole():
    model = Model()

    def forward(x, labels):
        logits = model(x)
        return F.nn.cross_entropy(logits, labels), logits

    fn = trace(forward, symbolic=True, opt_level=3)
    loss, logits = fn(*batch((ROWS,)))
    want, all_logits = forward(*batch((ROWS,)))
    close([loss.numpy(), logits.numpy()], [want.numpy(), all_logits.numpy()])


def test_a_loss_alone_is_computed_by_parts():
    model = Model()
    fn = trace(lambda x, labels: LOSSES["mean"](model(x), labels), symbolic=True, opt_level=3)
    assert fn.plan(*batch((ROWS,))).arena_bytes < 0.75 * LOGITS
    close([fn(*batch((ROWS,))).numpy()], [LOSSES["mean"](model(batch((ROWS,))[0]), batch((ROWS,))[1]).numpy()])


def test_a_step_that_updates_its_weights():
    def losses(level):
        mge.random.seed(5)
        model = Model(tied=True)
        manager = GradManager().attach(model.parameters())
        optimizer = optim.Adam(model.parameters(), lr=1e-2)

        @trace(symbolic=True, opt_level=level)
        def step(x, labels):
            with manager:
                loss = LOSSES["mean"](model(x), labels)
                manager.backward(loss)
            optimizer.step().clear_grad()
            return loss

        return [step(*batch((ROWS,))).item() for _ in range(4)]

    np.testing.assert_allclose(losses(3), losses(2), rtol=1e-4)
