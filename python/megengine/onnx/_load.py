"""``load``: from an ONNX model to a graph of our functions."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .. import _core, fx
from ..jit import trace
from ..reports.progress import Progress
from ..tensor import Tensor
from ._builder import Builder, Operand, array_of
from ._control_flow import CONTROL_FLOW, Holder, held_graphs
from ._folding import folded
from ._probing import Probes, Run, runs_for
from ._proto import OnnxError, need_no_recording, onnx
from ._read import expanded, opset_of, own_domain, read
from ._simple import Application
from .functions import COUNTERPARTS
from .functions._table import dtype_of
from .functions.narrow import name_of

if TYPE_CHECKING:
    from onnx import ModelProto


def load(source: str | os.PathLike[str] | IO[bytes] | bytes | ModelProto) -> fx.GraphModule:
    """Reads an ONNX model.

    Parameters
    ----------
    source : str, PathLike, IO, bytes or ModelProto
        A path, an open binary file, or the model.

    Returns
    -------
    GraphModule
        Module that computes the model with functions of this package.

    Raises
    ------
    OnnxError
        For a damaged or hostile model, and for a model with operators that have no counterpart; the
        message lists all of them.

    See Also
    --------
    export : Writes an ONNX model.

    Notes
    -----
    Parameters are attributes at their names, inputs are positional, several outputs a tuple, and
    sequences lists. The file is checked before anything is made of it, and no code of it runs.

    Examples
    --------
    >>> import megengine as mge, megengine.functional as F, megengine.onnx
    >>> proto = megengine.onnx.export(lambda x: F.relu(x) + 1, mge.Tensor([1.0, -1.0]))
    >>> print(megengine.onnx.load(proto).code)
    import megengine
    <BLANKLINE>
    def forward(self, x):
        RELU = megengine.functional.relu(x);  x = None
        ADD = megengine.functional.add(RELU, 1.0);  RELU = None
        return ADD
    <BLANKLINE>
    """
    need_no_recording("load")
    model, large = read(source)
    model = expanded(model, COUNTERPARTS)
    stored = {tensor.name for tensor in (*model.graph.initializer, *large.values())}
    inputs = [info for info in model.graph.input if info.name not in stored]  # others are defaults of older files
    return Loader(model.graph, opset_of(model), {}, runs_for(inputs)).load(inputs, large)


class Loader:
    """Converts a graph: that of the model, or one that a node holds. problems: what cannot be
    loaded in all graphs.
    """

    def __init__(self, graph: Any, opset: int, problems: dict[str, list[str]], runs: Sequence[Run]) -> None:
        self.graph, self.opset, self.problems = graph, opset, problems
        self.builder = Builder()
        self.probes = Probes(self.builder, runs)
        self.values: dict[str, Operand] = {}

    def load(self, given: list[Any], large: dict[str, Any]) -> fx.GraphModule:
        """Returns the model as a module. given: its inputs. large: its tensors that are also inputs
        of the graph.
        """
        self._add_tensors([*self.graph.initializer, *large.values()])

        def probe(unknown: Tensor) -> None:
            self.probes.unknown = unknown
            self._add_all(given)
            _core.forget_refusals()  # probes of nodes that read values give no shape

        trace(probe, record_only=True, symbolic_shape=False)(Tensor(0))
        if self.problems:
            listed = "".join(f"\n  {what}: {', '.join(names)}" for what, names in self.problems.items())
            raise OnnxError(f"load: {len(self.problems)} kinds of nodes have no counterpart{listed}")
        return self.module()

    def held(self, graph: Any, given: Sequence[list[Any] | None], outside: Mapping[str, Operand], states: Sequence[Operand] = ()) -> Loader:
        """Loads a graph that a node holds. given: values of its own inputs (`Probes.of`), if they
        are known.
        """
        inner = Loader(graph, self.opset, self.problems, self.probes.runs)
        inner.probes.unknown = self.probes.unknown
        inner._add_tensors(graph.initializer)
        kinds = [True] * (len(given) - len(states)) + [state.is_tensor for state in states]
        for info, values, is_tensor in zip(graph.input, given, kinds, strict=True):
            inner._take(Operand(info.name, is_tensor=is_tensor), values)
        for name, operand in outside.items():
            if operand.is_small:
                inner.values[name] = replace(operand, node=None)
            else:
                inner._take(Operand(name, partial=operand.partial, is_tensor=operand.is_tensor), self.probes.of(self.builder.tensor(operand)))
        for node in graph.node:
            inner._add(node)
        return inner

    def module(self) -> fx.GraphModule:
        """The graph as a module, after its nodes."""
        results = [self.builder.tensor(self.result(info.name)) for info in self.graph.output]
        self.builder.graph.output(results[0] if len(results) == 1 else tuple(results))
        return self.builder.module()

    def result(self, name: str) -> Operand:
        """Returns the value under the name of an output."""
        if name not in self.values:
            raise OnnxError(f"load: nothing makes the output {name!r}")
        return self.values[name]

    # -- what is there before the nodes ----------------------------------------------------------

    def _add_tensors(self, tensors: Iterable[Any]) -> None:
        if self.graph.sparse_initializer:
            self._lacks("sparse tensors", "initializers")
        for tensor in tensors:
            operand = self.values[tensor.name] = Operand(tensor.name, is_stored=True)
            try:
                dtype_of(tensor.data_type)
                operand.narrow = tensor.data_type if name_of(tensor.data_type) else 0
                operand.hold(array_of(tensor))
            except Exception as error:
                self._lacks(f"tensors: {error}", tensor.name)
                operand.hold(np.zeros(0, np.float32))

    def _add_all(self, inputs: list[Any]) -> None:
        """Adds inputs and nodes. It runs inside a recording, so that probing computes nothing."""
        for info in inputs:
            try:
                dtype, element_type = dtype_of(_element_type(info.type)), info.type.tensor_type.elem_type
            except ValueError as error:
                dtype, element_type = "", 0
                self._lacks(str(error), info.name)
            operand = Operand(info.name, is_tensor=info.type.HasField("tensor_type"))
            if operand.is_tensor:
                operand.dtype, operand.narrow = dtype, element_type if dtype and name_of(element_type) else 0
            has_shape = operand.dtype and info.type.tensor_type.HasField("shape")
            self._take(operand, self.probes.made(dtype, info) if has_shape else None)
        for info in inputs:
            if self.values[info.name].dtype in ("int64", "float64"):
                self._widen(self.values[info.name])
        with Progress("reading ONNX", len(self.graph.node), unit="node") as progress:
            for node in self.graph.node:
                self._add(node)
                progress.update()

    def _take(self, operand: Operand, values: list[Any] | None) -> None:
        """Takes an input. values: those of `Probes.of`."""
        name = re.sub(r"\W+", "_", operand.name).strip("_") or "x"
        operand.node = self.builder.graph.placeholder(name if name.isidentifier() else f"x_{name}")
        self.values[operand.name] = operand
        self.probes.give(operand.node, values)
        self.probes.describe(operand)

    def _widen(self, operand: Operand) -> None:
        """Lets an input of 64 bits be given as one of 32, which data of NumPy is here."""
        operand.node = self.builder.graph.call_method("astype", (operand.node, operand.dtype))
        self.probes.run_new_nodes()
        self.probes.describe(operand)

    # -- nodes -----------------------------------------------------------------------------------

    def _lacks(self, what: str, where: str) -> None:
        self.problems.setdefault(what, []).append(where)

    def _add(self, node: Any) -> None:
        where = node.name or next((name for name in node.output if name), node.op_type)
        for name in filter(None, node.output):
            self.values[name] = Operand(name)
        inputs = [self.values[name] if name else None for name in node.input]
        try:
            if node.op_type in CONTROL_FLOW and not own_domain(node):
                if node.op_type == "If" and inputs[0] is not None and inputs[0].array is not None:
                    return self._add_branch(node, bool(inputs[0].array.reshape(-1)[0]))
                holder = Holder(self, node, where, _attributes(node))
                self._name_results(node, CONTROL_FLOW[node.op_type](holder), node.op_type != "If")
                for name, is_tensor in zip(node.output, holder.are_tensors(), strict=False):
                    self.values[name].is_tensor = is_tensor
            else:
                application = Application(self.builder, node, inputs, _attributes(node), self.values)
                known = folded(node, inputs, self.opset) if not own_domain(node) else None
                is_known = known is not None and self._hold(node.output, known)
                if not is_known:
                    self._convert(node, application)
                for name in filter(None, node.output):
                    self.values[name].narrow = application.narrow
                    self.values[name].is_tensor = application.gives_tensors
                if is_known:
                    return
        except OnnxError:
            raise
        except ValueError as error:
            if str(error):  # otherwise it is listed already
                self._lacks(str(error), where)
            for name in node.output:  # later nodes are checked as well
                self.values[name] = Operand(name, self.builder.graph.placeholder("lacking"))
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise OnnxError(
                f"load: {node.op_type} {where} lacks an input or an attribute, or has one of a wrong kind\n  why: {error!r}"
            ) from None
        self.probes.run_new_nodes()
        if self.probes.has_no_doubles:
            self._lacks(f"{node.op_type} of float64", where)
            self.probes.has_no_doubles = False
        for name in filter(None, node.output):
            self.probes.describe(self.values[name])

    def _add_branch(self, node: Any, condition: bool) -> None:
        """Adds the nodes of the branch that a known condition takes."""
        branch = held_graphs(node)["then_branch" if condition else "else_branch"]
        self._add_tensors(branch.initializer)
        for inner in branch.node:
            self._add(inner)
        for name, info in zip(node.output, branch.output, strict=False):
            self.values[name] = self.values[info.name]

    def _hold(self, names: list[str], arrays: list[np.ndarray]) -> bool:
        """Notes known values; returns whether all are known."""
        is_all = True
        for name, array in zip(names, arrays, strict=False):
            if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
                self.values[name].partial, is_all = array, False
            else:
                self.values[name].hold(np.asarray(array))
        return is_all

    def _convert(self, node: Any, application: Application) -> None:
        op = application.op
        if op not in COUNTERPARTS:
            raise ValueError(op)
        # later opsets have the axis as an input, by default the last but one
        if op == "DFT" and self.opset < 20:
            application.attrs.setdefault("axis", 1)
        made = application.converted()
        if isinstance(made, Operand):
            self.values[next(filter(None, node.output))] = made
            return
        self._name_results(node, made, application.gives_several())
        for name in filter(None, node.output):
            self.values[name].is_of_sizes, self.values[name].maker = application.is_of_sizes, application

    def _name_results(self, node: Any, made: fx.Node, is_sequence: bool) -> None:
        """Names the results. is_sequence: whether they are a sequence, even of one result."""
        if len(node.output) == 1 and not is_sequence:
            self.values[node.output[0]].node = made
        else:
            for place, name in enumerate(node.output):
                if name:
                    self.values[name].node = self.builder.call(operator.getitem, made, place, name=name)


def _element_type(kind: Any) -> int:
    """Returns TensorProto's number of the tensors in a type: a tensor, a sequence, or an optional
    value. ValueError for others.
    """
    while not kind.HasField("tensor_type"):
        if not (kind.HasField("sequence_type") or kind.HasField("optional_type")):
            raise ValueError("inputs that are neither tensors nor sequences of them")
        kind = (kind.sequence_type if kind.HasField("sequence_type") else kind.optional_type).elem_type
    return kind.tensor_type.elem_type


def _attributes(node: Any) -> dict[str, Any]:
    """Attributes as Python values. ValueError for graphs and the like."""
    found = {}
    for attribute in node.attribute:
        value = onnx().helper.get_attribute_value(attribute)
        if isinstance(value, onnx().TensorProto):
            value = array_of(value)
        elif isinstance(value, (int, float, bytes)):
            value = _plain(value)
        elif hasattr(value, "__len__") and all(isinstance(item, (int, float, bytes)) for item in value):
            value = tuple(_plain(item) for item in value)
        elif isinstance(value, onnx().TypeProto) or (isinstance(value, onnx().GraphProto) and node.op_type in CONTROL_FLOW):
            continue
        else:
            raise ValueError(f"{node.op_type} with a graph as {attribute.name}")
        found[attribute.name] = value
    return found


def _plain(value: int | float | bytes) -> Any:
    """Returns texts unchanged, and for a float the shortest number with the same float32, which the
    file holds.
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return float(str(np.float32(value))) if isinstance(value, float) else value
