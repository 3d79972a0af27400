"""Records what a program spends its time on: eager kernels, modules, and ranges of the program, for
the timeline of Chrome or Perfetto.

>>> import os, tempfile, megengine as mge
>>> with tempfile.TemporaryDirectory() as folder:
...     profiler = Profiler(folder)
...     with profiler, scope("twice"):
...         y = mge.tensor([1.0, 2.0]) * 2
...     profiler.dump()
...     os.path.exists(profiler.path)
True
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from .. import _core
from .._files.disk import write_text
from ..jit import trace
from ..logger import get_logger
from ..module import Module
from ..reports.page import escaped

__all__ = ["Profiler", "is_profiling", "merge_trace_events", "profile", "scope"]

_logger = get_logger(__name__)
_lock = threading.RLock()
_running: Profiler | None = None
_Event = dict[str, Any]


def is_profiling() -> bool:
    """Tells whether a profiler runs.

    Returns
    -------
    bool
        True if one runs.
    """
    return _running is not None


@contextlib.contextmanager
def scope(name: str) -> Iterator[None]:
    """Marks a range of the program in the rows of its thread and of the devices; does nothing while
    no profiler runs.

    Parameters
    ----------
    name : str
        Name that the range is shown with.

    Yields
    ------
    None
        Nothing.
    """
    profiler = _running
    if profiler is None:
        yield
        return
    begin = time.monotonic_ns()
    try:
        yield
    finally:
        profiler._scopes.append((name, begin, time.monotonic_ns(), threading.get_ident()))


def _as_scope(original: Callable[..., Any], name_of: Callable[[Any], str]) -> Callable[..., Any]:
    @functools.wraps(original)
    def scoped(self: Any, *args: Any, **kwargs: Any) -> Any:
        with scope(name_of(self)):
            return original(self, *args, **kwargs)

    return scoped


def _name_of_module(module: Module) -> str:
    return module.name or module._short_name or type(module).__name__


@contextlib.contextmanager
def _watched(with_modules: bool) -> Iterator[None]:
    """Calls of traced functions are scopes, and with_modules those of modules."""
    calls: list[tuple[Any, Callable[[Any], str]]] = [
        (trace, lambda fn: f"trace {getattr(fn.__wrapped__, '__name__', fn.__wrapped__)}")
    ]
    if with_modules:
        calls.append((Module, _name_of_module))
    originals = [(kind, kind.__call__) for kind, _ in calls]
    for kind, name_of in calls:
        kind.__call__ = _as_scope(kind.__call__, name_of)
    try:
        yield
    finally:
        for kind, original in originals:
            kind.__call__ = original


class Profiler(contextlib.ContextDecorator):
    """Records the kernels that run between `start` and `stop`, in a ``with`` block, or in calls of
    a function that it decorates.

    Parameters
    ----------
    path : str
        Folder of the files, which are named ``<process>.<format>``.
    format : str
        Format of the file: "chrome_timeline.json" or "memory_flow.svg".
    formats : sequence of str or None
        Several formats at once; None means ``format`` alone.
    with_backtrace : bool
        Whether to note the user's line of each kernel.
    with_scopes : bool
        Whether to note calls of modules, too.
    **kwargs : object
        Options: sample_rate (memory is shown at each n-th kernel; 0: not at all), profile_device
        (0: no rows of devices), num_tensor_watch (largest steps that memory_flow.svg names),
        enable_cupti (warns: kernels are timed by the host).

    Raises
    ------
    AssertionError
        For another format.

    Notes
    -----
    A further start drops the earlier records. `dump` writes the records to their files, as does the
    end of the profiler's life.
    """

    CHROME_TIMELINE = "chrome_timeline.json"
    valid_options: ClassVar[dict[str, int]] = {
        "sample_rate": 0, "profile_device": 1, "num_tensor_watch": 10, "enable_cupti": 0,
    }  # fmt: skip
    valid_formats: ClassVar[set[str]] = {"chrome_timeline.json", "memory_flow.svg"}

    def __init__(
        self,
        path: str = "profile",
        format: str = "chrome_timeline.json",
        formats: Sequence[str] | None = None,
        with_backtrace: bool = False,
        with_scopes: bool = False,
        **kwargs: Any,
    ) -> None:
        self._path = path
        self._formats = [format] if formats is None else list(formats)
        for wanted in self._formats:
            if wanted not in self.valid_formats:
                raise AssertionError(f"unsupported format {wanted!r}; there are {self.valid_formats}")
        for name in kwargs.keys() - self.valid_options.keys():
            warnings.warn(f"Profiler: there is no option {name!r}; it has no effect", stacklevel=2)
        self._options = {name: int(kwargs.get(name, value)) for name, value in self.valid_options.items()}
        if self._options["enable_cupti"]:
            warnings.warn(
                "Profiler: enable_cupti has no effect; times are those of the host", stacklevel=2
            )
        self.with_backtrace = with_backtrace
        self.with_scopes = with_scopes
        self._pid = str(os.getpid())
        self._calls: list[Any] = []
        self._scopes: list[tuple[str, int, int, int]] = []
        self._watch: contextlib.ExitStack | None = None
        self._begin = 0
        self._at_end = weakref.finalize(self, _write_at_end, self._path, self._state())

    def _state(self) -> dict[str, Any]:
        """Makes the state that files are written from; the finalizer shares it, as it may not hold
        the profiler.
        """
        self._shared: dict[str, Any] = {"formats": self._formats, "options": self._options, "pid": self._pid, "record": None}
        return self._shared

    @property
    def path(self) -> str:
        """The file of the first format."""
        return self.format_path(self._path, self._pid, self._formats[0])

    @property
    def directory(self) -> str:
        """The folder of the files."""
        return self._path

    @property
    def formats(self) -> list[str]:
        """The formats that are written."""
        return list(self._formats)

    @staticmethod
    def format_path(path: str, pid: str, format: str) -> str:
        """Returns the name of a file.

        Parameters
        ----------
        path : str
            Folder that the file lies in.
        pid : str
            Number of the process, as text.
        format : str
            "chrome_timeline.json" or "memory_flow.svg", the end of the name.

        Returns
        -------
        str
            The path of the file.
        """
        return os.path.join(path, f"{pid}.{format}")

    def start(self) -> Self:
        """Begins to record; another profiler that runs is stopped."""
        global _running
        with _lock:
            if _running is not None:
                _running.stop()
            self._calls, self._scopes = [], []
            self._watch = contextlib.ExitStack()
            self._watch.enter_context(_watched(self.with_scopes))
            self._begin = time.monotonic_ns()
            _core.start_call_log(self.with_backtrace)
            _running = self
        return self

    def stop(self) -> Self:
        """Ends the recording, if it runs."""
        global _running
        with _lock:
            if _running is self and self._watch is not None:
                self._calls = _core.stop_call_log()
                _running = None
                self._watch.close()
                self._shared["record"] = (self._begin, self._calls, self._scopes)
        return self

    def step(self) -> Self:
        """Drops the records so far and goes on."""
        return self.stop().start()

    def dump(self) -> None:
        """Writes the files now, if something was recorded since the last time."""
        if _running is self:
            self.stop()
        _write_files(self._path, self._shared)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, val: Any, tp: Any, trace: Any) -> None:
        self.stop()

    def __call__(self, func: Any) -> Any:
        """Returns ``func`` with this profiler around each call."""
        return super().__call__(func)

    def __del__(self) -> None:
        if hasattr(self, "_at_end"):  # it was made
            self.stop()
            self._at_end()


def _write_at_end(path: str, shared: dict[str, Any]) -> None:
    _write_files(path, shared)


def _write_files(path: str, shared: dict[str, Any]) -> None:
    record, shared["record"] = shared["record"], None
    if record is None:
        return
    os.makedirs(path, exist_ok=True)
    for format in shared["formats"]:
        file = Profiler.format_path(path, shared["pid"], format)
        make: Callable[..., str] = _timeline if format == Profiler.CHROME_TIMELINE else _memory_flow
        write_text(file, make(*record, int(shared["pid"]), shared["options"]))
        _logger.info("profiling results written to %s", file)


def _timeline(
    begin: int, calls: list[Any], scopes: list[tuple[str, int, int, int]], pid: int, options: dict[str, int]
) -> str:
    """JSON of Google's Trace Event Format: a row for each thread, and one for each device."""
    rows: dict[Any, int] = {}
    events: list[_Event] = []

    def row(key: Any, name: str) -> int:
        if key not in rows:
            rows[key] = len(rows)
            events.append({"ph": "M", "pid": pid, "tid": rows[key], "name": "thread_name", "args": {"name": name}})
        return rows[key]

    def add(tid: int, name: str, start: int, end: int, **more: Any) -> None:
        for phase, at in (("B", start), ("E", end)):
            events.append({"ph": phase, "pid": pid, "tid": tid, "name": name, "ts": (at - begin) / 1000, **more})

    for thread in dict.fromkeys([s[3] for s in scopes] + [c[4] for c in calls]):
        row(thread, f"thread {thread}")
    devices = dict.fromkeys(call[1] for call in calls) if options["profile_device"] else {}
    for name, start, end, thread in scopes:
        for tid in (rows[thread], *(row(device, device) for device in devices)):
            add(tid, name, start, end)
    for count, (call, device, start, end, thread, in_use, where) in enumerate(calls):
        args = {"call": call, "device": device} | ({"where": where} if where else {})
        name = call.split(" ", 1)[0]
        add(rows[thread], name, start, end, args=args)
        if device in devices:
            add(row(device, device), name, start, end, cat="Kernel", args=args)
        if options["sample_rate"] and count % options["sample_rate"] == 0:
            value = {"ph": "C", "pid": pid, "tid": rows[thread], "name": f"{device}_alloc_mem", "ts": (end - begin) / 1000}
            events.append({**value, "args": {"value": in_use}})
    # Outer ranges open first and close last, also where clocks are too coarse to tell.
    order = {"M": 0, "B": 2, "E": 1, "C": 3}
    events.sort(key=lambda event: (event.get("ts", -1.0), order[event["ph"]]))
    return json.dumps({"traceEvents": events, "metadata": {"pid": pid}})


