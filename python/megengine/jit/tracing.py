"""``trace``: record a function once, then run it as a compiled, memory-planned program."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import html
import os
import types
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

import numpy as np

from .. import _core
from .._files.disk import written_whole
from ..core._telling import no_effect
from ..core._tree import flatten
from ..core._tree import leaves as tree_leaves
from ..device import get_max_allocated_memory
from ..reports.progress import while_waiting
from ..tensor import Tensor
from ..utils.module_utils import tensors_in
from . import batches, mismatch
from .card_plan import CardPlan, CardView, architecture_of, merge_card_plans
from .configs import (
    DTRConfig,
    GraphOptimizationConfig,
    Options,
    SublinearMemoryConfig,
    check_interval,
    memory_limit_bytes,
    share_of_plan,
    spill_folder,
    trace_options,
)
from .dump import Dumping
from .report import (
    GeneratedKernel,
    Kernels,
    MemoryPlan,
    OutsideProgram,
    measured_run,
    merge_plans,
    merge_profiles,
    timeline_of,
)
from .results import reason_in_results, refuse_used_up
from .steps import ManualSteps

if TYPE_CHECKING:
    from typing import Unpack

    from .guards import Guards

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Plan = TypeVar("_Plan", bound=MemoryPlan)

TraceError = _core.TraceError


def is_tracing() -> bool:
    """Is a traced function running (and not inside exclude_from_trace)?"""
    return _core.is_tracing()


def exclude_from_trace() -> _core.Excluded:
    """Runs the operations of a ``with`` block eagerly, without recording them.

    The block runs in every call, so its control flow may differ from call to call, and it may read
    the values of traced tensors. Outside of a trace, or nested, it does nothing.

    Returns
    -------
    Excluded
        The block's context.

    Examples
    --------
    >>> from megengine import jit, tensor
    >>> @jit.trace
    ... def double(x):
    ...     x = x * 2
    ...     with jit.exclude_from_trace():
    ...         if x.numpy() > 4:
    ...             x = x - 1
    ...     return x
    >>> double(tensor(1.0)).item(), double(tensor(3.0)).item()
    (2.0, 5.0)
    """
    return _core.Excluded()


def array_comparator(lhs: np.ndarray, rhs: np.ndarray) -> bool:
    """Are the arrays equal, element for element? NaN is not equal to itself."""
    return bool(np.all(lhs == rhs))


_MOST_TRIALS = 7  # recordings, after which "auto" lets the body run for some calls
_READS = "the body reads values of tensors"
_MOST_RECORDINGS = 4  # of without_host=True one after the other, before a warning


class _Decorator(Protocol):
    """What ``trace`` gives without a function: called with one, it traces that."""

    def __call__(self, function: Callable[_P, _R], /) -> trace[_P, _R]: ...


class trace(ManualSteps, Dumping, Generic[_P, _R]):
    """Compiles a function to a static graph; ``@trace`` and ``@trace(...)`` both work.

    The first call records the operations of the function. Later calls run its Python body again,
    match each operation against the record (a mismatch raises `TraceError`), and take the values
    from the compiled program. Positional tensors are the inputs; keyword arguments (modules,
    optimizers, gradient managers) are captured objects. New input shapes or dtypes are recorded as
    another version.

    Parameters
    ----------
    function : callable
        What is compiled; without it a decorator is made.
    symbolic : bool
        Tensors are placeholders in the first call, which computes nothing until it returns; reading
        a value in it raises ValueError.
    capture_as_const : bool
        Outside tensors other than arguments, and those that the function updates, are constants
        (for `dump`).
    record_only : bool
        Compute nothing, for dumping without memory; implies symbolic and capture_as_const.
    sublinear_memory_config : SublinearMemoryConfig or None
        Recompute values instead of keeping them, to lower the memory peak.
    dtr_config : DTRConfig or None
        The same, but only until its eviction_threshold is met.
    profiling : bool
        Programs measure each step, for `get_profile`.
    opt_level : int
        0 runs the operations as recorded; 1 simplifies arithmetic; 2 optimizes the whole graph; 3
        also fuses operations into generated kernels (by the compiler that ``MGB_JIT_BACKEND``
        names).
    graph_opt_config : GraphOptimizationConfig or None
        Which operations may be fused into kernels.
    symbolic_shape : bool
        Whether ``x.shape`` is a Tensor inside the function.
    without_host : bool, {"auto"} or str
        Calls after the first do not run the Python body. "auto": skip it only if everything that it
        reads is guarded and it has no side effects (print, logging, append, ...); otherwise it runs
        in each call, and `explain` says why.
    imperative : bool
        Calls after the first run the function as it is, each operation eagerly and unchecked; what
        the first one recorded is for `dump` and the reports.
    numerics : {"fast", "exact"} or str
        "exact" allows only optimizations whose results are bit-identical to those of the function
        without ``trace``; "fast" may reorder additions and rewrite formulas.
    memory_limit : int, str or None
        In bytes, or as text such as "6GB": the memory that a call may take for inputs, parameters,
        results and everything in between. The cheapest plan that fits is used, by recomputing
        values that are not kept; if none fits, MemoryError names the smallest possible limit before
        anything runs. "50%" is a share of what the first call would take without a limit, and
        "50% of RAM" one of the machine's memory (or of its control group's); both are bytes from
        then on, for all calls. Implies symbolic. The variable ``MEGJIT_MEMORY_LIMIT`` sets a limit for
        functions without one (and does not imply symbolic).
    on_mismatch : {"raise", "record"} or str
        What a call does whose body issues other operations than the recorded ones. "raise" is a
        TraceError; "record" makes another version of it, up to 16 for calls of the same types.
    spill : str, os.PathLike or None
        A folder, for a function on a CPU with a ``memory_limit``: what the limit has no room for, and
        what is not cheap to compute again, waits in a file there, parameters and an optimizer's
        states included. The file has no name, and is gone with the process.

    Raises
    ------
    TypeError
        If the function cannot be called, and with without_host for NumPy arrays as positional
        arguments.
    ValueError
        For options out of range.
    FileNotFoundError
        If ``spill`` is no folder.

    Notes
    -----
    Inside another traced function, or in an open GradManager, a call runs the plain function, so
    that the outer one sees everything.

    Examples
    --------
    >>> from megengine import jit, tensor
    >>> @jit.trace(without_host=True)
    ... def double(x):
    ...     print("the body runs")
    ...     return x * 2
    >>> double(tensor(1.0)).item()
    the body runs
    2.0
    >>> double(tensor(3.0)).item()
    6.0
    >>> double(tensor([3.0, 4.0])).numpy().tolist()  # another shape, another version
    the body runs
    [6.0, 8.0]
    """

    third_party_backend = False
    _check_interval, _skipped = 0, 0  # of calls without the body: which are compared with it; how many there were
    # `jit.trace.enabled = False` lets every traced function run as if it were not traced, as before MegEngine 1.0.
    enabled = True
    # `python -m megengine kernels` puts a list here: functions traced from then on are measured, and noted in it.
    _measured: list[trace[..., Any]] | None = None
    # `python -m megengine plan` puts a function here: it is given each call, which then does not run.
    _planned_by: Callable[[trace[..., Any], tuple[Any, ...], dict[str, Any]], Any] | None = None

    @overload
    def __new__(cls, function: Callable[_P, _R], **options: Unpack[Options]) -> trace[_P, _R]: ...
    @overload
    def __new__(cls, **options: Unpack[Options]) -> _Decorator: ...  # type: ignore[misc]  # no trace yet
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if not args and "function" not in kwargs:
            return functools.partial(cls, **kwargs)
        return super().__new__(cls)

    @overload
    def __init__(self, function: Callable[_P, _R], **options: Unpack[Options]) -> None: ...
    @overload  # for checkers that ask __init__ what __new__ makes: called with a function, it gives something like it
    def __init__(self: trace[[Callable[..., Any]], trace[..., Any]], **options: Unpack[Options]) -> None: ...
    def __init__(  # type: ignore[misc]  # it takes no other options than these
        self,
        function: Callable[_P, _R],
        *,
        symbolic: bool = False,
        capture_as_const: bool = False,
        record_only: bool = False,
        sublinear_memory_config: SublinearMemoryConfig | None = None,
        dtr_config: DTRConfig | None = None,
        profiling: bool = False,
        opt_level: int = 2,
        graph_opt_config: GraphOptimizationConfig | None = None,
        symbolic_shape: bool = True,
        without_host: bool | Literal["auto"] | str = False,
        imperative: bool = False,
        numerics: Literal["fast", "exact"] | str = "fast",
        memory_limit: int | str | None = None,
        on_mismatch: Literal["raise", "record"] | str = "raise",
        spill: str | os.PathLike[str] | None = None,
    ) -> None:
        if not callable(function):
            raise TypeError(f"trace: {function!r} is not a function")
        if opt_level not in (0, 1, 2, 3):
            raise ValueError(f"trace: opt_level must be 0, 1, 2 or 3, got {opt_level!r}")
        if numerics not in ("fast", "exact"):
            raise ValueError(f"trace: numerics must be 'fast' or 'exact', got {numerics!r}")
        if without_host not in (False, True, "auto"):
            raise ValueError(f"trace: without_host must be False, True or 'auto', got {without_host!r}")
        if on_mismatch not in ("raise", "record"):
            raise ValueError(f"trace: on_mismatch must be 'raise' or 'record', got {on_mismatch!r}")
        flags = {"symbolic": symbolic, "capture_as_const": capture_as_const, "record_only": record_only, "profiling": profiling}
        for name, flag in {**flags, "symbolic_shape": symbolic_shape, "imperative": imperative}.items():
            if flag not in (False, True):
                raise TypeError(f"trace: {name} must be True or False, got {flag!r}")
        self._share = share_of_plan(memory_limit)  # 0 once it is bytes
        limit = 0 if self._share else memory_limit_bytes(memory_limit)
        self._is_limited = memory_limit is not None
        self._is_part = False  # was called where it is a part of another program
        self.__wrapped__ = function
        self._symbolic = symbolic or record_only or memory_limit is not None
        self._capture_as_const = capture_as_const or record_only
        self._record_only = record_only
        self._body = self._body_for_dump if self._capture_as_const else function
        self._sublinear_memory_config = sublinear_memory_config
        self._dtr_config = dtr_config
        self._profiling = profiling or trace._measured is not None
        if trace._measured is not None:
            trace._measured.append(self)
        self._check_external = True
        self._opt_level = opt_level
        self._exact = numerics == "exact"
        self._graph_opt_config = graph_opt_config
        self._without_host = bool(without_host) and not record_only  # which never runs anything
        # With "auto": recordings that were in vain, how many calls run the body before the next, and how many will after it.
        self._trials = 0 if without_host == "auto" else None
        self._walks, self._pause = 0, 8
        self._imperative = imperative
        self._guards: Guards | None = None  # of the last recording without host, if later calls need no body
        self._known: dict[int, Guards] = {}  # of all such recordings, by number
        self._guard_reason: str | None = None
        self._was_recorded = False  # by the last call
        self._beside_plan: tuple[OutsideProgram, ...] = ()  # what its plans say of another framework's part
        self._recordings = 0
        if interval := check_interval():
            self._check_interval = interval
        own = type(self)
        self._flattens = own.flatten_inputs is trace.flatten_inputs  # no subclass does
        steps_in = own.trace_without_host is not trace.trace_without_host or not self._flattens
        self._needs_no_python = not (steps_in or imperative or self._capture_as_const or self._check_interval)  # where guards hold
        self._has_dropped = False  # versions
        self._options = trace_options(
            name=self._name_and_line(),
            symbolic=self._symbolic,
            symbolic_shape=symbolic_shape,
            capture_as_const=self._capture_as_const,
            record_only=record_only,
            profiling=self._profiling,
            opt_level=self._opt_level,
            exact=self._exact,
            fusion=graph_opt_config,
            memory_limit=limit,
            spill=spill_folder(spill, is_limited=bool(limit or self._share)),
            records_mismatches=on_mismatch == "record",
            sublinear=sublinear_memory_config,
            dtr=dtr_config,
        )
        self._function = _core.TraceFunction(self._options)
        functools.update_wrapper(self, function)

    @staticmethod
    def _own_names() -> frozenset[str]:
        """The attributes that each traced function has: what else there is, a program has put there."""
        return frozenset(name for name in trace.__init__.__code__.co_names if name.startswith("_"))

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"trace: the traced function {self._name_and_line()} cannot be copied or pickled\n"
            "  why: it holds programs, and the tensors of this process that they read and write\n"
            "  fix: copy fn.__wrapped__ and trace the copy; of a module save the state_dict(), or delete the attribute that is traced before"
        )

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    @property
    def without_host(self) -> bool:
        """Whether later calls leave the Python body out, as given to the constructor ("auto" counts
        as True).
        """
        return self._without_host

    @property
    def check_external(self) -> bool:
        """Are tensors from outside compared with the recorded ones? Without a body to run there are none."""
        return self._check_external

    @check_external.setter
    def check_external(self, flag: bool) -> None:
        no_effect("trace", "tensors from outside are always checked", check_external=not flag)
        self._check_external = bool(flag)

    if TYPE_CHECKING:

        def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            """The extension takes each call (`_core._set_trace_class`), and answers it where it knows that the body would do the same."""
            return self._call(*args, **kwargs)

    def _call_as_part(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """A call inside another trace, whose recorder sees everything, or inside an open GradManager, which needs the values between."""
        if trace.enabled and not self._is_part:
            self._tell_of_part()
        return self.__wrapped__(*args, **kwargs)

    def _call(self, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        """Any other call that the extension cannot answer from the last ones."""
        if self._share:
            self._settle_share(args, kwargs)
        if trace._planned_by is not None:
            return trace._planned_by(self, args, kwargs)
        if self._imperative and self.traced:
            return self.__wrapped__(*args, **kwargs)
        if self._without_host:
            return self.trace_without_host(*args, **kwargs)
        return self._run_body(self._function, args, kwargs)

    def _tell_of_part(self) -> None:
        """A limit that nobody keeps is told once; `explain` says the same of any function."""
        self._is_part = True
        if self._is_limited:
            inside = "a traced function" if _core.is_tracing() else "an open GradManager"
            warnings.warn(
                f"{self._name_and_line()} is called inside of {inside}, which it is a part of there: its memory_limit is not kept\n"
                "  fix: give the limit to the outer function, or trace the whole step, with the GradManager in it",
                stacklevel=3,
            )

    def _settle_share(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A limit that is a share of a plan becomes bytes: of what these arguments take without a limit."""
        share, self._share = self._share, 0.0
        try:
            whole = self._plan_call(args, kwargs, memory_limit=0)[0].planned_bytes
        except BaseException:
            self._share = share
            raise
        self._options.pipeline.memory.limit = max(1, int(whole * share))
        self._function = _core.TraceFunction(self._options)

    def trace_without_host(self, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        """Runs one call without the Python body, once it was recorded and while its guards hold.

        Parameters
        ----------
        *args : object
            The tensors of the call.
        **kwargs : object
            What it captures.

        Returns
        -------
        object
            What the function returns.
        """
        if self._walks:
            return self._walk(args, kwargs)
        leaves = self.flatten_inputs(*args, **kwargs)
        guards = self._known.get(self._function.guards_for(leaves)) if self._known else None
        if guards is not None:
            self._guard_reason = guards.reason(args, kwargs, leaves)
            if self._guard_reason is None:
                run: Callable[..., Any] = self._function.run_direct
                if self._check_interval and self._is_checked():
                    from .checked_calls import Trial  # slow to import

                    run = Trial(self._function, self._options, self._body, args, kwargs, leaves, guards).run_direct
                if self._was_recorded:
                    self._was_recorded = False
                    with self._compiling():
                        flat = run(leaves, guards.number)
                else:
                    flat = run(leaves, guards.number)
                if flat is not None:
                    if self._needs_no_python:
                        self._function.set_facts(guards.number, guards.facts, guards.make_result)
                    return guards.make_result(flat)
        if self._trials is None:
            return self._capture(args, kwargs, leaves)
        if self._known and guards is None:  # what was decided holds for other shapes, too
            return self._captured_or_walked(args, kwargs, leaves)
        return self._decide(args, kwargs, leaves)

    def _is_checked(self) -> bool:
        """Is it the first, or the n-th, call without the body?"""
        self._skipped += 1
        return (self._skipped - 1) % self._check_interval == 0

    def _decide(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Tensor]) -> Any:
        """One call with the body, which says whether later ones need it: the first records as ever, the second for calls without."""
        from .effects import acting_part  # slow to import

        if self._function.version is None or any(isinstance(leaf, np.ndarray) for leaf in tree_leaves(args)):
            return self.trace_normal(*args, **kwargs)
        if self._trials == _MOST_TRIALS:
            reason = f"it was recorded {_MOST_TRIALS} times: {self._guard_reason}"
        elif found := acting_part(self.__wrapped__, args, kwargs):
            reason = f"the body acts on the outside: {found}"
        else:
            return self._captured_or_walked(args, kwargs, leaves)
        self._begin_walking(reason)
        return self._walk(args, kwargs)

    def _captured_or_walked(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Tensor]) -> Any:
        result = self._capture(args, kwargs, leaves)
        self._trials = (self._trials or 0) + 1
        if self._guards is None:
            self._begin_walking(self._guard_reason)
        return result

    def _begin_walking(self, reason: str | None) -> None:
        """Calls run the body from here on; the decision is made anew after some, each time after twice as many."""
        self._guard_reason, self._trials = reason, 0
        self._walks, self._pause = self._pause, 2 * self._pause
        if self._known:  # of shapes whose recordings nobody has asked whether they still hold
            self._known = {}
            self._function.clear()

    def _walk(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One of these calls. Behind one that raises, or reads no value any more, the function is as good as new."""
        walks, self._walks = self._walks, 0
        result = self.trace_normal(*args, **kwargs)
        if self._guard_reason != _READS or self._function.has_read:
            self._walks = walks - 1
        return result

    def _capture(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Tensor]) -> Any:
        """One call with the body, recorded for calls without it."""
        from .guards import Guards  # slow to import

        self._guards = None
        self._recordings = self._recordings + 1 if self._was_recorded else 1  # without a call between them that needed none
        self._was_recorded = True
        guards = Guards(self.__wrapped__, args, kwargs, leaves)
        with self._compiling():
            try:
                self._function.begin_capture(leaves)
                result = self._named_body(*args, **kwargs)
                found: list[Tensor] = []
                guards.result_tree = flatten(result, found, {})
                guards.make_result = guards.result_maker()
                if self._trials is None:
                    refuse_used_up(guards.result_tree)
            except BaseException:
                self._function.abort(leaves)
                raise
            try:
                outside = [guards.has_seen(tensor) for tensor in found]
                unrepeatable = self._function.finish_capture(leaves, found, guards.number, outside, self._trials is not None)
            except BaseException:
                self._function.abort(leaves)  # nothing where the call has ended
                raise
        made = [tensor for tensor, was_there in zip(found, outside, strict=True) if not was_there]
        unrepeatable = unrepeatable or reason_in_results(guards.result_tree, leaves, made, guards.has_seen)
        guards.leave_grads_of(self._function.tensors_with_grads(), kwargs, leaves)
        reason = unrepeatable or guards.reason_after_recording(args, kwargs, leaves)
        alive = set(self._function.all_guards())
        self._known = {number: known for number, known in self._known.items() if number in alive}
        if reason is None:
            self._guards = self._known[guards.number] = guards
        else:
            self._guard_reason = reason
            if self._recordings == _MOST_RECORDINGS and self._trials is None:
                warnings.warn(
                    f"{self._name_of_function()} is recorded again in each call, which takes longer than without without_host=True: {reason}",
                    stacklevel=4,
                )
        return result

    def trace_normal(self, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        """Runs one call with the Python body: recorded the first time, matched afterwards.

        Parameters
        ----------
        *args : object
            The tensors of the call.
        **kwargs : object
            What it captures.

        Returns
        -------
        object
            What the function returns.
        """
        return self._run_body(self._function, args, kwargs)

    def _run_body(self, function: _core.TraceFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of the body, whose calls ``function`` records or matches."""
        if self._flattens and not kwargs and _core.are_tensors(args):
            leaves: list[Any] = list(args)
        else:
            leaves = self.flatten_inputs(*args, **kwargs)
        try:  # all of it: Ctrl-C may come behind each line
            records = function.begin(leaves)
            # Any call for dump may become a recording, where it leaves what is known.
            body = self._named_body if records or self._capture_as_const else self._body
            if records or self._was_recorded:
                self._was_recorded = records
                with self._compiling():
                    result = body(*args, **kwargs)  # held: what nobody holds is not computed
                    function.finish(leaves)
                if records and function.dropped_versions and not self._has_dropped:
                    self._has_dropped = True
                    warnings.warn(
                        f"{self._name_of_function()} was called with so many shapes that the programs of the first ones are dropped"
                        " and made again when they come back\n  fix: raise MEGJIT_VERSION_MEMORY, or pad to fewer shapes",
                        stacklevel=3,
                    )
            else:
                result = body(*args, **kwargs)
                function.finish(leaves)
        except BaseException as error:
            function.abort(leaves)  # nothing where the call has ended
            if isinstance(error, TraceError):
                mismatch.explain(error)
            elif isinstance(error, MemoryError) and function is self._function:
                batches.propose(error, args, lambda smaller: self._plan_call(smaller, kwargs))
            raise
        return result

    def _compiling(self) -> contextlib.AbstractContextManager[None]:
        """Around what may plan and compile: a call that records, or the one behind it.

        From before the body: to show something lets other threads run, and they should not meet what it rebinds.
        """
        return while_waiting(f"compiling {self._name_of_function()}", part=_core.searched_part)

    def flatten_inputs(self, *args: _P.args, **kwargs: _P.kwargs) -> list[Tensor]:
        """Returns the tensors among the positional arguments, containers opened, in order.

        With capture_as_const those among the keyword arguments follow.

        Parameters
        ----------
        *args : object
            Those of a call.
        **kwargs : object
            Those of a call.

        Returns
        -------
        list of Tensor
            In their order.

        Raises
        ------
        TypeError
            For NumPy arrays if later calls do not run the body.
        """
        if self._capture_as_const and not all(isinstance(a, Tensor) for a in args):
            raise AssertionError("Only support tensor type args when capture_as_const is enabled\n  fix: pass Tensors by position, and all else by keyword")
        leaves: list[Tensor] = []
        for position, value in enumerate(args):
            if isinstance(value, Tensor):
                leaves.append(value)
            elif isinstance(value, np.ndarray) and self._without_host and self._trials is None:
                raise TypeError(
                    f"trace: positional argument {position} ({self._argument_name(position)}) is a NumPy array\n"
                    "  why: calls that do not run the body would compute with the first array\n"
                    "  fix: pass megengine.tensor(array), or make it a keyword argument"
                )
            else:
                leaves += tensors_in(value)
        if self._capture_as_const:
            leaves.extend(value for value in kwargs.values() if isinstance(value, Tensor))
        return leaves

    def _name_and_line(self) -> str:
        code = getattr(self.__wrapped__, "__code__", None)
        place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
        return (self._name_of_function() + place).encode("utf-8", "backslashreplace").decode()  # of files with any bytes in their names

    def _argument_name(self, position: int) -> str:
        code = getattr(self.__wrapped__, "__code__", None)
        names = code.co_varnames[: code.co_argcount] if code else ()
        return repr(names[position]) if position < len(names) else "a variable argument"

    # ---- what was made of it

    def _facts(self) -> list[tuple[str, str]]:
        """What is shown of the function: (what, value)."""
        mode = "without_host" if self._without_host else "symbolic" if self._symbolic else "by value"
        facts = [("mode", f"{mode}, opt_level={self._opt_level}")]
        if not self.traced:
            return [*facts, ("versions", "not called yet")]
        if self._function.version is None:
            return [*facts, ("versions", f"{self.explain().partition(chr(10))[0]}, no call has run")]
        kernels = sum(graph.count("\n  | kernel ") for graph in self._function.graphs(optimized=True))
        return [
            *facts,
            ("versions", self.explain().partition("\n")[0]),
            ("planned", _core.size_text(merge_plans(self._function.plans()).planned_bytes)),
            ("generated kernels", str(kernels)),
        ]

    def __repr__(self) -> str:
        return f"<trace {self._name_and_line()}: " + "; ".join(f"{what}: {value}" for what, value in self._facts()) + ">"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{what}</th><td>{html.escape(value)}</td></tr>" for what, value in self._facts())
        return f"<table><caption>trace {html.escape(self._name_and_line())}</caption>{rows}</table>"

    def memory_plan(self) -> MemoryPlan:
        """Returns the plan of the version that ran last, with the measured times and memory of its
        runs under ``profiling=True``.

        Raises RuntimeError before the first call.
        """
        plans = self._function.plans()
        measured = measured_run(plans, self._function.profiles(), get_max_allocated_memory()) if self._profiling else None
        return self._titled(merge_plans(plans, measured), self._options.pipeline.memory.limit)

    def _titled(self, plan: _Plan, limit: int) -> _Plan:
        """The plan with what its page says above the pictures."""
        return dataclasses.replace(plan, function=self._name_and_line(), limit=limit or None, outside=self._beside_plan)

    def plan(self, *args: _P.args, **kwargs: _P.kwargs) -> MemoryPlan:
        """Returns the memory plan that a call with these arguments would have; nothing is computed.

        The body runs once, on placeholders: no memory is allocated for values that it would
        compute. Tensors that it rebinds keep their values.

        Parameters
        ----------
        *args : object
            Those of a call.
        **kwargs : object
            Those of a call.

        Returns
        -------
        MemoryPlan
            The plan of a call.

        Raises
        ------
        MemoryError
            As the call does, if no plan fits the limit.

        Examples
        --------
        >>> import megengine.functional as F
        >>> from megengine import jit
        >>> @jit.trace
        ... def double(x):
        ...     return x * 2
        >>> double.plan(F.ones((256, 256))).planned_bytes  # input, result (256 KiB each) and 2
        524292
        """
        return self._plan_call(args, kwargs)[0]

    def plan_with_curve(self, *args: _P.args, **kwargs: _P.kwargs) -> MemoryPlan:
        """Returns the same as `plan`, with the curve of bytes that recomputation could save.

        Parameters
        ----------
        *args : object
            Those of a call.
        **kwargs : object
            Those of a call.

        Returns
        -------
        MemoryPlan
            The plan of a call.
        """
        return self._plan_call(args, kwargs, with_curve=True)[0]

    def on(self, card: str) -> CardView[_P]:
        """Returns this function as it would run on a GPU that need not be there.

        Parameters
        ----------
        card : str
            An architecture: "sm_80" (A100), "sm_86" (A10), "sm_89" (L40S), "sm_90" (H100), "sm_100" (B200) or
            "sm_120" (RTX 5090).

        Returns
        -------
        CardView
            Its ``plan(*args)`` and ``kernels()`` are for that card.

        Raises
        ------
        ValueError
            For another name.

        Examples
        --------
        >>> import megengine.functional as F
        >>> from megengine import jit
        >>> @jit.trace
        ... def double(x):
        ...     return x * 2
        >>> double.on("sm_90").plan(F.ones((256, 256))).launches
        1
        """

        arch = architecture_of(card)

        def plan_on(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CardPlan:
            planner, _ = self._planner(args, kwargs)
            return self._titled(merge_card_plans(planner.plans_on(arch), card), self._options.pipeline.memory.limit)

        return CardView(plan_on)

    def _plan_call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], with_curve: bool = False, memory_limit: int | None = None, card: str = ""
    ) -> tuple[MemoryPlan, Any]:
        """The plan of a call that is not run, and what the call would return, on placeholders without values.

        memory_limit: bytes, in place of the function's own. card: a described GPU, in place of the device of the arguments.
        """
        if self._share and memory_limit is None:
            self._settle_share(args, kwargs)
        planner, result = self._planner(args, kwargs, with_curve, memory_limit)
        plan = merge_card_plans(planner.plans_on(architecture_of(card)), card) if card else merge_plans(planner.plans())
        limit = self._options.pipeline.memory.limit if memory_limit is None else memory_limit
        return self._titled(plan, limit), result

    def _planner(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], with_curve: bool = False, memory_limit: int | None = None
    ) -> tuple[_core.TraceFunction, Any]:
        """A call that was recorded, and is not run; what it would return."""
        options = self._options.copy()
        options.symbolic = options.only_plan = True
        options.pipeline.memory.only_looks = with_curve
        if memory_limit is not None:
            options.pipeline.memory.limit = memory_limit
        planner = _core.TraceFunction(options)
        return planner, self._run_body(planner, args, kwargs)

    def kernels(self) -> list[GeneratedKernel]:
        """Returns the generated kernels of the version that ran last, in the order in which they
        run.

        Waits for kernels that are being compiled; the next call uses them all. Empty if none were
        generated, as at ``opt_level`` 2 and below.
        """
        with self._compiling():
            return Kernels(GeneratedKernel.from_row(row) for row in self._function.kernels())

    def explain(self) -> str:
        """Returns as text, one line each, which versions were recorded and why.

        >>> from megengine import jit, tensor
        >>> double = jit.trace(lambda x: x * 2)
        >>> results = double(tensor([1.0])), double(tensor([1.0, 2.0]))
        >>> double.explain().splitlines()[0]
        '2 versions'
        """
        text = self._function.explain()
        if self._is_part:
            text += "  called inside of a traced function or an open GradManager, too: there it is a part of that, and its own options act nowhere\n"
        if self._guard_reason:
            what = "recorded again" if self._trials is None or self._known else "each call runs the body"
            text += f"  {what} because {self._guard_reason}\n"
        return text

    def graph_text(self, optimized: bool = True) -> str:
        """Returns the graph of the version that ran last as text; one part for each segment.

        Parameters
        ----------
        optimized : bool
            After the passes, or as recorded.

        Returns
        -------
        str
            A line for each operation.

        Notes
        -----
        The user's line follows each operation.

        Examples
        --------
        >>> from megengine import jit, tensor
        >>> double = jit.trace(lambda x: x * 2)
        >>> y = double(tensor([1.0]))
        >>> print(double.graph_text())  # doctest: +ELLIPSIS
        %0: f32[1] = input 0
        %1: f32[] = const 2
        %2: f32[1] = mul %0 %1  # ...
        return %2
        <BLANKLINE>
        """
        return "\n".join(self._function.graphs(optimized=optimized))

    def graph_html(self) -> str:
        """Returns the optimized graph as one HTML page: a row for each step, kernels in their own
        colours.
        """
        return "\n".join(self._function.graphs(optimized=True, html=True))

    def get_profile(self) -> dict[str, Any]:
        """Returns the cost of the steps of the version that ran last, summed over its profiled
        runs.

        Needs ``profiling=True`` and one call that ran the compiled program, else RuntimeError.
        "profiler" holds "runs", total "seconds" and "bytes", and "steps": a dict each with "ops"
        (names), "where" (the user's line), "backend" (compiler of its kernel; empty: an operation
        of the device), "seconds" (all runs), "bytes" (read and written in one), "launches" (of
        generated code in one; an operation of the device counts as one, a copy as none),
        "is_transfer" (it ran beside the others), and of the last run "last_begin" and
        "last_seconds".

        >>> from megengine import jit, tensor
        >>> double = jit.trace(lambda x: x * 2, profiling=True)
        >>> for _ in range(3):
        ...     y = double(tensor([1.0]))
        >>> profile = double.get_profile()["profiler"]
        >>> profile["runs"], [step["ops"] for step in profile["steps"]]
        (2, [['mul']])
        """
        return {"profiler": merge_profiles(self._profiles())}

    def save_timeline(self, path: str | os.PathLike[str]) -> None:
        """Writes a timeline of the last profiled run for Chrome's or Perfetto's viewer.

        Parameters
        ----------
        path : str or PathLike
            Of the file, in Google's Trace Event Format, with a row for each stream.

        Notes
        -----
        Times are taken from the device's clock. Has the same requirements as `get_profile`.
        """
        text = timeline_of(merge_profiles(self._profiles()), self._name_of_function())
        with written_whole(path) as file:
            file.write(text.encode())

    def _profiles(self) -> list[dict[str, Any]]:
        what = f"trace: there is no profile of {self._name_of_function()}"
        if not self._profiling:
            raise RuntimeError(f"{what}\n  fix: trace it with profiling=True")
        profiles = [profile for profile in self._function.profiles() if profile["runs"]]
        if not profiles:
            raise RuntimeError(
                f"{what}\n  why: no call has run the compiled program yet; the first one records\n  fix: call it once more"
            )
        return profiles


_core._set_trace_class(trace)
