"""Values that are known while a model is loaded: shape arithmetic, which files spell out node by node."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ._builder import MOST_ELEMENTS, Operand, array_of
from ._proto import onnx

# Ops whose result is not larger than their operands broadcast together.
_FOLDED = frozenset({
    "Add", "Cast", "Ceil", "Concat", "Div", "Equal", "Floor", "Gather", "Greater", "Identity", "Less", "Max", "Min", "Mod", "Mul",
    "And", "GreaterOrEqual", "LessOrEqual", "Neg", "Not", "Or", "Pow", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Shape", "Size", "Slice", "Split", "Sqrt",
    "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where",
})  # fmt: skip
OF_SIZES = _FOLDED | {"ConstantOfShape", "Expand", "Range"}  # ops that compute sizes of sizes
# Ops whose result has the elements of their first operand (Concat: of all operands), cast or at other places. Only they are
# folded over a masked element, which stays masked; what any other op makes of it follows from its value.
_MOVING = frozenset({"Cast", "Concat", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})


def folded(node: Any, inputs: list[Operand | None], opset: int) -> list[np.ndarray] | None:
    """Returns what is known of the node's results, None for nothing. Elements that are not known are masked."""
    if node.op_type == "Constant":
        return _constant(node)
    if node.op_type in ("Shape", "Size") and inputs and inputs[0] is not None and inputs[0].shape is not None:
        return _extents(node, inputs[0].shape)
    if node.op_type not in OF_SIZES - {"Expand"} or not inputs:
        return None
    # the last place of an operand that stands twice
    places = {name: place for place, name in enumerate(node.input) if name}
    feeds: dict[str, Any] = {name: _held(inputs[place], node.op_type, place) for name, place in places.items()}
    arrays = list(feeds.values())
    if any(array is None or array.size > MOST_ELEMENTS or array.dtype.kind not in "iufb" for array in arrays):
        return None
    if any(o is not None and o.is_stored and o.array is not None and o.array.dtype.kind == "f" for o in inputs):
        return None  # a parameter stays a parameter
    if not _stays_small(node.op_type, arrays):
        return None
    values = _evaluated(node, {name: np.ma.filled(array, 1) for name, array in feeds.items()}, opset)
    if values is None or not any(map(np.ma.is_masked, arrays)):
        return values
    marks = {name: np.ma.getmaskarray(a).astype(a.dtype) if _moves(node.op_type, places[name]) else a for name, a in feeds.items()}
    masks = _evaluated(node, marks, opset) or []
    return [np.ma.array(value, mask=mask != 0) for value, mask in zip(values, masks, strict=True)]


def _evaluated(node: Any, feeds: dict[str, Any], opset: int) -> list[np.ndarray] | None:
    """Returns the node's results, None if it fails."""
    helper = onnx().helper
    given = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for name, a in feeds.items()]
    made = [helper.make_value_info(name, onnx().TypeProto()) for name in node.output]
    model = helper.make_model(helper.make_graph([node], "one", given, made), opset_imports=[helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore"):
            found = [np.asarray(value) for value in onnx().reference.ReferenceEvaluator(model).run(None, feeds)]
    except Exception:  # running the model names the node
        return None
    if node.op_type.startswith("Reduce"):  # NumPy sums small integers as int64
        return [value.astype(feeds[node.input[0]].dtype) for value in found]
    return found


def _moves(op: str, place: int) -> bool:
    """Tells whether the op's results have the elements of its operand at ``place``."""
    return op in _MOVING and (place == 0 or op == "Concat")


def _held(operand: Any, op: str, place: int) -> np.ndarray | None:
    """Returns what is known of an operand, if the op can be folded over that."""
    if operand.array is not None or not _moves(op, place):
        return operand.array
    if op == "Concat" and operand.partial is None and operand.has_few_integers:
        return np.ma.array(np.ones(operand.shape, operand.dtype), mask=True)
    return operand.partial


def _stays_small(op: str, arrays: list[np.ndarray]) -> bool:
    if op == "ConstantOfShape":
        return math.prod(int(extent) for extent in arrays[0]) <= MOST_ELEMENTS
    if op == "Range":
        if any(array.size != 1 for array in arrays):
            return False
        start, limit, step = (float(array.reshape(())) for array in arrays)
        return step != 0 and (limit - start) / step <= MOST_ELEMENTS
    return True


def _constant(node: Any) -> list[np.ndarray] | None:
    for attribute in node.attribute:
        value = onnx().helper.get_attribute_value(attribute)
        if attribute.name == "value":
            return [array_of(value)]
        if attribute.name in ("value_float", "value_floats"):
            return [np.asarray(value, np.float32)]
        if attribute.name in ("value_int", "value_ints"):
            return [np.asarray(value, np.int64)]
    return None


def _extents(node: Any, shape: tuple[int | None, ...]) -> list[np.ndarray] | None:
    """Returns the result of Shape or Size."""
    if node.op_type == "Size":
        known = [extent for extent in shape if extent is not None]
        return None if len(known) < len(shape) else [np.asarray(math.prod(known), np.int64)]
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    wanted = shape[bounds.get("start", 0) : bounds.get("end")]
    extents = np.asarray([1 if extent is None else extent for extent in wanted], np.int64)
    return [np.ma.array(extents, mask=[extent is None for extent in wanted]) if None in wanted else extents]
