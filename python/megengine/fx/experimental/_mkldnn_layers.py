"""The layers that know oneDNN's layouts, and their exchange for layers with packed weights."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import functional as F
from ... import module as M
from ...utils import mkldnn
from ..node import Node
from ._subgraphs import replace_node_module

mkldnn_supported = [
    M.Conv1d, M.Conv2d, M.Conv3d, M.Linear, M.BatchNorm1d, M.BatchNorm2d, M.BatchNorm3d, M.ReLU, M.Sigmoid,
    M.MaxPool2d, M.AvgPool2d, M.AdaptiveAvgPool2d,
    F.relu, F.nn.relu, F.sigmoid, F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d,
]  # fmt: skip
# These keep the layout of their input, and join a region if a value that they read is laid out already.
mkldnn_supported_unknown = [
    operator.add, operator.sub, operator.mul, operator.truediv, F.add, F.sub, F.mul, F.div, F.maximum, F.minimum,
    F.clip, F.elu, F.erf, F.gelu, F.hsigmoid, F.hswish, F.leaky_relu, F.mish, F.relu6, F.silu, F.softplus, F.tanh,
    F.concat, M.GELU, M.Identity, M.LeakyReLU, M.SiLU,
]  # fmt: skip

mkldnn_map: dict[type, Callable[..., M.Module]] = {
    M.Conv1d: mkldnn.MkldnnConv1d,
    M.Conv2d: mkldnn.MkldnnConv2d,
    M.Conv3d: mkldnn.MkldnnConv3d,
    M.Linear: mkldnn.MkldnnLinear,
    M.BatchNorm1d: mkldnn.MkldnnBatchNorm,
    M.BatchNorm2d: mkldnn.MkldnnBatchNorm,
    M.BatchNorm3d: mkldnn.MkldnnBatchNorm,
}


def called(node: Node, modules: dict[str, M.Module]) -> Any:
    """Returns the function, or the class of the module, that a node calls; for other nodes the
    target.
    """
    return type(modules[node.target]) if node.op == "call_module" else node.target


def modules_to_mkldnn(
    nodes: Sequence[Node], modules: dict[str, M.Module]
) -> dict[M.Module, M.Module]:
    """Exchanges the modules that nodes call for those with packed weights.

    Parameters
    ----------
    nodes : sequence of Node
        Nodes that do not call modules are left out.
    modules : dict of str to Module
        Dotted path to module, of the model that holds them; kept up to date.

    Returns
    -------
    dict of Module to Module
        New module to former one, for `reset_modules`.

    Examples
    --------
    >>> import megengine.module as M
    >>> from megengine import fx
    >>> from megengine.fx.experimental import optimization
    >>> gm = fx.symbolic_trace(M.Sequential(M.Conv2d(3, 8, 3), M.ReLU()).eval())
    >>> modules, nodes = dict(gm.named_modules()), list(gm.graph.nodes)
    >>> former = optimization.modules_to_mkldnn(nodes, modules)
    >>> type(modules["0"]).__name__, len(former)
    ('MkldnnConv2d', 1)
    """
    old_modules: dict[M.Module, M.Module] = {}
    for node in nodes:
        if node.op != "call_module":
            continue
        former = modules[node.target]
        if type(former) in mkldnn_map:
            new = mkldnn_map[type(former)](former, np.float32)
            old_modules[new] = former
            replace_node_module(node, modules, new)
    return old_modules


def reset_modules(
    nodes: Sequence[Node], modules: dict[str, M.Module], old_modules: dict[M.Module, M.Module]
) -> None:
    """Undoes `modules_to_mkldnn` for the modules that nodes call.

    Parameters
    ----------
    nodes : sequence of Node
        Nodes whose modules are exchanged.
    modules : dict of str to Module
        Dotted path to module; kept up to date.
    old_modules : dict of Module to Module
        Mapping that `modules_to_mkldnn` returned.

    Examples
    --------
    >>> import megengine.module as M
    >>> from megengine import fx
    >>> from megengine.fx.experimental import optimization
    >>> gm = fx.symbolic_trace(M.Sequential(M.Conv2d(3, 8, 3), M.ReLU()).eval())
    >>> modules, nodes = dict(gm.named_modules()), list(gm.graph.nodes)
    >>> optimization.reset_modules(nodes, modules, optimization.modules_to_mkldnn(nodes, modules))
    >>> type(modules["0"]).__name__
    'Conv2d'
    """
    for node in nodes:
        if node.op == "call_module" and modules[node.target] in old_modules:
            replace_node_module(node, modules, old_modules[modules[node.target]])
