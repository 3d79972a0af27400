"""Tests of CUDA tensors: on a GPU, or on the emulated card by tools/torch_on_card.sh.

PyTorch's own kernels do not run on the emulated card, so these tests give each first gradient, and their references come from the CPU.
"""

import os

import pytest
import torch

CUDA = "13"  # the release whose libcudart has a stand-in


def _why_not():
    release = torch.version.cuda
    if release is None:
        return "torch's wheel is no CUDA build"
    if release.partition(".")[0] != CUDA:
        return f"torch's wheel is for CUDA {release}, the stand-in for libcudart is of CUDA {CUDA}"
    if not torch.cuda.is_available():
        return "torch finds no GPU: start Python by tools/torch_on_card.sh"
    return ""


def pytest_collection_modifyitems(items):
    if why := _why_not():
        for item in items:
            if item.path.is_relative_to(os.path.dirname(__file__)):
                item.add_marker(pytest.mark.skip(reason=why))
