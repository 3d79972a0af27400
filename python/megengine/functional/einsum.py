"""Einstein summation as transposes and one matrix product per pair of operands."""

from collections.abc import Sequence
from math import prod

import numpy as np

from .. import core
from ..core import apply_const, ops
from ..tensor import Tensor
from .math import matmul

_SPARE = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def einsum(equation: str, *args: Tensor) -> Tensor:
    """Sums products of operands over the axes whose letters the output lacks.

    Parameters
    ----------
    equation : str
        One letter for each axis of each operand, the operands separated by commas, then "->" and
        the letters of the output: "bij,bjk->bik" is a batched matrix product, "ii->i" a diagonal,
        "i,j" an outer product. "..." stands for leading axes that broadcast. Without "->" the
        output has the letters that occur once, in alphabetical order.
    *args : Tensor
        The operands, each with as many axes as it has letters.

    Returns
    -------
    Tensor
        An axis for each letter of the output.

    Raises
    ------
    ValueError
        For an equation that does not fit the operands.

    Notes
    -----
    Operands are contracted from left to right.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x, y = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([1.0, 10.0])
    >>> F.einsum("ij,j->i", x, y).numpy()
    array([21., 43.], dtype=float32)
    >>> F.einsum("ii", x).item()  # the trace
    5.0
    """
    if len(args) == 1 and isinstance(args[0], (list, tuple)):
        args = tuple(args[0])
    operands = list(core.convert_inputs(*args))
    terms, output = _parse(equation, [x.ndim for x in operands])
    extents = _extents(equation, terms, operands)
    parts = [_diagonal(x, term) for x, term in zip(operands, terms, strict=False)]
    x, labels = parts[0]
    for i, (y, other) in enumerate(parts[1:], start=1):
        later = set(output).union(*(t for _, t in parts[i + 1 :]))
        x, labels = _sum_out(x, labels, later.union(other))
        y, other = _sum_out(y, other, later.union(labels))
        x, labels = _contract(x, labels, y, other, later, extents)
    x, labels = _sum_out(x, labels, set(output))
    return _permute(x, labels, output)


def _parse(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """Letters of each operand and of the output, "..." replaced by capital letters."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"einsum: {equation!r} has {len(terms)} operands, {len(ranks)} were given")
    widths = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=False)]
    for term, width, rank in zip(terms, widths, ranks, strict=False):
        bare = term.replace("...", "", 1)
        if not all(c.isalpha() and c.isascii() for c in bare):
            raise ValueError(
                f"einsum: {term!r} in {equation!r} has something other than letters and '...'"
            )
        if width < 0 or (width > 0 and "..." not in term):
            raise ValueError(
                f"einsum: {term!r} in {equation!r} does not fit a tensor with {rank} axes"
            )
    widest = max((w for w, t in zip(widths, terms, strict=False) if "..." in t), default=0)
    spare = [c for c in _SPARE if c not in text][:widest]
    names = "".join(spare)
    terms = [
        t.replace("...", names[widest - w :] if w else "")
        for t, w in zip(terms, widths, strict=False)
    ]
    if arrow:
        output = right.replace("...", names)
    else:
        every = "".join(terms)
        output = names + "".join(
            sorted(c for c in set(every) if every.count(c) == 1 and c not in names)
        )
    if len(set(output)) != len(output) or not set(output) <= set("".join(terms)):
        raise ValueError(
            f"einsum: the output of {equation!r} repeats a letter, or has one that no operand has"
        )
    return terms, output


def _extents(equation: str, terms: Sequence[str], operands: Sequence[Tensor]) -> dict[str, int]:
    extents: dict[str, int] = {}
    for term, x in zip(terms, operands, strict=False):
        for label, n in zip(term, x._tuple_shape, strict=False):
            known = extents.setdefault(label, n)
            if known == 1:
                extents[label] = n
            elif n not in (1, known):
                raise ValueError(
                    f"einsum: {label!r} in {equation!r} is {known} in one operand and {n} in another"
                )
    return extents


def _diagonal(x: Tensor, term: str) -> tuple[Tensor, str]:
    """Makes repeated letters of one operand one axis."""
    for label in term:
        while term.count(label) > 1:
            i = term.index(label)
            j = term.index(label, i + 1)
            n = min(x._tuple_shape[i], x._tuple_shape[j])
            line = apply_const(np.arange(n, dtype=np.int32))
            rest = term[:i] + term[i + 1 : j] + term[j + 1 :]
            x = ops.index_get(x, line, line, axes=(i, j))
            at = i if j == i + 1 else 0  # index axes that are not adjacent come first
            term = rest[:at] + label + rest[at:]
    return x, term


def _sum_out(x: Tensor, labels: str, keep: set[str]) -> tuple[Tensor, str]:
    axes = tuple(a for a, label in enumerate(labels) if label not in keep)
    if not axes:
        return x, labels
    return ops.reduce_sum(x, axes=axes, keepdims=False), "".join(c for c in labels if c in keep)


def _permute(x: Tensor, labels: str, order: str) -> Tensor:
    if labels == order:
        return ops.identity(x)
    return ops.transpose(x, perm=tuple(labels.index(c) for c in order))


def _contract(
    a: Tensor, la: str, b: Tensor, lb: str, keep: set[str], extents: dict[str, int]
) -> tuple[Tensor, str]:
    """Multiplies two operands and sums over the letters that neither other operands nor the output
    have.
    """
    batch = [c for c in la if c in lb and c in keep]
    inner = [c for c in la if c in lb and c not in keep]
    left = [c for c in la if c not in lb]
    right = [c for c in lb if c not in la]

    def arranged(x: Tensor, labels: str, *groups: list[str]) -> Tensor:
        order = "".join("".join(g) for g in groups)
        x = _permute(x, labels, order)
        full = tuple(
            extents[c] if c in lb and c in la else x._tuple_shape[i] for i, c in enumerate(order)
        )
        if full != x._tuple_shape:
            x = ops.broadcast_to(x, shape=full)
        sizes = iter(full)
        return ops.reshape(x, shape=tuple(prod(next(sizes) for _ in g) for g in groups))

    x = arranged(a, la, batch, left, inner)
    y = arranged(b, lb, batch, inner, right)
    z = matmul(x, y) if inner else ops.mul(x, y)
    outer = tuple(extents[c] if c in batch else a._tuple_shape[la.index(c)] for c in batch + left)
    shape = outer + tuple(b._tuple_shape[lb.index(c)] for c in right)
    return ops.reshape(z, shape=shape), "".join(batch + left + right)
