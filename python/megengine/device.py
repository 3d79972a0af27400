"""Devices: names, the default one, what there is, and memory counters.

A name is a kind (cpu, gpu, xpu, multithread), a number or ``x`` for the default, and optionally
``:stream``. ``xpux`` is a GPU if there is one, else the CPU.
"""

import operator
import os
from enum import Enum
from typing import NamedTuple

from . import _core
from .core._sizes import to_bytes
from .core.no_effect import no_effect

__all__ = [
    "is_cuda_available", "is_cambricon_available", "is_atlas_available", "is_rocm_available",
    "get_device_count", "get_default_device", "set_default_device", "get_mem_status_bytes",
    "get_cuda_compute_capability", "get_cuda_device_property", "get_cuda_version",
    "get_cudnn_version", "get_tensorrt_version", "get_cuda_driver_version", "get_allocated_memory",
    "get_reserved_memory", "get_max_reserved_memory", "get_max_allocated_memory",
    "reset_max_memory_stats", "set_memory_cap", "get_memory_cap", "set_prealloc_config",
    "coalesce_free_memory", "set_num_threads", "get_num_threads",
]  # fmt: skip

class DeviceType(Enum):
    """Kinds of device."""

    CPU = "cpu"
    CUDA = "gpu"
    ROCM = "rocm"
    CAMBRICON = "cambricon"
    ATLAS = "atlas"
    MULTITHREAD = "multithread"


class Device:
    """A place where tensors live; equal to every name of that place."""

    __slots__ = ("logical_name", "physical_name")

    def __init__(self, name: str):
        self.logical_name = _with_stream(name)
        self.physical_name = _core.physical_name(name)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Device):
            return self.physical_name == other.physical_name
        if isinstance(other, str):
            try:
                return self.physical_name == _core.physical_name(other)
            except ValueError:
                return False
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.physical_name)

    def __str__(self) -> str:
        return self.physical_name

    def __repr__(self) -> str:
        return f'CompNode("{self.physical_name}" from "{self.logical_name}")'

    def __reduce__(self) -> tuple[type["Device"], tuple[str]]:
        return Device, (self.logical_name,)


CompNode = Device


def _with_stream(name: str) -> str:
    return name if ":" in name else f"{name}:0"


_default = os.environ.get("MGE_DEFAULT_DEVICE", "xpux")
_devices: dict[tuple[str, str], Device] = {}  # by place and default


def device_of(place: str) -> Device:
    """The Device of a place, by the default's name where that means it."""
    device = _devices.get((place, _default))
    if device is None:
        logical = _default if _core.find_device(_default) == place else place
        device = _devices[(place, _default)] = Device(logical)
    return device


def shown_name(device: Device) -> str:
    """For texts: the default place is xpux, where that means it, by whatever name it was made the default."""
    if device == _default and device == "xpux":
        return "xpux:0"
    return device.logical_name


def name_on_host(device: str) -> str:
    """What the device of a tensor that the program put there is called: "cpu1"; "" for a place's own name.

    All CPUs are one place. A name of it that is not the default's is kept for the program, and means nothing.
    """
    physical, place = _core.physical_name(device), _core.find_device(device)
    if physical == _core.physical_name(_default):
        return ""
    return device if physical != place or _core.find_device(_default) == place else ""


def get_default_device() -> str:
    """The name given to `set_default_device`, "xpux" at first."""
    return _default


def set_default_device(device: str = "xpux") -> None:
    """Where new tensors go. ValueError for a malformed name, RuntimeError for a device that does
    not exist.
    """
    global _default
    name = str(device)
    _core.set_default_device(name)
    _default = name


def is_cuda_available() -> bool:
    """Whether there is an NVIDIA GPU that this build can use."""
    return _count("gpu") > 0


def is_cambricon_available() -> bool:
    """False: there is no backend for Cambricon."""
    return False


def is_atlas_available() -> bool:
    """False: there is no backend for Atlas."""
    return False


def is_rocm_available() -> bool:
    """False: there is no backend for ROCm."""
    return False


