"""Replaces float layers of a model by layers for quantization-aware training, and controls these.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, TypeVar

import numpy as np

from .. import module as Float
from ..functional.block_weights import check_form
from ..module import qat as QAT
from ..module import quantized as Quantized
from ..module._reach import set_expand_structure
from ..module._structure import _members
from ..module.module import Module
from ..module.qat import QATModule
from ..module.quantized import QuantizedModule
from ..tensor import Tensor
from ..utils.hook import HookHandler
from .fake_quant import LSQ, TQT
from .observer import MinMaxObserver, PassiveObserver
from .qconfig import QConfig, ema_fakequant_qconfig
from .utils import QParamsModuleMixin

__all__ = [
    "apply_easy_quant",
    "disable_fake_quant",
    "disable_observer",
    "enable_fake_quant",
    "enable_observer",
    "hook_qat_module",
    "propagate_qconfig",
    "quantize",
    "quantize_qat",
    "quantize_weights",
    "reset_qconfig",
]

_M = TypeVar("_M", bound=Module)  # the network; a single layer comes back as another class

_FLOAT_TO_QAT = {
    getattr(Float, name): getattr(QAT, name) for name in QAT.__all__ if name != "QATModule"
}

_QAT_TO_QUANTIZED = {
    getattr(QAT, name): getattr(Quantized, name) for name in QAT.__all__ if name != "QATModule"
}


def quantize(
    module: _M,
    inplace: bool = True,
    mapping: dict[type[QATModule], type[QuantizedModule]] | None = None,
) -> _M:
    """Replaces the layers of `module.qat` by those of `module.quantized`, which compute on
    integers.

    The observers must have seen data (or the fake quantizers have learned), because their ranges
    are now fixed. The result can only infer.

    Parameters
    ----------
    module : Module
        Model that `quantize_qat` returned, after calibration or training.
    inplace : bool
        Whether to change ``module`` itself; False changes a copy.
    mapping : dict of subclass of QATModule to subclass of QuantizedModule or None
        More classes to replace, from class to class. Exactly these classes and those of
        `module.qat` are replaced, not their subclasses.

    Returns
    -------
    Module
        The model, which is a new object where ``module`` itself is such a layer.

    Raises
    ------
    TypeError
        Unless ``module`` is a Module.
    ValueError
        For a model without a layer to replace, as one of float layers only.

    See Also
    --------
    quantize_qat : Makes the layers that this takes.

    Notes
    -----
    It warns of layers whose observers have seen no data, and of scales that `TQT` and `LSQ` have
    not learned.

    Examples
    --------
    >>> import megengine.functional as F, megengine.module as M, megengine.quantization as Q
    >>> model = Q.quantize_qat(M.Sequential(M.QuantStub(), M.Linear(4, 2), M.DequantStub()))
    >>> y = model(F.ones((8, 4)))  # the observers see data
    >>> Q.quantize(model.eval())[1].weight.dtype.name
    'int8'
    """
    if not isinstance(module, Module):
        raise TypeError(f"quantize: expected a Module, got a {type(module).__name__}")
    table = {**_QAT_TO_QUANTIZED, **(mapping or {})}
    if not any(isinstance(layer, (QATModule, QuantizedModule)) or type(layer) in table for layer in module.modules()):
        raise ValueError(
            f"quantize: the {type(module).__name__} has no layer for quantization-aware training\n"
            "  fix: net = quantize_qat(net), run data through it, then quantize(net) (docs/quantization.md)"
        )
    if blind := [name for name, layer in module.named_modules() if isinstance(layer, QATModule) and _saw_nothing(layer)]:
        warnings.warn(
            f"quantize: the observers of {len(blind)} layers have seen no data, and what lies beyond the range of nothing is cut off: {', '.join(blind[:4])}\n"
            "  fix: run some batches through the network in training mode before (docs/quantization.md)",
            stacklevel=2,
        )
    if unlearned := [name for name, layer in module.named_modules() if isinstance(layer, QATModule) and _has_first_scale(layer)]:
        warnings.warn(
            f"quantize: the scales of {len(unlearned)} layers are those that TQT and LSQ start with, a distance of 1 between values, which rounds small ones to 0: {', '.join(unlearned[:4])}\n"
            "  fix: train the scales, or start from those of an observer: fake_quant.set_qparams(observer.get_qparams())",
            stacklevel=2,
        )
    if not inplace:
        module = deepcopy(module)
    return _converted(module, table, lambda cls, layer: cls.from_qat_module(layer), {})


def _has_first_scale(layer: QATModule) -> bool:
    """Whether a learned scale of its weights or results still has its first value."""
    learned = [each for each in (layer.act_fake_quant, layer.weight_fake_quant) if isinstance(each, (TQT, LSQ))]
    scales = [each.get_qparams().scale for each in learned]
    return any(scale is not None and scale.item() == 1 for scale in scales)


def _saw_nothing(layer: QATModule) -> bool:
    """Whether the range of its results is an observer's matter, and that has seen none."""
    observer = layer.act_observer
    if isinstance(layer.act_fake_quant, QParamsModuleMixin) or not isinstance(observer, MinMaxObserver):
        return False
    return bool(observer.max_val.item() < observer.min_val.item())


