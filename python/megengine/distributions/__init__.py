"""Probability distributions."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .. import _words
from .distribution import Distribution
from .exponential import Exponential

__all__ = ["Distribution", "Exponential"]


if not _TYPE_CHECKING:
    __getattr__ = _words.module_getattr(__name__, "distributions")