def get_device_count(device_type: str | DeviceType) -> int:
    """Number of devices of a kind: "gpu", "cpu" (cores), ... ValueError for an unknown kind."""
    kind = device_type.value if isinstance(device_type, DeviceType) else str(device_type).lower()
    kind = {"cuda": "gpu", "xpu": what_is_xpu()}.get(kind, kind)
    kinds = [each.value for each in DeviceType]
    if kind not in kinds:
        raise ValueError(
            f"get_device_count: no kind {device_type!r}; there are {', '.join(kinds)}, xpu"
        )
    if kind in ("cpu", "multithread"):
        return os.cpu_count() or 1
    return _count(kind)


def _count(kind: str) -> int:
    return len({info.number for info in _core.devices().values() if info.kind == kind})


def _where(device: str | None) -> str:
    return _core.find_device("" if device is None else str(device))


def _memory(device: str | None) -> dict[str, int]:
    """Counters of one device, in bytes."""
    stats = _core.memory_stats(_where(device))
    return {
        "allocated": stats["in_use"],
        "reserved": stats["reserved"],
        "max_allocated": stats["peak_in_use"],
        "max_reserved": stats["peak_reserved"],
    }


def get_mem_status_bytes(device: str | None = None) -> tuple[int, int]:
    """(total, free) bytes of a device, as `set_memory_cap` leaves them."""
    place = _where(device)  # which may be made here
    info = _core.devices()[place]
    total, free = info.total_bytes, info.free_bytes
    cap = get_memory_cap(device)
    if cap is None or cap > total:
        return total, free
    return cap, min(free, max(0, cap - get_allocated_memory(device)))


def get_allocated_memory(device: str | None = None) -> int:
    """Bytes that live tensors hold."""
    return _memory(device)["allocated"]


def get_reserved_memory(device: str | None = None) -> int:
    """Bytes taken from the system, free blocks included."""
    return _memory(device)["reserved"]


def get_max_reserved_memory(device: str | None = None) -> int:
    """Peak of `get_reserved_memory`."""
    return _memory(device)["max_reserved"]


def get_max_allocated_memory(device: str | None = None) -> int:
    """Peak of `get_allocated_memory`."""
    return _memory(device)["max_allocated"]


def reset_max_memory_stats(device: str | None = None) -> None:
    """Peaks count from now on."""
    _core.reset_peak_memory(_where(device))


def set_memory_cap(cap: int | str | None, device: str | None = None) -> None:
    """At most so many bytes are taken from the system; None lifts it.

    cap: bytes, or a text such as "11GB": a smaller card can be imitated so. What would take more raises
    MemoryError, after cached memory was given back. The variable ``MEGJIT_MEMORY_CAP`` sets it from the
    start. Raises ValueError for a text that is no size and for 0, TypeError for other types.
    """
    _set_cap(cap, "set_memory_cap", _where(device))


def _set_cap(cap: int | str | None, what: str, place: str) -> None:
    size = 0 if cap is None else to_bytes(cap, what)
    if cap is not None and size == 0:
        raise ValueError(f"{what}: {cap!r} leaves no memory; None lifts the cap")
    _core.set_memory_cap(size, place)


def get_memory_cap(device: str | None = None) -> int | None:
    """What `set_memory_cap` was given, in bytes; None without a cap."""
    return _core.memory_stats(_where(device))["cap"]


def set_prealloc_config(
    alignment: int = 1,
    min_req: int = 32 * 1024 * 1024,
    max_overhead: int = 0,
    growth_factor: float = 2.0,
    device_type: DeviceType = DeviceType.CUDA,
) -> None:
    """How much the allocator asks from the system at a time. A hint: only memory use changes.

    alignment: blocks are aligned to 64 bytes at least, whatever is asked for; min_req: bytes, the least
    amount; growth_factor: the amount as a part of what is reserved already; max_overhead: bytes that may
    be taken beyond what is needed. Concerns tensors of up to 1 MiB; larger ones take what they need.
    """
    assert alignment > 0, f"set_prealloc_config: alignment {alignment} is not positive"
    assert min_req > 0, f"set_prealloc_config: min_req {min_req} is not positive"
    assert max_overhead >= 0, f"set_prealloc_config: max_overhead {max_overhead} is negative"
    assert growth_factor >= 1, f"set_prealloc_config: growth_factor {growth_factor} is below 1"
    no_effect("set_prealloc_config", "blocks are aligned to 64 bytes", alignment=64 % alignment != 0)
    kind = DeviceType(device_type).value
    for place, info in _core.devices().items():
        if info.kind == kind:
            _core.set_memory_growth(min_req, max_overhead, growth_factor, place)