def quantize_qat(
    module: _M,
    inplace: bool = True,
    qconfig: QConfig = ema_fakequant_qconfig,
    mapping: dict[type[Module], type[QATModule]] | None = None,
) -> _M:
    """Replaces the float layers of ``module`` by those of `module.qat`, which observe and round.

    Parameters
    ----------
    module : Module
        The model; Parameters stay the same objects. A layer with ``quantize_disabled`` stays as it
        is, and so do the children of a replaced layer.
    inplace : bool
        Whether to change ``module`` itself; False changes a copy.
    qconfig : QConfig
        Observers and fake quantizers, those of ema_fakequant_qconfig by default.
    mapping : dict of subclass of Module to subclass of QATModule or None
        More classes to replace, from class to class. Exactly these classes and those of `module`
        are replaced, not their subclasses.

    Returns
    -------
    Module
        The model, which is a new object where ``module`` itself is a float layer.

    Raises
    ------
    TypeError
        Unless ``module`` is a Module.

    See Also
    --------
    quantize : Makes layers of integers afterwards.
    quantize_weights : Rounds the weights alone, without data.

    Examples
    --------
    >>> import megengine.functional as F, megengine.module as M, megengine.quantization as Q
    >>> model = M.Sequential(M.QuantStub(), M.Linear(4, 2), M.DequantStub())
    >>> model = Q.quantize_qat(model, qconfig=Q.min_max_fakequant_qconfig)
    >>> model(F.ones((8, 4))).dtype.name  # rounded, but in float
    'float32'
    """
    if not isinstance(module, Module):
        raise TypeError(f"quantize_qat: expected a Module, got a {type(module).__name__}")
    if not isinstance(inplace, bool):
        raise TypeError(f"quantize_qat: inplace must be True or False, got a {type(inplace).__name__}\n  fix: write qconfig=... for a configuration")
    if not inplace:
        module = deepcopy(module)
    table = {**_FLOAT_TO_QAT, **(mapping or {})}
    if qconfig is not None and not isinstance(qconfig, QConfig):
        raise TypeError(
            f"quantize_qat: qconfig must be a QConfig, got {qconfig!r}\n"
            "  fix: pass one of megengine.quantization, such as ema_fakequant_qconfig"
        )
    module = _converted(module, table, lambda cls, layer: cls.from_float_module(layer), {})
    propagate_qconfig(module, qconfig)
    return module


