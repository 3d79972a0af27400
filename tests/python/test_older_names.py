"""What older programs import: each path of `megengine._compat`'s table in every form, and nothing of it unless it is asked for."""

import importlib
import inspect
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
    """In a process that has imported nothing else. (A function hides the module `quantization.quantize`, as it ever did.)"""
    chains = ", ".join(f"megengine.{row}" for row in _compat.TABLE if not row.startswith("quantization.quantize."))
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


# ---- inner names that tests of the original import: what each gave there, in a run of its own


def _gradients_of_complex_products():
    from megengine.autodiff import GradManager
    from megengine.core._imperative_rt.core2 import create_complex, get_imag, get_real

    x, y = mge.Parameter([1.0, 2.0]), mge.Parameter([3.0, 4.0])
    with GradManager().attach([x, y]) as gm:
        z = create_complex(x, y)
        square = z * z
        gm.backward((get_real(square) * 2 + get_imag(square) * 3).sum())
    return x.grad.tolist(), y.grad.tolist()


def _complex(text):
    from megengine.core._imperative_rt.core2 import create_complex

    z = create_complex(mge.tensor([1.0, 2.0]), mge.tensor([3.0, 4.0]))
    return eval(text, {"z": z}).numpy().tolist()


def _nested():
    layers = [mge.module.ReLU(), {"k": mge.module.Linear(2, 1)}]
    holder = types.SimpleNamespace(layers=layers, p=mge.Parameter([1.0]))
    return holder, layers


def _accessed(key, callback=None):
    from megengine.module.module import _access_structure

    return _access_structure(_nested()[0], key, callback)


def _shape_kinds():
    from megengine.jit.tracing import set_symbolic_shape

    before, kinds = set_symbolic_shape(True), [type(X.shape).__name__]
    assert set_symbolic_shape(before) is True
    return [*kinds, type(X.shape).__name__]


def _drawn(op, *operands, seed=5):
    from megengine.core._imperative_rt import ops
    from megengine.core._imperative_rt.core2 import apply

    handle = ops.new_rng_handle("xpux", seed)
    try:
        results = apply(getattr(ops, op)(seed=seed, handle=handle), *operands)
        return [(value.dtype.name, value.shape) for value in results]
    finally:
        ops.delete_rng_handle(handle)


def _same_draws():
    from megengine.core._imperative_rt import ops
    from megengine.core._imperative_rt.core2 import apply

    one, other = (ops.new_rng_handle("xpux", 5) for _ in range(2))
    shape = mge.tensor([3], dtype="int32")
    a, b = (apply(ops.UniformRNG(seed=5, handle=handle), shape)[0].tolist() for handle in (one, other))
    again = apply(ops.UniformRNG(seed=5, handle=one), shape)[0].tolist()
    return one != other, a == b == mge.random.RNG(5).uniform(size=(3,)).tolist(), again != a


def _global_seed():
    from megengine.core._imperative_rt.ops import get_global_rng_seed, set_global_rng_seed

    mge.random.seed(5)
    before, _ = get_global_rng_seed(), set_global_rng_seed(9)
    return before, get_global_rng_seed()


def _scalars(*values):
    from megengine.core.tensor.utils import isscalar

    return [isscalar(value) for value in values]


def _quantable():
    from megengine.quantization.quantize import _get_quantable_module_names

    names = _get_quantable_module_names()
    return type(names), "Linear" in names, "QATModule" in names, "ReLU" in names


def _elemwise_mode():
    from megengine.functional.elemwise import Elemwise

    return [str(Elemwise().mode), mge.core._imperative_rt.core2.apply(Elemwise("add"), X, X)[0].tolist()]


X = mge.Tensor([1.0, 2.0])
ONES = mge.tensor([1.0, 2.0, 3.0])
INNER = {
    "elemwise": (_elemwise_mode, ["relu", [2, 4]]),
    "shape": (_shape_kinds, ["Tensor", "tuple"]),
    "complex sum": (lambda: _complex("z + z"), [2 + 6j, 4 + 8j]),
    "complex difference": (lambda: _complex("z - z"), [0, 0]),
    "complex product": (lambda: _complex("z * z"), [-8 + 6j, -12 + 16j]),
    "complex negative": (lambda: _complex("-z"), [-1 - 3j, -2 - 4j]),
    "complex gradients": (_gradients_of_complex_products, ([22, 32], [-6, -4])),
    "access": (lambda: type(_accessed("layers.1.k")).__name__, "Linear"),
    "access with a callback": (lambda: _accessed("layers.1.k", lambda *found: [type(each).__name__ for each in found]), ["dict", "str", "Linear"]),
    "quantable": (_quantable, (list, True, False, False)),
    "uniform": (lambda: _drawn("UniformRNG", mge.tensor([3], dtype="int32")), [("float32", (3,))]),
    "normal": (lambda: _drawn("GaussianRNG", mge.tensor([3], dtype="int32")), [("float32", (3,))]),
    "gamma": (lambda: _drawn("GammaRNG", ONES, ONES), [("float32", (3,))]),
    "beta": (lambda: _drawn("BetaRNG", ONES, ONES), [("float32", (3,))]),
    "poisson": (lambda: _drawn("PoissonRNG", ONES), [("float32", (3,))]),
    "permutation": (lambda: _drawn("PermutationRNG", mge.tensor([4], dtype="int32")), [("int32", (4,))]),
    "shuffle": (lambda: _drawn("ShuffleRNG", ONES), [("float32", (3,)), ("int32", (3,))]),
    "one seed, two handles": (_same_draws, (True, True, True)),
    "global seed": (_global_seed, (5, 9)),
    "scalars": (lambda: _scalars(1, 1.0, True, 1j, "a", np.float32(1), X[0], X.sum()), [True] * 8),
    "no scalars": (lambda: _scalars(np.array(1.0), X, X[:1], None, [1]), [False] * 5),
}


@pytest.mark.parametrize("name", INNER)
def test_an_inner_name_does_what_it_did(name):
    call, wanted = INNER[name]
    assert call() == wanted


@pytest.mark.parametrize(("key", "error"), [("q", AttributeError), ("layers.5", IndexError), ("layers.1.x", KeyError)])
def test_a_path_that_leads_nowhere_is_an_error_of_python(key, error):
    with pytest.raises(error):
        _accessed(key)


def test_a_handle_that_is_gone_draws_nothing():
    from megengine.core._imperative_rt import ops

    handle = ops.new_rng_handle("xpux", 5)
    assert ops.get_rng_handle_compnode(handle) == "xpux"
    ops.delete_rng_handle(handle)
    ops.delete_rng_handle(handle)  # which says nothing
    for call in (lambda: ops.get_rng_handle_compnode(handle), lambda: ops.UniformRNG(seed=5, handle=handle)(mge.tensor([3]))):
        with pytest.raises(ValueError, match=f"no random generator has the handle {handle}\n  fix: "):
            call()
    with pytest.raises(TypeError, match="delete_rng_handle: 'a'"):
        ops.delete_rng_handle("a")
    other = ops.new_rng_handle("xpux", 6)
    with pytest.raises(ValueError, match="seed 5, and the generator .* was made with 6"):
        ops.UniformRNG(seed=5, handle=other)(mge.tensor([3]))


def test_elemwise_lists_functions_of_one_or_two_operands():
    from megengine.functional import elemwise

    takes_bounds = {"clip"}  # as it ever did
    for name in set(elemwise.__all__) - takes_bounds:
        assert len(inspect.signature(getattr(F, name)).parameters) <= 2, name
