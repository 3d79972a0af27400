"""Normalization over a batch, a group, an instance or trailing axes."""

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import distributed
from ..core import ops
from ..core._origin import users_level
from ..core._telling import is_first
from ..core.tensor.amp import to_high as _to_high
from ..core.tensor.amp import to_low as _to_low
from ..core.tensor.array_method import require_tensors
from ..core.tensor.shapes import as_ints, normalize_axes
from ..tensor import Tensor

if TYPE_CHECKING:
    from ..distributed import Group


def _channels(x: Tensor | None, c: int, fallback: float, near: Tensor) -> Tensor:
    """A per-channel term as [c]."""
    if x is None:
        return ops.full(shape=(c,), value=fallback, dtype="float32", device=near)
    if math.prod(x._tuple_shape) != c:
        raise ValueError(
            f"batch_norm: the input has {c} channels, but a parameter or a statistic has shape {list(x._tuple_shape)}\n"
            "  fix: make num_features of the layer the number of channels, which are axis 1"
        )
    return x if x._tuple_shape == (c,) else ops.reshape(x, shape=(c,))


def batch_norm(
    inp: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    training: bool = False,
    momentum: float | Tensor = 0.9,
    eps: float = 1e-5,
    inplace: bool = True,
) -> Any:  # a Tensor; (out, mean, var) from training unless inplace
    """Normalizes each channel (axis 1) over the batch:
    ``(x - mean) / sqrt(var + eps) * weight + bias``.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, ...], float dtype.
    running_mean, running_var : Tensor or None
        One element per channel, such as [c] or [1, c, 1, 1]; they keep their dtype.
    weight : Tensor or None
        One element per channel; None means 1.
    bias : Tensor or None
        One element per channel; None means 0.
    training : bool
        Whether to take mean and (biased) variance from the batch; False takes the running
        statistics.
    momentum : float or Tensor
        Weight of the old running statistics: training sets them to ``momentum * old + (1 -
        momentum) * new``, where the new variance is the unbiased one.
    eps : float
        Number that is added to the variance.
    inplace : bool
        Whether to change the running statistics in place.

    Returns
    -------
    Tensor or (Tensor, Tensor, Tensor)
        The shape of ``inp``; from training with ``inplace=False`` also running_mean and running_var.

    Raises
    ------
    AssertionError
        Unless both running statistics are given in inference.

    See Also
    --------
    sync_batch_norm : Takes the statistics of all processes.
    module.BatchNorm2d : The layer, which holds the running statistics.

    References
    ----------
    Ioffe and Szegedy, 2015, "Batch Normalization".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> mean, var = F.zeros(1), F.ones(1)
    >>> x = Tensor([[1.0], [3.0]])  # two samples of one channel
    >>> F.batch_norm(x, mean, var, training=True, eps=0.0).numpy().round(4)
    array([[-1.],
           [ 1.]], dtype=float32)
    >>> mean.numpy().round(4), var.numpy().round(4)
    (array([0.2], dtype=float32), array([1.1], dtype=float32))
    """
    require_tensors("batch_norm", inp)
    if not training:
        if running_mean is None or running_var is None:
            raise AssertionError(f"running_{'mean' if running_mean is None else 'var'} must be provided in inference mode\n  why: batch_norm without training=True normalizes by the running statistics")
        return _normalize_by(_to_low(inp)[0], running_mean, running_var, weight, bias, eps)
    (inp,) = _to_low(inp)
    c = inp._tuple_shape[1]
    if inp.size == 0:  # no statistics; the running ones stay unchanged
        out = ops.identity(inp)
        return out if inplace or running_mean is None else (out, running_mean, running_var)
    out, mean, var = ops.batch_norm(
        inp, _channels(weight, c, 1.0, inp), _channels(bias, c, 0.0, inp), eps=float(eps)
    )
    count = inp.size // c if c else 0
    _tell_of_few_values(inp, count)
    if running_mean is not None:
        running_mean = _moved(running_mean, mean.detach(), momentum, 1.0, inplace)
    if running_var is not None:
        running_var = _moved(
            running_var, var.detach(), momentum, count / (count - 1) if count > 1 else 1.0, inplace
        )
    return out if inplace or running_mean is None else (out, running_mean, running_var)


def _moved(
    running: Tensor, batch: Tensor, momentum: float | Tensor, correction: float, inplace: bool
) -> Tensor:
    batch = ops.reshape(batch, shape=running._tuple_shape)
    moved = ops.add(ops.mul(running, momentum), ops.mul(batch, (1 - momentum) * correction))
    if moved.dtype != running.dtype:
        moved = ops.cast(moved, dtype=running.dtype.name)
    if not inplace:
        return moved
    running._reset(moved)
    return running


