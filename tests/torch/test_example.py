"""The example that trains a network of torchvision here."""

import re
import runpy
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/finetune_torchvision.py"


def test_a_network_of_torchvision_learns_here_and_is_saved(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--steps", "20"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    parts = [(float(first), float(last)) for first, last in re.findall(r"loss ([\d.]+) to ([\d.]+)", printed)]
    assert len(parts) == 2 and all(last < first for first, last in parts)
    assert "the file gives the same results: True" in printed
