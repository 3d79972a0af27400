"""Scales convolution weights to a common norm, and the batch normalization behind them back.

A convolution followed by batch normalization does not change when its weights are scaled per output
channel and the statistics with them; weights of similar size quantise better.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from ..module import BatchNorm2d, Conv2d, Module
from ..tensor import Parameter, Tensor


def get_norm_mod_value(weight: Tensor, norm_value: float) -> Tensor:
    """Factor per output channel that brings each filter's largest weight to ``norm_value``."""
    array = weight.numpy()
    largest = np.abs(array.reshape(array.shape[0], -1)).max(axis=1)
    factors = np.where(largest > 0, norm_value / np.maximum(largest, 1e-12), 1.0)
    return Tensor(factors.astype(np.float32).reshape((-1,) + (1,) * (array.ndim - 1)))


def _scale_pair(conv: Conv2d, bn: BatchNorm2d, norm_value: float) -> None:
    """Scales ``conv`` and the statistics of the ``bn`` behind it; together they compute what they
    did.
    """
    factors = (
        get_norm_mod_value(conv.weight.reshape(-1, *conv.weight._tuple_shape[-3:]), norm_value)
        .numpy()
        .reshape(-1)
    )
    shape = conv.weight._tuple_shape
    per_filter = factors.reshape(shape[:-3] + (1, 1, 1))
    conv.weight = Parameter(conv.weight.numpy() * per_filter)
    if conv.bias is not None:
        conv.bias = Parameter(conv.bias.numpy() * factors.reshape(conv.bias._tuple_shape))
    mean: Any = bn.running_mean
    variance: Any = bn.running_var
    across = factors.reshape(mean._tuple_shape)
    mean[...] = Tensor(mean.numpy() * across)
    # (var + eps) must scale too, so that the result stays the same for small variances.
    var = (variance.numpy() + bn.eps) * across**2 - bn.eps
    variance[...] = Tensor(np.maximum(var, 0.0))


def get_scaled_model(
    model: Module,
    scale_submodel: Callable[[str, Module, float], float | None],
    input_shape: Sequence[int] | None = None,
) -> Module:
    """A copy of ``model`` whose convolutions in front of batch normalizations have weights of norm
    1.

    scale_submodel(name, module, norm_value) decides: it returns the largest absolute weight wanted
    for a convolution (None leaves it). Pairs are siblings in order of definition. ``input_shape``
    checks the result on random data: RuntimeError when it computes something else.
    """
    scaled = deepcopy(model)
    scaled.eval()
    previous = None
    for name, child in scaled.named_modules():
        if isinstance(child, BatchNorm2d) and previous is not None:
            wanted = scale_submodel(previous[0], previous[1], 1.0)
            if wanted is not None:
                _scale_pair(previous[1], child, float(wanted))
        previous = (name, child) if isinstance(child, Conv2d) else None
    if input_shape is not None:
        x = Tensor(np.random.default_rng(0).normal(size=input_shape).astype(np.float32))
        before = deepcopy(model)
        before.eval()
        a, b = before(x).numpy(), scaled(x).numpy()
        if not np.allclose(a, b, rtol=1e-3, atol=1e-4):
            raise RuntimeError(
                f"get_scaled_model: results differ by up to {np.abs(a - b).max():.3g}"
            )
    return scaled
