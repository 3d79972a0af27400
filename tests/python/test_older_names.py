"""What older programs import: each path of `megengine._compat`'s table in every form, and nothing of it unless it is asked for."""

import importlib
import os
import pickle
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import _compat
from megengine.core import _older_names

NAMES = [row for row, new in _compat.TABLE.items() if ":" in new]
MODULES = sorted(_compat.paths() - set(_older_names.PLACES))


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_loads_nothing_of_it():
    run("import sys, megengine; assert not [name for name in sys.modules if name.startswith('megengine._compat')]")


def test_training_needs_none_of_its_modules():
    """A name that is looked for may load the table."""
    run(
        "import sys, megengine as mge, megengine.functional as F, megengine.module as M\n"
        "from megengine import autodiff, data, distributed, fx, hub, optimizer, quantization, traced_module\n"
        "net = M.Linear(2, 1); gm = autodiff.GradManager().attach(net.parameters()); sgd = optimizer.SGD(net.parameters(), 0.1)\n"
        "@mge.jit.trace\n"
        "def step(x):\n"
        "    with gm: gm.backward(net(x).sum())\n"
        "    sgd.step().clear_grad()\n"
        "step(F.ones((3, 2))); step(F.ones((3, 2)))\n"
        "assert not [name for name in sys.modules if name.startswith('megengine._compat.')]\n"
    )


@pytest.mark.parametrize("path", MODULES)
def test_a_module_is_found_by_import_and_as_an_attribute(path):
    module = importlib.import_module(f"megengine.{path}")
    holder, _, name = f"megengine.{path}".rpartition(".")
    assert isinstance(module, types.ModuleType) and getattr(importlib.import_module(holder), name) is module
    assert module.__spec__.parent == module.__package__  # or a later import within it would warn


def test_every_row_is_an_attribute_of_the_package():
    """In a process that has imported nothing else."""
    chains = ", ".join(f"megengine.{row}" for row in _compat.TABLE)
    run(f"import megengine\nfor found in ({chains}): assert found is not None")


@pytest.mark.parametrize("row", NAMES)
def test_a_name_can_be_imported_from_its_module(row):
    module, _, name = row.rpartition(".")
    scope = {}
    exec(f"from megengine{module and '.' + module} import {name} as found", scope)
    new_module, _, new_name = _compat.TABLE[row].partition(":")
    assert scope["found"] is getattr(importlib.import_module(f"megengine.{new_module}"), new_name)


def test_statements_of_every_form_lead_to_one_object():
    found = run(
        "import megengine.core._imperative_rt.core2 as a\n"
        "from megengine.core._imperative_rt.core2 import apply\n"
        "from megengine.core._imperative_rt import core2, CompNode\n"
        "import megengine.utils.network_node, megengine.utils.network\n"
        "from megengine.utils.network_node import *\n"
        "from megengine.functional.distributed import *\n"
        "import megengine as mge\n"
        "print(a is core2 and a.apply is apply, VarNode is mge.utils.network.VarNode, all_reduce_sum is mge.distributed.functional.all_reduce_sum)"
    )
    assert found.split() == ["True"] * 3


def test_asked_places_are_those_that_have_rows():
    folders = {row.rpartition(".")[0] for row in (*_compat.TABLE, *_compat.paths())}
    root = Path(mge.__file__).parent
    ours = {folder for folder in folders if (file := root.joinpath(*folder.split("."))).is_dir() or file.with_suffix(".py").is_file()}
    assert ours == set(_older_names.PLACES)


def test_pickles_name_classes_as_they_ever_did():
    from megengine.core.ops.builtin import Reduce

    op = Reduce(mode="sum", axis=1)
    data = pickle.dumps(op, 2)
    assert b"megengine.core.ops.builtin" in data and pickle.loads(data) == op
    layer = pickle.dumps(mge.module.external.AtlasRuntimeSubgraph(b"abc"))
    assert b"megengine.module.external" in layer
    assert run(f"import pickle; print(pickle.loads({layer!r}).data)").strip() == "b'abc'"


def test_a_name_that_is_nowhere_is_missing_as_elsewhere():
    with pytest.raises(ModuleNotFoundError, match="megengine.utils.nothing"):
        importlib.import_module("megengine.utils.nothing")
    with pytest.raises(AttributeError, match="'megengine.utils' has no attribute 'nothing'"):
        mge.utils.nothing
    with pytest.raises(AttributeError, match="fix: use F.concat"):
        F.cat
    with pytest.raises(ImportError, match="nothing"):
        exec("from megengine.core._imperative_rt.core2 import nothing")


def test_a_module_of_theirs_runs_as_a_program(tmp_path):
    environment = {**os.environ, "MGE_FASTRUN_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-m", "megengine.utils.persistent_cache"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == f"file: {tmp_path}/cache.json\n", done.stderr


def test_an_update_in_place_rebinds_the_handle():
    from megengine.functional.inplace import InplaceAdd, _inplace_add_, apply

    x = mge.Tensor([1.0, 2.0])
    assert _inplace_add_(x, mge.Tensor([1.0, 1.0]), alpha=2.0, beta=-1.0) is x
    np.testing.assert_array_equal(x.numpy(), [1, 3])
    assert apply(InplaceAdd(), x, x, 1.0, 1.0)[0].tolist() == [2, 6]
