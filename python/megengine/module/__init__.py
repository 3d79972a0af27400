"""Layers and models: `Module` and everything that is built on it.

The names that are published here are those in ``__all__`` of each file.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .. import _words
from ..core import _later
from . import (
    activation,
    adaptive_pooling,
    batch_matmul_activation,
    batchnorm,
    conv,
    conv_bn,
    conv_transpose1d,
    conv_transpose_bn,
    deformable_psroi_pooling,
    distances,
    dropout,
    elemwise,
    embedding,
    init,
    linear,
    linear_bn,
    loss,
    lrn,
    module,
    multiheadattn,
    normalization,
    padding,
    pixel_shuffle,
    pooling,
    quant_dequant,
    rnn,
    sequential,
    shaping,
    sliding_window,
    transformer,
    units,
)
from .activation import *  # noqa: F403
from .adaptive_pooling import *  # noqa: F403
from .batch_matmul_activation import *  # noqa: F403
from .batchnorm import *  # noqa: F403
from .conv import *  # noqa: F403
from .conv_bn import *  # noqa: F403
from .conv_transpose1d import *  # noqa: F403
from .conv_transpose_bn import *  # noqa: F403
from .deformable_psroi_pooling import *  # noqa: F403
from .distances import *  # noqa: F403
from .dropout import *  # noqa: F403
from .elemwise import *  # noqa: F403
from .embedding import *  # noqa: F403
from .linear import *  # noqa: F403
from .linear_bn import *  # noqa: F403
from .loss import *  # noqa: F403
from .lrn import *  # noqa: F403
from .module import *  # noqa: F403
from .multiheadattn import *  # noqa: F403
from .normalization import *  # noqa: F403
from .padding import *  # noqa: F403
from .pixel_shuffle import *  # noqa: F403
from .pooling import *  # noqa: F403
from .quant_dequant import *  # noqa: F403
from .rnn import *  # noqa: F403
from .sequential import *  # noqa: F403
from .shaping import *  # noqa: F403
from .sliding_window import *  # noqa: F403
from .transformer import *  # noqa: F403
from .units import *  # noqa: F403

# Layers for images are listed, for their files are not loaded before a program asks for one.
__all__ = [
    "init",
    "ActiveBlur", "AdditiveElemwise", "AdditiveGaussianNoise", "AdditiveLaplaceNoise",
    "AdditivePoissonNoise", "CropAndPad", "Cutmix", "Dilation", "Emboss", "FillPoly", "Flip",
    "GaussianBlur", "LinearContrast", "Mixup", "Remap", "Resize", "Rot90", "Rotate", "Sharpen",
]  # fmt: skip
__all__ += activation.__all__
__all__ += adaptive_pooling.__all__
__all__ += batch_matmul_activation.__all__
__all__ += batchnorm.__all__
__all__ += conv.__all__
__all__ += conv_bn.__all__
__all__ += conv_transpose1d.__all__
__all__ += conv_transpose_bn.__all__
__all__ += deformable_psroi_pooling.__all__
__all__ += distances.__all__
__all__ += dropout.__all__
__all__ += elemwise.__all__
__all__ += embedding.__all__
__all__ += linear.__all__
__all__ += linear_bn.__all__
__all__ += loss.__all__
__all__ += lrn.__all__
__all__ += module.__all__
__all__ += multiheadattn.__all__
__all__ += normalization.__all__
__all__ += padding.__all__
__all__ += pixel_shuffle.__all__
__all__ += pooling.__all__
__all__ += quant_dequant.__all__
__all__ += rnn.__all__
__all__ += sequential.__all__
__all__ += shaping.__all__
__all__ += sliding_window.__all__
__all__ += transformer.__all__
__all__ += units.__all__


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
