"""The judges: each runs a program in several ways and says how one differs from eager mode, or from NumPy. A judge is a row of JUDGES."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

from megengine.jit import SublinearMemoryConfig

from . import ways
from .draw import Taste
from .grammar import Program, Row
from .languages import LEARNED, MODULES
from .reference import TOLERANCE, judge_statements
from .refusals import is_documented
from .run import Outcome, Wrap, run

# A card tells errors late, and what eager mode has queued behind the failed operation is lost (docs/errors.md): a trace guards its states.
ON_A_CARD = int(os.environ.get("MEGJIT_EMULATED_GPUS", "0")) > 0


@dataclass(frozen=True)
class Finding:
    """kind: what stays the same while the program gets smaller; detail: the numbers."""

    judge: str
    mode: str
    kind: str
    detail: str
    call: int = -1

    @property
    def label(self) -> tuple[str, str, str]:
        return self.judge, self.mode, self.kind


@dataclass(frozen=True)
class Mode:
    """make: the text of a wrap, in a scope that has the names of the judge's ways. tolerance 0: the same bits. peer: another wrap; what it gives otherwise, too, is no finding."""

    name: str
    make: str
    tolerance: float = 0.0
    peer: str = ""

    def wrap(self, ways: ModuleType, make: str = "") -> Wrap:
        scope = {**vars(ways), "SublinearMemoryConfig": SublinearMemoryConfig}
        made: Wrap = eval(make or self.make, scope)
        return made


@dataclass(frozen=True)
class Judge:
    taste: Taste
    modes: tuple[Mode, ...] = ()
    draws: int = 2  # modes for each program
    judge: Callable[[Program], Iterator[tuple[str, str]]] | None = None  # in place of modes: kinds and details
    ends_at_errors: bool = False  # whether the state behind an error is another one
    ways: ModuleType = ways

    def findings(self, program: Program, modes: tuple[Mode, ...] | None = None) -> list[Finding]:
        name = self.taste.judge
        if self.judge:
            return [Finding(name, "eager", kind, detail) for kind, detail in self.judge(program)]
        text = program.text()
        want = run(text, ways.eager, language=program.language)
        if all(o.error for o in want):
            return []
        drawn = modes or random.Random(program.seed).sample(self.modes, min(self.draws, len(self.modes)))
        if any(isinstance(row, Row) and row.rounds for row in program.rows()) and any(f.training for f in program.functions):
            drawn = [replace(mode, tolerance=LOOSE) for mode in drawn]
        return [f for mode in drawn for f in self._of_mode(program, text, mode, want)]

    def _of_mode(self, program: Program, text: str, mode: Mode, want: list[Outcome]) -> list[Finding]:
        got = run(text, mode.wrap(self.ways), language=program.language)
        for call, (have, expected) in enumerate(zip(got, want, strict=True)):
            if ON_A_CARD and expected.error:
                return []
            found = difference(have, expected, mode.tolerance, self.taste.judge in FROM_FILES)
            if not found:
                if have.is_refusal or self.ends_at_errors and expected.error or (have.error is None) != (expected.error is None):
                    return []
                continue
            if have.error and is_documented(have.error, program):
                return []
            if found[0] == "no error" and not is_reached(program, call):
                return []
            if found[0] == "value" and (is_nan_of_a_scan(program, have, expected) or (mode.name == "onnxruntime" and is_beyond_doubles(have))):
                return []
            if found[0] == "value" and mode.tolerance and not is_settled(program, text, call):
                return []
            if mode.peer and difference(run(text, mode.wrap(self.ways, mode.peer), language=program.language)[call], expected, mode.tolerance):
                return []
            return [Finding(self.taste.judge, mode.name, *found, call)]
        return []


