"""Transforms of samples, between dataset and collator: augmentation, resizing, normalization. Images are NumPy arrays (H, W, C)."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ... import _words
from .meta_transform import CudaTransform as CudaTransform
from .meta_transform import PseudoTransform as PseudoTransform
from .meta_transform import Transform as Transform
from .vision import *  # noqa: F403

if not _TYPE_CHECKING:
    __getattr__ = _words.module_getattr(__name__, "T")
