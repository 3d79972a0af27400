"""Activations, softmax and dropout."""

from collections.abc import Sequence

from ..core import ops
from ..core.tensor.amp import to_high as _to_high
from ..core.tensor.array_method import require_tensors
from ..core.tensor.shapes import in_order_of, normalize_axes, normalize_axis
from ..random.rng import default_random_state
from ..tensor import Tensor
from ._of_ops import unary as _unary

relu = _unary(ops.relu)
relu6 = _unary(ops.relu6)
sigmoid = _unary(ops.sigmoid)
hsigmoid = _unary(ops.hsigmoid)
hswish = _unary(ops.hswish)
silu = _unary(ops.silu)
gelu = _unary(ops.gelu)


def leaky_relu(inp: Tensor, negative_slope: float = 0.01) -> Tensor:
    """``x`` where positive, else ``negative_slope * x``."""
    return ops.leaky_relu(inp, negative_slope=float(negative_slope))


def prelu(x: Tensor, y: Tensor) -> Tensor:
    """``x`` where positive, else ``y * x``; the slope ``y`` broadcasts."""
    return ops.prelu(x, y)


def softplus(inp: Tensor) -> Tensor:
    """``log(1 + exp(x))``, finite for every finite ``x``."""
    return ops.softplus(_to_high(inp))


def logsigmoid(inp: Tensor) -> Tensor:
    """``log(sigmoid(x))``, finite for every finite ``x``."""
    return ops.logsigmoid(_to_high(inp))


def softmax(inp: Tensor, axis: int | None = None) -> Tensor:
    """``exp(x) / sum(exp(x))`` along ``axis``; axis None is 0 for 0-, 1- and 3-d tensors, else 1."""
    require_tensors("softmax", inp)
    ndim = inp.ndim
    if axis is None:
        axis = 0 if ndim in (0, 1, 3) else 1
    if ndim == 0:
        return ops.full(shape=(), value=1.0, dtype=inp.dtype.name, device=inp)
    if isinstance(axis, (list, tuple)):
        axes = normalize_axes(axis, ndim, "softmax")
        shifted = ops.exp(ops.sub(inp, ops.reduce_max(inp, axes=axes, keepdims=True)))
        return ops.true_div(shifted, ops.reduce_sum(shifted, axes=axes, keepdims=True))
    return ops.softmax(inp, axis=normalize_axis(axis, ndim, "softmax"))


def logsoftmax(inp: Tensor, axis: int) -> Tensor:
    """``x - logsumexp(x)`` along ``axis``."""
    require_tensors("logsoftmax", inp)
    inp = _to_high(inp)
    if isinstance(axis, (list, tuple)):
        return ops.sub(inp, logsumexp(inp, axis, keepdims=True))
    return ops.log_softmax(inp, axis=normalize_axis(axis, inp.ndim, "logsoftmax"))


def logsumexp(inp: Tensor, axis: int | Sequence[int], keepdims: bool = False) -> Tensor:
    """``log(sum(exp(x)))`` along ``axis``, without overflow: shifted by the largest finite element."""
    require_tensors("logsumexp", inp)
    inp = _to_high(inp)
    axes = normalize_axes(axis, inp.ndim, "logsumexp")
    shift = ops.reduce_max(inp.detach(), axes=axes, keepdims=True)
    shift = ops.where(
        ops.isfinite(shift), shift, ops.full(shape=(), value=0.0, dtype=shift.dtype.name, device=shift)
    )
    total = ops.reduce_sum(ops.exp(ops.sub(inp, shift)), axes=axes, keepdims=True)
    y = ops.add(ops.log(total), shift)
    if keepdims:
        return y
    return ops.reshape(y, shape=tuple(n for a, n in enumerate(y._tuple_shape) if a not in axes))


def dropout(inp: Tensor, drop_prob: float, training: bool = True) -> Tensor:
    """Zeroes elements with probability ``drop_prob`` and scales the others by ``1 / (1 -
    drop_prob)``.

    Identity unless training. AssertionError unless 0 <= drop_prob < 1.
    """
    require_tensors("dropout", inp)
    assert 0 <= drop_prob < 1, f"dropout: drop_prob {drop_prob} is not in [0, 1)"
    if not training or drop_prob == 0:
        return inp
    mask = ops.dropout_mask(
        default_random_state().key(inp._device_name), shape=inp._tuple_shape, drop_prob=float(drop_prob)
    )
    if inp.dtype.name != "float32":
        mask = ops.cast(mask, dtype=inp.dtype.name)
    return ops.mul(inp, in_order_of(inp, mask))
