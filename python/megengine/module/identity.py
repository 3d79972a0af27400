"""A module that does nothing."""

from __future__ import annotations

from typing import Any

from .module import Module

__all__ = ["Identity"]


class Identity(Module):
    """Returns its input: a placeholder where a model wants a layer.

    >>> import megengine as mge, megengine.module as M
    >>> model = M.Sequential(M.Linear(4, 8), M.Linear(8, 2))
    >>> model[1] = M.Identity()  # features instead of classes
    >>> model(mge.functional.ones((1, 4))).shape
    (1, 8)
    """

    def forward(self, x: Any) -> Any:
        """Return ``x``, whatever it is."""
        return x