def _memory_flow(
    begin: int, calls: list[Any], scopes: list[tuple[str, int, int, int]], pid: int, options: dict[str, int]
) -> str:
    """Returns an SVG of the bytes that devices hold over the kernels; it names those after which
    they grew most.
    """
    width, height = 1000, 400
    used = [call[5] for call in calls]
    top = max(used, default=0) or 1
    places = [(i * width / max(len(used) - 1, 1), height - height * value / top) for i, value in enumerate(used)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    growth = sorted(range(1, len(used)), key=lambda i: used[i - 1] - used[i])[: options["num_tensor_watch"]]
    labels = "".join(
        f'<text x="{places[i][0]:.1f}" y="{places[i][1]:.1f}" font-size="9">{escaped(calls[i][0])}</text>'
        for i in growth
        if used[i] > used[i - 1]
    )
    title = f"process {pid}: at most {top} bytes over {len(calls)} kernels in {len(scopes)} ranges, from {begin} ns"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -20 {width} {height + 20}"><text y="-6" font-size="12">{title}'
        f'</text><polyline fill="none" stroke="steelblue" points="{line}"/>{labels}</svg>'
    )


def profile(*args: Any, **kwargs: Any) -> Any:
    """Decorates a function with a `Profiler` around each call: ``@profile``, or ``@profile(path,
    with_scopes=True)``.

    Parameters
    ----------
    *args : object
        The function, or arguments of `Profiler`.
    **kwargs : object
        Keyword arguments of `Profiler`, such as ``with_scopes``.

    Returns
    -------
    object
        The decorated function, or a decorator.
    """
    if len(args) == 1 and not kwargs and callable(args[0]):
        return Profiler()(args[0])
    return Profiler(*args, **kwargs)


def merge_trace_events(directory: str) -> str:
    """Joins the timelines of several processes in a folder into ``merge.chrome_timeline.json``
    there.

    Parameters
    ----------
    directory : str
        Folder that holds the timelines.

    Returns
    -------
    str
        The path of the file.

    Raises
    ------
    AssertionError
        When there is no timeline.
    """
    target = os.path.join(directory, f"merge.{Profiler.CHROME_TIMELINE}")
    files = sorted(Path(directory).glob(f"*.{Profiler.CHROME_TIMELINE}"))
    files = [file for file in files if file != Path(target)]
    if not files:
        raise AssertionError(f"merge_trace_events: no timeline in {directory!r}")
    events = [event for file in files for event in json.loads(file.read_text())["traceEvents"]]
    write_text(target, json.dumps({"traceEvents": events}))
    return target
