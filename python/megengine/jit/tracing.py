"""``trace``: record a function once, then run it as a compiled, memory-planned program."""

from __future__ import annotations

import contextlib
import functools
import os
import types
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

import numpy as np

from .. import _core
from ..core._telling import no_effect
from ..module._reach import tensors_in
from ..reports.progress import while_waiting
from ..tensor import Tensor
from . import batches, mismatch
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
from .report import OutsideProgram
from .shown import Shown
from .skipping import Skipping
from .steps import ManualSteps

if TYPE_CHECKING:
    from typing import Self, Unpack

    from .guards import Guards

if TYPE_CHECKING:  # every checker knows this module, whose defaults say what a plain ``trace`` is
    import typing_extensions

    _P = typing_extensions.ParamSpec("_P", default=...)
    _R = typing_extensions.TypeVar("_R", default=Any)
else:
    _P = ParamSpec("_P")
    _R = TypeVar("_R")
_Q = ParamSpec("_Q")
_S = TypeVar("_S")

TraceError = _core.TraceError


def is_tracing() -> bool:
    """Whether a traced function is running (and not inside exclude_from_trace)."""
    return _core.is_tracing()


def exclude_from_trace() -> _core.Excluded:
    """Runs the operations of a ``with`` block eagerly, without recording them.

    The block runs in every call, so its control flow may differ from call to call, and it may read
    the values of traced tensors. Outside of a trace, or nested, it does nothing.

    Returns
    -------
    Excluded
        Context manager of the block.

    See Also
    --------
    trace : Compiles what is outside of the block.

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
    """Whether the arrays are equal, element for element. NaN is not equal to itself."""
    return bool(np.all(lhs == rhs))


if TYPE_CHECKING:

    class _Function:
        """The decorator that `trace` returns when it is given options alone."""

    class _Traced:
        """The traced function that the decorator returns."""

    class _Method(Shown[...], ManualSteps[...], Dumping[...], Generic[_P, _R]):
        """A traced function as the method of an object: it has the function's attributes, and is
        called without the object.
        """

        __func__: trace[..., _R]
        __self__: object

        def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...


class trace(Skipping[_P], Shown[_P], ManualSteps[_P], Dumping[_P], Generic[_P, _R]):
    """Compiles a function to a static graph; ``@trace`` and ``@trace(...)`` both work.

    The first call records the operations of the function. Later calls run its Python body again,
    match each operation against the record (a mismatch raises `TraceError`), and take the values
    from the compiled program. Positional tensors are the inputs; keyword arguments (modules,
    optimizers, gradient managers) are captured objects. New input shapes or dtypes are recorded as
    another version.

    Parameters
    ----------
    function : callable
        Function to compile; None makes a decorator.
    symbolic : bool
        Whether tensors are placeholders in the first call, which computes nothing until it returns;
        reading a value in it raises ValueError.
    capture_as_const : bool
        Whether tensors from outside are constants, for `dump`, except arguments and tensors that
        the function updates.
    record_only : bool
        Whether calls compute nothing, for dumping without memory; implies symbolic and
        capture_as_const.
    sublinear_memory_config : SublinearMemoryConfig or None
        Options of a search that recomputes values instead of keeping them, to lower the memory
        peak; None leaves it out.
    dtr_config : DTRConfig or None
        Options of such a search that goes only as far as its eviction_threshold asks for; None
        leaves it out.
    profiling : bool
        Whether programs measure each step, for `get_profile`.
    opt_level : int
        0 runs the operations as recorded; 1 simplifies arithmetic; 2 optimizes the whole graph; 3
        also fuses operations into generated kernels (by the compiler that ``MGB_JIT_BACKEND``
        names).
    graph_opt_config : GraphOptimizationConfig or None
        Kinds of operations that may be fused into kernels; None leaves it to opt_level.
    symbolic_shape : bool
        Whether ``x.shape`` is a Tensor inside the function.
    without_host : bool, {"auto"} or str
        Whether calls after the first leave out the Python body. "auto" leaves it out only if
        everything that it reads is guarded and it has no side effects (print, logging, append,
        ...); otherwise it runs in each call, and `explain` says why.
    imperative : bool
        Whether calls after the first run the function as it is, each operation eagerly and
        unchecked; the record of the first call then serves `dump` and the reports.
    numerics : {"fast", "exact"} or str
        "exact" allows only optimizations whose results are bit-identical to those of the function
        without ``trace``; "fast" may reorder additions and rewrite formulas.
    memory_limit : int, str or None
        Memory that a call may take for inputs, parameters, results and everything in between:
        bytes, or a text such as "6GB". The cheapest plan that fits is used, by recomputing values
        that are not kept; if none fits, MemoryError names the smallest possible limit before
        anything runs. "50%" is a share of what the first call would take without a limit, and "50%
        of RAM" one of the machine's memory (or of its control group's); both are bytes from then
        on, for all calls. Implies symbolic. The variable ``MEGJIT_MEMORY_LIMIT`` sets a limit for
        functions without one (and does not imply symbolic).
    on_mismatch : {"raise", "record"} or str
        Reaction to a call whose body issues other operations than the recorded ones. "raise" raises
        TraceError; "record" records another version, up to 16 for calls of the same types.
    spill : str, os.PathLike or None
        Folder for a file, for a function on a CPU with a ``memory_limit``. Values for which the
        limit has no room, and which are not cheap to compute again, wait in the file, parameters
        and an optimizer's states included. The file has no name, and goes away with the process.

    Raises
    ------
    TypeError
        If the function cannot be called, and with without_host for NumPy arrays as positional
        arguments.
    ValueError
        For options out of range.
    FileNotFoundError
        If ``spill`` is no folder.

    See Also
    --------
    dump_functions : Writes traced functions to a file.
    exclude_from_trace : Runs a block eagerly.
    autodiff.GradManager : Records gradients inside the function.
    SublinearMemoryConfig : Recomputes values to lower the memory peak.

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
    # every n-th call without the body is compared with it; the number of such calls
    _check_interval, _skipped = 0, 0
    # `jit.trace.enabled = False` lets every traced function run as if it were not traced, as before MegEngine 1.0.
    enabled = True
    # `python -m megengine kernels` puts a list here: functions traced from then on are measured, and noted in it.
    _measured: list[trace[..., Any]] | None = None
    # `python -m megengine plan` puts a function here: it is given each call, which then does not run.
    _planned_by: Callable[[trace[..., Any], tuple[Any, ...], dict[str, Any]], Any] | None = None

    if not TYPE_CHECKING:

        def __new__(cls, *args, **kwargs):
            if not args and "function" not in kwargs:
                return functools.partial(cls, **kwargs)
            return super().__new__(cls)

    @overload
    def __init__(self, function: Callable[_P, _R], **options: Unpack[Options]) -> None: ...
    # without a function it returns a decorator; checkers see a trace, whose `__call__` has the same types
    @overload
    def __init__(self: trace[[_Function], _Traced], **options: Unpack[Options]) -> None: ...
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
        self._is_part = False  # whether it was called as a part of another program
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
        # record_only never runs anything
        self._without_host = bool(without_host) and not record_only
        # With "auto": the number of useless recordings, calls that run the body before the next one, and calls after that.
        self._trials = 0 if without_host == "auto" else None
        self._walks, self._pause = 0, 8
        self._imperative = imperative
        # guards of the last recording without host, if later calls need no body
        self._guards: Guards | None = None
        self._known: dict[int, Guards] = {}  # number of each such recording -> its guards
        self._guard_reason: str | None = None
        self._was_recorded = False  # whether the last call was recorded
        # parts of the program that another framework runs, for plans
        self._beside_plan: tuple[OutsideProgram, ...] = ()
        self._uses: dict[str, str] = {}  # name of an argument -> its use in plans
        self._recordings = 0
        if interval := check_interval():
            self._check_interval = interval
        own = type(self)
        self._flattens = own.flatten_inputs is trace.flatten_inputs  # no subclass does
        steps_in = own.trace_without_host is not trace.trace_without_host or not self._flattens
        self._needs_no_python = not (steps_in or imperative or self._capture_as_const or self._check_interval)  # where guards hold
        # A call with a record then needs its body alone, and the extension walks it.
        self._may_walk_alone = self._flattens and not (imperative or self._without_host or self._capture_as_const)
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
        """Returns the attributes that each traced function has; a program has set all others."""
        return frozenset(name for name in trace.__init__.__code__.co_names if name.startswith("_"))

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"trace: the traced function {self._name_and_line()} cannot be copied or pickled\n"
            "  why: it holds programs, and the tensors of this process that they read and write\n"
            "  fix: copy fn.__wrapped__ and trace the copy; of a module save the state_dict(), or delete the attribute that is traced before"
        )

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self: trace[Concatenate[_S, _Q], _R], instance: _S, owner: type | None = None) -> _Method[_Q, _R]: ...
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
        """Whether tensors from outside are compared with the recorded ones; calls that do not run
        the body compare none."""
        return self._check_external

    @check_external.setter
    def check_external(self, flag: bool) -> None:
        no_effect("trace", "tensors from outside are always checked", check_external=not flag)
        self._check_external = bool(flag)

    if TYPE_CHECKING:

        @overload
        def __call__(self: trace[[_Function], _Traced], function: Callable[_Q, _S], /) -> trace[_Q, _S]: ...
        @overload
        def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """The extension takes each call (`_core._set_trace_class`), and answers it where it knows that the body would do the same."""
            return self._call(*args, **kwargs)

    def _call_as_part(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Runs a call inside another trace, whose recorder sees everything, or inside an open
        GradManager, which needs intermediate values.
        """
        if trace.enabled and not self._is_part:
            self._tell_of_part()
        return self.__wrapped__(*args, **kwargs)

    def _call(self, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        """Runs any other call that the extension cannot answer from earlier ones."""
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
        """Warns once about a limit that nobody keeps; `explain` tells the same of any function."""
        self._is_part = True
        if self._is_limited:
            inside = "a traced function" if _core.is_tracing() else "an open GradManager"
            warnings.warn(
                f"{self._name_and_line()} is called inside of {inside}, which it is a part of there: its memory_limit is not kept\n"
                "  fix: give the limit to the outer function, or trace the whole step, with the GradManager in it",
                stacklevel=3,
            )

    def _settle_share(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Turns a limit that is a share of a plan into bytes: the share of what these arguments
        take without a limit.
        """
        share, self._share = self._share, 0.0
        try:
            whole = self._plan_call(args, kwargs, memory_limit=0)[0].planned_bytes
        except BaseException:
            self._share = share
            raise
        self._options.pipeline.memory.limit = max(1, int(whole * share))
        self._function = _core.TraceFunction(self._options)

    def trace_normal(self, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        """Runs one call with the Python body: recorded the first time, matched afterwards.

        Parameters
        ----------
        *args : object
            Positional arguments of the call: the input tensors.
        **kwargs : object
            Keyword arguments of the call: modules, optimizers and other captured objects.

        Returns
        -------
        object
            What the function returns.
        """
        return self._run_body(self._function, args, kwargs)

    def _run_body(self, function: _core.TraceFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs the body, whose calls ``function`` records or matches, and returns its result."""
        if self._flattens and not kwargs and _core.are_tensors(args):
            leaves: list[Any] = list(args)
        else:
            leaves = self.flatten_inputs(*args, **kwargs)
        try:  # restores all of it, as Ctrl-C may come after each line
            function.walks_alone = False
            records = function.begin(leaves)
            # Any call for dump may become a recording, if it leaves the record.
            body = self._named_body if records or self._capture_as_const else self._body
            if records or self._was_recorded:
                self._was_recorded = records
                with self._compiling():
                    # held, as values that nothing holds are not computed
                    result = body(*args, **kwargs)
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
            function.walks_alone = self._may_walk_alone and not records
        except BaseException as error:
            self._after_failure(function, leaves, args, kwargs, error)
            raise
        return result

    def _after_failure(
        self, function: _core.TraceFunction, leaves: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: BaseException
    ) -> None:
        """Ends a call that raises ``error``, which gets advice that fits it."""
        function.abort(leaves)  # nothing where the call has ended
        if isinstance(error, TraceError):
            mismatch.explain(error)
        elif isinstance(error, MemoryError) and function is self._function:
            batches.propose(error, args, lambda smaller: self._plan_call(smaller, kwargs))

    def _compiling(self) -> contextlib.AbstractContextManager[None]:
        """Surrounds a call that may plan and compile: one that records, or the next one. It begins
        before the body, because showing progress lets other threads run, which must not see what
        the body rebinds.
        """
        return while_waiting(f"compiling {self._name_of_function()}", part=_core.searched_part)

    def flatten_inputs(self, *args: _P.args, **kwargs: _P.kwargs) -> list[Tensor]:
        """Returns the tensors among the positional arguments, containers opened, in order.

        With capture_as_const the tensors among the keyword arguments follow.

        Parameters
        ----------
        *args : object
            Positional arguments of a call.
        **kwargs : object
            Keyword arguments of a call.

        Returns
        -------
        list of Tensor
            The tensors, in the order of the arguments.

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
        # names of files may hold any bytes
        return (self._name_of_function() + place).encode("utf-8", "backslashreplace").decode()

    def _argument_name(self, position: int) -> str:
        code = getattr(self.__wrapped__, "__code__", None)
        names = code.co_varnames[: code.co_argcount] if code else ()
        return repr(names[position]) if position < len(names) else "a variable argument"


_core._set_trace_class(trace)
