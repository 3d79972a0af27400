"""In-place update of a tensor: the handle holds a new value."""

from ..core.ops.builtin import InplaceAdd, apply  # noqa: F401
from ..tensor import Tensor


def _inplace_add_(
    dest: Tensor, delta: Tensor, alpha: float | Tensor, beta: float | Tensor
) -> Tensor:
    """``dest = alpha * dest + beta * delta``; returns ``dest``."""
    dest._reset(dest * alpha + delta * beta)
    return dest
