"""Every example in a docstring of the Python API runs and gives what it says."""

import doctest
import importlib

import pytest

MODULES = [
    "amp.grad_scaler",
    "functional._colour",
    "functional._conv",
    "functional._creation",
    "functional.einsum",
    "functional.elemwise",
    "functional.loss",
    "functional.math",
    "functional.metric",
    "functional.tensor",
    "random.rng",
    "tensor",
    "utils.dlpack",
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_run(name):
    results = doctest.testmod(importlib.import_module(f"megengine.{name}"))
    assert results.attempted and not results.failed
