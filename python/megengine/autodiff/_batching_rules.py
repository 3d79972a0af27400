"""Rules by which ops compute for all examples at once: operands and results have a batch axis in
front.

A rule knows the op's operands and attributes, no values. An op without a rule is refused by its
name.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from .. import _core
from ..core import ops
from ..core.tensor.array_method import as_tensor
from ..tensor import Tensor

if TYPE_CHECKING:
    from ._batched import Level

_Attrs: TypeAlias = dict[str, Any]
_Result: TypeAlias = Any  # a Tensor, or a list of them, each with the batch axis in front
_Rule: TypeAlias = Callable[["_Call", _Attrs], _Result]


class NoRule(TypeError):
    """Raised for an op that cannot be computed for all examples at once."""


def refuse(what: str, why: str, fix: str = "a Python loop over the examples: F.stack([f(x) for x in xs])") -> NoReturn:
    raise NoRule(f"vmap: {what}\n  why: {why}\n  fix: {fix}\n  at:  {_core.user_line()}")


def apply_rule(name: str, level: "Level", operands: tuple[Any, ...], attrs: _Attrs) -> _Result:
    """Returns the results of an op for all examples of ``level``; a list if it has several."""
    rule = RULES.get(name)
    call = _Call(name, level, operands)
    if rule is None:
        call.refuse("there is no rule for it with a batch axis")
    result = rule(call, attrs)
    return list(result) if isinstance(result, (list, tuple)) else result


class _Call:
    """An op with operands, some of which have a batch axis that the program does not see."""

    def __init__(self, name: str, level: "Level", operands: tuple[Any, ...]) -> None:
        self.name, self.level, self.operands = name, level, operands

    def refuse(self, why: str) -> NoReturn:
        shapes = ", ".join(str(list(x._tuple_shape)) if isinstance(x, Tensor) else repr(x) for x in self.operands)
        refuse(f"{self.name} of {shapes} is not computed for a batch", why)

    def run(self, *operands: Any, **attrs: Any) -> Any:
        return getattr(ops, self.name)(*operands, **attrs)  # outer levels may have batch axes, too

    def is_batched(self, index: int) -> bool:
        return getattr(self.operands[index], "level", None) is self.level

    def rank(self, index: int) -> int:
        """Axes of one example."""
        x = self.operands[index]
        return len(x._tuple_shape) if isinstance(x, Tensor) else np.ndim(x)

    def all(self, index: int) -> Tensor:
        """An operand's examples along a first axis; what is the same for all is repeated."""
        return self.level.value_of(self.operands[index])

    def aligned(self, index: int, rank: int) -> Any:
        """An operand that broadcasts with others whose examples have ``rank`` axes."""
        x = self.operands[index]
        if not self.is_batched(index):
            return x
        shape = x._tuple_shape
        return x.value if len(shape) == rank else ops.reshape(x.value, shape=(self.level.size, *(1,) * (rank - len(shape)), *shape))


# ---- rules


def _elementwise(call: _Call, attrs: _Attrs) -> _Result:
    rank = max(map(call.rank, range(len(call.operands))))
    return call.run(*(call.aligned(i, rank) for i in range(len(call.operands))), **attrs)


def _whole(call: _Call, attrs: _Attrs) -> _Result:
    """Rule for ops whose leading axes are a batch already."""
    return call.run(*(call.all(i) for i in range(len(call.operands))), **attrs)


def _along(call: _Call, attrs: _Attrs) -> _Result:
    """Rule for ops whose attributes are numbers of axes."""
    rank = call.rank(0)
    if "axes" in attrs:
        attrs = {**attrs, "axes": tuple(axis % rank + 1 for axis in attrs["axes"])}
    else:
        if not rank:
            call.refuse("one example has no axis")
        attrs = {**attrs, "axis": attrs["axis"] % rank + 1}
    return _whole(call, attrs)


def _to_shape(call: _Call, attrs: _Attrs) -> _Result:
    return call.run(call.all(0), shape=(call.level.size, *attrs["shape"]))


