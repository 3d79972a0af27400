"""What a docstring must tell: in numpydoc's form, and the errors that the body raises itself."""

import ast
import enum
import inspect
import re
import textwrap

from numpydoc.docscrape import NumpyDocString, get_doc_object
from numpydoc.validate import Validator, validate

# Checks of numpydoc that are not ours, and why.
LEFT_OUT = {
    "SS05": "a summary may say what the function does, as well as what to do with it",
    "SS06": "a summary with a formula may take two lines",
    "ES01": "a summary that says all needs no second paragraph",
    "SA01": "other names stand in backquotes where they matter",
}
PUBLISHED = {"OperandError": "ValueError", "WrongKey": "KeyError"}  # what users see of a class of ours
OF_THE_CALLER = {"AssertionError", "NotImplementedError", "StopIteration"}  # what is broken inside, or meant for a subclass


def parameters(found):
    """Names with their stars, in order. Not those with '_' in front, nor those of enumerations and errors."""
    if inspect.isclass(found) and issubclass(found, (enum.Enum, BaseException)):
        return ()
    try:
        signature = inspect.signature(found)
        if inspect.isclass(found) and list(signature.parameters) == ["args", "kwargs"] and "__init__" in vars(found):
            signature = inspect.signature(found.__init__)  # its __new__ takes anything
    except (TypeError, ValueError):
        return ()
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    told = [each for each in signature.parameters.values() if each.name not in ("self", "cls") and not each.name.startswith("_")]
    return tuple(stars.get(each.kind, "") + each.name for each in told)


class _Docstring(Validator):
    def __init__(self, obj_name):
        super().__init__(get_doc_object(obj_name))

    @property
    def signature_parameters(self):
        return parameters(self.obj)


def faults(found, with_example=True):
    """What numpydoc finds in the docstring of a function or class, a text each."""
    left_out = LEFT_OUT.keys() | (set() if with_example else {"EX01"})
    return [f"{code} {text}" for code, text in validate(found, _Docstring)["errors"] if code not in left_out]


def raised(found):
    """Names of the errors that the body raises itself, not in functions within it."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(found.__init__ if inspect.isclass(found) else found))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return set()
    errors, waiting = set(), list(ast.iter_child_nodes(body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Raise):
            error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            errors.add(PUBLISHED.get(error.id, error.id) if isinstance(error, ast.Name) else "")
        waiting += ast.iter_child_nodes(node)
    return {each for each in errors if each[:1].isupper()} - OF_THE_CALLER


def untold_errors(found):
    text = (inspect.getdoc(found) or "").partition(">>>")[0]
    return sorted(each for each in raised(found) if each not in text)


# "As in `Conv2d`." and "See `Module`.": what a reader of help() would have to look up.
_ONLY_REFERS = re.compile(r"(?:(?:As|Those|The same as) (?:in|of|from|for)|See) (?:the )?`[^`]+`(?: and `[^`]+`)?[.;]?")


def empty_entries(found):
    """Entries of parameters that only refer to another docstring, or have at most three words."""
    entries = NumpyDocString(inspect.getdoc(found) or "")["Parameters"]
    texts = {entry.name: " ".join(entry.desc) for entry in entries}
    return [f"{name}: {text}" for name, text in texts.items() if len(text.split()) <= 3 or _ONLY_REFERS.fullmatch(text)]


def methods(owner):
    """Names and functions of the public methods of a class: its own, and those that it has from bases in the package."""
    shown = set()
    for base in owner.__mro__:
        for name, found in vars(base).items():
            found = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
            is_ours = base is owner or base.__module__.startswith("megengine.")
            if not name.startswith("_") and name not in shown and inspect.isfunction(found) and is_ours:
                yield name, found
            shown.add(name)
