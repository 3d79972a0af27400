"""Dropout: of elements, and of whole channels."""

from .._core import note_extent_read
from ..core import ops
from ..core.random_state import noise_state
from ..core.tensor.array_method import require_tensors
from ..core.tensor.shapes import in_order_of
from ..tensor import Tensor


def dropout(inp: Tensor, drop_prob: float, training: bool = True) -> Tensor:
    """Zeroes each element with probability ``drop_prob`` and scales the others by
    ``1 / (1 - drop_prob)``, so that the expected value stays the same.

    Parameters
    ----------
    inp : Tensor
        Any shape, float dtype.
    drop_prob : float
        Probability of becoming 0, in [0, 1).
    training : bool
        Whether to drop; False returns ``inp`` as it is.

    Returns
    -------
    Tensor
        The same shape and dtype; ``inp`` itself unless training.

    Raises
    ------
    AssertionError
        Unless 0 <= drop_prob < 1.
    TypeError
        For numbers that cannot be scaled: integers and bool.

    See Also
    --------
    dropout2d : Drops whole channels.
    module.Dropout : The layer, which drops in training mode only.

    Notes
    -----
    The generator that `megengine.random.seed` seeds draws the mask; each process of a world has
    masks of its own.

    References
    ----------
    Srivastava et al., 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting".

    Examples
    --------
    >>> from megengine import functional as F
    >>> x = F.ones((1000,))
    >>> sorted(set(F.dropout(x, 0.75).numpy().tolist()))
    [0.0, 4.0]
    >>> F.dropout(x, 0.75, training=False) is x
    True
    """
    require_tensors("dropout", inp)
    if not 0 <= drop_prob < 1:
        raise AssertionError(f"dropout: drop_prob {drop_prob} is not in [0, 1)")
    if not training or drop_prob == 0:
        return inp
    if inp.dtype.name not in ("float32", "float16", "bfloat16"):
        raise TypeError(f"dropout: {inp.dtype.name} cannot be scaled by {1 / (1 - drop_prob):.4g}\n  fix: astype('float32') before")
    mask = ops.dropout_mask(
        noise_state().key(inp._device_name), shape=inp._tuple_shape, drop_prob=float(drop_prob)
    )
    if inp.dtype.name != "float32":
        mask = ops.cast(mask, dtype=inp.dtype.name)
    return ops.mul(inp, in_order_of(inp, mask))


def dropout2d(inp: Tensor, drop_prob: float, training: bool = True) -> Tensor:
    """Zeroes whole channels with probability ``drop_prob`` and scales the others by ``1 / (1 -
    drop_prob)``: neighbouring pixels are much alike, so that dropping one alone hides little.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, ...], float dtype.
    drop_prob : float
        Probability of becoming 0, in [0, 1).
    training : bool
        Whether to drop; False returns ``inp`` as it is.

    Returns
    -------
    Tensor
        The same shape and dtype; ``inp`` itself unless training.

    Raises
    ------
    AssertionError
        Unless 0 <= drop_prob < 1.
    ValueError
        For an inp without channels.

    References
    ----------
    Tompson et al., 2015, "Efficient Object Localization Using Convolutional Networks".

    Examples
    --------
    >>> from megengine import functional as F
    >>> y = F.dropout2d(F.ones((1, 100, 2, 2)), 0.75)
    >>> sorted(set(y.sum(axis=(0, 2, 3)).tolist()))  # all of a channel, or nothing
    [0.0, 16.0]
    """
    require_tensors("dropout2d", inp)
    if inp.ndim < 2:
        raise ValueError(f"dropout2d: inp has shape {list(inp._tuple_shape)}, not [n, c, ...]\n  fix: F.dropout drops elements")
    if not training or drop_prob == 0:
        return dropout(inp, drop_prob, False)
    note_extent_read(inp, 0)
    shape = inp._tuple_shape[:2] + (1,) * (inp.ndim - 2)
    ones = ops.full(shape=shape, value=1.0, dtype=inp.dtype.name, device=inp)
    return ops.mul(inp, dropout(ones, drop_prob))
