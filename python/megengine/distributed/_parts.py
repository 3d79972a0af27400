"""A process's piece of a tensor that a group holds once: what a sharded optimizer keeps, and a checkpoint writes."""

from __future__ import annotations

from dataclasses import dataclass

from ..tensor import Tensor


@dataclass(frozen=True)
class Part:
    """values: flat; the last one may go on behind the end, filled up with zeros. shape: of the whole. begin: where it lies in the whole, laid flat."""

    values: Tensor
    shape: tuple[int, ...]
    begin: int
