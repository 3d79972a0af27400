"""Draws a program from a seed. A statement that eager mode refuses where it stands is left out, so most of a program runs."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

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
from .languages import MEGENGINE, Language

LARGEST, MOST_AXES = 2048, 5
OWN_WEIGHT = 12


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
    language: Language = MEGENGINE

    def admitted(self, table: Sequence[Any]) -> list[Any]:
        """The rows of a table that this judge wants, as its language has them."""
        return [row for given in table if self.admits(given) and (row := self.language.row(given))]

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


def without_idle_biases(layers: list[str]) -> list[str]:
    """A bias before a batch normalization has a gradient that is rounding alone, of which Adam makes a whole step: such layers are products without one."""
    is_idle = [text in rows_layers.WITH_BIAS and "BatchNorm" in after for text, after in zip(layers, [*layers[1:], ""])]
    return ["M.Linear(4, 4, bias=False)" if idle else text for text, idle in zip(layers, is_idle)]


def states_of(taste: Taste, rng: random.Random) -> tuple[tuple[str, str], ...]:
    choices = [row.text for row in rows_layers.LAYERS if taste.admits(row)]
    layers = ", ".join(without_idle_biases([rng.choice(choices) for _ in range(rng.randint(1, 4))]))
    optimizer = rng.choice([row.text for row in rows_layers.OPTIMIZERS if taste.admits(row)])
    made = {name: text.replace("LAYERS", layers).replace("OPTIMIZER", optimizer) for name, text in rows_layers.STATES.items()}
    return tuple((name, text) for name, given in made.items() if (text := taste.language.state(given)))


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

    def __init__(self, states: tuple[tuple[str, str], ...], language: Language = MEGENGINE, trains: bool = False) -> None:
        text = preamble([(n, "[p0, p1]" if n == "params" else made) for n, made in states], ARGUMENTS, "", language)
        self.language, self.trains = language, trains
        self.scope: dict[str, Any] = {}
        exec(compile(text, "stage", "exec"), self.scope)
        self.scope["start"]()
        self.scope.update(language.given(self.scope["arguments"](3, 0), trains))

    def kind_of(self, value: Any) -> Kind | None:
        """None: of what is no operand."""
        found = self.language.kind(value)
        return found and Kind(*found)

    def pool(self) -> dict[str, Kind]:
        names = [*(n for n in ARGUMENTS if n not in self.language.without), "p0", "p1", "q0", "low", "p2", "p3", "tiny"]
        return {n: kind for n in names if (kind := self.kind_of(self.scope[n]))}

    def take(self, statement: Statement, rng: random.Random) -> Kind | bool:
        """The kind of what it makes, or whether it runs."""
        trial = dict(self.scope)
        try:
            with self.language.mode(self.trains):
                exec("\n".join(statement.lines()), trial)
            value = trial.get(statement.name)
            kind = self.kind_of(value)
            if statement.name:
                if not kind or (size := prod(kind.shape)) > LARGEST or len(kind.shape) > MOST_AXES or size == 0 and rng.random() < 0.7:
                    return False
                self.language.array(value)
        except Exception:
            return False
        self.scope = trial
        return kind or True


def draw_function(name: str, states: tuple[tuple[str, str], ...], trainer: Training | None, taste: Taste, rng: random.Random) -> Function:
    trains = trainer is not None
    stage = Stage(states, taste.language, trains)
    made: list[Statement] = []
    pool = stage.pool()
    tables = (*TABLES, (taste.language.own, OWN_WEIGHT))
    weights = [weight if table else 0 for table, weight in tables]
    own: list[str] = []
    for _ in range(rng.randint(2, taste.statements)):
        table = rng.choices(tables, weights)[0][0]
        given = rng.choices(table, [r.weight for r in table])[0]
        row = taste.language.row(given) if taste.admits(given) else None
        if not row or trains and not row.trains:
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
    trainer = rng.choice(taste.admitted(taste.language.trainings or rows_state.TRAININGS))
    functions: list[Function] = []
    for k in range(rng.randint(1, taste.functions)):
        trains = rng.random() < taste.trains
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            functions.append(draw_function(f"f{k}", states, trainer if trains else None, taste, rng))
    words = {w for f in functions for s in f.statements for w in s.words()}
    callers = [r for given in rows_state.CALLER if taste.admits(given) and (r := taste.language.caller(given))]
    first = rng.choice((1, 2, 3)) if taste.judge == "batch" else 3
    calls = [Call("f0", first), Call("f0", first, seed=1)]
    for k in range(2, rng.randint(3, taste.calls)):
        calls.append(Call(rng.choice(functions).name, rng.choice(taste.sizes), k, keeps=rng.random() < 0.15))
    for k in range(len(calls) - 1):
        if callers and rng.random() < 0.35:
            # The one of two that touches what the program reads.
            row = max(rng.choices(callers, [r.weight for r in callers], k=2), key=lambda r: any(w in words for w in r.text.replace("[", " ").split()))
            calls[k] = replace(calls[k], then=row)
            if row.text.startswith("a["):
                calls[k + 1] = replace(calls[k + 1], keeps=True)
    return Program(seed, states, tuple(functions), tuple(calls), taste.language)
