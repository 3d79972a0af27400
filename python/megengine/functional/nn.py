"""Functions of neural networks."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .. import _words
from ._activation import (
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
from ._bags import embedding_bag
from ._conv import (
    bilinear,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    linear,
    local_conv2d,
    region_restricted_conv,
)  # fmt: skip
from ._deform import deformable_conv2d
from ._distances import cosine_similarity, pairwise_distance
from ._dropout import dropout, dropout2d
from ._index import embedding, indexing_one_hot, one_hot
from ._norm import batch_norm, general_norm, group_norm, instance_norm, layer_norm, sync_batch_norm
from ._pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    avg_pool1d,
    avg_pool2d,
    max_pool1d,
    max_pool2d,
)  # fmt: skip
from ._rms_norm import rms_norm
from ._roi import deformable_psroi_pooling
from ._units import celu, elu, glu, mish, selu
from ._window import (
    fold,
    local_response_norm,
    pad,
    pixel_shuffle,
    pixel_unshuffle,
    sliding_window,
    sliding_window_transpose,
    unfold,
)  # fmt: skip
from .loss import *  # noqa: F403 (older programs take losses and vision functions from here)
from .math import normalize
from .metric import topk_accuracy  # noqa: F401
from .tensor import *  # noqa: F403
from .vision import *  # noqa: F403
from .vision import remap, warp_affine, warp_perspective

log_softmax = logsoftmax  # a second name: PyTorch's and JAX's

__all__ = [
    "adaptive_avg_pool1d", "adaptive_max_pool1d", "avg_pool1d", "bilinear", "celu", "conv_transpose1d", "cosine_similarity", "dropout2d", "elu",
    "embedding_bag", "fold", "glu", "log_softmax", "max_pool1d", "mish", "pairwise_distance", "pixel_unshuffle", "rms_norm", "selu", "unfold",
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
