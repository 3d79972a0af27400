"""The attributes of `trace` that its base classes use, each of which has a file of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, ParamSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from .. import _core
    from ..tensor import Tensor
    from .guards import Guards
    from .report import OutsideProgram

_P = ParamSpec("_P")


class Part(Generic[_P]):
    """A base of ``trace``, which sets these attributes and defines these methods."""

    if TYPE_CHECKING:
        __wrapped__: Callable[..., Any]
        _beside_plan: tuple[OutsideProgram, ...]
        _body: Callable[..., Any]
        _capture_as_const: bool
        _check_interval: int
        _exact: bool
        _function: _core.TraceFunction
        _guard_reason: str | None
        _guards: Guards | None
        _is_part: bool
        _known: dict[int, Guards]
        _needs_no_python: bool
        _opt_level: int
        _options: _core.TraceOptions
        _pause: int
        _profiling: bool
        _recordings: int
        _share: float
        _skipped: int
        _symbolic: bool
        _trials: int | None
        _uses: dict[str, str]
        _walks: int
        _was_recorded: bool
        _without_host: bool

        @property
        def traced(self) -> bool: ...

        @staticmethod
        def _own_names() -> frozenset[str]: ...

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
        def _compiling(self) -> AbstractContextManager[None]: ...
        def _name_and_line(self) -> str: ...
        def _name_of_function(self) -> str: ...
        def _named_body(self, *args: Any, **kwargs: Any) -> Any: ...
        def _run_body(
            self, function: _core.TraceFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Any: ...
        def _settle_share(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None: ...
        def flatten_inputs(self, *args: _P.args, **kwargs: _P.kwargs) -> list[Tensor]: ...
        def trace_normal(self, *args: _P.args, **kwargs: _P.kwargs) -> Any: ...
        def trace_without_host(self, *args: _P.args, **kwargs: _P.kwargs) -> Any: ...
