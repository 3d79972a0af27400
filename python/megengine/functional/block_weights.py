"""Weights in blocks of 4 or 8 bits with a float16 scale each, as in GGUF files (Q4_0, Q8_0 where a block has 32 weights)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import ops
from ..tensor import Tensor

__all__ = ["dequantize_blocks", "linear_of_blocks", "quantize_blocks"]

GROUPS = (32, 64, 128)  # numbers of weights that a block may have
_SLAB = 1 << 20  # number of weights that are rounded at once


def check_form(bits: int, group: int, who: str) -> None:
    """Raises ValueError, in the name of the function ``who``, for bits and groups that no block
    has.
    """
    if bits not in (4, 8):
        raise ValueError(f"{who}: bits is 4 or 8, not {bits!r}")
    if group not in GROUPS:
        raise ValueError(f"{who}: group is 32, 64 or 128, not {group!r}")


def quantize_blocks(weight: Tensor | ArrayLike, bits: int = 4, group: int = 32) -> Tensor:
    """Rounds weights to integers of few bits, in blocks of ``group`` neighbours with a scale each.

    A block is a float16 scale d (its lower byte first) and ``group`` integers. With 8 bits they are
    int8, and a weight is d * q, where d is the largest magnitude / 127. With 4 bits they are q from
    0 to 15, and a weight is d * (q - 8): byte i has the weights i and i + ``group`` / 2. There d
    makes the weight of the largest magnitude -8 * d, or is the least squares solution for the
    integers that follow from this, if the errors are smaller so. Rows of 32 weights a block are
    those of GGUF files, Q8_0 and Q4_0, to the bit.

    Parameters
    ----------
    weight : Tensor or array_like
        The weights, (..., columns), of a float dtype.
    bits : int
        Bits of an integer, 4 or 8.
    group : int
        Weights of a block: 32, 64 or 128, which divides the columns.

    Returns
    -------
    Tensor
        The blocks, uint8, (..., columns / group, 2 + group * bits / 8), on the device of
        ``weight``.

    Raises
    ------
    ValueError
        For other numbers of bits, a group that does not divide the columns, and weights that are
        not finite or beyond float16's range.

    See Also
    --------
    dequantize_blocks : Returns the weights that the blocks stand for.
    quantization.quantize_weights : Does this to the layers of a network.

    Examples
    --------
    >>> import megengine.functional as F
    >>> blocks = F.quantized.quantize_blocks(F.ones((3, 64)), bits=4, group=32)
    >>> blocks.shape, blocks.dtype.name, F.quantized.dequantize_blocks(blocks, bits=4)[0, 0].item()
    ((3, 2, 18), 'uint8', 1.0)
    """
    check_form(bits, group, "quantize_blocks")
    device = weight.device if isinstance(weight, Tensor) else None
    values = weight.numpy() if isinstance(weight, Tensor) else np.asarray(weight)
    if values.ndim < 1 or values.shape[-1] % group:
        raise ValueError(
            f"quantize_blocks: blocks of {group} do not divide the last axis of {values.shape}\n"
            "  fix: take a smaller group, or leave this weight as it is"
        )
    blocks = values.reshape(-1, group)
    made = np.empty((len(blocks), 2 + group * bits // 8), np.uint8)
    step = max(1, _SLAB // group)
    for begin in range(0, len(blocks), step):
        slab = blocks[begin : begin + step].astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            scale, integers = _rounded_to_8(slab) if bits == 8 else _rounded_to_4(slab)
        if not np.isfinite(slab).all() or not np.isfinite(scale).all():
            raise ValueError("quantize_blocks: a weight is not finite, or beyond float16's range\n  fix: look at its training, or leave it out")
        made[begin : begin + step, :2] = scale.view(np.uint8).reshape(-1, 2)
        made[begin : begin + step, 2:] = integers
    shape = (*values.shape[:-1], values.shape[-1] // group, made.shape[1])
    return Tensor(made.reshape(shape), device=device)


def _integers(slab: NDArray[np.float32], scale: NDArray[np.float16], least: int, most: int) -> NDArray[np.float32]:
    """Returns the integers of each block that are nearest to weight / scale; 0 where the scale is 0."""
    divisor = scale.astype(np.float32)[:, None]
    quotient = np.divide(slab, divisor, out=np.zeros_like(slab), where=divisor != 0)
    return np.clip(np.rint(quotient), least, most)


def _rounded_to_8(slab: NDArray[np.float32]) -> tuple[NDArray[np.float16], NDArray[np.uint8]]:
    scale = (np.abs(slab).max(axis=1) / np.float32(127)).astype(np.float16)
    return scale, _integers(slab, scale, -127, 127).astype(np.int8).view(np.uint8)


def _rounded_to_4(slab: NDArray[np.float32]) -> tuple[NDArray[np.float16], NDArray[np.uint8]]:
    rows = np.arange(len(slab))
    scale = (slab[rows, np.abs(slab).argmax(axis=1)] / np.float32(-8)).astype(np.float16)
    integers = _integers(slab, scale, -8, 7)
    squares = np.square(integers).sum(axis=1)
    products = (integers * slab).sum(axis=1)
    fitted = np.divide(products, squares, out=np.zeros_like(products), where=squares != 0).astype(np.float16)
    others = _integers(slab, fitted, -8, 7)
    is_better = _error(slab, fitted, others) < _error(slab, scale, integers)
    shifted = (np.where(is_better[:, None], others, integers) + 8).astype(np.uint8)
    low, high = np.split(shifted, 2, axis=1)
    return np.where(is_better, fitted, scale), (low | high << 4).astype(np.uint8)


def _error(slab: NDArray[np.float32], scale: NDArray[np.float16], integers: NDArray[np.float32]) -> NDArray[np.float32]:
    """The sum of squares of each block."""
    return np.square(slab - integers * scale.astype(np.float32)[:, None]).sum(axis=1)


def dequantize_blocks(blocks: Tensor, bits: int = 4) -> Tensor:
    """Returns the weights that blocks of `quantize_blocks` stand for.

    Parameters
    ----------
    blocks : Tensor
        The blocks, uint8, (..., blocks, 2 + group * bits / 8).
    bits : int
        4 or 8, the bits of a weight.

    Returns
    -------
    Tensor
        The weights, float32, (..., blocks * group).

    See Also
    --------
    quantize_blocks : Makes such blocks.
    """
    return ops.dequantize_blocks(blocks, bits=bits)


def linear_of_blocks(inp: Tensor, blocks: Tensor, bias: Tensor | None = None, bits: int = 4) -> Tensor:
    """Computes ``inp @ w.T + bias`` of weights in blocks, which never exist as a float32 matrix.

    On a CPU up to 16 rows of ``inp`` read the blocks as they are; for more, a few megabytes of
    weights at a time become float32. On a GPU the weights are converted in each call. Products and
    sums are float32. Gradients reach ``inp`` and ``bias``.

    Parameters
    ----------
    inp : Tensor
        Activations, (..., in_features), of a float dtype.
    blocks : Tensor
        The weights, uint8, (out_features, in_features / group, 2 + group * bits / 8).
    bias : Tensor or None
        What is added, (out_features,); None adds nothing.
    bits : int
        4 or 8, the bits of a weight.

    Returns
    -------
    Tensor
        The result, (..., out_features), of the dtype of ``inp``.

    See Also
    --------
    quantize_blocks : Makes such blocks.
    """
    y = ops.matmul_of_blocks(inp.astype("float32"), blocks, bits=bits)
    return (y if bias is None else y + bias).astype(inp.dtype)
