"""Changes of traced modules that keep what they compute."""

from .optimization import optimize

__all__ = ["optimize"]
