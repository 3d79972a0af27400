"""Older place of ``megengine.functional.metric``."""

from .metric import topk_accuracy

__all__ = ["topk_accuracy"]
