"""Eight threads at once: eager ops, backward, traced functions of all and of each, new shapes, DTR. Same bits as one."""

import gc
import os
import sys
import threading

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import dtr, jit
from megengine.autodiff import GradManager

THREADS = 8
ROUNDS = 10 if os.environ.get("MEGJIT_EMULATED_GPUS") else 40  # an emulated card interprets its code


def tensor(seed, *shape):
    return mge.tensor(np.random.default_rng(seed).normal(size=shape).astype("float32"))


def eager(seed):
    x = tensor(seed, 64, 257 + seed % 5)
    y = F.softmax(F.relu(x) * 2 - x, axis=1)
    return [y, F.sum(y, axis=0), F.argsort(x)[0], F.concat([x, y])[:, ::2], x[x > 0]]


def large(seed):  # without Python's lock
    x = tensor(seed, 400, 500)
    return [F.sin(x) + x, F.sum(x * x), F.cumsum(x, axis=1)]


def backward(seed):
    w, x = mge.Parameter(tensor(seed, 33, 300)), tensor(seed + 1, 300, 33)
    gm = GradManager().attach([w])
    with gm:
        hidden = w * F.transpose(x, (1, 0))
        gm.backward((F.tanh(hidden) * F.exp(-hidden * hidden)).mean())
    return [w.grad, hidden.detach()]


def of_each(seed):
    function = jit.trace(symbolic=bool(seed % 2))(lambda x: F.gelu(x) + F.max(x, axis=1, keepdims=True))
    return [function(tensor(seed + i // 2, 40 + i // 2, 65)) for i in range(4)]


@jit.trace(symbolic=True)
def of_all(x):
    return F.sum(F.exp(-x * x), axis=1), x * 3


def recompiled(seed):  # a version for each shape
    return list(of_all(tensor(seed, 7 + seed % 3, 129)))


WORK = [eager, large, backward, of_each, recompiled]


def bits(results):
    return [y.numpy().tobytes() for y in results]


@pytest.fixture(params=[False, True], ids=["plain", "dtr"])
def with_dtr(request):
    interval, threshold = sys.getswitchinterval(), dtr.eviction_threshold
    sys.setswitchinterval(1e-5)
    if request.param:
        gc.collect()  # networks of other tests that only wait for it
        dtr.eviction_threshold = mge.device.get_allocated_memory() + (24 << 20)
        dtr.enable()
    yield
    dtr.disable()
    dtr.eviction_threshold = threshold
    sys.setswitchinterval(interval)


def test_they_compute_what_one_computes(with_dtr):
    expected = {(work, seed): bits(work(seed)) for work in WORK for seed in range(4)}
    wrong = []

    def run(thread):
        try:
            for i in range(ROUNDS):
                work, seed = WORK[(thread + i) % len(WORK)], (thread * 3 + i) % 4
                if bits(work(seed)) != expected[work, seed]:
                    wrong.append((work.__name__, seed))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]
