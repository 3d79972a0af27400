"""The linter of all module graphs: checks that they are well formed, and remarks on sharing that
edits must mind.
"""

from __future__ import annotations

from typing import Any

from .._graph.core import Call, Graph, GraphError
from .._graph.remarks import remarks_on_sharing
from .._graph.tree import Value
from ..module._structure import all_paths
from ..module._training import training_part, trains
from ..tensor import Tensor

_NAMED = ("placeholder", "get_attr", "call_method", "call_module", "output")  # ops whose targets are names


def lint(top: Graph, for_inference: bool) -> list[str]:
    """Raises GraphError for ``top``, or a graph that it calls, that is not well formed (`check`).

    for_inference: whether called modules must also be out of training mode. Returns a sentence for
    each module or tensor that has
    two names, module that several calls share, and tensor read from a module that is called.
    """
    calls: list[Call] = []
    for graph in top.each_graph():
        check(graph)
        calls += graph
    if for_inference:
        for call in calls:
            _check_mode(call)
    if top.owner is None:
        return []
    read = [(call, call.reached()) for call in calls if call.op == "get_attr"]
    return remarks_on_sharing(
        all_paths(top.owner),
        [(call, call.reached()) for call in calls if call.op == "call_module"],
        [(call, value) for call, value in read if isinstance(value, Tensor)],
    )


def check(graph: Graph) -> None:
    """Raises GraphError, naming the call, unless each value is made before it is read, by one call
    and under one name, and lists its users; and unless the targets of calls exist and have the
    right kind.
    """
    graph.check()
    names: dict[str, Value] = {}
    for call in graph:
        for value in call.outputs:
            if names.setdefault(value.name, value) is not value:
                raise GraphError(f"two nodes are called {value.name!r}: {call.describe()}")
        _check_target(call)
        call.check()
    graph.check_ends()


def _check_target(call: Call) -> None:
    if call.op == "call_function" and not callable(call.target):
        raise GraphError(f"{call.describe()} calls {call.target!r}, which is not callable")
    if call.op in _NAMED and not isinstance(call.target, str):
        raise GraphError(f"{call.describe()}: the target of {call.op} must be a str, is {call.target!r}")
    if call.op == "call_method" and not call.args:
        raise GraphError(f"{call.describe()} calls a method of nothing: args is empty")
    if call.op not in ("call_module", "get_attr"):
        return
    try:
        found = call.reached()
    except (AttributeError, LookupError):
        raise GraphError(f"{call.describe()}: the module has nothing at {call.target!r}") from None
    if call.op == "call_module" and found is not None and not callable(found):
        raise GraphError(f"{call.describe()}: {call.target!r} is a {type(found).__name__}, not a module")


def _check_mode(call: Call) -> None:
    module: Any = call.reached() if call.op == "call_module" and call.called is None else None
    part = training_part(module) if module is not None else None
    if part is not None or (call.op == "call_function" and trains(call.target, call.args, call.kwargs)):
        what = f": {type(part[1]).__name__} {part[0]!r}" if part else ""
        raise GraphError(
            f"{call.describe()} is in training mode{what}\n"
            "  fix: call eval() of the module before it is traced or optimized"
        )
