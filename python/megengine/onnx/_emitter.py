"""Building an ONNX graph: names, constants, nodes. Knows no op of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._dynamic import Dim
from ._proto import element_type, onnx
from ._recorded import Node, Recording

Type = tuple[np.dtype, tuple[int, ...]]


@dataclass
class Call:
    """A recorded application as converters see it: operands by their names in the ONNX graph, and their types."""

    op: str
    attrs: dict[str, Any]
    inputs: list[str]
    types: list[Type]
    results: list[Type]

    @property
    def dtype(self) -> np.dtype:
        """Of the first result."""
        return self.results[0][0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first result."""
        return self.results[0][1]


class Emitter:
    """An ONNX graph under construction. Called with an op type and names of operands, it adds a node."""

    def __init__(self, recording: Recording, opset: int) -> None:
        self.recording, self.opset = recording, opset
        self.nodes: list[Any] = []
        self.leading: list[Any] = []  # nodes that stand before all others
        self.initializers: list[Any] = []
        self._names: dict[int, str] = {}  # by recorded value
        self._taken: set[str] = set()
        self._constants: dict[tuple[Any, ...], str] = {}
        self._extents: dict[Dim, str] = {}
        self._base = ""
        for value, name in zip(recording.inputs, recording.input_names, strict=True):
            self._names.setdefault(value, name)
            self._taken.add(name)
        self._taken.update(recording.output_names)

    # -- values ----------------------------------------------------------------------------------

    def fresh(self, wanted: str) -> str:
        """A name that nothing has."""
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name

    def name_of(self, value: int) -> str:
        """The name of a recorded value; a constant becomes an initializer when it is first asked for."""
        if value not in self._names:
            array = self.recording.constants[value].numpy()
            wanted = self.recording.names[value] or (f"{self._base}.constant" if array.size > 1 else "")
            self._names[value] = self.initializer(array, wanted) if wanted else self.constant(array)
        return self._names[value]

    def initializer(self, array: np.ndarray, wanted: str) -> str:
        """A tensor that is stored in the file."""
        name = self.fresh(wanted)
        self.initializers.append(onnx().numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def constant(self, value: Any, dtype: Any = None) -> str:
        """A tensor that is not a parameter: a Constant, equal ones once; a large one is stored beside the parameters."""
        array = np.asarray(value, dtype)
        if array.size > 64:
            return self.initializer(array, f"{self._base or 'graph'}.constant")
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            name = self._constants[key] = self.fresh("constant")
            tensor = onnx().numpy_helper.from_array(array, name)
            self.leading.append(onnx().helper.make_node("Constant", [], [name], name, value=tensor))
        return self._constants[key]

    def ints(self, values: Sequence[int | Dim]) -> str:
        """Axes, extents and the like: a 1-d int64 tensor, computed where some depend on open axes."""
        if not any(isinstance(value, Dim) for value in values):
            return self.constant(np.asarray(values, np.int64).reshape(-1))
        parts = [self._extent(value) if isinstance(value, Dim) else self.ints([value]) for value in values]
        return parts[0] if len(parts) == 1 else self._lead("Concat", *parts, axis=0)

    def _extent(self, dim: Dim) -> str:
        """A Dim as an int64 tensor [1]."""
        if dim not in self._extents:
            factors = [self._size(symbol) for symbol in dim.symbols]
            if dim.coefficient != 1:
                factors.append(self.ints([dim.coefficient]))
            made = factors[0]
            for factor in factors[1:]:
                made = self._lead("Mul", made, factor)
            self._extents[dim] = self._lead("Add", made, self.ints([dim.offset])) if dim.offset else made
        return self._extents[dim]

    def _size(self, symbol: str) -> str:
        """What an open axis has, from an input that has it."""
        plain = Dim((symbol,))
        for value, name in zip(self.recording.inputs, self.recording.input_names, strict=True):
            shape: tuple[Any, ...] = self.recording.types[value][1]  # some are Dims
            if plain in shape:
                axis = shape.index(plain)
                return self._lead("Shape", name, start=axis, end=axis + 1)
        raise KeyError(symbol)

    def _lead(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        """A node before all others; equal ones are made once."""
        key = (op_type, inputs, tuple(sorted(attrs.items())))
        if key not in self._constants:
            name = self._constants[key] = self.fresh(f"sizes/{op_type}")
            self.leading.append(onnx().helper.make_node(op_type, list(inputs), [name], name, **attrs))
        return self._constants[key]

    # -- nodes -----------------------------------------------------------------------------------

    def __call__(self, op_type: str, *inputs: str, results: int = 1, **attrs: Any) -> Any:
        """Adds a node; the name of its result, or the names when it has several."""
        names = [self.fresh(f"{self._base}/{op_type}") for _ in range(results)]
        self.nodes.append(onnx().helper.make_node(op_type, list(inputs), names, names[0], **attrs))
        return names[0] if results == 1 else names

    def cast(self, name: str, dtype: Any) -> str:
        """``name`` as another dtype."""
        return self("Cast", name, to=element_type(dtype))

    def convert(self, node: Node, converter: Any) -> None:
        """Adds what ``converter`` makes of a recorded node. Results get the names that the recording has for them."""
        types = self.recording.types
        wanted = self.recording.names[node.outputs[0]]
        self._base = wanted or node.op
        first = len(self.nodes)
        call = Call(
            node.op, node.attrs, [self.name_of(value) for value in node.inputs],
            [types[value] for value in node.inputs], [types[value] for value in node.outputs],
        )  # fmt: skip
        made = converter(self, call)
        made = [made] if isinstance(made, str) else list(made)
        own = {name for proto in self.nodes[first:] for name in proto.output}
        for value, name in zip(node.outputs, made, strict=False):  # a converter may leave results out
            final = self.recording.names[value]
            if name in own and final and final not in self._taken:
                self._taken.add(final)
                self._rename(name, final, first)
                name = final
            self._names[value] = name

    def skip(self, node: Node) -> None:
        """For a node that cannot be written: those behind it are looked at as well."""
        self._names.update((value, self.fresh(node.op)) for value in node.outputs)

    def _rename(self, old: str, new: str, first: int) -> None:
        for proto in self.nodes[first:]:
            for names in (proto.input, proto.output):
                names[:] = [new if name == old else name for name in names]
            if proto.name == old:
                proto.name = new

    # -- the model -------------------------------------------------------------------------------

    def finish(self, name: str) -> Any:
        """The model: results under their names, every value with its type."""
        recording, helper = self.recording, onnx().helper
        self._base = "output"
        made_here = {name: proto for proto in self.nodes for name in proto.output}
        results, renamed = [], {}
        for value, wanted in zip(recording.outputs, recording.output_names, strict=True):
            made = self.name_of(value)
            if made in made_here and made not in renamed:
                renamed[made] = wanted
            else:
                self.nodes.append(helper.make_node("Identity", [renamed.get(made, made)], [wanted], wanted))
            results.append(helper.make_tensor_value_info(wanted, *self._type(value)))
        for proto in self.nodes:
            for names in (proto.input, proto.output):
                names[:] = [renamed.get(name, name) for name in names]
        inputs = [
            helper.make_tensor_value_info(name, *self._type(value))
            for value, name in zip(recording.inputs, recording.input_names, strict=True)
        ]
        shown = {name: self._type(value) for value, name in self._names.items() if name in made_here}
        graph = helper.make_graph(
            self.leading + self.nodes, name, inputs, results, self.initializers,
            value_info=[helper.make_tensor_value_info(n, *t) for n, t in shown.items() if n not in renamed],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", self.opset)]
        version = helper.find_min_ir_version_for(opsets)
        return helper.make_model(graph, opset_imports=opsets, ir_version=version, producer_name="megjit")

    def _type(self, value: int) -> tuple[int, tuple[int | str, ...]]:
        dtype, shape = self.recording.types[value]
        return element_type(dtype), tuple(str(extent) if isinstance(extent, Dim) else extent for extent in shape)
