"""Moments in 8 bits: blocks of codes, each block with a float32 scale.

A block is a run of neighbouring elements of a parameter that is laid flat, and its scale is the largest magnitude in
it. An element's code is linear in the fourth root of its share of the scale:

    signed, int8:     x = scale * sign(c) * (|c| / 127)^4
    unsigned, uint8:  x = scale * ((c + 1) / 256)^4

Values of neighbouring unsigned codes differ by dx / x = 4 / c: 1.6 % at the scale, 3 % at a tenth of it, 16 % at 1e-4.
Those of signed codes differ by twice as much. Linear codes would differ by 40 % at 1e-2, and lose what is smaller. The
unsigned map has no zero, because Adam divides by the root of its second moment: the least value is 2^-32 of the scale,
therefore no update is divided by a zero that rounding made.

Codes are rounded up or down in proportion to the distance, by a random number. An average that moves by 0.1 % a step
would stay where it is if the nearest of codes were taken that lie 2 % apart. The random number is made of the
low bits of the unrounded code, so that a step needs no generator and has the same bits in each run.

These maps and the rounding are our own. Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization", showed
that blocks with scales of their own and a nonlinear map, which is another one, train as well as float32 moments.
"""

from __future__ import annotations

import numpy as np

from .. import functional as F
from ..core import ops
from ..tensor import Tensor

_LEAST_SCALE = 2.0**-126  # the least normal float32: its inverse is finite


def block_length(size: int, block_size: int) -> int:
    """Returns the largest divisor of ``size`` from block_size / 4 to block_size; 0 if there is none."""
    return next((n for n in range(block_size, (block_size - 1) // 4, -1) if size % n == 0), 0)


def decoded(codes: Tensor, scales: Tensor) -> Tensor:
    """Returns the values of codes of any shape as float32[blocks, length]."""
    rows = codes.reshape(scales._tuple_shape[0], -1).astype("float32")
    if codes.dtype == np.int8:
        root = rows * (1 / 127)
        power = ops.square(root) * root * ops.abs(root)
    else:
        power = ops.square(ops.square((rows + 1.0) * (1 / 256)))
    return power * scales.reshape(-1, 1)


def shared(values: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the scale of each block of float32[blocks, length], [blocks, 1], and the square roots of the elements' shares of it."""
    sizes = ops.abs(values)
    scales = F.maximum(F.max(sizes, axis=1, keepdims=True), _LEAST_SCALE)
    return scales, ops.sqrt(sizes * (1.0 / scales))


def signed_codes(values: Tensor, roots: Tensor) -> Tensor:
    """Returns int8 codes of values that have these `shared` roots."""
    fourth = ops.sqrt(roots)
    return _rounded(ops.where(values < 0.0, -fourth, fourth) * 127.0).astype("int8")


def unsigned_codes(roots: Tensor) -> Tensor:
    """Returns uint8 codes of values that are not negative and have these `shared` roots."""
    return (_rounded(F.maximum(ops.sqrt(roots) * 256.0, 1.0)) - 1.0).astype("uint8")


def _rounded(x: Tensor) -> Tensor:
    """Returns one of the two integers next to x, at random by distance. The bits of x below 2^-7 are the random number."""
    low = x * 128.0
    return ops.floor(x + (low - ops.floor(low)))
