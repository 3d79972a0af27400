"""Python code from a graph. A variable is set to None after the statement that reads it last, so that
running the code holds no more values than are still needed."""

from __future__ import annotations

import builtins
import dataclasses
import enum
import functools
import inspect
import keyword
import math
import sys
import types
import unicodedata
from typing import Any

from .._graph.core import GraphError
from .._graph.names import identifier
from .._graph.tree import container_text
from .node import Node, name_of_function

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "matmul": "@", "and_": "&", "or_": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip
_PREFIX = {"neg": "-", "pos": "+", "invert": "~"}


_IMPORTED = (
    "math",
    "megengine",
    "operator",
)  # generated code imports these; it gets other objects by name


def _at(path: str) -> Any:
    """Returns the object at a dotted path that begins with an imported module; None if there is
    none.
    """
    head, *steps = path.split(".")
    return functools.reduce(
        lambda found, step: getattr(found, step, None), steps, sys.modules.get(head)
    )


def _is_word(text: str) -> bool:
    """Whether ``text`` can stand in code as a name. Graphs may come from files: other text is quoted.

    Python treats some letters that look alike as one (NFKC), so such names would mean others than
    the text shows.
    """
    normal = text.isascii() or unicodedata.normalize("NFKC", text) == text
    return normal and text.isidentifier() and not keyword.iskeyword(text) and text != "__debug__"


@dataclasses.dataclass
class PythonCode:
    """Holds source that was generated from a graph.

    Parameters
    ----------
    src : str
        Source of the function ``forward``, with its imports.
    globals : dict of str
        Values of the other names that the source reads.

    Examples
    --------
    >>> from megengine import fx
    >>> print(fx.symbolic_trace(lambda x: x + 1).graph.python_code("self").src)
    def forward(self, x):
        add = x + 1;  x = None
        return add
    <BLANKLINE>
    """

    src: str
    globals: dict[str, Any]