def difference(have: Outcome, want: Outcome, tolerance: float, loaded: bool = False) -> tuple[str, str] | None:
    """A kind and its detail; None where there is none. loaded: from a file, whose results are objects of their own."""
    if have.is_refusal:
        return None
    if have.error:
        first = str(have.error).split("\n")[0]
        text = f"{type(have.error).__name__}: {' | '.join(str(have.error).splitlines())}"
        if not want.error:
            return f"error {type(have.error).__name__} {re.sub(r'[^a-z _]', '', first.lower())[:30]}", text
        broken = isinstance(have.error, (AssertionError, SystemError, KeyError, AttributeError)) and type(have.error) is not type(want.error)
        return (f"error in place of an error {type(have.error).__name__}", f"{text}; eager mode: {want.error}") if broken else None
    if want.error:
        return "no error", f"eager mode: {type(want.error).__name__}: {want.error}"
    for where, haves, wants in (("result", have.results, want.results), ("state", have.state, want.state)):
        if len(haves) != len(wants):
            return "count", f"{len(haves)} {where}s, eager mode gives {len(wants)}"
        for i, (a, b) in enumerate(zip(haves, wants)):
            if told := array_difference(a, b, tolerance):
                return "value" if a.shape == b.shape and a.dtype == b.dtype else "type", f"{where} {i}: {told}"
    if have.same and want.same and not loaded and have.same != want.same:
        return "identity", f"which results are the same object: {have.same}, eager mode {want.same}"
    return None


def array_difference(a: np.ndarray, b: np.ndarray, tolerance: float) -> str:
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{list(a.shape)}, eager mode gives {b.dtype}{list(b.shape)}"
    if a.dtype.kind in "biu":
        return "" if np.array_equal(a, b) else f"{a.tolist()}, eager mode gives {b.tolist()}"
    x, y = a.astype(np.float64), b.astype(np.float64)
    if tolerance:  # libraries round a half once or twice
        tolerance = max(tolerance, TOLERANCE.get(a.dtype.name, 0.0))
        same = np.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        same = bool(((x == y) & (np.signbit(x) == np.signbit(y)) | np.isnan(x) & np.isnan(y)).all())
    return "" if same else f"{x.ravel()[:8].tolist()}, eager mode gives {y.ravel()[:8].tolist()}"


def is_reached(program: Program, call: int) -> bool:
    """Whether eager mode still raises in this call where nothing is computed that no result and no state reads."""
    learned = [name for name, made in program.states if made.startswith((*LEARNED, *MODULES))]
    live = replace(program, functions=tuple(f.without_dead(learned) for f in program.functions))
    told: list[str] = []
    error = run(live.text(), ways.eager, language=program.language, told=told)[call].error
    if any("depends on none of the" in each for each in told):  # then nobody reads what the loss is made of
        return False
    return error is not None and not isinstance(error, NameError)  # of what is read for its shape alone, which nobody computes


def is_nan_of_a_scan(program: Program, have: Outcome, want: Outcome) -> bool:
    """Whether the states differ by NaN alone, which a scan's gradient makes of zeros where eager mode multiplies nothing (docs/loops.md)."""
    if not any(f.training and "F.scan(" in "".join(f.body()) for f in program.functions):
        return False
    return difference(replace(have, state=tuple(np.where(np.isnan(a), b, a) for a, b in zip(have.state, want.state))), want, LOOSE) is None


def is_beyond_doubles(have: Outcome) -> bool:
    """Whether a result is an int64 that a float64 may not hold: onnxruntime adds these in float64, and ends at the largest number."""
    return any(each.dtype == np.int64 and (np.abs(each.astype(np.float64)) >= 2**53).any() for each in have.results)


def is_settled(program: Program, text: str, call: int) -> bool:
    """Whether eager mode gives nearly the same for nearly the same numbers: a floor of a sum, say, may fall on either side."""
    want = run(text, ways.eager, language=program.language)[call]
    are_halves = re.search(r"float16|\bhalf\b|\blow\b", text)
    step, tolerance = (4e-3, 8e-3) if are_halves else (2e-5, 2e-3)
    if "optim.Adam" in text:  # it makes a part of a step of a gradient that is rounding alone, of a bias before softmax, say
        tolerance /= 10
    for seed in range(6):

        def nudge(scope: dict[str, Any], seed: int = seed) -> None:
            random = np.random.RandomState(seed)

            def factors(shape: tuple[int, ...]) -> np.ndarray:  # one for each element: norms take a common one out
                return (1 + step * random.uniform(-1, 1, shape)).astype(np.float32)

            def numbers(*args: Any) -> np.ndarray:
                values = np.asarray(plain_numbers(*args))
                return values * factors(values.shape)

            def start() -> None:
                plain_start()
                for tensor in scope["watched"]():
                    program.language.scale(tensor, factors(tuple(tensor.shape)))

            plain_numbers, plain_start = scope["numbers"], scope["start"]
            scope.update(numbers=numbers, start=start)

        if difference(run(text, ways.eager, nudge, program.language)[call], want, tolerance):
            return False
    return True


