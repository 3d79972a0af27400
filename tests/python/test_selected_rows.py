"""Dumped functions whose results have as many rows as the data say: bounds in the file, extents after the run."""

import io

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.jit import dump_functions, trace
from megengine.utils.comp_graph_tools import GraphInference
from megengine.utils.network import Network

X = np.float32([[1, -2, 3], [-4, 5, -6], [7, -8, 9], [-1, -2, 3]])
OTHER = np.float32([[-1, -2, -3], [4, -5, 6], [-7, -8, -9], [1, 2, 3]])
NONE = -np.abs(X) - 1


def rows_of(function, *inputs, **options):
    """The function recorded with these inputs, as a file runs it."""
    fn = trace(function, symbolic=True, capture_as_const=True, **options)
    fn(*map(mge.tensor, inputs))
    file = io.BytesIO()
    fn.dump(file)
    return io.BytesIO(file.getvalue())


CASES = {
    "elements": lambda x: x[x > 0],
    "elements and places": lambda x: F.cond_take(x > 0, x),
    "coordinates": lambda x: F.non_zero(x > 0),
    "columns": lambda x: F.non_zero(x > 0, as_tuple=True),
    "rows": lambda x: x[x[:, 0] > 0],
    "computed of": lambda x: F.exp(x[x[:, 0] > 0] / 10)[:, 1:] * 2 + F.ones((1, 2)),
    "two of one mask": lambda x: (lambda m: (x[m] * (x * x)[m], m))(x[:, 1] < -3),
    "sums of rows": lambda x: (x[x[:, 0] > 0].sum(axis=1), x[x[:, 0] > 0].max(axis=1, keepdims=True)),
    "joined": lambda x: (lambda m: F.concat([x[m], x[m].astype("int32").astype("float32")], axis=1))(x[:, 0] > 0),
    "places and more": lambda x: (lambda at: (at, F.reshape(x, (-1,))[at], x.sum()))(F.cond_take(x > 0, x)[1]),
}


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_what_a_run_selects(case, optimized):
    function = CASES[case]
    model = GraphInference(rows_of(function, X), optimize_for_inference=optimized)
    for x in (X, OTHER, NONE, -NONE, X):
        wanted = function(mge.tensor(x))
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for mine, its in zip(model.run(x).values(), wanted, strict=True):
            assert mine.dtype == its.dtype
            np.testing.assert_allclose(mine, its.numpy(), rtol=1e-6)


def boxes_of(seed, n=40):
    random = np.random.default_rng(seed)
    corner, size = random.uniform(0, 50, (n, 2)), random.uniform(1, 30, (n, 2))
    scores = random.uniform(0, 1, n).astype("float32")
    scores[3], scores[5] = scores[4], np.nan
    return np.concatenate([corner, corner + size], 1).astype("float32"), scores


def detect(boxes, scores, **options):
    keep = F.vision.nms(boxes, scores, 0.3, **options)
    return boxes[keep], scores[keep], keep


@pytest.mark.parametrize("options", [{}, {"max_output": 5}, {"max_output": 100}])
def test_boxes_that_stay(options):
    model = GraphInference(rows_of(lambda b, s: detect(b, s, **options), *boxes_of(0)), optimize_for_inference=True)
    for seed in range(5):
        given = boxes_of(seed)
        for mine, its in zip(model.run(*given).values(), detect(*map(mge.tensor, given), **options), strict=True):
            np.testing.assert_array_equal(mine, its.numpy())


def test_a_function_that_is_only_recorded_and_has_a_state():
    total = mge.Parameter(np.zeros(1, "float32"))

    def step(x):
        found = x[x > 0]
        total[...] = total + 1
        return found * total

    fn = trace(step, record_only=True)
    fn(mge.tensor(X))
    file = io.BytesIO()
    dump_functions(file, {"step": fn})
    model = GraphInference(io.BytesIO(file.getvalue()))
    for count, x in enumerate((X, OTHER, NONE), 1):
        np.testing.assert_array_equal(model.run(x).popitem()[1], x[x > 0] * count)
    np.testing.assert_array_equal(model.state_dict().popitem()[1], [3])


def test_a_state_has_one_shape():
    kept = mge.Parameter(np.zeros(6, "float32"))

    def step(x):
        kept[...] = x[x > 0]
        return x

    fn = trace(step, record_only=True)
    fn(mge.tensor(X))
    with pytest.raises(RuntimeError, match="dump: the function keeps what it has selected as its state"):
        fn.dump(io.BytesIO())


def test_wanted_outputs_have_their_own_rows():
    file = rows_of(lambda x: (x.sum(), x[x > 0], x[x < -5]), X)
    model = GraphInference(io.BytesIO(file.getvalue()))
    for name, rows in zip(list(model.run(X))[1:], (X > 0, X < -5), strict=True):
        (only,) = GraphInference(io.BytesIO(file.getvalue()), outputs=[name]).run(X).values()
        np.testing.assert_array_equal(only, X[rows])


REFUSED = {
    "a sum": (lambda x: x[x > 0].sum(), "computes reduce_sum at .* of what it has selected"),
    "an order": (lambda x: F.sort(x[x > 0])[0], "computes sort at"),
    "rows of two masks": (lambda x: x[x > 0] * x[x * 2 > 0], "computes mul at"),
    "rows of a known number": (lambda x: x[x > 0] * mge.tensor(np.ones(6, "float32")), "computes mul at"),
    "another selection": (lambda x: (lambda y: y[y > 2])(x[x > 0]), "computes mask_select at .*, whose shape follows from the data"),
    "some of them": (lambda x: x[x > 0][:100], "takes, at .*, how much it has selected for a number"),
    "one of them": (lambda x: x[x > 0][0], "takes, at"),
    "their number": (lambda x: x / len(x[x > 0]), "takes, at"),
    "their shape": (lambda x: x / x[x > 0].shape[0], "computes mask_select at .*, whose shape follows from the data\n  why: its shape is computed with"),
    "a part of a scalar": (lambda x: (x[0, 0] > 0) * x[x > 0].mean(), "computes reduce_mean at"),
    "a value": (lambda x: x * float((x[x > 0] * 2).numpy()[0]), "takes, at"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_file_cannot_compute_of_them(case):
    function, said = REFUSED[case]
    with pytest.raises(RuntimeError, match=f"dump: the function ({said})"):
        rows_of(function, X)


def test_a_graph_that_is_edited_has_fixed_shapes(tmp_path):
    file = rows_of(CASES["elements"], X)
    with pytest.raises(RuntimeError, match="the model gives .*, whose shape follows from the data\n  why: a network"):
        Network.load(file)
