"""Groups of processes, and this process's place in the world."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .server import Client

_BACKENDS = ("auto", "nccl", "rccl", "cncl", "hccl", "ucx", "shm", "tcp")


class StaticData:
    """What ``init_process_group`` has set for this process; None before."""

    server: Any = None
    client: Client | None = None
    master_ip: str | None = None
    py_server_port: int | None = None
    mm_server_port: int | None = None
    world_size: int | None = None
    proc_rank: int | None = None
    device: int | None = None
    backend: str | None = None
    device_type: str | None = None
    machine_ranks: list[int] | None = None


_sd = StaticData()


class Group:
    """Processes that take part in collective operations together. proc_ranks: their ranks in the world."""

    def __init__(self, proc_ranks: Sequence[int]) -> None:
        self.proc_ranks: list[int] = []
        self.stream = 0
        if len(proc_ranks):  # empty: WORLD, before the process group is made
            self.reset(proc_ranks)

    def reset(self, proc_ranks: Sequence[int]) -> None:
        """Make it a group of these ranks."""
        self.check(proc_ranks)
        self.proc_ranks = [int(rank) for rank in proc_ranks]

    def check(self, proc_ranks: Sequence[int]) -> None:
        """Raise TypeError or ValueError unless these are different ranks of the world."""
        ranks = list(proc_ranks)
        if not ranks:
            raise ValueError("a group needs at least one rank")
        size = get_world_size()
        for rank in ranks:
            if not isinstance(rank, int):
                raise TypeError(f"ranks are ints, got {rank!r}")
            if not 0 <= rank < size:
                raise ValueError(f"rank {rank} is not in a world of {size} processes")
        if len(set(ranks)) != len(ranks):
            raise ValueError(f"a rank comes twice in {ranks}")

    @property
    def size(self) -> int:
        """Number of processes."""
        return max(1, len(self.proc_ranks))

    @property
    def key(self) -> str:
        """The ranks joined by commas: the same in every process."""
        return ",".join(map(str, self.proc_ranks))

    @property
    def rank(self) -> int:
        """Place of this process in the group. Raises ValueError when it is not in it."""
        if not self.proc_ranks:
            return 0
        if get_rank() not in self.proc_ranks:
            raise ValueError(f"process {get_rank()} is not in the group {self.key}")
        return self.proc_ranks.index(get_rank())

    @property
    def comp_node(self) -> str:
        """Device and stream that the group uses in this process, such as "gpu0:1"."""
        return f"{_sd.device_type or 'xpu'}{_sd.device or 0}:{self.stream}"

    @property
    def is_single_machine(self) -> bool:
        """Whether all processes run on this machine."""
        return _sd.machine_ranks is None or set(self.proc_ranks) <= set(_sd.machine_ranks)


WORLD = Group([])


def init_process_group(
    master_ip: str,
    port: int,
    world_size: int,
    rank: int,
    device: int,
    backend: str = "auto",
    device_type: str = "xpu",
) -> None:
    """Enter the world: call it once in every process, before any collective operation.

    master_ip, port: where the ``Server`` is; not contacted in a world of one process. rank: of this process.
    device: number of its GPU, if there are GPUs. backend: kept and returned by ``get_backend``; data go through the
    server whatever it is. Raises TypeError and ValueError for wrong arguments, RuntimeError for a second call.
    """
    for name, value, kind in (
        ("master_ip", master_ip, str),
        ("port", port, int),
        ("world_size", world_size, int),
        ("rank", rank, int),
        ("device", device, int),
        ("backend", backend, str),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be of type {kind.__name__}, got {value!r}")
    if world_size < 1 or not 0 <= rank < world_size:
        raise ValueError(
            f"rank must be from 0 to world_size - 1, got rank {rank} and world_size {world_size}"
        )
    _check_backend(backend)
    if is_distributed():
        raise RuntimeError("init_process_group was called before in this process")
    _sd.master_ip, _sd.py_server_port = master_ip, port
    _sd.world_size, _sd.proc_rank, _sd.device = world_size, rank, device
    _sd.backend, _sd.device_type = backend, device_type
    try:
        if world_size > 1:
            _sd.mm_server_port = get_client().get_mm_server_port()
        _sd.machine_ranks = list(range(world_size))
        WORLD.reset(range(world_size))
        _use_device(device_type, device)
        group_barrier()
    except BaseException:
        _forget()
        raise


def _use_device(device_type: str, device: int) -> None:
    """Computations of this process go to its GPU; on a machine without one the default stays."""
    from ..device import get_device_count, set_default_device

    if device_type in ("xpu", "gpu", "cuda") and get_device_count("gpu") > 0:
        set_default_device(f"gpu{device}")


def _forget() -> None:
    """Be a single process again."""
    for name in [name for name in vars(_sd)]:
        delattr(_sd, name)
    WORLD.proc_ranks = []


@contextlib.contextmanager
def override_backend(new_backend: str) -> Iterator[None]:
    """Use another backend's name inside a ``with`` block."""
    previous = _sd.backend
    _set_backend(new_backend)
    try:
        yield
    finally:
        _sd.backend = previous


def _set_backend(name: str) -> None:
    _check_backend(name)
    _sd.backend = name


def _check_backend(name: str) -> None:
    if name not in _BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(_BACKENDS)}, got {name!r}")


def is_distributed() -> bool:
    """Whether ``init_process_group`` was called in this process."""
    return _sd.proc_rank is not None


def get_rank() -> int:
    """Rank of this process in the world; 0 outside of a process group."""
    return _sd.proc_rank if _sd.proc_rank is not None else 0


def get_local_device_id() -> int:
    """Number of this process's device; 0 outside of a process group."""
    return _sd.device if _sd.device is not None else 0


def get_world_size() -> int:
    """Number of processes in the world; 1 outside of a process group."""
    return _sd.world_size if _sd.world_size is not None else 1


def get_backend() -> str:
    """Name of the backend; "auto" unless one was asked for."""
    return _sd.backend if _sd.backend is not None else "auto"


def get_py_server_addr() -> tuple[str, int]:
    """(IP, port) of the key-value server. Raises RuntimeError outside of a process group."""
    _need_group("get_py_server_addr")
    return _sd.master_ip, _sd.py_server_port  # type: ignore[return-value]  # set with the group


def get_mm_server_addr() -> tuple[str, int]:
    """(IP, port) of the server for collective operations. Raises RuntimeError outside of a process group."""
    _need_group("get_mm_server_addr")
    if _sd.mm_server_port is None:
        _sd.mm_server_port = get_client().get_mm_server_port()
    return _sd.master_ip, _sd.mm_server_port  # type: ignore[return-value]  # set with the group


def get_client() -> Client:
    """Client of the key-value server, connected. Raises RuntimeError outside of a process group."""
    _need_group("get_client")
    if _sd.client is None:
        from .server import Client

        _sd.client = Client(_sd.master_ip, _sd.py_server_port)  # type: ignore[arg-type]  # set with the group
    return _sd.client


def _need_group(what: str) -> None:
    if not is_distributed():
        raise RuntimeError(
            f"{what} needs a process group; call init_process_group first, or use the launcher"
        )


def new_group(proc_ranks: Sequence[int]) -> Group:
    """A group of some ranks of the world."""
    return Group(proc_ranks)


def group_barrier(group: Group = WORLD) -> None:
    """Wait until all processes of the group are here."""
    if group.size > 1:
        group.rank  # noqa: B018  -- raises unless this process is a member
        get_client().group_barrier(group.key, group.size)