FROM_FILES = ("dump", "batch", "onnx")
LOOSE = 5e-3
TRACE = (
    Mode("value", "traced()"),
    Mode("symbolic", "traced(symbolic=True)"),
    Mode("level 0", "traced(symbolic=True, opt_level=0)"),
    Mode("level 1", "traced(opt_level=1)"),
    Mode("level 3 exact", "traced(symbolic=True, opt_level=3, numerics='exact')"),
    Mode("level 3 exact by value", "traced(opt_level=3, numerics='exact')"),
    Mode("level 3", "traced(symbolic=True, opt_level=3)", LOOSE),
    Mode("sublinear", "traced(symbolic=True, opt_level=3, numerics='exact', sublinear_memory_config=SublinearMemoryConfig())"),
    Mode("plain shapes", "traced(symbolic=True, symbolic_shape=False)"),
    Mode("limit 1GB", "traced(opt_level=2, numerics='exact', memory_limit='1GB')"),
)
SKIP = (
    Mode("without host", "traced(without_host=True, symbolic=True)"),
    Mode("without host by value", "traced(without_host=True)"),
    Mode("without host level 3", "traced(without_host=True, opt_level=3, numerics='exact')"),
    Mode("auto", "traced(without_host='auto', symbolic=True)"),
    Mode("auto by value", "traced(without_host='auto')"),
)
DUMP = (
    Mode("dump exact", "(lambda together: lambda f: Loaded(f, together, opt_level=3, numerics='exact'))([])"),
    Mode("dump", "(lambda together: lambda f: Loaded(f, together))([])", LOOSE),
)
BATCH = (Mode("batch", "OtherBatch", LOOSE), Mode("batch level 0", "lambda f: OtherBatch(f, opt_level=0)", LOOSE))
LIMIT = (
    Mode("least limit", "lambda f: AtItsLimit(f, opt_level=2, numerics='exact')"),
    Mode("least limit level 3", "lambda f: AtItsLimit(f, opt_level=3, numerics='exact')"),
)
ONNX = (Mode("onnxruntime", "lambda f: Exported(f, back=False)", LOOSE), Mode("onnx and back", "lambda f: Exported(f, back=True)", LOOSE))

_BY_TORCH, _BY_TORCH_DYNAMIC = "compiled('aot_eager')", "compiled('aot_eager', dynamic=True)"
TORCH = (
    Mode("torch.compile", "compiled()", LOOSE, _BY_TORCH),
    Mode("torch.compile, dynamic", "compiled(dynamic=True)", LOOSE, _BY_TORCH_DYNAMIC),
    Mode("torch.compile, exact", "compiled(options={'numerics': 'exact', 'opt_level': 2})", LOOSE, _BY_TORCH),
    Mode("torch.compile, a limit", "compiled(options={'memory_limit': '1GB'})", LOOSE, _BY_TORCH),
    Mode("torch.compile, a limit, dynamic", "compiled(dynamic=True, options={'memory_limit': '1GB'})", LOOSE, _BY_TORCH_DYNAMIC),
    Mode("torch.compile, least limit", "AtItsLimit", LOOSE, "compiled('aot_eager', fullgraph=True)"),
)


def of_torch() -> tuple[Judge, ...]:
    """Where torch is installed."""
    if not find_spec("torch"):
        return ()
    from . import in_torch, ways_torch

    return (Judge(Taste("torch", functions=2, language=in_torch.TORCH), TORCH, draws=1, ways=ways_torch),)


JUDGES = {
    judge.taste.judge: judge
    for judge in (
        Judge(Taste("eager", functions=1, trains=0.0), judge=judge_statements),
        Judge(Taste("trace"), TRACE),
        Judge(Taste("skip"), SKIP),
        Judge(Taste("dump", functions=2, trains=0.3, sizes=(3,)), DUMP, draws=1, ends_at_errors=True),
        Judge(Taste("batch", functions=1, statements=5, trains=0.0, sizes=(1, 2, 4, 5, 7)), BATCH, draws=1),
        Judge(Taste("onnx", functions=1, statements=6, trains=0.0), ONNX),
        Judge(Taste("limit", functions=1, trains=0.8), LIMIT, draws=1),
        *of_torch(),
    )
}


def judged(name: str, waiting: bool) -> Judge:
    judge = JUDGES[name]
    return replace(judge, taste=replace(judge.taste, waiting=waiting))