def coalesce_free_memory() -> None:
    """Gives free blocks back to the system, also those between blocks that are in use."""
    for place in _core.devices():
        _core.trim_memory(place)


class CudaDeviceProperty(NamedTuple):
    """What a GPU says of itself."""

    name: str
    major: int  # of its compute capability
    minor: int
    total_memory: int  # bytes


def get_cuda_compute_capability(device: int, device_type: DeviceType = DeviceType.CUDA) -> int:
    """Compute capability of GPU number ``device``, 90 for 9.0. RuntimeError where there is no such GPU."""
    prop = get_cuda_device_property(device, device_type)
    return 10 * prop.major + prop.minor


def get_cuda_device_property(
    device: int, device_type: DeviceType = DeviceType.CUDA
) -> CudaDeviceProperty:
    """Name, compute capability and memory of GPU number ``device``. RuntimeError where there is no such GPU,
    ValueError for another kind of device.
    """
    if device_type != DeviceType.CUDA:
        raise ValueError(f"{device_type} has no compute capability; use DeviceType.CUDA")
    place = _core.find_device(f"gpu{operator.index(device)}")
    info, (major, minor) = _core.devices()[place], divmod(_core.compute_capability(place), 10)
    return CudaDeviceProperty(info.model, major, minor, info.total_bytes)


def get_cuda_version() -> int:
    """CUDA version of the compiler NVRTC as 1000 * major + 10 * minor; 0 without it."""
    return _library_version("NVRTC")


def get_cuda_driver_version() -> int:
    """CUDA version that the driver serves, as 1000 * major + 10 * minor; 0 without a driver."""
    return _library_version("CUDA driver")


def get_cudnn_version() -> int:
    """cuDNN version as 10000 * major + 100 * minor + patch; 0 without cuDNN."""
    return _library_version("cuDNN")


def _library_version(name: str) -> int:
    """As ``python -m megengine info`` shows it, where it also says why there is none."""
    return next(number for each, number, *_ in _core.nvidia_libraries() if each == name)


def get_tensorrt_version() -> int:
    """0: TensorRT is not used."""
    return 0


def what_is_xpu() -> str:
    """The kind of device behind "xpu"."""
    return _core.physical_name("xpux").rstrip("0123456789:")


_core.set_default_device(_default)
if os.environ.get("MEGJIT_MEMORY_CAP"):
    _set_cap(os.environ["MEGJIT_MEMORY_CAP"], "MEGJIT_MEMORY_CAP", _where(None))


def set_num_threads(count: int | None) -> None:
    """Lets the host compute on ``count`` threads; None: on as many as the process is granted.

    Granted are, at least one, the least of: the CPU quota of the container (cgroup v1 or v2; half a CPU more is a
    thread more), the cores that the process may run on (its affinity), and ``OMP_NUM_THREADS`` where it is set.
    A count given here goes before all three. Compiled functions keep the parts that they were cut into; they run on
    the new number as well. A forked child computes on one thread until it calls this. Where the system
    refuses threads, those that there are do the work, and `get_num_threads` says how many. Raises ValueError for
    less than 1, TypeError for what is no integer.
    """
    if count is None:
        _core.set_thread_count(0)
        return
    number = operator.index(count)
    if number < 1:
        raise ValueError(f"set_num_threads: {count!r} threads; 1 or more, None for what is granted")
    _core.set_thread_count(number)


def get_num_threads() -> int:
    """On how many threads the host computes, the calling one included; see `set_num_threads`."""
    return _core.thread_count()
