"""docs/hugging_face.md, docs/pytorch.md and README.md: their programs run, and print what the pages show."""

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "hugging_face.md"


def test_a_checkpoint_is_trained_and_taken_over(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```text (python|output)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert [kind for kind, _ in blocks] == ["python", "python", "output", "python", "output"]
    namespace, printed = {"__name__": "page"}, ""
    for kind, body in blocks:
        if kind == "output":
            assert printed == body
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(body, str(PAGE), "exec"), namespace)
        printed = out.getvalue()


def test_the_first_program_keeps_its_limit_and_a_smaller_one_is_refused():
    program = re.findall(r"^```text python\n(.*?)^```$", (DOCS / "pytorch.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    assert len(program.splitlines()) == 10
    exec(compile(program, "pytorch.md", "exec"), {"__name__": "page"})
    with pytest.raises(MemoryError, match="at least [4-6][0-9]{7} bytes"):
        exec(compile(program.replace("80MB", "40MB"), "pytorch.md", "exec"), {"__name__": "page"})


def test_the_program_of_the_readme_keeps_its_limit_and_a_smaller_one_is_refused():
    (program,) = re.findall(r"^```py\n(.*?)^```$", (DOCS.parent / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(program, "README.md", "exec"), {"__name__": "readme"})
    with pytest.raises(MemoryError, match="at least [4-6][0-9]{7} bytes"):
        exec(compile(program.replace("60MB", "40MB"), "README.md", "exec"), {"__name__": "readme"})
