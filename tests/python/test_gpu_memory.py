"""What recomputation, limits and caps promise, on a GPU: small forms of test_recomputed_bits.py, test_sublinear.py and
test_memory_errors.py, whose tensors are too large for an emulated card."""

import gc

import numpy as np
import pytest
import test_sublinear
from test_recomputed_bits import least_limit, train

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import device
from megengine.jit import DTRConfig, SublinearMemoryConfig, trace


@pytest.mark.parametrize("name, options", [("resnet_basic", {}), ("gpt2", {}), ("mlp", {"opt_level": 3, "numerics": "exact"})])
def test_recomputation_changes_no_bit(name, options):
    bits, plain = train(name, **options, memory_limit="100GB")  # keeps everything
    least = least_limit(name, **options)
    assert least < plain.planned_bytes
    for limit in (least, (least + plain.planned_bytes) // 2):
        got, plan = train(name, **options, memory_limit=limit)
        assert got == bits
        assert plan.planned_bytes <= limit


@pytest.fixture
def small(monkeypatch):
    def build():
        return M.Sequential(*(layer for _ in range(12) for layer in (M.Linear(16, 16), M.ReLU())), M.Dropout(0.3), M.Linear(16, 10))

    monkeypatch.setitem(test_sublinear.MODELS, "small", (build, (64, 16)))
    return lambda **options: test_sublinear.train("small", steps=2, **options)


def test_less_memory_is_taken_where_that_is_asked_for(small):
    bits, plan = small(memory_limit="100GB")
    for options in (
        {"sublinear_memory_config": SublinearMemoryConfig()},
        {"dtr_config": DTRConfig(eviction_threshold=plan.arena_bytes * 3 // 4)},
    ):
        less_bits, less = small(**options)
        assert less_bits == bits
        assert less.arena_bytes < plan.arena_bytes
        assert less.recompute_flops_ratio > 0


@pytest.fixture
def full():
    """Tensors that take all that is free in the card's pages, the first of 1 MiB; and it gives no further page."""
    gc.collect()
    taken = [mge.tensor(np.zeros((256, 1024), np.float32)) for _ in range(2)]  # two fit, whatever others left there
    device.set_memory_cap(device.get_reserved_memory())
    for kib in (1024, 64, 4):
        try:
            while True:
                taken.append(mge.tensor(np.zeros(256 * kib, np.float32)))
        except MemoryError:
            pass
    yield taken
    device.set_memory_cap(None)


CALLS = {
    "element-wise": F.exp,
    "a copy": lambda x: F.concat([x, x]),
    "a product": lambda x: F.matmul(x, x.T),
    "a sum": lambda x: F.cumsum(x, 1),
    "rows": lambda x: F.softmax(x, axis=1),
    "by index": lambda x: x[mge.tensor(np.arange(256, dtype=np.int32))],
    "a trace": trace(lambda x: F.exp(x) * 2 + F.softmax(x, axis=0), symbolic=True, opt_level=3),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_does_not_fit_says_so_and_works_afterwards(full, name):
    with pytest.raises(MemoryError, match=r"out of memory.*bytes|[KMG]i?B") as refused:
        CALLS[name](full[0])
    assert len(str(refused.value).splitlines()) <= 10
    device.set_memory_cap(None)
    assert np.isfinite(CALLS[name](full[0]).numpy()).all()


def test_what_failed_is_as_it_was(full):
    x = full[0]
    before = x
    with pytest.raises(MemoryError):
        x += 1
    assert x is before and (x.numpy() == 0).all()
    del full[1:]
    x += 1
    assert (x.numpy() == 1).all()
