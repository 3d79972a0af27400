"""A program is data: functions over shared state, each a list of statements, and the calls of a caller. It prints as Python.

A statement is a row of a table (`rows_*.py`) whose holes are filled: "{float} * {number}" with a value of the program and a literal. The printed program
is a module with `start()`, which makes the state, its functions, and `program(wrap)`, a generator that wraps the functions, calls them, acts between the
calls, and yields after each call what it returned and the state. Whoever runs it chooses `wrap`: the identity, `trace`, a dump that is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from .languages import LEARNED, MEGENGINE, MODULES, TENSORS, Language

WORD = re.compile(r"[A-Za-z_]\w*")
BLOCKS = ("try:", "except", "for ", "if ", "host", "raise KeyError")


@dataclass(frozen=True)
class Row:
    """One way to write a statement.

    text: an expression, whose value gets a name; or, in a table of `statements`, lines that may define {v}. reference: the same in NumPy, in float64 for
    floats. unfit: the judges that do not see it. may: the names of the documented refusals (`refusals.py`) that it can meet. trains: whether it can
    stand under a tape. has_smooth_gradient: where it and its operands are finite, so is its gradient. rounds: a trace adds its
    gradient in another order. waits_for: the fault that it shows and that is not mended yet; drawn only with --waiting (waits_in: the
    judges that find it; all, where none is named).
    """

    text: str
    weight: float = 1.0
    reference: str = ""
    unfit: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    trains: bool = True
    waits_for: str = ""
    waits_in: tuple[str, ...] = ()
    has_smooth_gradient: bool = False
    rounds: bool = False
    is_expression: bool = True

    def holes(self) -> list[str]:
        return list(dict.fromkeys(re.findall(r"{(\w+)}", self.text)))


@dataclass(frozen=True)
class Kind:
    """The kind of a value, as eager mode gives it where the program is drawn."""

    dtype: str
    shape: tuple[int, ...]


FLOATS = ("float32", "float16", "bfloat16", "float64")
WHOLES = ("int32", "int8", "uint8", "int16", "uint16", "int64")

# What fits a hole; a digit behind its name tells two of a kind apart.
OPERANDS: dict[str, Callable[[Kind], bool]] = {
    "any": lambda k: not k.dtype.startswith("q"),
    "array": lambda k: not k.dtype.startswith("q") and len(k.shape) > 0,
    "scalar": lambda k: k.dtype in (*FLOATS, *WHOLES) and k.shape == (),
    "float": lambda k: k.dtype in FLOATS,
    "single": lambda k: k.dtype == "float32",
    "matrix": lambda k: k.dtype == "float32" and len(k.shape) >= 2 and 0 not in k.shape,
    "rows": lambda k: k.dtype == "float32" and len(k.shape) >= 1 and k.shape[-1:] == (4,) and 0 not in k.shape,
    "deep": lambda k: k.dtype == "float32" and len(k.shape) == 3 and k.shape[-1] == 4 and 0 not in k.shape,
    "whole": lambda k: k.dtype in WHOLES,
    "flag": lambda k: k.dtype == "bool",
    "coded": lambda k: k.dtype.startswith("q"),
}
LITERALS: dict[str, tuple[str, ...]] = {
    "number": ("0.5", "2.0", "-1.0", "0.25", "3", "1e-3", "0.0", "100.0"),
    "small": ("0", "1", "2", "3", "-1", "-2", "5", "7"),
    "float_dtype": ("float32", "float16", "bfloat16"),
    "whole_dtype": WHOLES,
    "argument": ("x", "y", "cnt", "whole"),
    "hidden": ("-1e9", "-1e4", "float('-inf')", "-3.4028234663852886e38", "0.0", "3.0", "-5.0"),
}

NO_GRADIENT = re.compile(r"\(?\w+ [=<>]=? \w+(\)\.astype\('\w+'\))?|F\.(arg(max|sort)|round|floor|ceil|sign)\(.*|.*\.astype\('u?int\d+'\)")


@dataclass(frozen=True)
class Statement:
    row: Row
    fills: tuple[tuple[str, str], ...]
    name: str  # of what it makes, "" where it makes nothing

    def lines(self) -> list[str]:
        text = self.row.text.format(**dict(self.fills), v=self.name)
        return [f"{self.name} = {text}"] if self.row.is_expression else text.split("\n")

    def words(self) -> set[str]:
        return set(WORD.findall("\n".join(self.lines())))

    def words_read(self) -> set[str]:
        """Those of what is read for more than its shape, which needs no value, and is not written as a whole before anything reads it."""
        text = "\n".join(self.lines())
        if self.name:
            text = re.sub(rf"^{self.name} = \w+ \* 1\n{self.name}\[\.\.\.\] = ", "", text)
        return set(WORD.findall(re.sub(r"\b\w+\.shape\b", "", text)))

    def has_gradient(self) -> bool:
        """Whether its value has a gradient of what it reads: no comparison, no place, no integer and no step has one."""
        return not NO_GRADIENT.fullmatch(self.lines()[0].removeprefix(f"{self.name} = "))


@dataclass(frozen=True)
class Training:
    """How a function trains: its block, backward, and what is done with the gradients.

    loss: of a value. is_outside: the function ends with its loss; backward and what follows stand in another one, which calls it, as torch's programs do.
    """

    opens: str = "with gm:"
    backward: str = "gm.backward(loss)"
    then: tuple[str, ...] = ("opt.step().clear_grad()",)
    loss: str = 'F.tanh({}.astype("float32")).mean()'
    is_outside: bool = False
    unfit: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    waits_for: str = ""
    waits_in: tuple[str, ...] = ()

    def plain(self) -> Training:
        return PLAIN_OUTSIDE if self.is_outside else PLAIN_INSIDE


PLAIN_INSIDE = Training()
PLAIN_OUTSIDE = Training(opens="", backward="opt.zero_grad()\nloss.backward()", then=("opt.step()",), loss="torch.tanh({}.float()).mean()", is_outside=True)


@dataclass(frozen=True)
class Function:
    name: str
    statements: tuple[Statement, ...]
    returns: tuple[str, ...]
    container: str = "{},"  # of the results
    training: Training | None = None
    losses: tuple[str, ...] = ()  # the values that the loss is made of

    def body(self) -> list[str]:
        lines = [line for s in self.statements for line in s.lines()]
        if self.container.startswith("dict"):
            listed = ", ".join(f"{chr(97 + i)}={name}" for i, name in enumerate(self.returns))
        else:
            listed = ", ".join(self.returns)
        returned = self.container.format(listed)
        if self.training:
            is_outside = self.training.is_outside
            parts = [self.training.loss.format(name) for name in self.losses]
            parts += ["(p0 * p1).mean()"] if is_outside or not parts else []  # torch has no backward of what needs no gradient
            inner = [*lines, f"loss = {' + '.join(parts)}", *([] if is_outside else [self.training.backward])]
            lines = [*self.training.opens.split("\n"), *("    " + line for line in inner)] if self.training.opens else inner
            if is_outside:
                returned = f"({returned}), loss"
            else:
                lines += self.training.then
        return [*lines, f"return {returned}"]

    def step(self) -> list[str]:
        """The function that calls this one and trains, where it does so from outside; it gives the gradients, too."""
        if not (self.training and self.training.is_outside):
            return []
        arguments, learned = ", ".join(self.arguments()), [n for n in self.arguments() if n in ("x", "y", "half", "deep")]
        targets = f"[{''.join(f'{n}, ' for n in learned)}*params]"
        lines = [f"{n} = {n}.clone().requires_grad_()" for n in learned]
        lines += [f"results, loss = f({arguments})", *self.training.backward.split("\n")]
        # None would be torch.compile's zeros wherever a result outside of the loss has a gradient.
        lines += [f"for t in {targets}:", "    t.grad = torch.zeros_like(t) if t.grad is None else t.grad"]
        lines += [*self.training.then, f"return results, *[t.grad for t in {targets}]"]
        return ["@torch.enable_grad()", f"def t{self.name[1:]}(f, {arguments}):", *("    " + line for line in lines)]

    def without_dead(self, learned: Collection[str]) -> Function:
        """Without the statements whose values reach neither a result nor a state: no graph computes them, so their errors do not come.

        learned: the states that have parameters. What the loss has no gradient of reaches none of them.
        """
        reached = set(learned)
        for statement in self.statements:
            if statement.has_gradient() and statement.words() & reached:
                reached.add(statement.name)
        live = {*self.returns, *(reached & {*self.losses})}
        kept: list[Statement] = []
        for statement in reversed(self.statements):
            starts = (statement.name, *BLOCKS)
            if statement.name and statement.name not in live and all(line.strip().startswith(starts) for line in statement.lines()):
                continue
            kept.insert(0, statement)
            live |= statement.words_read()
        losses = tuple(name for name in self.losses if name in reached)
        return replace(self, statements=tuple(kept), losses=losses)

    def arguments(self) -> tuple[str, ...]:
        words = set(WORD.findall("\n".join(self.body())))
        return tuple(name for name in ARGUMENTS if name in words) or ("x",)


@dataclass(frozen=True)
class Call:
    function: str
    rows: int = 3
    seed: int = 0
    keeps: bool = False  # the arguments of the call before
    then: Row | None = None  # what the caller does before the next call


# An argument of n rows. numbers(...) and integers(...) draw from a stream of their own; integers reach their bounds.
ARGUMENTS = {
    "x": "numbers(seed, n, 4) * 2",
    "y": "numbers(seed + 1, 4)",
    "idx": "np.array([0, n - 1, seed % n], 'int32')",
    "cnt": "np.int32(seed % 3)",
    "half": "numbers(seed + 2, 4).astype('float16')",
    "whole": "integers('int32', seed, n, 4)",
    "byte": "integers('uint8', seed, n, 4)",
    "mask": "numbers(seed + 3, n, 4) > 0",
    "deep": "numbers(seed + 4, n, 2 + seed % 3, 4)",
}

ARGUMENTS_TEXT = """
def numbers(seed, *shape):
    return np.random.RandomState(seed).randn(*shape).astype("float32")

