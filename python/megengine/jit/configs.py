"""Options of :class:`megengine.jit.trace`, as plain checked values."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from .. import _core
from ..core._sizes import to_bytes
from ..core._telling import no_effect
from ..device import get_device_count

_SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%(\s*of\s+RAM)?\s*", re.ASCII | re.IGNORECASE)


def _environment_int(name: str, value: int) -> int:
    """Reads a ``MGB_SUBLINEAR_MEMORY_*`` variable, which overrides the program's value."""
    text = os.environ.get(name)
    if text is None:
        return value
    try:
        return int(text)
    except ValueError:
        raise AssertionError(f"{name}={text!r} is not an integer") from None


def share_of_plan(given: int | str | None) -> float:
    """Returns the share in a memory_limit such as "50%", of the bytes of the first call without a
    limit; 0 for other limits.
    """
    match = _SHARE.fullmatch(given) if isinstance(given, str) else None
    return _share(given, match) if match and not match[2] else 0.0


def _share(text: Any, match: re.Match[str]) -> float:
    share = float(match[1]) / 100
    if not 0 < share <= 1:
        raise ValueError(f"memory_limit: {text!r} is not a share between 0% and 100%")
    return share


def _memory_of_machine() -> int:
    """Returns the bytes of physical memory, or the limit of the process's control group."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            bound = file.read().strip()
    except OSError:
        return memory
    return min(memory, int(bound)) if bound.isdigit() else memory


def memory_limit_bytes(given: int | str | None) -> int:
    """The bytes of trace's memory_limit, else of ``MEGJIT_MEMORY_LIMIT``; 0 means no limit. ValueError for a share of a plan."""
    text = os.environ.get("MEGJIT_MEMORY_LIMIT", "")
    value, what = (text or None, "MEGJIT_MEMORY_LIMIT") if given is None else (given, "memory_limit")
    if value is None:
        return 0
    if isinstance(value, (Mapping, list, tuple)):
        raise TypeError(
            f"{what}: {value!r} names limits of parts, and a limit is of a whole call\n"
            "  why: all parts share one arena, in which values of one lie where those of another were: none has bytes of its own\n"
            "  fix: give one limit; jit.recompute(fn) marks the part whose values are not to be kept"
        )
    match = _SHARE.fullmatch(value) if isinstance(value, str) else None
    if match and not match[2]:
        raise ValueError(f"{what}: {value!r} is a share of a plan, which only trace(memory_limit=) takes\n  fix: write bytes, such as '6GB', or {str(value).strip() + ' of RAM'!r}")
    limit = int(_share(value, match) * _memory_of_machine()) if match else to_bytes(value, what)
    if limit == 0:
        raise ValueError(f"{what}: {value!r} leaves no memory")
    return limit


def check_interval() -> int:
    """Returns ``MEGJIT_CHECK``: of this number of calls without the body one is compared with the
    body; 0 compares none.
    """
    text = os.environ.get("MEGJIT_CHECK", "")
    return int(text) if text.isdecimal() else int(bool(text))


def version_memory_bytes() -> int:
    """The bytes that versions of a function may hold beside its arena: ``MEGJIT_VERSION_MEMORY``."""
    return to_bytes(os.environ.get("MEGJIT_VERSION_MEMORY") or "512MB", "MEGJIT_VERSION_MEMORY")


