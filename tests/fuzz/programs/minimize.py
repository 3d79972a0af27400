"""Makes a program that fails smaller, as long as it fails in the same way: the same judge, mode and kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from .grammar import LITERALS, Function, Program, Statement

MOST_TRIALS = 1500


def renamed(function: Function, old: str, new: str) -> Function:
    """Whoever read one value reads another."""

    def fills(statement: Statement) -> Statement:
        return replace(statement, fills=tuple((hole, new if name == old else name) for hole, name in statement.fills))

    def names(given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(new if name == old else name for name in given))

    return replace(function, statements=tuple(map(fills, function.statements)), returns=names(function.returns), losses=names(function.losses))


def without_statement(function: Function, i: int) -> Iterator[Function]:
    gone = function.statements[i]
    rest = replace(function, statements=function.statements[:i] + function.statements[i + 1 :])
    operands = [name for hole, name in gone.fills if hole not in LITERALS]
    for operand in dict.fromkeys([*operands, "x", "y"]) if gone.name else [""]:
        yield renamed(rest, gone.name, operand) if gone.name else rest


def smaller_functions(function: Function) -> Iterator[Function]:
    for i in reversed(range(len(function.statements))):
        yield from without_statement(function, i)
    if function.training:
        yield replace(function, training=None, losses=())
    for i in range(len(function.losses)):
        yield replace(function, losses=function.losses[:i] + function.losses[i + 1 :])
    for i in range(len(function.returns) if len(function.returns) > 1 else 0):
        yield replace(function, returns=function.returns[:i] + function.returns[i + 1 :])
    if function.container != "{},":
        yield replace(function, container="{},")
    for i, statement in enumerate(function.statements):
        for k, (hole, name) in enumerate(statement.fills):
            for other in ("x", "y") if hole not in LITERALS and name not in ("x", "y") else ():
                fills = (*statement.fills[:k], (hole, other), *statement.fills[k + 1 :])
                yield replace(function, statements=(*function.statements[:i], replace(statement, fills=fills), *function.statements[i + 1 :]))


def smaller_calls(program: Program) -> Iterator[Program]:
    calls = program.calls
    for i in reversed(range(len(calls))):
        if len(calls) > 1:
            yield replace(program, calls=calls[:i] + calls[i + 1 :])
    for i, call in enumerate(calls):
        simple = [replace(call, then=None), replace(call, keeps=False), replace(call, rows=3), replace(call, seed=0), replace(call, keeps=i > 0)]
        for other in simple:
            if other != call:
                yield replace(program, calls=(*calls[:i], other, *calls[i + 1 :]))


def smaller_states(program: Program) -> Iterator[Program]:
    """One layer less, a plainer optimizer."""
    for i, (name, made) in enumerate(program.states):
        found = re.fullmatch(r"(M|nn)\.Sequential\((.+)\)", made)
        layers = re.split(rf", (?={found[1]}\.)", found[2]) if found else []
        others = [f"{found[1]}.Sequential({', '.join(layers[:k] + layers[k + 1 :])})" for k in range(len(layers)) if found and len(layers) > 1]
        if name == "opt":
            others.append("optim.SGD(params, lr=0.05)")
        for other in others:
            yield replace(program, states=(*program.states[:i], (name, other), *program.states[i + 1 :]))


def smaller(program: Program) -> Iterator[Program]:
    for function in program.functions:
        rest = tuple(f for f in program.functions if f is not function)
        calls = tuple(c for c in program.calls if c.function != function.name)
        if calls:
            yield replace(program, functions=rest, calls=calls)
    yield from smaller_calls(program)
    yield replace(program, functions=tuple(replace(f, training=f.training and f.training.plain()) for f in program.functions))
    for i, function in enumerate(program.functions):
        for other in smaller_functions(function):
            yield replace(program, functions=(*program.functions[:i], other, *program.functions[i + 1 :]))
    yield from smaller_states(program)


def size(program: Program) -> tuple[int, int, int]:
    """Fewer statements before shorter text; of two texts of one length, the one that names the argument x more often."""
    text = program.text()
    return sum(len(f.statements) for f in program.functions) + len(program.calls), len(text), -len(re.findall(r"\bx\b", text))


def minimize(program: Program, fails: Callable[[Program], bool]) -> Program:
    """fails: whether a program shows the failure that is looked for."""
    trials, seen = 0, {program.text()}
    shrinks = True
    while shrinks and trials < MOST_TRIALS:
        shrinks = False
        for candidate in smaller(program):
            text = candidate.text()
            if text in seen or size(candidate) >= size(program):
                continue
            seen.add(text)
            trials += 1
            if fails(candidate):
                program, shrinks = candidate, True
                break
            if trials >= MOST_TRIALS:
                break
    return program
