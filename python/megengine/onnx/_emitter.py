"""Builds an ONNX graph: names, constants, nodes. It knows no op of ours."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

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
        """The dtype of the first result."""
        return self.results[0][0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first result."""
        return self.results[0][1]


class Emitter:
    """An ONNX graph under construction. Called with an op type and names of operands, it adds a node."""

    def __init__(self, recording: Recording, opset: int) -> None:
        self.recording, self.opset = recording, opset
        # op that cannot be written -> the lines that use it
        self.problems: dict[str, list[str]] = {}
        self.nodes: list[Any] = []
        self.leading: list[Any] = []  # nodes that stand before all others
        self.initializers: list[Any] = []
        self._names: dict[int, str] = {}  # recorded value -> its name
        self._taken: set[str] = set()
        # id of a constant, which several graphs may read -> its name
        self._stored: dict[int, str] = {}
        self._constants: dict[tuple[Any, ...], str] = {}
        self._extents: dict[Dim, str] = {}
        self._model = recording  # the outermost one
        self._base = self._within = ""
        for value, name in zip(recording.inputs, recording.input_names, strict=True):
            self._names.setdefault(value, name)
            self._taken.add(name)
        self._taken.update(recording.output_names)

    def within(self, held: Recording, operands: Sequence[str]) -> Emitter:
        """Returns an emitter for a graph that the node being converted holds. The graph reads
        ``operands`` and every name from outside.

        Constants, which all graphs of the model share, stay in the outermost one.
        """
        inner = copy.copy(self)
        inner.recording, inner.nodes, inner._within = held, [], f"{self._base}/"
        inner._names = dict(zip(held.inputs, operands, strict=True))
        return inner

    def local(self, word: str) -> str:
        """Returns a name for an input of a graph that a node holds."""
        return self.fresh(f"{self._base}/{word}")

    # -- values ----------------------------------------------------------------------------------

    def fresh(self, wanted: str) -> str:
        """Returns a new name."""
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name

    def name_of(self, value: int) -> str:
        """The name of a recorded value; a constant becomes an initializer when it is first asked for."""
        if value not in self._names:
            tensor = self.recording.constants[value]
            array = tensor.numpy()
            wanted = self.recording.names[value] or (f"{self._base}.constant" if array.size > 1 else "")
            if id(tensor) not in self._stored:
                self._stored[id(tensor)] = self.initializer(array, wanted) if wanted else self.constant(array)
            self._names[value] = self._stored[id(tensor)]
        return self._names[value]

    def initializer(self, array: np.ndarray, wanted: str) -> str:
        """A tensor that is stored in the file."""
        name = self.fresh(wanted)
        self.initializers.append(onnx().numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def initializer_of_nibbles(self, integers: np.ndarray, wanted: str) -> str:
        """A tensor of integers in [-8, 8), stored as int4."""
        name = self.fresh(wanted)
        flat = np.resize(integers, integers.size + integers.size % 2).view(np.uint8).reshape(-1, 2) & 15
        packed = (flat[:, 0] | flat[:, 1] << 4).tobytes()
        make, int4 = onnx().helper.make_tensor, onnx().TensorProto.INT4
        self.initializers.append(make(name, int4, integers.shape, packed, raw=True))
        return name

    def constant(self, value: ArrayLike, dtype: DTypeLike | None = None) -> str:
        """Returns a tensor that is not a parameter: a Constant, shared by equal ones; a large one
        is stored beside the parameters.
        """
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
        """Returns a Dim as an int64 tensor [1]."""
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
        """Returns the size of an open axis, read from an input that has it."""
        plain = Dim((symbol,))
        for value, name in zip(self._model.inputs, self._model.input_names, strict=True):
            shape: tuple[Any, ...] = self._model.types[value][1]  # some are Dims
            if plain in shape:
                axis = shape.index(plain)
                return self._lead("Shape", name, start=axis, end=axis + 1)
        raise KeyError(symbol)

    def _lead(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        """Puts a node before all others; equal ones are made once."""
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

    def cast(self, name: str, dtype: object) -> str:
        """``name`` as another dtype."""
        return self("Cast", name, to=element_type(dtype))

    def convert(self, node: Node, converter: Any) -> None:
        """Adds what ``converter`` makes of a recorded node. Results get the names that the recording has for them."""
        types = self.recording.types
        wanted = self.recording.names[node.outputs[0]]
        self._base = wanted or self._within + node.op
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
                _rename(self.nodes[first:], {name: final})
                for proto in self.nodes[first:]:
                    proto.name = final if proto.name == name else proto.name
                name = final
            self._names[value] = name

    def skip(self, node: Node) -> None:
        """Skips a node that cannot be written, so that later nodes are checked as well."""
        self._names.update((value, self.fresh(node.op)) for value in node.outputs)

    # -- graphs ----------------------------------------------------------------------------------

    def graph(self, name: str, inputs: Sequence[tuple[str, Type]], outputs: Sequence[tuple[str, Type]]) -> Any:
        """Returns what has been written as a graph that a node holds. Each output gets its own
        node, as runtimes demand.
        """
        made = {output for proto in self.nodes for output in proto.output}
        results = []
        for output, kind in outputs:
            is_free = output in made
            made.discard(output)
            results.append((output if is_free else self("Identity", output), kind))
        return self._graph(self._within + name, inputs, results)

    def finish(self, name: str) -> Any:
        """The model: results under their names, every value with its type."""
        recording, helper = self.recording, onnx().helper
        self._base = "output"
        made_here = {name for proto in self.nodes for name in proto.output}
        results, renamed = [], {}
        for value, wanted in zip(recording.outputs, recording.output_names, strict=True):
            made = self.name_of(value)
            if made in made_here and made not in renamed:
                renamed[made] = wanted
            else:
                self.nodes.append(helper.make_node("Identity", [renamed.get(made, made)], [wanted], wanted))
            results.append((wanted, recording.types[value]))
        _rename(self.nodes, renamed)
        inputs = [(name, recording.types[value]) for value, name in zip(recording.inputs, recording.input_names, strict=True)]
        graph = self._graph(name, inputs, results, self.leading, self.initializers)
        opsets = [helper.make_opsetid("", self.opset)]
        version = helper.find_min_ir_version_for(opsets)
        return helper.make_model(graph, opset_imports=opsets, ir_version=version, producer_name="megjit")

    def _graph(
        self, name: str, inputs: Sequence[tuple[str, Type]], outputs: Sequence[tuple[str, Type]],
        leading: Sequence[Any] = (), initializers: Sequence[Any] = (),
    ) -> Any:  # fmt: skip
        made = {output for proto in self.nodes for output in proto.output} - {output for output, _ in outputs}
        shown = {name: self.recording.types[value] for value, name in self._names.items() if name in made}
        infos = [[_info(*row) for row in part] for part in (inputs, outputs, shown.items())]
        return onnx().helper.make_graph([*leading, *self.nodes], name, infos[0], infos[1], initializers, value_info=infos[2])


def _info(name: str, kind: Type) -> Any:
    dtype, shape = kind
    extents = tuple(str(extent) if isinstance(extent, Dim) else extent for extent in shape)
    return onnx().helper.make_tensor_value_info(name, element_type(dtype), extents)


def _rename(nodes: Iterable[Any], renamed: Mapping[str, str]) -> None:
    """Renames values in the nodes and in the graphs that these hold, which read names from outside.
    """
    for proto in nodes:
        for names in (proto.input, proto.output):
            names[:] = [renamed.get(name, name) for name in names]
        for attribute in proto.attribute:
            _rename(attribute.g.node, renamed)
