"""Every row of op_samples.py: against NumPy, against finite differences, and traced."""

import numpy as np
import pytest
from op_samples import SAMPLES

import megengine.functional as F
from megengine import Tensor, autodiff, jit

WITH_GRADIENT = [s for s in SAMPLES if s.grad]
rows = pytest.mark.parametrize("sample", SAMPLES, ids=repr)


def tensors(sample):
    return [Tensor(x) for x in sample.inputs]


def in_float64(x):
    return x.astype(np.float64) if x.dtype.kind == "f" else x


@rows
def test_the_value_is_numpys(sample):
    got = sample.call(*tensors(sample)).numpy()
    want = np.asarray(sample.reference(*map(in_float64, sample.inputs)))
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=sample.tolerance, atol=sample.tolerance)


@pytest.mark.parametrize("sample", WITH_GRADIENT, ids=repr)
def test_the_gradient_is_that_of_finite_differences(sample):
    inputs = tensors(sample)
    rng = np.random.default_rng(7)
    shape = np.shape(sample.reference(*map(in_float64, sample.inputs)))
    weights = rng.normal(size=shape)
    gm = autodiff.GradManager().attach([inputs[i] for i in sample.grad])
    with gm:
        gm.backward(sample.call(*inputs), Tensor(weights.astype(np.float32)))
    for i in sample.grad:
        direction = rng.normal(size=sample.inputs[i].shape)
        along = slope(sample, i, direction, weights)
        got = float((inputs[i].grad.numpy().astype(np.float64) * direction).sum())
        np.testing.assert_allclose(got, along, rtol=2e-3, atol=2e-3)


def slope(sample, i, direction, weights, step=1e-4):
    """Derivative of sum(weights * f) when input i moves along the direction, in float64."""

    def value(by):
        moved = [in_float64(x) for x in sample.inputs]
        moved[i] = moved[i] + by * direction
        return (weights * sample.reference(*moved)).sum()

    return (value(step) - value(-step)) / (2 * step)


@pytest.mark.parametrize("symbolic", [False, True], ids=["value", "symbolic"])
@rows
def test_a_traced_call_gives_what_an_eager_one_gives(sample, symbolic):
    inputs = tensors(sample)
    want = sample.call(*inputs).numpy()
    traced = jit.trace(sample.call, symbolic=symbolic)
    for _ in range(3):
        np.testing.assert_allclose(traced(*inputs).numpy(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (5, 5), (2, 4, 3)], ids=str)
@pytest.mark.parametrize("full", [False, True])
def test_svds_vectors_are_numpys_but_for_their_signs(shape, full):
    x = np.random.default_rng(8).normal(size=shape).astype(np.float32)
    u, s, vh = (part.numpy().astype(np.float64) for part in F.svd(Tensor(x), full_matrices=full))
    want = np.linalg.svd(x.astype(np.float64), full_matrices=full)
    assert [part.shape for part in (u, s, vh)] == [part.shape for part in want]
    count = s.shape[-1]
    signs = np.sign((u * want[0]).sum(-2, keepdims=True))[..., :count]
    np.testing.assert_allclose(s, want[1], rtol=1e-5)
    np.testing.assert_allclose(u[..., :count] * signs, want[0][..., :count], atol=1e-5)
    np.testing.assert_allclose(vh[..., :count, :] * signs.swapaxes(-1, -2), want[2][..., :count, :], atol=1e-5)
    for vectors in (u.swapaxes(-1, -2), vh):  # the rest of a basis is free, but is one
        np.testing.assert_allclose(vectors @ vectors.swapaxes(-1, -2), np.broadcast_to(np.eye(vectors.shape[-2]), (*shape[:-2], *[vectors.shape[-2]] * 2)), atol=1e-5)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_any_and_all_are_numpys(axis, keepdims):
    x = np.array([[True, False, True], [True, True, True], [False, False, False]])
    keepdims = keepdims and axis is not None
    for function, reference in ((F.any, np.any), (F.all, np.all)):
        got, want = function(Tensor(x), axis, keepdims).numpy(), reference(x, axis=axis, keepdims=keepdims)
        assert got.dtype == np.bool_ and got.ravel().tolist() == np.ravel(want).tolist()


