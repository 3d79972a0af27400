"""State behind ``megengine.config`` and the interpreter options: one table of them, each with its
reader; and properties
of modules, so that ``config.async_level = 1`` runs a setter."""

import os
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core
from ._telling import no_effect

_HERE = "core/_config.py"
_NO_WORKER = "eager calls have no worker thread"


class Option(NamedTuple):
    """One option: exactly one of reader, holds and ignored tells how its value is used."""

    default: Any
    variable: str = ""  # the environment variable that sets the first value
    reader: str = ""  # the file that reads it
    holds: str = ""  # why it is always so
    ignored: str = ""  # why it changes nothing: a value that is not the default warns once


OPTIONS: dict[str, Option] = {
    "async_level": Option(2, "MEGENGINE_INTERP_ASYNC_LEVEL", holds="an error of shape or type is raised by the call, one of a kernel at the latest by a read of its result"),
    "enable_drop": Option(0, "MEGENGINE_ENABLE_DROP", ignored="values are dropped by megengine.dtr, without being asked one by one"),
    "max_recompute_time": Option(1, "MEGENGINE_MAX_RECOMP_TIME", ignored="megengine.dtr weighs the time of recomputing by itself"),
    "catch_worker_execption": Option(1, "MEGENGINE_CATCH_WORKER_EXEC", ignored=_NO_WORKER),  # spelled so in the API
    "enable_host_compute": Option(1, "MEGENGINE_HOST_COMPUTE", ignored="a value is computed where its operands lie"),
    "disable_memory_forwarding": Option(0, "MEGENGINE_DISABLE_MEMORY_FORWARDING", ignored="tensors never change, so sharing memory has no visible effect"),
    "enable_dtr_auto_drop": Option(0, "MEGENGINE_DTR_AUTO_DROP", ignored="use megengine.dtr.enable()"),
    "enable_dtr_sqrt_sampling": Option(0, "MEGENGINE_DTR_SQRT_SAMPLING", reader="dtr/dtr.py"),
    "dtr_eviction_threshold": Option(0, "MEGENGINE_DTR_EVICTION_THRESHOLD", reader="dtr/dtr.py"),
    "dtr_evictee_minimum_size": Option(1048576, "MEGENGINE_DTR_EVICTEE_MINIMUM_SIZE", reader="dtr/dtr.py"),
    "record_computing_path": Option(0, "MEGENGINE_RECORD_COMPUTING_PATH", ignored="megengine.dtr notes the calls that it needs"),
    "benchmark_kernel": Option(False, reader=_HERE),
    "benchmark_with_subprocess": Option(False, ignored="kernels are timed in this process"),
    "deterministic_kernel": Option(False, reader=_HERE),
    "tf32": Option(False, reader=_HERE),
    "compute_mode": Option("default", holds="products and convolutions add in float32"),
    "conv_format": Option("default", ignored="programs choose the order of memory by themselves"),
}  # fmt: skip


def _from_environment(name: str) -> Any:
    row = OPTIONS[name]
    text = os.environ.get(row.variable) if row.variable else None
    if text is None:
        return row.default
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            f"{row.variable}={text!r} is not an integer; unset it or use {row.default}"
        ) from None


def _has_gpu() -> bool:
    return any(info.kind == "gpu" for info in _core.devices().values())


def _rule_products(options: "Options") -> None:
    """Tells the libraries of GPUs how to compute products. A CPU's kernels are chosen by rule, strict and deterministic."""
    asked = {"tf32": options.tf32, "benchmark_kernel": options.benchmark_kernel}
    if any(asked.values()) and not _has_gpu():
        no_effect("megengine.config", "it concerns products of a GPU, and there is none", **asked)
    _core.set_product_rules(options.tf32, options.deterministic_kernel, options.benchmark_kernel)


class Options:
    """The values of `OPTIONS` in this process, as attributes."""

    def __init__(self) -> None:
        for name in OPTIONS:
            setattr(self, name, _from_environment(name))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: Any) -> None:
        row = OPTIONS[name]
        if row.ignored:
            no_effect("megengine.config", row.ignored, **{name: value != row.default})
        if name == "async_level" and value == 0 and _has_gpu():
            no_effect("megengine.config", "kernels of a GPU run behind their calls; read a result to wait for them", async_level=True)
        super().__setattr__(name, value)
        if row.reader == _HERE and len(vars(self)) == len(OPTIONS):  # all are there
            _rule_products(self)


options = Options()


def get_option(name: str) -> int:
    """Value of one interpreter option. ValueError for an unknown name."""
    known = [name for name, row in OPTIONS.items() if row.variable]
    if name not in known:
        raise ValueError(f"no option {name!r}; there are {', '.join(sorted(known))}")
    return int(getattr(options, name))


def set_option(name: str, value: int) -> None:
    """Sets one interpreter option. ValueError for an unknown name."""
    get_option(name)
    setattr(options, name, int(value))


@contextmanager
def override(**values: Any) -> Iterator[None]:
    """Sets options inside a with-block."""
    before = {name: getattr(options, name) for name in values}
    try:
        for name, value in values.items():
            setattr(options, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(options, name, value)


def add_properties(module_name: str, properties: dict[str, property]) -> None:
    """Gives the module ``module_name`` the properties ``{name: property}``."""
    module = sys.modules[module_name]
    base = type(module)
    if not issubclass(base, types.ModuleType):
        raise AssertionError("issubclass(base, types.ModuleType) does not hold")
    module.__class__ = type(base.__name__, (base,), dict(properties))


def attribute_of(state: Callable[[], object], field: str, check: Callable[[Any], Any] = lambda value: value) -> property:
    """Property of a module that reads and writes ``state().field``; ``check(value)`` may replace the value."""

    def write(module: types.ModuleType, value: Any) -> None:
        setattr(state(), field, check(value))

    return property(lambda module: getattr(state(), field), write)
