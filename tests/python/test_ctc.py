"""`ctc_loss` in traces: lengths and labels are inputs, so that one record serves all of them; its forms and mistakes."""

import io

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.utils.comp_graph_tools import GraphInference

TIME, BATCH, CLASSES = 7, 3, 5
MODES = {
    "value": {},
    "symbolic": {"symbolic": True},
    "level 0": {"symbolic": True, "opt_level": 0},
    "level 3": {"symbolic": True, "opt_level": 3},
    "exact": {"symbolic": True, "opt_level": 3, "numerics": "exact"},
    "limit": {"memory_limit": "1GB"},
    "without_host": {"without_host": True},
    "without_host symbolic": {"without_host": True, "symbolic": True},
    "auto": {"without_host": "auto"},
}
# (frames, labels of each sequence)
CALLS = [
    ([7, 7, 7], [[1, 2, 3], [4], [2, 2]]),
    ([7, 5, 2], [[1], [2, 3, 1], [4, 4]]),
    ([3, 6, 7], [[], [1, 1, 1], [3, 2, 1]]),
    ([0, 1, 7], [[2, 1, 2], [3], [1, 4]]),
]


def padded(labels, behind=0):
    rows = np.full((BATCH, 3), behind, np.int32)
    for row, label in zip(rows, labels, strict=True):
        row[: len(label)] = label
    return rows


FORMS = {
    "padded": padded,
    "padded by what is no class": lambda labels: padded(labels, behind=-1),
    "one after the other": lambda labels: np.array(sum(labels, []) + [1] * (6 - sum(map(len, labels))), np.int32),
}


def step(reduction):
    """A function of lengths and labels that gives the loss, and its gradient for the scores."""
    scores = mge.Parameter(np.random.default_rng(1).normal(size=(TIME, BATCH, CLASSES)).astype("float32"))
    gm = GradManager().attach(scores)

    def run(frames, label, counts):
        with gm:
            loss = F.loss.ctc_loss(F.softmax(scores, axis=2), frames, label, counts, reduction=reduction)
            gm.backward(loss.sum())
        grad, scores.grad = scores.grad, None
        return loss, grad

    return run


def operands(form, frames, labels, dtype="int32"):
    counts = [len(label) for label in labels]
    return [mge.tensor(np.asarray(array), dtype=dtype) for array in (frames, FORMS[form](labels), counts)]


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
def test_each_call_of_one_record_has_its_own_lengths(form, mode, reduction):
    eager, traced = step(reduction), trace(step(reduction), **MODES[mode])
    for dtype in ("int32", "int64"):
        for frames, labels in CALLS * 2:
            given = operands(form, frames, labels, dtype)
            for want, got in zip(eager(*given), traced(*given), strict=True):
                np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-5, atol=1e-6)
    assert traced.explain().startswith("2 versions\n")  # of two dtypes


@pytest.mark.parametrize("form", FORMS)
def test_a_dump_takes_other_lengths(form):
    p = mge.tensor(np.random.default_rng(2).dirichlet(np.ones(CLASSES), (TIME, BATCH)).astype("float32"))
    traced = trace(lambda p, frames, label, counts: F.loss.ctc_loss(p, frames, label, counts), symbolic=True, capture_as_const=True)
    traced(p, *operands(form, *CALLS[0]))
    file = io.BytesIO()
    traced.dump(file, arg_names=["p", "frames", "label", "counts"], output_names=["loss"])
    model = GraphInference(io.BytesIO(file.getvalue()))
    for frames, labels in CALLS:
        given = operands(form, frames, labels)
        got = model.run(p.numpy(), *(each.numpy() for each in given))["loss"]
        np.testing.assert_allclose(got, F.loss.ctc_loss(p, *given).numpy(), rtol=1e-6)


def test_all_forms_say_the_same_and_lengths_of_the_host_are_constants():
    p = mge.tensor(np.random.default_rng(3).dirichlet(np.ones(CLASSES), (TIME, BATCH)).astype("float32"))
    for frames, labels in CALLS:
        counts = [len(label) for label in labels]
        want = F.loss.ctc_loss(p, *operands("padded", frames, labels), reduction="none").numpy()
        for form in FORMS:
            label = FORMS[form](labels)
            for call in (F.loss.ctc_loss, trace(F.loss.ctc_loss, symbolic=True)):
                np.testing.assert_array_equal(call(p, *operands(form, frames, labels), reduction="none").numpy(), want)
            of_host = trace(lambda p, f=frames, y=label, n=counts: F.loss.ctc_loss(p, f, y, n, reduction="none"), symbolic=True)
            for _ in range(2):
                np.testing.assert_array_equal(of_host(p).numpy(), want)


P = F.full((TIME, BATCH, CLASSES), 1 / CLASSES)
MISTAKES = {
    "more frames than there are": ([8, 7, 7], padded([[1], [1], [1]]), [1, 1, 1], ValueError, "pred_lengths has 8, pred only 7 steps"),
    "fewer frames than none": ([7, -1, 7], padded([[1], [1], [1]]), [1, 1, 1], ValueError, "pred_lengths has -1"),
    "more labels than there are": ([7, 7, 7], padded([[1], [1], [1]]), [4, 1, 1], ValueError, r"label_lengths \[4, 1, 1\] do not fit a label of shape \[3, 3\]"),
    "more labels than all": ([7, 7, 7], [1, 2], [1, 1, 1], ValueError, r"\[1, 1, 1\] do not fit a label of shape \[2\]"),
    "fewer labels than none": ([7, 7, 7], padded([[1], [1], [1]]), [-1, 1, 1], ValueError, r"\[-1, 1, 1\] do not fit"),
    "lengths of another batch": ([7, 7], padded([[1], [1], [1]]), [1, 1, 1], ValueError, "pred_lengths has 2 values for a batch of 3"),
    "labels of another batch": ([7, 7, 7], [[1], [1]], [1, 1, 1], ValueError, r"label has shape \[2, 1\], not \[3, longest\] or 1-d"),
    "lengths that are floats": ([7.0, 7.0, 7.0], padded([[1], [1], [1]]), [1, 1, 1], TypeError, "pred_lengths is float32, not integers"),
    "a label that is no class": ([7, 7, 7], padded([[9], [1], [1]]), [1, 1, 1], IndexError, "9"),
}


@pytest.mark.parametrize("of_host", [True, False])
@pytest.mark.parametrize("name", MISTAKES)
def test_what_does_not_fit_is_told(name, of_host):
    *given, kind, words = MISTAKES[name]
    given = [np.asarray(each) for each in given] if of_host else [mge.tensor(each) for each in given]
    with pytest.raises(kind, match=words):
        F.loss.ctc_loss(P, *given).numpy()
