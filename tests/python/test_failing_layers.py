"""An error in a layer names the layer by its path: eager and traced, whoever raised it; errors of the program stay as they are."""

import re

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm
from megengine import fx
from megengine.jit import trace


class Own(M.Module):
    """An op in its own forward."""

    def __init__(self):
        super().__init__()
        self.weight = mge.Parameter(np.ones((5, 2), np.float32))

    def forward(self, x):
        return x @ self.weight


class Raises(M.Module):
    def forward(self, x):
        raise KeyError("mine")


class Branches(M.Module):
    def __init__(self, layer):
        super().__init__()
        self.first = M.Linear(3, 4)
        self.branches = {"left": [M.Identity(), M.Sequential(M.ReLU(), layer)]}

    def forward(self, x):
        x = self.first(x)
        for part in self.branches["left"]:
            x = part(x)
        return x


class Whole(M.Module):
    def __init__(self, layer):
        super().__init__()
        self.body = Branches(layer)

    def forward(self, x):
        return F.relu(self.body(x))


X = mge.Tensor(np.ones((2, 3), np.float32))
LAYERS = {
    "Linear": (lambda: M.Linear(7, 2), "columns but b has"), "Own": (Own, "columns but b has"), "BatchNorm1d": (lambda: M.BatchNorm1d(9), "channels"),
    "Conv2d": (lambda: M.Conv2d(3, 3, 1), "axes|rank|cannot take"),
    "LayerNorm": (lambda: M.LayerNorm(9), ""), "BatchNorm2d": (lambda: M.BatchNorm2d(4), "rank|axes|dim"),
}  # fmt: skip
WAYS = {
    "eager": lambda net: net, "walking": lambda net: trace(lambda x: net(x)), "symbolic": lambda net: trace(lambda x: net(x), symbolic=True),
    "hooked": lambda net: net.register_forward_hook(lambda *_: None) and net,
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layer", LAYERS)
def test_the_layer_that_fails_is_named(layer, way):
    make, words = LAYERS[layer]
    run = WAYS[way](Whole(make()))
    with pytest.raises(Exception, match=f"(?s){words}") as caught:  # noqa: PT011 (whatever the layer raises)
        run(X)
    text = str(caught.value)
    assert re.search(rf"\n  at:  .*layer body\.branches\.left\.1\.1 \({layer}\)(\n|$)", text), text
    assert len(text.splitlines()) <= 6 and text.count("layer body") == 1


@pytest.mark.parametrize("way", WAYS)
def test_errors_of_the_program_pass_as_they_are(way):
    with pytest.raises(KeyError) as caught:
        WAYS[way](Whole(Raises()))(X)
    assert caught.value.args == ("mine",)


def test_an_error_of_the_outermost_module_says_nothing_more():
    with pytest.raises(ValueError, match="columns") as caught:
        M.Linear(7, 2)(X)
    assert not re.search(r"layer \S+ \(", str(caught.value))


def test_a_module_that_nobody_holds_is_named_from_itself():
    class Makes(M.Module):
        def forward(self, x):
            return M.Sequential(M.ReLU(), M.Linear(7, 2))(x)

    with pytest.raises(ValueError, match=r"layer 1 \(Linear\)$"):
        M.Sequential(Makes())(X)


def test_an_error_that_was_caught_on_its_way_names_the_layer_once_more():
    class Tries(M.Module):
        def __init__(self):
            super().__init__()
            self.inner = M.Sequential(M.Linear(7, 2))

        def forward(self, x):
            try:
                return self.inner(x)
            except ValueError as error:
                raise ValueError(f"it was: {error}") from error

    with pytest.raises(ValueError, match=r"it was: .*\n(.*\n)*.*layer 0 \(Linear\)"):
        Tries()(X)


@pytest.mark.parametrize("make", [fx.symbolic_trace, lambda net: tm.trace_module(net, mge.Tensor(np.ones((2, 7), np.float32)))])
def test_graphs_of_modules_name_it_too(make):
    graph = make(M.Sequential(M.Sequential(M.ReLU(), M.Linear(7, 2))))
    with pytest.raises(ValueError, match="columns") as caught:
        graph(X)
    assert re.search(r"layer 0\.1 \(Linear\)", str(caught.value)), str(caught.value)
