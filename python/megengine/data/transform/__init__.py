"""Transforms of samples, between dataset and collator: augmentation, resizing, normalization. Images are NumPy arrays (H, W, C)."""

from .meta_transform import CudaTransform as CudaTransform
from .meta_transform import PseudoTransform as PseudoTransform
from .meta_transform import Transform as Transform
from .vision import *  # noqa: F403
