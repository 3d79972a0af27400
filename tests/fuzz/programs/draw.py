"""Draws a program from a seed. A statement that eager mode refuses where it stands is left out, so most of a program runs."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import megengine as mge
from megengine.core.tensor.dtype import is_quantize

from . import rows_layers, rows_state, rows_values
from .grammar import (
    ARGUMENTS,
    LITERALS,
    OPERANDS,
    Call,
    Function,
    Kind,
    Program,
    Row,
    Statement,
    Training,
    preamble,
)

# What no row says, and waits too.
WAITING_SHAPES = ("two functions train by one Adam",)
LARGEST, MOST_AXES = 2048, 5


@dataclass(frozen=True)
class Taste:
    """Which programs a judge wants."""

    judge: str
    functions: int = 3
    statements: int = 12
    trains: float = 0.5
    sizes: tuple[int, ...] = (3, 3, 3, 1, 2, 5)
    calls: int = 6
    waiting: bool = False  # whether rows of faults that are not mended yet are drawn

    def admits(self, row: Row | Training) -> bool:
        waits = row.waits_for and self.judge in (row.waits_in or (self.judge,))
        return self.judge not in row.unfit and (self.waiting or not waits)


# Tables of statements, and how often a statement is drawn from each.
TABLES: tuple[tuple[Sequence[Row], float], ...] = (
    (rows_values.FLOAT, 4), (rows_values.WHOLE, 2), (rows_values.PAIRS, 4), (rows_values.CASTS, 2), (rows_values.SHAPES, 4),
    (rows_values.REDUCTIONS, 3), (rows_values.INDEXED, 2), (rows_layers.PRODUCTS, 2), (rows_layers.ATTENTION, 0.6), (rows_layers.FLOW, 2),
    (rows_layers.RANDOM, 0.8), (rows_layers.MODULES, 1.2), (rows_state.WRITES, 3), (rows_state.STATE, 2.5), (rows_state.SWAPS, 0.5),
    (rows_state.HOST, 1.2), (rows_state.RESETS, 0.6), (rows_state.FACTS, 0.4), (rows_state.READS, 0.3), (rows_state.RAISES, 0.5),
)  # fmt: skip


def every_row() -> list[Row | Training]:
    tables: list[Sequence[Row | Training]] = [table for table, _ in TABLES]
    return [row for table in (*tables, rows_layers.LAYERS, rows_layers.OPTIMIZERS, rows_state.CALLER, rows_state.TRAININGS, rows_state.RETURNED) for row in table]


def kind_of(value: Any) -> Kind | None:
    """None: of what is no operand."""
    if not isinstance(value, mge.Tensor):
        return None
    name = value.dtype.name
    return Kind(("q" if is_quantize(value.dtype) else "") + name, tuple(map(int, value.shape)))


def states_of(taste: Taste, rng: random.Random) -> tuple[tuple[str, str], ...]:
    choices = [row.text for row in rows_layers.LAYERS if taste.admits(row)]
    layers = ", ".join(rng.choice(choices) for _ in range(rng.randint(1, 4)))
    optimizer = rng.choice([row.text for row in rows_layers.OPTIMIZERS if taste.admits(row)])
    return tuple((name, made.replace("LAYERS", layers).replace("OPTIMIZER", optimizer)) for name, made in rows_layers.STATES.items())


def fill(row: Row, pool: dict[str, Kind], name: str, rng: random.Random) -> Statement | None:
    """None: where the pool has nothing that fits a hole."""
    recent, fills = list(pool)[-5:], []
    for hole in row.holes():
        if hole == "v":
            continue
        if hole in LITERALS:
            fills.append((hole, rng.choice(LITERALS[hole])))
            continue
        fits = [n for n in (*recent, *pool) if OPERANDS[hole.rstrip("2")](pool[n])]
        if not fits:
            return None
        fills.append((hole, rng.choice(fits)))
    return Statement(row, tuple(fills), name if row.is_expression or "{v}" in row.text else "")


class Stage:
    """Where statements are tried while a program is drawn: its state, and the arguments of a call of three rows."""

    def __init__(self, states: tuple[tuple[str, str], ...]) -> None:
        text = preamble([(n, "[p0, p1]" if n == "params" else made) for n, made in states], ARGUMENTS, "")
        self.scope: dict[str, Any] = {}
        exec(compile(text, "stage", "exec"), self.scope)
        self.scope["start"]()
        self.scope.update({n: mge.tensor(v) for n, v in self.scope["arguments"](3, 0).items()})

    def pool(self) -> dict[str, Kind]:
        names = [*ARGUMENTS, "p0", "p1", "q0", "low", "p2", "p3", "tiny"]
        return {n: kind for n in names if (kind := kind_of(self.scope[n]))}

    def take(self, statement: Statement, rng: random.Random) -> Kind | bool:
        """The kind of what it makes, or whether it runs."""
        trial = dict(self.scope)
        try:
            exec("\n".join(statement.lines()), trial)
            value = trial.get(statement.name)
            kind = kind_of(value)
            if statement.name:
                if not isinstance(value, mge.Tensor) or value.size > LARGEST or value.ndim > MOST_AXES or value.size == 0 and rng.random() < 0.7:
                    return False
                value.numpy()
        except Exception:
            return False
        self.scope = trial
        return kind or True


def draw_function(name: str, states: tuple[tuple[str, str], ...], trainer: Training | None, taste: Taste, rng: random.Random) -> Function:
    trains = trainer is not None
    stage = Stage(states)
    made: list[Statement] = []
    pool = stage.pool()
    weights = [weight for _, weight in TABLES]
    own: list[str] = []
    for _ in range(rng.randint(2, taste.statements)):
        table = rng.choices(TABLES, weights)[0][0]
        row = rng.choices(table, [r.weight for r in table])[0]
        if not taste.admits(row) or trains and not row.trains:
            continue
        statement = fill(row, pool, f"v{len(made)}", rng)
        kind = statement and stage.take(statement, rng)
        if statement and kind:
            made.append(statement)
            if isinstance(kind, Kind):
                pool[statement.name] = kind
                own.append(statement.name)
    others = [row.text for row in rows_state.RETURNED if taste.admits(row)]
    of = [*own, *own, *rng.sample(others, min(2, len(others)))] or ["x"]
    returns = tuple(dict.fromkeys(rng.choice(of) for _ in range(rng.randint(1, 3))))
    if rng.random() < 0.1 and taste.judge != "batch":
        returns += returns[:1]
    smooth = [n for n in own if pool[n].dtype in ("float32", "float16", "bfloat16") and 0 not in pool[n].shape]
    losses = tuple(dict.fromkeys(rng.choice(smooth) for _ in range(rng.randint(1, 3)))) if smooth and trains else ()
    containers = [row for row in rows_state.CONTAINERS if taste.admits(row)]
    container = rng.choices(containers, [row.weight for row in containers])[0].text
    return Function(name, tuple(made), returns, container, trainer, losses)


def draw(seed: int, taste: Taste) -> Program:
    rng = random.Random(f"{taste.judge} {seed}")
    states = states_of(taste, rng)
    # One for all functions: gradients that one leaves are not what another one finds.
    trainer = rng.choice([t for t in rows_state.TRAININGS if taste.admits(t)])
    functions: list[Function] = []
    for k in range(rng.randint(1, taste.functions)):
        trains = rng.random() < taste.trains
        if "Adam" in dict(states)["opt"] and any(f.training for f in functions) and not taste.waiting:
            trains = False  # WAITING_SHAPES
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            functions.append(draw_function(f"f{k}", states, trainer if trains else None, taste, rng))
    words = {w for f in functions for s in f.statements for w in s.words()}
    callers = [r for r in rows_state.CALLER if taste.admits(r)]
    first = rng.choice((1, 2, 3)) if taste.judge == "batch" else 3
    calls = [Call("f0", first), Call("f0", first, seed=1)]
    for k in range(2, rng.randint(3, taste.calls)):
        calls.append(Call(rng.choice(functions).name, rng.choice(taste.sizes), k, keeps=rng.random() < 0.15))
    for k in range(len(calls) - 1):
        if callers and rng.random() < 0.35:
            # Of two, the one that touches what the program reads.
            row = max(rng.choices(callers, [r.weight for r in callers], k=2), key=lambda r: any(w in words for w in r.text.replace("[", " ").split()))
            calls[k] = replace(calls[k], then=row)
            if row.text.startswith("a["):
                calls[k + 1] = replace(calls[k + 1], keeps=True)
    return Program(seed, states, tuple(functions), tuple(calls))
