"""Functions of neural networks."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .. import _words
from ._activation import (
    dropout,
    gelu,
    hsigmoid,
    hswish,
    leaky_relu,
    logsigmoid,
    logsoftmax,
    logsumexp,
    prelu,
    relu,
    relu6,
    sigmoid,
    silu,
    softmax,
    softplus,
)  # fmt: skip
from ._attention import multi_head_attention, scaled_dot_product_attention
from ._conv import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose2d,
    conv_transpose3d,
    linear,
    local_conv2d,
    region_restricted_conv,
)  # fmt: skip
from ._deform import deformable_conv2d
from ._index import embedding, indexing_one_hot, one_hot
from ._norm import batch_norm, general_norm, group_norm, instance_norm, layer_norm, sync_batch_norm
from ._roi import deformable_psroi_pooling
from ._window import (
    adaptive_avg_pool2d,
    adaptive_max_pool2d,
    avg_pool2d,
    local_response_norm,
    max_pool2d,
    pad,
    pixel_shuffle,
    sliding_window,
    sliding_window_transpose,
)  # fmt: skip
from .loss import *  # noqa: F403 (older programs take losses and vision functions from here)
from .math import normalize
from .metric import topk_accuracy  # noqa: F401
from .tensor import *  # noqa: F403
from .vision import *  # noqa: F403
from .vision import remap, warp_affine, warp_perspective

__all__ = [
    "adaptive_avg_pool2d", "adaptive_max_pool2d", "avg_pool2d", "batch_norm", "conv1d", "conv2d",
    "conv3d", "conv_transpose2d", "conv_transpose3d", "deformable_conv2d",
    "deformable_psroi_pooling", "dropout", "embedding", "gelu", "general_norm", "group_norm",
    "hsigmoid", "instance_norm", "hswish", "indexing_one_hot", "layer_norm", "leaky_relu", "linear",
    "local_conv2d", "local_response_norm", "logsigmoid", "logsumexp", "logsoftmax", "max_pool2d",
    "normalize", "one_hot", "prelu", "pad", "relu", "relu6", "remap", "sigmoid", "sliding_window",
    "sliding_window_transpose", "silu", "softmax", "softplus", "sync_batch_norm", "warp_affine",
    "warp_perspective", "pixel_shuffle", "region_restricted_conv", "multi_head_attention",
    "scaled_dot_product_attention",
]  # fmt: skip


if not _TYPE_CHECKING:
    __getattr__ = _words.module_getattr(__name__, "F")
