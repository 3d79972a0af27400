"""Parts that losses share: the reduction, and the warning about shapes that broadcast."""

import warnings

from ..core import ops
from ..tensor import Tensor
from ._docs import Operand


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """Returns the mean or the sum of all elements, or ``loss`` itself."""
    if reduction == "mean":
        return ops.reduce_mean(loss, axes=tuple(range(loss.ndim)), keepdims=False)
    if reduction == "sum":
        return ops.reduce_sum(loss, axes=tuple(range(loss.ndim)), keepdims=False)
    if reduction == "none":
        return loss
    raise ValueError(f"{reduction} is not a valid value for reduction\n  fix: use 'mean', 'sum' or 'none'")


def warn_of_broadcast(name: str, pred: Tensor, label: Operand) -> None:
    """Warns the caller of the loss ``name`` where the two have different shapes."""
    shapes = getattr(pred, "_tuple_shape", ()), getattr(label, "_tuple_shape", ())
    if shapes[0] != shapes[1] and all(shapes):
        warnings.warn(
            f"{name}: pred has shape {list(shapes[0])} and label {list(shapes[1])}; they broadcast, which is seldom meant: "
            "reshape one of them",
            stacklevel=3,
        )