COMPLEX = np.array([[1 + 2j, -0.5j], [3, -1 - 1j]], np.complex64)


def test_complex_numbers_are_numpys():
    z = Tensor(COMPLEX)
    assert F.real(z).numpy().tobytes() == COMPLEX.real.tobytes() and F.imag(z).numpy().tobytes() == COMPLEX.imag.tobytes()
    assert F.complex(Tensor(COMPLEX.real.copy()), Tensor(COMPLEX.imag.copy())).numpy().tobytes() == COMPLEX.tobytes()
    radius, angle = Tensor(np.abs(COMPLEX)), Tensor(np.angle(COMPLEX))
    np.testing.assert_allclose(F.polar(radius, angle).numpy(), COMPLEX, rtol=1e-6, atol=1e-6)
    assert F.polar(radius, angle).dtype == np.complex64


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8"])
def test_full_like_has_the_shape_and_dtype_of_its_model(dtype):
    model = np.zeros((2, 0, 3) if dtype == "uint8" else (2, 3), dtype)
    got = F.full_like(Tensor(model), 7).numpy()
    assert got.dtype == dtype and got.tobytes() == np.full_like(model, 7).tobytes() and got.shape == model.shape


def test_non_zero_gives_places_as_rows_or_by_axis():
    x = np.array([[[0.0, 1.0], [2.0, 0.0]], [[0.0, 0.0], [np.nan, -0.0]]], np.float32)
    np.testing.assert_array_equal(F.non_zero(Tensor(x)).numpy(), np.argwhere(x))
    by_axis = F.non_zero(Tensor(x), as_tuple=True)
    for got, want in zip(by_axis, np.nonzero(x), strict=True):
        np.testing.assert_array_equal(got.numpy().ravel(), want)
    assert F.non_zero(Tensor(np.zeros((3, 2)))).numpy().shape == (0, 2)


@pytest.mark.parametrize("groups", [1, 2])
def test_conv_transpose3d_is_the_adjoint_of_conv3d(groups):
    """<conv3d(x, w), y> = <x, conv_transpose3d(y, w)> for any x and y."""
    rng = np.random.default_rng(2)
    x = Tensor(rng.normal(size=(2, 4, 5, 6, 7)).astype(np.float32))
    shape = (6, 4, 3, 2, 3) if groups == 1 else (2, 3, 2, 3, 2, 3)
    w = Tensor(rng.normal(size=shape).astype(np.float32))
    options = {"stride": (2, 1, 2), "padding": (1, 0, 1), "dilation": (1, 2, 1), "groups": groups}
    forth = F.conv3d(x, w, **options)
    y = Tensor(rng.normal(size=forth.shape).astype(np.float32))
    back = F.conv_transpose3d(y, w, **options).numpy()
    assert back.shape == x._tuple_shape  # each stride divides what is left of the window
    left, right = (forth.numpy().astype(float) * y.numpy()).sum(), (x.numpy().astype(float) * back).sum()
    np.testing.assert_allclose(left, right, rtol=1e-4)
    bias = Tensor(rng.normal(size=(1, 4, 1, 1, 1)).astype(np.float32))
    np.testing.assert_allclose(F.conv_transpose3d(y, w, bias, **options).numpy(), back + bias.numpy(), rtol=1e-5, atol=1e-5)
    longer = F.conv_transpose3d(y, w, **{**options, "output_padding": (1, 0, 1)}).numpy()
    np.testing.assert_allclose(longer[:, :, :5, :, :7], back, rtol=1e-5, atol=1e-5)
    assert longer.shape == (2, 4, 6, 6, 8)


def test_any_and_all_of_numbers_and_as_methods():
    for x in (np.array([[0.0, np.nan], [0, 0]]), np.array([[1, 2], [0, 3]]), np.zeros((0, 2)), np.array([[True], [False]])):
        for axis, keepdims in ((None, False), (0, False), (1, True)):
            for ours, theirs in ((F.any, np.any), (F.all, np.all), (Tensor.any, np.any), (Tensor.all, np.all)):
                result = ours(Tensor(x), axis=axis, keepdims=keepdims).numpy()
                assert result.dtype == np.bool_
                np.testing.assert_array_equal(result, theirs(x, axis=axis, keepdims=keepdims))
    assert F.any(x > 1 for x in [1, 2]) is True and F.all([True, False]) is False  # what a star import hides


