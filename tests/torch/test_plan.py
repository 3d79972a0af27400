"""`python -m megengine plan script.py` of PyTorch's programs: each graph is planned where it would run, and nothing is computed."""

import os
import re
import subprocess
import sys

import pytest

COMPILED = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 10)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


step = torch.compile(Net(), backend="megjit")
for _ in range(100):
    step(torch.rand(512, 64)).square().mean().backward()
print("this is too late")
"""
WHOLE = """
import torch
from torch import nn
from megengine.torch_backend import step

net = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 10))
before = net[0].weight.detach().clone()
train = step(net, nn.functional.mse_loss, torch.optim.Adam(net.parameters()))
for _ in range(5):
    train(torch.rand(512, 64), torch.rand(512, 10))
print("unchanged:", torch.equal(before, net[0].weight))
"""

LEFT = """
import torch

def spectrum(x, w):
    y = (x @ w).tanh()
    return (torch.fft.rfft(y).abs() * 2).exp().sum()


step = torch.compile(spectrum, backend="megjit")
step(torch.rand(128, 64), torch.rand(64, 64))
"""


def plan(script, tmp_path, *options):
    path = tmp_path / "script.py"
    path.write_text(script)
    environment = {**os.environ, "PYTHONPATH": os.environ["MEGJIT_SITE"]}
    return subprocess.run([sys.executable, "-m", "megengine", "plan", str(path), *options], capture_output=True, text=True, env=environment, cwd=tmp_path)


def test_forward_and_backward_are_planned(tmp_path):
    done = plan(COMPILED, tmp_path, "--html", str(tmp_path / "plan.html"))
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(\w+) from .*script.py:11 in forward: .*float32\[512", done.stdout, re.MULTILINE) == ["forward", "backward"], done.stdout
    assert "too late" not in done.stdout
    rows = dict(re.findall(r"^    (\w+) +[\d.]+ KiB +([\d,]+)$", done.stdout.split("backward from")[1].partition("alive at")[0], re.MULTILINE))
    assert rows["parameters"] == f"{256 * 10 * 4:,}", rows  # those that backward reads
    assert all("script.py:11 in forward" in (tmp_path / name).read_text() for name in ("plan.html", "plan-2.html"))


def test_a_whole_step_is_planned_and_changes_nothing(tmp_path):
    done = plan(WHOLE, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "step of Sequential: " in done.stdout and "unchanged: True" in done.stdout


@pytest.mark.parametrize("script", [COMPILED, WHOLE], ids=["compiled", "step"])
def test_a_limit_that_cannot_be_kept_is_refused(script, tmp_path):
    done = plan(script, tmp_path, "--limit", "100KB")
    assert done.returncode == 1 and "at least" in done.stderr, done.stdout + done.stderr


def test_what_is_left_to_torch_stands_beside_the_plan(tmp_path):
    done = plan(LEFT, tmp_path, "--html", str(tmp_path / "plan.html"))
    assert done.returncode == 0, done.stderr
    read, given = 128 * 64 * 4, 128 * 33 * 8
    fft = f"{(read + given) / 1024:.1f} KiB  aten._fft_r2c.default {tmp_path}/script.py:6 in spectrum (a tensor of torch.complex64)"
    assert "  beside this plan:\n" in done.stdout and fft in done.stdout, done.stdout
    assert "tensors that wait for other graphs and parts" not in done.stdout  # nothing else is alive
    page = (tmp_path / "plan.html").read_text()
    assert "left to PyTorch" in page and "<td>a tensor of torch.complex64</td>" in page and "65.0 KiB" in page
    whole = plan(WHOLE, tmp_path)
    assert "beside this plan" not in whole.stdout
