"""Graphs that a program builds, compiles and feeds by hand, under the names of older programs; they are `megengine.utils.network`'s.

>>> import numpy as np, megengine.functional as F
>>> graph = Graph()
>>> x = InputNode(dtype="float32", shape=(2,), graph=graph)
>>> y = OutputNode(F.relu(x.outputs[0]))
>>> run = graph.compile(*y.outputs)
>>> x.set_value(np.float32([-1, 2])); run.execute().wait()
>>> y.get_value().numpy()
array([0., 2.], dtype=float32)
"""

from __future__ import annotations

import collections
import io
import os
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Self

import numpy as np

from .._core import GraphEditor
from ..jit.dump import DumpInfo as CompGraphDumpResult
from ..tensor import Tensor
from .network import Network, _networks
from .network_node import OpNode, VarNode

__name__ = "megengine.core.tensor.megbrain_graph"  # its classes are named by this path
__all__ = [
    "AttrOutputNode", "CompGraphDumpResult", "CompGraphLoadResult", "Graph", "InputNode", "OpNode", "OutputNode", "TensorAttr",
    "ValueOutputNode", "VarNode", "dump_graph", "input_callback", "load_graph", "optimize_for_inference", "output_callback",
]  # fmt: skip

CompGraphLoadResult = collections.namedtuple(
    "CompGraphLoadResult", ["graph", "output_vars_dict", "output_vars_list", "metadata"]
)
TensorAttr = collections.namedtuple("TensorAttr", ["shape", "dtype", "device"])


class Graph:
    """Variables that belong together; `compile` makes it runnable."""

    def __init__(self, network: Network | None = None) -> None:
        self.network = Network() if network is None else network
        self._inputs: list[InputNode] = []
        self._outputs: list[OutputNode] = []
        # a variable finds this object by its network
        self.network.__dict__["_megbrain_graph"] = self

    @staticmethod
    def of(place: VarNode | Network | GraphEditor | Graph) -> Graph:
        """Returns the graph of a variable, of a network, or of the ``graph`` of either."""
        if isinstance(place, Graph):
            return place
        editor = place if isinstance(place, GraphEditor) else place.graph
        network = _networks[editor.id]
        return network.__dict__.get("_megbrain_graph") or Graph(network)

    def make_const(
        self, data: Any, dtype: Any = None, device: str | None = None, name: str | None = None
    ) -> VarNode:
        """A constant."""
        return self.network.make_const(np.asarray(data, dtype=dtype), name, device)

    def make_h2d(self, *, dtype: Any, device: str | None = None, shape: Any = None, name: str | None = None) -> VarNode:
        """An input. ValueError without its type."""
        if shape is None or dtype is None:
            raise ValueError(
                "an input needs its shape and dtype here: types of all variables are known\n  fix: InputNode(shape=..., dtype=...)"
            )
        return self.network.make_input_node(shape, dtype, name, None if device is None else str(device))

    def compile(self, *outputs: Any) -> Self:
        """Computes these variables (of nodes or lists of them, too) from the next `execute` on."""
        wanted = [var for output in outputs for var in (output if isinstance(output, (list, tuple)) else [output])]
        self.network._set_outputs(list(dict.fromkeys(self.network._id_of(var) for var in wanted)))
        return self

    def execute(self, *args: Any) -> Self:
        """Runs the function with the values of input nodes. RuntimeError for an input without a
        value.
        """
        given = iter(args)
        values = []
        for var in self.network.input_vars:
            node = next((node for node in self._inputs if node.outputs[0] is var), None)
            value = node._next_value() if node is not None else None
            if value is None:
                value = next(given, None)
            if value is None:
                raise RuntimeError(f"{var!r} has no value\n  fix: set_value of its InputNode before execute")
            values.append(value.numpy() if isinstance(value, Tensor) else np.asarray(value))
        results = list(self.network.infer(*values).values())
        by_id = dict(zip((var.id for var in self.network.output_vars), results, strict=True))
        for output in self._outputs:
            if output.outputs[0].id in by_id:
                output._take(by_id[output.outputs[0].id])
        return self

    def wait(self) -> None:
        """Returns at once: the results are there when `execute` returns."""

    def __call__(self, *args: Any) -> Self:
        return self.execute(*args)


