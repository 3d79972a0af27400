"""Layers and models: `Module` and everything that is built on it."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .. import _words
from ..core import _later
from . import init
from .activation import GELU, LeakyReLU, PReLU, ReLU, Sigmoid, SiLU, Softmax
from .adaptive_pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
)
from .batch_matmul_activation import BatchMatMulActivation
from .batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, SyncBatchNorm
from .conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvRelu2d,
    ConvTranspose2d,
    ConvTranspose3d,
    ConvTransposeRelu2d,
    DeformableConv2d,
    LocalConv2d,
    RegionRestrictedConv,
)
from .conv_bn import ConvBn2d, ConvBnRelu2d
from .conv_transpose1d import ConvTranspose1d
from .conv_transpose_bn import ConvTransposeBn2d, ConvTransposeBnRelu2d
from .deformable_psroi_pooling import DeformablePSROIPooling
from .distances import Bilinear, CosineSimilarity, PairwiseDistance
from .dropout import Dropout, Dropout2d
from .elemwise import Concat, Elemwise, Identity
from .embedding import Embedding, EmbeddingBag
from .linear import Linear, LinearRelu
from .linear_bn import LinearBn1d, LinearBnRelu1d
from .loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CosineEmbeddingLoss,
    CrossEntropyLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
    TripletMarginLoss,
)
from .lrn import LocalResponseNorm
from .module import Module
from .multiheadattn import MultiHeadAttention
from .normalization import GeneralNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm
from .padding import Pad
from .pixel_shuffle import PixelShuffle, PixelUnshuffle
from .pooling import AvgPool1d, AvgPool2d, MaxPool1d, MaxPool2d
from .quant_dequant import DequantStub, QuantStub
from .rnn import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from .sequential import Sequential
from .shaping import Flatten, Unflatten, Upsample
from .sliding_window import Fold, SlidingWindow, SlidingWindowTranspose, Unfold
from .transformer import (
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from .units import (
    CELU,
    ELU,
    GLU,
    SELU,
    Hardsigmoid,
    Hardswish,
    LogSigmoid,
    LogSoftmax,
    Mish,
    ReLU6,
    Softplus,
    Tanh,
)

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "GRU",
    "LSTM",
    "RNN",
    "SELU",
    "ActiveBlur",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdditiveElemwise",
    "AdditiveGaussianNoise",
    "AdditiveLaplaceNoise",
    "AdditivePoissonNoise",
    "AvgPool1d",
    "AvgPool2d",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchMatMulActivation",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Bilinear",
    "Concat",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvBn2d",
    "ConvBnRelu2d",
    "ConvRelu2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "ConvTransposeBn2d",
    "ConvTransposeBnRelu2d",
    "ConvTransposeRelu2d",
    "CosineEmbeddingLoss",
    "CosineSimilarity",
    "CropAndPad",
    "CrossEntropyLoss",
    "Cutmix",
    "DeformableConv2d",
    "DeformablePSROIPooling",
    "DequantStub",
    "Dilation",
    "Dropout",
    "Dropout2d",
    "Elemwise",
    "Embedding",
    "EmbeddingBag",
    "Emboss",
    "FillPoly",
    "Flatten",
    "Flip",
    "Fold",
    "GRUCell",
    "GaussianBlur",
    "GeneralNorm",
    "GroupNorm",
    "Hardsigmoid",
    "Hardswish",
    "HuberLoss",
    "Identity",
    "InstanceNorm",
    "KLDivLoss",
    "L1Loss",
    "LSTMCell",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LinearBn1d",
    "LinearBnRelu1d",
    "LinearContrast",
    "LinearRelu",
    "LocalConv2d",
    "LocalResponseNorm",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "MaxPool1d",
    "MaxPool2d",
    "Mish",
    "Mixup",
    "Module",
    "MultiHeadAttention",
    "NLLLoss",
    "PReLU",
    "Pad",
    "PairwiseDistance",
    "PixelShuffle",
    "PixelUnshuffle",
    "QuantStub",
    "RMSNorm",
    "RNNCell",
    "ReLU",
    "ReLU6",
    "RegionRestrictedConv",
    "Remap",
    "Resize",
    "Rot90",
    "Rotate",
    "Sequential",
    "Sharpen",
    "SiLU",
    "Sigmoid",
    "SlidingWindow",
    "SlidingWindowTranspose",
    "SmoothL1Loss",
    "Softmax",
    "Softplus",
    "SyncBatchNorm",
    "Tanh",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "TripletMarginLoss",
    "Unflatten",
    "Unfold",
    "Upsample",
    "init",
]


if _TYPE_CHECKING:
    from .vision import (
        ActiveBlur,
        AdditiveElemwise,
        AdditiveGaussianNoise,
        AdditiveLaplaceNoise,
        AdditivePoissonNoise,
        CropAndPad,
        Cutmix,
        Dilation,
        Emboss,
        FillPoly,
        Flip,
        GaussianBlur,
        LinearContrast,
        Mixup,
        Remap,
        Resize,
        Rot90,
        Rotate,
        Sharpen,
    )
else:
    _in_vision = " ".join(name for name in __all__ if name not in globals())
    __getattr__, __dir__ = _later.names_of(__name__, {"": "vision", "vision": _in_vision}, _words.module_getattr(__name__, "M"))
