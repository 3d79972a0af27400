"""What the layers that compute on integers share."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Self

from ...core.tensor.quantized import convert
from ...tensor import Tensor
from .._structure import INTERNAL
from ..module import Module
from ..qat._folding import FoldedQAT, running_statistics
from ..qat.module import QATModule

__all__ = ["QuantizedModule"]


class QuantizedModule(Module):
    """Base of layers that compute on integers. They infer only: a call in training mode is a ValueError."""

    _repr_prefix = "Quantized."
    _nonlinear_mode = "identity"  # or "relu"

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> Self:
        """The layer that computes on integers what ``qat_module`` computes on rounded numbers."""
        raise TypeError(f"{cls.__name__} does not define from_qat_module(cls, qat_module)")

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        """As `Module`. ValueError in training mode."""
        if self.training:
            raise ValueError(
                f"{type(self).__name__} computes on integers and cannot be trained\n  fix: call eval() of the model"
            )
        return super().__call__(*inputs, **kwargs)


def made_like(cls: type[QuantizedModule], layer: Module, qat_module: QATModule) -> Any:
    """A ``cls`` with the sizes of the float ``layer`` and the name, mode, hooks and result dtype of ``qat_module``."""
    made: Any = cls.__new__(cls)
    state = made.__dict__
    state.update(layer.__dict__)
    state.update({name: qat_module.__dict__[name] for name in INTERNAL})
    for hooks in ("_forward_pre_hooks", "_forward_hooks"):
        state[hooks] = OrderedDict(state[hooks])
    for name in ("weight_observer", "act_observer", "weight_fake_quant", "act_fake_quant"):
        state.pop(name, None)
    made._list_holders()
    made.output_dtype = qat_module.get_activation_dtype()
    return made


class Plain(QuantizedModule):
    """Made of a layer of `module.qat` as it is."""

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> Self:
        made = made_like(cls, qat_module, qat_module)
        return made if "weight" not in vars(qat_module) else with_weights(made, qat_module, qat_module.weight, qat_module.bias)


class Folded(QuantizedModule):
    """One layer: the running statistics of the batch normalization are in its weight and bias."""

    @classmethod
    def from_qat_module(cls, qat_module: FoldedQAT) -> Self:
        weight, bias = qat_module.fold_weight_bias(*running_statistics(qat_module.bn))
        return with_weights(made_like(cls, qat_module._folded_layer(), qat_module), qat_module, weight, bias)


def with_weights(made: Any, qat_module: QATModule, weight: Tensor, bias: Tensor | None) -> Any:
    """``made`` with the weight in qat_module's dtype and the bias as it is."""
    made.weight = convert(weight.detach(), qat_module.get_weight_dtype())
    made.bias = None if bias is None else Tensor(bias.detach())
    return made
