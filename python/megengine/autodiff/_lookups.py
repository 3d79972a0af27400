"""Lookups of rows of attached tables, whose gradients are kept as these rows."""

import math

from .. import _core
from ..core import ops
from ..core.row_gradient import rows_at
from ..tensor import Tensor
from ._batched import Batched
from ._batching_rules import refuse
from .grad_manager import Lookup, _recording


def looked_up(table: Tensor, places: Tensor) -> Tensor:
    """Returns the rows of a table at int32 places; managers that ask for its gradient keep it as a `RowGradient`.

    A tape knows the rows as a value of their own, so backward computes only their gradient.
    """
    if _core.records_gradients() and any(isinstance(each, Batched) for each in (table, places)):
        refuse("a lookup with sparse=True", "its gradient is a list of rows, which has no batch axis", "sparse=False")
    asking = _core.tapes_that_track(table)
    if not asking:
        return rows_at(table, places)
    specs = {manager: spec for manager in _recording.managers if manager._tape.sees_calls and (spec := manager._spec_of(table))}
    if len(specs) != asking:
        raise ValueError(
            f"a lookup with sparse=True: the table of shape {table._tuple_shape} is computed from what is attached, or is none of a GradManager's\n"
            "  why: only the gradient of an attached tensor is kept as rows\n"
            "  fix: give the attached Parameter itself, or sparse=False"
        )
    with _core.pause_tapes():
        rows = rows_at(table, places)
        numbers = ops.where(ops.less(places, 0), ops.add(places, table._tuple_shape[0]), places)
        numbers = ops.reshape(numbers, shape=(math.prod(places._tuple_shape),))
    for manager, spec in specs.items():
        manager._look_up(Lookup(spec, numbers, rows, table._tuple_shape))
    return rows