def _broadcast(call: _Call, attrs: _Attrs) -> _Result:
    shape = attrs["shape"]
    return call.run(call.aligned(0, len(shape)), shape=(call.level.size, *shape))


def _permute(call: _Call, attrs: _Attrs) -> _Result:
    return call.run(call.all(0), perm=(0, *(axis + 1 for axis in attrs["perm"])))


def _region(call: _Call, attrs: _Attrs) -> _Result:
    size = call.level.size
    region = {"begin": (0, *attrs["begin"]), "end": (size, *attrs["end"]), "step": (1, *attrs["step"])}
    return call.run(*(call.all(i) for i in range(len(call.operands))), **region)


def _padded(call: _Call, attrs: _Attrs) -> _Result:
    return call.run(call.all(0), **{**attrs, "before": (0, *attrs["before"]), "after": (0, *attrs["after"])})


def _product(call: _Call, attrs: _Attrs) -> _Result:
    if not call.is_batched(1) and call.rank(0) == call.rank(1) == 2 and not attrs.get("transpose_a"):
        return _product_of_rows(call, attrs)
    rank = max(call.rank(0), call.rank(1))
    return call.run(call.aligned(0, rank), call.aligned(1, rank), **attrs)


def _product_of_rows(call: _Call, attrs: _Attrs) -> _Result:
    """Computes one product of all rows, if the second factor is the same for all examples."""
    x = call.all(0)
    size, rows, width = x._tuple_shape
    y = call.run(ops.reshape(x, shape=(size * rows, width)), call.operands[1], **attrs)
    return ops.reshape(y, shape=(size, rows, y._tuple_shape[1]))


def _solved(call: _Call, attrs: _Attrs) -> _Result:
    if call.rank(0) != call.rank(1):
        call.refuse("its operands have different numbers of axes")
    return _whole(call, attrs)


