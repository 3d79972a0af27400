"""Groups of processes, and the place of this process in the world."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .. import _core
from ..core.random_state import enter_world
from ..device import get_device_count, set_default_device
from ..logger import get_logger
from . import _engine
from ._environment import LOOPBACK, Place, host_for, place_from_environment

if TYPE_CHECKING:
    from ._mpi import Mpi
    from .server import Client


class StaticData:
    """The state that ``init_process_group`` sets for this process; its fields are None before."""

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
    engine: str | None = None  # the engine that moves host tensors
    mpi: Mpi | None = None
    machines: list[str] | None = None  # the name of each rank's machine
    has_failed: bool = False
    world: Any = None  # the connections, of _core
    seconds: float = 600.0  # how long an operation waits for other processes
    messages: dict[str, int] | None = None  # number of messages each way between two processes
    group_depth: int = 0  # number of open groups of messages
    # the key under which a receiver finds a held message -> the receiver's rank
    held_messages: dict[str, int] | None = None
    sends_by_nccl: bool = False  # messages, too
    gpu: str | None = None  # the GPU, "gpu0", on which this process exchanges tensors by NCCL
    places: dict[int, str] | None = None  # for each rank its NCCL and its GPU, or why it has none

    @property
    def machine_ranks(self) -> list[int] | None:
        """Returns the ranks of the processes on this machine."""
        if self.world_size is None or self.proc_rank is None:
            return None
        machines = self.machines or [""] * self.world_size
        return [rank for rank, name in enumerate(machines) if name == machines[self.proc_rank]]


_sd = StaticData()
# functions that other modules run once the world is connected
at_entry: list[Callable[[], None]] = []


class Group:
    """A group of processes that take part in collective operations together.

    Parameters
    ----------
    proc_ranks : sequence of int
        Ranks of the members in the world, different ints; the first one is the root.

    Raises
    ------
    TypeError, ValueError
        If a rank is no int, and if ranks repeat or are not in the world.

    Examples
    --------
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
        """Replaces the members of the group by the processes of these ranks.

        Parameters
        ----------
        proc_ranks : sequence of int
            Ranks of the members in the world, different ints; the first one is the root.
        """
        self.check(proc_ranks)
        self.proc_ranks = [int(rank) for rank in proc_ranks]
        if _sd.world is not None and len(self.proc_ranks) > 1 and get_rank() in self.proc_ranks:
            _sd.world.add_group(self.key, self.proc_ranks)

    def check(self, proc_ranks: Sequence[int]) -> None:
        """Raises TypeError unless the ranks are ints, ValueError unless they are different ranks of
        the world, at least one.

        Parameters
        ----------
        proc_ranks : sequence of int
            Ranks of the members in the world, different ints; the first one is the root.
        """
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
        """Number of processes in the group."""
        return max(1, len(self.proc_ranks))

    @property
    def key(self) -> str:
        """The ranks joined by commas: a name of the group that is the same in every process."""
        return ",".join(map(str, self.proc_ranks))

    @property
    def rank(self) -> int:
        """Position of this process in the group. Raises ValueError when it is not a member."""
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
        """Whether all processes of the group run on one machine."""
        return _sd.machines is None or len({_sd.machines[rank] for rank in self.proc_ranks}) <= 1


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
    """Joins the world of processes; every process calls it once, before any collective operation.

    Parameters
    ----------
    master_ip : str or None
        IP address of the `Server`. A world of one process does not contact it.
    port : int or None
        Port of the `Server`.
    world_size : int or None
        Number of processes in the world, at least 1.
    rank : int or None
        Number of this process, from 0 to world_size - 1.
    device : int or None
        Number of the GPU that this process uses, if there are GPUs.
    backend : str
        How tensors of the host are sent: "local" (processes of one machine), "mpi" (processes that
        mpiexec or srun has started), "gloo" (if megjit is built with it), "tcp" (sockets alone);
        "auto" and "nccl" choose what suits the machines. With these two, tensors of GPUs go by NCCL
        if every process has the library and a GPU of its own, else through the host ("nccl" then
        warns). "auto" asks ``MEGJIT_COMM`` first.
    device_type : str
        "cpu", "gpu" or "cuda", or "xpu": GPUs where there are any.
    timeout : float
        Seconds to wait for a process that does not answer.

    Raises
    ------
    TypeError
        For arguments of another type.
    ValueError
        For other wrong arguments.
    RuntimeError
        When it is called twice, when the processes do not match (world size, version, backend),
        when one does not join in time, or when the backend or a GPU that is asked for is not there.

    See Also
    --------
    launcher : Starts processes on this machine.

    Notes
    -----
    Returns when all processes have joined. Give all of the first five arguments or none. If they
    are left out, they come from the environment variables of the launcher:
    ``megengine.distributed.run``, torchrun, mpiexec or SLURM; rank 0 then starts the server.

    Examples
    --------
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
    backend, engine = _engine.chosen(backend)
    check_device_type(device_type)
    if device_type in ("gpu", "cuda") and get_device_count("gpu") == 0:
        raise RuntimeError(
            f"device_type {device_type!r}: this machine has no GPU that megjit can use\n"
            "  fix: 'xpu' takes GPUs where there are any, 'cpu' none"
        )
    if is_distributed():
        raise RuntimeError("init_process_group was called before in this process")
    _sd.world_size, _sd.proc_rank, _sd.device = place.world_size, place.rank, place.device
    _sd.backend, _sd.device_type, _sd.seconds = backend, device_type, timeout
    try:
        if place.world_size > 1:
            engine = _prepare(engine, place)
        _sd.master_ip, _sd.py_server_port = place.master_ip, place.port
        if place.world_size > 1:
            _connect(engine)
        WORLD.reset(range(place.world_size))
        _use_device(device_type, place.device)
        if _sd.world is not None:  # all wait here for each other
            for enter in at_entry:
                enter()
            enter_world(place.rank, _sd.world.gather)
    except BaseException:
        _report_failure(traceback.format_exc())
        _forget()
        raise


def set_timeout(seconds: float) -> None:
    """Sets how long operations wait for a process that does not answer.

    Parameters
    ----------
    seconds : float
        Seconds to wait, from now on; `init_process_group` sets its own.

    Examples
    --------
    >>> from megengine import distributed as dist
    >>> dist.set_timeout(30)
    >>> dist.set_timeout(600)
    """
    _sd.seconds = seconds
    if _sd.world is not None:
        _sd.world.set_seconds(seconds)


def _prepare(engine: str, place: Place) -> str:
    """Returns the engine. It starts MPI if that is chosen, and the world's server in rank 0."""
    is_guess = engine == "auto" and _engine.is_mpis_turn()
    if engine == "mpi" or is_guess:
        from ._mpi import Mpi  # slow to import

        try:
            _sd.mpi = Mpi(place.rank, place.world_size)
            engine = "mpi"
        except RuntimeError as error:
            if not is_guess:
                raise
            get_logger(__name__).warning("%s", error)
    if engine == "gloo":
        _engine.gloo()  # before others wait for this process
    if place.starts_server:
        if _sd.mpi is not None and "MASTER_ADDR" not in os.environ:
            _sd.server = _sd.mpi.meet(place)
        elif place.rank == 0:
            from .server import Server  # slow to import

            _sd.server = Server(place.port, host_for(place.master_ip in LOOPBACK))
    return engine


