"""Base of the convolution layers: sizes, weights and their initial values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..functional._conv import same_padding
from ..tensor import Parameter
from ._weighted import Weighted, check_extents

Size = int | Sequence[int]
_PADDING_MODES = ("zeros", "reflect", "replicate")


def _tuple_of(name: str, value: Size | str, rank: int) -> tuple[int, ...]:
    """``value`` for each of ``rank`` spatial axes. ValueError for another number of values,
    TypeError unless they are integers.
    """
    given: Any = value
    names = " or 'same', 'valid'" if name == "padding" else ""
    if isinstance(given, str):
        raise ValueError(f"{name}: {value!r} is neither a number nor a name that is known\n  fix: give one int, {rank} of them{names}")
    sizes = (given,) * rank if np.ndim(given) == 0 else tuple(given)
    if len(sizes) != rank:
        raise ValueError(f"{name}: give one int or {rank} values, got {value!r}")
    if wrong := [size for size in sizes if isinstance(size, bool) or not hasattr(size, "__index__")]:
        raise TypeError(f"{name}: {wrong[0]!r} in {value!r} is not an integer\n  fix: give one int, {rank} of them{names}")
    if wrong := [size for size in sizes if size < (0 if "padding" in name else 1)]:
        raise ValueError(f"{name}: {wrong[0]!r} in {value!r} is too small\n  fix: give one int, {rank} of them{names}, at least {0 if 'padding' in name else 1}")
    return tuple(int(size) for size in sizes)


class _ConvNd(Weighted):
    """Weight (out, in, *kernel), with groups (groups, out / groups, in / groups, *kernel); bias (1, out, 1...).

    Initial weights are normal with variance 1 / (in_channels * kernel area), not divided by groups.
    """

    _rank = 2
    output_padding: Size
    conv_mode: str
    compute_mode: str
    padding_mode: str

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size,
        padding: Size | str,
        dilation: Size,
        groups: int,
        bias: bool = True,
        *,
        output_padding: Size | None = None,
        conv_mode: str | None = None,
        compute_mode: str | None = None,
        padding_mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Takes the settings of a convolution; None means that the layer has no such setting."""
        super().__init__(**kwargs)
        check_extents(self, in_channels=in_channels, out_channels=out_channels, groups=groups)
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{'in' if in_channels % groups else 'out'}_channels must be divisible by groups\n"
                f"  why: {type(self).__name__} got groups={groups}, in_channels={in_channels} and out_channels={out_channels}"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = _tuple_of("kernel_size", kernel_size, self._rank)
        self.stride = _tuple_of("stride", stride, self._rank)
        self.dilation = _tuple_of("dilation", dilation, self._rank)
        self.padding = self._padding_of(padding)
        self.groups = groups
        if output_padding is not None:
            self.output_padding = _tuple_of("output_padding", output_padding, self._rank)
        if padding_mode is not None and padding_mode not in _PADDING_MODES:
            raise ValueError(f"padding_mode {padding_mode!r} is not one of {', '.join(_PADDING_MODES)}")
        modes = {"conv_mode": conv_mode, "compute_mode": compute_mode, "padding_mode": padding_mode}
        self.__dict__.update({name: mode for name, mode in modes.items() if mode is not None})
        self.weight = Parameter(np.zeros(self._infer_weight_shape(), np.float32))
        self.bias = Parameter(np.zeros(self._infer_bias_shape(), np.float32)) if bias else None
        self.reset_parameters()

    def _padding_of(self, padding: Size | str) -> tuple[int, ...]:
        """Returns the padding in numbers. ValueError for "same" if it would differ before and
        after.
        """
        if not isinstance(padding, str) or padding not in ("same", "valid"):
            return _tuple_of("padding", padding, self._rank)
        if padding == "valid":
            return (0,) * self._rank
        widths = same_padding(self.kernel_size, self.stride, self.dilation, type(self).__name__)
        if any(before != after for before, after in widths):
            raise ValueError(
                f"{type(self).__name__}: padding='same' of a kernel of {self.kernel_size} is {widths}, not the same before and after\n"
                "  fix: use an odd kernel_size, or F.pad and padding=0"
            )
        return tuple(before for before, _ in widths)

    def _infer_weight_shape(self) -> tuple[int, ...]:
        return self._grouped(self.out_channels, self.in_channels)

    def _grouped(self, leading: int, second: int) -> tuple[int, ...]:
        if self.groups == 1:
            return (leading, second, *self.kernel_size)
        return (self.groups, leading // self.groups, second // self.groups, *self.kernel_size)

    def _infer_bias_shape(self) -> tuple[int, ...]:
        return (1, self.out_channels) + (1,) * self._rank

    def _get_fanin(self) -> int:
        return self.in_channels * math.prod(self.kernel_size)

    def _module_info_string(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        zero, one = (0,) * self._rank, (1,) * self._rank
        for name, usual in (
            ("stride", one),
            ("padding", zero),
            ("output_padding", 0),
            ("dilation", one),
            ("groups", 1),
        ):
            value = getattr(self, name, usual)
            if value not in (usual, zero):
                text += f", {name}={value}"
        return text if self.bias is not None else text + ", bias=False"


class _ConvTransposeNd(_ConvNd):
    """Weight (in, out, *kernel), with groups (groups, in / groups, out / groups, *kernel).

    output_padding: rows added at the end of the output, which the sizes alone leave open when stride > 1.
    """

    def _infer_weight_shape(self) -> tuple[int, ...]:
        return self._grouped(self.in_channels, self.out_channels)

    def _get_fanin(self) -> int:
        return self.out_channels * math.prod(self.kernel_size)


def _pad_width(padding: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return ((0, 0), (0, 0), *((size, size) for size in padding))
