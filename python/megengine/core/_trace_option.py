"""How shapes are seen, by the name that published programs import."""

from .. import _core


def use_symbolic_shape() -> bool:
    """Whether ``x.shape`` is a Tensor here: inside a traced function, unless it was traced with ``symbolic_shape=False``.

    >>> use_symbolic_shape()
    False
    """
    return _core.symbolic_shape_active()
