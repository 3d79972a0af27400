"""``load``: from an ONNX model to a graph of our functions."""

from __future__ import annotations

import operator
import re
from typing import Any

import numpy as np

from .. import fx
from ._builder import Builder, Operand, array_of
from ._folding import folded
from ._proto import OnnxError, onnx
from ._read import expanded, opset_of, read, with_types
from ._simple import SIMPLE, Application
from .functions import COUNTERPARTS
from .functions._table import dtype_of

_DOMAINS = ("", "ai.onnx")


def load(source: Any) -> fx.GraphModule:
    """The model of a path, an open binary file, bytes or a ModelProto, as a graph of our functions.

    Parameters are attributes at their names, inputs are positional, several outputs a tuple. Values of 64 bits have 32.
    The file is checked before anything is made of it, and no code of it runs. OnnxError for a damaged or hostile model, and for
    one with operators that there is no counterpart for; all are listed.

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
    model = read(source)
    return _Loader(with_types(expanded(model, COUNTERPARTS))).load()


class _Loader:
    def __init__(self, model: Any) -> None:
        self.model, self.graph, self.opset = model, model.graph, opset_of(model)
        self.builder = Builder()
        self.values: dict[str, Operand] = {}
        self.problems: dict[str, list[str]] = {}
        self.types = {info.name: info.type.tensor_type for info in [*self.graph.value_info, *self.graph.output]}

    def load(self) -> fx.GraphModule:
        self._add_tensors()
        self._add_inputs()
        for node in self.graph.node:
            self._add(node)
        if self.problems:
            listed = "".join(f"\n  {what}: {', '.join(names)}" for what, names in self.problems.items())
            raise OnnxError(f"load: {len(self.problems)} kinds of nodes have no counterpart{listed}")
        results = [self._result(info.name) for info in self.graph.output]
        self.builder.graph.output(results[0] if len(results) == 1 else tuple(results))
        return self.builder.module()

    def _result(self, name: str) -> fx.Node:
        if name not in self.values:
            raise OnnxError(f"load: nothing makes the output {name!r}")
        return self.builder.tensor(self.values[name])

    # -- what is there before the nodes ----------------------------------------------------------

    def _add_tensors(self) -> None:
        for tensor in self.graph.initializer:
            operand = Operand(tensor.name, None, None, True, tensor.data_type, tuple(tensor.dims))
            try:
                dtype_of(tensor.data_type)
                operand.array = array_of(tensor)
            except Exception as error:
                self._lacks(f"tensors: {error}", tensor.name)
                operand.array = np.zeros(0, np.float32)
            self.values[tensor.name] = operand
        if self.graph.sparse_initializer:
            self._lacks("sparse tensors", "initializers")

    def _add_inputs(self) -> None:
        for info in self.graph.input:
            if info.name in self.values:
                continue  # a default, which older files list as an input too
            if not info.type.HasField("tensor_type"):
                self._lacks("inputs that are no tensors", info.name)
            name = re.sub(r"\W+", "_", info.name).strip("_") or "x"
            placeholder = self.builder.graph.placeholder(name if name.isidentifier() else f"x_{name}")
            self.values[info.name] = self._typed(Operand(info.name, placeholder), info.type.tensor_type)

    def _typed(self, operand: Operand, found: Any) -> Operand:
        """With the type that the file tells, or that was inferred."""
        if found is not None:
            operand.element_type = found.elem_type
            extents = [dim.dim_value if dim.HasField("dim_value") else None for dim in found.shape.dim]
            if found.HasField("shape") and None not in extents:
                operand.shape = tuple(extents)
        return operand

    # -- nodes -----------------------------------------------------------------------------------

    def _lacks(self, what: str, where: str) -> None:
        self.problems.setdefault(what, []).append(where)

    def _add(self, node: Any) -> None:
        where = node.name or next((name for name in node.output if name), node.op_type)
        for name in node.output:
            if name:
                self.values[name] = self._typed(Operand(name), self.types.get(name))
        inputs = [self.values[name] if name else None for name in node.input]
        known = folded(node, inputs, self.opset) if node.domain in _DOMAINS else None
        if known is not None:
            for name, array in zip(node.output, known, strict=True):
                self.values[name].array = array
            return
        try:
            self._convert(node, Application(self.builder, node, inputs, _attributes(node), self.values))
        except ValueError as error:
            self._lacks(str(error), where)
            for name in node.output:  # so that the nodes behind it are looked at as well
                self.values[name] = Operand(name, self.builder.graph.placeholder("lacking"))

    def _convert(self, node: Any, application: Application) -> None:
        op = node.op_type if node.domain in _DOMAINS else f"{node.domain}.{node.op_type}"
        if op not in COUNTERPARTS:
            raise ValueError(op)
        simple = SIMPLE.get(op)
        made = simple(application) if simple is not None else None
        if made is None:
            made = application.generic()
        wanted = [name for name in node.output if name]
        if isinstance(made, Operand):
            self.values[wanted[0]] = made
        elif len(node.output) == 1 and not application.gives_several():
            self.values[node.output[0]].node = made
        else:
            for place, name in enumerate(node.output):
                if name:
                    self.values[name].node = self.builder.call(operator.getitem, made, place, name=name)


def _attributes(node: Any) -> dict[str, Any]:
    """Attributes as Python values. ValueError for graphs and the like."""
    found = {}
    for attribute in node.attribute:
        value = onnx().helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, onnx().TensorProto):
            value = array_of(value)
        elif isinstance(value, float):
            value = _short(value)
        elif isinstance(value, (list, tuple)) or hasattr(value, "__len__") and not isinstance(value, (str, np.ndarray)):
            value = tuple(_short(v) if isinstance(v, float) else v.decode() if isinstance(v, bytes) else v for v in value)
        elif not isinstance(value, (int, str)):
            raise ValueError(f"{node.op_type} with a graph as {attribute.name}")
        found[attribute.name] = value
    return found


def _short(value: float) -> float:
    """The shortest number with the same float32, which is what the file holds."""
    return float(str(np.float32(value)))
