"""Functions and layers with the names and arguments of torch's, on our tensors; what `megengine.fx.from_torch` calls.

Nothing here imports torch. `FUNCTIONS` serves functions, methods of tensors and operators of exported programs alike:
a name -> a function with torch's arguments. `OPERATORS` has those of exported programs that differ from it. While a
program is converted they run on proxies, so their calls of `megengine.functional` become the nodes; those that ask for
shapes are wrapped: they become one node, and run on tensors.
"""

from __future__ import annotations

from . import aten, elementwise, images, losses, networks, pooling, reductions, shapes, transforms

# other name -> name in the tables
_ALIASES = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "negative": "neg", "absolute": "abs",
    "fix": "trunc", "clip": "clamp", "log_sigmoid": "logsigmoid", "_threshold": "threshold", "sym_size": "size",
    "_unsafe_view": "reshape", "reshape_as": "view_as", "swapaxes": "transpose", "swapdims": "transpose",
    "moveaxis": "movedim", "broadcast_to": "expand", "tile": "repeat", "concat": "cat", "concatenate": "cat",
    "split_with_sizes": "split", "empty": "zeros", "zero": "zeros_like", "empty_like": "zeros_like",
    "new_empty": "new_zeros", "mm": "matmul", "bmm": "matmul", "mv": "matmul", "baddbmm": "addmm",
}  # fmt: skip

FUNCTIONS = {
    name: function
    for room in (elementwise, images, losses, networks, pooling, reductions, shapes, transforms)
    for name, function in room.FUNCTIONS.items()
}
FUNCTIONS |= {other: FUNCTIONS[name] for other, name in _ALIASES.items()}
OPERATORS = losses.OPERATORS | aten.OPERATORS
