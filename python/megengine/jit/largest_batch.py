"""The largest batch of a traced function that a memory limit holds, found by plans alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._core import bytes_text, size_text
from ..core import OutOfMemoryError
from ..core._tree import flatten, opened, unflatten
from ..core.tensor.shapes import broadcast_to
from ..tensor import Tensor
from .batches import kept_generators
from .configs import memory_limit_bytes
from .report import MemoryPlan
from .tracing import trace

_MOST_TRIES = 64


@dataclass(frozen=True)
class TriedBatch:
    """Describes one batch that `largest_batch` has planned.

    Parameters
    ----------
    batch : int
        Number of examples in the batch.
    bytes : int
        Bytes of a call, by the plan that keeps the limit, or by the smallest plan that was found.
    fits : bool
        Whether a plan keeps the limit.

    Examples
    --------
    >>> from megengine.jit.largest_batch import TriedBatch
    >>> TriedBatch(8, 1024, True)
    TriedBatch(batch=8, bytes=1024, fits=True)
    """

    batch: int
    bytes: int
    fits: bool


@dataclass(frozen=True)
class LargestBatch:
    """Holds the answer of `largest_batch`.

    Parameters
    ----------
    batch : int
        The largest batch that fits; a batch of one more is refused.
    limit : int
        The memory limit in bytes.
    plan : MemoryPlan
        The plan of a call with this batch.
    axes : tuple of str
        Axes that have the batch, with their arguments, such as "x axis 0".
    tried : tuple of TriedBatch
        All batches that were planned, in the order of the search.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import jit
    >>> found = jit.largest_batch(jit.trace(lambda x: x.sum(axis=1)), "1MB", F.ones((8, 255)))
    >>> found.batch, found.axes  # a row takes 255 numbers, and its sum one
    (1024, ('x axis 0',))
    """

    batch: int
    limit: int
    plan: MemoryPlan = field(repr=False)
    axes: tuple[str, ...]
    tried: tuple[TriedBatch, ...]

    def __str__(self) -> str:
        first = f"a batch of {self.batch} fits into {bytes_text(self.limit)}; the batch is {', '.join(self.axes)}"
        return f"{first}\n{tried_text(self.tried, self.limit)}"


def tried_text(tried: Sequence[TriedBatch], limit: int) -> str:
    """A line for each batch."""
    lines = []
    for each in tried:
        size = size_text(each.bytes, limit)
        lines.append(f"  {each.batch}: {f'fits, {size}' if each.fits else f'refused, the smallest plan takes {size}'}")
    return "\n".join(lines)


def largest_batch(
    fn: trace[..., Any],
    limit: int | str,
    *args: Any,
    batch_axis: int | Mapping[str | int, int | None] = 0,
    **kwargs: Any,
) -> LargestBatch:
    """Returns the largest batch with which a call of a traced function keeps a memory limit.

    It computes nothing and allocates no memory: it plans each batch that it tries on placeholders,
    as ``fn.plan`` does under ``memory_limit``.

    Parameters
    ----------
    fn : trace
        The traced function. A limit of its own does not count.
    limit : int or str
        Memory limit in bytes, or as text: "6GB", "50% of RAM".
    *args : object
        Arguments of a call, with any batch from 1. They may be lists, tuples, dicts and dataclasses
        of tensors.
    batch_axis : int or dict
        Axis that counts the examples. A number holds for all tensors whose extent along this axis
        is that of the first tensor; the others stay as they are. A dict maps arguments (names,
        positions, or paths such as "x.image" and "x['image']") to axes and names all that have the
        batch; None excludes a part of an outer path. An extent may be a multiple of the batch, such
        as the rows of all examples.
    **kwargs : object
        Keyword arguments of the call, as they are.

    Returns
    -------
    LargestBatch
        The batch, its plan, and what was tried.

    Raises
    ------
    MemoryError
        If a batch of 1 does not fit.
    TypeError
        If ``fn`` is not traced.
    ValueError
        If no argument has a batch, or if the function takes no other batch.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import jit
    >>> @jit.trace
    ... def double(x, scale):
    ...     return x * scale
    >>> found = jit.largest_batch(double, "1MB", F.ones((8, 64)), F.ones(64))
    >>> found.batch  # each example takes 2 times 64 numbers, and the scale 64 in all
    2047
    """
    if not isinstance(fn, trace):
        raise TypeError(f"largest_batch: {fn!r} is not a traced function\n  fix: jit.trace(fn), with the options of the program")
    arguments = _Arguments(fn, args, batch_axis)
    search = _Search(memory_limit_bytes(limit), lambda batch, most: fn._plan_call(arguments.of_batch(batch), kwargs, memory_limit=most)[0])
    with kept_generators():
        batch, plan = search.run(arguments.batch)
    return LargestBatch(batch, search.limit, plan, arguments.axes, tuple(search.tried))


class _Arguments:
    """Arguments of a call, which can be given another batch."""

    def __init__(self, fn: trace[..., Any], args: tuple[Any, ...], batch_axis: int | Mapping[str | int, int | None]) -> None:
        self._leaves: list[Tensor] = []
        self._tree = flatten(list(args), self._leaves)
        names = _names(fn, len(args))
        paths = [path for name, value in zip(names, args, strict=True) for path in _paths(name, value)]
        chosen = self._by_extent(batch_axis) if isinstance(batch_axis, int) else _by_name(batch_axis, names, paths)
        self._axes = {i: axis for i, axis in enumerate(chosen) if axis is not None}
        if not self._axes:
            raise ValueError(f"largest_batch: no tensor among the arguments has a batch at axis {batch_axis!r}: {', '.join(paths) or 'there is none'}")
        for i, axis in self._axes.items():
            if not -self._leaves[i].ndim <= axis < self._leaves[i].ndim:
                raise ValueError(f"largest_batch: {paths[i]} has no axis {axis}: its shape is {list(self._leaves[i]._tuple_shape)}")
        extents = {i: self._leaves[i]._tuple_shape[axis] for i, axis in self._axes.items()}
        self.batch = min(extents.values())
        wrong = [f"{paths[i]} has {extent}" for i, extent in extents.items() if not self.batch or extent % self.batch]
        if wrong:
            raise ValueError(f"largest_batch: the extents at the batch's axes are no multiples of a batch of {self.batch}: {', '.join(wrong)}")
        self._rows = {i: extent // self.batch for i, extent in extents.items()}
        self.axes = tuple(f"{paths[i]} axis {axis}" for i, axis in self._axes.items())

    def _by_extent(self, axis: int) -> list[int | None]:
        extents = [leaf._tuple_shape[axis] if -leaf.ndim <= axis < leaf.ndim else None for leaf in self._leaves]
        batch = next((extent for extent in extents if extent is not None), None)
        return [axis if extent is not None and extent == batch else None for extent in extents]

    def of_batch(self, batch: int) -> tuple[Any, ...]:
        """The arguments with another batch, as placeholders that have no memory."""

        def resized(*leaves: Tensor) -> list[Tensor]:
            return [_resized(leaf, self._axes[i], batch * self._rows[i]) for i, leaf in zip(self._axes, leaves, strict=True)]

        made = trace(resized, symbolic=True)._plan_call(tuple(self._leaves[i] for i in self._axes), {}, memory_limit=0)[1]
        leaves = list(self._leaves)
        for i, leaf in zip(self._axes, made, strict=True):
            leaves[i] = leaf
        return tuple(unflatten(self._tree, iter(leaves)))


def _resized(x: Tensor, axis: int, extent: int) -> Tensor:
    """Makes a tensor like this with another extent; its values mean nothing."""
    shape = list(x._tuple_shape)
    axis %= len(shape)
    shape[axis] = extent
    return broadcast_to(x[(slice(None),) * axis + (slice(0, 1),)], tuple(shape))


def _names(fn: trace[..., Any], count: int) -> list[str]:
    """The names of ``count`` positional arguments; what ``*args`` takes is called "args[0]" and so on."""
    try:
        parameters = list(inspect.signature(fn.__wrapped__).parameters.values())
    except (TypeError, ValueError):  # a function without a batch
        return [f"argument {i}" for i in range(count)]
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    return [names[i] if i < len(names) else f"{rest}[{i - len(names)}]" for i in range(count)]


def _paths(path: str, value: Any) -> list[str]:
    """Returns the Python expression of each tensor of an argument."""
    if isinstance(value, Tensor):
        return [path]
    if (branch := opened(value)) is None:
        return []
    return [found for name, part in zip(branch.named(path), branch.parts, strict=True) for found in _paths(name, part)]


def _by_name(axes: Mapping[str | int, int | None], names: list[str], paths: list[str]) -> list[int | None]:
    """Returns the axis of each path: that of the longest key which equals it or is its beginning.
    """
    named = {names[key] if isinstance(key, int) and -len(names) <= key < len(names) else str(key): axis for key, axis in axes.items()}
    used: set[str] = set()
    found: list[int | None] = []
    for path in paths:
        keys = [key for key in named if path == key or path.startswith((f"{key}.", f"{key}["))]
        used.update(keys)
        found.append(named[max(keys, key=len)] if keys else None)
    if unknown := named.keys() - used:
        raise ValueError(f"largest_batch: batch_axis names {', '.join(sorted(unknown))}, and the arguments are {', '.join(paths)}")
    return found


class _Search:
    """A search between the largest batch that fits and the smallest that does not."""

    def __init__(self, limit: int, plan: Callable[[int, int], MemoryPlan]) -> None:
        self.limit = limit
        self.tried: list[TriedBatch] = []
        self._plan = plan
        self._found: tuple[int, MemoryPlan] | None = None  # the largest batch that fits so far
        self._refused: dict[int, int] = {}  # batch -> bytes of its smallest plan

    def run(self, first: int) -> tuple[int, MemoryPlan]:
        """A batch and its plan. MemoryError if a batch of 1 is refused."""
        self._try(first)
        while self._found is None or not self._refused or min(self._refused) > self._found[0] + 1:
            if len(self.tried) == _MOST_TRIES:
                raise RuntimeError(f"largest_batch: there is no answer after {_MOST_TRIES} batches:\n{tried_text(self.tried, self.limit)}")
            self._try(self._next())
        return self._found

    def _try(self, batch: int) -> None:
        try:
            plan = self._plan(batch, self.limit)
        except OutOfMemoryError as error:
            if error.needed is None or batch == 1:
                raise
            self._refused[batch] = error.needed
            self.tried.append(TriedBatch(batch, error.needed, False))
        except (ValueError, RuntimeError) as error:
            if not self.tried:
                raise
            raise ValueError(
                f"largest_batch: the function does not take a batch of {batch}: {error}\n"
                "  fix: name the axes that have the batch, such as batch_axis={'x': 0, 'labels': 0}"
            ) from error
        else:
            self._found = batch, plan
            self.tried.append(TriedBatch(batch, plan.planned_bytes, True))

    def _next(self) -> int:
        fits = self._found[0] if self._found else 0
        if not self._refused:
            return max(2 * fits, int(fits * self.limit / max(1, self.tried[-1].bytes)))
        least = min(self._refused)
        if len(self.tried) % 3 == 0:  # the search ends for all sizes
            return max((fits + least) // 2, fits + 1)
        batches = sorted(self._refused)[:2]
        # an upper bound of the bytes, as parameters do not grow with the batch
        by_batch = self._refused[least] / least
        if len(batches) == 2:
            by_batch = min(by_batch, (self._refused[batches[1]] - self._refused[least]) / (batches[1] - least))
        if by_batch <= 0:
            return max((fits + least) // 2, fits + 1)
        guess = int(least - (self._refused[least] - self.limit) / by_batch)
        return min(max(guess, fits + 1), least - 1)