class InputNode:
    """An input whose value a program sets. shape, dtype, device: those of the value. args: nodes
    that must run before it.
    """

    def __init__(
        self,
        *args: VarNode,
        device: Any = None,
        dtype: Any = None,
        shape: Any = None,
        graph: Graph | Network | GraphEditor | None = None,
        use_static_shape: bool = False,
    ) -> None:
        del use_static_shape  # all shapes are static
        place = args[0] if graph is None and args else graph
        self.graph = Graph() if place is None else Graph.of(place)
        self.outputs = [self.graph.make_h2d(dtype=dtype, device=device, shape=shape)]
        self._value: Any = None
        self.graph._inputs.append(self)

    def set_value(self, value: Any) -> None:
        """The value of the next `Graph.execute`."""
        self._value = value

    def _next_value(self) -> Any:
        value, self._value = self._value, None
        return value

    def reset(self) -> None:
        """Forgets the value."""
        self._value = None


def input_callback(
    callback: Callable[[], Any],
    *args: VarNode,
    device: Any = None,
    dtype: Any = None,
    shape: Any = None,
    graph: Graph | None = None,
) -> list[VarNode]:
    """An input whose value ``callback()`` gives at each run; its variable, in a list."""
    node = InputNode(*args, device=device, dtype=dtype, shape=shape, graph=graph)
    node._next_value = callback  # type: ignore[method-assign]
    return node.outputs


class OutputNode:
    """Holds the value of a variable in the last run. args: nodes that must run before it."""

    def __init__(self, var: VarNode, *args: VarNode) -> None:
        self.outputs = [var, *args]
        self._value: np.ndarray | None = None
        Graph.of(var)._outputs.append(self)

    def _take(self, value: np.ndarray) -> None:
        self._value = value

    def _known(self) -> np.ndarray:
        if self._value is None:
            raise RuntimeError("the graph has not run\n  fix: graph.compile(*node.outputs).execute()")
        return self._value

    def get_value(self) -> Any:
        """A Tensor. RuntimeError before the first run."""
        return Tensor(self._known())

    def drop_value(self) -> None:
        """Forgets the value."""
        self._value = None

    reset = drop_value


class ValueOutputNode(OutputNode):
    """An `OutputNode` that gives arrays."""

    def get_value(self) -> np.ndarray:
        return self._known()


class AttrOutputNode(OutputNode):
    """An `OutputNode` that gives shape, dtype and device."""

    def get_value(self) -> Any:
        value = self._known()
        return TensorAttr(value.shape, value.dtype, self.outputs[0].device)


class _Callback(OutputNode):
    def __init__(self, callback: Callable[[Any], Any], var: VarNode, *args: VarNode) -> None:
        super().__init__(var, *args)
        self._callback = callback

    def _take(self, value: np.ndarray) -> None:
        self._callback(Tensor(value))


def output_callback(callback: Callable[[Any], Any], var: VarNode, *args: VarNode) -> list[VarNode]:
    """Calls ``callback(tensor)`` with the value of ``var`` in each run. Returns the variable in a
    list.
    """
    return _Callback(callback, var, *args).outputs


def load_graph(fpath: str | os.PathLike[str] | IO[bytes]) -> CompGraphLoadResult:
    """A dumped graph: (graph, outputs by name, outputs, metadata)."""
    network = Network.load(fpath)
    outputs = network.output_vars
    return CompGraphLoadResult(Graph(network), {var.name: var for var in outputs}, outputs, network.metadata)


def dump_graph(
    output_vars: Mapping[str, VarNode] | Sequence[VarNode], *, metadata: Any = None, **options: Any
) -> tuple[bytes, CompGraphDumpResult]:
    """Returns the bytes of a file that computes the variables, and the summary of `Network.dump`,
    whose options it takes.

    A mapping names the outputs. metadata: goes into the file as user_info.
    """
    named = dict(output_vars) if isinstance(output_vars, Mapping) else {var.name: var for var in output_vars}
    (network,) = {var._network for var in named.values()}
    for name, var in named.items():
        var.name = name
    before = network.graph.results
    file = io.BytesIO()
    try:
        network._set_outputs([var.id for var in named.values()])
        info = network.dump(file, user_info=metadata, enable_metadata=metadata is not None, **options)
    finally:
        network._set_outputs(before)
    return file.getvalue(), info


def optimize_for_inference(dest_vars: Sequence[VarNode], **kwargs: bool) -> list[VarNode]:
    """`Network.optimize_for_inference` of the variables' graph."""
    return dest_vars[0]._network.optimize_for_inference(dest_vars, **kwargs)