class SublinearMemoryConfig:
    """Tells `trace` to search for a plan that recomputes values instead of keeping them.

    Parameters
    ----------
    thresh_nr_try : int
        Number of thresholds to try.
    genetic_nr_iter : int
        Number of rounds of the genetic search; 0 leaves the search out.
    genetic_pool_size : int
        Number of plans kept in a round.
    lb_memory_mb : int
        Memory in MiB below which no more values are dropped.
    num_worker : int
        Number of threads of the search.

    Raises
    ------
    AssertionError
        For a value below its minimum (0, or 1 worker).
    TypeError
        For a value that is not an int.

    See Also
    --------
    DTRConfig : Recomputes only as far as a threshold asks for.

    Notes
    -----
    The variable ``MGB_SUBLINEAR_MEMORY_<FIELD>`` overrides the value in the program; for the last
    two it ends in ``LOWER_BOUND_MB`` and ``WORKERS``.

    References
    ----------
    Chen et al., 2016, "Training Deep Nets with Sublinear Memory Cost" (the idea).

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import Parameter, autodiff, jit
    >>> x = Parameter(F.ones((256, 256)))
    >>> gm = autodiff.GradManager().attach(x)
    >>> def step():
    ...     with gm:
    ...         y = x
    ...         for _ in range(16):
    ...             y = F.sin(F.exp(y))
    ...         gm.backward(y.sum())
    >>> all_kept = jit.trace(step).plan()
    >>> searched = jit.trace(step, sublinear_memory_config=jit.SublinearMemoryConfig()).plan()
    >>> searched.planned_bytes < all_kept.planned_bytes / 2
    True
    """

    thresh_nr_try: int
    genetic_nr_iter: int
    genetic_pool_size: int
    lb_memory_mb: int
    num_worker: int

    def __init__(
        self,
        thresh_nr_try: int = 10,
        genetic_nr_iter: int = 0,
        genetic_pool_size: int = 20,
        lb_memory_mb: int = 0,
        num_worker: int = max(1, get_device_count("cpu") // 2),
    ):
        given = {
            "thresh_nr_try": (thresh_nr_try, 0),
            "genetic_nr_iter": (genetic_nr_iter, 0),
            "genetic_pool_size": (genetic_pool_size, 0),
            "lb_memory_mb": (lb_memory_mb, 0),
            "num_worker": (num_worker, 1),
        }
        names = {"lb_memory_mb": "LOWER_BOUND_MB", "num_worker": "WORKERS"}
        for field, (value, least) in given.items():
            variable = "MGB_SUBLINEAR_MEMORY_" + names.get(field, field.upper())
            value = _environment_int(variable, value)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{field} must be an int, got {value!r} ({type(value).__name__})")
            if not value >= least:
                raise AssertionError(f"{field} must be at least {least}, got {value}")
            setattr(self, field, value)


class DTRConfig:
    """Tells `trace` to recompute values so that a call holds less than a threshold (tensor
    rematerialization).

    Parameters
    ----------
    eviction_threshold : int
        Threshold in bytes, above 0. Recomputation goes only as far as needed to bring the memory
        that a call holds between its operations below the threshold. If that is impossible, it goes
        as far as it can; for a guaranteed limit use ``memory_limit``.
    evictee_minimum_size : int
        Has no effect, and warns so: the search weighs size against time by itself.
    recomp_memory_factor, recomp_time_factor : float
        Warn that they have no effect.

    Raises
    ------
    AssertionError
        For a threshold that is not positive.

    Notes
    -----
    A trace is known before it runs, so the values to drop are chosen once, by the same search as
    for `SublinearMemoryConfig`. For tensors outside of traced functions use `megengine.dtr`.

    References
    ----------
    Kirisame et al., 2021, "Dynamic Tensor Rematerialization" (the idea).

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import Parameter, autodiff, jit
    >>> x = Parameter(F.ones((256, 256)))
    >>> gm = autodiff.GradManager().attach(x)
    >>> def step():
    ...     with gm:
    ...         y = x
    ...         for _ in range(16):
    ...             y = F.sin(F.exp(y))
    ...         gm.backward(y.sum())
    >>> plan = jit.trace(step, dtr_config=jit.DTRConfig(eviction_threshold=4 << 20)).plan()
    >>> plan.recompute_flops_ratio > 0
    True
    """

    def __init__(
        self,
        eviction_threshold: int = 0,
        evictee_minimum_size: int = 1 << 20,
        recomp_memory_factor: float = 1,
        recomp_time_factor: float = 1,
    ):
        if not eviction_threshold > 0:
            raise AssertionError(f"eviction_threshold must be positive, got {eviction_threshold}")
        no_effect(
            "DTRConfig",
            "the search weighs size against time by itself",
            evictee_minimum_size=evictee_minimum_size != 1 << 20,
            recomp_memory_factor=recomp_memory_factor != 1,
            recomp_time_factor=recomp_time_factor != 1,
        )
        self.eviction_threshold = eviction_threshold
        self.evictee_minimum_size = evictee_minimum_size
        self.recomp_memory_factor = recomp_memory_factor
        self.recomp_time_factor = recomp_time_factor


class GraphOptimizationConfig:
    """Chooses which kinds of operations generated kernels may join with elementwise ones.

    Two attributes choose them: ``jit_fuse_dimshuffle`` (transposes and reshapes) and
    ``jit_fuse_reduce`` (reductions). Each is True, False or None, which leaves it to ``opt_level``
    (allowed at 3). True turns code generation on at any ``opt_level``. Both True raises ValueError
    when a function is traced: one kernel either shuffles axes or reduces.

    Examples
    --------
    >>> from megengine import jit
    >>> config = jit.GraphOptimizationConfig()
    >>> config.jit_fuse_reduce = True
    >>> config
    GraphOptimizationConfig { jit_fuse_dimshuffle = UNSET, jit_fuse_reduce = ON }
    >>> step = jit.trace(lambda x: (x * 2).sum(), graph_opt_config=config)
    """

    def __init__(self) -> None:
        self.jit_fuse_dimshuffle: bool | None = None
        self.jit_fuse_reduce: bool | None = None

    def _choices(self, opt_level: int) -> dict[str, bool]:
        """Returns the compiler's choices: whether to generate kernels below level 3, and what these
        may hold.
        """
        if self.jit_fuse_dimshuffle and self.jit_fuse_reduce:
            raise ValueError(
                "jit_fuse_dimshuffle and jit_fuse_reduce are both True\n"
                "  why: one kernel either shuffles axes or reduces\n"
                "  fix: set one of them"
            )
        shuffle, reduce = self.jit_fuse_dimshuffle, self.jit_fuse_reduce
        return {
            "fuse": bool(shuffle or reduce),
            "fuse_dimshuffle": opt_level >= 3 if shuffle is None else bool(shuffle),
            "fuse_reduce": opt_level >= 3 if reduce is None else bool(reduce),
        }

    def __repr__(self) -> str:
        words = {None: "UNSET", True: "ON", False: "OFF"}
        told = ", ".join(f"{field} = {words.get(value, value)}" for field, value in vars(self).items())
        return f"GraphOptimizationConfig {{ {told} }}"


def spill_folder(given: str | os.PathLike[str] | None, is_limited: bool) -> str:
    """The folder of trace's spill; "" means none. TypeError, ValueError or FileNotFoundError if it
    is no folder, or there is no limit.
    """
    if given is None:
        return ""
    if not isinstance(given, (str, os.PathLike)):
        raise TypeError(f"spill: {given!r} is not the path of a folder")
    folder = os.path.abspath(os.fspath(given))
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"spill: there is no folder {folder!r}\n  fix: create it, or name another one")
    if not is_limited:
        raise ValueError(
            f"spill: {folder!r} is for what a limit on memory has no room for, and there is none\n"
            '  fix: give a limit, too, such as memory_limit="2GB"'
        )
    return folder


