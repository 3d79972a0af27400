"""TracedModules in model files (`megengine._files`): nodes and exprs as records, functions by name."""

from __future__ import annotations

import inspect
import os
from typing import IO, Any

from .._files import admitted, graphs, modules
from .._files.container import Damaged, is_count
from .._files.locations import MapLocation
from .._files.values import (
    Kind,
    ValueReader,
    ValueWriter,
    add_kind,
    exactly,
    expect,
    record,
)
from ..tensor import Tensor
from .expr import EXPRS, Expr
from .function_names import FunctionName, UnknownFunction
from .internal_graph import InternalGraph
from .node import ModuleNode
from .packing import Packed
from .pytree import SUPPORTED_TYPE, LeafDef, TreeDef
from .traced_module import TracedModule
from .tracing import parameter_from, parameters_of

__all__ = ["load"]

_MOST = 1000  # parameters of a module, and graphs: each call looks at all of them


def load(f: str | os.PathLike[str] | IO[bytes], trusted: admitted.Trusted = (), map_location: MapLocation = None) -> TracedModule:
    """Reads the TracedModule that `TracedModule.save` wrote.

    No code that the file chooses is run.

    Parameters
    ----------
    f : str, path or binary file
        Where to read; a file must be open for reading.
    trusted : iterable or mapping of str
        Functions and classes of the program that it calls: a list, or a mapping from the names in
        the file. Those given to `wrap`, `register_as_builtin` and `register_supported_type` are
        trusted already.
    map_location : str, mapping of str to str, callable or None
        Where tensors go: a device, a mapping of devices, or a function from logical device name to
        device, as in `megengine.load`. None: where they were.

    Returns
    -------
    TracedModule
        The module, with tensors of its own.

    Raises
    ------
    ModelFileError
        For a file that cannot be read; the error is a ValueError.

    See Also
    --------
    traced_module.TracedModule.save : Writes such a file.

    Examples
    --------
    >>> import io, megengine as mge, megengine.module as M, megengine.traced_module as tm
    >>> x, file = mge.tensor([[1.0, 2.0]]), io.BytesIO()
    >>> tm.trace_module(M.Sequential(M.Linear(2, 3), M.ReLU()), x).save(file)
    >>> _ = file.seek(0)
    >>> tm.load(file)(x).shape
    (1, 3)
    """
    return modules.load(f, TracedModule, trusted, map_location)


# -- arrangements of arguments -------------------------------------------------------------------


def _write_tree(writer: ValueWriter, tree: TreeDef) -> Any:
    return [admitted.name_of(tree.type), writer(tree.aux_data), writer.list(tree.children_defs)]


