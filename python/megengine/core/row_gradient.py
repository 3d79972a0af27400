"""Gradients of tables that are kept as the rows that were looked up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from . import ops
from .tensor.shapes import cut

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["RowGradient"]


class RowGradient:
    """Holds the gradient of a table as the rows that were looked up; all other rows have the
    gradient 0.

    A table that is only read by `megengine.functional.embedding` or ``embedding_bag`` with
    ``sparse=True``, or by their modules, has such a ``.grad``. Memory and time follow the number of
    lookups, not the size of the table.

    Parameters
    ----------
    rows : Tensor
        (count,), int32: the number of the row of each lookup, counted from 0. A row that was looked
        up twice occurs twice.
    values : Tensor
        (count, ...): the gradient of each lookup. The gradient of a row is the sum over its lookups.
    shape : tuple of int
        Shape of the table.

    Notes
    -----
    `optimizer.SGD` without momentum, `optimizer.Adam` and `amp.GradScaler` take such gradients.
    Everything else, such as weight decay or a sum over processes, raises a TypeError for them.

    Examples
    --------
    >>> import megengine as mge, megengine.functional as F
    >>> from megengine.autodiff import GradManager
    >>> table = mge.Parameter(F.zeros((1000, 2)))
    >>> gm = GradManager().attach(table)
    >>> with gm:
    ...     gm.backward(F.embedding(mge.Tensor([7, 3, 7]), table, sparse=True).sum())
    >>> table.grad
    RowGradient(3 lookups of rows, shape=(1000, 2), dtype=float32)
    >>> table.grad.rows.tolist(), table.grad.values.tolist()
    ([7, 3, 7], [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    >>> table.grad.to_dense()[7].tolist()
    [2.0, 2.0]
    """

    _are_there = False  # programs without rows then skip the search in each step

    def __init__(self, rows: Tensor, values: Tensor, shape: tuple[int, ...]) -> None:
        RowGradient._are_there = True
        self.rows = rows
        self.values = values
        self.shape = shape

    def __repr__(self) -> str:
        return f"RowGradient({self.rows._tuple_shape[0]} lookups of rows, shape={self.shape}, dtype={self.dtype})"

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"a gradient that is kept as rows is no array or Tensor: {self}\n  fix: use grad.to_dense(), or grad.rows and grad.values")

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values."""
        return self.values.dtype

    def to_dense(self) -> Tensor:
        """Returns the whole gradient.

        Returns
        -------
        Tensor
            The shape of the table; lookups of one row are added up.
        """
        zeros = ops.full(shape=self.shape, value=0.0, dtype=self.dtype.name, device=self.values)
        whole: Tensor = added(zeros, self)
        return whole

    def numpy(self) -> np.ndarray:
        """Returns the whole gradient as a NumPy array.

        Returns
        -------
        ndarray
            The value of `to_dense`.
        """
        return self.to_dense().numpy()

    def totals(self) -> tuple[Tensor, Tensor]:
        """Returns the rows in ascending order, and for each lookup the gradient of its whole row.

        Lookups of one row have the same total, so that it does not matter which of them is written last.
        The sizes do not depend on the data, therefore traces and memory plans know them.

        Returns
        -------
        Tensor
            (count,), int32.
        Tensor
            (count, ...).
        """
        count = self.rows._tuple_shape[0]
        if count < 2:
            return self.rows, self.values
        rows, order = ops.sort(self.rows, axis=0, descending=0)
        begins = ops.not_equal(cut(rows, 0, 1, count), cut(rows, 0, 0, count - 1))
        later = ops.cumsum(ops.cast(begins, dtype="int32"), axis=0)
        place = ops.concat(ops.full(shape=(1,), value=0, dtype="int32", device=rows), later, axis=0)
        zeros = ops.full(shape=self.values._tuple_shape, value=0.0, dtype=self.dtype.name, device=rows)
        sums = ops.index_add(zeros, rows_at(self.values, order), place, axes=(0,))
        return rows, rows_at(sums, place)


def rows_at(table: Tensor, rows: Tensor) -> Tensor:
    """``table[rows]``."""
    return ops.index_get(table, rows, axes=(0,))


def added(a: Any, b: Any) -> Any:
    """The sum of two gradients of one tensor, each a Tensor or rows: rows if both are."""
    if isinstance(a, RowGradient) and isinstance(b, RowGradient):
        return RowGradient(ops.concat(a.rows, b.rows, axis=0), ops.concat(a.values, b.values, axis=0), a.shape)
    if isinstance(a, RowGradient):
        a, b = b, a
    return ops.index_add(a, b.values, b.rows, axes=(0,)) if isinstance(b, RowGradient) else a + b


def changed(grad: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Returns ``change(grad)`` for an element-wise function that keeps 0; rows stay rows."""
    return RowGradient(grad.rows, change(grad.values), grad.shape) if isinstance(grad, RowGradient) else change(grad)


def set_to_zero(grad: Tensor | RowGradient) -> None:
    """Makes every element 0, in place."""
    values = grad.values if isinstance(grad, RowGradient) else grad
    values[...] = 0


def refuse_rows(who: str, shape: tuple[int, ...], fix: str = "") -> NoReturn:
    """Raises TypeError because ``who`` needs the whole gradient. fix: a way out besides
    sparse=False.
    """
    raise TypeError(
        f"{who} takes no gradient that is kept as rows, and the table of shape {shape} has one\n"
        f"  fix: look the table up with sparse=False{fix and ', or '}{fix}"
    )