def _connect(engine: str) -> None:
    """Connects with all others; from here on they learn when this process fails."""
    from ._joining import connect  # slow to import

    if not hasattr(_core, "World"):
        raise RuntimeError("this build of megjit was made without backends/processes, which connects processes")
    client = get_client()
    sockets = connect(client, get_rank(), get_world_size(), _sd.seconds)
    _sd.world = _core.World(get_rank(), sockets, _sd.seconds, _report_failure, reads=engine != "tcp")
    _install_hooks()
    told = _sd.world.gather(_engine.place_of(engine, client.master_ip in LOOPBACK))
    _sd.engine, _sd.machines = _engine.settled(engine, told, get_rank()), _engine.machines_of(told)
    if _sd.mpi is not None:
        _sd.world.use_mpi(*_sd.mpi.handles())
    if _sd.engine == "gloo":
        _sd.world.use_gloo(_engine.gloo())
    if engine == "auto":
        _sd.world.use_machines([_sd.machines.index(each) for each in _sd.machines])


def _report_failure(why: str) -> str:
    """Tells the world that this process gives up; why the first one did."""
    _sd.has_failed = True
    if _sd.client is None:  # a world of one process
        return ""
    try:
        return _sd.client._fail(get_rank(), why)
    except Exception:
        return ""  # the server is gone as well, or another program has its port


_hooks_are_installed = False


def _install_hooks() -> None:
    """Installs hooks: an error that ends the program reaches the other processes, and a forked
    child closes its connections.
    """
    global _hooks_are_installed
    if _hooks_are_installed:
        return
    _hooks_are_installed = True
    show = sys.excepthook

    def tell(kind: Any, error: Any, trace: Any) -> None:
        if _sd.world is not None:
            _report_failure("".join(traceback.format_exception(kind, error, trace)))
            _sd.world.end()
        show(kind, error, trace)

    sys.excepthook = tell
    atexit.register(_finish)
    os.register_at_fork(after_in_child=lambda: _sd.world is not None and _sd.world.close())


def _finish() -> None:
    """Waits for work on this process's GPU that other processes need, and ends MPI."""
    if _sd.gpu is not None:
        _core.synchronize()
    if _sd.mpi is not None and _sd.world is not None:
        _sd.world.end()  # others that wait for this process learn it before they are waited for
        if not _sd.has_failed:
            _sd.mpi.end()


def check_device_type(device_type: str) -> None:
    """Raises ValueError for a kind of device that is unknown."""
    if device_type not in (known := ("xpu", "cpu", "gpu", "cuda")):
        raise ValueError(f"device_type: {device_type!r} is not one of {', '.join(known)}")


