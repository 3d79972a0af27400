"""What a body computes of its own host data and of shapes may be read in a symbolic trace: nothing that differs from call to call is in it."""

import io

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.jit import SublinearMemoryConfig, trace
from megengine.utils.comp_graph_tools import GraphInference

MODES = {
    "value": {"symbolic": False},
    "symbolic": {"symbolic": True},
    "plain shapes": {"symbolic": True, "symbolic_shape": False},
    "level 0": {"symbolic": True, "opt_level": 0},
    "level 3": {"symbolic": True, "opt_level": 3},
    "limit": {"memory_limit": "1MB"},
    "sublinear": {"symbolic": True, "sublinear_memory_config": SublinearMemoryConfig()},
    "skipped": {"symbolic": True, "without_host": True},
    "auto": {"symbolic": True, "without_host": "auto"},
}


def sizes_in_a_concat(x):
    return F.reshape(x, F.concat([mge.tensor([1]), mge.tensor(x.shape[:1]), mge.tensor([-1])]))


def sizes_in_arithmetic(x):
    n = mge.tensor(x.shape).astype("int64")
    return F.broadcast_to(x, (F.concat([mge.tensor([2], dtype="int64"), n[:1] * 3 // 3, n[1:]]) * 1).numpy().tolist())


def a_table(x):
    table = F.arange(0, 4) * 2 + mge.tensor(np.float32([1, 0, 1, 0]))
    return x * float(table[1]) + int(F.argmax(table))


def a_choice(x):
    return x * 2 if (mge.tensor([1, 2]) * 2).sum() > 5 else x


def a_scan(x):
    total, _ = F.scan(lambda s, v: (s + v, v), mge.tensor(0.0), mge.tensor(np.float32([1, 2, 3])))
    return x + total.item()


PROGRAMS = [sizes_in_a_concat, sizes_in_arithmetic, a_table, a_choice, a_scan]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_read(program, mode):
    traced = trace(program, **MODES[mode])
    for rows in (2, 2, 5, 1, 5):
        x = mge.tensor(np.random.RandomState(rows).rand(rows, 3).astype("float32"))
        np.testing.assert_allclose(traced(x).numpy(), program(x).numpy(), rtol=1e-6)


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_pass_beside_it(program):
    def gradient(x):
        with GradManager().attach([x]) as gm:
            gm.backward((program(x) ** 2).sum())
        return x.grad

    x = np.random.RandomState(1).rand(2, 3).astype("float32")
    want = gradient(mge.tensor(x)).numpy()
    np.testing.assert_allclose(trace(gradient, symbolic=True)(mge.tensor(x)).numpy(), want, rtol=1e-6)


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_a_constant_of_a_file(program):
    traced, x = trace(program, symbolic=True, capture_as_const=True), np.random.RandomState(1).rand(2, 3).astype("float32")
    want = traced(mge.tensor(x)).numpy()
    file = io.BytesIO()
    traced.dump(file, arg_names=["x"])
    file.seek(0)
    (found,) = GraphInference(file).run(x).values()
    np.testing.assert_allclose(found, want, rtol=1e-6)


OUTSIDE = mge.tensor([1.0, 2.0])


@pytest.mark.parametrize("without_host", [False, True])
@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * x.sum().item(),
        lambda x: x * (mge.tensor(2.0) * x[0, 0]).item(),
        lambda x: x * (OUTSIDE * 2).numpy()[0],
        lambda x: x * mge.random.uniform(size=(1,)).item(),
        lambda x: x * (mge.random.uniform(size=(1,)) + 1).item(),
        lambda x: x * F.cond(x.sum() > 0, lambda: mge.tensor(1.0), lambda: mge.tensor(2.0)).item(),
    ],
)
def test_what_follows_from_anything_else_is_refused(program, without_host):
    with pytest.raises((ValueError, RuntimeError), match="is read inside a function traced with symbolic=True"):
        trace(program, symbolic=True, without_host=without_host)(mge.tensor(np.ones((2, 3), "float32")))
