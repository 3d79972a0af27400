"""Transforms of images and of their annotations."""

from .transform import *  # noqa: F403
