"""Names of the tensors and layers of a graph as the user's program calls them, for plans and
errors.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import fx

from .._core import size_text
from ._private import PlainAOTInput, TangentAOTInput, source_of_argument

_NOT_THE_USERS = (*(os.path.dirname(file) + os.sep for file in (torch.__file__, __file__)), "<")
_KEPT = "kept values"
# Kind of an argument -> its use in plans.
_USES = {"parameters": "parameter", "buffers": "state", _KEPT: "activation", "gradients of results": "gradient"}
# The kind of each result of a graph, by the class of AOTAutograd's description.
_RESULTS = {"GradAOTOutput": "gradients", "SavedForBackwardsAOTOutput": _KEPT, "InputMutationAOTOutput": "new values of buffers"}
# How dynamo's text of a source says that a module has something: `._modules` or `.__dict__['_modules']`.
_KEPT_BY_MODULES = r"\.(?:__dict__\[')?_(modules|parameters|buffers)(?:'\])?"
NAMED = "megjit_named"  # an argument's meta: its `Named`


class Named(NamedTuple):
    """A tensor of the user's program: "layers.0.weight", and "parameters", "buffers" or "arguments"."""

    name: str
    kind: str


def is_users(frame: FrameType) -> bool:
    """Returns whether a frame is neither torch's nor this package's."""
    return not frame.f_code.co_filename.startswith(_NOT_THE_USERS)


def users_frame() -> FrameType | None:
    """Returns the frame of the user's program that called torch."""
    frame: FrameType | None = sys._getframe(1)
    while frame and not is_users(frame):
        frame = frame.f_back
    return frame


def path_of(source: str) -> str:
    """Returns "layers.0.weight" for dynamo's "L['self']._modules['layers']._modules['0']._parameters['weight']".

    Of a module with a ``__getattr__`` of its own dynamo reads ``__dict__['_modules']``.
    """
    path = re.sub(rf"{_KEPT_BY_MODULES}\['([^']*)'\]", r".\2", source)
    path = re.sub(r"^[LG]\['([^']*)'\]", r"\1", path).replace("._orig_mod", "")
    return re.sub(r"^(self|fn)(\.|$)", "", path).replace(" ", "_")


def line_at(frame: FrameType | None) -> str:
    """Returns a frame's line, as torch notes lines of operations; "" without one."""
    return f'File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}' if frame else ""


def tell_lines(graph: fx.GraphModule) -> None:
    """Gives the line that calls the graph to the operations of torch's own layers that dynamo has noted no line of. In place."""
    line = line_at(users_frame())
    for node in graph.graph.nodes:
        if node.op not in ("placeholder", "output"):
            node.meta["stack_trace"] = node.meta.get("stack_trace") or line


def arguments_of(graph: fx.GraphModule) -> list[Named]:
    """Returns what the program calls the arguments of a graph of dynamo's, in their order."""
    found = []
    for node in graph.graph.find_nodes(op="placeholder"):
        source = source_of_argument(node)
        kinds = re.findall(_KEPT_BY_MODULES, source)
        kind = kinds[-1] if kinds and kinds[-1] != "modules" else "arguments"
        found.append(Named(path_of(source) or node.name, kind))
    return found


def name_arguments(graph: fx.GraphModule, known: Sequence[Named]) -> None:
    """Notes what the program calls the arguments of AOTAutograd's graph, which may be parts of dynamo's arguments. In place."""
    for node in graph.graph.find_nodes(op="placeholder"):
        given = node.meta.get("desc")
        while hasattr(given, "base"):
            given = given.base
        if isinstance(given, PlainAOTInput) and given.idx < len(known):
            node.meta[NAMED] = known[given.idx]
        elif isinstance(given, TangentAOTInput):
            node.meta[NAMED] = Named("result.grad", "gradients of results")


def layer_of(node: fx.Node) -> str:
    """Returns the layer that an operation belongs to, such as "layers.0"; "" if torch has not noted it."""
    *_, (path, _) = (node.meta.get("nn_module_stack") or {"": ("", None)}).values()
    return path_of(path)


def name_of_argument(node: fx.Node) -> Named:
    """Returns what an argument of a program is called; what other programs give has the name of its operation."""
    found: Named | None = node.meta.get(NAMED)
    if found is None:  # AOTAutograd describes the arguments of the user's call alone
        found = Named(node.name, "arguments") if node.meta.get("desc") else Named(f"kept.{node.name}", _KEPT)
    return found


def uses_of(arguments: Iterable[Named]) -> dict[str, str]:
    """Returns what a plan is to say that arguments are for, by their names."""
    return {name: _USES[kind] for name, kind in arguments if kind in _USES}


def kinds_text(graph: fx.Graph) -> str:
    """Returns what the arguments and results of a graph take by kind, the largest first: "parameters 96.0 KiB, arguments 16.0 KiB"."""
    output = graph.output_node()
    about = output.meta.get("desc") or [None] * len(output.args[0])
    kinds = {node: _RESULTS.get(type(each).__name__, "results") for node, each in zip(output.args[0], about, strict=True) if isinstance(node, fx.Node)}
    kinds |= {node: name_of_argument(node).kind for node in graph.find_nodes(op="placeholder")}
    taken: dict[str, int] = {}
    for node, kind in kinds.items():
        taken[kind] = taken.get(kind, 0) + _bytes_if_known(node.meta.get("val"))
    return ", ".join(f"{kind} {size_text(size)}" for kind, size in sorted(taken.items(), key=lambda row: -row[1]) if size)


def _bytes_if_known(value: Any) -> int:
    size = value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0
    return size if isinstance(size, int) else 0  # extents that calls decide are symbols