def quantize_weights(module: _M, inplace: bool = True, *, bits: int = 8, group: int | None = None) -> _M:
    """Replaces layers by such whose weights alone are integers of few bits; everything else is
    float.

    By default each `module.Linear` becomes a `module.quantized.WeightOnlyLinear`: int8, with a
    scale for each output feature. With 4 bits, or a ``group``, it becomes a
    `module.quantized.BlockwiseLinear`, whose blocks of ``group`` weights have a scale each, and
    each `module.Embedding` a `module.quantized.BlockwiseEmbedding` of 8 bits: an error of a word
    reaches all layers. No data are needed. A trained network computes nearly the same, and one that
    reads all its weights for few rows (text, token by token) reads a quarter or a seventh of the
    bytes. Exactly these classes are replaced, not their subclasses, and no layer with
    ``quantize_disabled``.

    Parameters
    ----------
    module : Module
        The model that is changed.
    inplace : bool
        Whether to change ``module`` itself; False changes a copy.
    bits : int
        Bits of a weight of a Linear: 8 or 4.
    group : int or None
        Weights of a block: 32, 64 or 128. None is 32 for 4 bits, and for 8 bits a scale for each
        output feature.

    Returns
    -------
    Module
        The model, which is a new object where ``module`` itself is such a layer.

    Raises
    ------
    TypeError
        Unless ``module`` is a Module.
    ValueError
        For other bits or groups, where a weight is not finite, and where ``group`` does not divide
        the inputs of a layer, which is named. Nothing has changed then.

    See Also
    --------
    functional.quantized.quantize_blocks : Says what a block is.

    Examples
    --------
    >>> import megengine.module as M, megengine.quantization as Q
    >>> model = Q.quantize_weights(M.Sequential(M.Linear(4, 8), M.ReLU(), M.Linear(8, 2)))
    >>> model[0].weight.dtype.name, model[0].scale.shape
    ('int8', (8,))
    >>> Q.quantize_weights(M.Linear(64, 8), bits=4, group=64).weight.shape
    (8, 1, 34)
    """
    if not isinstance(module, Module):
        raise TypeError(f"quantize_weights: expected a Module, got a {type(module).__name__}")
    size = 32 if group is None else group
    check_form(bits, size, "quantize_weights")
    if group is None and bits == 8:
        table: dict[type[Module], Callable[[Any], Module]] = {Float.Linear: Quantized.WeightOnlyLinear.from_float_module}
    else:
        _check_layers(module, size)
        table = {
            Float.Linear: lambda layer: Quantized.BlockwiseLinear.from_float_module(layer, bits, size),
            Float.Embedding: lambda layer: Quantized.BlockwiseEmbedding.from_float_module(layer, 8, size),
        }
    if not inplace:
        module = deepcopy(module)
    return _converted(module, table, lambda make, layer: make(layer), {})


def _check_layers(module: Module, group: int) -> None:
    """Raises ValueError with the name of a layer if the group does not divide what it reads."""
    for name, layer in module.named_modules():
        extent = {Float.Linear: "in_features", Float.Embedding: "embedding_dim"}.get(type(layer))
        if extent and not layer.quantize_disabled and getattr(layer, extent) % group:
            raise ValueError(
                f"quantize_weights: blocks of {group} do not divide the {getattr(layer, extent)} {extent} of {name or type(layer).__name__}\n"
                "  fix: take a smaller group, or set quantize_disabled of this layer"
            )


def _converted(
    module: Module,
    table: Mapping[Any, Any],
    make: Callable[[Any, Module], Module],
    done: dict[int, tuple[Any, ...]],
) -> Any:
    """Returns the module that replaces ``module``; children are replaced in place. A shared layer
    is converted once.
    """
    if id(module) in done:
        return done[id(module)][1]
    if type(module) in table and not module.quantize_disabled:
        result = make(table[type(module)], module)
        done[id(module)] = (module, result)  # keeps ``module`` alive, and thus its id
        return result
    done[id(module)] = (module, module)
    for path, child in list(_members(module)):
        if isinstance(child, Module):
            replacement = _converted(child, table, make, done)
            if replacement is not child:
                set_expand_structure(module, path, replacement)
    return module


def _qat_modules(module: Module) -> Iterator[QATModule]:
    return (child for child in list(module.modules()) if isinstance(child, QATModule))