def integers(dtype, seed, *shape):
    r, bounds = np.random.RandomState(seed), np.iinfo(dtype)
    return np.where(r.rand(*shape) < 0.1, r.choice([bounds.min, bounds.max, 0], shape), r.randint(max(bounds.min, -50), 51, shape)).astype(dtype)

def arguments(n, seed):
    return {{{}}}
"""

@dataclass(frozen=True)
class Program:
    seed: int
    states: tuple[tuple[str, str], ...]  # every state that a statement may name, and how it is made
    functions: tuple[Function, ...]
    calls: tuple[Call, ...]
    language: Language = MEGENGINE

    def used_states(self) -> list[tuple[str, str]]:
        """Those that the program names, with those that these are made of."""
        words = set(WORD.findall(self._functions_text() + self._caller_text()))
        found: list[tuple[str, str]] = []
        for name, made in reversed(self.states):
            if name in words:
                found.insert(0, (name, made))
                words |= set(WORD.findall(made)) | ({"p0"} if name == "params" else set())
        learned = [n for n, made in found if made.startswith(LEARNED)] + [f"*{n}.parameters()" for n, made in found if is_module(made)]
        return [(n, f"[{', '.join(learned)}]" if n == "params" else made) for n, made in found]

    def watched(self) -> list[str]:
        """What a state is seen by, after each call."""
        seen = []
        for name, made in self.used_states():
            if made.startswith((*LEARNED, *TENSORS)):
                seen.append(name)
            elif is_module(made):
                seen += [f"*{name}.parameters()", f"*{name}.buffers()"]
        return seen

    def _written(self, lines: list[str]) -> str:
        """The statement without which these lines of a function would bind a state's name to a local variable."""
        names = [n for n, _ in self.states if any(re.search(rf"(?<![\w.]){n}(, \w+)* ([-+*/]|)= ", line) for line in lines)]
        return f"    global {', '.join(names)}\n" if names else ""

    def _functions_text(self) -> str:
        text = ""
        for f in self.functions:
            text += f"\ndef {f.name}({', '.join(f.arguments())}):\n" + self._written(f.body())
            text += "".join(f"    {line}\n" for line in f.body())
            text += "".join(f"{line}\n" for line in (["", *f.step()] if f.step() else []))
        return text

    def _caller_text(self) -> str:
        arguments = {f.name: ", ".join(f'a["{n}"]' for n in f.arguments()) for f in self.functions}
        steps, used = {f.name for f in self.functions if f.step()}, {call.function for call in self.calls}
        lines = [f"{f.name.replace('f', 'g')} = wrap({f.name})" for f in self.functions if f.name in used]
        for i, call in enumerate(self.calls):
            if not (call.keeps and i):
                lines.append(f"a = {{name: {self.language.tensor} for name, value in arguments({call.rows}, {call.seed}).items()}}")
            step = call.function.replace("f", "t") + ", " if call.function in steps else ""
            called = f"{step}{call.function.replace('f', 'g')}, {arguments[call.function]}"
            lines += [self.language.seed.format(100 + i), f"r = call({called})", "yield r, a, watched()"]
            if call.then:
                lines += call.then.text.split("\n")
        return "\ndef program(wrap):\n" + self._written(lines) + "    start()\n" + "".join(f"    {line}\n" for line in lines)

    def rows(self) -> list[Row | Training]:
        """All that the program is made of."""
        statements = [s.row for f in self.functions for s in f.statements]
        return [*statements, *(f.training for f in self.functions if f.training), *(c.then for c in self.calls if c.then)]

    def text(self) -> str:
        """Every argument and state draws from a stream of its own: a smaller program sees the same numbers."""
        written = {n for call in self.calls if call.then for n in re.findall(r"a\['(\w+)'\]", call.then.text)}
        read = {n for f in self.functions for n in f.arguments()} | written
        watched = ", ".join(self.watched())
        return preamble(self.used_states(), read, watched, self.language) + self._functions_text() + self._caller_text()


def is_module(made: str) -> bool:
    return made.startswith(MODULES) and not made.startswith(LEARNED)


def preamble(states: Sequence[tuple[str, str]], arguments: Collection[str], watched: str, language: Language) -> str:
    """All that stands before the functions."""
    names = [n for n, _ in states]
    text = language.head + ARGUMENTS_TEXT.format("".join(f'\n        "{n}": {made},' for n, made in ARGUMENTS.items() if n in arguments))
    text += "\ndef start():\n" + f"    global {', '.join([*names, 'start_names', 'start_values'])}\n    {language.seed.format(3)}\n"
    text += "".join(f"    {n} = {made}\n" for n, made in states)
    text += f"    start_names = {{name: globals()[name] for name in {names}}}\n"
    text += f"    start_values = [(t, {language.copy}) for t in watched()]\n"
    text += f"\ndef watched():\n    return [{watched}]\n"
    return text + language.restore + language.forget * ("opt" in names) + language.call
