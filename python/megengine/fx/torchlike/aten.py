"""Operators of exported programs whose arguments differ from those of torch's functions: a table."""

from __future__ import annotations

from typing import Any

from ... import functional as F
from ...tensor import Tensor
from .._intercept import wrap
from . import elementwise, images, networks, pooling, recurrent, shapes


def native_batch_norm(input, weight, bias, *settings):
    """Returns (result, None, None). settings: running statistics, if any; training, if not known;
    momentum, eps.
    """
    *running, momentum, eps = settings
    training = running.pop() if len(running) in (1, 3) else False
    if training and running:
        raise ValueError("batch normalization in training that updates its statistics by itself")
    mean, var = running or (None, None)
    y = networks.batch_norm(input, mean, var, weight, bias, training, momentum, eps)
    return y, None, None


@wrap
def batch_norm_functional(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    """Normalizes in training; returns (result, None, None, new running mean, new running variance).
    """
    given: dict[str, Any] = {"training": training, "momentum": 1 - momentum, "eps": eps, "inplace": False}
    out, mean, var = F.batch_norm(input, mean, var, weight, bias, **given)
    return out, None, None, mean, var


def elu(input, alpha=1, scale=1, input_scale=1):
    below = alpha * F.expm1(F.minimum(input * input_scale, 0))
    return F.where(input > 0, input, below) * scale


def _upsample(mode: str, corners: bool):
    """``(input, size, align_corners, scales)``, where the scales are a list, or numbers of their own."""

    def upsample(input, size, *settings):
        align, scales = (settings[0], settings[1:]) if corners else (None, settings)
        scale = None if size is not None else scales[0]
        return images.interpolate(input, size, scale, mode, align)

    return upsample


def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    rank = len(stride)
    if transposed:
        return networks.FUNCTIONS[f"conv_transpose{rank}d"](input, weight, bias, stride, padding, output_padding, groups, dilation)
    return networks.FUNCTIONS[f"conv{rank}d"](input, weight, bias, stride, padding, dilation, groups)


def _in_float32(input, wanted):
    return input.astype("float32") if wanted else input


OPERATORS = {
    **recurrent.OPERATORS,
    "convolution": convolution,
    "max_pool2d_with_indices": lambda input, *settings: (pooling.FUNCTIONS["max_pool2d"](input, *settings), None),
    "max_pool3d_with_indices": lambda input, *settings: (pooling.FUNCTIONS["max_pool3d"](input, *settings), None),
    "adaptive_max_pool2d": lambda input, output_size: (pooling.adaptive_max_pool2d(input, output_size), None),
    "_adaptive_avg_pool2d": pooling.FUNCTIONS["adaptive_avg_pool2d"],
    "_adaptive_avg_pool3d": pooling.FUNCTIONS["adaptive_avg_pool3d"],
    "batch_norm": lambda input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled=True: networks.batch_norm(
        input, running_mean, running_var, weight, bias, training, momentum, eps),
    "instance_norm": lambda input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, *ignored: networks.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps),
    "_native_batch_norm_legit": native_batch_norm,
    "_native_batch_norm_legit_no_training": native_batch_norm,
    "_native_batch_norm_legit_functional": batch_norm_functional,
    "layer_norm": lambda input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True: networks.layer_norm(
        input, normalized_shape, weight, bias, eps),
    "native_layer_norm": lambda input, normalized_shape, weight, bias, eps: (
        networks.layer_norm(input, normalized_shape, weight, bias, eps), None, None),
    "group_norm": lambda input, num_groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True: networks.group_norm(
        input, num_groups, weight, bias, eps),
    "native_group_norm": lambda input, weight, bias, N, C, HxW, group, eps: (
        networks.group_norm(input, group, weight, bias, eps), None, None),
    "dropout": lambda input, p, train: images.dropout(input, p, train),
    "feature_dropout": lambda input, p, train: images.feature_dropout(input, p, train),
    "native_dropout": lambda input, p, train: (images.dropout(input, p, train), None),
    "embedding": lambda weight, indices, *options: networks.embedding(indices, weight),
    "_softmax": lambda input, dim, half_to_float=False: F.softmax(_in_float32(input, half_to_float), axis=dim),
    "_log_softmax": lambda input, dim, half_to_float=False: F.logsoftmax(_in_float32(input, half_to_float), axis=dim),
    "softmax": lambda input, dim, dtype=None: elementwise.softmax(input, dim, dtype=dtype),
    "log_softmax": lambda input, dim, dtype=None: elementwise.log_softmax(input, dim, dtype=dtype),
    "elu": elu,
    "constant_pad_nd": lambda input, pad, value=0: images.pad(input, pad, "constant", value),
    **dict.fromkeys(("reflection_pad1d", "reflection_pad2d"), lambda input, padding: images.pad(input, padding, "reflect")),
    **dict.fromkeys(("replication_pad1d", "replication_pad2d"), lambda input, padding: images.pad(input, padding, "replicate")),
    **dict.fromkeys(("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"), _upsample("nearest", False)),
    "_upsample_nearest_exact2d": _upsample("nearest-exact", False),
    "upsample_linear1d": _upsample("linear", True),
    "upsample_bilinear2d": _upsample("bilinear", True),
    "upsample_trilinear3d": _upsample("trilinear", True),
    "upsample_bicubic2d": _upsample("bicubic", True),
    "_to_copy": lambda input, *, dtype=None, **options: shapes.to(input, dtype),
    **dict.fromkeys(
        ("index", "_unsafe_index"), lambda input, indices: input[tuple(slice(None) if i is None else i for i in indices)]
    ),
}  # fmt: skip