def propagate_qconfig(module: Module, qconfig: QConfig) -> None:
    """Gives every layer of `module.qat` in ``module`` new observers and fake quantizers.

    Parameters
    ----------
    module : Module
        The model that is changed.
    qconfig : QConfig
        Names the classes of the new observers and fake quantizers. What the old ones found is lost;
        `reset_qconfig` keeps it.

    Examples
    --------
    >>> import megengine.module as M, megengine.quantization as Q
    >>> model = Q.quantize_qat(M.Linear(4, 2))
    >>> Q.propagate_qconfig(model, Q.tqt_qconfig)
    >>> type(model.weight_fake_quant).__name__, model.weight_observer
    ('TQT', None)
    """
    for layer in _qat_modules(module):
        layer.set_qconfig(qconfig)


def reset_qconfig(module: _M, qconfig: QConfig, inplace: bool = True) -> _M:
    """Gives every layer new observers and fake quantizers, with the parameters found so far.

    Those that take parameters (`PassiveObserver`, `TQT`, `LSQ`) and have the same dtype get them.

    Parameters
    ----------
    module : Module
        The model that is changed.
    qconfig : QConfig
        Names the classes of the new observers and fake quantizers.
    inplace : bool
        Whether to change ``module`` itself; False changes a copy.

    Returns
    -------
    Module
        The model.

    Examples
    --------
    >>> import megengine.functional as F, megengine.module as M, megengine.quantization as Q
    >>> model = Q.quantize_qat(M.Linear(4, 2), qconfig=Q.calibration_qconfig)
    >>> y = model(F.ones((8, 4)))
    >>> found = model.act_observer.get_qparams()
    >>> Q.reset_qconfig(model, Q.passive_qconfig).act_observer.get_qparams() == found
    True
    """
    if not inplace:
        module = deepcopy(module)
    for layer in _qat_modules(module):
        weight, act = layer.get_weight_qparams(), layer.get_activation_qparams()
        layer.set_qconfig(qconfig)
        for quantizer, qparams in (
            (layer.weight_observer, weight),
            (layer.weight_fake_quant, weight),
            (layer.act_observer, act),
            (layer.act_fake_quant, act),
        ):
            set_qparams = getattr(quantizer, "set_qparams", None)
            if quantizer is None or qparams is None or set_qparams is None:
                continue
            if quantizer.dtype == qparams.dtype_meta:
                set_qparams(qparams)
    return module


def enable_fake_quant(module: Module) -> None:
    """Rounds weights and results in all layers of `module.qat` from now on.

    Parameters
    ----------
    module : Module
        A model with layers of `module.qat`.

    Examples
    --------
    >>> import megengine.module as M, megengine.quantization as Q
    >>> model = Q.quantize_qat(M.Linear(4, 2))
    >>> Q.disable_fake_quant(model); Q.enable_fake_quant(model)
    >>> model.weight_fake_quant.enabled
    True
    """
    for layer in _qat_modules(module):
        layer.set_fake_quant(True)


def disable_fake_quant(module: Module) -> None:
    """Computes in float in all layers of `module.qat` from now on; observers still watch.

    Parameters
    ----------
    module : Module
        A model with layers of `module.qat`.

    Examples
    --------
    >>> import megengine.module as M, megengine.quantization as Q
    >>> model = Q.quantize_qat(M.Linear(4, 2))
    >>> Q.disable_fake_quant(model)
    >>> model.weight_fake_quant.enabled, model.weight_observer.enabled
    (False, True)
    """
    for layer in _qat_modules(module):
        layer.set_fake_quant(False)


def enable_observer(module: Module) -> None:
    """Watches ranges in all layers of `module.qat` from now on, in evaluation mode too.

    Parameters
    ----------
    module : Module
        A model with layers of `module.qat`.

    Examples
    --------
    >>> import megengine.module as M, megengine.quantization as Q
    >>> model = Q.quantize_qat(M.Linear(4, 2)).eval()
    >>> Q.enable_observer(model)
    >>> model.act_observer.enabled
    True
    """
    for layer in _qat_modules(module):
        layer.set_observer(True)


def disable_observer(module: Module) -> None:
    """Keeps the ranges found so far in all layers of `module.qat`, in training mode too.

    The next `Module.train` switches observers on again.

    Parameters
    ----------
    module : Module
        A model with layers of `module.qat`.

    Examples
    --------
    >>> import megengine.module as M, megengine.quantization as Q
    >>> model = Q.quantize_qat(M.Linear(4, 2))
    >>> Q.disable_observer(model)
    >>> model.act_observer.enabled
    False
    """
    for layer in _qat_modules(module):
        layer.set_observer(False)