def _normalize_by(
    inp: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """The affine map of given statistics, as one multiply-add over the input."""
    c = inp._tuple_shape[1]
    across = (1, c) + (1,) * (inp.ndim - 2)
    scale = ops.rsqrt(ops.add(_channels(var, c, 1.0, inp), float(eps)))
    if weight is not None:
        scale = ops.mul(scale, _channels(weight, c, 1.0, inp))
    shift = ops.neg(ops.mul(_channels(mean, c, 0.0, inp), scale))
    if bias is not None:
        shift = ops.add(shift, _channels(bias, c, 0.0, inp))
    scale, shift = ops.reshape(scale, shape=across), ops.reshape(shift, shape=across)
    if inp.dtype != scale.dtype:
        scale, shift = (ops.cast(t, dtype=inp.dtype.name) for t in (scale, shift))
    return ops.fma3(inp, scale, shift)


def sync_batch_norm(
    inp: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.9,
    eps: float = 1e-5,
    eps_mode: str = "additive",
    group: "Group | None" = None,
) -> Tensor:
    """Normalizes as `batch_norm` does; in training the statistics are those of the batches of all
    processes.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, ...], float dtype.
    running_mean, running_var : Tensor or None
        One element per channel, such as [c] or [1, c, 1, 1]; training changes them in place.
    weight, bias : Tensor or None
        One element per channel; None means a weight of 1 and a bias of 0.
    training : bool
        Whether to take mean and (biased) variance from the batches of all processes; False takes
        the running statistics.
    momentum : float or Tensor
        Weight of the old running statistics: training sets them to ``momentum * old + (1 -
        momentum) * new``, where the new variance is the unbiased one.
    eps : float
        Number that is added to the variance, or bounds it; see ``eps_mode``.
    eps_mode : str
        "additive" adds eps to the variance, "max" takes the larger of the two.
    group : Group or None
        The processes, whose batches may differ in size; None means all.

    Returns
    -------
    Tensor
        The shape of ``inp``.

    Raises
    ------
    ValueError
        For another eps_mode.

    References
    ----------
    Chan, Golub and LeVeque, 1979, "Updating Formulae and a Pairwise Algorithm for Computing Sample
    Variances" (the merged variance).

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([[1.0], [3.0]])
    >>> F.sync_batch_norm(x, None, None, training=True, eps=4.0, eps_mode="max").numpy()
    array([[-0.5],
           [ 0.5]], dtype=float32)
    """
    if eps_mode.lower() not in ("additive", "max"):
        raise ValueError(f"sync_batch_norm: eps_mode {eps_mode!r} is neither 'additive' nor 'max'")
    additive = eps_mode.lower() == "additive"
    if additive and (not training or _group_size(group) == 1):
        return batch_norm(
            inp,
            running_mean,
            running_var,
            weight,
            bias,
            training=training,
            momentum=momentum,
            eps=eps,
        )
    if not training:
        if running_mean is None or running_var is None:
            raise AssertionError(f"running_{'mean' if running_mean is None else 'var'} must be provided in inference mode\n  why: sync_batch_norm without training=True normalizes by the running statistics")
        return _normalize_by(inp, running_mean, ops.maximum(running_var, eps), weight, bias, 0.0)
    _tell_of_few_values(inp, inp.size // max(inp._tuple_shape[1], 1) * _group_size(group))
    mean, var, count = _group_statistics(inp, group)
    if running_mean is not None:
        _moved(running_mean, mean.detach(), momentum, 1.0, True)
    if running_var is not None:
        unbiased = ops.mul(var.detach(), ops.true_div(count, ops.maximum(ops.sub(count, 1.0), 1.0)))
        _moved(running_var, unbiased, momentum, 1.0, True)
    if additive:
        return _normalize_by(inp, mean, var, weight, bias, eps)
    return _normalize_by(inp, mean, ops.maximum(var, eps), weight, bias, 0.0)


def _tell_of_few_values(inp: Tensor, count: int) -> None:
    """Warns once if a channel has a single value, which training normalizes to 0: the result is the
    bias for every value.
    """
    if count == 1 and is_first("batch_norm of one value a channel"):
        warnings.warn(
            f"batch_norm: in training, a channel of an input of shape {list(inp._tuple_shape)} has one value, whose mean is itself: the result is the bias alone\n"
            "  fix: train with more than one sample, leave the last incomplete batch out, or call eval()",
            stacklevel=users_level(),
        )


def _group_size(group: "Group | None") -> int:
    if not distributed.is_distributed():
        return 1
    return distributed.get_world_size() if group is None else group.size


def _group_statistics(inp: Tensor, group: "Group | None") -> tuple[Tensor, Tensor, Tensor]:
    """Returns mean and biased variance per channel over all processes, and the number of elements.

    Count, mean and M2 (the sum of squared distances from the mean) of each process are merged: nothing cancels, and
    batches may differ in size. Source: Chan, Golub and LeVeque, 1979, "Updating Formulae and a Pairwise Algorithm for
    Computing Sample Variances", equation 2.1.
    """
    c = inp._tuple_shape[1]
    axes = tuple(a for a in range(inp.ndim) if a != 1)
    x = ops.cast(inp, dtype="float32")
    count = inp.size // c if c else 0
    mean = ops.mul(ops.reduce_sum(x, axes=axes, keepdims=True), 1.0 / max(count, 1))
    m2 = ops.reduce_sum(ops.square(ops.sub(x, mean)), axes=axes, keepdims=False)
    counts = ops.full(shape=(c,), value=float(count), dtype="float32", device=inp)
    parts = ops.reshape(ops.concat(counts, ops.reshape(mean, shape=(c,)), m2, axis=0), shape=(1, 3, c))
    if _group_size(group) > 1:
        parts = distributed.functional.all_gather(parts, distributed.WORLD if group is None else group)
    counts, means, m2s = (parts[:, i] for i in range(3))  # each [processes, c]
    total = ops.reduce_sum(counts, axes=(0,), keepdims=False)
    mean = ops.true_div(ops.reduce_sum(ops.mul(counts, means), axes=(0,), keepdims=False), total)
    between = ops.mul(counts, ops.square(ops.sub(means, mean)))
    m2 = ops.reduce_sum(ops.add(m2s, between), axes=(0,), keepdims=False)
    return mean, ops.true_div(m2, total), total


def _layer_norm(
    x: Tensor, axes: int, eps: float, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    """Normalizes over the last ``axes`` axes; weight and bias have their shape, or are None."""
    inner = x._tuple_shape[x.ndim - axes :]
    if weight is None and bias is None:
        return ops.layer_norm(x, axes=axes, eps=float(eps), affine=False)[0]
    weight = (
        ops.full(shape=inner, value=1.0, dtype="float32", device=x)
        if weight is None
        else _shaped(weight, inner)
    )
    bias = (
        ops.full(shape=inner, value=0.0, dtype="float32", device=x)
        if bias is None
        else _shaped(bias, inner)
    )
    return ops.layer_norm(x, weight, bias, axes=axes, eps=float(eps), affine=True)[0]


def _shaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x._tuple_shape == shape else ops.reshape(x, shape=shape)


def _terms(
    affine: bool, weight: Tensor | None, bias: Tensor | None, op: str
) -> tuple[Tensor, Tensor] | tuple[None, None]:
    if not affine:
        return None, None
    if weight is None or bias is None:
        raise AssertionError(f"{op}: affine needs weight and bias")
    return weight, bias


def layer_norm(
    inp: Tensor,
    normalized_shape: int | Sequence[int],
    affine: bool,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes over trailing axes, each sample by itself: ``(x - mean) / sqrt(var + eps)``.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [..., *normalized_shape], float dtype.
    normalized_shape : int or sequence of int
        The trailing extents that are normalized together.
    affine : bool
        Whether to multiply by ``weight`` and add ``bias``.
    weight, bias : Tensor or None
        Tensors of shape normalized_shape, needed if affine.
    eps : float
        Number that is added to the variance.

    Returns
    -------
    Tensor
        The shape of ``inp``.

    Raises
    ------
    ValueError
        For a shape that does not end in normalized_shape.
    AssertionError
        If affine is true and weight or bias is missing.

    See Also
    --------
    rms_norm : Leaves out the mean and the bias.
    group_norm : Normalizes groups of channels.
    module.LayerNorm : The layer, which holds weight and bias.

    References
    ----------
    Ba et al., 2016, "Layer Normalization".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.layer_norm(Tensor([[1.0, 3.0], [0.0, 80.0]]), 2, affine=False, eps=0.0).numpy().round(4)
    array([[-1.,  1.],
           [-1.,  1.]], dtype=float32)
    """
    require_tensors("layer_norm", inp)
    inp, weight, bias = _to_high(inp), _to_high(weight), _to_high(bias)
    shape = as_ints(normalized_shape, "layer_norm: normalized_shape")
    if inp._tuple_shape[-len(shape) :] != shape:
        raise ValueError(
            f"layer_norm: inp has shape {list(inp._tuple_shape)}, which does not end in {list(shape)}\n"
            "  fix: normalized_shape of the layer must be the last extents of its input"
        )
    weight, bias = _terms(affine, weight, bias, "layer_norm")
    return _layer_norm(inp, len(shape), eps, weight, bias)


def general_norm(
    inp: Tensor,
    normalized_axis: int | Sequence[int],
    affine: bool = True,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes over any axes: ``(x - mean) / sqrt(var + eps)``.

    Parameters
    ----------
    inp : Tensor
        Any shape, float dtype.
    normalized_axis : int or sequence of int
        The axes that are normalized together.
    affine : bool
        Whether to multiply by ``weight`` and add ``bias``.
    weight, bias : Tensor or None
        Tensors whose shape has the sizes of the normalized axes, in rising order; needed if affine.
    eps : float
        Number that is added to the variance.

    Returns
    -------
    Tensor
        The shape of ``inp``.

    Raises
    ------
    AssertionError
        If affine is true and weight or bias is missing.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.general_norm(Tensor([[1.0, 0.0], [3.0, 80.0]]), 0, affine=False, eps=0.0).numpy().round(4)
    array([[-1., -1.],
           [ 1.,  1.]], dtype=float32)
    """
    require_tensors("general_norm", inp)
    inp, weight, bias = _to_high(inp), _to_high(weight), _to_high(bias)
    ndim = inp.ndim
    axes = normalize_axes(normalized_axis, ndim, "general_norm")
    weight, bias = _terms(affine, weight, bias, "general_norm")
    perm = tuple(a for a in range(ndim) if a not in axes) + axes
    if perm == tuple(range(ndim)):
        return _layer_norm(inp, len(axes), eps, weight, bias)
    y = _layer_norm(ops.transpose(inp, perm=perm), len(axes), eps, weight, bias)
    return ops.transpose(y, perm=tuple(perm.index(a) for a in range(ndim)))


def group_norm(
    inp: Tensor,
    num_groups: int,
    affine: bool,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes each of ``num_groups`` groups of channels of each sample.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, ...], float dtype.
    num_groups : int
        Number of groups, which must divide the number of channels.
    affine : bool
        Whether to multiply by ``weight`` and add ``bias``.
    weight, bias : Tensor or None
        One element per channel, needed if affine.
    eps : float
        Number that is added to the variance.

    Returns
    -------
    Tensor
        The shape of ``inp``.

    Raises
    ------
    ValueError
        Where the channels do not split into num_groups equal parts.
    AssertionError
        If affine is true and weight or bias is missing.

    References
    ----------
    Wu and He, 2018, "Group Normalization".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([[1.0, 3.0, 0.0, 80.0]])  # one sample, four channels
    >>> F.group_norm(x, 2, affine=False, eps=0.0).numpy().round(4)
    array([[-1.,  1., -1.,  1.]], dtype=float32)
    """
    require_tensors("group_norm", inp)
    inp, weight, bias = _to_high(inp), _to_high(weight), _to_high(bias)
    shape = inp._tuple_shape
    n, c = shape[:2]
    if num_groups < 1 or c % num_groups:
        raise ValueError(f"group_norm: {c} channels do not split into {num_groups} groups")
    weight, bias = _terms(affine, weight, bias, "group_norm")
    y = ops.reshape(inp, shape=(n, num_groups, math.prod(shape[1:]) // num_groups))
    y = ops.reshape(_layer_norm(y, 1, eps, None, None), shape=shape)
    if weight is None or bias is None:
        return y
    across = (1, c) + (1,) * (len(shape) - 2)
    return ops.fma3(y, _shaped(weight, across), _shaped(bias, across))


def instance_norm(
    inp: Tensor,
    affine: bool,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes each channel of each sample by itself.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, ...], float dtype.
    affine : bool
        Whether to multiply by ``weight`` and add ``bias``.
    weight, bias : Tensor or None
        One element per channel, needed if affine.
    eps : float
        Number that is added to the variance.

    Returns
    -------
    Tensor
        The shape of ``inp``.

    Raises
    ------
    AssertionError
        If affine is true and weight or bias is missing.

    References
    ----------
    Ulyanov et al., 2016, "Instance Normalization: The Missing Ingredient for Fast Stylization".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.instance_norm(Tensor([[[1.0, 3.0], [0.0, 80.0]]]), affine=False, eps=0.0).numpy().round(4)
    array([[[-1.,  1.],
            [-1.,  1.]]], dtype=float32)
    """
    require_tensors("instance_norm", inp)
    return group_norm(inp, inp._tuple_shape[1], affine, weight, bias, eps)
