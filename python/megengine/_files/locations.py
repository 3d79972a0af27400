"""Chooses the devices on which the tensors of a file are placed while it is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from ..tensor import Tensor

MapLocation = str | Mapping[str, str] | Callable[[str], str] | None

# mappings in force, innermost last
_locations: ContextVar[tuple[MapLocation, ...]] = ContextVar("map_location", default=())


class dmap:
    """Context manager: tensors that this thread unpickles inside go where ``map_location`` says."""

    _entered = 0  # number of mappings in all threads
    _lock = threading.Lock()

    def __init__(self, map_location: MapLocation) -> None:
        if (
            map_location is not None
            and not isinstance(map_location, (str, Mapping))
            and not callable(map_location)
        ):
            raise TypeError(
                f"map_location must be a device name, a mapping or a function, got {type(map_location).__name__}"
            )
        self.map_location = map_location

    def __enter__(self) -> dmap:
        _locations.set((*_locations.get(), self.map_location))
        with dmap._lock:
            dmap._entered += 1
            Tensor.dmap_callback = map_device
        return self

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        _locations.set(_locations.get()[:-1])
        with dmap._lock:
            dmap._entered -= 1
            if dmap._entered == 0:
                Tensor.dmap_callback = None


def map_device(device: str) -> str:
    """Device that a tensor saved on ``device`` is to be loaded to, by the innermost ``dmap``."""
    location = next(reversed(_locations.get()), None)
    if location is None:
        return device
    if isinstance(location, str):
        return location
    if isinstance(location, Mapping):
        # "gpu0:0" is found by its full name or as "gpu0"
        return location.get(device, location.get(device.partition(":")[0], device))
    return location(device)
