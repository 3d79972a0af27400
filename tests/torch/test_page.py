"""docs/hugging_face.md: its programs run, and print what the page shows."""

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/hugging_face.md"


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
