"""Random ONNX graphs: arithmetic on the sizes of an input with open axes, and integers at their bounds."""

import random
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from onnx import TensorProto, helper

TYPES = {"int64": TensorProto.INT64, "int32": TensorProto.INT32, "float32": TensorProto.FLOAT, "bool": TensorProto.BOOL}
INTEGERS = ("int64", "int32")
SIZES = [(2, 3), (1, 1), (5, 2), (3, 70)]  # of the open axes


def bounds_of(dtype):
    info = np.iinfo(dtype)
    near = [info.min, info.min + 1, info.max, info.max - 1, 2**31, -(2**31) - 1, 2**32, 2**53 + 1]
    return [n for n in near if info.min <= n <= info.max] + [0, 1, -1, 2, -2, 3, -7, 10, 46341, 1000003]


@dataclass(frozen=True)
class Value:
    """length: None of a number, an int, or the name of an open one. small: of sizes, so that it may be counted to."""

    name: str
    dtype: str
    length: object = None
    small: bool = False
    is_of_rank: bool = False  # any shape of `length` axes


def _joined(*values):
    """Returns the length of what is computed of values element by element."""
    lengths = [value.length for value in values if value.length is not None]
    return next((length for length in lengths if length != 1), lengths[0] if lengths else None)


@dataclass
class Writer:
    """Adds random nodes to a graph with the inputs x (float32, [b, s, 4]), u and v (integers at their bounds, [m])."""

    draw: random.Random
    nodes: list = field(default_factory=list)
    constants: list = field(default_factory=list)
    values: list = field(default_factory=list)
    tensors: list = field(default_factory=list)  # of any shape

    def op(self, kind, *inputs, dtype, length=None, small=False, **attrs):
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [getattr(value, "name", value) for value in inputs], [name], name, **attrs))
        return Value(name, dtype, length, small)

    def constant(self, value, dtype):
        array = np.asarray(value, dtype)
        name = f"constant_{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(array, name))
        return Value(name, dtype, len(array) if array.ndim else None)

    def pick(self, **wanted):
        """One of the last values with such fields; None where there is none."""
        found = [v for v in self.values if all(getattr(v, key) in allowed for key, allowed in wanted.items())]
        return self.draw.choice(found[-8:]) if found else None

    def number(self, dtype, small):
        """A constant, or a value that fits one."""
        near = [1, 2, 3, 4, 5, 7, 50, 64] if small else bounds_of(dtype)
        value = self.draw.choice(near)
        return self.constant([value] if self.draw.random() < 0.3 else value, dtype)

    # -- rows of the grammar: each returns a value, or None where none fits it ---------------------

    def shape(self):
        start = self.draw.choice([0, 0, 1])
        return self.op("Shape", "x", dtype="int64", length=3 - start, small=True, start=start)

    def size(self):
        return self.op("Size", self.draw.choice(["x", "u"]), dtype="int64", small=True)

    def gather(self):
        given = self.pick(length=(2, 3))
        index = [0, 1] if self.draw.random() < 0.3 else self.draw.choice([0, 1, -1])
        return given and self.op("Gather", given, self.constant(index, "int64"), dtype=given.dtype, length=2 if isinstance(index, list) else None, small=given.small)

    def slice(self):
        given = self.pick(length=(2, 3))
        begin = self.draw.choice([0, 1])
        cut = [self.constant([n], "int64") for n in (begin, begin + 1, 0)]
        return given and self.op("Slice", given, *cut, dtype=given.dtype, length=1, small=given.small)

    def cast(self):
        given = self.pick(dtype=("int64", "int32", "bool"))
        to = self.draw.choice(INTEGERS + (("float32",) if given is not None and given.small else ()))
        return given and self.op("Cast", given, dtype=to, length=given.length, small=given.small and given.dtype != "bool", to=TYPES[to])

    def back(self):
        """A number that is real becomes an integer."""
        given, to = self.pick(dtype=("float32",)), self.draw.choice(INTEGERS)
        if given is None:
            return None
        kind = self.draw.choice(["Floor", "Ceil", "Identity"])
        low, high = self.constant(-1e6, "float32"), self.constant(1e6, "float32")
        kept = self.op("Clip", self.op(kind, given, dtype="float32"), low, high, dtype="float32")
        return self.op("Cast", kept, dtype=to, length=given.length, small=given.small, to=TYPES[to])

    def wrap(self):
        given = self.pick(length=(None,), dtype=INTEGERS)
        return given and self.op("Unsqueeze", given, self.constant([0], "int64"), dtype=given.dtype, length=1, small=given.small)

    def unwrap(self):
        given = self.pick(length=(1,))
        return given and self.op("Squeeze", given, self.constant([0], "int64"), dtype=given.dtype, small=given.small)

    def concat(self):
        first = self.pick(length=(1, 2), dtype=INTEGERS)
        if first is None:
            return None
        second = self.draw.choice([self.pick(length=(1,), dtype=(first.dtype,)), self.constant([self.draw.choice([-1, 1, 4])], first.dtype)])
        pair = [first, second][:: self.draw.choice([1, -1])]
        return second and self.op("Concat", *pair, dtype=first.dtype, length=first.length + 1, small=first.small, axis=0)

    def binary(self):
        first = self.pick(dtype=(*INTEGERS, "float32"))
        if first is None:
            return None
        kind = self.draw.choice(["Add", "Sub", "Mul", "Min", "Max"])
        if first.dtype == "float32":
            second = self.constant(self.draw.choice([0.5, 2, 1.5, 3]), "float32")
            return self.op(kind, first, second, dtype="float32", length=first.length, small=first.small)
        second = self.pick(dtype=(first.dtype,), length=(None, 1, first.length), small=(first.small,)) or first
        if self.draw.random() < 0.5:
            second = self.number(first.dtype, first.small)
        small = first.small and kind in ("Min", "Sub")
        pair = [first, second][:: self.draw.choice([1, -1])]
        return self.op(kind, *pair, dtype=first.dtype, length=_joined(first, second), small=small)

    def divide(self):
        given = self.pick(dtype=INTEGERS)
        by = given and self.constant(self.draw.choice([2, 3, 7, -2, -3, 1000]), given.dtype)
        kind, attrs = self.draw.choice([("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1})])
        return given and self.op(kind, given, by, dtype=given.dtype, length=given.length, small=given.small, **attrs)

    def unary(self):
        given = self.pick(dtype=INTEGERS)
        kind = self.draw.choice(["Neg", "Abs", "Identity", "Sign"])
        return given and self.op(kind, given, dtype=given.dtype, length=given.length, small=given.small and kind in ("Abs", "Identity"))

    def power(self):
        given = self.pick(dtype=INTEGERS, small=(True,))
        return given and self.op("Pow", given, self.constant(self.draw.choice([0, 1, 2, 3]), given.dtype), dtype=given.dtype, length=given.length)

    def compare(self):
        given = self.pick(dtype=INTEGERS)
        if given is None:
            return None
        kind, other = self.draw.choice(["Equal", "Less", "Greater", "GreaterOrEqual", "LessOrEqual"]), self.number(given.dtype, given.small)
        return self.op(kind, given, other, dtype="bool", length=_joined(given, other))

    def where(self):
        condition, given = self.pick(dtype=("bool",), length=(1, None)), self.pick(dtype=INTEGERS)
        if condition is None or given is None:
            return None
        other = self.number(given.dtype, given.small)
        return self.op("Where", condition, given, other, dtype=given.dtype, length=_joined(given, other, condition), small=given.small)

    def reduce(self):
        """Sums and products of sizes alone: onnxruntime rounds them to what float64 holds."""
        given = self.pick(dtype=INTEGERS, length=(1, 2, 3, "m"))
        kind = self.draw.choice(["ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin"][0 if given and given.small else 2 :])
        small = given is not None and given.small and kind != "ReduceProd"
        return given and self.op(kind, given, self.constant([0], "int64"), dtype=given.dtype, small=small, keepdims=0)

    def cumulate(self):
        given = self.pick(dtype=INTEGERS, length=(1, 2, 3, "m"))
        return given and self.op("CumSum", given, self.constant(0, "int64"), dtype=given.dtype, length=given.length)

    # -- what uses sizes --------------------------------------------------------------------------

    def count(self):
        """As many numbers as a size."""
        given = self.pick(dtype=("int64",), length=(None,), small=(True,))
        if given is None:
            return None
        limit = self.op("Min", given, self.constant(self.draw.choice([10, 1000]), "int64"), dtype="int64")
        self.tensors.append(self.op("Range", self.constant(0, "int64"), limit, self.constant(1, "int64"), dtype="int64", length="n"))
        return self.op("Size", self.tensors[-1], dtype="int64", small=True)

    def use(self):
        """The input, of another shape or in part."""
        given = self.pick(dtype=("int64",), length=(1,), small=(True,))
        if given is None:
            return None
        kind = self.draw.choice(["Reshape", "Expand", "Slice", "ConstantOfShape", "Tile"])
        few = self.op("Clip", given, self.constant(1, "int64"), self.constant(9, "int64"), dtype="int64", length=1)
        minus = self.constant([-1], "int64")
        if kind == "Reshape":
            extents = [self.op("Shape", "x", dtype="int64", start=0, end=1), self.constant([2], "int64"), minus]
            self.draw.shuffle(extents)
            made, rank = self.op("Reshape", "x", self.op("Concat", *extents, dtype="int64", axis=0), dtype="float32"), 3
        elif kind == "Expand":
            one = self.constant([1], "int64")
            made, rank = self.op("Expand", "x", self.op("Concat", few, one, one, one, dtype="int64", axis=0), dtype="float32"), 4
        elif kind == "Tile":
            one = self.constant([1], "int64")
            made, rank = self.op("Tile", "x", self.op("Concat", one, few, one, dtype="int64", axis=0), dtype="float32"), 3
        elif kind == "Slice":
            begin, axis = self.constant([self.draw.choice([0, 1])], "int64"), self.constant([self.draw.choice([0, 1])], "int64")
            made, rank = self.op("Slice", "x", begin, self.draw.choice([few, given, self.constant([3], "int64")]), axis, dtype="float32"), 3
        else:
            value = helper.make_tensor("value", TensorProto.INT64, [1], [2**40])
            made, rank = self.op("ConstantOfShape", few, dtype="int64", value=value), 1
        self.tensors.append(replace(made, length=rank, is_of_rank=True))
        return self.op("Shape", made, dtype="int64", length=1, small=True, start=0, end=1)


ROWS = [
    Writer.shape, Writer.size, Writer.gather, Writer.gather, Writer.slice, Writer.cast, Writer.cast, Writer.back, Writer.wrap,
    Writer.unwrap, Writer.concat, Writer.binary, Writer.binary, Writer.binary, Writer.divide, Writer.unary, Writer.power,
    Writer.compare, Writer.where, Writer.reduce, Writer.cumulate, Writer.count, Writer.use, Writer.use,
]  # fmt: skip


def _info(value):
    rank = value.length if value.is_of_rank else value.length is not None
    return helper.make_tensor_value_info(value.name, TYPES[value.dtype], [f"{value.name}_{axis}" for axis in range(rank)])


def written(seed, nodes=18):
    """A model, and inputs for each of `SIZES`."""
    draw = random.Random(seed)
    writer, dtype = Writer(draw), draw.choice(INTEGERS)
    writer.values += [Value("u", dtype, "m"), Value("v", dtype, "m")]
    for row in [Writer.shape, *(draw.choice(ROWS) for _ in range(nodes))]:
        value = row(writer)
        if value is not None:
            writer.values.append(value)
    results = writer.values[-4:] + writer.tensors[-3:]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "s", 4]),
        *(helper.make_tensor_value_info(name, TYPES[dtype], ["m"]) for name in "uv"),
    ]
    outputs = [_info(value) for value in dict.fromkeys(results) if value.name not in "uv"]
    graph = helper.make_graph(writer.nodes, f"seed_{seed}", inputs, outputs, writer.constants)
    rng, bounds = np.random.default_rng(seed), np.asarray(bounds_of(dtype), dtype)
    feeds = [{"x": rng.normal(size=(b, s, 4)).astype(np.float32), **{name: rng.choice(bounds, b + s) for name in "uv"}} for b, s in SIZES]
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), feeds
