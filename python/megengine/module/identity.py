"""A module that does nothing."""

from __future__ import annotations

from typing import Any

from .module import Module

__all__ = ["Identity"]


class Identity(Module):
    """Returns its input."""

    def forward(self, x: Any) -> Any:
        return x
