"""Worker processes of a data loader: a pool that computes batches in order.

In: a recipe (dataset, transform, collator) and tasks (lists of indices). Out: batches in the order of
the tasks, or the worker's exception. Each worker has one connection to the parent; when
either side dies the other one sees the connection close.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import random
import signal
import threading
import time
import traceback
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing import connection as mp_connection
from typing import Any

import numpy as np

from ..random import seed as seed_tensors
from ..utils._opencv import use_one_thread
from ..utils.after_fork import run_in_fresh_thread
from . import _transport

GLOBAL_TIMEOUT = 5  # seconds between two looks of an idle worker at its parent
_PREFETCH = 2  # tasks that wait at each worker, so that it never idles while the parent is busy
_GRACE = 0.2  # seconds that workers get to leave by themselves

_worker_info: WorkerInfo | None = None


class WorkerInfo:
    """Facts about a worker process, read only: ``idx`` (its number), ``worker_num`` (the number of
    workers), ``seed``.
    """

    idx: int
    worker_num: int
    seed: int
    _keys: tuple[str, ...]

    def __init__(self, **kwargs: Any) -> None:
        for key, value in kwargs.items():
            object.__setattr__(self, key, value)
        object.__setattr__(self, "_keys", tuple(kwargs))

    def __setattr__(self, key: str, val: Any) -> None:
        raise RuntimeError(f"cannot set {key}: a WorkerInfo is read only")

    def __repr__(self) -> str:
        return f"WorkerInfo({', '.join(f'{key}={getattr(self, key)!r}' for key in self._keys)})"


def get_worker_info() -> WorkerInfo | None:
    """Returns the `WorkerInfo` of this worker process; None in any other process."""
    return _worker_info


class ManagerWatchdog:
    """Tells a worker whether the process that started it still runs."""

    def __init__(self) -> None:
        self.manager_pid = os.getppid()
        self.manager_dead = False

    def is_alive(self) -> bool:
        """False once the parent process is gone."""
        self.manager_dead = self.manager_dead or os.getppid() != self.manager_pid
        return not self.manager_dead


class RemoteError(Exception):
    """Cause of an exception that came from a worker: its traceback as text."""


class EndOfStream:
    """A worker's reply when its stream has no more samples."""


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defers Ctrl-C to the end of the block, so that all workers are started or ended."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    heard: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *event: heard.append(event))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if heard:
            handler(*heard[0])


# ------------------------------------------------------------------------------ in the worker process


def _worker_main(
    link: Any, unused: list[Any], index: int, count: int, seed: int, make_fetch: Callable[..., Any]
) -> None:
    """Serve tasks until the parent closes the connection or is gone."""
    global _worker_info
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is the parent's business; it then closes us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in unused:  # a forked copy of these would keep a dead parent's connections open
        other.close()
    _worker_info = WorkerInfo(
        idx=index, worker_num=count, seed=seed + index, id=index, num_workers=count
    )
    random.seed(seed + index)
    np.random.seed((seed + index) % 2**32)
    seed_tensors(seed + index)
    use_one_thread()
    run_in_fresh_thread(_serve, link, make_fetch)


def _serve(link: Any, make_fetch: Callable[..., Any]) -> None:
    watchdog = ManagerWatchdog()
    fetch: Callable[..., Any] | None = None
    with contextlib.suppress(EOFError, OSError):
        while watchdog.is_alive():
            if not link.poll(GLOBAL_TIMEOUT):
                continue
            task = link.recv()
            try:
                fetch = fetch or make_fetch()
                reply = _transport.dump((True, fetch(task)))
            except (Exception, SystemExit) as error:
                reply = _transport.dump((False, _portable(error)))
            _transport.send(link, *reply)


def _portable(error: BaseException) -> tuple[BaseException | None, str, str]:
    """Returns (the exception, or None if it cannot travel; its class name; its traceback as text).
    """
    text = "".join(traceback.format_exception(error))
    name = type(error).__name__
    try:
        copy = pickle.loads(pickle.dumps(error))
        return (copy if type(copy) is type(error) else None), name, text
    except Exception:  # pickling runs the exception class's own code
        return None, name, text


# ------------------------------------------------------------------------------ in the parent process


