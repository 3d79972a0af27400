"""Runs a function in several processes that form one world, usually one per device."""

from __future__ import annotations

import functools
import os
import pickle
import signal
import traceback
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from ..device import get_device_count
from ..utils.after_fork import run_in_fresh_thread
from ._environment import TOKEN, host_for
from .group import _finish, _forget, _report_failure, check_device_type, init_process_group

if TYPE_CHECKING:
    import typing_extensions  # every checker knows it: its defaults say what a plain ``launcher`` is

    from .server import Server

    _P = typing_extensions.ParamSpec("_P", default=...)
    _R = typing_extensions.TypeVar("_R", default=Any)
    _Q = ParamSpec("_Q")
    _S = TypeVar("_S")

    class _Function:
        """The decorator that `launcher` returns when it is given options alone."""

    class _Launched:
        """The function that the decorator returns."""
else:
    _P = ParamSpec("_P")
    _R = TypeVar("_R")

WARN_SUBPROCESS_EXIT_WITHOUT_RETURN = "subprocess exited with code 0 but did not return a value"

_LAST_WORDS_SECONDS = 3.0  # time for others to give a reason after one failed


class launcher(Generic[_P, _R]):
    """Decorates a function: a call runs it in several processes and returns the list of their
    results, by rank.

    Parameters
    ----------
    func : callable or None
        The function; without it, ``launcher(...)`` returns a decorator.
    n_gpus : int or None
        Number of processes on this machine; None: the number of GPUs, or 1 if there are none.
    world_size : int or None
        Number of processes on all machines; None: ``n_gpus``.
    rank_start : int
        Rank of the first process on this machine.
    master_ip : str
        Address of the machine with rank 0.
    port : int
        Port of its server; 0: any free one. Several machines need a fixed port.
    device_type, backend : str
        Kind of device, "cpu", "gpu", "cuda" or "xpu"; and name of the backend, "auto" by default;
        see `init_process_group`.
    timeout : float
        Seconds that an operation waits for a process that does not answer.

    Raises
    ------
    ValueError
        For numbers and ranks that do not fit together.
    TypeError
        If what it decorates is not a function.

    See Also
    --------
    init_process_group : Joins processes that something else has started.

    Notes
    -----
    The machine with ``rank_start=0`` starts the server. Usable as ``@launcher``,
    ``@launcher(n_gpus=2)`` and ``launcher(f, n_gpus=2)``. Results must be picklable.

    If a process fails, the call ends the others and raises AssertionError with the traceback of the
    one that failed.

    Examples
    --------
    >>> from megengine import distributed as dist
    >>> @dist.launcher(n_gpus=2, device_type="cpu")
    ... def main(batch):
    ...     return dist.get_rank(), batch // dist.get_world_size()
    >>> # main(64) returns [(0, 32), (1, 32)]
    """

    _runs_here = False  # ``plan --world``: the function runs in the process that calls it, as a world of one

    # fmt: off
    @overload
    def __init__(self, func: Callable[_P, _R], n_gpus: int | None = None, world_size: int | None = None, rank_start: int = 0, master_ip: str = "localhost", port: int = 0, device_type: str = "xpu", backend: str = "nccl", timeout: float = 600.0) -> None: ...
    @overload
    def __init__(self: launcher[[_Function], _Launched], func: None = None, n_gpus: int | None = None, world_size: int | None = None, rank_start: int = 0, master_ip: str = "localhost", port: int = 0, device_type: str = "xpu", backend: str = "nccl", timeout: float = 600.0) -> None: ...
    # fmt: on

    def __init__(
        self,
        func: Callable[..., Any] | None = None,
        n_gpus: int | None = None,
        world_size: int | None = None,
        rank_start: int = 0,
        master_ip: str = "localhost",
        port: int = 0,
        device_type: str = "xpu",
        backend: str = "nccl",
        timeout: float = 600.0,
    ) -> None:
        for name, value in (("n_gpus", n_gpus), ("world_size", world_size)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a positive int, got {value!r}")
        check_device_type(device_type)
        if func is not None and not callable(func):
            raise TypeError(f"launcher: func is {func!r}, not a function\n  fix: launcher(function, n_gpus=2), or @launcher(n_gpus=2) above it")
        self.func = func
        self.n_gpus = n_gpus if n_gpus is not None else world_size or _device_count()
        self.world_size = world_size if world_size is not None else self.n_gpus
        if rank_start < 0 or rank_start + self.n_gpus > self.world_size:
            raise ValueError(
                f"ranks {rank_start} to {rank_start + self.n_gpus - 1} do not fit into world_size "
                f"{self.world_size}"
            )
        self.rank_start = rank_start
        self.master_ip = master_ip
        self.port = port
        self.device_type = device_type
        self.backend = backend
        self.timeout = timeout
        self.server: Server | None = None
        if func is not None:
            functools.update_wrapper(self, func)

    @overload
    def __call__(self: launcher[[_Function], _Launched], function: Callable[_Q, _S], /) -> launcher[_Q, _S]: ...  # type: ignore[overload-overlap]  # no function takes a _Function
    @overload
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> list[_R]: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.func is None:  # @launcher(n_gpus=2): this call brings the function
            if len(args) != 1 or kwargs or not callable(args[0]):
                raise TypeError(
                    "launcher(...) without a function decorates one; it was called with something else"
                )
            return launcher(
                args[0],
                self.n_gpus,
                self.world_size,
                self.rank_start,
                self.master_ip,
                self.port,
                self.device_type,
                self.backend,
                self.timeout,
            )
        if launcher._runs_here:
            return [_in_this_process(functools.partial(self.func, *args, **kwargs))]
        from ._token import new_token
        from .server import Server  # both slow to import

        serves = self.rank_start == 0
        is_alone = self.world_size == self.n_gpus
        token = new_token() if is_alone else None
        self.server = Server._bound(self.port, host_for(is_alone), token) if serves else None
        try:
            workers = [_Worker(self, device, args, kwargs) for device in range(self.n_gpus)]
            if self.server is not None:
                self.server._serve()  # after forking: threads do not survive a fork
            return _results(workers, self.server)
        finally:
            if self.server is not None:
                self.server._close()
                self.server = None


def _in_this_process(func: Callable[[], Any]) -> Any:
    init_process_group("127.0.0.1", 0, world_size=1, rank=0, device=0)
    try:
        return func()
    finally:
        _forget()


class _Worker:
    """One process and the connection that brings its result."""

    def __init__(
        self, owner: launcher[..., Any], device: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        import multiprocessing  # takes 20 ms, which importing megengine should not cost

        context = multiprocessing.get_context()
        self.rank = owner.rank_start + device
        self.link, theirs = context.Pipe(duplex=False)
        port = owner.server.py_server_port if owner.server is not None else owner.port
        token = owner.server.token if owner.server is not None else None
        place = (
            owner.master_ip,
            port,
            owner.world_size,
            self.rank,
            device,
            owner.backend,
            owner.device_type,
            owner.timeout,
        )
        self.process = context.Process(target=_run, args=(theirs, place, token, owner.func, args, kwargs))
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # forking while the runtime has threads
            self.process.start()
        theirs.close()

    def outcome(self) -> tuple[bool, Any]:
        """Returns (whether it went well, result or traceback), once the process has answered or
        ended.
        """
        try:
            good, content = self.link.recv()
            return good, pickle.loads(content) if good else content
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            if code == 0:
                warnings.warn(WARN_SUBPROCESS_EXIT_WITHOUT_RETURN, stacklevel=4)
                return True, None
            return (
                False,
                f"it was killed by signal {-code}"
                if code < 0
                else f"it ended with exit code {code}",
            )


def _run(
    link: Any,
    place: tuple[Any, ...],
    token: str | None,
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Body of a worker process."""
    _end_with_parent()
    # its end tells the launcher that this process has ended
    os.register_at_fork(after_in_child=link.close)
    _forget()  # a forked child of a process group is not in it
    if token is not None:
        os.environ[TOKEN] = token
    try:
        init_process_group(*place)
        message: tuple[bool, Any] = (
            True,
            pickle.dumps(run_in_fresh_thread(functools.partial(func, *args, **kwargs))),
        )
        _finish()
    except Exception:
        trace = traceback.format_exc()
        _report_failure(trace)
        message = (False, trace)
    link.send(message)
    link.close()


def _end_with_parent() -> None:
    """Lets the system kill this process when the thread that started it ends."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _results(workers: list[_Worker], server: Server | None) -> list[Any]:
    from multiprocessing.connection import wait

    results: list[Any] = [None] * len(workers)
    failed: dict[int, Any] = {}  # rank -> its error
    waiting: dict[Any, int] = {worker.link: index for index, worker in enumerate(workers)}
    try:
        while waiting:
            ready = wait(list(waiting), _LAST_WORDS_SECONDS if failed else None)
            if not ready:
                break
            for link in ready:
                index = waiting.pop(link)
                good, value = workers[index].outcome()
                if good:
                    results[index] = value
                else:
                    failed[workers[index].rank] = value
            if failed.keys() & _causes(workers, failed, server):
                break
        if failed:
            rank = min(failed.keys() & _causes(workers, failed, server) or failed)
            raise AssertionError(f"process {rank} of the launcher failed:\n{failed[rank]}")
        for worker in workers:
            worker.process.join()
        return results
    finally:
        for worker in workers:
            if worker.process.is_alive():
                worker.process.terminate()
        for worker in workers:
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.link.close()


def _causes(workers: list[_Worker], failed: dict[int, Any], server: Server | None) -> set[int]:
    """Returns the ranks that failed first: those that ended without a reason, or else the first
    that told one.
    """
    silent = {each.rank for each in workers if each.rank in failed and each.process.exitcode}
    told = server._first_failed() if server is not None else set()
    return silent or told or set(failed)


def _device_count() -> int:
    """Returns the number of GPUs, or 1 for one process on the CPU."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible == "":
        return 1
    return max(1, get_device_count("gpu"))
