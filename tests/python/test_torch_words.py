"""Names and arguments of PyTorch, and names of MegEngine before 1.0, say what they are called here; errors keep their classes, and names that exist are as they were."""

import re
import subprocess
import sys

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.core import torch_words

X = mge.Tensor(np.ones((2, 3), np.float32))
NAMES = {
    "x.view": (lambda: X.view(3, 2), "'Tensor' object has no attribute 'view'\n  fix: use x.reshape(shape), as in x.reshape(2, -1)"),
    "parameter.permute": (lambda: mge.Parameter([1.0]).permute, "'Parameter' object has no attribute 'permute'\n  fix: use x.transpose"),
    "Tensor.cuda": (lambda: mge.Tensor.cuda, "type object 'Tensor' has no attribute 'cuda'\n  fix: use x.to('gpu0')"),
    "F.cat": (lambda: F.cat, "module 'megengine.functional' has no attribute 'cat'\n  fix: use F.concat"),
    "F.nn.log_softmax": (lambda: F.nn.log_softmax, "module 'megengine.functional.nn' has no .*\n  fix: use F.logsoftmax"),
    "F.loss.mse_loss": (lambda: F.loss.mse_loss, "fix: use F.nn.square_loss"),
    "M.CrossEntropyLoss": (lambda: M.CrossEntropyLoss, "module 'megengine.module' has no .*\n  fix: use F.nn.cross_entropy"),
    "net.cuda": (lambda: M.Linear(2, 3).cuda(), "'Linear' object has no attribute 'cuda'\n  fix: use megengine.set_default_device"),
    "F.add_axis": (lambda: F.add_axis, "fix: use F.expand_dims"),
    "M.init.constant_": (lambda: M.init.constant_, "module 'megengine.module.init' has no .*\n  fix: use M.init.fill_"),
    "mge.Graph": (lambda: mge.Graph(), "fix: use no block at all"),
    "mge.no_grad": (lambda: mge.no_grad(), "module 'megengine' has no .*\n  fix: use no block at all"),
    "mge.zeros": (lambda: mge.zeros, "fix: use F.zeros"),
}


@pytest.mark.parametrize("case", NAMES)
def test_a_name_from_elsewhere_says_what_it_is_called_here(case):
    read, message = NAMES[case]
    with pytest.raises(AttributeError, match=message.replace("(", r"\(").replace(")", r"\)")):
        read()


def test_what_is_said_exists():
    tables = {name: table for name, table in vars(torch_words).items() if name.isupper() and isinstance(table, dict)}
    assert len(tables) == 7
    spoken = " ".join(words for name, table in tables.items() if name != "ARGUMENTS" for words in table.values())
    holders = {"F": F, "M": M, "megengine": mge, "x": X}
    said = re.findall(r"(?<![\w.])(F|M|megengine|x)((?:\.[A-Za-z_]\w*)+)", spoken)
    assert len(said) > 100
    for holder, path in said:
        found = holders[holder]
        for name in path[1:].split("."):
            assert name == "onnx" or hasattr(found, name), f"{holder}{path}"
            found = getattr(found, name, None)


def test_what_exists_has_no_line_in_the_tables():
    for holder, table in ((mge.Tensor, "TENSOR"), (F, "FUNCTIONS"), (M, "LAYERS"), (M.init, "INITIALIZERS"), (M.Module, "MODULE"), (mge, "PACKAGE")):
        assert not [name for name in getattr(torch_words, table) if hasattr(holder, name) and name != "onnx"], table


def test_such_names_are_not_there_for_programs_that_look():
    assert not hasattr(X, "view") and not hasattr(mge.Tensor, "view") and getattr(X, "view", 3) == 3
    assert "view" not in dir(X) and "reshape" in dir(X) and "cat" not in dir(F)
    with pytest.raises(ImportError):
        exec("from megengine.functional import cat")

    class Viewed(mge.Tensor):
        def view(self):
            return "own"

    own, named = Viewed([1.0]), mge.Tensor([1.0])
    named.view = "a value"
    assert own.view() == "own" and named.view == "a value"


def test_other_names_are_left_to_pythons_own_guess():
    for holder, name in ((X, "reshap"), (F, "concta"), (M.Linear(2, 3), "forwad"), (mge, "tenso")):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'$") as caught:
            getattr(holder, name)
        assert caught.value.name == name and caught.value.obj is holder


ARGUMENTS = {
    "F.sum(x, dim=1)": "sum calls it axis",
    "x.mean(dim=1)": "mean calls it axis",
    "F.mean(x, 1, keepdim=True)": "mean calls it keepdims",
    "F.concat([x, x], dim=0)": "concat calls it axis",
    "F.softmax(x, dim=1)": "softmax calls it axis",
    "M.Dropout(p=0.5)": "layers call it drop_prob",
    "DataLoader([], batch_size=4)": "sampler=RandomSampler(dataset, batch_size)",
    "mine(dim=1)": "",
    "F.exp(nothing=1)": "",
}
PROGRAM = """
import megengine as mge, megengine.functional as F, megengine.module as M, sys
from megengine.data import DataLoader
from megengine.core.torch_words import explain_arguments
explain_arguments()
x = F.ones((2, 3))
def mine():
    pass
for line in sys.argv[1:]:
    try:
        eval(line)
    except TypeError as error:
        sys.excepthook(type(error), error, None)
        print("---", file=sys.stderr)
"""


def test_an_argument_of_torch_says_what_it_is_called_here():
    done = subprocess.run([sys.executable, "-c", PROGRAM, *ARGUMENTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for (line, words), text in zip(ARGUMENTS.items(), done.stderr.split("---\n"), strict=False):
        assert "got an unexpected keyword argument" in text, line
        assert (f"\n  fix: {words}" in text) if words else ("fix:" not in text), f"{line}: {text}"


def test_whoever_showed_errors_before_still_does():
    program = (
        "import sys; sys.excepthook = lambda *error: print('mine', *error[1].__notes__)\n"
        "import megengine.functional as F; from megengine.core.torch_words import explain_arguments\n"
        "explain_arguments(); F.sum(1, dim=1)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "mine   fix: sum calls it axis\n"


def test_importing_the_package_leaves_the_hook_alone():
    program = "import sys, megengine; assert sys.excepthook is sys.__excepthook__"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