def _use_device(device_type: str, device: int) -> None:
    """Makes this process compute on its GPU; on a machine without one the default stays."""
    if device_type in ("xpu", "gpu", "cuda") and get_device_count("gpu") > 0:
        set_default_device(f"gpu{device}")


def _forget() -> None:
    """Makes this process a single one again."""
    if _sd.sends_by_nccl:
        _core.set_exchanging_device(None)
    if _sd.world is not None:
        _sd.world.close()
    if _sd.server is not None:
        _sd.server._close()
    for name in [name for name in vars(_sd)]:
        delattr(_sd, name)
    WORLD.proc_ranks = []
    enter_world(None)


@contextlib.contextmanager
def override_backend(new_backend: str) -> Iterator[None]:
    """Changes the backend inside a ``with`` block.

    Parameters
    ----------
    new_backend : str
        "auto" or "nccl" take NCCL if it is there; "mpi", "gloo", "local" and "tcp" send tensors of
        GPUs through the host, by the world's engine. All processes must give the same name.

    Yields
    ------
    None
        Nothing.

    Raises
    ------
    ValueError
        For an unknown name.

    Examples
    --------
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
    _sd.backend = _engine.checked(name)


def is_distributed() -> bool:
    """Tells whether this process has joined a world by `init_process_group`.

    Returns
    -------
    bool
        True if it has joined.

    Examples
    --------
    >>> from megengine import distributed as dist
    >>> dist.is_distributed()
    False
    """
    return _sd.proc_rank is not None


def get_rank() -> int:
    """Returns the rank of this process in the world; 0 outside of a process group.

    Returns
    -------
    int
        The rank, from 0 to `get_world_size` - 1.

    Examples
    --------
    >>> from megengine import distributed as dist
    >>> if dist.get_rank() == 0:  # one process writes
    ...     print("saved")
    saved
    """
    return _sd.proc_rank if _sd.proc_rank is not None else 0


def get_local_device_id() -> int:
    """Returns the number of the device that this process uses; 0 outside of a process group.

    Returns
    -------
    int
        Its number.

    Examples
    --------
    >>> from megengine import distributed as dist
    >>> dist.get_local_device_id()
    0
    """
    return _sd.device if _sd.device is not None else 0


def get_world_size() -> int:
    """Returns the number of processes in the world; 1 outside of a process group.

    Returns
    -------
    int
        At least 1.

    Examples
    --------
    >>> from megengine import distributed as dist
    >>> 64 // dist.get_world_size()  # this process's share of a batch of 64
    64
    """
    return _sd.world_size if _sd.world_size is not None else 1


def get_backend() -> str:
    """Returns the name of the backend that `init_process_group` was given, "auto" by default.

    Returns
    -------
    str
        A name such as "auto".

    Examples
    --------
    >>> from megengine import distributed as dist
    >>> dist.get_backend()
    'auto'
    """
    return _sd.backend if _sd.backend is not None else "auto"


def get_py_server_addr() -> tuple[str, int]:
    """Returns the address of the key-value server, a tuple (IP, port).

    Returns
    -------
    (str, int)
        IP address and port.

    Raises
    ------
    RuntimeError
        Outside of a process group.

    Examples
    --------
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
    """Returns the address by which the processes of collective operations find each other, a tuple
    (IP, port).

    Returns
    -------
    (str, int)
        IP address and port.

    Raises
    ------
    RuntimeError
        Outside of a process group.

    Examples
    --------
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
    """Returns a connected `Client` of the key-value server, for small values that processes share.

    Returns
    -------
    Client
        Connected.

    Raises
    ------
    RuntimeError
        Outside of a process group.

    Examples
    --------
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
        from .server import Client  # slow to import

        _sd.client = Client(_sd.master_ip, _sd.py_server_port)  # type: ignore[arg-type]  # set with the group
    return _sd.client


def _need_group(what: str) -> None:
    if not is_distributed():
        raise RuntimeError(
            f"{what} needs a process group; call init_process_group first, or use the launcher"
        )


def new_group(proc_ranks: Sequence[int]) -> Group:
    """Returns a `Group` of some processes of the world.

    Parameters
    ----------
    proc_ranks : sequence of int
        Ranks of the members in the world, different ints; the first one is the root.

    Returns
    -------
    Group
        The group.

    Notes
    -----
    Every process of the world makes the same groups in the same order.

    Examples
    --------
    >>> from megengine import distributed as dist
    >>> dist.new_group([0]).size
    1
    """
    return Group(proc_ranks)


def group_barrier(group: Group | None = WORLD) -> None:
    """Waits until all processes of a group have called it.

    Parameters
    ----------
    group : Group or None
        The processes; None means all.

    Raises
    ------
    ValueError
        If this process is not a member.
    RuntimeError
        If another process failed or does not come in time.

    Examples
    --------
    >>> from megengine import distributed as dist
    >>> dist.group_barrier()  # one process: returns at once
    """
    group = WORLD if group is None else group
    if group.size > 1:
        group.rank  # noqa: B018  -- raises unless this process is a member
        _core.group_barrier(group.key)
