"""Adds our words for names and keywords of PyTorch, JAX and MegEngine before 1.0 to AttributeErrors
and TypeErrors.

The table stands in `table`; this looks into it when a name is missing already: nothing is slower for names that exist.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Any, TypeVar

from . import table

_Function = TypeVar("_Function", bound=Callable[..., Any])
_PACKAGE = __name__.partition(".")[0]
# Modules in which a function is looked up if the object that was asked lacks it.
_PLACES = (
    ("functional", "F"), ("functional.nn", "F.nn"), ("functional.loss", "F.loss"), ("functional.vision", "F.vision"), ("functional.linalg", "F.linalg"),
    ("functional.fft", "F.fft"), ("random", "megengine.random"),
)  # fmt: skip


# Modules in which a function or class is looked up that was called with an unknown keyword.
_CALLED_IN = (
    "functional", "functional.nn", "functional.loss", "functional.vision", "random", "module", "optimizer", "jit", "autodiff", "data", "tensor",
)  # fmt: skip


@cache
def rows() -> dict[str, str]:
    """Returns the table as a dict: a name, behind the letter of the object that is asked for it, to
    the words.
    """
    found = {}
    for line in filter(None, table.ROWS.splitlines()):
        names, _, words = line.partition(": ")
        found.update(dict.fromkeys(names.split(), words))
    found |= {
        f"M.{layer}": f"{rows_of} in forward"
        for layer, name in table.FUNCTION_OF_LAYER.items()
        if (rows_of := found.get(name, f"F.{name}"))
    }
    return found


def _there(name: str) -> str | None:
    """The path of a function of ours with this name."""
    for place, shown in _PLACES:
        module = sys.modules.get(f"{_PACKAGE}.{place}")
        if callable(found := vars(module or object).get(name)) or isinstance(found, ModuleType):
            return f"{shown}.{name}"
    return f"{_PACKAGE}.{name}" if name in vars(sys.modules[_PACKAGE]) else None


def _function(name: str) -> str | None:
    return rows().get(name) or _there(name)


def _called_on_tensor(words: str) -> str:
    return f"{words}(x, ...)" if re.fullmatch(r"(F|megengine\.random)[\w.]*", words) else words


def words_for(holder: str, name: str) -> str | None:
    """Returns what to write for ``name`` of ``holder`` (a letter of the table), the words behind
    "fix: "; None for an unknown name.
    """
    if words := rows().get(f"{holder}.{name}"):
        return (
            words.replace("nothing", "leave it out", 1)
            if words.startswith("nothing: ")
            else f"use {words}"
        )
    if holder in ("x", "F", "mge"):
        if words := _function(name):
            return f"use {_called_on_tensor(words) if holder == 'x' else words}"
        if name.endswith("_") and (words := rows().get(f"x.{name[:-1]}") or _function(name[:-1])):
            return f"use x[...] = {_called_on_tensor(words)}"
        if name.endswith("_copy") and (words := _function(name.removesuffix("_copy"))):
            return f"use {words}"
        if holder != "mge" and (words := rows().get(f"mge.{name}")):
            return f"use {words}"
        if holder != "x" and (words := rows().get(f"x.{name}") or rows().get(f"M.{name}")):
            return f"use {words}"
    if holder == "optim" and name in vars(sys.modules[f"{_PACKAGE}.optimizer"]):  # asked of lr_scheduler
        return f"use optim.{name}"
    if holder in ("x", "F", "M", "mge"):
        return next(
            (
                words
                for pattern, words in table.PATTERNS.items()
                if re.fullmatch(f"(?:{pattern})_?", name)
            ),
            None,
        )
    return None


def missing_name(what: str, name: str, holder: str, held: object) -> AttributeError:
    """Raises Python's error for a name that ``what`` lacks, with our hint, or else with Python's
    own guess.
    """
    text = f"{what} has no attribute {name!r}"
    if words := words_for(holder, name):
        return AttributeError(f"{text}\n  fix: {words}")
    return AttributeError(text, name=name, obj=held)


def module_getattr(module: str, holder: str) -> Callable[[str], Any]:
    """A ``__getattr__`` for a module."""

    def __getattr__(name: str) -> Any:
        raise missing_name(f"module {module!r}", name, holder, sys.modules[module])

    return __getattr__


class _Missing:
    """An attribute that a tensor does not have: reading it raises Python's AttributeError with a hint.

    A descriptor, because ``__getattr__`` would slow down every attribute of the class.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, held: Any, owner: type) -> Any:
        what = f"type object {owner.__name__!r}" if held is None else f"{owner.__name__!r} object"
        raise missing_name(what, self._name, "x", held)


