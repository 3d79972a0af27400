"""jit.largest_batch: the batch that it names runs, and the next one is refused."""

import dataclasses

import numpy as np
import pytest
import zoo

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import jit
from megengine.autodiff import GradManager


@dataclasses.dataclass
class Batch:
    image: mge.Tensor
    labels: mge.Tensor


def training_step():
    mge.random.seed(0)
    net = M.Sequential(*(layer for _ in range(4) for layer in (M.Linear(32, 32), M.ReLU())))
    gm = GradManager().attach(net.parameters())
    optimizer = optim.Adam(net.parameters(), lr=0.01)

    def step(image, labels):
        with gm:
            loss = F.loss.cross_entropy(net(image), labels)
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    return step


def images(batch):
    return mge.tensor(np.ones((batch, 32), np.float32))


def labels(batch):
    return mge.tensor(np.zeros(batch, np.int32))


def of_dict(step):
    return lambda batch: step(batch["image"], batch["labels"])


def of_dataclass(step):
    return lambda batch: step(batch.image, batch.labels)


def of_columns(step):
    return lambda x, labels: step(F.transpose(x, (1, 0)), labels)


def of_rows(step):
    """Two rows of each example, and a table that is no batch though it is as long."""
    return lambda x, table, labels: step(F.reshape(x, (-1, 32)) + table.mean(), labels)


def of_any(step):
    return lambda *tensors: step(*tensors)


# How the step takes its batch; its arguments for a batch; what batch_axis says; what is said of the axes.
FORMS = {
    "tensors": (lambda step: step, lambda n: (images(n), labels(n)), 0, ("image axis 0", "labels axis 0")),
    "a dict": (of_dict, lambda n: ({"image": images(n), "labels": labels(n)},), 0, ("batch['image'] axis 0", "batch['labels'] axis 0")),
    "a dataclass": (of_dataclass, lambda n: (Batch(images(n), labels(n)),), 0, ("batch.image axis 0", "batch.labels axis 0")),
    "a tuple": (lambda step: lambda pair: step(*pair), lambda n: ((images(n), labels(n)),), 0, ("pair[0] axis 0", "pair[1] axis 0")),
    "another axis": (
        of_columns,
        lambda n: (mge.tensor(np.ones((32, n), np.float32)), labels(n)),
        {"x": 1, "labels": 0},
        ("x axis 1", "labels axis 0"),
    ),
    "rows of examples": (
        of_rows,
        lambda n: (mge.tensor(np.ones((n, 2, 32), np.float32)), F.ones((8, 4)), labels(2 * n)),
        {0: 0, "labels": 0},
        ("x axis 0", "labels axis 0"),
    ),
    "variable arguments": (of_any, lambda n: (images(n), labels(n)), 0, ("tensors[0] axis 0", "tensors[1] axis 0")),
}  # fmt: skip


@pytest.mark.parametrize(("form", "level"), [*((form, 2) for form in FORMS), ("tensors", 3)])
def test_it_runs_and_the_next_is_refused(form, level):
    change, arguments, axis, axes = FORMS[form]
    limit = 300_000

    def traced(**options):
        return jit.trace(change(training_step()), opt_level=level, **options)

    found = jit.largest_batch(traced(), limit, *arguments(8), batch_axis=axis)
    assert found.axes == axes
    assert found.plan.planned_bytes <= limit
    step = traced(memory_limit=limit)
    assert np.isfinite(step(*arguments(found.batch)).item())
    assert step.memory_plan().planned_bytes == found.plan.planned_bytes
    with pytest.raises(MemoryError):
        traced(memory_limit=limit)(*arguments(found.batch + 1))


