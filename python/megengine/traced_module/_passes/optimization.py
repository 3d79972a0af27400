"""The passes by name, and their proof on inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from ...fx.verify import difference
from ...tensor import Tensor
from ..expr import Expr
from ..node import Node
from ..traced_module import TracedModule
from .fold_scale import backward_fold_scale, fuse_add_mul
from .layers import fuse_conv_bn

PASSES: dict[str, Callable[[TracedModule], None]] = {
    "FuseConvBn": fuse_conv_bn,
    "FuseAddMul": fuse_add_mul,
    "BackwardFoldScale": backward_fold_scale,
}


def optimize(
    module: TracedModule, enabled_pass: Sequence[str] = ["FuseConvBn"], *, verify: object = None
) -> TracedModule:
    """Returns a copy of ``module`` after passes that keep what it computes in eval mode.

    Layers in training mode stay. Nodes keep the names of the values that they make.

    Parameters
    ----------
    module : TracedModule
        It is not changed.
    enabled_pass : str or sequence of str
        "FuseConvBn" folds batch normalization into the convolution before it. "FuseAddMul" joins
        several additions of numbers in a row into one, and several factors into one.
        "BackwardFoldScale" folds factors into the layer before them, and runs FuseConvBn first.
    verify : Tensor, tuple or None
        A tensor or a tuple of arguments on which both modules are run and compared.

    Returns
    -------
    TracedModule
        The changed copy.

    Raises
    ------
    AssertionError
        If ``module`` is no TracedModule, and for an unknown pass.
    ValueError
        If a node differs on the arguments in verify; the message names the first one.

    Examples
    --------
    >>> import megengine.functional as F, megengine.module as M, megengine.traced_module as tm
    >>> net = M.Sequential(M.Conv2d(3, 4, 1), M.BatchNorm2d(4)).eval()
    >>> fused = tm.optimize(tm.trace_module(net, F.ones((1, 3, 2, 2))))
    >>> print(fused.graph)  # doctest: +NORMALIZE_WHITESPACE
    Sequential.Graph (self, inp) {
        %2: _0 = getattr(self, "0") -> (Conv2d)
        %3: _1_out = _0(inp, )
        return _1_out
    }
    """
    if not isinstance(module, TracedModule):
        raise AssertionError(f"optimize takes a TracedModule, got {type(module).__name__}")
    names = [enabled_pass] if isinstance(enabled_pass, str) else list(enabled_pass)
    for name in names:
        if name not in PASSES:
            raise AssertionError(f"there is no pass {name!r}\n  fix: one of {', '.join(PASSES)}")
    if "BackwardFoldScale" in names:
        names.append("FuseConvBn")
    optimized = copy.deepcopy(module)
    for name, run in PASSES.items():
        if name in names:
            run(optimized)
    for graph in optimized.argdef_graph_map.values():
        graph.lint()
    optimized._adopt_graphs()
    if verify is not None:
        verify_same(module, optimized, verify if isinstance(verify, tuple) else (verify,))
    return optimized


def verify_same(
    before: TracedModule, after: TracedModule, inputs: tuple[Any, ...], tolerance: float = 1e-4
) -> None:
    """ValueError, naming the first node, if nodes of one name get different values from ``inputs``."""
    wanted = _values(before, inputs)
    for name, (value, expr) in _values(after, inputs).items():
        if name in wanted and difference(wanted[name][0], value, tolerance, least_scale=1.0) is not None:
            raise ValueError(f"{expr.describe()} gives another value than before the edit")


def _values(module: TracedModule, inputs: tuple[Any, ...]) -> dict[str, tuple[Tensor, Expr]]:
    """Name of each node of the flattened module -> its value, and the expr that made it."""
    flat = module.flatten()
    graph, leaves = flat._graph_for(inputs, {})
    found: dict[str, tuple[Tensor, Expr]] = {}

    def run_and_note(expr: Expr, env: dict[Node, Any]) -> None:
        expr.run(env)
        found.update({node.name: (Tensor(env[node]), expr) for node in expr.outputs if isinstance(env[node], Tensor)})

    graph._run([flat, *leaves], run_and_note)
    return found
