"""Passes that keep what a traced module computes, by name, and their verification on inputs.

"FuseConvBn" folds batch normalization with fixed statistics into the convolution before it; the
others join factors, or terms, that are numbers, and move factors into weights. A layer that has
another use, or that trains, stays as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from .. import functional as F
from ..fx._layers import Folding, Layer, Norm, known_value, layer_of
from ..fx.verify import difference
from ..module import AvgPool2d, MaxPool2d, Module, ReLU
from ..tensor import Parameter, Tensor
from .expr import Constant, Expr, GetAttr, is_call_function, is_call_module, is_call_tensor_method
from .node import Node, TensorNode
from .traced_module import TracedModule
from .utils import assign_attr, get_subattr

__all__ = ["optimize"]

# -- edits of layers -----------------------------------------------------------------------------


def fuse_conv_bn(top: TracedModule) -> None:
    """Fold every normalization in all graphs of ``top``."""
    for graph in top._inner_graphs():
        _Fuser(top).run(graph.fx_graph)


class _Fuser(Folding):
    def __init__(self, top: TracedModule) -> None:
        self._top = top

    def admits(self, layer: Layer, norm: Norm) -> bool:
        return not norm.trains and is_free(self._top, layer)

    def put(self, layer: Layer, weight: Parameter, bias: Parameter) -> None:
        put(layer, weight, bias)

    def drop(self, call: Any, inp: Any) -> None:
        read = call.args[0].expr if is_call_module(call) else None
        held = (read.args[0].owner, read.attr_name) if isinstance(read, GetAttr) else None
        take_over(call.outputs[0], inp)
        if held is not None:
            forget(self._top, *held)


def constant(expr: Expr, value: Tensor) -> Node:
    """Makes a node for ``value`` in the graph of ``expr``, before all exprs that compute."""
    graph: Any = expr.top_graph
    node = Constant.make(value, qualname=f"{graph.qualname}.[const]")
    graph._add(node.expr, after=graph.inputs[-1].expr)
    return node


def put(layer: Layer, weight: Tensor, bias: Tensor | None) -> None:
    """Gives the call of a layer other parameters."""
    call = layer.call
    if not is_call_module(call):
        for name, value in (("weight", weight), ("bias", bias)):
            if value is not None:
                call.set_arg(name, constant(call, value))
        return
    node = call.args[0]
    changed: Any = copy.deepcopy(node.owner)
    changed.weight = Parameter(weight)
    changed.bias = None if bias is None else Parameter(bias)
    changed.__dict__["_short_name"] = node.owner._short_name
    assign_attr(changed, node.expr.args[0].owner, node.expr.attr_name)


def is_free(top: TracedModule, layer: Layer) -> bool:
    """Whether a layer may get other parameters: it does not train, and nothing else uses its module, an attribute of another."""
    if layer.trains or not is_call_module(layer.call):
        return not layer.trains
    node = layer.call.args[0]
    return isinstance(node.expr, GetAttr) and uses_of(top, node.owner) == 1


def uses_of(top: TracedModule, module: Module) -> int:
    """Counts the exprs that call ``module`` or read a tensor of it."""
    parts = {id(part) for part in (module, *module.tensors())}
    return sum(
        id(expr.reached()) in parts
        for graph in top._inner_graphs()
        for expr in graph
        if is_call_module(expr) or (isinstance(expr, GetAttr) and isinstance(expr.outputs[0], TensorNode))
    )


def take_over(old: Node, new: Node) -> None:
    """Replaces ``old`` by ``new``, which takes over its name, so that a name still means one value.
    """
    graph = old.top_graph
    if graph is None:
        raise AssertionError("graph is not None does not hold")
    name, qualname = old.name, old.qualname
    graph.replace_node({old: new})
    graph.compile()
    if name not in graph._names:
        new.name, new._qualname = name, qualname


def forget(top: TracedModule, holder: Module, path: str) -> None:
    """Drop the module at ``path`` when nothing uses it any more."""
    parent, _, key = path.rpartition(".")
    owner = get_subattr(holder, parent) if parent else holder
    if isinstance(owner, Module) and uses_of(top, getattr(owner, key)) == 0:
        delattr(owner, key)


# -- numbers -------------------------------------------------------------------------------------

_FUNCTIONS = {F.add: "+", F.sub: "-", F.mul: "*", F.div: "/"}
_METHODS = {
    f"__{side}{name}__": (sign, side == "r")
    for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/"))
    for side in ("", "r")
}


def _binary(expr: Any) -> tuple[str, int, int] | None:
    """Returns the sign that ``expr`` computes, and the places of its left and right arguments."""
    if len(expr.args) != 2 or expr.kwargs:
        return None
    if is_call_tensor_method(expr, list(_METHODS)):
        sign, is_swapped = _METHODS[expr.method]
        return sign, int(is_swapped), int(not is_swapped)
    return (_FUNCTIONS[expr.func], 0, 1) if is_call_function(expr, list(_FUNCTIONS)) else None


def _is_float(arg: Any) -> bool:
    return isinstance(arg, TensorNode) and arg.dtype is not None and arg.dtype.kind == "f"


def _with_number(expr: Any, signs: str, number: Callable[[Any], float | None]) -> tuple[Node, float] | None:
    """Returns (tensor, c) where ``expr`` is tensor + c or tensor * c, or the same written with - or
    /, for one of ``signs``.
    """
    found = _binary(expr)
    if found is None or found[0] not in signs:
        return None
    sign, left, right = found[0], expr.args[found[1]], expr.args[found[2]]
    if sign in "+*" and not _is_float(left):
        left, right = right, left
    value = number(right)
    if not _is_float(left) or not value:
        return None
    return left, -value if sign == "-" else 1 / value if sign == "/" else value


def _written(arg: Any) -> float | None:
    return float(arg) if type(arg) in (int, float) else None


def _known(arg: Any) -> float | None:
    """Returns a number, or the only element of a tensor that is the same in each call."""
    value = known_value(arg)
    if isinstance(value, Tensor):
        return float(value) if value.size == 1 and value.ndim <= 1 else None
    return _written(value)


def factor_of(expr: Any, number: Callable[[Any], float | None] = _written) -> tuple[Node, float] | None:
    """Returns (tensor, c) when ``expr`` is tensor * c."""
    return _with_number(expr, "*/", number)


def term_of(expr: Any) -> tuple[Node, float] | None:
    """Returns (tensor, c) when ``expr`` is tensor + c."""
    return _with_number(expr, "+-", _written)


def fuse_add_mul(top: TracedModule) -> None:
    """Turns x * a * b into x * (a * b), and x + a + b into x + (a + b)."""
    for graph in top._inner_graphs():
        for expr in list(graph):
            _fuse(expr, factor_of, "__mul__", lambda a, b: a * b)
            _fuse(expr, term_of, "__add__", lambda a, b: a + b)


def _fuse(
    expr: Any, parts: Callable[[Any], tuple[Node, float] | None], method: str, join: Callable[[float, float], float]
) -> None:
    graph = expr.top_graph
    outer = parts(expr) if graph is not None and expr.op == "call_method" else None
    inner = parts(outer[0].expr) if outer is not None else None
    is_read_elsewhere = outer is not None and list(outer[0].readers) != [expr]
    if outer is None or inner is None or is_read_elsewhere:
        return
    expr.method = expr.name = method
    expr.args = (inner[0], join(inner[1], outer[1]))
    graph.compile()


def backward_fold_scale(top: TracedModule) -> None:
    """Turns layer(x) * c into a layer with c times the weights, also through relu, sums, pooling
    and reshapes.
    """
    for graph in top._inner_graphs():
        for expr in list(graph):
            found = factor_of(expr, _known) if expr.top_graph is not None else None
            if found is None:
                continue
            folding = _Folding(top, found[1])
            if folding.reaches(found[0], expr):
                for change in folding.changes:
                    change()
                take_over(expr.outputs[0], found[0])
                for node in folding.scaled[1:]:  # it is no longer the value that had the name
                    node.name = f"{node.name}_scaled_{node._id}"


class _Folding:
    """Finds what must change for a value to be ``factor`` times what it is."""

    def __init__(self, top: TracedModule, factor: float) -> None:
        self._top = top
        self._factor = factor
        self.changes: list[Callable[[], None]] = []
        self.scaled: list[Node] = []

    def reaches(self, node: Node, user: Any) -> bool:
        """Whether ``node``, which must be of no use to others than ``user``, can be scaled."""
        expr: Any = node.expr
        if list(node.readers) != [user]:
            return False
        self.scaled.append(node)
        layer = layer_of(expr)
        if layer is not None and is_free(self._top, layer):
            bias = None if layer.bias is None else layer.bias * self._factor
            self.changes.append(lambda: put(layer, layer.weight * self._factor, bias))
            return True
        if self._passes(expr):
            return self.reaches(expr.inputs[-1], expr)
        found = _binary(expr)
        return found is not None and found[0] in "+-" and all(self._term(expr, i) for i in range(2))

    def _passes(self, expr: Any) -> bool:
        """Whether f(x * factor) = f(x) * factor; f's only tensor is its last input."""
        if is_call_function(expr, [F.relu, F.max_pool2d]) or is_call_module(expr, ReLU) or is_call_module(expr, MaxPool2d):
            return self._factor > 0
        is_linear = (
            is_call_function(expr, [F.avg_pool2d, F.reshape, F.flatten])
            or is_call_module(expr, AvgPool2d)
            or is_call_tensor_method(expr, ("reshape", "flatten", "transpose"))
        )
        return is_linear and len(expr.inputs) == 1 + is_call_module(expr)

    def _term(self, expr: Any, place: int) -> bool:
        """Whether an operand of a sum can be scaled: a number, a tensor known beforehand, or the value of a layer."""
        term = expr.args[place]
        value = known_value(term)
        if value is None:
            return isinstance(term, TensorNode) and self.reaches(term, expr)
        if not isinstance(value, Tensor) and type(value) not in (int, float):
            return False

        def scale() -> None:
            scaled = value * self._factor
            args = list(expr.args)
            args[place] = constant(expr, scaled) if isinstance(scaled, Tensor) else scaled
            expr.args = tuple(args)

        self.changes.append(scale)
        return True


# -- by name -------------------------------------------------------------------------------------

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
    """Raises ValueError, naming the first node, if nodes of one name get different values from
    ``inputs``.
    """
    wanted = _values(before, inputs)
    for name, (value, expr) in _values(after, inputs).items():
        if name in wanted and difference(wanted[name][0], value, tolerance, least_scale=1.0) is not None:
            raise ValueError(f"{expr.describe()} gives another value than before the edit")


def _values(module: TracedModule, inputs: tuple[Any, ...]) -> dict[str, tuple[Tensor, Expr]]:
    """Maps the name of each node of the flattened module to its value and the expr that made it."""
    flat = module.flatten()
    graph, leaves = flat._graph_for(inputs, {})
    found: dict[str, tuple[Tensor, Expr]] = {}

    def run_and_note(expr: Expr, env: dict[Node, Any]) -> None:
        expr.run(env)
        found.update({node.name: (Tensor(env[node]), expr) for node in expr.outputs if isinstance(env[node], Tensor)})

    with graph.run_by(run_and_note):
        graph._run([flat, *leaves])
    return found
