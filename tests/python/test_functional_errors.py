"""What cannot be is refused with the documented class, in words that name the function and the value."""

import warnings

import numpy as np
import pytest

import megengine.functional as F
from megengine import Tensor, jit

X = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
MASK = Tensor([[True, False, True], [False, False, True]])

REFUSED = {
    "where mask is no tensor": (lambda: F.where([True], X, X), TypeError, "^mask must be a tensor, where got list"),
    "where mask is float": (
        lambda: F.where(X, X, X),
        ValueError,
        "^mask must be bool, where got float32",
    ),
    "where needs both": (lambda: F.where(MASK, X), TypeError, "both x and y"),
    "cond_take of a list": (lambda: F.cond_take([True], X), TypeError, "^mask must be a tensor, cond_take got list"),
    "cond_take mask is float": (lambda: F.cond_take(X, X), ValueError, "float32, not bool"),
    "cond_take shapes differ": (lambda: F.cond_take(MASK[0], X), ValueError, r"\[3\], x \[2, 3\]"),
    "broadcast_to negative": (lambda: F.broadcast_to(X, (-2, 3)), ValueError, "negative extent"),
    "broadcast_to other shape": (
        lambda: F.broadcast_to(X, (3, 3)),
        RuntimeError,
        "does not broadcast",
    ),
    "concat of nothing": (lambda: F.concat([]), ValueError, "concat: no tensors"),
    "stack of two shapes": (lambda: F.stack([X, X[0]]), ValueError, r"\[2, 3\], \[3\]"),
    "split in too many": (lambda: F.split(X, 4, axis=1), ValueError, "The size 3 at dim 1 cannot be split into 4 sections"),
    "split at falling points": (lambda: F.split(X, [2, 1], 1), ValueError, r"Invalid nsplits_or_secions: \[2, 1\]"),
    "squeeze a long axis": (lambda: F.squeeze(X, 0), ValueError, "not 1 long"),
    "axis too large": (lambda: F.sum(X, axis=2), ValueError, "sum: axis 2 of a tensor with 2 axes"),
    "axis twice": (lambda: F.sum(X, axis=(0, -2)), AssertionError, r"axis \(0, -2\) contains duplicated indices\n  why: sum takes"),
    "keepdims of all": (lambda: F.mean(X, keepdims=True), AssertionError, "mean: keepdims"),
    "norm without axis": (lambda: F.norm(X), TypeError, "^axis is required unless input is a vector"),
    "topk of none": (lambda: F.topk(X, 0), ValueError, "k = 0 for an axis of 3"),
    "dot of matrices": (lambda: F.dot(X, X), AssertionError, "use matmul"),
    "matmul of a scalar": (lambda: F.matmul(Tensor(1.0), X), ValueError, "0-d operand"),
    "matmul shapes": (lambda: F.matmul(X, X), ValueError, "matmul"),
    "cross of 2-vectors": (lambda: F.cross(X.T, X.T), ValueError, "2 elements, not 3"),
    "clip without bounds": (lambda: F.clip(X), AssertionError, "^At least one of 'lower' or 'upper' must not be None"),
    "clip with crossed bounds": (lambda: F.clip(X, 1, 0), AssertionError, "lower 1 is above"),
    "transpose twice": (lambda: F.transpose(X, (0, 0)), ValueError, r"\[0, 0\]"),
    "pad mode": (lambda: F.pad(X, ((1, 1),), "wrap"), ValueError, "pad: mode 'wrap'"),
    "pad width": (lambda: F.pad(X, ((-1, 1),)), ValueError, "negative width"),
    "embedding options": (
        lambda: F.embedding(Tensor([0]), X, max_norm=1.0),
        ValueError,
        "max_norm",
    ),
    "one_hot of a list": (lambda: F.one_hot([1], 3), TypeError, "list is not a Tensor"),
    "gather rank": (lambda: F.gather(X, 0, Tensor([0])), ValueError, "But the input dims:2, the index dims:1"),
    "gather by floats": (lambda: F.gather(X, 0, X), TypeError, "index is float32"),
    "roi_align of no samples": (lambda: F.vision.roi_align(F.ones((1, 1, 2, 2)), F.ones((1, 5)), 2, sample_points=0), ValueError, "takes no samples"),
    "repeat counts": (lambda: F.repeat(X, [1, 2, 3], axis=0), ValueError, "3 counts"),
    "linspace of none": (lambda: F.linspace(0, 1, -1), ValueError, "num -1"),
    "arange without step": (lambda: F.arange(0, 1, 0), ValueError, "step is 0"),
    "negative shape": (lambda: F.zeros((2, -1)), ValueError, "negative extent"),
    "shape of text": (lambda: F.zeros("ab"), TypeError, "'ab'"),
    "diag of rank 3": (lambda: F.diag(F.ones((1, 1, 1))), ValueError, "3 axes"),
    "meshgrid order": (lambda: F.meshgrid(X[0], indexing="yx"), ValueError, "'yx'"),
    "einsum letters": (lambda: F.einsum("ij,jk", X), ValueError, "2 operands, 1"),
    "einsum sizes": (lambda: F.einsum("ij,jk->ik", X, X), ValueError, "'j' in .* is 3 .* and 2"),
    "einsum output": (lambda: F.einsum("ij->ik", X), ValueError, "output"),
    "hinge norm": (lambda: F.loss.hinge_loss(X, X, norm="L3"), ValueError, "'L3'"),
    "cross_entropy label": (lambda: F.loss.cross_entropy(X, X), ValueError, "class indices"),
    "group_norm groups": (lambda: F.group_norm(X, 2, False), ValueError, "3 channels"),
    "layer_norm shape": (lambda: F.layer_norm(X, 2, False), ValueError, r"does not end in \[2\]"),
    "avg_pool mode": (lambda: F.avg_pool2d(X.reshape(1, 1, 2, 3), 1, mode="sum"), ValueError, "'sum'"),
    "conv of a matrix": (lambda: F.conv2d(X, F.ones((1, 1, 1, 1))), ValueError, "conv"),
    "shift of floats": (lambda: F.left_shift(X, 1), TypeError, "left_shift"),
    "and of floats": (lambda: F.logical_and(X, X), TypeError, "logical_and"),
    "exp of nothing": (lambda: F.exp(None), TypeError, "None"),
    "conv of an array": (
        lambda: F.conv2d(np.zeros((1, 1, 2, 2)), X),
        TypeError,
        r"conv2d: array\(.*is not a Tensor but of type ndarray\n  fix: pass megengine.tensor",
    ),
    "pool of a list": (
        lambda: F.max_pool2d([1], 2),
        TypeError,
        r"max_pool2d: \[1\] is not a Tensor",
    ),
    "runtime of others": (
        lambda: F.external.tensorrt_runtime_opr([X], data=b""),
        RuntimeError,
        "TensorRT runtime",
    ),
    "a model of Atlas": (lambda: F.external.atlas_runtime_opr([X], data=b""), RuntimeError, "no Atlas runtime"),
    "a model of Cambricon": (lambda: F.external.cambricon_runtime_opr(X, b"", "main", False), RuntimeError, "no Cambricon runtime"),
    "a model of MagicMind": (lambda: F.external.magicmind_runtime_opr([X], b""), RuntimeError, "no MagicMind runtime"),
    "a model of a loader": (lambda: F.external.extern_opr_subgraph([X], [(1,)], "mine", b""), RuntimeError, "no loader 'mine' runtime"),
    "a model on no tensor": (lambda: F.external.atlas_runtime_opr([3], data=b""), TypeError, "Atlas: input 3 is not a Tensor"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused(case):
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words) as error:
        call()
    assert len(str(error.value).splitlines()) <= 6


def test_float_labels_of_cross_entropy_are_cut_with_a_warning():
    """As the original cuts them, which says nothing."""
    with pytest.warns(UserWarning, match=r"cross_entropy: .* float32 labels are truncated .* label.astype\('int32'\)") as caught:
        loss = F.loss.cross_entropy(X, Tensor([0.6, 1.9]))
    assert loss.item() == F.loss.cross_entropy(X, Tensor([0, 1])).item() and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dtype in ("int32", "uint8", "bool"):
            F.loss.cross_entropy(X, Tensor([0, 1], dtype=dtype))


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("label", [-1, 3, -128])
def test_a_label_that_is_no_class_is_named(label, traced, dtype):
    given = np.array([label, 1]).astype(dtype)
    call = jit.trace(F.loss.cross_entropy, symbolic=True) if traced else F.loss.cross_entropy
    good = call(X, Tensor(np.array([2, 1], dtype))).item()
    with pytest.raises(IndexError, match=rf"cross_entropy: label {given[0]} is out of range for 3 classes"):
        call(X, Tensor(given)).item()
    assert call(X, Tensor(np.array([2, 1], dtype))).item() == good


@pytest.mark.parametrize("loss", [F.loss.l1_loss, F.loss.square_loss, F.loss.binary_cross_entropy, F.loss.hinge_loss])
def test_a_loss_that_broadcasts_warns(loss):
    pred, label = F.full((4, 1), 0.5), F.full((1,), 0.5)
    with pytest.warns(UserWarning, match=rf"{loss.__name__}: pred has shape \[4, 1\] and label \[1\]") as caught:
        loss(pred, label)
    assert caught[0].filename == __file__
    loss(pred, pred), loss(pred, 0.5), loss(pred, Tensor(0.5))
