"""Programs that a generator writes (tests/fuzz/programs): each judge sees some of fixed seeds, and the generator itself finds what is planted."""

import contextlib
import io
import random
import subprocess
import sys
from pathlib import Path

import pytest

import megengine.functional as F

ROOT = Path(__file__).parents[1] / "fuzz"
sys.path.insert(0, str(ROOT))

from programs import ways  # noqa: E402
from programs.draw import Stage, Taste, draw, every_row, fill, states_of  # noqa: E402
from programs.grammar import Row, Statement  # noqa: E402
from programs.judges import JUDGES, Finding, Judge, Mode  # noqa: E402
from programs.minimize import minimize  # noqa: E402
from programs.printed import script  # noqa: E402

SHARDS = [  # judge, first seed, programs
    ("eager", 1, 150), ("trace", 1, 100), ("trace", 101, 100), ("skip", 1, 100), ("skip", 101, 100), ("dump", 1, 120), ("batch", 1, 150), ("limit", 1, 80), ("onnx", 1, 25),
]  # fmt: skip


def needs(judge):
    if judge == "onnx":
        pytest.importorskip("onnx")


@pytest.mark.parametrize("judge, seed, programs", SHARDS)
def test_programs_of_fixed_seeds(judge, seed, programs):
    needs(judge)
    command = [sys.executable, "-m", "programs", "--judge", judge, "--seed", str(seed), "--programs", str(programs)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def wrong_relu(function):
    """As eager mode, but for relu."""

    def run(*args):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(F, "relu", lambda x: F.maximum(x, 0.125))
            return function(*args)

    return run


def test_a_planted_fault_is_found_and_made_small(monkeypatch):
    monkeypatch.setattr(ways, "wrong_relu", wrong_relu, raising=False)
    judge = Judge(Taste("trace"), (Mode("planted", "wrong_relu"),))
    program, found = next((p, f) for p in (draw(seed, judge.taste) for seed in range(200)) for f in judge.findings(p))
    least = minimize(program, lambda candidate: any(f.label == found.label for f in judge.findings(candidate)))
    (function,) = least.functions
    assert found.label == ("trace", "planted", "value")
    assert len(least.calls) == 1 and len(function.statements) <= 2 and not function.training
    assert "relu" in least.text()


@pytest.mark.parametrize("name", JUDGES)
def test_what_is_printed_runs_by_itself(name):
    needs(name)
    judge = JUDGES[name]
    program = draw(3, judge.taste)
    for mode in judge.modes or (Mode("eager", ""),):
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            exec(compile(script(program, Finding(name, mode.name, "value", "")), "script.py", "exec"), {"__name__": "script"})
        assert told.getvalue()


@pytest.mark.parametrize("name", JUDGES)
def test_a_seed_gives_the_same_program(name):
    taste = JUDGES[name].taste
    texts = [draw(seed, taste).text() for seed in (1, 2, 1)]
    assert texts[0] == texts[2] != texts[1]


def test_eager_mode_takes_every_row():
    """A row that it never takes would be drawn in vain. One may wait for that."""
    rng = random.Random(0)
    stage = Stage(states_of(Taste("trace"), rng))
    pool = stage.pool()
    for name, text in {"coded": "x.astype(qint8(0.05))", "deep": "F.stack([x, x])"}.items():
        pool[name] = stage.take(Statement(Row(text), (), name), rng)
    rows = [row for row in every_row() if isinstance(row, Row) and "M." not in row.text and "optim." not in row.text]
    stage.scope.update(a={name: stage.scope[name] for name in ("x", "whole")}, r=(1,))

    def takes(row):
        return any((s := fill(row, pool, "v0", rng)) and stage.take(s, rng) for _ in range(40))

    assert not [row.text for row in rows if not (row.waits_for or takes(row))]
