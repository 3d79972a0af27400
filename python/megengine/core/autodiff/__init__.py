"""Differentiation by the names of older programs; new ones use `megengine.autodiff`."""
