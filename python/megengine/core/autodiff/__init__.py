"""Gradients below `megengine.autodiff`, by the names that older programs import."""