class WorkerPool:
    """``count`` processes that answer tasks; ``submit`` and ``result`` keep the order.

    make_fetch: builds, inside the worker, the function from a task to a batch.
    """

    def __init__(
        self, count: int, seed: int, make_fetch: Callable[[], Callable[[Any], Any]]
    ) -> None:
        self._links: list[Any] = []
        self._processes: list[Any] = []
        self._pending: deque[int] = deque()  # the worker of each unanswered task, oldest first
        self._close = weakref.finalize(self, _stop, self._links, self._processes, os.getpid())
        try:
            with interrupts_deferred():
                for index in range(count):
                    self._start(index, count, seed, make_fetch)
        except BaseException:
            self._close()
            raise

    def _start(self, index: int, count: int, seed: int, make_fetch: Callable[..., Any]) -> None:
        context = multiprocessing.get_context()
        mine, theirs = context.Pipe(duplex=True)
        self._links.append(mine)
        unused = list(self._links) if context.get_start_method() == "fork" else []
        process = context.Process(
            target=_worker_main,
            args=(theirs, unused, index, count, seed, make_fetch),
            daemon=True,
        )
        with warnings.catch_warnings():
            # Python 3.12 warns of forking while there are threads; see utils/after_fork.py.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        self._processes.append(process)
        theirs.close()

    @property
    def capacity(self) -> int:
        """The number of tasks that may wait at once."""
        return _PREFETCH * len(self._links)

    def __len__(self) -> int:
        return len(self._pending)

    def submit(self, worker: int, task: object) -> None:
        """Gives a task to a worker."""
        try:
            self._links[worker].send(task)
        except OSError:
            raise self._death_of(worker) from None
        self._pending.append(worker)

    def result(self, timeout: float = 0) -> tuple[int, Any]:
        """Returns (worker, batch) of the oldest task. timeout: seconds; 0 waits for ever.

        Raises the worker's exception, or RuntimeError when the worker died or took too long.
        """
        worker = self._pending.popleft()
        link, process = self._links[worker], self._processes[worker]
        ready = mp_connection.wait([link, process.sentinel], timeout or None)
        if not ready:
            raise RuntimeError(
                f"worker {worker} of the data loader gave no batch within timeout={timeout} s; "
                "make the dataset faster, use more workers, or raise the timeout"
            )
        try:
            if link not in ready and not link.poll():
                raise EOFError
            good, value = _transport.receive(link)
        except (EOFError, OSError):
            raise self._death_of(worker) from None
        if not good:
            _raise_remote(worker, *value)
        return worker, value

    def close(self) -> None:
        """Ends all workers; a second call does nothing."""
        self._close()

    def _death_of(self, worker: int) -> RuntimeError:
        process = self._processes[worker]
        process.join(1)
        code = process.exitcode
        how = (
            f"was killed by signal {-code}"
            if code is not None and code < 0
            else f"ended with exit code {code}"
        )
        return RuntimeError(
            f"worker {worker} of the data loader (process {process.pid}) {how} before it gave its batch; "
            "out of memory is the usual cause: use fewer workers or smaller batches, "
            "or num_workers=0 to see what happens"
        )


def _raise_remote(worker: int, error: BaseException | None, name: str, text: str) -> None:
    cause = RemoteError(f"in worker {worker}:\n{text}")
    if error is None:
        raise RuntimeError(f"{name} in worker {worker} of the data loader:\n{text}") from cause
    raise error from cause


def _stop(links: list[Any], processes: list[Any], owner: int) -> None:
    if os.getpid() != owner:  # a forked child inherited the pool object, not the pool
        return
    with interrupts_deferred():
        _stop_all(links, processes)


def _stop_all(links: list[Any], processes: list[Any]) -> None:
    for link in links:
        link.close()
    deadline = time.monotonic() + _GRACE
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    for stop in ("terminate", "kill"):
        alive = [process for process in processes if process.is_alive()]
        for process in alive:
            getattr(process, stop)()
        for process in alive:
            process.join(1)
    for process in processes:
        process.join(1)
        if not process.is_alive():
            process.close()
    processes.clear()
    links.clear()


def ordered_results(pool: WorkerPool, tasks: Iterator[Any], timeout: float) -> Iterator[Any]:
    """Batches of ``tasks`` in order. A worker that answers EndOfStream gets no more tasks; the others go on."""
    ended: set[int] = set()
    workers = list(range(pool.capacity // _PREFETCH))
    for worker in workers * _PREFETCH:
        task = next(tasks, None)
        if task is None:
            break
        pool.submit(worker, task)
    while len(pool):
        worker, batch = pool.result(timeout)
        if batch is EndOfStream:
            ended.add(worker)
            continue
        if worker not in ended:
            task = next(tasks, None)
            if task is not None:
                pool.submit(worker, task)
        yield batch
