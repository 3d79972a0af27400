"""Adds the path of the failing layer, from the outermost module, to errors that pass through calls
of modules.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core._origin import PACKAGE

if TYPE_CHECKING:
    from .module import Module

_TAGGED = re.compile(r"\n  (?:why|fix|at): ")
_PLACE = re.compile(r"\n  at:  [^\n]*")


class _Told(NamedTuple):
    text: str  # the error's text without its layer
    layer: Module
    outermost: Module  # modules that the error has passed so far, which hold the layer
    path: str  # the path of the layer from there


def tell_layer(error: Exception, module: Module) -> None:
    """Puts the path of the failing layer into an error of this package that leaves ``module``; others stay as they are."""
    told = getattr(error, "_layer", None)
    if told is None:
        if error.args == (str(error),) and _is_ours(error):
            error._layer = _Told(error.args[0], module, module, "")  # type: ignore[attr-defined]
        return
    name = next((name for name, held in module.named_modules() if held is told.outermost), "")
    if name:
        path = f"{name}.{told.path}" if told.path else name
        error._layer = told._replace(outermost=module, path=path)  # type: ignore[attr-defined]
        error.args = (_with_place(told.text, f"layer {path} ({type(told.layer).__name__})"),)


def _is_ours(error: Exception) -> bool:
    """Whether the text is one of this package's, or a function of it raised the error."""
    trace: Any = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return bool(_TAGGED.search(error.args[0])) or trace.tb_frame.f_code.co_filename.startswith(PACKAGE)


def _with_place(text: str, layer: str) -> str:
    found = _PLACE.search(text)
    return f"{text[: found.end()]}, {layer}{text[found.end() :]}" if found else f"{text}\n  at:  {layer}"
