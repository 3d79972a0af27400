"""Programs that a generator writes (tests/fuzz/programs), printed as torch: torch.compile gives what torch's eager mode gives, in values, gradients and updates.

A failure prints the smallest program. PROGRAMS says how many are drawn.
"""

import contextlib
import io
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "fuzz"
sys.path.insert(0, str(ROOT))

from programs.draw import Stage, draw, every_row, fill, states_of  # noqa: E402
from programs.grammar import Row  # noqa: E402
from programs.in_torch import OWN, TORCH  # noqa: E402
from programs.judges import JUDGES, Finding  # noqa: E402
from programs.printed import script  # noqa: E402

PROGRAMS, EACH = int(os.environ.get("PROGRAMS", "50")), 25


@pytest.mark.parametrize("seed", range(1, PROGRAMS, EACH))
def test_programs_of_fixed_seeds(seed):
    command = [sys.executable, "-m", "programs", "--judge", "torch", "--seed", str(seed), "--programs", str(EACH)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("mode", JUDGES["torch"].modes, ids=lambda mode: mode.name)
def test_what_is_printed_runs_by_itself(mode):
    program = draw(3, JUDGES["torch"].taste)
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        exec(compile(script(program, Finding("torch", mode.name, "value", "")), "script.py", "exec"), {"__name__": "script"})
    assert told.getvalue()


def test_eager_mode_takes_every_row_that_torch_has():
    """A row that it never takes would be drawn in vain."""
    taste, rng = JUDGES["torch"].taste, random.Random(0)
    stage = Stage(states_of(taste, rng), TORCH)
    pool = stage.pool()
    stage.scope.update(a={name: stage.scope[name] for name in ("x", "whole")}, r=(1,))
    given = [row for row in (*every_row(), *OWN) if isinstance(row, Row) and taste.admits(row) and "M." not in row.text and "optim." not in row.text]
    rows = [row for each in given if "{coded}" not in each.text and (row := TORCH.row(each))]

    def takes(row):
        return any((s := fill(row, pool, "v0", rng)) and stage.take(s, rng) for _ in range(40))

    assert not [row.text for row in rows if not takes(row)]
    assert len(rows) > 250
