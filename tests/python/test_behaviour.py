"""Small programs give what the original gave for them; behaviour/README.md says how that was recorded."""

import io
import pickle
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import megengine as mge
import megengine.module as M
import megengine.optimizer as optim

HERE = Path(__file__).with_name("behaviour")
ask = runpy.run_path(str(HERE / "ask.py"))
RECORDED = dict(line.split(": ", 1) for line in (HERE / "recorded.txt").read_text().splitlines())
CASES = dict(case for path in sorted(HERE.glob("cases_*.py")) for case in ask["asks_of"](path))
NUMBER = re.compile(r"-?\b\d+\.?\d*(?:e[+-]?\d+)?|\bnan\b|-?\binf\b")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_a_program_gives_what_the_original_gave(name):
    theirs = RECORDED[name]
    with warnings.catch_warnings():
        ours = ask["answer"](CASES[name], theirs)
    assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs), (ours, theirs)
    numbers = [np.array(numbers_of(line), float) for line in (ours, theirs)]
    np.testing.assert_allclose(*numbers, rtol=2e-5, atol=2e-6)


def numbers_of(text):
    return NUMBER.findall(text)


def test_each_recorded_line_has_its_program():
    assert set(RECORDED) == set(CASES)


def test_a_state_file_of_the_original_is_read():
    held = mge.load(HERE / "sample.mge")
    told = [(type(x).__name__, x.dtype.name, x.shape, float(x.numpy().ravel()[-1])) for x in held["tensors"]]
    assert told == [
        ("Tensor", "float32", (2, 3), 0.625), ("Parameter", "float32", (2,), 2.0), ("Tensor", "int32", (2,), 2.0),
        ("Tensor", "float16", (1,), 1.5), ("Tensor", "bool", (1,), 1.0), ("Tensor", "uint8", (1,), 1.0), ("Tensor", "float32", (), 3.0),
        ("Tensor", "float32", (1,), 1.0), ("Tensor", "float32", (1, 2, 2, 2), 0.875),
    ]  # fmt: skip
    assert held["tensors"][7].device == "cpu1" and held["epoch"] == 3
    net = M.Sequential(M.Conv2d(2, 3, 2), M.BatchNorm2d(3), M.ReLU())
    for state in (held["state"], held["tensors of the state"]):
        net.load_state_dict(state)
        assert net[0].weight.numpy().sum() == np.arange(24).sum() / 8
    x = mge.tensor(np.ones((1, 2, 3, 3), "float32"))
    np.testing.assert_array_equal(held["module"].eval()(x).numpy(), net.eval()(x).numpy())
    optim.SGD(net.parameters(), lr=0.1, momentum=0.9).load_state_dict(held["optimizer"])
    assert held["optimizer"]["param_groups"][0]["lr"] == 0.5
    assert held["quantized"]["1.weight"].dtype == np.int8


def test_what_is_no_state_file_is_refused_by_its_bytes():
    model = io.BytesIO(b"\xfc\x02\x00\x00\x1c\x00\x00\x00mgv2" + bytes(100))  # how trace.dump of the original begins
    with pytest.raises(RuntimeError, match="a graph that MegEngine dumped"):
        mge.load(model)


PROGRAM = """
import collections, dataclasses, enum, io, sys
import megengine as mge, megengine.module as M
import own_layers

class Net(M.Module):
    class Options:
        pass

    def __init__(self):
        super().__init__()
        self.fc, self.twice, self.options = M.Linear(2, 3), own_layers.Twice(), Net.Options()
        self.options.scale = 3

Colour = enum.Enum("Colour", "RED GREEN", module=__name__)
Point = collections.namedtuple("Point", "x y")

@dataclasses.dataclass
class Result:
    loss: float

def loaded(obj):
    file = io.BytesIO()
    mge.save(obj, file)
    file.seek(0)
    return mge.load(file)

net = loaded(Net())
assert type(net) is Net and type(net.twice) is own_layers.Twice and net.options.scale == 3
assert loaded([Colour.RED, Point(1, 2), Result(0.5), Net]) == [Colour.RED, Point(1, 2), Result(0.5), Net]
file = io.BytesIO()
mge.save(net, file)
del sys.modules["own_layers"]
try:
    mge.load(io.BytesIO(file.getvalue()))
except RuntimeError as refused:
    print("refused" if "own_layers.Twice" in str(refused) and "own_layers" not in sys.modules else refused)
"""


def test_classes_of_the_program_are_read_where_it_has_imported_them(tmp_path):
    (tmp_path / "own_layers.py").write_text("import megengine.module as M\nclass Twice(M.Module):\n    pass\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    run = subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, text=True)
    assert (run.stdout, run.returncode) == ("refused\n", 0), run.stderr


def test_functions_of_the_program_and_classes_of_libraries_are_refused():
    for thing in (numbers_of, subprocess.Popen):
        with pytest.raises(RuntimeError, match=f"the file names {thing.__module__}.{thing.__qualname__}"):
            mge.load(io.BytesIO(pickle.dumps(thing)))


class Caller:
    def __reduce__(self):
        return Caller, ()


def test_a_class_of_the_program_is_not_called():
    with pytest.raises(RuntimeError, match="a call of Caller"):
        mge.load(io.BytesIO(pickle.dumps(Caller())))
