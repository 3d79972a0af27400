"""Helpers of the augmentations: dtypes, borders and random draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import functional as F
from ...random import RNG
from ...tensor import Tensor


class Stream(RNG):
    """A random generator for modules; its copies and pickles start anew from the seed."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self._given = seed

    def __reduce__(self) -> tuple[Any, ...]:
        return Stream, (self._given,)


def as_float(inp: Tensor) -> Tensor:
    """The image in float32, if it is not a float one."""
    return inp if inp.dtype.name in ("float32", "float16", "bfloat16", "float64") else inp.astype("float32")


def like(result: Tensor, inp: Tensor) -> Tensor:
    """``result`` in the dtype of ``inp``; integers are rounded and clipped to their range."""
    if result.dtype == inp.dtype:
        return result
    if np.issubdtype(inp.dtype, np.integer):
        limits = np.iinfo(inp.dtype)
        result = F.clip(F.round(result), float(limits.min), float(limits.max))
    return result.astype(inp.dtype)


# Border modes of image libraries, as NumPy names them.
_BORDERS = {
    "replicate": "edge",
    "reflect": "symmetric",
    "reflect_101": "reflect",
    "wrap": "wrap",
    "constant": None,
    "transparent": None,
    "isolated": None,
}
BORDER_MODES = tuple(name.upper() for name in _BORDERS)


def check_border(mode: str) -> str:
    """The mode in lower case, without a leading "BORDER_". ValueError for an unknown one."""
    name = str(mode).lower().removeprefix("border_")
    if name not in _BORDERS:
        raise ValueError(f"border mode {mode!r} is not one of {', '.join(BORDER_MODES)}")
    return name


def pad_image(
    inp: Tensor, rows: tuple[int, int], cols: tuple[int, int], mode: str, value: float = 0.0
) -> Tensor:
    """Rows and columns (before, after) around (N, C, H, W), filled as the border mode says."""
    numpy_mode: Any = _BORDERS[mode]
    if numpy_mode is None:
        return F.nn.pad(inp, ((0, 0), (0, 0), rows, cols), "constant", value)
    _, _, height, width = inp._tuple_shape
    row_index = np.pad(np.arange(height, dtype=np.int32), rows, mode=numpy_mode)
    col_index = np.pad(np.arange(width, dtype=np.int32), cols, mode=numpy_mode)
    return inp[:, :, row_index][:, :, :, col_index]


def draw_range(rng: RNG, option: float | tuple[float, float], size: tuple[int, ...]) -> Tensor:
    """Returns an option: the number itself, or uniform draws between two."""
    if isinstance(option, (tuple, list)):
        low, high = option
        return rng.uniform(float(low), float(high), size=size)
    return F.full(size, float(option))
