"""An optimizer whose state is divided among the processes of a group (ZeRO, stage 1: Rajbhandari et al. 2020).

Each parameter is laid out flat and cut into as many equal parts as there are processes, the last one filled up with
zeros. Each process sums the gradients of its parts, updates these with its part of the state, and
sends them to the others. Each element is what a process with the whole state would compute.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from .. import _core
from ..amp import decisions
from ..core import ops
from ..core.row_gradient import RowGradient, refuse_rows
from ..distributed._parts import Part, ShardedParameter, cut, rows_of, whole_of
from ..distributed.functional import all_gather, all_reduce_min, reduce_scatter_sum
from ..distributed.group import WORLD, Group
from ..tensor import Parameter, Tensor
from .optimizer import Optimizer, updates_where_finite, write

__all__ = ["sharded"]

Bucket = list[tuple[Parameter, Tensor]]  # parameters and their gradients


def sharded(
    optimizer: Optimizer, group: Group = WORLD, reduce_method: str | None = "mean"
) -> Optimizer:
    """Makes an optimizer like the given one that holds its state only once in the group (ZeRO,
    stage 1).

    Parameters
    ----------
    optimizer : Optimizer
        SGD, Adam, AdamW, Adam8bit, AdamW8bit, RMSprop, Lion, Adagrad, Adadelta, or another optimizer
        whose class says ``_is_elementwise = True``: its update of an element depends only on the parameter, gradient
        and state of that element. The result takes its place; do not call it any more.
    group : Group
        The processes that share the state.
    reduce_method : str or None
        How ``step`` joins the gradients of the processes: "mean" or "sum"; attach parameters
        without ``make_allreduce_cb`` then. None is for gradients that are the same in all processes
        already, which moves more bytes.

    Returns
    -------
    Optimizer
        Optimizer of the same Parameters; in a group of one process the given one itself.

    Raises
    ------
    ValueError
        For an optimizer that needs whole parameters, and for blocks of `Adam8bit` or `AdamW8bit`
        that the processes cannot share evenly.

    Notes
    -----
    Parameters get the same bits as by the given optimizer with gradients of ``make_allreduce_cb``.
    All processes call ``step``, ``state_dict`` and ``load_state_dict`` together. ``state_dict``
    returns the whole state, which groups of any size and the given optimizer can load.

    References
    ----------
    Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models".

    Examples
    --------
    >>> import megengine.module as M, megengine.optimizer as optim
    >>> opt = optim.sharded(optim.Adam(M.Linear(3, 2).parameters(), lr=0.01))
    >>> opt.param_groups[0]["lr"]
    0.01
    """
    if reduce_method not in ("mean", "sum", None):
        raise ValueError(f'reduce_method must be "mean", "sum" or None, got {reduce_method!r}')
    if not optimizer._is_elementwise:
        raise ValueError(
            f"sharded: {type(optimizer).__name__} needs whole parameters (their norms, say), "
            "and a process would have a part of each\n"
            "  fix: use SGD, Adam, AdamW, RMSprop, Lion, Adagrad or Adadelta, or do not shard"
        )
    if any(isinstance(param, ShardedParameter) for each in optimizer.param_groups for param in each["params"]):
        raise ValueError("sharded: the parameters are parts already, by fully_shard, and the state that belongs to them is, too\n  fix: use the optimizer as it is")
    for each in optimizer.param_groups:
        for param in each["params"]:
            optimizer._check_division(param, each, group.size)
    return optimizer if group.size == 1 else _Sharded(optimizer, group, reduce_method)


class _Sharded(Optimizer):
    """The optimizer that `sharded` returns. ``_state`` is empty: `_inner` holds that of the parts.
    """

    def __init__(self, optimizer: Optimizer, group: Group, reduce_method: str | None) -> None:
        self._inner = optimizer
        self._group = group
        self._reduce_method = reduce_method
        self._state = {}
        self._defaults = optimizer._defaults
        self.param_groups = optimizer.param_groups
        optimizer._processes = group.size
        # parameter -> shapes of its whole states
        self._shapes: dict[Parameter, dict[str, tuple[int, ...]]] = {}
        self._parts: dict[Parameter, Parameter] = {}  # the parts of this process, while a step runs
        whole, optimizer._state = optimizer._state, {}
        for each in self.param_groups:
            self._divide(each, whole)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        parts, self._inner._state = self._inner._state, {}
        try:
            self._inner.add_param_group(param_group)
            whole = self._inner._state
        finally:
            self._inner._state = parts
        self._divide(self.param_groups[-1], whole)

    def _divide(self, group: dict[str, Any], whole: Mapping[Parameter, dict[str, Tensor]]) -> None:
        """Keeps this process's part of the state of a group's parameters."""
        for param in group["params"]:
            part = self._parts.setdefault(param, Parameter(0.0, device=param._device_name))
            # the partial function holds no parameter
            decisions.together.set(param, partial(_least_of_all, group=self._group))
            self._shapes[param] = {name: value._tuple_shape for name, value in whole[param].items()}
            self._inner._state[part] = {
                name: value if name == "step" else self._own(value) for name, value in whole[param].items()
            }

    def step(self) -> Optimizer:
        buckets = list(self._buckets())
        for param, part in self._parts.items():
            part.grad = None
            if decisions.held:
                decisions.share(part, param)
        for bucket in buckets:
            self._reduce(bucket)
        before = [] if _core.is_tracing() else [(value, value.detach()) for value in self._state_tensors()]
        try:
            for group in self.param_groups:
                parts = [self._parts[param] for param in group["params"]]
                updates_where_finite(self._inner, ChainMap({"params": parts}, group))  # type: ignore[arg-type]  # read alone
            gathered = [self._gather(bucket) for bucket in buckets]
        # no parameter may be updated alone; a traced call ensures that itself
        except BaseException:
            for value, old in before:
                value._reset(old)
            raise
        for bucket, rows in zip(buckets, gathered, strict=True):
            self._spread(bucket, rows)
        return self

    def state_dict(self, keep_var: bool = False) -> dict[str, Any]:
        for param, part in self._parts.items():
            self._state[param] = {
                name: value if name == "step" else whole_of(all_gather(value, self._group), self._shapes[param][name])
                for name, value in self._inner._state[part].items()
            }
        try:
            return super().state_dict(keep_var)
        finally:
            self._state = {}

    def _state_of_parts(self) -> dict[str, Any]:
        """Returns `state_dict` with a Part in place of each array, as this process holds only
        parts.
        """
        for param, part in self._parts.items():
            self._state[param] = {
                name: value if name == "step" else Part(value, self._shapes[param][name], self._group.rank * value._tuple_shape[0])  # type: ignore[misc]  # for state_dict alone
                for name, value in self._inner._state[part].items()
            }
        try:
            return super().state_dict(keep_var=True)
        finally:
            self._state = {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        whole, self._state = self._state, {}
        for param, states in whole.items():
            self._divide({"params": [param]}, {param: states})

    def _state_types(self, param: Parameter) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        return {name: (self._shapes[param][name], value.dtype) for name, value in self._inner._state[self._parts[param]].items()}

    def _check_saved(self, group: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
        self._inner._check_saved(group, saved)

    def _state_tensors(self) -> Iterator[Tensor]:
        for states in self._inner._state.values():
            yield from states.values()

    # -- parts -----------------------------------------------------------------------------------

    def _own(self, value: Tensor) -> Tensor:
        return rows_of(value, self._group.size)[self._group.rank]

    def _buckets(self) -> Iterator[Bucket]:
        """Returns parameters with their gradients, the last first, which is the order in which
        backward makes them.
        """
        room, others = _core.bucket_sizes()
        bucket: Bucket = []
        for param in reversed(list(self._parts)):
            grad = param.grad
            if grad is None:
                continue
            if isinstance(grad, RowGradient):
                refuse_rows("ShardedOptimizer", grad.shape)
            if bucket and (room <= 0 or _kind(param, grad) != _kind(*bucket[0])):
                yield bucket
                bucket, room = [], others
            bucket.append((param, grad))
            room -= param.dtype.itemsize * math.prod(param._tuple_shape)
        if bucket:
            yield bucket

    def _reduce(self, bucket: Bucket) -> None:
        """Returns this process's parts of a bucket's parameters, and of their gradients summed over
        all processes.
        """
        if self._reduce_method is None:
            grads = [self._own(grad) for _, grad in bucket]
        else:
            rows = [rows_of(grad, self._group.size) for _, grad in bucket]
            total = reduce_scatter_sum(ops.concat(*rows, axis=1).reshape(-1), self._group)
            if self._reduce_method == "mean":
                total = total / self._group.size
            grads = list(cut(total, [each._tuple_shape[1] for each in rows]))
        for (param, _), grad in zip(bucket, grads, strict=True):
            part = self._parts[param]
            part._reset(self._own(param))
            part.grad = grad

    def _gather(self, bucket: Bucket) -> Tensor:
        """Gathers the new parts of all processes, one row for each."""
        parts = [self._parts[param] for param, _ in bucket]
        return all_gather(ops.concat(*parts, axis=0), self._group).reshape(self._group.size, -1)

    def _spread(self, bucket: Bucket, rows: Tensor) -> None:
        """Sets the parameters to the gathered values."""
        parts = [self._parts[param] for param, _ in bucket]
        counts = [part._tuple_shape[0] for part in parts]
        for (param, _), part, columns in zip(bucket, parts, cut(rows, counts), strict=True):
            write(param, whole_of(columns, param._tuple_shape))
            part._reset(Tensor(0.0, device=param._device_name))
            part.grad = None


def _least_of_all(value: Tensor, group: Group) -> Tensor:
    return all_reduce_min(value.astype("float32"), group)


def _kind(param: Parameter, grad: Tensor) -> tuple[str, str, str]:
    """Returns what parameters of one bucket have in common."""
    return param.dtype.name, grad.dtype.name, param._device_name
