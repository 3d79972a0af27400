"""Collective operations on tensors. In a group of one process each gives its input back.

All are ops (runtime/ops/collective.cpp): autodiff and traces see them like others, and each has a gradient. The root is
the group's first process. A process that has no result still has a part in the backward pass: it calls
``gm.backward()``, without y if it computed nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .group import WORLD, Group, _need_group, _sd, get_client, get_rank

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "reduce_sum",
    "broadcast",
    "all_gather",
    "reduce_scatter_sum",
    "all_reduce_sum",
    "all_reduce_max",
    "all_reduce_min",
    "gather",
    "scatter",
    "all_to_all",
    "remote_send",
    "remote_recv",
]


def reduce_sum(
    inp: Tensor, group: Group | None = WORLD, device: str | None = None
) -> Tensor | None:
    """Sum over the processes, shape and dtype like ``inp``, in the root; None in the others.

    device: where the result goes, default: where ``inp`` is.
    """
    return collective_comm(inp, "reduce_sum", group, device)


def broadcast(inp: Tensor, group: Group | None = WORLD, device: str | None = None) -> Tensor:
    """The root's tensor, in every process. Of the others' ``inp`` only shape and dtype count, which are the root's."""
    return collective_comm(inp, "broadcast", group, device)


def all_gather(
    inp: Tensor, group: Group | None = WORLD, device: str | None = None, axis: int = 0
) -> Tensor:
    """The tensors of all processes, joined along ``axis``, in every process."""
    return collective_comm(inp, "all_gather", group, device, axis)


def reduce_scatter_sum(
    inp: Tensor, group: Group | None = WORLD, device: str | None = None, axis: int = 0
) -> Tensor:
    """The sum over the processes, cut along ``axis`` into equal parts: the i-th process gets the i-th."""
    return collective_comm(inp, "reduce_scatter_sum", group, device, axis)


def all_reduce_sum(inp: Tensor, group: Group | None = WORLD, device: str | None = None) -> Tensor:
    """Sum over the processes, in every process; shape and dtype like ``inp``."""
    return collective_comm(inp, "all_reduce_sum", group, device)


def all_reduce_max(inp: Tensor, group: Group | None = WORLD, device: str | None = None) -> Tensor:
    """Largest value over the processes, elementwise, in every process."""
    return collective_comm(inp, "all_reduce_max", group, device)


def all_reduce_min(inp: Tensor, group: Group | None = WORLD, device: str | None = None) -> Tensor:
    """Smallest value over the processes, elementwise, in every process."""
    return collective_comm(inp, "all_reduce_min", group, device)


def gather(
    inp: Tensor, group: Group | None = WORLD, device: str | None = None, axis: int = 0
) -> Tensor | None:
    """The tensors of all processes, joined along ``axis``, in the root; None in the others."""
    return collective_comm(inp, "gather", group, device, axis)


def scatter(
    inp: Tensor, group: Group | None = WORLD, device: str | None = None, axis: int = 0
) -> Tensor:
    """The root's tensor, cut along ``axis`` into equal parts: the i-th process gets the i-th.

    Of the others' ``inp`` only shape and dtype count, which are the root's.
    """
    return collective_comm(inp, "scatter", group, device, axis)


def all_to_all(
    inp: Tensor,
    group: Group | None = WORLD,
    device: str | None = None,
    split_axis: int = 0,
    concat_axis: int = 0,
) -> Tensor:
    """Each process cuts its tensor along ``split_axis`` and sends the i-th part to the i-th process, which joins what
    it got along ``concat_axis``."""
    return collective_comm(inp, "all_to_all", group, device, split_axis, concat_axis)


def remote_send(inp: Tensor, dest_rank: int) -> None:
    """Send a tensor to the process of that rank, which calls ``remote_recv``.

    If a GradManager records ``inp``, its gradient comes back from the other process when both call ``backward``.
    """
    from .. import _core

    _need_group("remote_send")
    _check_peer(dest_rank)
    wants_gradient = _core.is_tracked(inp)
    key = _message_key(get_rank(), dest_rank)
    get_client().user_set(key, [list(inp._tuple_shape), inp.dtype.name, wants_gradient])
    _run("send_to", inp, WORLD, peer=dest_rank)


def remote_recv(
    src_rank: int, device: str | None = None, inp: Tensor | None = None, **shape_and_dtype: Any
) -> Tensor:
    """Wait for the next tensor from the process of that rank.

    device: where it goes, default: the default device. inp: not needed; it only orders this call after its making.
    ``shape`` and ``dtype``, which old programs give, are those of the tensor that was sent in any case.
    """
    unknown = set(shape_and_dtype) - {"shape", "dtype"}
    if unknown:
        raise TypeError(f"remote_recv() got an unexpected keyword argument {unknown.pop()!r}")
    from .. import _core
    from ..tensor import Tensor

    _need_group("remote_recv")
    _check_peer(src_rank)
    shape, dtype, wants_gradient = get_client().user_pop(_message_key(src_rank, get_rank()))
    gradient_way = Tensor(0.0, device="cpu0")
    if wants_gradient:
        _core.track(gradient_way)
    result: Any = _run("receive_from", gradient_way, WORLD, peer=src_rank, shape=shape, dtype=dtype)
    return result if device is None else result.to(device)


