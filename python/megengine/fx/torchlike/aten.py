"""Operators of exported programs whose arguments differ from those of torch's functions."""

from __future__ import annotations

from typing import Any

from ... import functional as F
from .._intercept import wrap
from . import elementwise, images, networks, pooling, shapes


def convolution(
    input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
):
    rank = len(stride)
    if transposed:
        function = getattr(networks, f"conv_transpose{rank}d")
        return function(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return getattr(networks, f"conv{rank}d")(input, weight, bias, stride, padding, dilation, groups)


def max_pool2d_with_indices(input, *settings):
    return pooling.max_pool2d(input, *settings), None


def max_pool3d_with_indices(input, *settings):
    return pooling.max_pool3d(input, *settings), None


def batch_norm(
    input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled=True
):
    return networks.batch_norm(
        input, running_mean, running_var, weight, bias, training, momentum, eps
    )


def instance_norm(
    input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, *ignored
):
    return networks.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


def native_batch_norm(input, weight, bias, *settings):
    """(result, None, None). settings: running statistics, if any; training, if not known; momentum, eps."""
    *running, momentum, eps = settings
    training = running.pop() if len(running) in (1, 3) else False
    if training and running:
        raise ValueError("batch normalization in training that updates its statistics by itself")
    mean, var = running or (None, None)
    y = networks.batch_norm(input, mean, var, weight, bias, training, momentum, eps)
    return y, None, None


@wrap
def batch_norm_functional(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    """In training: (result, None, None, new running mean, new running variance)."""
    given: dict[str, Any] = {"training": training, "momentum": 1 - momentum, "eps": eps, "inplace": False}
    out, mean, var = F.batch_norm(input, mean, var, weight, bias, **given)
    return out, None, None, mean, var


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    return networks.layer_norm(input, normalized_shape, weight, bias, eps)


def native_layer_norm(input, normalized_shape, weight, bias, eps):
    return networks.layer_norm(input, normalized_shape, weight, bias, eps), None, None


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True):
    return networks.group_norm(input, num_groups, weight, bias, eps)


def native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    return networks.group_norm(input, group, weight, bias, eps), None, None


def dropout(input, p, train):
    return images.dropout(input, p, train)


def feature_dropout(input, p, train):
    return images.channel_dropout(input, p, train)


def native_dropout(input, p, train):
    return images.dropout(input, p, train), None


def embedding(weight, indices, *options):
    return F.embedding(indices, weight)


def softmax(input, dim, half_to_float=False):
    return F.softmax(input.astype("float32") if half_to_float else input, axis=dim)


def log_softmax(input, dim, half_to_float=False):
    return F.logsoftmax(input.astype("float32") if half_to_float else input, axis=dim)


def softmax_int(input, dim, dtype=None):
    return elementwise.softmax(input, dim, dtype=dtype)


def log_softmax_int(input, dim, dtype=None):
    return elementwise.log_softmax(input, dim, dtype=dtype)


def elu(input, alpha=1, scale=1, input_scale=1):
    below = alpha * F.expm1(F.minimum(input * input_scale, 0))
    return F.where(input > 0, input, below) * scale


def adaptive_max_pool2d(input, output_size):
    return pooling.adaptive_max_pool2d(input, output_size), None


def constant_pad(input, pad, value=0):
    return images.pad(input, pad, "constant", value)


def reflection_pad(input, padding):
    return images.pad(input, padding, "reflect")


def replication_pad(input, padding):
    return images.pad(input, padding, "replicate")


def _upsample(mode: str, corners: bool):
    """``(input, size, align_corners, scales)``, where the scales are a list, or numbers of their own."""

    def upsample(input, size, *settings):
        align, scales = (settings[0], settings[1:]) if corners else (None, settings)
        scale = None if size is not None else scales[0]
        return images.interpolate(input, size, scale, mode, align)

    return upsample


UPSAMPLING = {
    "upsample_nearest1d": _upsample("nearest", False), "upsample_nearest2d": _upsample("nearest", False),
    "upsample_nearest3d": _upsample("nearest", False), "_upsample_nearest_exact2d": _upsample("nearest-exact", False),
    "upsample_linear1d": _upsample("linear", True), "upsample_bilinear2d": _upsample("bilinear", True),
    "upsample_trilinear3d": _upsample("trilinear", True), "upsample_bicubic2d": _upsample("bicubic", True),
}  # fmt: skip


def to_copy(input, *, dtype=None, **options):
    return shapes.to(input, dtype)
