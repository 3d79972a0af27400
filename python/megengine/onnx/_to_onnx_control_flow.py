"""Writes ops that hold graphs in ONNX: cond as If, while_loop as Loop, scan as Scan.

Values that such a graph reads from outside are further operands of ours; in ONNX it reads them by
name.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ._dynamic import Dim
from ._emitter import Call, Emitter, Type
from ._recorded import Recording
from ._to_onnx import converts, write_node
from ._to_onnx_arrays import TO_THE_FRONT

_FLAG: Type = (np.dtype(bool), ())
_COUNT: Type = (np.dtype(np.int64), ())
_Named = tuple[str, Type]


def _written(emit: Emitter) -> list[str]:
    """Names of the results of the graph that ``emit`` is for, after writing its nodes."""
    for node in emit.recording.nodes:
        write_node(emit, node)
    return [emit.name_of(value) for value in emit.recording.outputs]


def _written_into(emit: Emitter, held: Recording, operands: Sequence[str]) -> str:
    """Writes the nodes of a graph into ``emit`` and returns its result."""
    inner = emit.within(held, operands)
    inner.nodes = emit.nodes
    return _written(inner)[0]


@converts("cond")
def _cond(emit: Emitter, call: Call) -> str | list[str]:
    branches = {}
    for branch, attribute in (("then_branch", "if_true"), ("else_branch", "if_false")):
        inner = emit.within(call.attrs[attribute], call.inputs[1:])
        branches[branch] = inner.graph(branch, [], list(zip(_written(inner), call.results, strict=True)))
    return emit("If", call.inputs[0], results=len(call.results), **branches)


@converts("while_loop")
def _while_loop(emit: Emitter, call: Call) -> str | list[str]:
    """Writes a Loop; ONNX tests the condition before the loop and at the end of each trip."""
    count = len(call.results)
    outside, condition = call.inputs[count:], call.attrs["condition"]
    first = _written_into(emit, condition, call.inputs)
    trip, goes_on, *carry = map(emit.local, ["trip", "goes_on", *["carry"] * count])
    inner = emit.within(call.attrs["body"], [*carry, *outside])
    then = _written(inner)
    goes_on_then = _written_into(inner, condition, [*then, *outside])
    inputs = [(trip, _COUNT), (goes_on, _FLAG), *zip(carry, call.results, strict=True)]
    body = inner.graph("body", inputs, [(goes_on_then, _FLAG), *zip(then, call.results, strict=True)])
    return emit("Loop", "", first, *call.inputs[:count], results=count, body=body)


@converts("scan")
def _scan(emit: Emitter, call: Call) -> str | list[str]:
    carries, slices, reverse = (call.attrs[name] for name in ("carries", "slices", "reverse"))
    own, held = carries + slices, call.attrs["body"]
    if call.attrs["trips"] == 0:  # a Scan without rows is an error in some runtimes
        return call.inputs[:carries] + [emit.constant(np.zeros(shape, dtype)) for dtype, shape in call.results[carries:]]
    names = list(map(emit.local, ["carry"] * carries + ["x"] * slices))
    inner = emit.within(held, [*names, *call.inputs[own:]])
    inputs = [(name, held.types[value]) for name, value in zip(names, held.inputs, strict=False)]
    outputs = [(name, held.types[value]) for name, value in zip(_written(inner), held.outputs, strict=True)]
    if not slices:
        return _counted(emit, call, inner, inputs, outputs)
    ends = {"input": slices, "output": len(outputs) - carries}
    directions = {f"scan_{end}_directions": [1] * count for end, count in ends.items() if reverse and count}
    body = inner.graph("body", inputs, outputs)
    return emit("Scan", *call.inputs[:own], results=len(outputs), body=body, num_scan_inputs=slices, **directions)


def _counted(emit: Emitter, call: Call, inner: Emitter, inputs: list[_Named], outputs: list[_Named]) -> str | list[str]:
    """Writes a scan without x as a Loop; only the order of stacked results shows the direction of
    its trips.
    """
    trips, carries = call.attrs["trips"], call.attrs["carries"]
    inputs = [(emit.local("trip"), _COUNT), (emit.local("goes_on"), _FLAG), *inputs]
    always = emit.constant(True)
    body = inner.graph("body", inputs, [(always, _FLAG), *outputs])
    length = emit("Squeeze", emit.ints([trips])) if isinstance(trips, Dim) else emit.constant(trips, np.int64)
    found = emit("Loop", length, always, *call.inputs[:carries], results=len(outputs), body=body)
    if not call.attrs["reverse"] or len(outputs) == carries:
        return found
    found = [found] if isinstance(found, str) else found
    bounds = [emit.ints([n]) for n in (-1, TO_THE_FRONT, 0, -1)]
    return found[:carries] + [emit("Slice", y, *bounds) for y in found[carries:]]
