"""What notebooks show: executed by a kernel of Jupyter, as a reader of the documentation would."""

import re

import kernels
import nbformat
import pytest

SETUP = """
import megengine as mge, megengine.functional as F, megengine.module as M
from megengine import fx, jit, traced_module
step = jit.trace(lambda x: F.exp(x) * 2 + 1, opt_level=3, symbolic=True)
y = step(mge.tensor([0.0, 1.0]))
net = M.Sequential(M.Linear(2, 3), M.ReLU())

@fx.wrap
def labelled(x, label):
    return x + 1
"""
CELLS = {
    "y": ["Tensor float32[2]", "[3.     6.4366]"],
    "mge.tensor([[True, False]])": ["Tensor bool[1, 2]"],
    "mge.Parameter([1.0])": ["Parameter float32[1]"],
    "step.memory_plan()": ["<table>", "unplanned", "<svg"],
    "step.kernels()": ["<table>", "exp, mul, add"],
    "type(step.kernels())()": ["no generated kernels"],
    "fx.symbolic_trace(net).graph": ["<table>", "Linear", "ReLU"],
    "fx.symbolic_trace(lambda x: labelled(x, '<script>')).graph": ["&lt;script&gt;"],
    "traced_module.trace_module(net, mge.tensor([[1.0, 2.0]])).graph": ["<table>", "Linear"],
}
MISTAKES = {
    "F.sum(y, dim=0)": "TypeError: sum() got an unexpected keyword argument 'dim'\n  fix: sum calls it axis",
    "labelled(y)": "TypeError: labelled() missing 1 required positional argument: 'label'",
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What each cell shows last."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in (SETUP, *CELLS, *MISTAKES)])
    for cell in notebook.cells[-len(MISTAKES) :]:
        cell.metadata.tags = ["raises-exception"]
    kernels.execute(notebook, tmp_path_factory.mktemp("kernel"))
    return {cell.source: cell.outputs[-1] for cell in notebook.cells[1:]}


@pytest.fixture
def shown(outputs):
    """The HTML of each cell."""
    return {source: outputs[source].data["text/html"] for source in CELLS}


@pytest.mark.parametrize("cell", CELLS)
def test_a_notebook_shows_it(shown, cell):
    for words in CELLS[cell]:
        assert words in shown[cell]


def test_nothing_runs_and_nothing_is_loaded(shown):
    assert not any(word in html for html in shown.values() for word in ("<script", "src=", "href=", "url("))


@pytest.mark.parametrize("cell", MISTAKES)
def test_a_mistake_shows_its_message_once_and_what_torchs_argument_is_called_here(outputs, cell):
    text = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(outputs[cell].traceback))
    assert text.rstrip().endswith(MISTAKES[cell]) and text.count("TypeError: ") == 1
