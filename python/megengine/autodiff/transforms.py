"""Derivatives of functions as functions: products with the Jacobian, the Jacobian, the Hessian."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from .. import _core
from ..core import ops
from ..core.tensor.array_method import require_tensors
from ..tensor import Tensor
from ._batched import all_examples, mapping, one_example
from ._batching_rules import NoRule

__all__ = ["hessian", "jacobian", "jvp"]

_Function = Callable[..., Tensor]
_AT_ONCE = 1 << 24  # the most elements in the directions of one pass


class _Recorded:
    """A recorded call of a function, whose gradients can be computed ``times`` times. Outer tapes
    see all of it.
    """

    def __init__(self, op: str, function: _Function, inputs: Sequence[Tensor], times: int = 1) -> None:
        require_tensors(op, *inputs)
        if wrong := [x for x in inputs if x.dtype.kind not in "f" and x.dtype.name != "bfloat16"]:
            raise TypeError(f"{op}: no derivatives for dtype {wrong[0].dtype}\n  fix: astype('float32') before, or a function that holds the others")
        self._watched = [ops.identity(all_examples(x)) for x in inputs]
        self.leaves = [one_example(x) for x in self._watched]
        self._tapes = [_core.Tape() for _ in range(times)]  # a tape forgets what it has gone back through
        _core.Tape.open_group(self._tapes)
        try:
            for tape in self._tapes:
                for leaf in self._watched:
                    tape.watch(leaf)
            self.result = function(*self.leaves)
        finally:
            for tape in self._tapes:
                tape.close()
        require_tensors(f"{op}: the function's result", self.result)

    def pulled(self, direction: Tensor) -> list[Tensor]:
        """``direction`` times the Jacobian with respect to each input; zeros where the result does not depend on it."""
        found = self._tapes.pop().backward([all_examples(self.result)], [all_examples(direction)], self._watched, [])
        return [_zeros(leaf) if grad is None else one_example(grad) for leaf, grad in zip(self.leaves, found, strict=True)]


def _zeros(x: Tensor) -> Tensor:
    return ops.full(shape=x._tuple_shape, value=0.0, dtype=x.dtype.name, device=x)


def pulled_back(function: _Function, inputs: Sequence[Tensor], direction: Tensor) -> list[Tensor]:
    """``direction`` times the Jacobian of a function, for each of its inputs."""
    return _Recorded("pulled_back", function, inputs).pulled(direction)


def jvp(function: _Function, inputs: Sequence[Tensor], tangents: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Computes a function and how its result changes along ``tangents``: the Jacobian times a vector.

    Parameters
    ----------
    function : callable
        Function that takes Tensors and returns one.
    inputs : sequence of Tensor
        Arguments of the function, of float dtypes.
    tangents : sequence of Tensor
        A direction for each input, of its shape.

    Returns
    -------
    result : Tensor
        What the function returns.
    change : Tensor
        The Jacobian times ``tangents``, of the shape of the result.

    Raises
    ------
    TypeError
        For inputs without derivatives.
    ValueError
        For tangents that do not fit.

    Notes
    -----
    It takes two reverse passes: ``u @ J`` is linear in u, and its gradient with respect to u is ``J
    @ v``. So each operation needs a second derivative.

    References
    ----------
    Townsend 2017, "A new trick for calculating Jacobian vector products".

    Examples
    --------
    >>> from megengine import Tensor, autodiff
    >>> y, change = autodiff.jvp(lambda x: x * x, [Tensor([1.0, 2.0])], [Tensor([1.0, 10.0])])
    >>> change.tolist()
    [2.0, 40.0]
    """
    shapes = [x._tuple_shape for x in inputs]
    if [tuple(np.shape(v)) for v in tangents] != shapes:
        raise ValueError(f"jvp: inputs have shapes {shapes}, tangents {[tuple(np.shape(v)) for v in tangents]}\n  fix: give a direction for each input, of its shape")
    recorded = _Recorded("jvp", function, inputs)
    direction, tape = all_examples(_zeros(recorded.result)), _core.Tape()
    tape.open()
    try:
        tape.watch(direction)
        pulled = recorded.pulled(one_example(direction))
    finally:
        tape.close()
    (change,) = tape.backward([*map(all_examples, pulled)], [*map(all_examples, tangents)], [direction], [])
    return recorded.result, _zeros(recorded.result) if change is None else one_example(change)


