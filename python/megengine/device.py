"""Devices: names, the default one, the devices of this machine, and memory counters.

A name is a kind (cpu, gpu, xpu, multithread), a number or ``x`` for the default, and optionally
``:stream``. ``xpux`` is a GPU if there is one, else the CPU.
"""

import operator
import os
import re
from enum import Enum
from typing import NamedTuple

from . import _core
from .core._sizes import to_bytes
from .core._streams import Event, Stream
from .core._telling import no_effect

__all__ = [
    "is_cuda_available", "is_cambricon_available", "is_atlas_available", "is_rocm_available",
    "get_device_count", "get_default_device", "set_default_device", "get_mem_status_bytes",
    "get_cuda_compute_capability", "get_cuda_device_property", "get_cuda_version",
    "get_cudnn_version", "get_tensorrt_version", "get_cuda_driver_version", "get_allocated_memory",
    "get_reserved_memory", "get_max_reserved_memory", "get_max_allocated_memory",
    "reset_max_memory_stats", "set_memory_cap", "get_memory_cap", "set_prealloc_config",
    "coalesce_free_memory", "synchronize", "set_num_threads", "get_num_threads",
    "Stream", "Event",
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
        _check_threads(name)
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
        return self.logical_name

    def __repr__(self) -> str:
        return f'CompNode("{self.physical_name}" from "{self.logical_name}")'

    def __reduce__(self) -> tuple[type["Device"], tuple[str]]:
        return Device, (self.logical_name,)


CompNode = Device


def _check_threads(name: str) -> None:
    """Warns if there are fewer threads than the number behind "multithread"."""
    asked = re.match(r"multithread(\d+)", name)
    if asked and int(asked[1]) != _core.thread_count():
        no_effect("device", "all devices of the host compute on get_num_threads() threads; see set_num_threads", **{asked[0]: True})


def _with_stream(name: str) -> str:
    return name if ":" in name else f"{name}:0"


_default = os.environ.get("MGE_DEFAULT_DEVICE", "xpux")
_devices: dict[tuple[str, str], Device] = {}  # key: the place and the default place


def device_of(place: str) -> Device:
    """Returns the Device of a place, under the default's name if that means the same."""
    device = _devices.get((place, _default))
    if device is None:
        logical = _default if _core.find_device(_default) == place else place
        device = _devices[(place, _default)] = Device(logical)
    return device


def shown_name(device: Device) -> str:
    """Returns the name for texts: the default place is called xpux if that stands for it, whatever
    name the program used.
    """
    is_default = _core.find_device(device.logical_name) == _core.find_device(_default)
    return "xpux:0" if is_default and device == "xpux" else device.logical_name


def get_default_device() -> str:
    """Returns the name of the device on which new tensors are made.

    `set_default_device` sets it. At first it is the value of ``MGE_DEFAULT_DEVICE``, or "xpux": a
    GPU if there is one, else the CPU.

    Returns
    -------
    str
        A name such as "xpux".

    Examples
    --------
    >>> import megengine as mge
    >>> mge.Tensor([1.0]).device == mge.get_default_device()
    True
    """
    return _default


def set_default_device(device: str = "xpux") -> None:
    """Sets the device on which new tensors are made; tensors that exist stay where they are.

    Parameters
    ----------
    device : str
        A name such as "cpu0", "gpu1" or "xpux" (a GPU if there is one, else the CPU).

    Raises
    ------
    ValueError
        For a malformed name.
    RuntimeError
        For a device that does not exist.

    Examples
    --------
    >>> import megengine as mge
    >>> before = mge.get_default_device()
    >>> mge.set_default_device("cpu0")
    >>> mge.Tensor([1.0]).device == "cpu0"
    True
    >>> mge.set_default_device(before)
    """
    global _default
    name = str(device)
    _check_threads(name)
    _core.set_default_device(name)
    _default = name


def is_cuda_available() -> bool:
    """Tells whether there is an NVIDIA GPU that this build can use.

    ``python -m megengine info`` says why there is none.

    Returns
    -------
    bool
        True if there is one.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.is_cuda_available() == (mge.get_device_count("gpu") > 0)
    True
    """
    return _count("gpu") > 0


def is_cambricon_available() -> bool:
    """Returns False: there is no backend for Cambricon.

    Returns
    -------
    bool
        False.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.is_cambricon_available()
    False
    """
    return False


def is_atlas_available() -> bool:
    """Returns False: there is no backend for Atlas.

    Returns
    -------
    bool
        False.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.is_atlas_available()
    False
    """
    return False


def is_rocm_available() -> bool:
    """Returns False: there is no backend for ROCm.

    Returns
    -------
    bool
        False.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.is_rocm_available()
    False
    """
    return False


def get_device_count(device_type: str | DeviceType) -> int:
    """Returns the number of devices of a kind.

    Parameters
    ----------
    device_type : str or DeviceType
        "cpu" or "multithread" (the number of cores), "gpu" or "cuda", "rocm", "cambricon", "atlas",
        "xpu" (the kind behind "xpux"), or a `DeviceType`. Case does not matter.

    Returns
    -------
    int
        The number of devices, 0 if there is none.

    Raises
    ------
    ValueError
        For an unknown kind.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.get_device_count("cpu") >= 1, mge.get_device_count("rocm")
    (True, 0)
    """
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
    """Returns (total, free) memory of a device in bytes.

    Parameters
    ----------
    device : str or None
        A name such as "gpu0"; None for the default device.

    Returns
    -------
    total : int
        Bytes of the device, or the cap of `set_memory_cap`.
    free : int
        Bytes that are left of them.

    Examples
    --------
    >>> import megengine as mge
    >>> total, free = mge.device.get_mem_status_bytes("cpu0")
    >>> 0 <= free <= total
    True
    """
    place = _where(device)  # the device may be made here
    info = _core.devices()[place]
    total, free = info.total_bytes, info.free_bytes
    cap = get_memory_cap(device)
    if cap is None or cap > total:
        return total, free
    return cap, min(free, max(0, cap - get_allocated_memory(device)))


def get_allocated_memory(device: str | None = None) -> int:
    """Returns the bytes that live tensors hold on a device.

    Parameters
    ----------
    device : str or None
        A name; None for the default device.

    Returns
    -------
    int
        Bytes.

    Examples
    --------
    >>> import megengine as mge, megengine.functional as F
    >>> x = F.ones((1024, 1024))  # of float32: 4 MiB
    >>> mge.get_allocated_memory() >= 4 * 2**20
    True
    """
    return _memory(device)["allocated"]


def get_reserved_memory(device: str | None = None) -> int:
    """Returns the bytes taken from the system for a device, free blocks of the allocator included.

    Parameters
    ----------
    device : str or None
        A name such as "gpu0"; None for the default device.

    Returns
    -------
    int
        Bytes; `coalesce_free_memory` lowers them.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.get_reserved_memory() >= mge.get_allocated_memory()
    True
    """
    return _memory(device)["reserved"]


def get_max_reserved_memory(device: str | None = None) -> int:
    """Returns the peak of `get_reserved_memory` in bytes.

    It counts from the start, or from `reset_max_memory_stats`.

    Parameters
    ----------
    device : str or None
        A name; None for the default device.

    Returns
    -------
    int
        Bytes.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.get_max_reserved_memory() >= mge.get_reserved_memory()
    True
    """
    return _memory(device)["max_reserved"]


def get_max_allocated_memory(device: str | None = None) -> int:
    """Returns the peak of `get_allocated_memory` in bytes.

    It counts from the start, or from `reset_max_memory_stats`.

    Parameters
    ----------
    device : str or None
        A name; None for the default device.

    Returns
    -------
    int
        Bytes.

    See Also
    --------
    get_allocated_memory : The bytes of now.
    reset_max_memory_stats : Restarts the peak.

    Examples
    --------
    >>> import megengine as mge, megengine.functional as F
    >>> mge.reset_max_memory_stats()
    >>> F.ones((1024, 1024)).sum().item()  # 4 MiB, which are free again
    1048576.0
    >>> mge.get_max_allocated_memory() >= 4 * 2**20
    True
    """
    return _memory(device)["max_allocated"]


def reset_max_memory_stats(device: str | None = None) -> None:
    """Restarts `get_max_allocated_memory` and `get_max_reserved_memory` from the present use.

    Parameters
    ----------
    device : str or None
        A name; None for the default device.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.reset_max_memory_stats()
    """
    _core.reset_peak_memory(_where(device))


def set_memory_cap(cap: int | str | None, device: str | None = None) -> None:
    """Limits the bytes that a device's allocator takes from the system.

    Parameters
    ----------
    cap : int, str or None
        Bytes, or a text such as "11GB" (units are powers of 1024); None lifts the limit.
    device : str or None
        A name; None for the default device.

    Raises
    ------
    ValueError
        For a text that is not a size and for 0.
    TypeError
        For other types.

    See Also
    --------
    get_memory_cap : Returns the cap.
    get_mem_status_bytes : Returns total and free memory.

    Notes
    -----
    This imitates a smaller card. An allocation beyond the cap raises MemoryError, after cached
    memory was given back. The variable ``MEGJIT_MEMORY_CAP`` sets a cap from the start.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.set_memory_cap("64GB", "cpu0")
    >>> mge.get_memory_cap("cpu0") == 64 * 2**30
    True
    >>> mge.set_memory_cap(None, "cpu0")
    """
    _set_cap(cap, "set_memory_cap", _where(device))


def _set_cap(cap: int | str | None, what: str, place: str) -> None:
    size = 0 if cap is None else to_bytes(cap, what)
    if cap is not None and size == 0:
        raise ValueError(f"{what}: {cap!r} leaves no memory; None lifts the cap")
    _core.set_memory_cap(size, place)


def get_memory_cap(device: str | None = None) -> int | None:
    """Returns the cap that `set_memory_cap` set, in bytes; None without a cap.

    Parameters
    ----------
    device : str or None
        A name; None for the default device.

    Returns
    -------
    int or None
        Bytes, or None.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.set_memory_cap("64GB", "cpu0")
    >>> mge.get_memory_cap("cpu0")
    68719476736
    >>> mge.set_memory_cap(None, "cpu0")
    >>> print(mge.get_memory_cap("cpu0"))
    None
    """
    return _core.memory_stats(_where(device))["cap"]


def set_prealloc_config(
    alignment: int = 1,
    min_req: int = 32 * 1024 * 1024,
    max_overhead: int = 0,
    growth_factor: float = 2.0,
    device_type: DeviceType = DeviceType.CUDA,
) -> None:
    """Sets how much memory the allocator asks of the system at a time.

    It is a hint: only memory use changes.

    Parameters
    ----------
    alignment : int
        Alignment in bytes; blocks are aligned to 64 in any case, and a larger value only warns.
    min_req : int
        The least amount, in bytes; 32 MiB by default.
    max_overhead : int
        Bytes that may be taken beyond what is needed.
    growth_factor : float
        The amount divided by the bytes that are reserved already; at least 1.
    device_type : DeviceType
        A `DeviceType`; all devices of this kind are set.

    Raises
    ------
    AssertionError
        For values out of range.

    Notes
    -----
    This concerns tensors of up to 1 MiB; larger ones take exactly what they need.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.set_prealloc_config(min_req=64 * 2**20, device_type=mge.device.DeviceType.CPU)
    """
    if not alignment > 0:
        raise AssertionError(f"set_prealloc_config: alignment {alignment} is not positive")
    if not min_req > 0:
        raise AssertionError(f"set_prealloc_config: min_req {min_req} is not positive")
    if not max_overhead >= 0:
        raise AssertionError(f"set_prealloc_config: max_overhead {max_overhead} is negative")
    if not growth_factor >= 1:
        raise AssertionError(f"set_prealloc_config: growth_factor {growth_factor} is below 1")
    no_effect("set_prealloc_config", "blocks are aligned to 64 bytes", alignment=64 % alignment != 0)
    kind = DeviceType(device_type).value
    places = [place for place, info in _core.devices().items() if info.kind == kind]
    no_effect("set_prealloc_config", "there is no such device", **{f"device_type={kind}": not places})
    for place in places:
        _core.set_memory_growth(min_req, max_overhead, growth_factor, place)


def synchronize() -> None:
    """Waits until all work of all devices is done, and raises its errors that were not raised
    before.

    Reading a value waits for that value alone.

    Examples
    --------
    >>> import megengine as mge, megengine.functional as F
    >>> y = F.ones((2, 2)) * 2  # on a GPU it may still be computed
    >>> mge.synchronize()
    """
    _core.synchronize()


def coalesce_free_memory() -> None:
    """Gives free blocks of all devices back to the system, also those between blocks in use.

    Examples
    --------
    >>> import megengine as mge
    >>> before = mge.get_reserved_memory()
    >>> mge.coalesce_free_memory()
    >>> mge.get_reserved_memory() <= before
    True
    """
    for place in _core.devices():
        _core.trim_memory(place)


class CudaDeviceProperty(NamedTuple):
    """Properties that a GPU reports."""

    name: str
    major: int  # the first number of its compute capability
    minor: int
    total_memory: int  # bytes


def get_cuda_compute_capability(device: int, device_type: DeviceType = DeviceType.CUDA) -> int:
    """Returns the compute capability of a GPU as 10 * major + minor: 90 stands for 9.0.

    Parameters
    ----------
    device : int
        Number of the GPU.
    device_type : DeviceType
        Kind of the device; only `DeviceType.CUDA` is allowed.

    Returns
    -------
    int
        For example 90.

    Raises
    ------
    RuntimeError
        Where there is no such GPU.
    ValueError
        For another kind of device.

    Examples
    --------
    >>> import megengine as mge
    >>> if mge.is_cuda_available():
    ...     assert mge.get_cuda_compute_capability(0) >= 50
    """
    prop = get_cuda_device_property(device, device_type)
    return 10 * prop.major + prop.minor


def get_cuda_device_property(
    device: int, device_type: DeviceType = DeviceType.CUDA
) -> CudaDeviceProperty:
    """Returns name, compute capability and memory of a GPU, as a `CudaDeviceProperty`.

    Parameters
    ----------
    device : int
        Number of the GPU.
    device_type : DeviceType
        Kind of the device; only `DeviceType.CUDA` is allowed.

    Returns
    -------
    CudaDeviceProperty
        Properties that the driver reports of the GPU.

    Raises
    ------
    RuntimeError
        Where there is no such GPU.
    ValueError
        For another kind of device.

    Examples
    --------
    >>> import megengine as mge
    >>> for number in range(mge.get_device_count("gpu")):
    ...     assert mge.get_cuda_device_property(number).total_memory > 2**30
    """
    if device_type != DeviceType.CUDA:
        raise ValueError(f"{device_type} has no compute capability; use DeviceType.CUDA")
    place = _core.find_device(f"gpu{operator.index(device)}")
    info, (major, minor) = _core.devices()[place], divmod(_core.compute_capability(place), 10)
    return CudaDeviceProperty(info.model, major, minor, info.total_bytes)


def get_cuda_version() -> int:
    """Returns the CUDA version of NVRTC, the run-time compiler: 13000 for 13.0.

    That is 1000 * major + 10 * minor; 0 if NVRTC is not found; ``python -m megengine info`` says
    where it was sought.

    Returns
    -------
    int
        For example 13000; 0 where it is not found.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.get_cuda_version() % 10
    0
    """
    return _library_version("NVRTC")


def get_cuda_driver_version() -> int:
    """Returns the newest CUDA version that the driver serves, as 1000 * major + 10 * minor.

    0 without a driver; ``python -m megengine info`` says why there is none.

    Returns
    -------
    int
        For example 13000; 0 without a driver.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.get_cuda_driver_version() > 0 or not mge.is_cuda_available()
    True
    """
    return _library_version("CUDA driver")


def get_cudnn_version() -> int:
    """Returns the version of cuDNN as 10000 * major + 100 * minor + patch; 0 without cuDNN.

    Returns
    -------
    int
        For example 92700.

    Examples
    --------
    >>> import megengine as mge
    >>> major, rest = divmod(mge.get_cudnn_version(), 10000)
    >>> minor, patch = divmod(rest, 100)
    """
    return _library_version("cuDNN")


def _library_version(name: str) -> int:
    """Returns the version as ``python -m megengine info`` shows it, which also says why there is
    none.
    """
    return next(number for each, number, *_ in _core.nvidia_libraries() if each == name)


def get_tensorrt_version() -> int:
    """Returns 0: TensorRT is not used.

    Returns
    -------
    int
        0.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.get_tensorrt_version()
    0
    """
    return 0


def what_is_xpu() -> str:
    """The kind of device behind "xpu"."""
    return _core.physical_name("xpux").rstrip("0123456789:")


_core.set_default_device(_default)
if os.environ.get("MEGJIT_MEMORY_CAP"):
    _set_cap(os.environ["MEGJIT_MEMORY_CAP"], "MEGJIT_MEMORY_CAP", _where(None))


def set_num_threads(count: int | None) -> None:
    """Sets the number of threads on which the host computes.

    Parameters
    ----------
    count : int or None
        1 or more, the calling thread included; None: as many as the process is granted.

    Raises
    ------
    ValueError
        For less than 1.
    TypeError
        For a count that is not an integer.

    Notes
    -----
    The process is granted the least of these numbers, and at least 1: the CPU quota of the
    container (cgroup v1 or v2, rounded), the cores that the process may run on (its affinity), and
    ``OMP_NUM_THREADS`` if it is set. A count given here overrides all three.

    Compiled functions keep the parts into which their work was cut, and run on the new number of
    threads. A forked child computes on one thread until it calls this. If the system refuses
    threads, the existing threads do the work, and `get_num_threads` returns their number.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.set_num_threads(1)
    >>> mge.get_num_threads()
    1
    >>> mge.set_num_threads(None)
    """
    if count is None:
        _core.set_thread_count(0)
        return
    number = operator.index(count)
    if number < 1:
        raise ValueError(f"set_num_threads: {count!r} threads; 1 or more, None for what is granted")
    _core.set_thread_count(number)


def get_num_threads() -> int:
    """Returns the number of threads on which the host computes, the calling one included.

    See `set_num_threads`.

    Returns
    -------
    int
        At least 1.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.get_num_threads() >= 1
    True
    """
    return _core.thread_count()
