"""Layers and models: `Module` and everything that is built on it."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .. import _words
from . import init
from .activation import GELU, LeakyReLU, PReLU, ReLU, Sigmoid, SiLU, Softmax
from .adaptive_pooling import AdaptiveAvgPool2d, AdaptiveMaxPool2d
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
from .conv_transpose_bn import ConvTransposeBn2d, ConvTransposeBnRelu2d
from .deformable_psroi_pooling import DeformablePSROIPooling
from .dropout import Dropout
from .elemwise import Concat, Elemwise, Identity
from .embedding import Embedding
from .linear import Linear, LinearRelu
from .linear_bn import LinearBn1d, LinearBnRelu1d
from .lrn import LocalResponseNorm
from .module import Module
from .multiheadattn import MultiHeadAttention
from .normalization import GeneralNorm, GroupNorm, InstanceNorm, LayerNorm
from .padding import Pad
from .pixel_shuffle import PixelShuffle
from .pooling import AvgPool2d, MaxPool2d
from .quant_dequant import DequantStub, QuantStub
from .rnn import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from .sequential import Sequential
from .sliding_window import SlidingWindow, SlidingWindowTranspose
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

__all__ = [
    "GELU",
    "GRU",
    "LSTM",
    "RNN",
    "ActiveBlur",
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool2d",
    "AdditiveElemwise",
    "AdditiveGaussianNoise",
    "AdditiveLaplaceNoise",
    "AdditivePoissonNoise",
    "AvgPool2d",
    "BatchMatMulActivation",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Concat",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvBn2d",
    "ConvBnRelu2d",
    "ConvRelu2d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "ConvTransposeBn2d",
    "ConvTransposeBnRelu2d",
    "ConvTransposeRelu2d",
    "CropAndPad",
    "Cutmix",
    "DeformableConv2d",
    "DeformablePSROIPooling",
    "DequantStub",
    "Dilation",
    "Dropout",
    "Elemwise",
    "Embedding",
    "Emboss",
    "FillPoly",
    "Flip",
    "GRUCell",
    "GaussianBlur",
    "GeneralNorm",
    "GroupNorm",
    "Identity",
    "InstanceNorm",
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
    "MaxPool2d",
    "Mixup",
    "Module",
    "MultiHeadAttention",
    "PReLU",
    "Pad",
    "PixelShuffle",
    "QuantStub",
    "RNNCell",
    "ReLU",
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
    "Softmax",
    "SyncBatchNorm",
    "init",
]


if not _TYPE_CHECKING:
    __getattr__ = _words.module_getattr(__name__, "M")
