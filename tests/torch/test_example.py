"""The examples with PyTorch: one trains a network of torchvision here, two train PyTorch's own under a limit."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

LIMITS = Path(__file__).resolve().parents[2] / "examples/torch_memory_limit.py"
BILLION, LIMIT_OF_20 = Path(__file__).resolve().parents[2] / "examples/finetune_1b_torch.py", 60
EXAMPLE = Path(__file__).resolve().parents[2] / "examples/finetune_torchvision.py"


def test_a_network_of_torchvision_learns_here_and_is_saved(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--steps", "20"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    parts = [(float(first), float(last)) for first, last in re.findall(r"loss ([\d.]+) to ([\d.]+)", printed)]
    assert len(parts) == 2 and all(last < first for first, last in parts)
    assert "the file gives the same results: True" in printed


@pytest.mark.parametrize("network", ["gpt2", "vit"])
def test_a_network_is_trained_in_half_the_memory_and_the_picture_shows_it(network, tmp_path):
    picture = tmp_path / "limit.svg"
    command = [sys.executable, str(LIMITS), "--network", network, "--tiny", "--steps", "3", "--peers", "checkpointing", "--out", str(picture)]
    environment = {**os.environ, "PYTHONPATH": os.environ["MEGJIT_SITE"]}
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    rows = re.findall(r"^(.{14}) +([\d.]+) MiB, +[\d.]+ ms a step, loss ([\d.]+) to ([\d.]+)$", printed, re.MULTILINE)
    names = [name.strip() for name, *_ in rows]
    assert names == ["eager", "checkpointing", *(f"megjit, {part}%" for part in (100, 75, 50))], printed
    assert len({(first, last) for _, _, first, last in rows}) == 1 and float(rows[0][3]) < float(rows[0][2])
    assert float(rows[-1][1]) <= 0.6 * float(rows[0][1]), printed  # a page here and there is torch's
    assert picture.read_text().count("<circle") == len(rows)


def test_a_llama_of_transformers_is_fine_tuned_under_a_limit_and_goes_on_from_its_file(tmp_path):
    """As PyTorch alone trains it; a second run has the losses that the first would have had."""
    pytest.importorskip("peft")

    def losses(*options):
        command = [sys.executable, str(BILLION), "--millions", "20", "--length", "64", *options]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ["MEGJIT_SITE"], os.environ.get("PYTHONPATH", "")])}
        printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path).stdout
        return dict(re.findall(r"^step (\d+): loss ([\d.]+)$", printed, re.MULTILINE))

    theirs = losses("--eager", "--steps", "3", "--file", "eager.pt")
    ours = losses("--limit", str(LIMIT_OF_20), "--steps", "2", "--file", "ours.pt")
    on = losses("--limit", str(LIMIT_OF_20), "--steps", "3", "--file", "ours.pt")
    assert list(ours) == ["1", "2"] and list(on) == ["3"]
    assert {step: float(loss) for step, loss in (ours | on).items()} == pytest.approx({step: float(loss) for step, loss in theirs.items()}, abs=2e-3)
