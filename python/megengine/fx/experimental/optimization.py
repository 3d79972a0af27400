"""Passes that make a model cheaper to run once its training has ended."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from ... import functional as F
from ... import module as M
from ...tensor import Parameter
from ...utils.fusion import ONLY_FOR_EVAL
from .._layers import Folding, Layer, Norm
from ..graph_module import GraphModule
from ..interpreter import Transformer
from ..node import Node, Target, attribute_at
from ..tracer import Tracer, symbolic_trace
from ..verify import computes, verify_same
from ._functions import functions_to_layers
from ._heuristics import MklSubgraph, gen_mkl_autotuner, use_mkl_length
from ._layouts import lay_out
from ._mkldnn_layers import (
    mkldnn_map,
    mkldnn_supported,
    mkldnn_supported_unknown,
    modules_to_mkldnn,
    reset_modules,
)
from ._subgraphs import UnionFind, extract_subgraph, replace_node_module

__all__ = [
    "MklSubgraph",
    "UnionFind",
    "extract_subgraph",
    "fuse",
    "gen_mkl_autotuner",
    "matches_module_pattern",
    "mkldnn_map",
    "mkldnn_supported",
    "mkldnn_supported_unknown",
    "modules_to_mkldnn",
    "optimize_for_inference",
    "remove_dropout",
    "replace_node_module",
    "reset_modules",
    "use_mkl_length",
]

def matches_module_pattern(
    pattern: Iterable[type], node: Node, modules: dict[str, M.Module]
) -> bool:
    """Tells whether a node calls a module of one class on the result of one of another class.

    Parameters
    ----------
    pattern : iterable of type
        Two classes, of the first and of the second call, compared exactly.
    node : Node
        Node of the second call.
    modules : dict of str to Module
        Dotted path to module.

    Returns
    -------
    bool
        Whether it does.

    Examples
    --------
    >>> import megengine.module as M
    >>> from megengine import fx
    >>> gm = fx.symbolic_trace(M.Sequential(M.Conv2d(3, 8, 3), M.BatchNorm2d(8)).eval())
    >>> node, modules = gm.graph.output_node.prev, dict(gm.named_modules())
    >>> matches_module_pattern((M.Conv2d, M.BatchNorm2d), node, modules)
    True
    """
    if not node.args:
        return False
    for expected, current in zip(pattern, (node.args[0], node), strict=True):
        if not isinstance(current, Node) or current.op != "call_module":
            return False
        if type(modules.get(current.target)) is not expected:
            return False
    return True


def fuse(model: M.Module, inplace: bool = False, *, verify: object = None) -> GraphModule:
    """Folds batch normalizations into the convolutions before them, for inference.

    Both may be modules, or functions of tensors that the model holds. A pair stays as it is if
    other nodes read the convolution's result, or if the normalization has no running statistics. If a convolution is also called elsewhere, or its tensors are read
    elsewhere, the pair gets a copy of it.

    Parameters
    ----------
    model : Module
        Module in eval mode.
    inplace : bool
        Whether to share the tensors of the other modules with ``model`` instead of copying it
        first.
    verify : Tensor, tuple or None
        A tensor or tuple of arguments for which results before and after are compared
        (`verify_same`).

    Returns
    -------
    GraphModule
        The new model.

    Raises
    ------
    AssertionError
        For a pair in training mode.
    VerificationError
        When results on the arguments in verify differ.

    Examples
    --------
    >>> import megengine.module as M
    >>> net = M.Sequential(M.Conv2d(3, 8, 3), M.BatchNorm2d(8), M.ReLU()).eval()
    >>> print(fuse(net).code)
    def forward(self, inp):
        _0 = getattr(self, '0')(inp);  inp = None
        _2 = getattr(self, '2')(_0);  _0 = None
        return _2
    <BLANKLINE>
    """
    traced = symbolic_trace(model if inplace else copy.deepcopy(model))
    before = symbolic_trace(model) if verify is not None else None
    _Fuser(traced).run(traced.graph)
    fused_model = GraphModule(traced, traced.graph, traced._class_name)
    if before is not None:
        verify_same(before, fused_model, verify)
    return fused_model


class _Fuser(Folding):
    def __init__(self, root: GraphModule) -> None:
        self._root = root

    def admits(self, layer: Layer, norm: Norm) -> bool:
        if norm.trains or (layer.trains and layer.call.op == "call_module"):
            raise AssertionError(ONLY_FOR_EVAL)
        return not layer.trains

    def put(self, layer: Layer, weight: Parameter, bias: Parameter) -> None:
        node: Node = layer.call
        if node.op == "call_module":
            fused = copy.deepcopy(node.reached())
            fused.weight, fused.bias = weight, bias
            if _is_named_elsewhere(node):
                node.target = self._free_path(f"{node.target}_fused")
            self._root._put(node.target, fused)
            return
        named = node.arguments_by_name() or {}
        for name, value in (("weight", weight), ("bias", bias)):
            path = self._free_path(f"{node.name}_{name}")
            self._root._put(path, value)
            with node._maker.inserting_before(node):
                named[name] = node._maker.get_attr(path)
        node.set_arguments((), named)

    def drop(self, call: Node, inp: Node) -> None:
        call.replace_all_uses_with(inp)
        computes(inp, call)
        call._maker.erase_node(call)
        call._maker.erase_dead(lambda node: node.op != "get_attr")

    def _free_path(self, path: str) -> str:
        free, number = path, 1
        while attribute_at(self._root, free, default=None) is not None:
            free, number = f"{path}_{number}", number + 1
        return free


def _is_named_elsewhere(node: Node) -> bool:
    """Whether another node calls the same module or reads one of its tensors."""
    return any(
        other is not node
        and other.op in ("call_module", "get_attr")
        and (other.target == node.target or other.target.startswith(f"{node.target}."))
        for other in node._maker
    )


class _DropoutRemover(Transformer):
    def call_module(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(self.submodules[target], M.Dropout):
            return args[0] if args else next(iter(kwargs.values()))
        return super().call_module(target, args, kwargs)

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is F.dropout:
            return args[0] if args else kwargs["inp"]
        return super().call_function(target, args, kwargs)


def remove_dropout(model: M.Module, *, verify: object = None) -> GraphModule:
    """Removes dropout, modules as well as calls of the function.

    Parameters
    ----------
    model : Module
        Module whose tensors the new model shares.
    verify : Tensor, tuple or None
        A tensor or tuple of arguments for which results before and after are compared
        (`verify_same`); None compares nothing.

    Returns
    -------
    GraphModule
        The new model.

    Raises
    ------
    VerificationError
        When results on the arguments in verify differ.

    Examples
    --------
    >>> import megengine.module as M
    >>> net = M.Sequential(M.Linear(3, 2), M.Dropout(0.5)).eval()
    >>> print(remove_dropout(net).code)
    def forward(self, inp):
        _0 = getattr(self, '0')(inp);  inp = None
        return _0
    <BLANKLINE>
    """
    traced = symbolic_trace(model)
    removed = _DropoutRemover(traced).transform()
    if verify is not None:
        verify_same(traced, removed, verify)
    return removed


def optimize_for_inference(
    model: M.Module,
    pass_config: dict[str, Any] | None = None,
    tracer: type[Tracer] = Tracer,
    *,
    verify: object = None,
) -> GraphModule:
    """Makes a copy of a model that infers faster on the CPU.

    It folds batch normalization, removes dropout, and lets layers, and functions with tensors of
    the model, work in oneDNN's layouts with weights that are packed once; they work on copies wherever the model may write into tensors that they make or hold. The log tells
    how many conversions are left, at level INFO: "mkldnn conversions: 2".

    Parameters
    ----------
    model : Module
        Module in eval mode.
    pass_config : dict of str or None
        {"conv_bn_fuse": True, "remove_dropout": True, "mkldnn_layout_optimize": {"heuristic":
        use_mkl_length}} is the default. ``"mkldnn_layout_optimize": False`` leaves layouts alone. A
        heuristic takes an `MklSubgraph`, a region of layers, and tells whether it is to be laid
        out: `use_mkl_length` or `gen_mkl_autotuner(example)`.
    tracer : type
        Class of the tracer that says what is a leaf.
    verify : Tensor, tuple or None
        A tensor or tuple of arguments for which results before and after are compared
        (`verify_same`); None compares nothing.

    Returns
    -------
    GraphModule
        The copy.

    Raises
    ------
    AssertionError
        For a model in training mode, and for layers that are not in float32 on the CPU.
    RuntimeError
        For a wrong configuration, and for a model with hooks.
    VerificationError
        When results on the arguments in verify differ.

    Examples
    --------
    >>> import megengine.module as M
    >>> net = M.Sequential(M.Conv2d(3, 8, 3), M.BatchNorm2d(8), M.ReLU(), M.MaxPool2d(2)).eval()
    >>> print(optimize_for_inference(net).code)
    def forward(self, inp):
        to_mkldnn = inp.to_mkldnn();  inp = None
        _0 = getattr(self, '0')(to_mkldnn, relu = True);  to_mkldnn = None
        _3 = getattr(self, '3')(_0);  _0 = None
        to_dense_2 = _3.to_dense();  _3 = None
        return to_dense_2
    <BLANKLINE>
    """
    config = {
        "conv_bn_fuse": True,
        "remove_dropout": True,
        "mkldnn_layout_optimize": {"heuristic": use_mkl_length},
    }
    unknown = set(pass_config or {}) - set(config)
    if unknown:
        raise RuntimeError(
            f"pass_config has unknown options {sorted(unknown)}\n  fix: use {', '.join(config)}"
        )
    config.update(pass_config or {})
    heuristic = _heuristic_of(config["mkldnn_layout_optimize"])
    _check_model(model)
    optimized: Any = functions_to_layers(copy.deepcopy(model), tracer)
    if config["conv_bn_fuse"]:
        optimized = fuse(optimized, inplace=True)
    if config["remove_dropout"]:
        optimized = remove_dropout(optimized)
    if heuristic is not None:
        optimized = lay_out(optimized, heuristic, tracer)
    if verify is not None:
        verify_same(symbolic_trace(model), optimized, verify)
    return optimized


def _check_model(model: M.Module) -> None:
    for path, module in model.named_modules():
        if module.training:
            raise AssertionError(
                f"optimize_for_inference is only for eval! {path or 'The model'} is in training mode\n"
                "  fix: call model.eval() first"
            )
        if module._forward_hooks or module._forward_pre_hooks:
            raise RuntimeError(
                f"optimize_for_inference: {path or 'the model'} has hooks, which an optimized copy would not call\n"
                "  fix: remove them, or do their work in forward"
            )


def _heuristic_of(option: Any) -> Callable[[MklSubgraph], bool] | None:
    """Returns the heuristic of an option; None keeps all layouts."""
    if option is False:
        return None
    if not isinstance(option, dict):
        raise RuntimeError(
            f"mkldnn_layout_optimize config is not a dict, but {option!r}\n"
            '  fix: {"heuristic": use_mkl_length}, or False'
        )
    if "heuristic" not in option:
        raise RuntimeError(
            "Heuristic not found in mkldnn_layout_optimize config\n"
            '  fix: {"heuristic": use_mkl_length} or {"heuristic": gen_mkl_autotuner(example)}'
        )
    if not callable(option["heuristic"]):
        raise RuntimeError(
            f"the heuristic in mkldnn_layout_optimize is {option['heuristic']!r}, no function"
        )
    return option["heuristic"]
