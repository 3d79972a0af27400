"""The training steps of benchmarks/cases/on_gpu.py that are looked at on a card, and their processes."""

from __future__ import annotations

import sys

from results import ROOT
from turns import Process

# Case, and the peer that is compared with.
STEPS = {
    "digits": "torch_compile",
    "resnet18": "torch_compile_channels_last",
    "resnet50": "torch_compile_channels_last",
    "resnet50_bfloat16": "torch_compile_channels_last",
    "gpt2_bfloat16": "torch_compile",
}


def worker(step: str, implementation: str) -> Process:
    """A process of benchmarks/worker.py: the cases' sizes ask for BENCH_DEVICE."""
    command = [sys.executable, str(ROOT / "benchmarks" / "worker.py"), "cases.on_gpu", f"gpu_{step}", implementation]
    return Process(implementation, command, {"BENCH_DEVICE": "gpu"})
