"""What goes away warns once, says until when and what to write, and stands in one table."""

import importlib
import warnings

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import data
from megengine.core import _telling
from megengine.core._telling import DEPRECATED

CLASSES = {"Module": M.Module, "Optimizer": optim.Optimizer, "Tensor": mge.Tensor}


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch):
    monkeypatch.setattr(_telling, "_told", set())


def with_gradient():
    layer = M.Linear(1, 1, bias=False)
    layer.weight.grad = mge.Tensor([[2.0]])
    return layer


USES = {
    "data.DataLoader(divide=True)": lambda: data.DataLoader(data.dataset.ArrayDataset(np.zeros(2)), divide=True),
    "distributed.helper.get_device_count_by_fork": lambda: mge.distributed.helper.get_device_count_by_fork("cpu"),
    "functional.debug_param.get_conv_execution_strategy": F.debug_param.get_conv_execution_strategy,
    "functional.debug_param.set_conv_execution_strategy": lambda: F.debug_param.set_conv_execution_strategy("HEURISTIC"),
    "functional.pad(pad_witdth=)": lambda: F.pad(mge.Tensor([1.0]), pad_witdth=((1, 0),)),
    "Module.replace_param": lambda: with_gradient().replace_param([mge.Parameter([[1.0]])], 0),
    "Module.zero_grad": lambda: with_gradient().zero_grad(),
    "Optimizer.zero_grad": lambda: optim.SGD(with_gradient().parameters(), lr=1).zero_grad(),
    "Tensor.reset_zero": lambda: mge.Tensor([1.0]).reset_zero(),
    "Tensor.set_value": lambda: mge.Tensor([1.0]).set_value([2.0]),
}


@pytest.mark.parametrize("name", DEPRECATED)
def test_a_use_warns_once_at_the_users_line(name):
    until, instead = DEPRECATED[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        USES[name]()
        USES[name]()
    (warning,) = caught
    assert warning.category is DeprecationWarning and warning.filename == __file__
    assert str(warning.message) == f"{name} is deprecated and goes with megjit {until}: {instead}"


@pytest.mark.parametrize("name", [name for name in DEPRECATED if "(" not in name])
def test_help_says_it_too(name):
    owner, _, last = name.rpartition(".")
    found = getattr(CLASSES.get(owner) or importlib.import_module(f"megengine.{owner}"), last)
    assert f"Deprecated, until megjit {DEPRECATED[name].until}: {DEPRECATED[name].instead}." in found.__doc__
