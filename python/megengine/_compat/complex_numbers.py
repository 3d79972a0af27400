"""Complex tensors that older programs make of their parts, and add, subtract and multiply."""

from __future__ import annotations

from typing import Any

from ..functional.tensor import complex as _of_parts
from ..functional.tensor import imag as get_imag
from ..functional.tensor import real as get_real
from ..tensor import Tensor

__all__ = ["create_complex", "get_imag", "get_real"]


class _Complex(Tensor):
    """A complex64 tensor whose arithmetic is that of its parts."""

    def __add__(self, other: Any) -> Tensor:
        return create_complex(get_real(self) + get_real(other), get_imag(self) + get_imag(other))

    def __sub__(self, other: Any) -> Tensor:
        return create_complex(get_real(self) - get_real(other), get_imag(self) - get_imag(other))

    def __mul__(self, other: Any) -> Tensor:
        (a, b), (c, d) = ((get_real(x), get_imag(x)) for x in (self, other))
        return create_complex(a * c - b * d, a * d + b * c)

    def __neg__(self) -> Tensor:
        return create_complex(-get_real(self), -get_imag(self))


def create_complex(real: Tensor, imag: Tensor, /) -> Tensor:
    """``real + 1j * imag``, complex64, with +, - and * for such tensors."""
    return _Complex(_of_parts(real, imag))
