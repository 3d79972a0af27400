"""Small programs give what the original gave for them; behaviour/README.md says how that was recorded."""

import re
import runpy
import warnings
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).with_name("behaviour")
ask = runpy.run_path(str(HERE / "ask.py"))
RECORDED = dict(line.split(": ", 1) for line in (HERE / "recorded.txt").read_text().splitlines())
CASES = dict(case for path in sorted(HERE.glob("cases_*.py")) for case in ask["asks_of"](path))
NUMBER = re.compile(r"-?\b\d+\.?\d*(?:e[+-]?\d+)?|\bnan\b|-?\binf\b")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_a_program_gives_what_the_original_gave(name):
    theirs = RECORDED[name]
    with warnings.catch_warnings():
        ours = ask["answer"](CASES[name])
    assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs), (ours, theirs)
    numbers = [np.array(NUMBER.findall(line), float) for line in (ours, theirs)]
    np.testing.assert_allclose(*numbers, rtol=2e-5, atol=2e-6)


def test_each_recorded_line_has_its_program():
    assert set(RECORDED) == set(CASES)