def _names_of_tensors() -> Iterator[str]:
    """Returns the names of the table for tensors, and those of methods that write in place."""
    for name in (
        *table.TENSOR.split(),
        *(name.removeprefix("x.") for name in rows() if "." not in name or name.startswith("x.")),
    ):
        yield from (name, f"{name}_")


def explain_names(owner: type) -> None:
    """Gives ``owner`` attributes for names of torch's tensors that it lacks; reading one raises an
    error with our word. They stay out of ``dir()``.
    """
    missing = {name for name in _names_of_tensors() if not hasattr(owner, name)}
    for name in missing:
        setattr(owner, name, _Missing(name))

    def names(self: Any) -> list[str]:
        return [name for name in object.__dir__(self) if name not in missing]

    setattr(owner, "__dir__", names)


def _argument(error: TypeError) -> str:
    """Returns our words for a keyword argument of torch; empty for other errors."""
    found = re.fullmatch(
        r"(?:\w+\.)*?(\w+)(?:\.__init__)?\(\) got an unexpected keyword argument '(\w+)'(?:\. Did you mean.*)?",
        str(error),
    )
    if not found:
        return ""
    return _keyword(*found.groups())


def unknown_keyword(made: type, name: str) -> TypeError:
    """Returns the error for a keyword argument that neither a layer takes nor Module, to which layers pass what they do not know."""
    text = f"{made.__name__}() got an unexpected keyword argument {name!r}"
    ours = next(base.__name__ for base in made.__mro__ if base.__module__.startswith(_PACKAGE))
    words = _keyword(ours, name)
    return TypeError(f"{text}\n  fix: {words}" if words else text)


def shows_no_unknown(function: _Function) -> _Function:
    """Decorator: ``inspect`` does not show the ``**unknown`` that the function refuses."""
    import inspect

    whole = inspect.signature(function)
    shown = [each for each in whole.parameters.values() if each.kind is not each.VAR_KEYWORD]
    function.__signature__ = whole.replace(parameters=shown)  # type: ignore[attr-defined]
    return function


def _keyword(function: str, name: str) -> str:
    """Returns our words for the keyword argument ``name`` of a function or class; empty for an
    unknown one.
    """
    import inspect

    if words := table.SPECIAL.get(function, {}).get(name):
        return words
    ours = table.ARGUMENTS.get(name)
    takes = ""
    for place in _CALLED_IN:
        called = getattr(sys.modules.get(f"{_PACKAGE}.{place}"), function, None)
        if not callable(called):
            continue
        taken = inspect.signature(called).parameters
        if ours in taken:
            return f"{function} calls it {ours}"
        if name not in taken:
            named = [key for key, value in taken.items() if value.kind is not value.VAR_KEYWORD]
            takes = takes or f"{function} takes {', '.join(named)}"
    return table.OF_ALL.get(name, takes) if takes or function in ("Module", "Tensor", "Optimizer") else ""


def _explain(error: BaseException) -> None:
    if type(error) is TypeError and (words := _argument(error)):
        error.add_note(f"  fix: {words}")


def _explain_in_shell(
    shell: Any,
    kind: type[BaseException],
    error: BaseException,
    trace: Any,
    tb_offset: int | None = None,
) -> None:
    _explain(error)
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)


def explain_in_notebooks() -> None:
    """Makes errors of IPython's cells name our word for a keyword argument of torch; an existing
    handler stays.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell and not shell.custom_exceptions:
        shell.set_custom_exc((TypeError,), _explain_in_shell)


def explain_keywords() -> None:
    """Makes errors that end the program, or a line at Python's prompt, name our word for a keyword
    argument of torch.

    Python raises such an error before any function of ours runs, so the words are added when it is
    shown. The interpreter announces that by an event, to which this listens; ``sys.excepthook``
    stays as it is.
    """

    def listen(event: str, about: tuple[Any, ...]) -> None:
        if event == "sys.excepthook" and isinstance(about[2], TypeError):
            _explain(about[2])

    sys.addaudithook(listen)
