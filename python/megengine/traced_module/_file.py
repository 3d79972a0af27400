"""TracedModules in model files (`megengine._files`): nodes and exprs as records, functions by name."""

from __future__ import annotations

import inspect
import os
from typing import IO, Any

from .._files import admitted, graphs, modules
from .._files.container import Damaged, is_count
from .._files.values import (
    Kind,
    ValueReader,
    ValueWriter,
    add_kind,
    exactly,
    expect,
    read_dtype,
    record,
    write_dtype,
)
from ..core.op_objects import OpDef
from ..module import Module
from ..quantization.utils import QParams
from ..tensor import Tensor
from .expr import Apply, CallFunction, CallMethod, Constant, Expr, GetAttr, Input
from .function_names import FunctionName, UnknownFunction
from .internal_graph import InternalGraph
from .node import ModuleNode, Node, TensorNode
from .packing import Packed
from .pytree import SUPPORTED_TYPE, LeafDef, TreeDef
from .serialization import upgrade
from .traced_module import TracedModule

__all__ = ["load"]

_MOST = 1000  # parameters of a module, and graphs: each call looks at all of them
_NODES = {cls.__name__: cls for cls in (ModuleNode, TensorNode)}
_EXPRS = {cls.__name__: cls for cls in (Input, GetAttr, CallMethod, CallFunction, Apply, Constant)}


