"""The examples of docs/fx.md run as printed (F11)."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).resolve().parents[3] / "docs/fx.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"## (.*)\n(?:(?!## )[\s\S])*?```python\n([\s\S]*?)```", TEXT))


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_runs(title):
    exec(compile(EXAMPLES[title], f"docs/fx.md, {title}", "exec"), {"__name__": "example"})


def test_there_are_five():
    assert len(EXAMPLES) == 5
