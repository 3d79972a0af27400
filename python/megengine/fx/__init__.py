"""Programs as graphs: trace a module, edit its graph, and get a module with code again.

`symbolic_trace` makes a `GraphModule` from a module or function: its `Graph` is a list of `Node`s that
passes read and edit, its code is plain Python.

>>> import megengine.functional as F
>>> from megengine import fx
>>> gm = fx.symbolic_trace(lambda x: F.relu(x) * 2)
>>> for node in gm.graph.nodes:
...     if node.target is F.relu:
...         node.target = F.sigmoid
>>> gm.graph.lint()
[]
>>> _ = gm.recompile()
>>> "sigmoid" in gm.code
True
"""

from .._files.container import ModelFileError
from .._graph.core import GraphError
from . import experimental, linting, node, passes  # noqa: F401 (loading a file imports nothing any more)
from ._intercept import wrap
from .graph import Graph, PythonCode
from .graph_module import GraphModule, load
from .interpreter import Interpreter, Transformer
from .node import Node, map_arg
from .proxy import Proxy, TraceError
from .subgraph_rewriter import Match, replace_pattern
from .torch_import import from_torch
from .tracer import Tracer, symbolic_trace
from .verify import VerificationError, verify_same

__all__ = [
    "Graph", "GraphError", "GraphModule", "Interpreter", "Match", "ModelFileError", "Node", "Proxy",
    "PythonCode", "TraceError", "Tracer", "Transformer", "VerificationError", "experimental", "from_torch", "load",
    "map_arg", "node",
    "passes", "replace_pattern", "symbolic_trace", "verify_same", "wrap",
]  # fmt: skip