def hook_qat_module(module: Module, func: Callable[..., Any]) -> list[HookHandler]:
    """Registers ``func(layer, inputs, outputs)`` as forward hook of every layer for quantization-aware training.

    Returns the handles, which have ``remove()``.
    """
    return [layer.register_forward_hook(func) for layer in _qat_modules(module)]


def apply_easy_quant(
    module: _M, data: Tensor, start: float = 0.8, stop: float = 1.2, num: int = 40
) -> _M:
    """Searches the scales that keep each layer's result closest to the float one, by their cosine.

    It goes layer by layer: first it searches the scale of the weight, then that of the result,
    among ``num`` multiples of the current one from ``start`` to ``stop``.

    Parameters
    ----------
    module : Module
        Its observers must be PassiveObservers, as `reset_qconfig` with easyquant_qconfig makes
        them.
    data : Tensor
        The input of the model.
    start, stop : float
        The least and the largest multiple that is tried.
    num : int
        Number of multiples that are tried.

    Returns
    -------
    Module
        ``module`` itself.

    References
    ----------
    Wu et al. 2020, "EasyQuant: Post-training Quantization via Scale Optimization".

    Examples
    --------
    >>> import megengine.functional as F, megengine.module as M, megengine.quantization as Q
    >>> model, data = Q.quantize_qat(M.Linear(4, 2), qconfig=Q.calibration_qconfig), F.ones((8, 4))
    >>> y = model(data)
    >>> model = Q.apply_easy_quant(Q.reset_qconfig(model, Q.easyquant_qconfig), data)
    >>> bool(0.79 < (model.act_observer.scale / model.act_observer.orig_scale).item() < 1.21)
    True
    """
    multiples = np.linspace(start, stop, num)

    def search(layer: QATModule, inputs: tuple[Any, ...], _: Any) -> Tensor:
        wanted = _direction(_result_with(layer, inputs, weight=False, act=False))
        _improve(
            layer.weight_observer,
            multiples,
            wanted,
            lambda: _result_with(layer, inputs, True, False),
        )
        _improve(
            layer.act_observer, multiples, wanted, lambda: _result_with(layer, inputs, True, True)
        )
        return _result_with(layer, inputs, weight=True, act=True)

    enable_fake_quant(module)
    handles = hook_qat_module(module, search)
    try:
        module(data)
    finally:
        for handle in handles:
            handle.remove()
    return module


def _result_with(layer: QATModule, inputs: tuple[Any, ...], weight: bool, act: bool) -> Tensor:
    """Returns the layer's result with these of its fake quantizers enabled; afterwards both are
    enabled.
    """
    quantizers = ((layer.weight_fake_quant, weight), (layer.act_fake_quant, act))
    for quantizer, enabled in quantizers:
        if quantizer is not None:
            quantizer.enabled = enabled
    try:
        return layer.forward(*inputs)
    finally:
        layer.set_fake_quant(True)


def _improve(
    observer: Any, multiples: np.ndarray, wanted: np.ndarray, result: Callable[[], Tensor]
) -> None:
    """Gives ``observer`` the scale with which ``result()`` points where ``wanted`` does."""
    if not isinstance(observer, PassiveObserver):
        return
    if observer.orig_scale is None:
        raise AssertionError("apply_easy_quant: an observer has no scale yet")
    scales = [float(observer.orig_scale) * multiple for multiple in multiples]
    cosines = []
    for scale in scales:
        observer.scale = scale
        cosines.append(float(wanted @ _direction(result())))
    observer.scale = scales[int(np.argmax(cosines))]


def _direction(x: Tensor) -> np.ndarray:
    """The elements as a vector of length 1, or 0."""
    vector = x.numpy().astype(np.float64).ravel()
    return vector / max(np.linalg.norm(vector), np.finfo(np.float64).tiny)
