"""Collective operations on tensors. In a group of one process each gives its input back.

All of them are differentiable where every process of the group has a result. The root is the group's first process.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .collectives import CollectiveClient
from .group import WORLD, Group, _need_group, _sd, get_mm_server_addr, get_rank

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
    """The root's tensor, in every process."""
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
    """The root's tensor, cut along ``axis`` into equal parts: the i-th process gets the i-th."""
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
    """Send a tensor to the process of that rank, which calls ``remote_recv``. No gradient comes back."""
    _need_group("remote_send")
    _check_peer(dest_rank)
    _client().send(inp.detach().numpy(), dest_rank)


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
    from ..tensor import Tensor

    _need_group("remote_recv")
    _check_peer(src_rank)
    return Tensor(_client().receive(src_rank), device=device)


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
    if mode in ("reduce_sum", "gather"):
        result = _exchange(inp, mode, group, axis, concat_axis)
        return None if result is None else _on(result, device)
    return _on(_differentiable()(mode, group, axis, concat_axis)(inp), device)


def _on(tensor: Tensor, device: str | None) -> Tensor:
    return tensor if device is None else tensor.to(device)


def _exchange(inp: Tensor, mode: str, group: Group, axis: int, concat_axis: int) -> Tensor | None:
    from ..tensor import Tensor

    sends = mode not in ("broadcast", "scatter") or group.rank == 0
    array = inp.detach().numpy() if sends else None
    result = _client().collective(mode, group.proc_ranks, array, axis, concat_axis)
    return None if result is None else Tensor(result, device=str(inp.device))


def _client() -> CollectiveClient:
    client = getattr(_sd, "collective_client", None)
    if client is None:
        client = CollectiveClient(get_mm_server_addr(), get_rank())
        _sd.collective_client = client  # type: ignore[attr-defined]  # of this file alone
    return client


def _check_peer(rank: int) -> None:
    if not isinstance(rank, int) or not 0 <= rank < WORLD.size or rank == get_rank():
        raise ValueError(f"rank must name another process of {WORLD.size}, got {rank!r}")


@functools.lru_cache(maxsize=1)
def _differentiable() -> type:
    """The autodiff function of a collective operation; made on first use, when the core is there."""
    from ..autodiff import Function
    from ..tensor import Tensor

    class Collective(Function):
        def __init__(self, mode: str, group: Group, axis: int, concat_axis: int) -> None:
            super().__init__()
            self.mode, self.group, self.axis, self.concat_axis = mode, group, axis, concat_axis

        def forward(self, inp: Tensor) -> Tensor:
            result = _exchange(inp, self.mode, self.group, self.axis, self.concat_axis)
            if self.mode in ("all_reduce_max", "all_reduce_min"):
                self.chosen = inp.detach().numpy() == result.numpy()  # type: ignore[union-attr]  # these modes give all one
            return result  # type: ignore[return-value]  # callers take the mode's None as it is

        def backward(self, grad: Tensor) -> Tensor | None:
            mode, group = self.mode, self.group
            if mode in ("all_reduce_max", "all_reduce_min"):
                total = _exchange(grad, "all_reduce_sum", group, 0, 0)
                return total * Tensor(self.chosen.astype("float32"), device=str(grad.device))
            opposite = {
                "broadcast": "reduce_sum",
                "scatter": "gather",
                "all_gather": "reduce_scatter_sum",
                "reduce_scatter_sum": "all_gather",
            }.get(mode, mode)
            return _exchange(
                grad,
                opposite,
                group,
                self.concat_axis if mode == "all_to_all" else self.axis,
                self.axis,
            )

    return Collective
