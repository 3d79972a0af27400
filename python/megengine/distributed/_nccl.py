"""Decides whether the processes of a group exchange tensors from GPU to GPU, by NCCL, or through
the host.

Each process says on its way into the world which NCCL and which GPU it has, or why none; from this list all decide alike.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import _core
from ..core._telling import is_first
from ..device import get_default_device
from ..logger import get_logger
from ..tensor import Tensor
from .group import WORLD, Group, _sd, get_backend, get_rank

_ON = ("auto", "nccl")  # backends that exchange tensors of GPUs by NCCL if it is there
_NONE = "none: "


def own_place() -> tuple[str | None, str]:
    """Returns this process's GPU, and a text about it: the version of NCCL and the GPU, or why
    there is none.
    """
    device = get_default_device()
    place, why_not = _core.nccl_place(device)
    return (_gpu_of(device), place) if place else (None, _NONE + why_not)


def _gpu_of(device: str) -> str:
    return device.split(":")[0]  # whatever the stream


def why_not(ranks: list[int]) -> str:
    """Returns the reason why these processes do not exchange tensors by NCCL; "" if they do."""
    places = {rank: (_sd.places or {}).get(rank, _NONE + "nobody asked") for rank in ranks}
    for rank, place in places.items():
        if place.startswith(_NONE):
            return f"rank {rank} has no NCCL: {place.removeprefix(_NONE)}"
    parts = {rank: place.split(" of ", 1) for rank, place in places.items()}
    first = ranks[0]
    owners: dict[str, int] = {}
    for rank, (version, gpu) in parts.items():
        if version != parts[first][0]:
            return f"rank {first} has NCCL {parts[first][0]}, and rank {rank} {version}"
        if gpu in owners:
            return f"ranks {owners[gpu]} and {rank} share a GPU, which NCCL refuses"
        owners[gpu] = rank
    return ""


def enter(first_operation: Callable[[Tensor], object]) -> None:
    """Tells the others about this process's NCCL and, if the world can use it, runs the first
    operation, in which all must take part.
    """
    _sd.gpu, place = own_place()
    _sd.places = dict(enumerate(_sd.world.gather(place)))
    if not is_chosen(WORLD, None):
        return
    first_operation(Tensor(0.0, device=_sd.gpu))
    _sd.sends_by_nccl = True
    _core.set_exchanging_device(_sd.gpu)


def is_chosen(group: Group, backend: str | None) -> bool:
    """Whether tensors of GPUs go by NCCL in this group, with this backend or else that of `get_backend`."""
    return (backend or get_backend()) in _ON and not why_not(group.proc_ranks)


def serves(op: str, inp: Tensor, group: Group) -> bool:
    """Whether the op on this tensor goes by NCCL."""
    place = str(inp.device)
    if place.startswith("cpu") or get_backend() not in _ON:
        return False
    reason = why_not(group.proc_ranks)
    if not reason and _gpu_of(place) != _sd.gpu:
        reason = f"rank {get_rank()} entered the world with {_sd.gpu}, and this tensor is on {place}"
    if reason and get_backend() == "nccl" and is_first(("nccl", reason)):
        get_logger(__name__).warning("tensors of GPUs go through the host: %s", reason)
    return not reason and _core.exchanged_by_nccl(op, inp.dtype.name)
