"""Groups of processes, and this process's place in the world."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ._environment import LOOPBACK, Place, host_for, place_from_environment

if TYPE_CHECKING:
    from .server import Client, Server

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
    world: Any = None  # the connections, of _core
    seconds: float = 600.0  # how long an operation waits for what others do
    messages: dict[str, int] | None = None  # how many went each way between two processes


_sd = StaticData()


class Group:
    """Processes that take part in collective operations together. proc_ranks: their ranks in the world.

    >>> from megengine import distributed as dist
    >>> group = dist.Group([0])
    >>> group.size, group.rank, group.key
    (1, 0, '0')
    """

    def __init__(self, proc_ranks: Sequence[int]) -> None:
        self.proc_ranks: list[int] = []
        self.stream = 0
        if len(proc_ranks):  # empty: WORLD, before the process group is made
            self.reset(proc_ranks)

    def reset(self, proc_ranks: Sequence[int]) -> None:
        """Make it a group of these ranks."""
        self.check(proc_ranks)
        self.proc_ranks = [int(rank) for rank in proc_ranks]
        if _sd.world is not None and len(self.proc_ranks) > 1 and get_rank() in self.proc_ranks:
            _sd.world.add_group(self.key, self.proc_ranks)

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
    master_ip: str | None = None,
    port: int | None = None,
    world_size: int | None = None,
    rank: int | None = None,
    device: int | None = None,
    backend: str = "auto",
    device_type: str = "xpu",
    timeout: float = 600.0,
) -> None:
    """Enter the world: call it once in every process, before any collective operation.

    master_ip, port: where the ``Server`` is; not contacted in a world of one process. rank: of this process.
    device: number of its GPU, if there are GPUs. Without these five, they are what the launcher of the processes says by
    its variables: ``megengine.distributed.run``, torchrun, mpiexec or SLURM; rank 0 starts the server then.
    backend: kept and returned by ``get_backend``; data go through sockets whatever it is. timeout: how many seconds an
    operation waits for a process that says nothing.

    Raises TypeError and ValueError for wrong arguments; RuntimeError for a second call, when processes do not fit
    together, or when one does not come in time.

    >>> from megengine import distributed as dist
    >>> try:
    ...     dist.init_process_group("127.0.0.1", 23456, world_size=2, rank=2, device=0)
    ... except ValueError as error:
    ...     print(error)
    rank must be from 0 to world_size - 1, got rank 2 and world_size 2
    """
    given = {"master_ip": master_ip, "port": port, "world_size": world_size, "rank": rank, "device": device}
    missing = [name for name, value in given.items() if value is None]
    if missing and len(missing) < len(given):
        raise TypeError(f"init_process_group: {', '.join(missing)} missing; give all of {', '.join(given)}, or none")
    place = place_from_environment() if missing else Place(**given)  # type: ignore[arg-type]  # checked next
    for name, value, kind in (
        ("master_ip", place.master_ip, str),
        ("port", place.port, int),
        ("world_size", place.world_size, int),
        ("rank", place.rank, int),
        ("device", place.device, int),
        ("backend", backend, str),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be of type {kind.__name__}, got {value!r}")
    if place.world_size < 1 or not 0 <= place.rank < place.world_size:
        raise ValueError(
            f"rank must be from 0 to world_size - 1, got rank {place.rank} and world_size {place.world_size}"
        )
    _check_backend(backend)
    if is_distributed():
        raise RuntimeError("init_process_group was called before in this process")
    _sd.master_ip, _sd.py_server_port = place.master_ip, place.port
    _sd.world_size, _sd.proc_rank, _sd.device = place.world_size, place.rank, place.device
    _sd.backend, _sd.device_type, _sd.seconds = backend, device_type, timeout
    try:
        if place.starts_server and place.rank == 0 and place.world_size > 1:
            _sd.server = _server_of(place)
        if place.world_size > 1:
            _connect()
        _sd.machine_ranks = list(range(place.world_size))
        WORLD.reset(range(place.world_size))
        _use_device(device_type, place.device)
        group_barrier()
    except BaseException:
        _report_failure(traceback.format_exc())
        _forget()
        raise


def set_timeout(seconds: float) -> None:
    """From here on an operation waits for so many seconds for a process that says nothing.

    >>> from megengine import distributed as dist
    >>> dist.set_timeout(30)  # instead of 600
    >>> dist.set_timeout(600)
    """
    _sd.seconds = seconds
    if _sd.world is not None:
        _sd.world.set_seconds(seconds)


def _server_of(place: Place) -> Server:
    from .server import Server

    return Server(place.port, host_for(place.master_ip in LOOPBACK))


def _connect() -> None:
    """Connections with all others; from here on they are told when this process fails."""
    from .. import _core
    from ._joining import connect

    if not hasattr(_core, "World"):
        raise RuntimeError("this build of megjit was made without backends/sockets, which connects processes")
    client = get_client()
    sockets = connect(client, get_rank(), get_world_size(), _sd.seconds)
    _sd.world = _core.World(get_rank(), sockets, _sd.seconds, _report_failure)
    _install_hooks()


def _report_failure(why: str) -> str:
    """Tells the world that this process gives up; why the first one did."""
    if _sd.client is None:  # a world of one process
        return ""
    try:
        return _sd.client._fail(get_rank(), why)
    except (OSError, RuntimeError):
        return ""  # the server is gone as well


_hooks_are_installed = False


def _install_hooks() -> None:
    """An error that ends the program reaches the other processes; a forked child holds no connections open."""
    global _hooks_are_installed
    if _hooks_are_installed:
        return
    _hooks_are_installed = True
    show = sys.excepthook

    def tell(kind: Any, error: Any, trace: Any) -> None:
        if _sd.world is not None:
            _report_failure("".join(traceback.format_exception(kind, error, trace)))
            _sd.world.close()
        show(kind, error, trace)

    sys.excepthook = tell
    os.register_at_fork(after_in_child=lambda: _sd.world is not None and _sd.world.close())


def _use_device(device_type: str, device: int) -> None:
    """Computations of this process go to its GPU; on a machine without one the default stays."""
    from ..device import get_device_count, set_default_device

    if device_type in ("xpu", "gpu", "cuda") and get_device_count("gpu") > 0:
        set_default_device(f"gpu{device}")


def _forget() -> None:
    """Be a single process again."""
    if _sd.world is not None:
        _sd.world.close()
    if _sd.server is not None:
        _sd.server._close()
    for name in [name for name in vars(_sd)]:
        delattr(_sd, name)
    WORLD.proc_ranks = []


@contextlib.contextmanager
def override_backend(new_backend: str) -> Iterator[None]:
    """Use another backend's name inside a ``with`` block.

    >>> from megengine import distributed as dist
    >>> with dist.override_backend("nccl"):
    ...     dist.get_backend()
    'nccl'
    >>> dist.get_backend()
    'auto'
    """
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
    """Whether ``init_process_group`` was called in this process.

    >>> from megengine import distributed as dist
    >>> dist.is_distributed()
    False
    """
    return _sd.proc_rank is not None


def get_rank() -> int:
    """Rank of this process in the world; 0 outside of a process group.

    >>> from megengine import distributed as dist
    >>> if dist.get_rank() == 0:  # one process writes
    ...     print("saved")
    saved
    """
    return _sd.proc_rank if _sd.proc_rank is not None else 0


def get_local_device_id() -> int:
    """Number of this process's device; 0 outside of a process group.

    >>> from megengine import distributed as dist
    >>> dist.get_local_device_id()
    0
    """
    return _sd.device if _sd.device is not None else 0


def get_world_size() -> int:
    """Number of processes in the world; 1 outside of a process group.

    >>> from megengine import distributed as dist
    >>> 64 // dist.get_world_size()  # of a batch
    64
    """
    return _sd.world_size if _sd.world_size is not None else 1


def get_backend() -> str:
    """Name of the backend; "auto" unless one was asked for.

    >>> from megengine import distributed as dist
    >>> dist.get_backend()
    'auto'
    """
    return _sd.backend if _sd.backend is not None else "auto"


def get_py_server_addr() -> tuple[str, int]:
    """(IP, port) of the key-value server. Raises RuntimeError outside of a process group.

    >>> from megengine import distributed as dist
    >>> try:
    ...     dist.get_py_server_addr()
    ... except RuntimeError as error:
    ...     print("outside of a process group")
    outside of a process group
    """
    _need_group("get_py_server_addr")
    return _sd.master_ip, _sd.py_server_port  # type: ignore[return-value]  # set with the group


def get_mm_server_addr() -> tuple[str, int]:
    """(IP, port) of the server for collective operations. Raises RuntimeError outside of a process group.

    >>> from megengine import distributed as dist
    >>> try:
    ...     dist.get_mm_server_addr()
    ... except RuntimeError as error:
    ...     print("outside of a process group")
    outside of a process group
    """
    _need_group("get_mm_server_addr")
    if _sd.mm_server_port is None:
        _sd.mm_server_port = get_client().get_mm_server_port()
    return _sd.master_ip, _sd.mm_server_port  # type: ignore[return-value]  # set with the group


def get_client() -> Client:
    """Client of the key-value server, connected. Raises RuntimeError outside of a process group.

    >>> from megengine import distributed as dist
    >>> @dist.launcher(n_gpus=2, device_type="cpu")
    ... def main():
    ...     client, rank = dist.get_client(), dist.get_rank()
    ...     if rank == 0:
    ...         client.user_set("seed", 7)
    ...     return client.user_get("seed")
    """
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
    """A group of some ranks of the world.

    >>> from megengine import distributed as dist
    >>> dist.new_group([0]).size
    1
    """
    return Group(proc_ranks)


def group_barrier(group: Group | None = WORLD) -> None:
    """Wait until all processes of the group are here.

    >>> from megengine import distributed as dist
    >>> dist.group_barrier()  # alone: at once
    """
    group = WORLD if group is None else group
    if group.size > 1:
        from .. import _core

        group.rank  # noqa: B018  -- raises unless this process is a member
        _core.group_barrier(group.key)