class _Writer:
    def __init__(self, graph: Any, root_module: str) -> None:
        self.graph = graph
        self.root = root_module
        self.globals: dict[str, Any] = {}
        self.imports: set[str] = set()
        self.inputs: list[str] = []
        self.kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD  # the kind of the next parameter
        self.parameters: list[inspect.Parameter] = []
        self.taken = {node.name for node in graph} | {root_module}

    # -- names of things outside -----------------------------------------------------------------

    def bind(self, wanted: str, thing: Any) -> str:
        """A global name for ``thing``."""
        base = name = identifier(wanted)
        number = 0
        while (
            name in self.taken
            or hasattr(builtins, name)
            or self.globals.get(name, thing) is not thing
        ):
            number += 1
            name = f"{base}_{number}"
        self.globals[name] = thing
        return name

    def function(self, fn: Any) -> str:
        name = name_of_function(fn)
        head = name.split(".")[0]
        if head in _IMPORTED and head not in self.taken and _at(name) == fn:
            self.imports.add(head)
            return name
        if getattr(builtins, name, None) is fn and name not in self.taken:
            return name
        return self.bind(name, fn)

    # -- arguments -------------------------------------------------------------------------------

    def text(self, tree: Any) -> str:
        if isinstance(tree, Node):
            return tree.name
        if isinstance(tree, tuple) and hasattr(tree, "_fields"):
            return f"{self.bind(type(tree).__name__, type(tree))}({', '.join(map(self.text, tree))})"
        text = container_text(tree, self.text, self.text)
        return self.constant(tree) if text is None else text

    def constant(self, value: Any) -> str:
        if value is None or value is Ellipsis or type(value) in (bool, int, str, bytes):
            return repr(value)
        if type(value) is float:
            return repr(value) if math.isfinite(value) else f"float('{value}')"
        if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
            return self.function(value)
        if isinstance(value, type):
            return self.bind(value.__name__, value)
        if isinstance(value, enum.Enum):
            return f"{self.bind(type(value).__name__, type(value))}.{value.name}"
        return self.bind(f"_constant_{type(value).__name__}", value)

    def arguments(self, node: Node, skip: int = 0) -> str:
        listed = [self.text(arg) for arg in node.args[skip:]]
        plain = {key: arg for key, arg in node.kwargs.items() if _is_word(key)}
        listed += [f"{key} = {self.text(arg)}" for key, arg in plain.items()]
        if len(plain) < len(node.kwargs):  # for keys that Python cannot write as keywords
            rest = {key: arg for key, arg in node.kwargs.items() if key not in plain}
            listed.append("**" + self.text(rest))
        return ", ".join(listed)

    def path(self, base: str, target: str) -> str:
        """Returns ``base.a.b``, with getattr for steps that are not identifiers."""
        for step in target.split("."):
            base = f"{base}.{step}" if _is_word(step) else f"getattr({base}, {step!r})"
        return base

    # -- statements ------------------------------------------------------------------------------

    def expression(self, node: Node) -> str:
        if node.op == "get_attr":
            return self.path(self.root, node.target)
        if node.op == "call_module":
            return f"{self.path(self.root, node.target)}({self.arguments(node)})"
        if node.op == "call_method":
            if not node.args:
                raise GraphError(f"{node.describe()} calls a method of nothing: args is empty")
            method = self.path(self.operand(node.args[0]), node.target)
            return f"{method}({self.arguments(node, skip=1)})"
        return self.call_function(node)

    def operand(self, arg: Any) -> str:
        text = self.text(arg)
        return text if isinstance(arg, Node) else f"({text})"

    def call_function(self, node: Node) -> str:
        fn, args = node.target, node.args
        if getattr(fn, "__module__", None) == "_operator" and not node.kwargs:
            name = fn.__name__
            if name in _INFIX and len(args) == 2:
                return f"{self.operand_of_infix(args[0])} {_INFIX[name]} {self.operand_of_infix(args[1])}"
            if name in _PREFIX and len(args) == 1:
                return f"{_PREFIX[name]}{self.operand(args[0])}"
            if name == "getitem" and len(args) == 2:
                return f"{self.operand(args[0])}[{self.text(args[1])}]"
        if fn is getattr and len(args) == 2 and isinstance(args[1], str) and _is_word(args[1]):
            return f"{self.operand(args[0])}.{args[1]}"
        return f"{self.function(fn)}({self.arguments(node)})"

    def operand_of_infix(self, arg: Any) -> str:
        text = self.text(arg)
        return f"({text})" if text.startswith("-") else text  # -1 ** x is -(1 ** x)

    def body(self) -> list[str]:
        last_reader = {value: node for node in self.graph for value in node.all_input_nodes}
        done_at: dict[Node, list[Node]] = {}
        for value, reader in last_reader.items():
            done_at.setdefault(reader, []).append(value)
        lines, made, names = [], set(), set()
        for node in self.graph:
            if node.name in names:
                raise GraphError(f"two nodes are called {node.describe()}")
            names.add(node.name)
            for value in node.all_input_nodes:
                if value not in made:
                    raise GraphError(self.graph._why_not_made(node, value))
            made.add(node)
            if not _is_word(node.name):
                raise GraphError(f"{node.describe()} is not a name of a variable")
            if node.op == "placeholder":
                lines += self.placeholder(node)
                continue
            if node.op == "output":
                lines.append(f"return {self.text(node.args[0])}")
                break
            done = sorted(done_at.get(node, ()), key=node.all_input_nodes.index)
            if not node.users:
                done.append(node)
            freed = ";  " + " = ".join([value.name for value in done] + ["None"]) if done else ""
            lines.append(f"{node.name} = {self.expression(node)}{freed}")
        return lines or ["pass"]

    def placeholder(self, node: Node) -> list[str]:
        """Adds a parameter, which keeps the name by which callers pass it; returns what to run first."""
        target = node.target.lstrip("*")
        stars = node.target[: len(node.target) - len(target)][:2]
        if target in self.taken or not _is_word(target):
            target = node.name
        self.taken.add(target)
        kinds = inspect.Parameter
        kind = (self.kind, kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)[len(stars)]
        if len(stars) == 1:
            self.kind = kinds.KEYWORD_ONLY
        if node.all_input_nodes:
            raise GraphError(f"the default of the input {node.describe()} is not a constant")
        default = f" = {self.text(node.args[0])}" if node.args else ""
        self.inputs.append(f"{stars}{target}{default}")
        if stars and (default or any(other.kind is kind for other in self.parameters)):
            raise GraphError(f"the input {node.describe()} takes what is left: it stands once, and has no default")
        self.parameters.append(kinds(target, kind, default=default or kinds.empty))
        return [] if target == node.name else [f"{node.name} = {target};  {target} = None"]


def python_code(graph: Any, root_module: str = "self") -> PythonCode:
    """Generates the code of `Graph.python_code`."""
    writer = _Writer(graph, root_module)
    body = writer.body()
    try:
        inspect.Signature(writer.parameters)
    except ValueError as error:
        raise GraphError(f"the inputs {', '.join(writer.inputs)} are not parameters: {error}") from None
    imports = "".join(f"import {name}\n" for name in sorted(writer.imports))
    if imports:
        imports += "\n"
    signature = ", ".join([root_module, *writer.inputs])
    text = "".join(f"    {line}\n" for line in body)
    return PythonCode(f"{imports}def forward({signature}):\n{text}", writer.globals)
