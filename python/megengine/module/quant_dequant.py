"""Marks of where a quantized model begins and ends; in float models they do nothing."""

from __future__ import annotations

from ..tensor import Tensor
from .module import Module

__all__ = ["DequantStub", "QuantStub"]


class QuantStub(Module):
    """Marks where a quantized model begins; `quantization.quantize_qat` makes a quantizer of it.

    In a float model it returns its input.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    Examples
    --------
    >>> import megengine.module as M, megengine.quantization as Q
    >>> model = M.Sequential(M.QuantStub(), M.Linear(4, 2), M.DequantStub())
    >>> [type(layer).__module__ for layer in Q.quantize_qat(model)][:2]
    ['megengine.module.qat', 'megengine.module.qat']
    """

    def forward(self, inp: Tensor) -> Tensor:
        """Returns ``inp``.

        Parameters
        ----------
        inp : Tensor
            Tensor of any shape and dtype.

        Returns
        -------
        Tensor
            ``inp`` itself.
        """
        return inp


class DequantStub(Module):
    """Marks where a quantized model ends; `quantization.quantize_qat` makes a dequantizer of it.

    In a float model it returns its input.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.DequantStub()(mge.Tensor([1.5])).tolist()
    [1.5]
    """

    def forward(self, inp: Tensor) -> Tensor:
        """Returns ``inp``.

        Parameters
        ----------
        inp : Tensor
            Tensor of any shape and dtype.

        Returns
        -------
        Tensor
            ``inp`` itself.
        """
        return inp