def _read_tree(reader: ValueReader, data: Any) -> TreeDef:
    name, aux, children = exactly(data, 3)
    kind = reader.admission.type(expect(name, str))
    if kind not in SUPPORTED_TYPE and not (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        raise admitted.refused(name)
    children = reader.list(children)
    if not all(isinstance(child, TreeDef) for child in children):
        raise Damaged("an arrangement of arguments holds something else")
    return TreeDef(kind, reader(aux), children)


def _write_leaf(writer: ValueWriter, leaf: LeafDef) -> Any:
    return [] if leaf.num_leaves else [writer(leaf.const_val)]


def _read_leaf(reader: ValueReader, data: Any) -> LeafDef:
    constants = reader.list(data)
    if not constants:
        return LeafDef(Tensor)
    (value,) = constants
    leaf = LeafDef(type(value))
    leaf.const_val, leaf.num_leaves = value, 0
    return leaf


def _read_packed(reader: ValueReader, data: Any) -> Packed:
    tree, leaves = reader.list(exactly(data, 2))
    if not isinstance(tree, TreeDef) or not isinstance(leaves, tuple) or tree.num_leaves != len(leaves):
        raise Damaged("a container in the arguments is not complete")
    return Packed(tree, leaves)


add_kind(Kind("leaf", lambda v: isinstance(v, LeafDef), _write_leaf, _read_leaf))
add_kind(Kind("tree", lambda v: type(v) is TreeDef, _write_tree, _read_tree))
add_kind(Kind("packed", lambda v: isinstance(v, Packed), lambda w, v: w.list(v), _read_packed))


# -- graphs --------------------------------------------------------------------------------------


def _write_graph(graph: InternalGraph, writer: ValueWriter) -> dict[str, Any]:
    return {"name": graph.name, "qualname": graph.qualname, "calls": graphs.write_graph(graph.fx_graph, writer)}


def _read_graph(owner: TracedModule, data: Any, reader: ValueReader) -> InternalGraph:
    if "exprs" in expect(data, dict):
        data = _from_older(record(data, "name qualname nodes exprs result"))
    if "result" in data:
        data = _from_old(record(data, "name qualname calls result"))
    record(data, "name qualname calls")
    graph = InternalGraph(expect(data["name"], str), expect(data["qualname"], str), owner)

    def function(name: str) -> Any:
        return _function(name, reader)

    def make(op: str, name: str, target: Any, item: dict[str, Any], reader: ValueReader) -> Expr:
        return _read_expr(graph, op, name, target, item, reader)

    graphs.read_graph(data["calls"], reader, function, Expr, make)
    kinds = [type(node) for node in graph.inputs]
    if not kinds or kinds[0] is not ModuleNode or ModuleNode in kinds[1:] or graph.fx_graph.first.outputs != graph.inputs[:1]:
        raise Damaged(f"the graph {graph.name!r} does not begin with the module and its inputs")
    if [expr.op for expr in graph.fx_graph].count("output") != 1 or graph.fx_graph.last.op != "output":
        raise Damaged(f"the graph {graph.name!r} does not end with what it gives")
    return graph


def _read_expr(graph: InternalGraph, op: str, name: str, target: Any, item: dict[str, Any], reader: ValueReader) -> Expr:
    cls = EXPRS.get(op)
    if cls is None:
        raise Damaged(f"it has a step of the unknown kind {op!r}")
    args, kwargs, source = reader.call(item)
    expr = cls._restored({"name": name, "source": source, "target": target}, args, kwargs)
    expr._take(item, reader)
    graph.fx_graph.insert(expr)
    for node in expr.outputs:
        if graph._names.take(node._name) != node._name:
            raise Damaged(f"two nodes are called {node._name!r}, or one as no node can be")
    return expr


def _function(name: str, reader: ValueReader) -> Any:
    """Returns a function; for one of ours that this version lacks, its name, which a loader may
    replace.
    """
    if name.startswith("megengine.") and reader.admission.find(name) is None:
        return UnknownFunction(FunctionName(*name.rsplit(".", 1)))
    return reader.admission.function(name)


_OLDER = {cls.__name__: cls._kind for cls in EXPRS.values()}


def _from_old(data: dict[str, Any]) -> dict[str, Any]:
    """Converts a graph whose result stands beside its steps to the present form."""
    output = {"op": "output", "name": "output", "target": "output", "args": [data["result"]]}
    return {"name": data["name"], "qualname": data["qualname"], "calls": [*expect(data["calls"], list), output]}


def _from_older(data: dict[str, Any]) -> dict[str, Any]:
    """Converts a graph with its values in a list beside its steps to the form that `_from_old`
    reads.
    """
    calls, nodes, made = [], expect(data["nodes"], list), 0
    for item in expect(data["exprs"], list):
        record(item, "kind name makes result", "args kwargs source keep what")
        if not is_count(item["makes"]) or item["makes"] > len(nodes) - made:
            raise Damaged(f"{item['name']!r} makes {item['makes']} values of {len(nodes) - made}")
        makes = nodes[made : made + item["makes"]]
        made += len(makes)
        op, target = _OLDER.get(expect(item["kind"], str), item["kind"]), item.get("what", "")
        kept = {key: value for key, value in item.items() if key not in ("kind", "what")}
        calls.append({**kept, "op": op, "target": target, "makes": makes})
    return {"name": data["name"], "qualname": data["qualname"], "calls": calls, "result": data["result"]}


# -- modules -------------------------------------------------------------------------------------


def _write(module: TracedModule, writer: ValueWriter) -> Any:
    spec = None
    if module.argspec is not None:
        spec = [[name, kind, *map(writer, default)] for name, kind, *default in parameters_of(module.argspec)]
    called = [[writer(argdef), _write_graph(graph, writer)] for argdef, graph in module.argdef_graph_map.items()]
    return {"signature": spec, "called": called}


def _read(module: TracedModule, data: Any, reader: ValueReader) -> None:
    record(data, "signature called")
    spec = expect(data["signature"], (list, type(None)))
    if len(spec or ()) > _MOST or len(expect(data["called"], list)) > _MOST:
        raise Damaged(f"a traced module has more than {_MOST} parameters or graphs")
    module.argspec = None if spec is None else inspect.Signature([_parameter(item, reader) for item in spec])
    module.argdef_graph_map = {}
    for item in data["called"]:
        argdef, graph = exactly(item, 2)
        argdef = reader(argdef)
        if not isinstance(argdef, TreeDef):
            raise Damaged("a graph does not say how it is called")
        module.argdef_graph_map[argdef] = _read_graph(module, graph, reader)


def _parameter(item: Any, reader: ValueReader) -> inspect.Parameter:
    if len(expect(item, list)) not in (2, 3):
        raise Damaged("a parameter of a signature is not complete")
    name, kind, *default = item
    if type(kind) is not int or kind not in range(5):
        raise Damaged(f"a parameter is of the unknown kind {kind!r}")
    return parameter_from(expect(name, str), kind, *map(reader, default))


def _finish(module: TracedModule, version: str) -> None:
    if not isinstance(getattr(module, "_class_name", None), str):
        raise Damaged("a traced module does not say what it was made from")
    if not module._is_top:
        return
    module._upgrade(version)
    for graph in module.argdef_graph_map.values():
        graph.lint()


modules.FORMS[TracedModule] = modules.Form(
    frozenset({"argdef_graph_map", "argspec", "_watch"}), _write, _read, _finish
)
