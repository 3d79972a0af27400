"""What a docstring must tell: each argument, a result of several parts, and the errors that the body raises itself.

An argument is told where its name stands in the text, outside of examples; in the docstring of a base class; or in that of what stands
there in backquotes. "Arguments are those of `Conv2d`" leads to what `Conv2d` leads to as well.
"""

import ast
import inspect
import re
import textwrap

SEVERAL = re.compile(r"^(?:typing\.)?(tuple|dict|list|Iterator|Iterable|Callable)\b", re.IGNORECASE)
ABOUT_THE_RESULT = re.compile(r"\b([Rr]eturn|[Rr]esult|[Gg]ive|[Yy]ield|[Ii]terate|[Dd]ecorator|[Tt]uple|[Dd]ict|[Ll]ist)")
PUBLISHED = {"OperandError": "ValueError", "WrongKey": "KeyError"}  # what users see of a class of ours
OF_THE_CALLER = {"AssertionError", "NotImplementedError", "StopIteration"}  # what is broken inside, or meant for a subclass


def told(found):
    """The docstring without its examples."""
    lines, inside = [], False
    for line in (inspect.getdoc(found) or "").splitlines():
        inside = line.lstrip().startswith(">>>") or (inside and bool(line.strip()))
        if not inside:
            lines.append(line)
    return "\n".join(lines)


_ITEM = r"[\w.]+(?: [-+*/] [\w.]+)*"


def names(word, text):
    """Is it told? Before a colon, in backquotes, as ``name=value``, before or within brackets; anywhere if it is no word of English."""
    word = re.escape(word)
    if "_" in word or word != word.lower():
        return re.search(rf"(?<!\w){word}(?!\w)", text) is not None
    list_of_names = rf"(?<!\w){word}(?: \([^)]*\))?(?:,? (?:and |or )?\w+)*:"
    listed = rf"[\[(](?:{_ITEM}, )*(?:{_ITEM} [-+*/] )?{word}(?: [-+*/] {_ITEM})*,?(?: {_ITEM},?)*[\])]"
    forms = (list_of_names, rf"`[^`]*(?<!\w){word}(?!\w)[^`]*`", rf"(?<!\w){word}(?:=| \()", listed)
    return any(re.search(form, text) for form in forms)


def _maker(found):
    return found.__init__ if inspect.isclass(found) else found


def parameters(found):
    try:
        signature = inspect.signature(_maker(found))
    except (TypeError, ValueError):
        return [], None
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    taken = [each for each in signature.parameters.values() if each.kind not in several and not each.name.startswith("_")]
    return [each.name for each in taken if each.name not in ("self", "cls")], signature.return_annotation


def raised(found):
    """Names of the errors that the body raises itself, not in functions within it."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(_maker(found)))).body[0]
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


def _mentioned(text, others, owner):
    """The objects whose names stand in backquotes: `name`, `Class.method`, or `method` of the same class."""
    for path in re.findall(r"`([\w.]+)`", text):
        before, name = ("." + path).split(".")[-2:]
        holder = others.get(before, owner)
        if name in others:
            yield others[name]
        elif found := getattr(holder, name, None):
            yield found


def methods(owner):
    """Names and functions of the public methods that a class defines itself."""
    for name, found in vars(owner).items():
        found = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
        if not name.startswith("_") and inspect.isfunction(found):
            yield name, found


def near(found, others, owner=None, seen=()):
    """The docstring, and those that it may rely on: of classes behind it, of a method's class and of what it overrides."""
    above = inspect.getmro(found)[1:-1] if inspect.isclass(found) else ()
    if owner is not None:
        line = inspect.getmro(owner)[:-1]
        above = (*line, *(vars(each)[found.__name__] for each in line[1:] if found.__name__ in vars(each)))
    own = "\n".join(told(each) for each in (found, *above))
    texts = [own, *(told(each) for each in _mentioned(own, others, owner))]
    for sentence in re.findall(r"[Aa]rguments[^.]*(?:\.\w[^.]*)*", own):
        texts += [near(each, others, seen=(*seen, found)) for each in _mentioned(sentence, others, owner) if each not in (*seen, found)]
    return "\n".join(texts)


def missing_parts(found, others, owner=None):
    """What the docstring of a function or class does not tell. others: public objects by name. owner: the class of a method."""
    text, around = told(found), near(found, others, owner)
    arguments, result = parameters(found)
    missing = [f"argument {each}" for each in arguments if not names(each, around)]
    written = result if isinstance(result, str) else str(getattr(result, "__name__", result))
    if not inspect.isclass(found) and SEVERAL.match(written) and not ABOUT_THE_RESULT.search(text):
        missing.append(f"the result, {written}")
    return missing + [f"error {each}" for each in sorted(raised(found)) if not names(each, text)]
