"""Clipping of gradients, in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import functional as F
from ..core import ops
from ..core.row_gradient import RowGradient, refuse_rows
from ..distributed._parts import ShardedParameter
from ..distributed.functional import all_reduce_max, all_reduce_sum
from ..distributed.group import Group
from ..tensor import Parameter, Tensor
from .optimizer import scalar, write

__all__ = ["clip_grad_norm", "clip_grad_value"]


def clip_grad_norm(tensors: Tensor | Iterable[Tensor], max_norm: float, ord: float = 2.0) -> Tensor:
    """Scales the gradients of ``tensors`` in place to a common norm of at most ``max_norm``.

    Parameters
    ----------
    tensors : Tensor or iterable of Tensor
        One tensor or several; tensors without ``grad`` are skipped. The norm is 0 if no parameter
        has one.
    max_norm : float
        Largest norm; gradients with a larger one are scaled down to it.
    ord : float
        Order of the norm, above 0; infinity for the largest absolute value.

    Returns
    -------
    Tensor
        The norm before scaling, 0-d, float32.

    Raises
    ------
    TypeError
        If one of them is not a Tensor, or max_norm is a text.
    ValueError
        For an ``ord`` of 0 or less, a negative ``max_norm``, or tensors (such as gradients) among which
        there is no parameter and none that has a ``grad``.

    See Also
    --------
    clip_grad_value : Limits each element by itself.

    References
    ----------
    Pascanu et al. 2013, "On the difficulty of training recurrent neural networks".

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> x = mge.Tensor([0.0, 0.0])
    >>> x.grad = mge.Tensor([3.0, 4.0])
    >>> round(optim.clip_grad_norm(x, max_norm=1.0).item(), 3)
    5.0
    >>> [round(g, 3) for g in x.grad.tolist()]
    [0.6, 0.8]
    """
    ord = float(ord)
    if not ord > 0:
        raise ValueError(f"clip_grad_norm: ord must be above 0, got {ord}")
    if isinstance(max_norm, str):
        raise TypeError(f"clip_grad_norm: max_norm must be a number, got {max_norm!r}")
    if not isinstance(max_norm, Tensor) and not max_norm >= 0:
        raise ValueError(f"clip_grad_norm: max_norm must be at least 0, got {max_norm}")
    given = _with_grads("clip_grad_norm", tensors)
    if not given:
        return Tensor(0.0)
    norm = _norm_of(given, ord)
    scale = ops.minimum(scalar(max_norm, norm) / (norm + 1e-6), 1.0)
    for tensor in given:
        write(tensor.grad, tensor.grad * scale)
    return norm


def _norm_of(tensors: list[Any], ord: float) -> Tensor:
    """Returns the norm of the gradients; for parameters that are parts, the norm over all
    processes.
    """
    is_largest = ord == float("inf")
    by_group: dict[Group | None, Tensor] = {}
    for tensor in tensors:
        grad, group = tensor.grad, tensor._group if isinstance(tensor, ShardedParameter) else None
        if is_largest:
            part = F.max(ops.abs(grad))
        elif ord == 2.0:
            part = F.sum(ops.square(grad.astype("float32")))
        else:
            part = F.sum(ops.abs(grad.astype("float32")) ** ord)
        before = by_group.get(group)
        by_group[group] = part if before is None else _joined(before, part, is_largest)
    total: Any = None  # a Tensor after the first
    for group, part in by_group.items():
        if group is not None:
            part = (all_reduce_max if is_largest else all_reduce_sum)(part, group)
        total = part if total is None else _joined(total, part, is_largest)
    if is_largest:
        return total.astype("float32")
    return ops.sqrt(total) if ord == 2.0 else total ** (1.0 / ord)


def _joined(a: Tensor, b: Tensor, is_largest: bool) -> Tensor:
    return ops.maximum(a, b) if is_largest else a + b


def clip_grad_value(tensors: Tensor | Iterable[Tensor], lower: float, upper: float) -> None:
    """Limits every element of the gradients of ``tensors`` to [lower, upper], in place.

    Parameters
    ----------
    tensors : Tensor or iterable of Tensor
        One tensor or several; tensors without ``grad`` are skipped.
    lower, upper : float
        Bounds of each element.

    Raises
    ------
    TypeError, ValueError
        As `clip_grad_norm` for ``tensors``.

    See Also
    --------
    clip_grad_norm : Limits the norm and keeps the direction.

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> x = mge.Tensor([0.0, 0.0])
    >>> x.grad = mge.Tensor([3.0, -4.0])
    >>> optim.clip_grad_value(x, lower=-1.0, upper=5.0)
    >>> x.grad.tolist()
    [3.0, -1.0]
    """
    grads = [tensor.grad for tensor in _with_grads("clip_grad_value", tensors)]
    if not grads:
        return
    low, high = scalar(lower, grads[0]), scalar(upper, grads[0])
    for grad in grads:
        write(grad, ops.minimum(ops.maximum(grad, low), high))


def _with_grads(function: str, tensors: Tensor | Iterable[Tensor]) -> list[Any]:
    """Returns the tensors that have a gradient. Parameters may all lack one, as a GradScaler drops
    gradients that overflowed.
    """
    given = [tensors] if isinstance(tensors, Tensor) or not isinstance(tensors, Iterable) else list(tensors)
    for tensor in given:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{function}: got a {type(tensor).__name__}\n  fix: give Tensors that have a grad, as net.parameters()")
    found = [tensor for tensor in given if tensor.grad is not None]
    for tensor in found:
        if isinstance(tensor.grad, RowGradient):
            refuse_rows(function, tensor.grad.shape, "leave it out")
    if given and not found and not any(isinstance(tensor, Parameter) for tensor in given):
        shapes = ", ".join(str(list(tensor._tuple_shape)) for tensor in given[:3])
        raise ValueError(
            f"{function}: no grad in {len(given)} tensor(s) of shape {shapes}{', ...' if len(given) > 3 else ''}, and none is a parameter\n"
            "  fix: give net.parameters() behind gm.backward(loss), not their gradients"
        )
    return found
