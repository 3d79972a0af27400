"""Plans of recomputation cost at most 5 % more than the optimum at the same peak, and there is one wherever one is feasible.

200 random graphs and 20 slices of real training steps; MEGJIT_FUZZ=1 judges all of them, otherwise some.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkmate import Checkmate
from real_graphs import GRAPHS
from remat_problems import coarse, drawn, measure, parse

TOOL = os.environ.get("MEGJIT_REMAT_PLANS")
ALL = os.environ.get("MEGJIT_FUZZ", "0") != "0"
NAMES = list(GRAPHS) if ALL else list(GRAPHS)[::4]
MOST_COST = 3  # times the plain order: RematSearch::most_cost
ROUNDING = 1e-5  # the solver keeps a constraint but for so much
STEPS = 12  # of a real graph, so that the integer program is solved within seconds

pytestmark = pytest.mark.skipif(not TOOL, reason="MEGJIT_REMAT_PLANS names no program; ctest -R optimal_plans does")


def plans_of(problem):
    """(peak, cost) of each plan, from the cheapest to the smallest; judged here again."""
    done = subprocess.run([TOOL, "plans"], input=problem.text(), capture_output=True, text=True, check=True)
    plans = []
    for line in done.stdout.split("\n\n")[0].splitlines():
        peak, cost, *order = line.split()
        assert measure(problem, [int(i) for i in order]) == (int(peak), pytest.approx(float(cost)))
        plans.append((int(peak), float(cost)))
    return plans


def judge(problem, parts=(0.1, 0.4, 0.7)):
    """At peaks between the least that was found and that of the plain order, and below the least."""
    plans = plans_of(problem)
    least, most = plans[-1][0], plans[0][0]
    for budget in [int(0.999 * least), *(int(least + part * (most - least)) for part in parts)]:
        optimum = Checkmate(problem, (1 - ROUNDING) * budget, MOST_COST * plans[0][1]).least_cost()
        found = next((cost for peak, cost in plans if peak <= budget), None)
        if optimum is not None:
            assert found is not None, f"there is a plan of {budget} bytes that costs {optimum[0]}"
            assert found <= 1.05 * optimum[0], f"at {budget} bytes"


@pytest.mark.parametrize("seed", range(200 if ALL else 20))
def test_a_random_graph(seed):
    judge(drawn(seed))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Name: the problem of its training step."""
    folder = tmp_path_factory.mktemp("graphs")
    dump = {**os.environ, "MEGJIT_DUMP": f"cancel@{folder}"}
    subprocess.run([sys.executable, Path(__file__).with_name("real_graphs.py"), *NAMES], env=dump, check=True)
    files = sorted(folder.glob("*.txt"))
    texts = [subprocess.run([TOOL, "problem", file], capture_output=True, text=True, check=True).stdout for file in files]
    return dict(zip(NAMES, map(parse, texts), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_real_graph(name, recorded):
    judge(coarse(recorded[name], STEPS))
