"""Distances of vectors, and losses of distances: between values (smooth L1, Huber), distributions (Kullback-Leibler) and embeddings. torch's formulas."""

from ..core import ops
from ..core.tensor.amp import to_high as _to_high
from ..core.tensor.array_method import require_tensors
from ..core.tensor.shapes import normalize_axis
from ..tensor import Tensor
from ._docs import Operand
from ._loss_parts import reduced, warn_of_broadcast
from .math import norm

__all__ = ["cosine_embedding_loss", "huber_loss", "kl_div", "smooth_l1_loss", "triplet_margin_loss"]


def cosine_similarity(x1: Tensor, x2: Tensor, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """Computes the cosine of the angle between vectors along ``axis``: their product divided by
    their lengths, each of which counts as at least ``eps``.

    Parameters
    ----------
    x1, x2 : Tensor
        Tensors that broadcast, float dtype.
    axis : int
        The axis of the vectors' elements.
    eps : float
        Lengths below this number count as this number.

    Returns
    -------
    Tensor
        The broadcast shape without ``axis``.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.cosine_similarity(Tensor([[3.0, 0.0], [0.0, 0.0]]), Tensor([[1.0, 1.0]])).numpy().round(4)
    array([0.7071, 0.    ], dtype=float32)
    """
    require_tensors("cosine_similarity", x1, x2)
    x1, x2 = _to_high(x1), _to_high(x2)
    product = ops.mul(x1, x2)
    last = normalize_axis(axis, product.ndim, "cosine_similarity") - product.ndim
    lengths = [ops.maximum(norm(x, 2, last, keepdims=True), eps) for x in (x1, x2)]
    y = ops.true_div(ops.reduce_sum(product, axes=(last + product.ndim,), keepdims=True), ops.mul(*lengths))
    return ops.reshape(y, shape=tuple(n for at, n in enumerate(y._tuple_shape) if at != last + product.ndim))


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> Tensor:
    """Computes the norm of ``x1 - x2 + eps`` along the last axis.

    Parameters
    ----------
    x1, x2 : Tensor
        [..., size], tensors that broadcast.
    p : float
        The order of the norm, as in `norm`.
    eps : float
        Number added to each difference, so that equal vectors have a gradient.
    keepdims : bool
        Whether the last axis stays in the result with size 1.

    Returns
    -------
    Tensor
        [...], the distances.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.pairwise_distance(Tensor([[3.0, 4.0]]), Tensor([0.0, 0.0])).numpy().round(4)
    array([5.], dtype=float32)
    """
    require_tensors("pairwise_distance", x1, x2)
    return norm(ops.add(ops.sub(_to_high(x1), _to_high(x2)), eps), p, axis=-1, keepdims=keepdims)


def huber_loss(pred: Tensor, label: Operand, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """Computes half of the squared error up to ``delta``, and from there on a line with the same
    slope.

    Parameters
    ----------
    pred : Tensor
        Predicted values, of any shape and dtype.
    label : Tensor or number
        True values. The shapes broadcast; a warning says so if they differ.
    reduction : str
        "mean", "sum" or "none".
    delta : float
        The error d at which ``d ** 2 / 2`` becomes ``delta * (d - delta / 2)``; above 0.

    Returns
    -------
    Tensor
        0-d, or the loss of each element for "none".

    Raises
    ------
    ValueError
        For another reduction or delta.

    References
    ----------
    Huber, 1964, "Robust Estimation of a Location Parameter".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.loss.huber_loss(Tensor([1.0, 5.0]), Tensor([0.0, 0.0]), reduction="none", delta=2.0).numpy()
    array([0.5, 8. ], dtype=float32)
    """
    warn_of_broadcast("huber_loss", pred, label)
    if not delta > 0:
        raise ValueError(f"huber_loss: delta {delta} is not above 0")
    error = ops.abs(ops.sub(_to_high(pred), label))
    near = ops.minimum(error, delta)  # near * (error - near / 2): the square, or the line
    return reduced(ops.mul(near, ops.sub(error, ops.mul(near, 0.5))), reduction)


def smooth_l1_loss(pred: Tensor, label: Operand, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Computes the absolute error less ``beta / 2``, and below ``beta`` a parabola with the same
    slope: `huber_loss` divided by ``beta``.

    Parameters
    ----------
    pred : Tensor
        Predicted values, of any shape and dtype.
    label : Tensor or number
        True values. The shapes broadcast; a warning says so if they differ.
    reduction : str
        "mean", "sum" or "none".
    beta : float
        The error d at which ``d ** 2 / (2 * beta)`` becomes ``d - beta / 2``; 0 is `l1_loss`.

    Returns
    -------
    Tensor
        0-d, or the loss of each element for "none".

    Raises
    ------
    ValueError
        For another reduction, or a negative beta.

    References
    ----------
    Girshick, 2015, "Fast R-CNN".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.loss.smooth_l1_loss(Tensor([0.5, 3.0]), Tensor([0.0, 0.0]), reduction="none").numpy()
    array([0.125, 2.5  ], dtype=float32)
    """
    warn_of_broadcast("smooth_l1_loss", pred, label)
    if beta < 0:
        raise ValueError(f"smooth_l1_loss: beta {beta} is negative")
    error = ops.abs(ops.sub(_to_high(pred), label))
    if beta:
        near = ops.minimum(error, beta)
        error = ops.mul(near, ops.true_div(ops.sub(error, ops.mul(near, 0.5)), beta))
    return reduced(error, reduction)


def kl_div(pred: Tensor, label: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Computes the Kullback-Leibler divergence ``label * (log(label) - pred)``, where ``pred`` holds
    logarithms of probabilities.

    Parameters
    ----------
    pred : Tensor
        [n, ...], logarithms, as `logsoftmax` gives them.
    label : Tensor
        The shape of ``pred``, with a warning otherwise: probabilities, 0 included.
    reduction : str
        "batchmean" is the sum over n, the divergence of distributions in the mean; "mean" divides
        by all elements; "sum" or "none".
    log_target : bool
        Whether ``label`` holds logarithms, too.

    Returns
    -------
    Tensor
        0-d, or the loss of each element for "none".

    Raises
    ------
    ValueError
        For another reduction.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> pred = F.log(Tensor([[0.5, 0.5]]))
    >>> F.loss.kl_div(pred, Tensor([[1.0, 0.0]]), reduction="batchmean").numpy()
    array(0.6931472, dtype=float32)
    """
    warn_of_broadcast("kl_div", pred, label)
    pred, label = _to_high(pred), _to_high(label)
    if log_target:
        loss = ops.mul(ops.exp(label), ops.sub(label, pred))
    else:
        is_zero = ops.equal(label, 0.0)
        log = ops.log(ops.where(is_zero, 1.0, label))
        loss = ops.mul(label, ops.sub(log, pred))
    if reduction == "batchmean":
        return ops.true_div(reduced(loss, "sum"), loss._tuple_shape[0] if loss.ndim else 1)
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"kl_div: reduction {reduction!r} is not one of 'batchmean', 'mean', 'sum', 'none'")
    return reduced(loss, reduction)


def cosine_embedding_loss(x1: Tensor, x2: Tensor, label: Tensor, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """Computes ``1 - cos(x1, x2)`` for pairs that belong together, and ``max(0, cos(x1, x2) -
    margin)`` for others.

    Parameters
    ----------
    x1, x2 : Tensor
        [n, size] or [size].
    label : Tensor
        [n] or []: 1 for a pair that belongs together, -1 for others.
    margin : float
        Cosine up to which a pair that does not belong together has no loss.
    reduction : str
        "mean", "sum" or "none".

    Returns
    -------
    Tensor
        0-d, or the loss of each pair for "none".

    Raises
    ------
    ValueError
        For another reduction, and for shapes that do not fit.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x, y = Tensor([[1.0, 0.0], [1.0, 0.0]]), Tensor([[0.0, 2.0], [3.0, 0.0]])
    >>> F.loss.cosine_embedding_loss(x, y, Tensor([1, -1]), reduction="none").numpy()
    array([1., 1.], dtype=float32)
    """
    require_tensors("cosine_embedding_loss", x1, x2, label)
    if x1._tuple_shape != x2._tuple_shape or label._tuple_shape != x1._tuple_shape[:-1] or not x1.ndim:
        raise ValueError(
            f"cosine_embedding_loss: x1 has shape {list(x1._tuple_shape)}, x2 {list(x2._tuple_shape)}, label {list(label._tuple_shape)}\n"
            "  fix: give pairs of vectors of one size, and a label for each pair"
        )
    x1, x2 = _to_high(x1), _to_high(x2)
    last = (x1.ndim - 1,)
    products = (ops.reduce_sum(ops.mul(a, b), axes=last, keepdims=False) for a, b in ((x1, x2), (x1, x1), (x2, x2)))
    across, *squares = products
    least = 1e-12  # least squared length
    cosine = ops.true_div(across, ops.sqrt(ops.mul(ops.add(squares[0], least), ops.add(squares[1], least))))
    apart = ops.relu(ops.sub(cosine, margin))
    return reduced(ops.where(ops.equal(label, 1), ops.sub(1.0, cosine), apart), reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Computes ``max(0, d(anchor, positive) - d(anchor, negative) + margin)``: an anchor must be
    nearer to the positive than to the negative by ``margin``.

    Parameters
    ----------
    anchor, positive, negative : Tensor
        Vectors that are compared, that must be near, and that must be far: [..., size].
    margin : float
        By how much the positive must be nearer than the negative.
    p : float
        The distance d is the norm of this order, as in `norm`.
    eps : float
        Number added to each difference, so that equal vectors have a gradient.
    swap : bool
        Whether to take the distance of positive and negative where it is less than that of anchor
        and negative.
    reduction : str
        "mean", "sum" or "none".

    Returns
    -------
    Tensor
        0-d, or [...] for "none".

    Raises
    ------
    ValueError
        For another reduction.

    References
    ----------
    Balntas et al., 2016, "Learning local feature descriptors with triplets and shallow
    convolutional neural networks" (swap).

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> near, far = Tensor([[0.0, 1.0]]), Tensor([[3.0, 4.0]])
    >>> F.loss.triplet_margin_loss(F.zeros((1, 2)), near, far, margin=5.0).numpy().round(4).item()
    1.0
    """
    require_tensors("triplet_margin_loss", anchor, positive, negative)
    away = pairwise_distance(anchor, negative, p, eps)
    if swap:
        away = ops.minimum(away, pairwise_distance(positive, negative, p, eps))
    return reduced(ops.relu(ops.add(ops.sub(pairwise_distance(anchor, positive, p, eps), away), margin)), reduction)