def load(f: str | os.PathLike[str] | IO[bytes], trusted: admitted.Trusted = (), map_location: Any = None) -> TracedModule:
    """Reads the TracedModule that `TracedModule.save` wrote. Reading runs no code that the file
    chose.

    f: a path or an open binary file.
    trusted: functions and classes of yours that it calls: a list, or a mapping from the names in
        the file. Those given to `wrap`, `register_as_builtin` and `register_supported_type` are
        trusted already.
    map_location: as in `megengine.load`.

    Raises `ModelFileError`, a ValueError, for a file that cannot be read.

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


# -- nodes ---------------------------------------------------------------------------------------


def _write_node(node: Node, writer: ValueWriter) -> dict[str, Any]:
    written: dict[str, Any] = {"kind": type(node).__name__, "name": node._name, "qualname": node._qualname}
    if isinstance(node, TensorNode):
        written |= {
            "shape": None if node._shape is None else list(node._shape),
            "dtype": None if node._dtype is None else write_dtype(node._dtype),
            "device": node._device,
        }
        for key, value in (("qparams", node._qparams), ("value", node._value)):
            if value is not None:
                written[key] = writer(value)
    return written


def _read_node(data: Any, reader: ValueReader) -> Node:
    record(data, "kind name qualname", "shape dtype device qparams value")
    kind = _NODES.get(expect(data["kind"], str))
    name, qualname = expect(data["name"], str), expect(data["qualname"], str)
    if kind is None or not graphs.is_name(name):
        raise Damaged(f"{name!r} is not a name of a node, or it is of an unknown kind")
    if kind is ModuleNode:
        return ModuleNode(None, name, qualname)
    shape, dtype = data.get("shape"), data.get("dtype")
    if shape is not None and not all(map(is_count, expect(shape, list))):
        raise Damaged(f"the node {name!r} has the shape {shape}")
    node = TensorNode(None, name, qualname, shape, None if dtype is None else read_dtype(dtype))
    node._device = expect(data.get("device"), (str, type(None)))
    node._qparams, node._value = reader(data.get("qparams")), reader(data.get("value"))
    if not isinstance(node._qparams, QParams | None) or not isinstance(node._value, Tensor | None):
        raise Damaged(f"the node {name!r} has a value that is not a tensor")
    return node


# -- exprs ---------------------------------------------------------------------------------------


def _write_expr(expr: Expr, writer: ValueWriter) -> dict[str, Any]:
    written: dict[str, Any] = {"kind": type(expr).__name__, "name": expr.name}
    written |= writer.call(expr._args, expr._kwargs, expr.source)
    if expr._disable_remove:
        written["keep"] = True
    if isinstance(expr, CallFunction):
        written["what"] = admitted.name_of(expr.func)
    elif isinstance(expr, (GetAttr, CallMethod)):
        written["what"] = expr.attr_name if isinstance(expr, GetAttr) else expr.method
    elif isinstance(expr, (Apply, Constant)):
        written["what"] = writer(expr.opdef if isinstance(expr, Apply) else expr.value)
    return written


def _read_expr(data: Any, reader: ValueReader) -> Expr:
    record(data, "kind name makes result", "args kwargs source keep what")
    cls = _EXPRS.get(expect(data["kind"], str))
    if cls is None:
        raise Damaged(f"it has a step of the unknown kind {data['kind']!r}")
    args, kwargs, source = reader.call(data)
    saved = {
        "name": expect(data["name"], str),
        "source": source,
        "_id": None,
        "_disable_remove": expect(data.get("keep", False), bool),
    }
    what = data.get("what")
    if cls is CallFunction:
        saved["_func"] = _function(expect(what, str), reader)
    elif cls in (GetAttr, CallMethod):
        saved["attr_name" if cls is GetAttr else "method"] = expect(what, str)
    elif cls is not Input:
        saved["opdef" if cls is Apply else "value"] = reader(what)
    return cls._restored(saved, args, kwargs)


def _function(name: str, reader: ValueReader) -> Any:
    """A function; for one of ours that this version does not have, a name, which a loader may replace."""
    if name.startswith("megengine.") and reader.admission.find(name) is None:
        return UnknownFunction(FunctionName(*name.rsplit(".", 1)))
    return reader.admission.function(name)


def check_step(expr: Expr) -> None:
    """Damaged unless the step only computes; the same when it is written and when it is read."""
    what = f"the step that makes {', '.join(node.name for node in expr.outputs)}" if expr.outputs else expr.name
    if isinstance(expr, CallFunction):
        graphs.check_function(expr, expr.func, what)
    elif isinstance(expr, CallMethod):
        if not expr.args or not isinstance(expr.args[0], Node):
            raise Damaged(f"{what} calls a method of nothing")
        if isinstance(expr.args[0], TensorNode):
            graphs.check_method(expr.method, what)
        elif expr.method != "__call__":
            raise Damaged(f"{what} calls {expr.method!r} of a module")
    elif isinstance(expr, Apply):
        if not isinstance(expr.opdef, OpDef):
            raise Damaged(f"{what} applies no operator")
    elif isinstance(expr, (GetAttr, Constant)):
        _check_attribute(expr, what)
    elif len(expr.outputs) != 1 or expr.args or expr.kwargs:
        raise Damaged(f"{what} is not an input")


def _check_attribute(expr: GetAttr | Constant, what: str) -> None:
    if isinstance(expr, GetAttr):
        if len(expr.args) != 1 or not isinstance(expr.args[0], ModuleNode):
            raise Damaged(f"{what} reads from no module")
        value = graphs.at_path(expr.args[0].owner, expr.attr_name, what)
    else:
        value = expr.value
    made = {TensorNode: Tensor, ModuleNode: Module}
    if len(expr.outputs) != 1 or not isinstance(value, made[type(expr.outputs[0])]):
        raise Damaged(f"{what} reads a {type(value).__name__}")


# -- graphs --------------------------------------------------------------------------------------


def _write_graph(graph: InternalGraph, writer: ValueWriter) -> dict[str, Any]:
    outer, writer.nodes = writer.nodes, {}
    try:
        nodes: list[Any] = []
        exprs: list[Any] = []
        for expr in graph:
            check_step(expr)
            written = _write_expr(expr, writer)
            for node in expr.outputs:
                writer.nodes[node] = len(nodes)
                nodes.append(_write_node(node, writer))
            exprs.append({**written, "makes": len(expr.outputs), "result": writer(expr._result)})
        return {
            "name": graph._name,
            "qualname": graph._qualname,
            "nodes": nodes,
            "exprs": exprs,
            "result": writer(graph._result),
        }
    finally:
        writer.nodes = outer


def _read_graph(owner: TracedModule, data: Any, reader: ValueReader) -> InternalGraph:
    record(data, "name qualname nodes exprs result")
    graph = InternalGraph(expect(data["name"], str), expect(data["qualname"], str))
    graph._module = owner
    outer, reader.nodes = reader.nodes, []
    try:
        waiting = [_read_node(item, reader) for item in expect(data["nodes"], list)]
        for item in expect(data["exprs"], list):
            expr = _read_expr(item, reader)
            made = len(reader.nodes)
            if not is_count(item["makes"]) or item["makes"] > len(waiting) - made:
                raise Damaged(f"{expr.name} makes {item['makes']} values of {len(waiting) - made}")
            reader.nodes += waiting[made : made + item["makes"]]
            expr._give(reader(item["result"]))
            if expr.outputs != reader.nodes[made:]:
                raise Damaged(f"{expr.name} does not make the values that follow it")
            graph.insert(expr)
            check_step(expr)
            for node in expr.outputs:
                if graph._names.take(node._name) != node._name:
                    raise Damaged(f"two nodes are called {node._name!r}")
        graph._result = reader(data["result"])
    finally:
        reader.nodes = outer
    kinds = [type(node) for node in graph.inputs]
    if not kinds or kinds[0] is not ModuleNode or ModuleNode in kinds[1:] or graph.first.outputs != graph.inputs[:1]:
        raise Damaged(f"the graph {graph._name!r} does not begin with the module and its inputs")
    return graph


# -- modules -------------------------------------------------------------------------------------


def _write(module: TracedModule, writer: ValueWriter) -> Any:
    spec = None
    if module.argspec is not None:
        spec = [
            [p.name, int(p.kind), *([] if p.default is p.empty else [writer(p.default)])]
            for p in module.argspec.parameters.values()
        ]
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
    every: Any = type(inspect.Parameter.KEYWORD_ONLY)
    kinds = {int(kind): kind for kind in every}
    if type(kind) is not int or kind not in kinds:
        raise Damaged(f"a parameter is of the unknown kind {kind!r}")
    return inspect.Parameter(expect(name, str), kinds[kind], **{"default": reader(d) for d in default})


def _finish(module: TracedModule, version: str) -> None:
    if not isinstance(getattr(module, "_class_name", None), str):
        raise Damaged("a traced module does not say what it was made from")
    if not module._is_top:
        return
    for graph in module._inner_graphs():
        upgrade(graph, version)
    module._adopt_graphs()
    for graph in module.argdef_graph_map.values():
        graph.lint()


modules.FORMS[TracedModule] = modules.Form(
    frozenset({"argdef_graph_map", "argspec", "_watch"}), _write, _read, _finish
)
