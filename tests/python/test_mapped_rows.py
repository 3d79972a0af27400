"""Gradients of tables of words, which updates read as a few rows of sums by a map: a step has the bits of one that writes the gradient as a table."""

from contextlib import contextmanager

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import SGD, Adam, AdamW, clip_grad_norm

WORDS = 16384
WIDTH = {"float32": 256, "bfloat16": 448}  # a card writes a smaller table in the time that launches take


@contextmanager
def tables():
    """What is compiled in such a block writes gradients as tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEGJIT_SKIP", "map_rows")
        mge._core.reload_debug()
        try:
            yield
        finally:
            patch.undo()
            mge._core.reload_debug()


def of_rows(x, table, scale):
    return (F.embedding(x, table) * scale).sum()


def tied(x, table, scale):
    """What a head's gradient adds is no zero anywhere."""
    return of_rows(x, table, scale) + (table * table).sum() * 0.01


def twice(x, table, scale):
    return of_rows(x, table, scale) + of_rows(x + 1, table, scale * scale)


class Twins:
    """A table whose gradient is mapped, and one whose gradient is written."""

    def __init__(self, rule=lambda p: SGD(p, lr=0.1), loss=of_rows, dtype="float32", clips=False, **options):
        start = np.random.default_rng(0).standard_normal((WORDS, WIDTH[dtype])).astype("float32")
        self.tables = [mge.Parameter(mge.tensor(start).astype(dtype)) for _ in range(2)]
        self.steps = [self.step_of(table, rule, loss, clips, options) for table in self.tables]

    @staticmethod
    def step_of(table, rule, loss, clips, options):
        gm, update = GradManager().attach([table]), rule([table])

        @trace(symbolic=True, opt_level=3, **options)
        def step(x, scale):
            with gm:
                value = loss(x, table, scale)
                gm.backward(value)
            if clips:
                clip_grad_norm([table], max_norm=1.0)
            update.step().clear_grad()
            return value

        return step

    def values(self):
        return [table.astype("float32").numpy() for table in self.tables]

    def step(self, text):
        text, first = np.asarray(text, np.int32), self.tables[0]
        scale = np.random.default_rng(text.size).standard_normal((*text.shape, first.shape[1])).astype("float32")
        operands = mge.tensor(text), mge.tensor(scale).astype(first.dtype)
        self.steps[0](*operands)
        with tables():
            self.steps[1](*operands)
        first, second = self.values()
        assert first.tobytes() == second.tobytes()

    def reads_by_a_map(self):
        by_map = [any(" by " in kernel.ir for kernel in step.kernels()) for step in self.steps]
        assert not by_map[1]
        return by_map[0]


TEXTS = {
    "each once": [3, 1, 4, 0, WORDS - 1, 9],
    "one word": [7] * 6,
    "from the end": [-1, WORDS - 1, -WORDS, 0, -2, 5],
    "some again": [5, 2, 5, 5, 2, 0],
    "of two axes": [[5, 2, 5], [5, 2, 0]],
    "one": [11],
}


@pytest.mark.parametrize(
    "dtype, rule, loss",
    [
        ("float32", lambda p: SGD(p, lr=0.1), of_rows),
        ("float32", lambda p: Adam(p, lr=0.01), tied),
        ("bfloat16", lambda p: SGD(p, lr=0.1), tied),
        ("bfloat16", lambda p: Adam(p, lr=0.01), of_rows),
    ],
    ids=["float32-SGD", "float32-Adam-tied", "bfloat16-SGD-tied", "bfloat16-Adam"],
)
def test_texts(dtype, rule, loss):
    twins = Twins(rule, loss, dtype)
    for text in TEXTS.values():
        twins.step(text)
        assert twins.reads_by_a_map(), text


@pytest.mark.parametrize("text", [[], [[], []], np.arange(WORDS), np.arange(WORDS)[::-1] // 2])
def test_texts_of_no_word_and_of_all(text):
    """Their gradient is a table: there are as many rows of sums, or none."""
    twins = Twins()
    twins.step(text)
    assert not twins.reads_by_a_map()


@pytest.mark.parametrize(
    "options",
    [
        {"rule": lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01)},
        {"rule": lambda p: AdamW(p, lr=0.01, weight_decay=0.01)},
        {"loss": twice},
        {"clips": True},
        {"memory_limit": "1GB"},
        {"without_host": True},
    ],
    ids=["momentum", "AdamW", "twice", "clipped", "limit", "without_host"],
)
def test_steps(options):
    twins = Twins(**options)
    for _ in range(2):
        twins.step(TEXTS["some again"])
    assert twins.reads_by_a_map()


def test_a_wrong_word_leaves_the_table_as_it_was():
    twins = Twins()
    twins.step(TEXTS["each once"])
    before = twins.values()
    scale = mge.tensor(np.ones((6, WIDTH["float32"]), "float32"))
    for step in twins.steps:
        with pytest.raises(IndexError, match=f"{WORDS}"):
            step(mge.tensor([1, 2, WORDS, 3, 4, 5]), scale).item()
    for first, second in zip(before, twins.values(), strict=True):
        assert first.tobytes() == second.tobytes()
    twins.step(TEXTS["one word"])


def test_a_gradient_that_is_kept_is_a_table():
    table = mge.Parameter(np.zeros((WORDS, WIDTH["float32"]), "float32"))
    gm = GradManager().attach([table])

    @trace(symbolic=True, opt_level=3)
    def step(x):
        with gm:
            gm.backward(F.embedding(x, table).sum())
        return table.grad * 2

    doubled = step(mge.tensor([5, 5])).numpy()
    np.testing.assert_array_equal(table.grad.numpy() * 2, doubled)
    assert doubled[5, 0] == 4 and doubled.sum() == 4 * WIDTH["float32"]


def test_the_plan_has_no_table_of_zeros():
    twins = Twins()
    twins.step(TEXTS["one word"])
    arena = [buffer for buffer in twins.steps[0].memory_plan().buffers if buffer.place == "arena"]
    assert arena and max(buffer.bytes for buffer in arena) < WORDS * WIDTH["float32"]
