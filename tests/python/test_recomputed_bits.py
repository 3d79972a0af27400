"""Recomputation changes no bit: twelve networks under eight limits each, dropout included."""

import re

import numpy as np
import pytest
from zoo import SMALL

import megengine as mge
import megengine.functional as F
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace


def train(name, **options):
    """Bytes of the losses and gradients of two steps, and the plan."""
    build, shape_of = SMALL[name]
    shape, classes = shape_of(256 if name == "wide_mlp" else 4)  # activations, not a gradient, are what is kept
    mge.random.seed(3)
    rng = np.random.RandomState(0)
    net = build()
    gm = GradManager().attach(net.parameters())
    optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

    @trace(symbolic=True, **options)
    def step(x, y):
        with gm:
            loss = F.loss.cross_entropy(net(x), y)
            gm.backward(loss)
        grads = [p.grad for p in net.parameters()]
        optimizer.step().clear_grad()
        return loss, grads

    seen = []
    for _ in range(2):
        if len(shape) == 2 and name in ("bert", "gpt2"):
            x, y = rng.randint(classes, size=shape), rng.randint(classes, size=shape[0] * shape[1])
        else:
            x, y = rng.randn(*shape), rng.randint(classes, size=shape[0])
        x = x.astype(np.int32 if name in ("bert", "gpt2") else np.float32)
        loss, grads = step(mge.tensor(x), mge.tensor(y.astype(np.int32)))
        seen += [t.numpy().tobytes() for t in (loss, *grads)]
    return seen, step.memory_plan()


def least_limit(name, **options):
    with pytest.raises(MemoryError) as refused:
        train(name, **options, memory_limit=1)
    return int(re.search(r"at least (\d+) bytes", str(refused.value))[1])


@pytest.mark.parametrize("name", SMALL)
def test_loss_and_gradients_are_those_of_the_plain_run(name):
    bits, plain = train(name, memory_limit="100GB")  # keeps everything
    least = least_limit(name)
    peaks, ratios = [], []
    for limit in np.linspace(least, plain.planned_bytes, 8).astype(int).tolist():
        got, plan = train(name, memory_limit=limit)
        assert got == bits, limit
        assert plan.planned_bytes <= limit
        peaks.append(plan.planned_bytes)
        ratios.append(plan.recompute_flops_ratio)
    assert peaks == sorted(peaks)
    assert ratios[-1] == 0
    assert least < plain.planned_bytes


@pytest.mark.parametrize("name", ["resnet_basic", "gpt2", "mlp"])
def test_exact_generated_kernels_keep_the_bits_too(name):
    options = {"opt_level": 3, "numerics": "exact"}
    bits, plain = train(name, **options, memory_limit="100GB")
    limit = (least_limit(name, **options) + plain.planned_bytes) // 2
    got, plan = train(name, **options, memory_limit=limit)
    assert got == bits
    assert plan.planned_bytes < plain.planned_bytes
