"""The calls of graphs in files, as records. They may compute with values, and do nothing else.

Functions are those of `admitted`. Methods and attributes of values are named by the file, so they are checked here:
public ones of tensors, containers and results, operators; none that leads from a value to Python's insides or to
the disk. Paths lead through attributes that hold data. The same holds when a graph is written.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .._graph.core import Call, Graph
from ..module import Module
from ..tensor import Tensor
from .admitted import active, name_of
from .container import Damaged
from .values import ValueReader, ValueWriter, expect, record

# A graph may call methods of these only where a Tensor has them, too: others write files, or give memory away.
_FOREIGN = (np.ndarray, np.generic, str, bytes, memoryview)
_ARITHMETIC = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul", "lshift", "rshift", "and", "or",
    "xor",
)  # fmt: skip
_OPERATORS = frozenset(
    f"__{side}{name}__" for name in _ARITHMETIC for side in ("", "r", "i")
) | {
    f"__{name}__"
    for name in (
        "lt", "le", "eq", "ne", "gt", "ge", "neg", "pos", "abs", "invert", "round", "floor", "ceil", "trunc", "getitem",
        "setitem", "call", "len", "contains", "bool", "int", "float", "index",
    )
}  # fmt: skip
_PATH_STEPS = 64


# -- records -------------------------------------------------------------------------------------


@contextmanager
def _one_graph(values: ValueWriter | ValueReader) -> Iterator[None]:
    """Begins a graph: inside the block its nodes are numbered from 0."""
    outer, values.nodes = values.nodes, type(values.nodes)()
    try:
        yield
    finally:
        values.nodes = outer


def write_graph(graph: Graph, writer: ValueWriter) -> list[dict[str, Any]]:
    """Returns a record for each call. Damaged for a graph that `read_graph` refuses."""
    written = []
    with _one_graph(writer):
        for call in graph:
            check_call(call)
            target = name_of(call.target) if call.op == "call_function" else writer(call.target)
            item = {"op": call.op, "name": call.name, "target": target, **writer.call(call.args, call.kwargs, call.source)}
            for value in call.outputs:
                writer.nodes[value] = len(writer.nodes)
            written.append(item | call._written(writer))
    return written


def read_graph(data: Any, reader: ValueReader, function: Callable[[str], Any], kind: type[Call], make: Callable[..., Call]) -> None:
    """Read what `write_graph` wrote.

    function: gives the function of a name. kind: whose fields a record may have. make(op, name, target, item, reader) puts a call into its graph.
    """
    with _one_graph(reader):
        for item in expect(data, list):
            record(item, "op name target", f"args kwargs source {kind._fields}")
            op, name = expect(item["op"], str), expect(item["name"], str)
            target = item["target"] if op in ("apply", "constant") else expect(item["target"], str)
            check_call(make(op, name, function(target) if op == "call_function" else reader(target), item, reader))


def check_call(call: Call) -> None:
    """Raises Damaged unless the call only computes; the same when it is written and when it is
    read.
    """
    for value in call.outputs:
        if not is_name(value.name):
            raise Damaged(f"{value.name!r} cannot be the name of a node")
    what = f"the step that makes {', '.join(value.name for value in call.outputs)}" if call.outputs else call.name
    if call.op == "call_function":
        check_function(call, call.target, what)
    elif call.op == "call_method":
        check_method(call.target, what)
    call.check_saved(what)


def check_when_read(graph: Graph) -> None:
    """Check the calls of a graph that a pickle holds, when all that it reads from is there."""
    admission = active()
    if admission is not None:
        admission.check_at_end(lambda: [*map(check_call, graph)])


# -- what they may do ----------------------------------------------------------------------------


def check_method(name: Any, what: str) -> None:
    """Raises Damaged unless a graph may read or call the attribute ``name`` of any value."""
    if isinstance(name, str) and (name in _OPERATORS or name == "_reset" or _is_harmless(name)):
        return
    raise Damaged(f"{what} asks a value for {name!r}, which graphs in files do not")


def _is_harmless(name: str) -> bool:
    if not (name.isascii() and name.isidentifier()) or name.startswith("_"):
        return False
    return hasattr(Tensor, name) or not any(hasattr(kind, name) for kind in _FOREIGN)


def check_function(call: Call, function: Any, what: str) -> None:
    """Raises Damaged for ``getattr`` of something that `check_method` refuses, or that is not
    known.
    """
    if function is getattr:
        if len(call.args) not in (2, 3) or call.kwargs:
            raise Damaged(f"{what} calls getattr with {len(call.args)} arguments")
        check_method(call.args[1], what)


def at_path(root: Any, path: str, what: str) -> Any:
    """Returns the object at a dotted path through attributes, lists and dicts of data. Damaged if
    there is none.
    """
    steps = path.split(".") if isinstance(path, str) else []
    if not 0 < len(steps) <= _PATH_STEPS:
        raise Damaged(f"{what} has no path of an attribute")
    found = root
    for step in steps:
        try:
            if isinstance(found, Module):
                found = found.__dict__[step]
            elif isinstance(found, (list, tuple)):
                found = found[int(step)]
            else:
                found = found[step] if isinstance(found, dict) else None
        except (KeyError, ValueError, IndexError):
            found = None
        if found is None:
            raise Damaged(f"{what}: the module has nothing at {path!r} that a graph may read")
    return found


def is_name(text: Any) -> bool:
    """Whether ``text`` can be the name of a value: of a variable, and of a bounded length."""
    return isinstance(text, str) and len(text) < 10_000 and text.isidentifier() and not keyword.iskeyword(text)
