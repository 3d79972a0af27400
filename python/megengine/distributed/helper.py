"""Helpers for data-parallel training: averaging gradients, sharing parameters, waiting for each other."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .. import _core
from ..autodiff.grad_manager import ProcessSum
from ..core import ops
from ..core._telling import deprecated
from ..core.row_gradient import RowGradient, refuse_rows
from ..device import get_device_count
from . import _engine, _nccl
from ._parts import ShardedParameter
from .functional import all_reduce_sum, broadcast
from .group import WORLD, Group, _sd, group_barrier, override_backend

if TYPE_CHECKING:
    from ..tensor import Tensor

@deprecated("distributed.helper.get_device_count_by_fork")
def get_device_count_by_fork(device_type: str) -> int:
    """Returns the number of devices of a type.

    device_type: "cpu" or "gpu".
    """
    return get_device_count(device_type)


def get_free_ports(num: int) -> list[int]:
    """Returns different TCP ports of this machine on which nothing listens at the moment.

    Parameters
    ----------
    num : int
        How many ports to find.

    Returns
    -------
    list of int
        Numbers of the ports.

    Examples
    --------
    >>> from megengine import distributed as dist
    >>> first, second = dist.get_free_ports(2)
    >>> first != second
    True
    """
    import socket  # slow to import

    sockets = [socket.create_server(("", 0)) for _ in range(num)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def group_start() -> None:
    """Begins a group of messages: a message of `remote_send` waits for the next `remote_recv`, and
    both run together.

    Processes that all send before they receive need a group, because a large message waits for its
    receiver. Groups nest; other operations, and the end of the group, send the messages that wait.
    Messages of GPUs that go by NCCL, and those of traced functions that run, are not grouped. It
    does nothing in one process.

    Examples
    --------
    >>> from megengine import distributed as dist
    >>> dist.group_start()
    >>> dist.group_end()
    """
    _sd.group_depth += 1
    if _sd.world is not None and _sd.group_depth == 1:
        _sd.world.hold_sends(True, [])


def group_end() -> None:
    """Ends a group of messages that `group_start` began, and sends the messages that wait.

    Raises
    ------
    RuntimeError
        If no group was begun.

    Examples
    --------
    >>> from megengine import distributed as dist
    >>> dist.group_start()
    >>> dist.group_end()
    """
    if _sd.group_depth == 0:
        raise RuntimeError("group_end: no group was begun\n  fix: call group_start() before")
    _sd.group_depth -= 1
    if _sd.world is not None and _sd.group_depth == 0:
        _sd.held_messages = {}
        _sd.world.hold_sends(False, [])


def get_offsets(shapes: Iterable[Sequence[int]]) -> list[int]:
    """Returns where tensors of these shapes begin and end in one flat tensor: [begin, end, begin, end, ...], in elements."""
    offsets, position = [], 0
    for shape in shapes:
        size = math.prod(int(edge) for edge in shape)
        offsets += [position, position + size]
        position += size
    return offsets


def param_pack_split(
    inp: Tensor, offsets: Sequence[int], shapes: Sequence[Sequence[int]]
) -> list[Tensor]:
    """Splits a flat tensor into a list of tensors of these shapes; offsets as of ``get_offsets``."""
    if len(offsets) != 2 * len(shapes):
        raise ValueError(f"{len(shapes)} shapes need {2 * len(shapes)} offsets, got {len(offsets)}")
    return [
        inp[begin:end].reshape(tuple(shape))
        for begin, end, shape in zip(offsets[::2], offsets[1::2], shapes, strict=True)
    ]


def param_pack_concat(inps: Sequence[Tensor], offsets: object, offsets_val: Sequence[int]) -> Tensor:
    """Joins tensors into one flat tensor, the inverse of ``param_pack_split``. ``offsets`` is not used; ``offsets_val`` is checked."""
    if offsets_val[-1] != sum(math.prod(inp._tuple_shape) for inp in inps):
        raise ValueError(f"the tensors do not fill offsets up to {offsets_val[-1]}")
    return ops.concat(*(inp.reshape(-1) for inp in inps), axis=0)


def pack_allreduce_split(
    pack_list: Sequence[Tensor], shapes: Sequence[Sequence[int]], group: Group, reduce_method: str
) -> list[Tensor]:
    """Sums or averages tensors over a group in one operation. shapes: those of the tensors."""
    offsets = get_offsets(shapes)
    total = all_reduce_sum(param_pack_concat(pack_list, offsets, offsets), group)
    if reduce_method == "mean":
        total = total / group.size
    return param_pack_split(total, offsets, shapes)


def synchronized(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function: after each call, every process waits until all processes have finished
    theirs.

    Parameters
    ----------
    func : callable
        Function to decorate; calls return its result.

    Returns
    -------
    callable
        The decorated function.

    Examples
    --------
    >>> from megengine import distributed as dist
    >>> @dist.synchronized
    ... def download():
    ...     return "done in every process"
    >>> download()
    'done in every process'
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        group_barrier()
        return result

    return wrapper


def bcast_list_(inps: Iterable[Tensor], group: Group = WORLD) -> None:
    """Overwrites tensors, in place, with their values in the first process of a group.

    Parameters
    ----------
    inps : iterable of Tensor
        The tensors, in the same order in every process.
    group : Group
        Processes that take part.

    Examples
    --------
    >>> from megengine import distributed as dist, module
    >>> net = module.Linear(2, 3)
    >>> dist.bcast_list_(net.parameters())  # every process starts with the same weights
    """
    if group.size == 1:
        return
    for inp in inps:
        _check_is_whole("bcast_list_", inp)
        inp[...] = broadcast(inp.detach(), group)


def set_bucket_sizes(first: int = 1 << 20, others: int = 25 << 20) -> None:
    """Sets how many bytes of gradients are summed over the processes at once.

    Backward collects gradients in buckets, in the order in which it computes them, and sums each
    bucket while it goes on. A traced function keeps the buckets that it was recorded with.

    Parameters
    ----------
    first : int
        Bytes of the first bucket: small, so that the exchange begins early. The last bucket is no
        larger, so that it ends soon.
    others : int
        Bytes of the buckets between the first and the last.

    Raises
    ------
    ValueError
        For sizes below 1.

    Notes
    -----
    Takes effect at the next backward pass. All processes need the same sizes.

    Examples
    --------
    >>> from megengine import distributed as dist
    >>> dist.set_bucket_sizes(first=1 << 20, others=8 << 20)
    >>> dist.set_bucket_sizes()  # the defaults
    """
    for name, size in (("first", first), ("others", others)):
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"set_bucket_sizes: {name} must be a number of bytes, at least 1, got {size!r}")
    _core.set_bucket_sizes(first, others)


def _check_is_whole(what: str, tensor: Tensor | None) -> None:
    """Raises ValueError for a part: other processes have other parts."""
    if isinstance(tensor, ShardedParameter):
        raise ValueError(
            f"{what}: a parameter of shape {tensor._shape_of_whole} is cut by fully_shard, and each process has another part of it\n"
            "  fix: leave it out: fully_shard gives all processes parts of one value, and adds up their gradients"
        )


class AllreduceCallback(ProcessSum):
    """Callback for ``GradManager.attach`` that replaces each gradient by its sum or mean over the
    processes of a group.

    Parameters
    ----------
    reduce_method : str
        How gradients are joined: "sum" or "mean".
    group : Group
        Processes that take part.
    backend : str or None
        Name of the backend during the call, as `override_backend` takes it; None leaves the
        backend.

    Raises
    ------
    ValueError
        For another reduce_method.

    Notes
    -----
    If this is the first callback of a tensor, its gradient is reduced in a bucket while the rest of
    backward runs (see `set_bucket_sizes`); behind another callback it is reduced by itself. In a
    group of one process the gradients stay as they are.

    Examples
    --------
    >>> from megengine import autodiff, distributed as dist, module
    >>> net = module.Linear(2, 3)
    >>> gm = autodiff.GradManager()
    >>> _ = gm.attach(net.parameters(), callbacks=[dist.make_allreduce_cb("mean")])
    """

    def __init__(
        self, reduce_method: str, group: Group = WORLD, backend: str | None = None
    ) -> None:
        if not isinstance(reduce_method, str) or reduce_method.lower() not in ("sum", "mean"):
            raise ValueError(f'reduce_method must be "sum" or "mean", got {reduce_method!r}')
        self._reduce_method = reduce_method.lower()
        self._group = group
        self._backend = None if backend is None else _engine.checked(backend)

    def __call__(self, param: Tensor, grad: Tensor) -> Tensor:
        if self._group.size == 1:
            return grad
        if isinstance(grad, RowGradient):
            refuse_rows("make_allreduce_cb", grad.shape)
        if self._backend is None:
            return self._of_sum(all_reduce_sum(grad, self._group))
        with override_backend(self._backend):
            return self._of_sum(all_reduce_sum(grad, self._group))

    # Backward calls these two instead, where it makes the sum itself (autodiff.grad_manager).

    def _group_key(self, param: Tensor | None) -> str:
        if self._group.size == 1:
            return ""
        _check_is_whole("make_allreduce_cb", param)
        self._group.rank  # noqa: B018  -- raises unless this process is a member
        if _sd.sends_by_nccl and not _nccl.is_chosen(self._group, self._backend):
            return ""  # backward itself sums where the gradients lie
        return self._group.key

    def _of_sum(self, total: Tensor) -> Tensor:
        return total / self._group.size if self._reduce_method == "mean" else total


make_allreduce_cb = AllreduceCallback