def jacobian(function: _Function, x: Tensor) -> Tensor:
    """Computes all derivatives of a function's result with respect to its argument.

    Parameters
    ----------
    function : callable
        Function that takes a Tensor and returns one.
    x : Tensor
        Argument of the function, of a float dtype.

    Returns
    -------
    Tensor
        [*result.shape, *x.shape]: how each element of the result changes with each of ``x``.

    Raises
    ------
    TypeError
        For an x without derivatives.

    See Also
    --------
    hessian : Second derivatives.
    jvp : Derivatives along one direction.

    Notes
    -----
    The function runs once to count the elements of its result, and once for a batch of as many
    copies of ``x``. One reverse pass finds all derivatives of the batch (several passes for more
    than 4096 elements). A function that `vmap` refuses runs once more, with a reverse pass for each
    element.

    Examples
    --------
    >>> from megengine import Tensor, autodiff
    >>> autodiff.jacobian(lambda x: x[:1] * x, Tensor([2.0, 3.0])).tolist()
    [[4.0, 0.0], [3.0, 2.0]]
    """
    require_tensors("jacobian", x)
    shape = function(x)._tuple_shape
    size = int(np.prod(shape))
    if not size:
        return ops.full(shape=(*shape, *x._tuple_shape), value=0.0, dtype=x.dtype.name, device=x)
    try:
        parts = list(_rows_of_batches(function, x, shape))
    except NoRule:
        parts = list(_rows_one_by_one(function, x, shape))
    rows = parts[0] if len(parts) == 1 else ops.concat(*parts, axis=0)
    return ops.reshape(rows, shape=(*shape, *x._tuple_shape))


def _rows_of_batches(function: _Function, x: Tensor, shape: tuple[int, ...]) -> Iterator[Tensor]:
    """The derivatives of the result's elements; x is copied for each of them, so that one pass finds many."""
    size = int(np.prod(shape))
    for begin in range(0, size, count := max(1, _AT_ONCE // size)):
        with mapping(min(count, size - begin)) as level:
            recorded = _Recorded("jacobian", function, [level.of(level.value_of(x))])
            directions = _direction(np.eye(level.size, size, begin, dtype=np.float32).reshape(level.size, *shape), recorded.result)
            rows = level.value_of(recorded.pulled(level.of(directions))[0])
        yield rows


def _rows_one_by_one(function: _Function, x: Tensor, shape: tuple[int, ...]) -> Iterator[Tensor]:
    size = int(np.prod(shape))
    recorded = _Recorded("jacobian", function, [x], size)
    for one in np.eye(size, dtype=np.float32):
        (row,) = recorded.pulled(_direction(one.reshape(recorded.result._tuple_shape), recorded.result))
        yield ops.reshape(row, shape=(1, *x._tuple_shape))


def _direction(values: np.ndarray, like: Tensor) -> Tensor:
    made = _core.apply_const(values)
    return made if made.dtype == like.dtype else ops.cast(made, dtype=like.dtype.name)


def hessian(function: _Function, x: Tensor) -> Tensor:
    """Computes the second derivatives of a function whose result is one number.

    Parameters
    ----------
    function : callable
        Function that takes a Tensor and returns a Tensor of one element.
    x : Tensor
        Argument of the function, of a float dtype.

    Returns
    -------
    Tensor
        [*x.shape, *x.shape].

    Raises
    ------
    TypeError
        For an x without derivatives.
    ValueError
        For a function whose result has more elements.

    See Also
    --------
    jacobian : First derivatives.

    Notes
    -----
    It is the `jacobian` of the gradient.

    Examples
    --------
    >>> from megengine import Tensor, autodiff
    >>> autodiff.hessian(lambda x: x[0] * x[1] + x[1] ** 3, Tensor([2.0, 3.0])).tolist()
    [[0.0, 1.0], [1.0, 18.0]]
    """

    def gradient(x: Tensor) -> Tensor:
        recorded = _Recorded("hessian", function, [x])
        if int(np.prod(recorded.result._tuple_shape)) != 1:
            raise ValueError(f"hessian: the function's result has shape {list(recorded.result._tuple_shape)}\n  fix: return one number, such as a mean; jacobian takes any shape")
        one = ops.full(shape=recorded.result._tuple_shape, value=1.0, dtype=recorded.result.dtype.name, device=recorded.result)
        return recorded.pulled(one)[0]

    return jacobian(gradient, x)