def _memory_options(limit: int, spill: str, sublinear: SublinearMemoryConfig | None, dtr: DTRConfig | None) -> _core.MemoryOptions:
    """limit: bytes of a call, or 0. spill: a folder, or ""."""
    options = _core.MemoryOptions(
        limit=limit,
        spill=spill,
        is_sublinear=sublinear is not None or dtr is not None,
        enough_bytes=0 if dtr is None else dtr.eviction_threshold,
    )
    if sublinear is not None:
        options.enough_bytes = max(options.enough_bytes, min(sublinear.lb_memory_mb << 20, sys.maxsize))
        options.search = _core.RematSearch(
            thresholds=min(sublinear.thresh_nr_try, 1 << 20),
            genetic_rounds=min(sublinear.genetic_nr_iter, 1 << 20),
            genetic_pool=min(sublinear.genetic_pool_size, 1 << 20),
            workers=min(sublinear.num_worker, 1 << 20),
        )
    return options


class Options(TypedDict, total=False):
    """The options of `trace`, for editors and type checkers; the docstring of `trace` explains
    them.
    """

    symbolic: bool
    capture_as_const: bool
    record_only: bool
    sublinear_memory_config: SublinearMemoryConfig | None
    dtr_config: DTRConfig | None
    profiling: bool
    opt_level: int
    graph_opt_config: GraphOptimizationConfig | None
    symbolic_shape: bool
    without_host: bool | Literal["auto"] | str
    imperative: bool
    numerics: Literal["fast", "exact"] | str
    memory_limit: int | str | None
    on_mismatch: Literal["raise", "record"] | str
    spill: str | os.PathLike[str] | None


def trace_options(
    *,
    opt_level: int,
    exact: bool,
    fusion: GraphOptimizationConfig | None,
    memory_limit: int,
    spill: str,
    sublinear: SublinearMemoryConfig | None,
    dtr: DTRConfig | None,
    **fields: Any,
) -> _core.TraceOptions:
    """Returns the compiler's options for a traced function; ``fields`` are those of
    `_core.TraceOptions`.
    """
    pipeline = _core.PipelineOptions(
        opt_level=opt_level,
        exact=exact,
        memory=_memory_options(memory_limit, spill, sublinear, dtr),
        **(fusion or GraphOptimizationConfig())._choices(opt_level),
    )
    return _core.TraceOptions(pipeline=pipeline, version_bytes=version_memory_bytes(), **fields)
