"""Passes whose interface may still change."""

from . import optimization

__all__ = ["optimization"]
