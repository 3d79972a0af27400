"""Shapes, indexing, dtypes and precision of tensors, below ``megengine.Tensor``."""
