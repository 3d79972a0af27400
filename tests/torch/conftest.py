"""Tests of from_torch, in the environment of the benchmarks: `make test-torch`.

MEGJIT_SITE: the folder that has the package, which is installed in another environment.
"""

import os
import sys

sys.path.append(os.environ["MEGJIT_SITE"])  # behind this environment's own packages
sys.modules["mpi4py"] = None  # Lightning would load it, and this environment lacks its libmpi
os.environ.setdefault("MEGJIT_COMPILE", "sync")

# What torch tells of its own ways, whoever runs its layers; warnings are errors here.
OF_TORCH = ["LSTM with projections is not supported with oneDNN", "The tensor attributes self.layer._flat_weights"]


def pytest_configure(config):
    for message in OF_TORCH:
        config.addinivalue_line("filterwarnings", f"ignore:{message}")
