"""Collective operations: tensors that all processes of a group exchange.

All take part in autodiff and in traces, and each has a gradient (runtime/ops/collective.cpp). The root is the first process of the
group. In a group of one process every operation returns its input. A process that gets no result still takes part in the backward
pass: it calls ``gm.backward()``, without an argument if it computed nothing else.

All processes of the group must call the same operations in the same order. RuntimeError if they do not, if their shapes or dtypes
differ, or if one of them failed or is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import _core
from ..autodiff.grad_manager import note_remote
from ..core import ops
from ..core.tensor.array_method import require_tensors
from ..core.tensor.dtype import dtype_name
from ..core.tensor.shapes import normalize_axis
from ..device import get_default_device
from ..tensor import Tensor
from . import _nccl
from .group import WORLD, Group, _need_group, _sd, at_entry, get_client, get_rank

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
    """Sums a tensor over the processes of a group; only the root gets the sum.

    Parameters
    ----------
    inp : Tensor
        A tensor of equal shape and dtype in every process.
    group : Group or None
        The processes that take part; None means all.
    device : str or None
        Where the result goes, such as "gpu0"; None leaves it where ``inp`` is.

    Returns
    -------
    Tensor or None
        The sum, shape and dtype as of ``inp``, in the root, and None in the other processes.

    Examples
    --------
    >>> from megengine import distributed as dist, tensor
    >>> dist.functional.reduce_sum(tensor([1.0, 2.0])).numpy()  # [2., 4.] in the root of two such processes
    array([1., 2.], dtype=float32)
    """
    return collective_comm(inp, "reduce_sum", group, device)


def broadcast(inp: Tensor, group: Group | None = WORLD, device: str | None = None) -> Tensor:
    """Copies the root's tensor to every process of a group.

    Parameters
    ----------
    inp : Tensor
        A tensor of equal shape and dtype in every process; only the values of the root matter.
    group : Group or None
        The processes that take part; None means all.
    device : str or None
        Where the result goes, such as "gpu0"; None leaves it where ``inp`` is.

    Returns
    -------
    Tensor
        The shape and dtype of ``inp``.

    See Also
    --------
    scatter : Each process gets a part.

    Examples
    --------
    >>> from megengine import distributed as dist, tensor
    >>> dist.functional.broadcast(tensor([1.0, 2.0])).numpy()  # the root's values
    array([1., 2.], dtype=float32)
    """
    return collective_comm(inp, "broadcast", group, device)


def all_gather(
    inp: Tensor, group: Group | None = WORLD, device: str | None = None, axis: int = 0
) -> Tensor:
    """Concatenates the tensors of all processes, in the order of their ranks; every process gets
    the whole.

    Parameters
    ----------
    inp : Tensor
        A tensor of equal shape and dtype in every process.
    group : Group or None
        The processes that take part; None means all.
    device : str or None
        Where the result goes, such as "gpu0"; None leaves it where ``inp`` is.
    axis : int
        The axis to concatenate along.

    Returns
    -------
    Tensor
        The extent along ``axis`` is that of ``inp`` times the number of processes.

    Raises
    ------
    ValueError
        If there is no such axis.

    See Also
    --------
    gather : Only the root gets the whole.

    Examples
    --------
    >>> from megengine import distributed as dist, tensor
    >>> dist.functional.all_gather(tensor([1.0, 2.0])).numpy()  # [1., 2., 1., 2.] in two such processes
    array([1., 2.], dtype=float32)
    """
    return collective_comm(inp, "all_gather", group, device, axis)


def reduce_scatter_sum(
    inp: Tensor, group: Group | None = WORLD, device: str | None = None, axis: int = 0
) -> Tensor:
    """Sums a tensor over the processes and splits the sum: the i-th process gets the i-th part.

    Parameters
    ----------
    inp : Tensor
        A tensor of equal shape and dtype in every process.
    group : Group or None
        The processes that take part; None means all.
    device : str or None
        Where the result goes, such as "gpu0"; None leaves it where ``inp`` is.
    axis : int
        The axis to split along.

    Returns
    -------
    Tensor
        The extent along ``axis`` is that of ``inp`` divided by the number of processes.

    Raises
    ------
    ValueError
        If the extent of the axis is not a multiple of the number of processes.

    Examples
    --------
    >>> from megengine import distributed as dist, tensor
    >>> dist.functional.reduce_scatter_sum(tensor([1.0, 2.0])).numpy()  # [2.] and [4.] in two such processes
    array([1., 2.], dtype=float32)
    """
    return collective_comm(inp, "reduce_scatter_sum", group, device, axis)


def all_reduce_sum(inp: Tensor, group: Group | None = WORLD, device: str | None = None) -> Tensor:
    """Sums a tensor over the processes of a group; every process gets the sum.

    Parameters
    ----------
    inp : Tensor
        A tensor of equal shape and dtype in every process.
    group : Group or None
        The processes that take part; None means all.
    device : str or None
        Where the result goes, such as "gpu0"; None leaves it where ``inp`` is.

    Returns
    -------
    Tensor
        The shape and dtype of ``inp``.

    See Also
    --------
    reduce_sum : Only the root gets the sum.
    reduce_scatter_sum : Each process gets a part of the sum.

    Examples
    --------
    >>> from megengine import distributed as dist, tensor
    >>> loss = tensor(2.0)
    >>> (dist.functional.all_reduce_sum(loss) / dist.get_world_size()).item()  # the mean over the processes
    2.0
    """
    return collective_comm(inp, "all_reduce_sum", group, device)


def all_reduce_max(inp: Tensor, group: Group | None = WORLD, device: str | None = None) -> Tensor:
    """Takes the element-wise maximum over the processes of a group; every process gets it.

    Parameters
    ----------
    inp : Tensor
        A tensor of equal shape and dtype in every process.
    group : Group or None
        The processes that take part; None means all.
    device : str or None
        Where the result goes, such as "gpu0"; None leaves it where ``inp`` is.

    Returns
    -------
    Tensor
        The shape and dtype of ``inp``.

    Examples
    --------
    >>> from megengine import distributed as dist, tensor
    >>> dist.functional.all_reduce_max(tensor([1.0, 2.0])).numpy()
    array([1., 2.], dtype=float32)
    """
    return collective_comm(inp, "all_reduce_max", group, device)


def all_reduce_min(inp: Tensor, group: Group | None = WORLD, device: str | None = None) -> Tensor:
    """Takes the element-wise minimum over the processes of a group; every process gets it.

    Parameters
    ----------
    inp : Tensor
        A tensor of equal shape and dtype in every process.
    group : Group or None
        The processes that take part; None means all.
    device : str or None
        Where the result goes, such as "gpu0"; None leaves it where ``inp`` is.

    Returns
    -------
    Tensor
        The shape and dtype of ``inp``.

    Examples
    --------
    >>> from megengine import distributed as dist, tensor
    >>> dist.functional.all_reduce_min(tensor([1.0, 2.0])).numpy()
    array([1., 2.], dtype=float32)
    """
    return collective_comm(inp, "all_reduce_min", group, device)


def gather(
    inp: Tensor, group: Group | None = WORLD, device: str | None = None, axis: int = 0
) -> Tensor | None:
    """Concatenates the tensors of all processes, in the order of their ranks; only the root gets
    the whole.

    Parameters
    ----------
    inp : Tensor
        A tensor of equal shape and dtype in every process.
    group : Group or None
        The processes that take part; None means all.
    device : str or None
        Where the result goes, such as "gpu0"; None leaves it where ``inp`` is.
    axis : int
        The axis to concatenate along.

    Returns
    -------
    Tensor or None
        In the root the tensors of all processes, joined along ``axis``; None in the other
        processes.

    Raises
    ------
    ValueError
        If there is no such axis.

    Examples
    --------
    >>> from megengine import distributed as dist, tensor
    >>> dist.functional.gather(tensor([1.0, 2.0])).numpy()  # [1., 2., 1., 2.] in the root of two such processes
    array([1., 2.], dtype=float32)
    """
    return collective_comm(inp, "gather", group, device, axis)


def scatter(
    inp: Tensor, group: Group | None = WORLD, device: str | None = None, axis: int = 0
) -> Tensor:
    """Splits the root's tensor and gives the i-th part to the i-th process.

    Parameters
    ----------
    inp : Tensor
        A tensor of equal shape and dtype in every process; only the values of the root matter.
    group : Group or None
        The processes that take part; None means all.
    device : str or None
        Where the result goes, such as "gpu0"; None leaves it where ``inp`` is.
    axis : int
        The axis to split along.

    Returns
    -------
    Tensor
        The extent along ``axis`` is that of ``inp`` divided by the number of processes.

    Raises
    ------
    ValueError
        If the extent of the axis is not a multiple of the number of processes.

    Examples
    --------
    >>> from megengine import distributed as dist, tensor
    >>> dist.functional.scatter(tensor([1.0, 2.0])).numpy()  # [1.] and [2.] in two processes
    array([1., 2.], dtype=float32)
    """
    return collective_comm(inp, "scatter", group, device, axis)


def all_to_all(
    inp: Tensor,
    group: Group | None = WORLD,
    device: str | None = None,
    split_axis: int = 0,
    concat_axis: int = 0,
) -> Tensor:
    """Exchanges parts of tensors: each process splits its own, sends the i-th part to the i-th
    process, and concatenates what it receives.

    Parameters
    ----------
    inp : Tensor
        A tensor of equal shape and dtype in every process.
    group : Group or None
        The processes that take part; None means all.
    device : str or None
        Where the result goes, such as "gpu0"; None leaves it where ``inp`` is.
    split_axis : int
        The axis to split along.
    concat_axis : int
        The axis to concatenate along.

    Returns
    -------
    Tensor
        The dtype of ``inp``; the extent along ``split_axis`` is divided, that along ``concat_axis``
        multiplied, by the number of processes.

    Raises
    ------
    ValueError
        If the extent of the axis is not a multiple of the number of processes.

    Examples
    --------
    >>> from megengine import distributed as dist, tensor
    >>> dist.functional.all_to_all(tensor([1.0, 2.0])).numpy()  # [1., 1.] and [2., 2.] in two such processes
    array([1., 2.], dtype=float32)
    """
    return collective_comm(inp, "all_to_all", group, device, split_axis, concat_axis)


def remote_send(inp: Tensor, dest_rank: int) -> None:
    """Sends a tensor to another process, which calls `remote_recv`.

    Parameters
    ----------
    inp : Tensor
        Tensor to send. If a GradManager records it, its gradient comes back from the other process
        when both call ``backward``.
    dest_rank : int
        Rank of the other process in the world.

    Raises
    ------
    ValueError
        If there is no such process or it is this one.
    RuntimeError
        Outside of a process group.

    Examples
    --------
    >>> from megengine import distributed as dist, tensor
    >>> @dist.launcher(n_gpus=2, device_type="cpu")
    ... def main():
    ...     if dist.get_rank() == 0:
    ...         dist.functional.remote_send(tensor([1.0, 2.0]), dest_rank=1)
    ...     else:
    ...         return dist.functional.remote_recv(src_rank=0).numpy()
    """
    require_tensors("remote_send", inp)
    _need_group("remote_send")
    _check_peer("dest_rank", dest_rank)
    wants_gradient = _core.is_tracked(inp)
    key = _message_key(get_rank(), dest_rank)
    by_nccl = _sd.sends_by_nccl and _nccl.serves("send_to", inp, WORLD)
    get_client().user_set(key, [list(inp._tuple_shape), inp.dtype.name, wants_gradient, by_nccl])
    if _sd.group_depth:
        _sd.held_messages = {**(_sd.held_messages or {}), key: dest_rank}
    _run("send_to", inp, WORLD, peer=dest_rank)


def remote_recv(
    src_rank: int, device: str | None = None, inp: Tensor | None = None, **shape_and_dtype: Any
) -> Tensor:
    """Waits for the next tensor that another process sends by `remote_send`.

    Parameters
    ----------
    src_rank : int
        Rank of the other process in the world.
    device : str or None
        Device of the result; None takes this process's GPU for a tensor that comes by NCCL, else
        the host.
    inp : Tensor or None
        Tensor that must be computed before this call, or None.
    **shape_and_dtype : object
        Only ``shape`` and ``dtype`` that the program expects; both are optional, since the sender
        sends them.

    Returns
    -------
    Tensor
        The shape and dtype of the tensor that was sent.

    Raises
    ------
    ValueError
        If there is no such process or it is this one, or the tensor has another shape or dtype
        than given.
    RuntimeError
        Outside of a process group.
    TypeError
        For another keyword.

    Examples
    --------
    >>> from megengine import distributed as dist
    >>> try:
    ...     dist.functional.remote_recv(src_rank=0)
    ... except RuntimeError as error:
    ...     print(error)
    remote_recv needs a process group; call init_process_group first, or use the launcher
    """
    unknown = set(shape_and_dtype) - {"shape", "dtype"}
    if unknown:
        raise TypeError(f"remote_recv() got an unexpected keyword argument {unknown.pop()!r}")
    _need_group("remote_recv")
    _check_peer("src_rank", src_rank)
    shape, dtype, wants_gradient, by_nccl = _announced(_message_key(src_rank, get_rank()))
    gradient_way = Tensor(0.0, device=_sd.gpu if by_nccl else _host())
    if wants_gradient:
        _core.track(gradient_way)
    result: Any = _run("receive_from", gradient_way, WORLD, peer=src_rank, shape=shape, dtype=dtype)
    _sd.held_messages = None  # they went beside it
    given = shape_and_dtype.get("shape")
    expected_shape = tuple(shape if given is None else given)
    expected_dtype = dtype_name(shape_and_dtype.get("dtype") or dtype)
    if (expected_shape, expected_dtype) != (tuple(shape), dtype):
        raise ValueError(
            f"remote_recv: rank {src_rank} sent a tensor of shape {tuple(shape)} and dtype {dtype}, and rank {get_rank()} expects "
            f"shape {expected_shape} and dtype {expected_dtype}"
        )
    return result if device is None else result.to(device)


def _host() -> str:
    """Returns the device of tensors that come through the host: that of new tensors, unless it is a
    GPU.
    """
    default = get_default_device()
    return "cpu0" if _core.physical_name(default).startswith("gpu") else default


def _announced(key: str) -> Any:
    """Waits for what the sender says about a message. Meanwhile messages that a group holds back go
    to processes that receive them: they may send after that.
    """
    while True:
        held = _sd.held_messages or {}
        found = get_client()._pop_message(key, list(held))
        if found[0]:
            return found[1]
        peers = {held[each] for each in found[1]}
        _sd.held_messages = {each: peer for each, peer in held.items() if peer not in peers}
        _sd.world.hold_sends(True, sorted(peers))


def collective_comm(
    inp: Tensor,
    mode: str,
    group: Group | None = WORLD,
    device: str | None = None,
    axis: int = 0,
    concat_axis: int = 0,
) -> Any:
    """Calls the collective operation with the name ``mode``; the other arguments are those of that function.

    Raises RuntimeError when shapes or operations do not match, or when a process of the group is gone; ValueError for an unknown mode,
    and where this process is not in the group.
    """
    group = WORLD if group is None else group
    group.rank  # noqa: B018  -- raises unless this process is a member
    if mode not in _MODES:
        raise ValueError(f"collective_comm: {mode!r} is none of {', '.join(_MODES)}")
    require_tensors(mode, inp)
    if group.size == 1:
        for each in {"all_to_all": (axis, concat_axis)}.get(mode, (axis,) if mode in _ALONG_AXES else ()):
            normalize_axis(each, inp.ndim, mode)
        return inp if device is None else inp.to(device)
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
    """Runs the op and returns its result; if this process has none, notes its part in the backward
    pass.
    """
    if not isinstance(inp, Tensor):
        raise TypeError(f"{name} takes a Tensor, got a {type(inp).__name__}")
    if name in _NEED_SIZE:
        attributes["size"] = group.size
    if name in _NEED_ROOT:
        attributes["is_root"] = group.rank == 0
    as_is = not inp.device.physical_name.startswith("gpu") or _nccl.serves(name, inp, group)
    results = getattr(ops, name)(inp if as_is else inp.to("cpu0"), group=group.key, **attributes)
    if not isinstance(results, tuple):  # only messages that order operations
        note_remote(results)
        return None
    return results[0] if as_is else results[0].to(inp.device)


_ALONG_AXES = frozenset(("all_gather", "reduce_scatter_sum", "gather", "scatter"))
_NEED_SIZE = frozenset(
    ("all_gather", "reduce_scatter_sum", "gather_to_root", "scatter_from_root", "all_to_all")
)
_NEED_ROOT = frozenset(
    ("reduce_sum_to_root", "broadcast_from_root", "gather_to_root", "scatter_from_root")
)


def _cut(inp: Tensor, group: Group, axis: int) -> Tensor:
    """Equal parts along ``axis``, side by side along a new first axis."""
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
    """The inverse: joins the parts along the first axis along ``axis``."""
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


def _check_peer(what: str, rank: int) -> None:
    if not isinstance(rank, int) or not 0 <= rank < WORLD.size or rank == get_rank():
        raise ValueError(f"{what} must name another process of {WORLD.size}, got {rank!r}")


at_entry.append(lambda: _nccl.enter(all_reduce_sum))
