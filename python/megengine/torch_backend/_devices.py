"""The device on which a graph computes: the host, or one GPU, whose memory and streams are then
torch's.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree

from .. import _core
from ..jit.replay import Replay
from ..random import seed as seed_ours
from ..tensor import Tensor
from ._strides import lies_as_ours

HOST = torch.device("cpu")


def device_of(graph: fx.Graph) -> torch.device:
    """The first GPU that a tensor of a graph lies on, else the host."""
    return device_of_tensors(value for node in graph.nodes for value in _pytree.tree_leaves(node.meta.get("val", node.meta.get("example_value"))))


def device_of_tensors(values: Iterable[Any]) -> torch.device:
    """Returns the first GPU that one of the tensors lies on, else the host."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.device.type == "cuda":
            return torch.device("cuda", value.device.index or 0)
    return HOST


def is_on(device: torch.device, tensor: torch.Tensor) -> bool:
    """Whether a program on the device may read or return the tensor. A GPU's program reads numbers
    of the host, as torch's operations do.
    """
    return tensor.device == device or (tensor.device == HOST and tensor.dim() == 0)


@functools.cache
def why_not(device: torch.device) -> str:
    """Returns the reason why nothing is computed on the device; "" if it is."""
    if device.type not in ("cpu", "cuda"):
        return f"megjit does not compute on {device}"
    try:
        place_on(device)
    except RuntimeError as error:
        what, *more = str(error).splitlines()
        why = next((line.partition("why:")[2].strip() for line in more if "why:" in line), what)
        return f"megjit finds no CUDA for {device}: {why}"
    return ""


_places: dict[torch.device, Place] = {}


def place_on(device: torch.device) -> Place:
    """Returns the one Place of a device. RuntimeError, with the missing library, if megjit has no
    such GPU.
    """
    if device not in _places:
        _places[device] = Place(device)
    return _places[device]


def make_room(limit: int, needed: int) -> None:
    """Frees our arenas if they would be too much beside ``needed`` bytes of torch's; called before
    torch runs an operation.
    """
    for place in _places.values():
        place.keep_idle_within(max(0, limit - needed))


class Place:
    """A device, its exchange of tensors with torch, and the arena that programs share within their
    calls.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.is_host = device == HOST
        self.exchange = _core.Exchange(torch.Tensor) if self.is_host else _core.Exchange(torch.Tensor, device.index)
        self.name = self.exchange.place  # "" for the host
        # they share one arena, which the last of them frees
        self._replays = weakref.WeakSet[Replay]()

    def share_arena(self, replay: Replay) -> Replay:
        """Lets programs share one arena, because those of one process run one after the other."""
        if other := next(iter(self._replays), None):
            replay.share_arena(other)
        self._replays.add(replay)
        return replay

    def keep_idle_within(self, limit: int) -> None:
        """Gives up the arena where it takes more bytes."""
        if any_of_them := next(iter(self._replays), None):
            any_of_them.traced._function.keep_idle_arenas_within(limit)

    def as_ours(self, value: Any) -> Any:
        """Returns a tensor over torch's memory, or over a copy if its order is not ours; other
        values unchanged.
        """
        if not isinstance(value, torch.Tensor):
            return value
        readable = as_readable(value.detach())
        if self.is_host or readable.device != self.device:
            ours: Tensor = _core.borrow(readable.cpu())
            return ours if self.is_host else ours.to(self.name)
        return self.exchange.lent(readable)

    def absent(self, form: torch.Tensor) -> Tensor:
        """Returns a tensor for plans: an unwritten one of the host, which takes no memory."""
        ours: Tensor = _core.borrow(form)
        return ours if self.is_host else self.exchange.absent(ours)

    def lent(self, value: Tensor) -> torch.Tensor:
        """torch's tensor over the memory of one of ours."""
        lent: torch.Tensor = torch.from_dlpack(_core.lend(value) if self.is_host else value)
        return lent

    # -- random numbers follow torch's generator of the device

    @property
    def _generator(self) -> Any:
        return torch.cuda.default_generators[self.device.index]

    def seed(self) -> None:
        """Sets our generator from torch's."""
        if self.is_host:
            return seed_ours(int(torch.randint(2**31 - 1, ())))
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(f"{self.name}: this call cannot become a part of a CUDA graph\n  why: it draws random numbers, and each launch would draw the same ones\n  fix: leave what draws them out of the graph")
        generator = self._generator  # its state is on the host, so nothing waits for the GPU
        offset = generator.get_offset()
        generator.set_offset(offset + 4)  # torch's kernels that draw advance the offset so
        return seed_ours(_mixed(generator.initial_seed(), offset))

    def random_state(self) -> Any:
        return torch.get_rng_state() if self.is_host else self._generator.get_state()

    def set_random_state(self, state: Any) -> None:
        if self.is_host:
            torch.set_rng_state(state)
        else:
            self._generator.set_state(state)


def _mixed(*numbers: int) -> int:
    """Mixes numbers into 31 bits, each of which depends on all numbers (SplitMix64's steps)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) & (2**64 - 1)
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
        state = (state ^ state >> 27) * 0x94D049BB133111EB & (2**64 - 1)
        state ^= state >> 31
    return state >> 33


def as_readable(value: torch.Tensor) -> torch.Tensor:
    """Returns the tensor if it is in an order of ours, else a copy that is."""
    return value if lies_as_ours(value) else value.contiguous()
