"""The least bytes of a program that is known as text: its steps, what each reads and writes, its scratch memory.

Written from what `fn.graph_text()` and `fn.plan()` show, and shares no code with the library's search and bound: it
judges the proof that a refused memory limit carries.
"""

import dataclasses
import math
import re

from remat_problems import Problem, Step, Value

_BYTES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "u32": 4, "f16": 2, "bf16": 2, "i16": 2, "u16": 2, "i8": 1, "u8": 1, "b1": 1, "key": 16}
_VALUE = re.compile(r"(%\d+): (\w+)\[([\d, ]*)\]")
_VIEWS = {"reshape", "flatten", "add_axis", "remove_axis", "squeeze", "expand_dims", "view"}
# Their results never lie where an operand lies: each element of the result needs many of the operand's.
_WHOLE = re.compile(r"matmul|conv|pool|norm|softmax|attention|transpose|reduce|index|gather|slice|concat|dropout|embedding")


@dataclasses.dataclass
class Program:
    """Values by their names, in order: bytes, and what they view; steps: (name, reads, writes); and the results."""

    bytes: dict
    views: dict
    steps: list
    results: list
    inputs: set


def parse(text):
    program = Program({}, {}, [], [], set())
    for line in text.splitlines():
        if line.startswith("return"):
            program.results = line.split()[1:]
        if not line.startswith("%"):
            continue
        left, right = line.split(" = ", 1)
        words = right.split("  #")[0].split("{")[0].split()
        made = [(name, _BYTES[dtype] * math.prod(int(n) for n in shape.split(",") if n.strip())) for name, dtype, shape in _VALUE.findall(left)]
        program.bytes.update(made)
        names, reads = [name for name, _ in made], [word for word in words[1:] if word.startswith("%")]
        if words[0] in ("input", "const"):
            program.inputs.update(names)
        elif words[0] in _VIEWS:
            program.views[names[0]] = program.views.get(reads[0], reads[0])
        else:
            roots = list(dict.fromkeys(program.views.get(name, name) for name in reads))
            program.steps.append((words[0], roots, names))
    program.results = [program.views.get(name, name) for name in program.results]
    return program


def scratch_of(plan):
    """By the name of a step's first result."""
    found = {}
    for buffer in plan.buffers:
        for value in buffer.values:
            if value.startswith("workspace of "):
                found[value.split()[2]] = buffer.bytes
    return found


def problem_of(program, plan):
    """The steps as a problem of recomputation, in which all may run again, and all but `_WHOLE` may overwrite an operand."""
    names = list(program.bytes)
    number = {name: i for i, name in enumerate(names)}
    kept = program.inputs | set(program.results)
    values = [Value(program.bytes[name], name in kept) for name in names]
    scratch = scratch_of(plan)
    steps = []
    for op, reads, writes in program.steps:
        inside = [name for name in writes if name not in kept]
        steps.append(
            Step(1.0, not kept & set(writes), not _WHOLE.search(op), scratch.get(writes[0], 0), [number[r] for r in reads], [number[w] for w in inside], [])
        )
    return Problem(values, steps)


def fullest_step(problem):
    """The most that one step has at once: operands, results and scratch memory; a result may overwrite an operand."""
    most = 0
    for step in problem.steps:
        alive = {v for v in (*step.reads, *step.writes) if problem.takes_room(v)}
        size = sum(problem.values[v].bytes for v in alive) + step.scratch
        if step.in_place:
            made = max((problem.values[v].bytes for v in step.writes), default=0)
            size -= max((min(made, problem.values[v].bytes) for v in step.reads if problem.takes_room(v)), default=0)
        most = max(most, size)
    return most
