"""Layers for inference whose weights are in the order of oneDNN's kernels, reordered once and not
in each call.

Their inputs and results are best left in the layout of `Tensor.to_mkldnn`; `fx.experimental.optimization` arranges that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .. import functional as F
from .._core import _pack_operand
from ..core import ops
from ..module import Module
from ..module._folding import normalization
from ..module.batchnorm import _BatchNorm
from ..module.conv import Conv1d, Conv2d, Conv3d
from ..module.linear import Linear
from ..tensor import Parameter, Tensor

__all__ = ["MkldnnBatchNorm", "MkldnnConv1d", "MkldnnConv2d", "MkldnnConv3d", "MkldnnLinear"]


def _float32(tensor: Tensor) -> Parameter:
    if tensor.dtype != np.float32:
        raise AssertionError(f"Mkldnn layers compute in float32, got a parameter of {tensor.dtype}")
    return Parameter(tensor)


class _Packed(Module):
    """Weight and bias in a product with the operations after it: bias, an addend, relu.

    The weight lies row-major until the first call, and is packed for the shape of that call's
    input. Assignments to it, copies and files work as usual: such a weight is packed again.
    """

    _op = ""
    weight: Parameter
    bias: Parameter | None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = _float32(weight)
        self.bias = None if bias is None else _float32(bias)
        self.training = False

    def _product(
        self, x: Tensor, addend: Tensor | None, relu: bool, attributes: dict[str, Any]
    ) -> Tensor:
        in_one = x.dtype == np.float32 and (
            addend is None
            or (
                isinstance(addend, Tensor)
                and addend.dtype == np.float32
                and addend._tuple_shape == self._result_shape(x._tuple_shape)
            )
        )
        if not in_one:
            y = getattr(ops, self._op)(x, self.weight, **attributes)
            y = y if self.bias is None else y + self.bias
            y = y if addend is None else y + addend
            return F.nn.relu(y) if relu else y
        if not self.weight._is_packed:
            _pack_operand(self._op, [x, self.weight], 1, attributes)
        operands, steps = [x, self.weight], []
        if self.bias is not None:
            operands.append(self.bias)
            steps.append("bias")
        if addend is not None:
            operands.append(addend)
            steps.append("add")
        if relu:
            steps.append("relu")
        if not steps:
            return getattr(ops, self._op)(*operands, **attributes)
        return getattr(ops, self._op + "_epilogue")(
            *operands, epilogue=" ".join(steps), **attributes
        )

    def _result_shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        raise NotImplementedError


class _MkldnnConv(_Packed):
    _op = "conv"

    def __init__(self, dense_module: Conv1d | Conv2d | Conv3d, dtype: DTypeLike = np.float32) -> None:
        padding_mode = getattr(dense_module, "padding_mode", "zeros")
        if padding_mode != "zeros":
            raise ValueError(f"{type(self).__name__} pads with zeros, not {padding_mode}")
        weight: Tensor = dense_module.weight
        if dense_module.groups > 1:  # [groups, out / groups, in / groups, kernel...]
            weight = weight.reshape(dense_module.out_channels, *weight._tuple_shape[2:])
        super().__init__(weight, dense_module.bias)
        self.attributes: dict[str, Any] = {
            "stride": dense_module.stride,
            "padding": dense_module.padding,
            "dilation": dense_module.dilation,
            "groups": dense_module.groups,
        }

    def forward(self, x: Tensor, addend: Tensor | None = None, relu: bool = False) -> Tensor:
        """Returns the convolution of ``x``, optionally with a tensor added and negative elements
        set to 0.

        Parameters
        ----------
        x : Tensor
            Tensor of shape [n, in_channels, ...].
        addend : Tensor or None
            Tensor of the result's shape that is added; None adds none.
        relu : bool
            Whether to replace negative elements by 0 at last.

        Returns
        -------
        Tensor
            Tensor of shape [n, out_channels, ...].
        """
        return self._product(x, addend, relu, self.attributes)

    def _result_shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        spatial = (
            (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, stride, padding, dilation in zip(
                x[2:],
                self.weight._tuple_shape[2:],
                self.attributes["stride"],
                self.attributes["padding"],
                self.attributes["dilation"],
                strict=False,
            )
        )
        return (x[0], self.weight._tuple_shape[0], *spatial)

    def _module_info_string(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.attributes.items())


class MkldnnConv1d(_MkldnnConv):
    """Computes a Conv1d with packed copies of the weights of ``dense_module``.

    ``weight`` is (out, in / groups, k).

    Parameters
    ----------
    dense_module : Conv1d, Conv2d or Conv3d
        The layer whose weights are packed.
    dtype : DTypeLike
        Data type of the result, float32 by default.

    Raises
    ------
    ValueError
        For a layer that pads with anything but zeros.
    """


class MkldnnConv2d(_MkldnnConv):
    """Computes a Conv2d with packed copies of the weights of ``dense_module``.

    ``weight`` is (out, in / groups, kh, kw).

    Parameters
    ----------
    dense_module : Conv1d, Conv2d or Conv3d
        The layer whose weights are packed.
    dtype : DTypeLike
        Data type of the result, float32 by default.

    Raises
    ------
    ValueError
        For a layer that pads with anything but zeros.

    Examples
    --------
    >>> import megengine.functional as F, megengine.module as M
    >>> layer = MkldnnConv2d(M.Conv2d(3, 8, 3))
    >>> layer(F.zeros((1, 3, 5, 5)).to_mkldnn()).shape
    (1, 8, 3, 3)
    """


class MkldnnConv3d(_MkldnnConv):
    """Computes a Conv3d with packed copies of the weights of ``dense_module``.

    ``weight`` is (out, in / groups, kd, kh, kw).

    Parameters
    ----------
    dense_module : Conv1d, Conv2d or Conv3d
        The layer whose weights are packed.
    dtype : DTypeLike
        Data type of the result, float32 by default.

    Raises
    ------
    ValueError
        For a layer that pads with anything but zeros.
    """


class MkldnnLinear(_Packed):
    """Computes a Linear with packed copies of the weights of ``dense_module``.

    Parameters
    ----------
    dense_module : Linear
        The layer whose weights are packed.
    dtype : DTypeLike
        Data type of the result, float32 by default.
    """

    _op = "matmul"

    def __init__(self, dense_module: Linear, dtype: DTypeLike = np.float32) -> None:
        super().__init__(dense_module.weight, dense_module.bias)

    def forward(self, x: Tensor, addend: Tensor | None = None, relu: bool = False) -> Tensor:
        """Returns x @ weight.T + bias, optionally with a tensor added and negative elements set to
        0.

        Parameters
        ----------
        x : Tensor
            Tensor of shape [..., in_features].
        addend : Tensor or None
            Tensor of the result's shape that is added; None adds none.
        relu : bool
            Whether to replace negative elements by 0 at last.

        Returns
        -------
        Tensor
            [..., out_features].
        """
        if x.ndim == 1:
            y = self.forward(x.reshape(1, -1)).reshape(-1)
            y = y if addend is None else y + addend
            return F.nn.relu(y) if relu else y
        return self._product(x, addend, relu, {"transpose_b": True})

    def _result_shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return (*x[:-1], self.weight._tuple_shape[0])

    def _module_info_string(self) -> str:
        out, features = self.weight.shape
        return f"in_features={features}, out_features={out}"


class MkldnnBatchNorm(Module):
    """Computes a batch normalization in eval mode as one multiplication and addition.

    Parameters
    ----------
    dense_module : _BatchNorm
        The layer whose weights are packed.
    dtype : DTypeLike
        Data type of the result, float32 by default.

    Raises
    ------
    AssertionError
        For a layer in training mode.
    """

    def __init__(self, dense_module: _BatchNorm, dtype: DTypeLike = np.float32) -> None:
        super().__init__()
        mean, var = dense_module.running_mean, dense_module.running_var
        if dense_module.training or mean is None or var is None:
            raise AssertionError(
                "MkldnnBatchNorm is only for eval: it needs the running statistics\n"
                "  fix: call model.eval() first"
            )
        factor, shift = normalization(mean, var, dense_module.eps, dense_module.weight, dense_module.bias)
        self.factor, self.shift = _float32(factor), _float32(shift)
        self.training = False

    def forward(self, x: Tensor) -> Tensor:
        """Scales and shifts each channel.

        Parameters
        ----------
        x : Tensor
            Tensor of shape [n, channels, ...].

        Returns
        -------
        Tensor
            The result, of the same shape.
        """
        shape = (-1,) + (1,) * (x.ndim - 2)
        return ops.fma3(x, self.factor.reshape(shape), self.shift.reshape(shape))