def collective_comm(
    inp: Tensor,
    mode: str,
    group: Group | None = WORLD,
    device: str | None = None,
    axis: int = 0,
    concat_axis: int = 0,
) -> Any:
    """The collective operation ``mode``, the name of a function of this module.

    Raises RuntimeError when shapes or operations do not fit together, or when a process of the group is gone.
    """
    group = WORLD if group is None else group
    if group.size == 1:
        return inp if device is None else inp.to(device)
    group.rank  # noqa: B018  -- raises unless this process is a member
    result = _MODES[mode](inp, group, axis, concat_axis)
    return result if result is None or device is None else result.to(device)


def _plain(op: str) -> Callable[[Tensor, Group, int, int], Tensor | None]:
    return lambda inp, group, axis, concat_axis: _run(op, inp, group)


def _all_gather(inp: Tensor, group: Group, axis: int, _: int) -> Tensor:
    return _joined(_run("all_gather", inp, group), axis)  # type: ignore[arg-type]  # all have a result


def _gather(inp: Tensor, group: Group, axis: int, _: int) -> Tensor | None:
    parts = _run("gather_to_root", inp, group)
    return None if parts is None else _joined(parts, axis)


def _scatter(inp: Tensor, group: Group, axis: int, _: int) -> Tensor | None:
    return _run("scatter_from_root", _cut(inp, group, axis), group)


def _reduce_scatter(inp: Tensor, group: Group, axis: int, _: int) -> Tensor | None:
    return _run("reduce_scatter_sum", _cut(inp, group, axis), group)


def _all_to_all(inp: Tensor, group: Group, axis: int, concat_axis: int) -> Tensor:
    return _joined(_run("all_to_all", _cut(inp, group, axis), group), concat_axis)  # type: ignore[arg-type]  # all have a result


_MODES: dict[str, Callable[[Tensor, Group, int, int], Tensor | None]] = {
    "reduce_sum": _plain("reduce_sum_to_root"),
    "broadcast": _plain("broadcast_from_root"),
    "all_reduce_sum": _plain("all_reduce_sum"),
    "all_reduce_max": _plain("all_reduce_max"),
    "all_reduce_min": _plain("all_reduce_min"),
    "all_gather": _all_gather,
    "reduce_scatter_sum": _reduce_scatter,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _all_to_all,
}


def _run(name: str, inp: Tensor, group: Group, **attributes: Any) -> Tensor | None:
    """The op's result, where this process has one; else its part in the backward pass is noted."""
    from ..autodiff.grad_manager import note_remote
    from ..core import ops
    from ..tensor import Tensor

    if not isinstance(inp, Tensor):
        raise TypeError(f"{name} takes a Tensor, got a {type(inp).__name__}")
    if name in _NEED_SIZE:
        attributes["size"] = group.size
    if name in _NEED_ROOT:
        attributes["is_root"] = group.rank == 0
    place = str(inp.device)
    on_host = place.startswith("cpu")
    results = getattr(ops, name)(inp if on_host else inp.to("cpu0"), group=group.key, **attributes)
    if not isinstance(results, tuple):  # only what orders operations
        note_remote(results)
        return None
    return results[0] if on_host else results[0].to(place)


_NEED_SIZE = frozenset(
    ("all_gather", "reduce_scatter_sum", "gather_to_root", "scatter_from_root", "all_to_all")
)
_NEED_ROOT = frozenset(
    ("reduce_sum_to_root", "broadcast_from_root", "gather_to_root", "scatter_from_root")
)


def _cut(inp: Tensor, group: Group, axis: int) -> Tensor:
    """Equal parts along ``axis``, side by side along a new first axis."""
    from ..core import ops

    shape = inp._tuple_shape
    if not -len(shape) <= axis < len(shape) or shape[axis] % group.size:
        raise ValueError(
            f"shape {tuple(shape)} cannot be cut into {group.size} equal parts along axis {axis}"
        )
    axis %= len(shape)
    parts = (*shape[:axis], group.size, shape[axis] // group.size, *shape[axis + 1 :])
    order = (axis, *(i for i in range(len(parts)) if i != axis))
    return ops.transpose(ops.reshape(inp, shape=parts), perm=order)


def _joined(parts: Tensor, axis: int) -> Tensor:
    """The inverse: what lies along the first axis is joined along ``axis``."""
    from ..core import ops

    rank = len(parts._tuple_shape) - 1
    if not -rank <= axis < rank:
        raise ValueError(f"there is no axis {axis} to join tensors of shape {parts._tuple_shape[1:]} along")
    axis %= rank
    order = (*range(1, axis + 1), 0, *range(axis + 1, rank + 1))
    shape = list(parts._tuple_shape[1:])
    shape[axis] *= parts._tuple_shape[0]
    return ops.reshape(ops.transpose(parts, perm=order), shape=shape)


def _message_key(source: int, target: int) -> str:
    if _sd.messages is None:
        _sd.messages = {}
    key = f"message {source}>{target}"
    count = _sd.messages[key] = _sd.messages.get(key, 0) + 1
    return f"{key} {count}"


def _check_peer(rank: int) -> None:
    if not isinstance(rank, int) or not 0 <= rank < WORLD.size or rank == get_rank():
        raise ValueError(f"rank must name another process of {WORLD.size}, got {rank!r}")
