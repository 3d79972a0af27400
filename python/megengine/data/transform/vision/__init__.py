"""Transforms of images and of what is annotated on them."""

from .transform import *  # noqa: F403
