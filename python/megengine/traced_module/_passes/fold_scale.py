"""Numbers that a value is multiplied by, or that are added: several become one, factors go into weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import functional as F
from ...fx._layers import known_value, layer_of
from ...module import AvgPool2d, MaxPool2d, ReLU
from ...tensor import Tensor
from ..expr import CallMethod, is_call_function, is_call_module, is_call_tensor_method
from ..node import Node, TensorNode
from ..traced_module import TracedModule
from .layers import constant, is_free, put, take_over

_FUNCTIONS = {F.add: "+", F.sub: "-", F.mul: "*", F.div: "/"}
_METHODS = {
    f"__{side}{name}__": (sign, side == "r")
    for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/"))
    for side in ("", "r")
}


def _binary(expr: Any) -> tuple[str, int, int] | None:
    """The sign that ``expr`` computes, and which of its arguments are left and right of it."""
    if len(expr.args) != 2 or expr.kwargs:
        return None
    if is_call_tensor_method(expr, list(_METHODS)):
        sign, is_swapped = _METHODS[expr.method]
        return sign, int(is_swapped), int(not is_swapped)
    return (_FUNCTIONS[expr.func], 0, 1) if is_call_function(expr, list(_FUNCTIONS)) else None


def _is_float(arg: Any) -> bool:
    return isinstance(arg, TensorNode) and arg.dtype is not None and arg.dtype.kind == "f"


def _with_number(expr: Any, signs: str, number: Callable[[Any], float | None]) -> tuple[Node, float] | None:
    """(tensor, c) where ``expr`` is tensor + c or tensor * c, or the same written with - or /, for one of ``signs``."""
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
    """A number, or the only element of a tensor that is the same in each call."""
    value = known_value(arg)
    if isinstance(value, Tensor):
        return float(value) if value.size == 1 and value.ndim <= 1 else None
    return _written(value)


def factor_of(expr: Any, number: Callable[[Any], float | None] = _written) -> tuple[Node, float] | None:
    """(tensor, c) when ``expr`` is tensor * c."""
    return _with_number(expr, "*/", number)


def term_of(expr: Any) -> tuple[Node, float] | None:
    """(tensor, c) when ``expr`` is tensor + c."""
    return _with_number(expr, "+-", _written)


def fuse_add_mul(top: TracedModule) -> None:
    """x * a * b becomes x * (a * b), x + a + b becomes x + (a + b)."""
    for graph in top._inner_graphs():
        for expr in list(graph):
            _fuse(expr, factor_of, "__mul__", lambda a, b: a * b)
            _fuse(expr, term_of, "__add__", lambda a, b: a + b)


def _fuse(
    expr: Any, parts: Callable[[Any], tuple[Node, float] | None], method: str, join: Callable[[float, float], float]
) -> None:
    graph = expr.top_graph
    outer = parts(expr) if graph is not None and isinstance(expr, CallMethod) else None
    inner = parts(outer[0].expr) if outer is not None else None
    is_read_elsewhere = outer is not None and list(outer[0].readers) != [expr]
    if outer is None or inner is None or is_read_elsewhere:
        return
    expr.method = expr.name = method
    expr.args = (inner[0], join(inner[1], outer[1]))
    graph.compile()


def backward_fold_scale(top: TracedModule) -> None:
    """layer(x) * c becomes a layer with c times the weights, also through relu, sums, pooling and new shapes."""
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
                for node in folding.scaled[1:]:  # not the value any more that had the name
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
