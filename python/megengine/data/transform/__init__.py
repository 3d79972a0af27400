"""Transforms of samples, between dataset and collator: augmentation, resizing, normalization. Images are NumPy arrays (H, W, C)."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ... import _words
from ...core import _later
from .meta_transform import CudaTransform as CudaTransform
from .meta_transform import PseudoTransform as PseudoTransform
from .meta_transform import Transform as Transform

if _TYPE_CHECKING:
    from .vision import *  # noqa: F403
else:
    _in_vision = """
        BrightnessTransform CenterCrop ColorJitter Compose ContrastTransform GaussianNoise HueTransform Lighting Normalize Pad RandomCrop
        RandomHorizontalFlip RandomResize RandomResizedCrop RandomVerticalFlip Resize SaturationTransform ShortestEdgeResize ToMode
        TorchTransformCompose VisionTransform color functional geometric transform vision_transform
    """
    __getattr__, __dir__ = _later.names_of(__name__, {"": "vision", "vision": _in_vision}, _words.module_getattr(__name__, "T"))
