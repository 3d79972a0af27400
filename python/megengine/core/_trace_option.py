"""Whether shapes are tensors, by the names that older programs import."""

from .._core import symbolic_shape_active

_always = False


def use_symbolic_shape() -> bool:
    """Whether ``x.shape`` is a Tensor here: in a trace with symbolic_shape, or after ``set_symbolic_shape(True)``."""
    return _always or symbolic_shape_active()


def set_symbolic_shape(option: bool) -> bool:
    """True: ``x.shape`` is a Tensor outside of traces, too. Returns the setting before.

    >>> from megengine import functional as F
    >>> before = set_symbolic_shape(True)
    >>> F.ones((2, 3)).shape.numpy().tolist()
    [2, 3]
    >>> set_symbolic_shape(before)
    True
    """
    global _always
    before, _always = _always, bool(option)
    return before
