"""Transforms of samples between dataset and collator."""

from .meta_transform import CudaTransform as CudaTransform
from .meta_transform import PseudoTransform as PseudoTransform
from .meta_transform import Transform as Transform
from .vision import *  # noqa: F403
