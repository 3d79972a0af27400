"""Each public callable of torch, torch.nn, torch.nn.functional and torch.Tensor is here, or an error says what to write."""

import pytest
import torch

import megengine as mge
import megengine.functional as F
import megengine.module as M

X = mge.tensor([1.0])
LISTS = {
    "torch": (torch, (mge, F)),
    "torch.nn": (torch.nn, (M,)),
    "torch.nn.functional": (torch.nn.functional, (F,)),
    "torch.Tensor": (torch.Tensor, (X,)),
}


def is_answered(holder, name):
    try:
        getattr(holder, name)
    except AttributeError as error:
        return "\n  fix: " in str(error)
    return True


@pytest.mark.parametrize("name", LISTS)
def test_every_public_callable_is_answered(name):
    theirs, ours = LISTS[name]
    names = [
        name
        for name in dir(theirs)
        if not name.startswith("_") and callable(getattr(theirs, name, None))
    ]
    assert len(names) > 100
    assert not [name for name in names for holder in ours if not is_answered(holder, name)]
