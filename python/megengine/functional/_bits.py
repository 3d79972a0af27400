"""Operations on the bits of integers, which are logic of bools: the functions of ``&``, ``|``, ``^`` and ``~``."""

from ..core.tensor.array_method import as_tensor
from ..tensor import Tensor
from ._docs import BITS, Operand
from ._docs import tells as _tells

__all__ = ["bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor"]


@_tells(BITS)
def bitwise_and(x: Operand, y: Operand) -> Tensor:
    """Keeps the bits that both ``x`` and ``y`` have, elementwise: ``x & y``.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.bitwise_and(Tensor([12, 7]), 6).numpy()
    array([4, 6], dtype=int32)
    """
    return as_tensor(x) & y


@_tells(BITS)
def bitwise_or(x: Operand, y: Operand) -> Tensor:
    """Joins the bits of ``x`` and ``y``, elementwise: ``x | y``.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.bitwise_or(Tensor([8, 3]), 1).numpy()
    array([9, 3], dtype=int32)
    """
    return as_tensor(x) | y


@_tells(BITS)
def bitwise_xor(x: Operand, y: Operand) -> Tensor:
    """Keeps the bits that either ``x`` or ``y`` has, elementwise: ``x ^ y``.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.bitwise_xor(Tensor([12, 7]), 6).numpy()
    array([10,  1], dtype=int32)
    """
    return as_tensor(x) ^ y


def bitwise_not(x: Tensor) -> Tensor:
    """Inverts every bit of ``x``, elementwise: ``~x``, which is ``-x - 1``.

    Parameters
    ----------
    x : Tensor
        Any shape, an integer dtype or bool.

    Returns
    -------
    Tensor
        The shape and dtype of ``x``.

    Raises
    ------
    TypeError
        For another dtype.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.bitwise_not(Tensor([0, 5])).numpy(), F.bitwise_not(Tensor([True])).numpy()
    (array([-1, -6], dtype=int32), array([False]))
    """
    return ~as_tensor(x)
