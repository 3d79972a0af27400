"""Functions that everybody uses, where a row of op_samples.py does not reach: results whose size depends on values, special values, layers, errors."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor, jit
from megengine.autodiff import GradManager

NAN = np.nan
X = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def gradient(of, x):
    with GradManager().attach([x]) as gm:
        gm.backward(of(x).sum())
    return x.grad.numpy()


@pytest.mark.parametrize("symbolic", [None, False, True], ids=["eager", "value", "symbolic"])
@pytest.mark.parametrize(
    "x", [np.float32([3, 1, NAN, -0.0, 3, 0.0, NAN, 1, 1]), np.int32([[5, 2], [2, 5]]), np.array([True, False, True]), np.float32([7]), np.zeros(0, np.float32)], ids=str
)
def test_unique_is_numpys(x, symbolic):
    def all_of(x):
        return F.unique(x, return_index=True, return_inverse=True, return_counts=True)

    call = all_of if symbolic is None else jit.trace(all_of, symbolic=symbolic)
    for _ in range(2):
        for got, want in zip(call(Tensor(x)), np.unique(x, True, True, True), strict=True):
            np.testing.assert_array_equal(got.numpy(), want)
    assert F.unique(Tensor(x)).dtype == x.dtype


def test_the_gradient_of_unique_goes_to_the_first_of_equals():
    np.testing.assert_array_equal(gradient(lambda x: F.unique(x) * Tensor([1.0, 10.0]), Tensor([3.0, 1.0, 3.0])), [10, 1, 0])


def test_bincount_finds_its_length_in_the_values():
    for values, least in (([1, 5, 1], 0), ([1, 5, 1], 9), ([], 0), ([], 3)):
        x = np.array(values, np.int32)
        got = F.bincount(Tensor(x), minlength=least)
        assert got.dtype == np.int32 and got.tolist() == np.bincount(x, minlength=least).tolist()
    weights = np.float32([0.5, 2, 4])
    np.testing.assert_array_equal(F.bincount(Tensor([1, 5, 1]), weights).numpy(), np.bincount([1, 5, 1], weights))


def test_places_beside_nan_are_numpys():
    sequence, values = np.float32([1, 2, NAN, NAN]), np.float32([NAN, 3, 1, -np.inf, np.inf])
    for side in ("left", "right"):
        assert F.searchsorted(Tensor(sequence), Tensor(values), side).tolist() == np.searchsorted(sequence, values, side).tolist()
    assert F.searchsorted(F.zeros(0), Tensor([1.0])).tolist() == [0]


def test_a_row_of_padding_has_no_gradient():
    index = Tensor([[0, 2, -1], [3, 2, 1]])
    for padding in (3, -1):
        got = gradient(lambda w: F.embedding(index, w, padding_idx=padding), F.ones((4, 2)))
        np.testing.assert_array_equal(got, [[1, 1], [1, 1], [2, 2], [0, 0]])
    layer = M.Embedding(4, 2, padding_idx=-1)
    assert layer.padding_idx == 3 and layer.weight.numpy()[3].tolist() == [0, 0] and layer.weight.numpy()[:3].all()
    table = M.Embedding.from_pretrained(F.ones((4, 2)), freeze=False, padding_idx=1)
    assert table(Tensor([1])).tolist() == [[1, 1]]


def test_boxes_of_other_classes_stay():
    rng = np.random.default_rng(5)
    corners = rng.uniform(-20, 20, (60, 2)).astype(np.float32)
    boxes, scores = np.concatenate([corners, corners + rng.uniform(5, 20, (60, 2)).astype(np.float32)], 1), rng.permutation(60).astype(np.float32)
    classes = rng.integers(0, 4, 60).astype(np.int32)
    kept = F.vision.batched_nms(Tensor(boxes), Tensor(scores), Tensor(classes), 0.3).numpy()
    each = [np.flatnonzero(classes == c)[F.vision.nms(Tensor(boxes[classes == c]), Tensor(scores[classes == c]), 0.3).numpy()] for c in range(4)]
    want = np.concatenate(each)
    assert 10 < len(want) < 55 and kept.tolist() == want[np.argsort(-scores[want])].tolist()
    assert F.vision.batched_nms(Tensor(boxes), Tensor(scores), Tensor(classes), 0.3, max_output=3).tolist() == kept[:3].tolist()
    assert F.vision.batched_nms(F.zeros((0, 4)), F.zeros(0), F.zeros(0, dtype="int32"), 0.3).tolist() == []


def test_layers_name_their_padding_and_round_up():
    x = Tensor(np.random.default_rng(1).normal(size=(2, 4, 7, 9)).astype(np.float32))
    conv = M.Conv2d(4, 6, (3, 5), padding="same", dilation=(2, 1))
    assert conv.padding == (2, 2) and conv(x).shape == (2, 6, 7, 9)
    assert M.Conv2d(4, 6, 3, padding="valid").padding == (0, 0) and M.Conv1d(4, 4, 5, padding="same")(F.ones((1, 4, 8))).shape == (1, 4, 8)
    assert M.Conv3d(1, 1, 3, padding="same").padding == (1, 1, 1)
    for layer, function in ((M.MaxPool2d, F.max_pool2d), (M.AvgPool2d, F.avg_pool2d)):
        assert layer(2, ceil_mode=True)(x).numpy().tobytes() == function(x, 2, ceil_mode=True).numpy().tobytes()
        assert layer(2, ceil_mode=True)(x).shape == (2, 4, 4, 5)
    assert F.conv1d(F.ones((1, 1, 5)), F.ones((1, 1, 4)), padding="same").numpy().ravel().tolist() == [3, 4, 4, 3, 2]  # one more behind


def test_labels_that_are_all_ignored_have_no_mean():
    pred, label = F.zeros((2, 3)), Tensor([-1, -1])
    assert np.isnan(F.loss.cross_entropy(pred, label, ignore_index=-1).item())
    assert F.loss.cross_entropy(pred, label, ignore_index=-1, reduction="none").tolist() == [0, 0]


def test_complex_gradients_add_up_and_go_twice():
    x = Tensor(np.random.default_rng(2).normal(size=(2, 6)).astype(np.float32))

    def power(x):
        z = F.fft.fft(x)
        return (F.real(z) ** 2 + F.imag(z) ** 2).sum()  # Parseval: 6 sum(x ** 2)

    np.testing.assert_allclose(gradient(power, x), 12 * x.numpy(), rtol=1e-5)
    x.grad = None
    with GradManager().attach([x]) as outer:
        with GradManager().attach([x]) as inner:
            inner.backward(power(x))
        first, x.grad = x.grad, None
        outer.backward((first * first).sum())
    np.testing.assert_allclose(x.grad.numpy(), 2 * 12 * 12 * x.numpy(), rtol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 8, 13, 30, 31, 37, 60, 74, 128, 210, 1009])
def test_transforms_of_any_length_are_numpys(n):
    rng = np.random.default_rng(n)
    x = (rng.normal(size=(2, n)) + 1j * rng.normal(size=(2, n))).astype(np.complex64)
    real, exact = np.ascontiguousarray(x.real), x.astype(np.complex128)
    pairs = (
        (F.fft.fft(Tensor(x)), np.fft.fft(exact)), (F.fft.ifft(Tensor(x)), np.fft.ifft(exact)), (F.fft.rfft(Tensor(real)), np.fft.rfft(exact.real)),
        (F.fft.irfft(Tensor(x), n=2 * n - 1), np.fft.irfft(exact, n=2 * n - 1)), (F.fft.irfft(Tensor(x), n=2 * n), np.fft.irfft(exact, n=2 * n)),
    )  # fmt: skip
    for got, want in pairs:
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6, atol=1e-6 * np.abs(want).max())
    assert F.fft.fftfreq(n, 0.1).numpy().tolist() == np.fft.fftfreq(n, 0.1).astype(np.float32).tolist()
    assert F.fft.rfftfreq(n).numpy().tolist() == np.fft.rfftfreq(n).astype(np.float32).tolist()


@pytest.mark.parametrize(("m", "n"), [(5, 3), (3, 5), (4, 4), (1, 1), (3, 1), (0, 0), (70, 40)])
def test_qr_has_lapacks_signs(m, n):
    x = np.random.default_rng(m).normal(size=(m, n)).astype(np.float32)
    for mode in ("reduced", "complete"):
        for got, want in zip(F.linalg.qr(Tensor(x), mode), np.linalg.qr(x.astype(np.float64), mode), strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)
    assert F.linalg.qr(Tensor(x), "r").numpy().tobytes() == F.linalg.qr(Tensor(x)).R.numpy().tobytes()


def test_symmetric_matrices_of_any_sign_and_rank():
    rng = np.random.default_rng(3)
    for rank in (0, 1, 6, 20):
        vectors = rng.normal(size=(20, rank)).astype(np.float32)
        x = vectors * np.float32(np.where(np.arange(rank) % 2, -1, 3)) @ vectors.T
        w, v = (part.numpy() for part in F.linalg.eigh(Tensor(x)))
        want = np.linalg.eigvalsh(x.astype(np.float64))
        np.testing.assert_allclose(w, want, atol=1e-6 * max(1, np.abs(want).max()))
        np.testing.assert_allclose(v.T @ v, np.eye(20), atol=1e-5)
        np.testing.assert_allclose(v * w @ v.T, x, atol=1e-5 * max(1, np.abs(want).max()))
    upper = Tensor(np.array([[2, 99], [1, 2]], np.float32))
    assert F.linalg.eigvalsh(upper).numpy().round(5).tolist() == [1, 3] and F.linalg.cholesky(upper).numpy()[0].tolist() == [np.float32(2**0.5), 0]


def test_determinants_of_singular_matrices_are_0():
    sign, logarithm = F.linalg.slogdet(Tensor([[1.0, 2.0], [2.0, 4.0]]))
    assert (sign.item(), logarithm.item(), F.linalg.det(F.zeros((3, 3))).item()) == (0, -np.inf, 0)
    assert F.linalg.svdvals(Tensor([[3.0, 0.0], [0.0, 4.0]])).numpy().round(5).tolist() == [4, 3]
    assert F.linalg.inv(2 * F.eye(2)).numpy().tolist() == [[0.5, 0], [0, 0.5]]
    assert F.linalg.matrix_power(F.ones((2, 2), dtype="int32"), 0).numpy().tolist() == [[1, 0], [0, 1]]


ERRORS = {
    "a norm": (lambda: F.fft.fft(X, norm="orthogonal"), ValueError, "norm 'orthogonal'"),
    "a real transform of complex numbers": (lambda: F.fft.rfft(F.complex(X, X)), TypeError, "use fft, or real"),
    "nothing to transform": (lambda: F.fft.fft(F.zeros((2, 0))), ValueError, "at least one element"),
    "no elements": (lambda: F.fft.irfft(X, n=0), ValueError, "0 elements"),
    "sizes of other axes": (lambda: F.fft.fftn(X, (2, 3), 0), ValueError, "2 sizes for 1 axes"),
    "a matrix that is not square": (lambda: F.linalg.cholesky(X), ValueError, "2 rows and 3 columns"),
    "a vector": (lambda: F.linalg.det(F.ones(3)), ValueError, "two axes"),
    "an indefinite matrix": (lambda: F.linalg.cholesky(Tensor([[1.0, 2.0], [2.0, 1.0]])).numpy(), RuntimeError, "not positive definite"),
    "a singular system": (lambda: F.linalg.solve(F.ones((2, 2)), F.ones(2)).numpy(), RuntimeError, "solve: matrix 0 of 1 is singular"),
    "a system of other rows": (lambda: F.linalg.solve(F.eye(2), F.ones(3)), ValueError, "other rows"),
    "infinite elements": (lambda: F.linalg.eigvalsh(F.full((2, 2), np.inf)).numpy(), RuntimeError, "infinite or NaN"),
    "qr's mode": (lambda: F.linalg.qr(X, "full"), ValueError, "mode 'full'"),
    "a gradient of a wide qr": (lambda: gradient(lambda x: F.linalg.qr(x).Q, F.ones((2, 3))), RuntimeError, "no fewer rows"),
    "a power of what is not square": (lambda: F.linalg.matrix_power(X, 2), ValueError, "square"),
    "extents apart": (lambda: F.zeros(2, 3), TypeError, r"zeros\(\(2, 3\)\)"),
    "extents of ones": (lambda: F.ones(2, 3, 4), TypeError, r"ones\(\(2, 3, 4\)\)"),
    "a triangle of a vector": (lambda: F.tril(Tensor([1.0])), ValueError, r"tril: a tensor of shape \[1\]"),
    "a source of another shape": (lambda: F.index_add(X, 1, Tensor([0]), F.ones((2, 2))), ValueError, "along axis 1"),
    "an index beyond": (lambda: F.scatter_add(X, 1, Tensor([[7], [0]]), F.ones((2, 1))).numpy(), IndexError, "7 is out of range"),
    "a negative number": (lambda: F.bincount(Tensor([1, -1])).numpy(), IndexError, "bincount: label -1"),
    "a number beyond": (lambda: F.bincount(Tensor([1, 4]), length=4).numpy(), IndexError, "bincount: label 4"),
    "a bincount of floats": (lambda: F.bincount(Tensor([1.0])), TypeError, "float32"),
    "weights of another extent": (lambda: F.bincount(Tensor([1]), F.ones(2)), ValueError, r"weights \[2\]"),
    "too short a result": (lambda: F.bincount(Tensor([1]), minlength=3, length=2), ValueError, "less than minlength 3"),
    "a side": (lambda: F.searchsorted(Tensor([1.0]), 1.0, "middle"), ValueError, "side 'middle'"),
    "sequences of other rows": (lambda: F.searchsorted(X, F.ones((3, 2))), ValueError, r"values \[3, 2\]"),
    "a padding that keeps extents, with a stride": (lambda: F.conv2d(F.ones((1, 1, 4, 4)), F.ones((1, 1, 3, 3)), stride=2, padding="same"), ValueError, r"stride of \(2, 2\)"),
    "the name of a padding": (lambda: F.conv2d(F.ones((1, 1, 4, 4)), F.ones((1, 1, 3, 3)), padding="full"), ValueError, "'full' is neither"),
    "a layer with an even kernel": (lambda: M.Conv2d(1, 1, 2, padding="same"), ValueError, "use an odd kernel_size"),
    "a layer with the name of a padding": (lambda: M.Conv2d(1, 1, 2, padding="full"), ValueError, "padding: 'full'"),
    "a row that is not there": (lambda: F.embedding(Tensor([0]), X, padding_idx=2), ValueError, "padding_idx is 2, and the table has 2 rows"),
    "weights of other classes": (lambda: F.loss.cross_entropy(X, Tensor([0, 1]), weight=F.ones(2)), ValueError, r"weight has shape \[2\] for 3 classes"),
    "a label beside ignored ones": (lambda: F.loss.cross_entropy(X, Tensor([-1, 3]), ignore_index=-1).numpy(), IndexError, "label 3"),
    "huber's delta": (lambda: F.loss.huber_loss(X, X, delta=0), ValueError, "delta 0"),
    "a negative beta": (lambda: F.loss.smooth_l1_loss(X, X, beta=-1), ValueError, "beta -1"),
    "a reduction": (lambda: F.loss.kl_div(X, X, "average"), ValueError, "batchmean"),
    "labels of pairs": (lambda: F.loss.cosine_embedding_loss(X, X, Tensor([1])), ValueError, r"label \[1\]"),
    "classes of boxes": (lambda: F.vision.batched_nms(F.ones((2, 4)), F.ones(2), F.ones(3), 0.5), AssertionError, r"\[3\] classes"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors_tell_the_value_and_the_way_out(case):
    call, kind, text = ERRORS[case]
    with pytest.raises(kind, match=text):
        call()
    assert mge.tensor(1).item() == 1  # the next call works