def test_it_says_what_it_tried():
    found = jit.largest_batch(jit.trace(training_step()), "300KB", images(8), labels(8))
    assert isinstance(found, jit.LargestBatch) and all(isinstance(each, jit.TriedBatch) for each in found.tried)
    by_batch = {each.batch: each for each in found.tried}
    assert len(by_batch) == len(found.tried)
    assert by_batch[found.batch].fits and not by_batch[found.batch + 1].fits
    assert all((each.bytes <= found.limit) == each.fits == (each.batch <= found.batch) for each in found.tried)
    text = str(found)
    assert text.startswith(f"a batch of {found.batch} fits into 307200 bytes (300.0 KiB); the batch is image axis 0, labels axis 0")
    assert f"  {found.batch + 1}: refused, the smallest plan takes" in text


def test_nothing_runs_and_nothing_changes():
    mge.random.seed(3)
    weight = mge.Parameter(np.ones((64, 64), np.float32))

    @jit.trace
    def step(x):
        weight._reset(weight + 1)
        return F.dropout(x @ weight, 0.5).sum()

    before, peak = mge.random.uniform(0, 1, (4,)).numpy(), mge.device.get_max_allocated_memory()
    mge.random.seed(3)
    found = jit.largest_batch(step, "64GB", F.ones((1, 64)))
    assert found.batch > 10**7  # of which no memory was taken
    assert mge.device.get_max_allocated_memory() - peak < 2**20
    assert (weight.numpy() == 1).all()
    np.testing.assert_array_equal(mge.random.uniform(0, 1, (4,)).numpy(), before)
    assert not step.traced


def test_a_network_takes_seconds():
    net = zoo.ResNet((2, 2, 2, 2), 1)
    gm = GradManager().attach(net.parameters())

    @jit.trace(opt_level=3)
    def step(x):
        with gm:
            loss = net(x).mean()
            gm.backward(loss)
        return loss

    found = jit.largest_batch(step, "2GB", mge.tensor(np.zeros((1, 3, 224, 224), np.float32)))
    assert found.batch > 20
    assert len(found.tried) <= 16


@dataclasses.dataclass
class Wrong:
    call: object
    error: type
    words: str


WRONG = {
    "no trace": Wrong(lambda: jit.largest_batch(lambda x: x, "1MB", images(8)), TypeError, r"is not a traced function\n  fix: jit.trace"),
    "a share": Wrong(lambda: jit.largest_batch(jit.trace(F.exp), "50%", images(8)), ValueError, "share of a plan"),
    "no tensors": Wrong(lambda: jit.largest_batch(jit.trace(lambda: F.ones(3)), "1MB"), ValueError, "there is none"),
    "no such argument": Wrong(
        lambda: jit.largest_batch(jit.trace(lambda x: x + 1), "1MB", images(8), batch_axis={"y": 0}), ValueError, "names y, and the arguments are x"
    ),
    "no such axis": Wrong(lambda: jit.largest_batch(jit.trace(lambda x: x + 1), "1MB", images(8), batch_axis={"x": 2}), ValueError, "x has no axis 2"),
    "no multiples": Wrong(
        lambda: jit.largest_batch(jit.trace(lambda x, y: x.sum() + y.sum()), "1MB", images(8), images(12), batch_axis={"x": 0, "y": 0}),
        ValueError,
        "no multiples of a batch of 8: y has 12",
    ),
    "a batch of one": Wrong(lambda: jit.largest_batch(jit.trace(lambda x: x + 1), 200, images(8)), MemoryError, "at least 260 bytes, and the limit is 200"),
    "another batch": Wrong(
        lambda: jit.largest_batch(jit.trace(lambda x, y: x + F.concat([y, y])), "1MB", images(8), images(4)), ValueError, "batch_axis="
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_told(name):
    wrong = WRONG[name]
    with pytest.raises(wrong.error, match=wrong.words):
        wrong.call()


def test_a_limit_of_a_region_is_refused_with_the_reason():
    with pytest.raises(TypeError, match=r"a limit is of a whole call(.|\n)*why: (.|\n)*fix: "):
        jit.trace(F.exp, memory_limit={"encoder": "1GB"})
