"""Functions that may still change."""

from .weight_scaler import get_scaled_model

__all__ = ["get_scaled_model"]
