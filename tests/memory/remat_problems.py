"""Problems of recomputation as plain data: read, drawn at random, made smaller; and what a list of steps takes.

Written from memory/rematerialize.h alone, so that it can judge what memory/ answers.
"""

import dataclasses
import random


@dataclasses.dataclass
class Value:
    bytes: int
    is_kept: bool = False
    must_stay: bool = False


@dataclasses.dataclass
class Step:
    cost: float
    repeatable: bool
    in_place: bool
    scratch: int
    reads: list
    writes: list
    overwrites: list


@dataclasses.dataclass
class Problem:
    values: list
    steps: list

    def __post_init__(self):
        self.producer = {v: i for i, step in enumerate(self.steps) for v in step.writes}
        self.readers = {v: [i for i, step in enumerate(self.steps) if v in step.reads] for v in range(len(self.values))}

    def takes_room(self, v):
        return v in self.producer and not self.values[v].is_kept

    def text(self):
        lines = [len(self.values)] + [f"{v.bytes} {v.is_kept:d} {v.must_stay:d}" for v in self.values] + [len(self.steps)]
        for s in self.steps:
            lists = " ".join(" ".join(map(str, [len(x), *x])) for x in (s.reads, s.writes, s.overwrites))
            lines.append(f"{s.cost!r} {s.repeatable:d} {s.in_place:d} {s.scratch} {lists}")
        return "\n".join(map(str, lines)) + "\n"


def parse(text):
    words = iter(text.split())

    def number():
        return int(next(words))

    def numbers():
        return [number() for _ in range(number())]

    values = [Value(number(), bool(number()), bool(number())) for _ in range(number())]
    steps = [
        Step(float(next(words)), bool(number()), bool(number()), number(), numbers(), numbers(), numbers())
        for _ in range(number())
    ]
    return Problem(values, steps)


def drawn(seed):
    """Forward with joins and skips, backward that reads the activations: 6 to 10 steps."""
    rng = random.Random(seed)
    values, steps = [Value(50, True)], []

    def add(reads, same_bytes=False):
        values.append(Value(values[reads[0]].bytes if same_bytes else 10 * rng.randint(1, 8)))
        scratch = rng.choice([0, 0, 0, 20])
        steps.append(Step(rng.randint(1, 5), True, same_bytes, scratch, sorted(set(reads)), [len(values) - 1], []))
        return len(values) - 1

    acts = [0]
    layers = rng.randint(3, 5)
    for _ in range(layers):
        skip = [rng.choice(acts)] if rng.random() < 1 / 3 else []
        acts.append(add([acts[-1], *skip], rng.random() < 1 / 3))
    grad = add([acts[-1]])
    for i in range(layers - 1, 0, -1):
        skip = [acts[rng.randint(1, i)]] if rng.random() < 1 / 3 else []
        grad = add([grad, acts[i], *skip], rng.random() < 1 / 3)
    values[grad].is_kept = True
    return Problem(values, steps)


def coarse(problem, most_steps):
    """Joins steps with their readers, the cheapest pair first, until there are few enough."""
    values, steps = problem.values, list(problem.steps)
    while len(steps) > most_steps:
        maker = {v: i for i, step in enumerate(steps) for v in step.writes}
        pairs = {(steps[i].cost + b.cost, i, j) for j, b in enumerate(steps) for v in b.reads if (i := maker.get(v)) is not None}
        i, j = next((i, j) for _, i, j in sorted(pairs) if _may_move_up(steps, i, j) or _may_move_down(steps, i, j))
        a, b = steps[i], steps[j]
        others = {v for k, step in enumerate(steps) if k not in (i, j) for v in step.reads}
        joined = _joined(a, b, [v for v in a.writes if v in b.reads and v not in others and not values[v].is_kept], values)
        at = i if _may_move_up(steps, i, j) else j
        steps = [joined if k == at else step for k, step in enumerate(steps) if k == at or k not in (i, j)]
    used = sorted({v for step in steps for v in step.reads + step.writes})
    name = {v: n for n, v in enumerate(used)}
    lists = ("reads", "writes", "overwrites")
    renamed = [dataclasses.replace(step, **{k: [name[v] for v in getattr(step, k)] for k in lists}) for step in steps]
    return Problem([values[v] for v in used], renamed)


def _may_move_up(steps, i, j):
    """May step j run right behind step i?"""
    return not any({*k.writes} & {*steps[j].reads} or {*k.reads} & {*steps[j].overwrites} for k in steps[i + 1 : j])


def _may_move_down(steps, i, j):
    """May step i run right before step j?"""
    return not any({*k.reads} & {*steps[i].writes} or {*k.overwrites} & {*steps[i].reads} for k in steps[i + 1 : j])


def _joined(a, b, inner, values):
    """Both as one step, which alone sees the values of ``inner``."""
    in_place = a.in_place and b.in_place and len(a.writes) == len(inner) and len(b.writes) == 1
    return Step(
        a.cost + b.cost,
        a.repeatable and b.repeatable,
        in_place,
        max(a.scratch, b.scratch) + (0 if in_place else sum(values[v].bytes for v in inner)),
        sorted({*a.reads, *b.reads} - set(a.writes)),
        [v for v in a.writes + b.writes if v not in inner],
        [*a.overwrites, *b.overwrites],
    )


def measure(problem, order):
    """Peak and cost of running the steps of ``order``."""
    last_read, runs = {}, {}  # of a copy: (value, position of its write)
    for p, i in enumerate(order):
        for v in problem.steps[i].reads:
            if v in problem.producer:
                last_read[v, runs[v]] = p
        for v in problem.steps[i].writes:
            if v not in runs or not problem.values[v].is_kept:
                runs[v] = p
            last_read[v, p] = p
    stored = {c: last for c, last in last_read.items() if not problem.values[c[0]].is_kept or runs[c[0]] != c[1]}
    peak, beside = 0, read_after_overwriting(problem, order)
    for p, i in enumerate(order):
        step = problem.steps[i]
        alive = {c for c, last in stored.items() if c[1] <= p <= last}
        bytes_now = sum(problem.values[v].bytes for v, _ in alive) + step.scratch + beside
        if step.in_place and len(step.writes) == 1 and (step.writes[0], p) in alive:
            size = problem.values[step.writes[0]].bytes
            if any(v in step.reads and stored[v, born] == p and problem.values[v].bytes == size for v, born in alive):
                bytes_now -= size
        peak = max(peak, bytes_now)
    assert set(order) == set(range(len(problem.steps)))
    return peak, sum(problem.steps[i].cost for i in order)


def read_after_overwriting(problem, order):
    """Bytes of the values in whose storage a result cannot lie, because of which it has its own from the start."""
    found, overwritten = 0, set()
    for i in order:
        again = overwritten & set(problem.steps[i].reads)
        found += sum(problem.values[v].bytes for v in again)
        overwritten = overwritten - again | set(problem.steps[i].overwrites)
    return found