def _convolved(call: _Call, attrs: _Attrs) -> _Result:
    if not call.is_batched(1):
        return _folded(call, attrs)
    x, weight, size = call.all(0), call.operands[1].value, call.level.size  # each example is a group of channels
    perm = (1, 0, *range(2, len(x._tuple_shape)))
    batch, _, channels, *extents = (x := ops.transpose(x, perm=perm))._tuple_shape
    x = ops.reshape(x, shape=(batch, size * channels, *extents))
    y = call.run(x, _joined(weight), **{**attrs, "groups": attrs["groups"] * size})
    _, channels, *extents = y._tuple_shape
    return ops.transpose(ops.reshape(y, shape=(batch, size, channels // size, *extents)), perm=perm)


def _folded(call: _Call, attrs: _Attrs) -> _Result:
    """Rule for ops whose first operand has a batch axis, which takes the examples too; the others
    are the same for all.
    """
    for i in range(1, len(call.operands)):
        if call.is_batched(i):
            call.refuse("weights that differ from example to example have no rule")
    return _unfolded(call, call.run(_joined(call.all(0)), *call.operands[1:], **attrs))


def _joined(x: Tensor) -> Tensor:
    size, batch, *rest = x._tuple_shape
    return ops.reshape(x, shape=(size * batch, *rest))


def _unfolded(call: _Call, y: Tensor) -> Tensor:
    first, *rest = y._tuple_shape
    return ops.reshape(y, shape=(call.level.size, first // call.level.size if call.level.size else 0, *rest))


def _layer_norm(call: _Call, attrs: _Attrs) -> _Result:
    x, parts = call.all(0), range(1, len(call.operands))
    if not any(map(call.is_batched, parts)):
        return call.run(x, *call.operands[1:], **attrs)
    plain = call.run(x, axes=attrs["axes"], eps=attrs["eps"], affine=False)
    weight, bias = (call.aligned(i, call.rank(0)) for i in parts)
    return [ops.add(ops.mul(plain[0], weight), bias), *plain[1:]]


def _attention(call: _Call, attrs: _Attrs) -> _Result:
    if attrs["drop_prob"]:
        call.refuse("one draw of what is dropped would be the same for all examples")
    parts = [call.all(i) for i in range(len(call.operands))]
    batch = parts[0]._tuple_shape[1]
    for i, part in enumerate(parts):
        size, own, *rest = part._tuple_shape
        parts[i] = _joined(part if own == batch else ops.broadcast_to(part, shape=(size, batch, *rest)))
    return [_unfolded(call, each) for each in call.run(*parts, **attrs)]


def _places(call: _Call, first: int) -> tuple[list[Any], int]:
    """Returns the indices from operand ``first`` on, with a batch axis if one has it, and the
    number of axes of an example's places.
    """
    indices = range(first, len(call.operands))
    rank = max(map(call.rank, indices))
    return [call.aligned(i, rank) for i in indices], rank


def _start(axes: tuple[int, ...]) -> int:
    """Returns the axis at which `index_get` puts the axes of the places: the first indexed axis if
    these are adjacent, else 0.
    """
    return axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0


def _examples(call: _Call, rank: int) -> Tensor:
    """Returns the number of each example, as an index."""
    size = call.level.size
    return as_tensor(np.arange(size, dtype=np.int32).reshape(size, *(1,) * rank))


def _indexed(call: _Call, attrs: _Attrs) -> _Result:
    axes = tuple(axis % call.rank(0) for axis in attrs["axes"])
    places, rank = _places(call, 1)
    start = _start(axes)
    if not call.is_batched(0):
        return _placed(call.run(call.operands[0], *places, axes=axes), start, start, rank)
    places, axes = [_examples(call, rank), *places], (0, *(axis + 1 for axis in axes))
    return _placed(call.run(call.all(0), *places, axes=axes), 0, start, rank)


def _placed(y: Tensor, now: int, start: int, rank: int) -> Tensor:
    """Moves the axes of examples and places from ``now``: examples to the front, places to
    ``start`` behind them.
    """
    others = [axis for axis in range(len(y._tuple_shape)) if not now <= axis <= now + rank]
    perm = (now, *others[:start], *range(now + 1, now + 1 + rank), *others[start:])
    return y if perm == tuple(range(len(perm))) else ops.transpose(y, perm=perm)


def _written(call: _Call, attrs: _Attrs) -> _Result:
    axes = tuple(axis % call.rank(0) for axis in attrs["axes"])
    places, rank = _places(call, 2)
    start = _start(axes)
    value = call.all(1)
    others = len(value._tuple_shape) - 1 - rank
    perm = (0, *range(start + 1, start + 1 + rank), *range(1, start + 1), *range(start + 1 + rank, 1 + rank + others))
    value = value if perm == tuple(range(len(perm))) else ops.transpose(value, perm=perm)
    return call.run(call.all(0), value, _examples(call, rank), *places, axes=(0, *(axis + 1 for axis in axes)))


RULES: dict[str, _Rule] = {row["name"]: _elementwise for row in _core.op_table() if row["elementwise"]}
RULES |= dict.fromkeys(
    ("argmax", "argmin", "concat", "cumsum", "even_max", "even_min", "gather", "log_softmax", "reduce_max", "reduce_mean", "reduce_min",
     "reduce_prod", "reduce_sum", "reduce_variance", "scatter", "scatter_add", "scatter_reduce", "softmax", "sort", "topk"), _along,
)  # fmt: skip
RULES |= dict.fromkeys(
    ("checked_index", "checked_label", "cholesky", "complex", "copy_to", "eigh", "exchanged_rows", "fft", "imag", "irfft", "lu", "matinv", "one_hot", "qr", "real",
     "rfft", "slogdet", "svd"), _whole,
)  # fmt: skip
RULES |= dict.fromkeys(
    ("adaptive_avg_pool", "adaptive_max_pool", "avg_pool", "conv_backward_data", "max_pool"), _folded,
)  # fmt: skip
RULES |= {
    "attention": _attention, "broadcast_to": _broadcast, "conv": _convolved, "index_add": _written, "index_get": _indexed, "index_set": _written,
    "layer_norm": _layer_norm, "matmul": _product, "pad": _padded, "reshape": _to_shape, "slice": _region, "slice_set": _region,
    "solve": _solved, "solve_triangular": _solved, "transpose": _permute,
}  # fmt: skip
