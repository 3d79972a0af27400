"""Losses as layers: their settings are given once, predictions and labels at each call. Formulas and sources: `functional.loss`."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss", "NLLLoss",
    "SmoothL1Loss", "TripletMarginLoss",
]  # fmt: skip


class _Loss(Module):
    """Base of losses, which reduces the losses of the elements by ``reduction``."""

    _repr_facts = "reduction={0.reduction}"

    def __init__(self, reduction: str = "mean", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reduction = reduction


class CrossEntropyLoss(_Loss):
    """Computes ``-log p[label]``, where p is the softmax of scores: `functional.loss.cross_entropy`.

    Parameters
    ----------
    weight : Tensor or None
        Factor of the loss of each class, (classes,); None is 1.
    ignore_index : int or None
        A label whose loss is 0.
    label_smooth : float
        Share of the label, in [0, 1], that goes to all classes evenly.
    reduction : str
        "mean", "sum" or "none"; ValueError for another when called.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    See Also
    --------
    BCEWithLogitsLoss : Has two classes.
    functional.loss.cross_entropy : The function.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> loss = M.CrossEntropyLoss()(mge.Tensor([[0.0, 0.0], [100.0, 0.0]]), mge.Tensor([1, 0]))
    >>> round(loss.item(), 4)
    0.3466
    """

    _repr_facts = "ignore_index={0.ignore_index}, label_smooth={0.label_smooth}, reduction={0.reduction}"

    def __init__(self, weight: Tensor | None = None, ignore_index: int | None = None, label_smooth: float = 0.0, reduction: str = "mean", **kwargs: Any) -> None:
        super().__init__(reduction, **kwargs)
        self.weight = weight
        self.ignore_index = ignore_index
        self.label_smooth = label_smooth

    def forward(self, pred: Tensor, label: Tensor) -> Tensor:
        """Returns the loss.

        Parameters
        ----------
        pred : Tensor
            (N, classes, ...), logits.
        label : Tensor
            (N, ...), indices of classes.

        Returns
        -------
        Tensor
            0-d, or the loss of each label for "none".
        """
        return F.loss.cross_entropy(pred, label, 1, True, self.label_smooth, self.reduction, self.ignore_index, self.weight)


class NLLLoss(_Loss):
    """Computes ``-pred[label]`` of logarithms of probabilities: `functional.loss.nll_loss`.

    Parameters
    ----------
    weight : Tensor or None
        Factor of the loss of each class, (classes,); None is 1.
    ignore_index : int or None
        A label whose loss is 0.
    reduction : str
        "mean", "sum" or "none"; ValueError for another when called.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.NLLLoss()(mge.Tensor([[-0.5, -2.0]]), mge.Tensor([1])).item()
    2.0
    """

    _repr_facts = "ignore_index={0.ignore_index}, reduction={0.reduction}"

    def __init__(self, weight: Tensor | None = None, ignore_index: int | None = None, reduction: str = "mean", **kwargs: Any) -> None:
        super().__init__(reduction, **kwargs)
        self.weight = weight
        self.ignore_index = ignore_index

    def forward(self, pred: Tensor, label: Tensor) -> Tensor:
        """Returns the loss.

        Parameters
        ----------
        pred : Tensor
            (N, classes, ...), logarithms of probabilities, as `LogSoftmax` gives them.
        label : Tensor
            (N, ...), indices of classes.

        Returns
        -------
        Tensor
            0-d, or the loss of each label for "none".
        """
        return F.loss.nll_loss(pred, label, 1, self.reduction, self.ignore_index, self.weight)


class BCEWithLogitsLoss(_Loss):
    """Computes the binary cross entropy of logits: `functional.loss.binary_cross_entropy`.

    Parameters
    ----------
    reduction : str
        "mean", "sum" or "none"; ValueError for another when called.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> round(M.BCEWithLogitsLoss()(mge.Tensor([0.0, 100.0]), mge.Tensor([1.0, 1.0])).item(), 4)
    0.3466
    """

    def forward(self, pred: Tensor, label: Tensor) -> Tensor:
        """Returns the loss.

        Parameters
        ----------
        pred : Tensor
            Logits of any shape, float dtype.
        label : Tensor
            True values in [0, 1], of the shape of ``pred``.

        Returns
        -------
        Tensor
            0-d, or the loss of each element for "none".
        """
        return F.loss.binary_cross_entropy(pred, label, True, self.reduction)


class BCELoss(_Loss):
    """Computes the binary cross entropy of probabilities: `functional.loss.binary_cross_entropy`.

    Parameters
    ----------
    reduction : str
        "mean", "sum" or "none"; ValueError for another when called.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> round(M.BCELoss()(mge.Tensor([0.5, 1.0]), mge.Tensor([1.0, 1.0])).item(), 4)
    0.3466
    """

    def forward(self, pred: Tensor, label: Tensor) -> Tensor:
        """Returns the loss.

        Parameters
        ----------
        pred : Tensor
            Any shape, in [0, 1].
        label : Tensor
            True values in [0, 1], of the shape of ``pred``.

        Returns
        -------
        Tensor
            0-d, or the loss of each element for "none".
        """
        return F.loss.binary_cross_entropy(pred, label, False, self.reduction)


class MSELoss(_Loss):
    """Computes the squared error: `functional.loss.square_loss`.

    Parameters
    ----------
    reduction : str
        "mean", "sum" or "none"; ValueError for another when called.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.MSELoss()(mge.Tensor([1.0, 2.0]), mge.Tensor([1.0, 5.0])).item()
    4.5
    """

    def forward(self, pred: Tensor, label: Tensor) -> Tensor:
        """Returns the loss.

        Parameters
        ----------
        pred : Tensor
            Predicted values, of any shape.
        label : Tensor
            True values, of the shape of ``pred``.

        Returns
        -------
        Tensor
            0-d, or the error of each element for "none".
        """
        return F.loss.square_loss(pred, label, self.reduction)


class L1Loss(_Loss):
    """Computes the absolute error: `functional.loss.l1_loss`.

    Parameters
    ----------
    reduction : str
        "mean", "sum" or "none"; ValueError for another when called.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.L1Loss()(mge.Tensor([1.0, 2.0]), mge.Tensor([1.0, 5.0])).item()
    1.5
    """

    def forward(self, pred: Tensor, label: Tensor) -> Tensor:
        """Returns the loss.

        Parameters
        ----------
        pred : Tensor
            Predicted values, of any shape.
        label : Tensor
            True values, of the shape of ``pred``.

        Returns
        -------
        Tensor
            0-d, or the error of each element for "none".
        """
        return F.loss.l1_loss(pred, label, self.reduction)


class SmoothL1Loss(_Loss):
    """Computes the absolute error, and a parabola where it is small: `functional.loss.smooth_l1_loss`.

    Parameters
    ----------
    beta : float
        The error at which the parabola becomes a line.
    reduction : str
        "mean", "sum" or "none"; ValueError for another when called.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.SmoothL1Loss(reduction="none")(mge.Tensor([0.5, 3.0]), mge.Tensor([0.0, 0.0])).tolist()
    [0.125, 2.5]
    """

    _repr_facts = "beta={0.beta}, reduction={0.reduction}"

    def __init__(self, beta: float = 1.0, reduction: str = "mean", **kwargs: Any) -> None:
        super().__init__(reduction, **kwargs)
        self.beta = beta

    def forward(self, pred: Tensor, label: Tensor) -> Tensor:
        """Returns the loss.

        Parameters
        ----------
        pred : Tensor
            Predicted values, of any shape.
        label : Tensor
            True values, of the shape of ``pred``.

        Returns
        -------
        Tensor
            0-d, or the loss of each element for "none".
        """
        return F.loss.smooth_l1_loss(pred, label, self.reduction, self.beta)


class HuberLoss(_Loss):
    """Computes half of the squared error, and a line where it is large: `functional.loss.huber_loss`.

    Parameters
    ----------
    delta : float
        The error at which the parabola becomes a line.
    reduction : str
        "mean", "sum" or "none"; ValueError for another when called.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.HuberLoss(delta=2.0, reduction="none")(mge.Tensor([1.0, 5.0]), mge.Tensor([0.0, 0.0])).tolist()
    [0.5, 8.0]
    """

    _repr_facts = "delta={0.delta}, reduction={0.reduction}"

    def __init__(self, delta: float = 1.0, reduction: str = "mean", **kwargs: Any) -> None:
        super().__init__(reduction, **kwargs)
        self.delta = delta

    def forward(self, pred: Tensor, label: Tensor) -> Tensor:
        """Returns the loss.

        Parameters
        ----------
        pred : Tensor
            Predicted values, of any shape.
        label : Tensor
            True values, of the shape of ``pred``.

        Returns
        -------
        Tensor
            0-d, or the loss of each element for "none".
        """
        return F.loss.huber_loss(pred, label, self.reduction, self.delta)


class KLDivLoss(_Loss):
    """Computes the Kullback-Leibler divergence: `functional.loss.kl_div`.

    Parameters
    ----------
    log_target : bool
        Whether labels hold logarithms of probabilities, too.
    reduction : str
        "batchmean", "mean", "sum" or "none".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.KLDivLoss(reduction="batchmean")(mge.Tensor([[-1.0, -2.0]]), mge.Tensor([[1.0, 0.0]])).item()
    1.0
    """

    _repr_facts = "log_target={0.log_target}, reduction={0.reduction}"

    def __init__(self, log_target: bool = False, reduction: str = "mean", **kwargs: Any) -> None:
        super().__init__(reduction, **kwargs)
        self.log_target = log_target

    def forward(self, pred: Tensor, label: Tensor) -> Tensor:
        """Returns the loss.

        Parameters
        ----------
        pred : Tensor
            (N, ...), logarithms of probabilities.
        label : Tensor
            True probabilities, of the shape of ``pred``.

        Returns
        -------
        Tensor
            0-d, or the loss of each element for "none".
        """
        return F.loss.kl_div(pred, label, self.reduction, self.log_target)


class CosineEmbeddingLoss(_Loss):
    """Computes how far the cosines of pairs are from those that labels ask for:
    `functional.loss.cosine_embedding_loss`.

    Parameters
    ----------
    margin : float
        Cosine up to which a pair that does not belong together has no loss.
    reduction : str
        "mean", "sum" or "none"; ValueError for another when called.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> x, y = mge.Tensor([[1.0, 0.0]]), mge.Tensor([[0.0, 2.0]])
    >>> M.CosineEmbeddingLoss()(x, y, mge.Tensor([1])).item()
    1.0
    """

    _repr_facts = "margin={0.margin}, reduction={0.reduction}"

    def __init__(self, margin: float = 0.0, reduction: str = "mean", **kwargs: Any) -> None:
        super().__init__(reduction, **kwargs)
        self.margin = margin

    def forward(self, x1: Tensor, x2: Tensor, label: Tensor) -> Tensor:
        """Returns the loss.

        Parameters
        ----------
        x1 : Tensor
            First vector of each pair, (N, size).
        x2 : Tensor
            Second vector of each pair, (N, size).
        label : Tensor
            (N,): 1 for a pair that belongs together, -1 for others.

        Returns
        -------
        Tensor
            0-d, or the loss of each pair for "none".
        """
        return F.loss.cosine_embedding_loss(x1, x2, label, self.margin, self.reduction)


class TripletMarginLoss(_Loss):
    """Computes by how much an anchor fails to be nearer to the positive than to the negative:
    `functional.loss.triplet_margin_loss`.

    Parameters
    ----------
    margin : float
        By how much the positive must be nearer than the negative.
    p : float
        Order of the norm that measures distances.
    swap : bool
        Whether to take the distance of positive and negative where it is less than that of anchor
        and negative.
    reduction : str
        "mean", "sum" or "none"; ValueError for another when called.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> near, far = mge.Tensor([[0.0, 1.0]]), mge.Tensor([[3.0, 4.0]])
    >>> round(M.TripletMarginLoss(margin=5.0)(mge.functional.zeros((1, 2)), near, far).item(), 3)
    1.0
    """

    _repr_facts = "margin={0.margin}, p={0.p}, swap={0.swap}, reduction={0.reduction}"

    def __init__(self, margin: float = 1.0, p: float = 2.0, swap: bool = False, reduction: str = "mean", **kwargs: Any) -> None:
        super().__init__(reduction, **kwargs)
        self.margin = margin
        self.p = p
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Returns the loss.

        Parameters
        ----------
        anchor : Tensor
            Vectors that are compared, (N, size).
        positive : Tensor
            Vectors that must be near, (N, size).
        negative : Tensor
            Vectors that must be far, (N, size).

        Returns
        -------
        Tensor
            0-d, or the loss of each triple for "none".
        """
        return F.loss.triplet_margin_loss(anchor, positive, negative, self.margin, self.p, swap=self.swap, reduction=self.reduction)