def test_topk_below_0_takes_the_other_end():
    x = Tensor([3, 1, 4, 1, 5, 9, 2, 6])
    for k, options, wanted in (
        (-3, {}, ([1, 1, 2], [1, 3, 6])),
        (-3, {"descending": False}, ([9, 6, 5], [5, 7, 4])),
        (-3, {"kth_only": True}, (2, 6)),
        (-30, {}, ([1, 1, 2, 3, 4, 5, 6, 9], [1, 3, 6, 0, 2, 4, 7, 5])),
    ):
        assert [found.tolist() for found in F.topk(x, k, **options)] == list(wanted)
    with pytest.raises(ValueError, match="k = 0"):
        F.topk(x, 0)


def test_certain_predictions_cost_nothing_where_they_are_right():
    pred, label = Tensor([0.0, 1.0, 0.5]), Tensor([0.0, 1.0, 1.0])
    gm = autodiff.GradManager().attach([pred])
    with gm:
        loss = F.loss.binary_cross_entropy(pred, label, with_logits=False, reduction="none")
        gm.backward(loss.sum())
    np.testing.assert_allclose(loss.numpy(), [0, 0, np.log(2)], rtol=1e-6)
    np.testing.assert_allclose(pred.grad.numpy(), [1, -1, -2], rtol=1e-6)
    wrong = F.loss.binary_cross_entropy(Tensor([1.0]), Tensor([0.0]), with_logits=False)
    assert wrong.item() == np.inf


def test_batch_norm_without_running_statistics_gives_one_tensor():
    x, mean, var = Tensor(np.arange(6, dtype=np.float32).reshape(3, 2)), F.zeros(2), F.ones(2)
    assert isinstance(F.batch_norm(x, training=True, inplace=False), Tensor)
    assert isinstance(F.batch_norm(x, mean, var, training=False, inplace=False), Tensor)
    out, *moved = F.batch_norm(x, mean, var, training=True, inplace=False)
    assert len(moved) == 2 and mean.tolist() == [0, 0]


def test_running_statistics_of_halves_stay_halves():
    mean, var = F.zeros(2).astype("float16"), F.ones(2).astype("float16")
    F.batch_norm(Tensor(np.arange(6, dtype=np.float16).reshape(3, 2)), mean, var, training=True)
    assert mean.dtype == var.dtype == np.float16 and mean.numpy()[0] > 0


def test_an_identity_of_one_extent():
    for extents in ([3], (3,), Tensor([3]), 3, (3, 3)):
        np.testing.assert_array_equal(F.eye(extents).numpy(), np.eye(3))
    with pytest.raises(ValueError, match="eye"):
        F.eye((2, 3), 4)


@pytest.mark.parametrize(
    ("function", "x", "wanted"),
    [
        (lambda x: F.maximum(x, 1.0), [0, 1, 2], [0, 1, 1]),
        (lambda x: F.minimum(x, 1.0), [0, 1, 2], [1, 1, 0]),
        (lambda x: F.maximum(1.0, x), [0, 1, 2], [0, 0, 1]),
        (lambda x: F.clip(x, -1, 3), [-2, -1, 0, 3, 4], [0, 1, 1, 1, 0]),
        (lambda x: F.leaky_relu(x, 0.1), [-1, 0, 1], [0.1, 1, 1]),
        (lambda x: F.prelu(x, Tensor([0.25])), [-1, 0, 1], [0.25, 1, 1]),
        (F.hswish, [-4, -3, 3, 4], [0, -0.5, 1.5, 1]),
        (F.relu, [-1, 0, 1], [0, 0, 1]),
        (F.relu6, [0, 1, 6], [0, 1, 0]),
        (F.hsigmoid, [-3, 0, 3], [0, 1 / 6, 0]),
        (F.softplus, [0], [0.5]),
        (lambda x: F.logaddexp(x, x.detach()), [0], [0.5]),
    ],
)
def test_gradients_at_ties_and_bounds_are_the_originals(function, x, wanted):
    x = Tensor(np.array(x, np.float32))
    gm = autodiff.GradManager().attach([x])
    with gm:
        gm.backward(F.sum(function(x)))
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-6)
