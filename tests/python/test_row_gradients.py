"""Gradients of tables as the rows that were looked up: values, updates, memory, and what refuses them."""

import gc

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import amp, autodiff, jit
from megengine import distributed as dist
from megengine.autodiff import GradManager, RowGradient

COUNT, DIM = 50, 4
rng = np.random.default_rng(5)
TABLE = rng.standard_normal((COUNT, DIM)).astype(np.float32)
HEAD = rng.standard_normal((DIM, 3)).astype(np.float32)
# Rows that come twice, one after the other and apart, from the end, and other ones in the next step.
BATCHES = [np.int32(each) for each in ([[3, 7, -1], [3, 3, 49]], [[0, 1, 2], [3, 4, 5]], [[7, 7, 7], [7, 7, -43]], [[9, 8, 10], [3, 7, 49]])]

LOOKUPS = {
    "rows": lambda x, table, sparse: F.embedding(x, table, sparse=sparse),
    "padding": lambda x, table, sparse: F.embedding(x, table, padding_idx=3, sparse=sparse),
    "sum": lambda x, table, sparse: F.embedding_bag(x, table, mode="sum", sparse=sparse),
    "mean": lambda x, table, sparse: F.embedding_bag(x, table, padding_idx=7, sparse=sparse),
    "max": lambda x, table, sparse: F.embedding_bag(x, table, mode="max", sparse=sparse),
    "offsets": lambda x, table, sparse: F.embedding_bag(x.reshape(-1), table, mge.tensor([0, 2, 2]), "sum", sparse=sparse),
}
MODES = {
    "eager": lambda f: f,
    **{
        f"symbolic={symbolic}, opt_level={level}, without_host={skips}": lambda f, symbolic=symbolic, level=level, skips=skips: jit.trace(
            f, symbolic=symbolic, opt_level=level, without_host=skips
        )
        for symbolic, level, skips in ((True, 0, False), (True, 2, "auto"), (True, 3, True), (False, 3, False), (False, 2, True))
    },
}


def train(lookup, make, sparse, wrap=lambda f: f, clears_first=False, dtype="float32"):
    """(losses, table, head, the table's gradient) behind four steps."""
    table, head = mge.Parameter(TABLE.astype(dtype)), mge.Parameter(HEAD)
    manager, optimizer = GradManager().attach([table, head]), make([table, head])

    def step(x):
        if clears_first:
            optimizer.clear_grad()
        with manager:
            loss = (F.matmul(F.tanh(LOOKUPS[lookup](x, table, sparse)).astype("float32"), head) ** 2).sum()
            manager.backward(loss)
        optimizer.step()
        if not clears_first:
            optimizer.clear_grad()
        return loss

    step = wrap(step)
    losses = [step(mge.tensor(batch)).item() for batch in BATCHES]
    return losses, table.numpy(), head.numpy(), table.grad


def sgd(params):
    return optim.SGD(params, lr=0.1)


def adam(params):
    return optim.Adam(params, lr=0.1)


@pytest.mark.parametrize("clears_first", [False, True])
@pytest.mark.parametrize("lookup", LOOKUPS)
@pytest.mark.parametrize("mode", MODES)
def test_sgd_by_rows_has_the_bits_of_sgd(lookup, mode, clears_first):
    expected = train(lookup, sgd, False, clears_first=clears_first)
    losses, table, head, grad = train(lookup, sgd, True, MODES[mode], clears_first)
    if "opt_level=3" in mode:  # where formulas of several ops are one
        np.testing.assert_allclose(losses, expected[0], rtol=1e-6)
        np.testing.assert_allclose(table, expected[1], rtol=1e-5, atol=1e-6)
    else:
        assert losses == expected[0] and np.array_equal(table, expected[1]) and np.array_equal(head, expected[2])
    assert (grad is None) is (not clears_first)
    if grad is not None:
        assert isinstance(grad, RowGradient) and grad.shape == (COUNT, DIM)
        np.testing.assert_allclose(grad.numpy(), expected[3].numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sgd_by_rows_of_a_table_of_halves(dtype):
    expected, found = (train("rows", sgd, sparse, dtype=dtype)[1] for sparse in (False, True))
    assert np.array_equal(found.astype("f4"), expected.astype("f4"))


def lazy_adam(tables, grads, rows, lr=0.1, beta1=0.9, beta2=0.999, eps=1e-8):
    """Adam in float64, of the rows that each step looked up."""
    table, m, v = tables.astype("f8"), np.zeros(tables.shape), np.zeros(tables.shape)
    for step, (grad, own) in enumerate(zip(grads, rows, strict=True), 1):
        own = np.unique(own % len(table))
        m[own] = beta1 * m[own] + (1 - beta1) * grad[own]
        v[own] = beta2 * v[own] + (1 - beta2) * grad[own] ** 2
        table[own] -= lr * (m[own] / (1 - beta1**step)) / (np.sqrt(v[own] / (1 - beta2**step)) + eps)
    return table


@pytest.mark.parametrize("make", [adam, lambda params: optim.AdamW(params, lr=0.1, weight_decay=0.0)])
def test_adam_moves_the_rows_of_a_step_alone(make):
    table = mge.Parameter(TABLE)
    manager, optimizer = GradManager().attach(table), make([table])
    scales = rng.standard_normal((len(BATCHES), *BATCHES[0].shape, DIM)).astype(np.float32)
    grads = np.zeros((len(BATCHES), COUNT, DIM))
    for batch, scale, grad in zip(BATCHES, scales, grads, strict=True):
        np.add.at(grad, batch, scale)
        with manager:
            manager.backward((F.embedding(mge.tensor(batch), table, sparse=True) * scale).sum())
        optimizer.step().clear_grad()
    np.testing.assert_allclose(table.numpy(), lazy_adam(TABLE, grads, BATCHES), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_adam_by_rows_is_the_same_in_traces(mode):
    expected, found = train("padding", adam, True), train("padding", adam, True, MODES[mode])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-5)


def test_adam_by_rows_begins_as_adam():
    table, other = mge.Parameter(TABLE), mge.Parameter(TABLE)
    x = mge.tensor(BATCHES[0])
    for each, sparse in ((table, False), (other, True)):
        manager = GradManager().attach(each)
        with manager:
            manager.backward((F.embedding(x, each, sparse=sparse) ** 2).sum())
        adam([each]).step()
    assert np.array_equal(table.numpy(), other.numpy())


# ---- what a gradient is


def gradient(table, loss, **options):
    manager = GradManager().attach(table, **options)
    with manager:
        manager.backward(loss(table))
    return table.grad


X = mge.tensor(np.int32([1, 4, 1, -1]))
SMALL = np.arange(12, dtype=np.float32).reshape(6, 2)


def test_rows_stand_as_they_were_looked_up():
    grad = gradient(mge.Parameter(SMALL), lambda table: (F.embedding(X, table, sparse=True) ** 2).sum())
    assert grad.rows.tolist() == [1, 4, 1, 5] and grad.values.tolist() == [[4, 6], [16, 18], [4, 6], [20, 22]]
    assert grad.dtype == np.float32 and grad.shape == (6, 2)
    assert grad.numpy().tolist() == grad.to_dense().tolist() == [[0, 0], [8, 12], [0, 0], [0, 0], [16, 18], [20, 22]]
    rows, totals = grad.totals()
    assert rows.tolist() == [1, 1, 4, 5] and totals.tolist() == [[8, 12], [8, 12], [16, 18], [20, 22]]
    assert "4 lookups" in repr(grad)


def looked_up(table, sparse):
    return F.embedding(X, table, sparse=sparse)


# What else reads the table, and whether rows remain.
LOSSES = {
    "twice": (lambda table, s: (looked_up(table, s) ** 2).sum() + looked_up(table, s).sum(), True),
    "without result": (lambda table, s: (looked_up(table, s) * 0 + looked_up(table, s)).sum(), True),
    "a matrix, too": (lambda table, s: F.matmul(looked_up(table, s), table.T).sum(), False),
    "one place": (lambda table, s: F.embedding(mge.tensor(np.int32(-1)), table, sparse=s).sum(), True),
    "no place": (lambda table, s: F.embedding(mge.tensor(np.zeros((0, 3), np.int32)), table, sparse=s).sum(), True),
    "itself": (lambda table, s: looked_up(table, s), True),
}


@pytest.mark.parametrize("case", LOSSES)
def test_the_gradient_is_that_of_the_whole_table(case):
    loss, stays = LOSSES[case]
    found, expected = (gradient(mge.Parameter(SMALL), lambda table, s=s: loss(table, s)) for s in (True, False))
    assert isinstance(found, RowGradient) is stays
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)


def test_gradients_add_up_as_rows_until_one_is_whole():
    table = mge.Parameter(SMALL)
    one = gradient(mge.Parameter(SMALL), lambda table: looked_up(table, False).sum()).numpy()
    for total, loss, is_rows in (
        (one, lambda table: looked_up(table, True).sum(), True),
        (2 * one, lambda table: looked_up(table, True).sum(), True),
        (2 * one + 3, lambda table: (3 * table).sum(), False),
        (3 * one + 3, lambda table: looked_up(table, True).sum(), False),
    ):
        grad = gradient(table, loss)
        assert np.array_equal(grad.numpy(), total) and isinstance(grad, RowGradient) is is_rows


def test_what_is_written_later_changes_no_gradient():
    table, x = mge.Parameter(SMALL), mge.tensor(np.int32([1, 4, 1, 5]))
    manager = GradManager().attach(table)
    with manager:
        y = F.embedding(x, table, sparse=True)
        loss = (y**2).sum()
        x[...], table[...] = 0, 0.0
        y += 3
        manager.backward(loss)
    assert table.grad.numpy().tolist() == [[0, 0], [8, 12], [0, 0], [0, 0], [16, 18], [20, 22]]


def test_a_gradient_as_rows_has_a_gradient():
    found = []
    for sparse in (True, False):
        table = mge.Parameter(SMALL)
        outer, inner = GradManager().attach(table), GradManager().attach(table)
        with outer:
            with inner:
                inner.backward((F.embedding(X, table, sparse=sparse) ** 3).sum())
            loss = ((table.grad.to_dense() if sparse else table.grad) ** 2).sum()
            table.grad = None
            outer.backward(loss)
        found.append(table.grad.numpy())
    assert np.array_equal(*found) and found[0].any()


def test_managers_beside_each_other_have_rows_each():
    one, two = mge.Parameter(SMALL), mge.Parameter(SMALL)
    first, second = GradManager().attach([one, two]), GradManager().attach(two)
    with first | second:
        loss = (looked_up(one, True) * looked_up(two, True)).sum()
        first.backward(loss)
        second.backward(loss)
    expected = gradient(mge.Parameter(SMALL), lambda table: (looked_up(table, False) * SMALL[[1, 4, 1, 5]]).sum()).numpy()
    assert np.array_equal(one.grad.numpy(), expected) and np.array_equal(two.grad.numpy(), 2 * expected)


def test_without_a_gradient_it_is_a_lookup():
    table, other = mge.Parameter(SMALL), mge.Parameter(SMALL)
    assert looked_up(table, True).tolist() == SMALL[[1, 4, 1, 5]].tolist()
    gradient(other, lambda other: (looked_up(table, True) + looked_up(other.detach(), True) + other.sum()).sum())
    assert table.grad is None and isinstance(other.grad, mge.Tensor)


def test_layers_hand_it_on():
    for layer in (M.Embedding(6, 2, sparse=True), M.EmbeddingBag(6, 2, sparse=True), M.Embedding.from_pretrained(mge.tensor(SMALL), freeze=False, sparse=True)):
        assert isinstance(gradient(layer.weight, lambda table, layer=layer: layer(X.reshape(2, 2)).sum()), RowGradient)
        del layer.__dict__["sparse"]  # as in files of before
        layer.weight.grad = None
        assert isinstance(gradient(layer.weight, lambda table, layer=layer: layer(X.reshape(2, 2)).sum()), mge.Tensor)


def test_a_callback_is_given_the_rows():
    seen = []
    gradient(mge.Parameter(SMALL), lambda table: looked_up(table, True).sum(), callbacks=[lambda table, grad: seen.append(grad)])
    assert isinstance(seen[0], RowGradient)


# ---- traces


def test_a_step_holds_no_gradient_of_the_whole_table():
    def planned(make, sparse, level):
        layer = M.Embedding(10_000, 64, sparse=sparse)
        manager, optimizer = GradManager().attach(layer.parameters()), make(layer.parameters())

        def step(x):
            with manager:
                manager.backward((layer(x) ** 2).mean())
            optimizer.step().clear_grad()

        plan = jit.trace(step, opt_level=level).plan(mge.tensor(np.zeros(100, np.int32)))
        return plan.planned_bytes / (10_000 * 64 * 4)  # in tables

    for level in (0, 2):
        assert planned(sgd, True, level) < 1.1 and planned(sgd, False, level) > 2
        assert planned(adam, True, level) < 3.1 and planned(adam, False, level) > 4
    for sparse in (False, True):  # the pass map_rows sees to the former
        assert planned(sgd, sparse, 3) < 1.1 and planned(adam, sparse, 3) < 3.1


def trained(clear, wrap):
    table = mge.Parameter(TABLE)
    manager, optimizer = GradManager().attach(table), adam([table])

    def step(x):
        if clear == "first":
            optimizer.clear_grad()
        with manager:
            manager.backward((F.embedding(x, table, sparse=True) ** 2).sum())
        optimizer.step()
        if clear == "last":
            optimizer.clear_grad()

    return table, optimizer, wrap(step)


@pytest.mark.parametrize("clear", ["first", "last"])
@pytest.mark.filterwarnings("error")
def test_calls_without_the_body_put_the_rows_in_place(clear):
    runs = []
    for wrap in (lambda f: f, lambda f: jit.trace(f, without_host=True)):
        table, _, step = trained(clear, wrap)
        for batch in BATCHES:
            step(mge.tensor(batch))
        runs.append((table.numpy(), table.grad and table.grad.numpy()))
    np.testing.assert_allclose(runs[1][0], runs[0][0], rtol=1e-6)
    if clear == "first":
        np.testing.assert_allclose(runs[1][1], runs[0][1], rtol=1e-6)
    assert "each call runs the body" not in step.explain() and "recorded again" not in step.explain()


@pytest.mark.parametrize("skips", [False, "auto", True])
@pytest.mark.filterwarnings("ignore:.*recorded again")
def test_rows_that_a_step_adds_to(skips):
    found = []
    for wrap in (lambda f: f, lambda f: jit.trace(f, without_host=skips)):
        table = mge.Parameter(TABLE)
        manager = GradManager().attach(table)

        def step(x, table=table, manager=manager):
            with manager:
                manager.backward((F.embedding(x, table, sparse=True) ** 2).sum())

        step(mge.tensor(BATCHES[0]))
        step = wrap(step)
        for batch in BATCHES[:3]:
            step(mge.tensor(batch))
        found.append(table.grad.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


@pytest.mark.parametrize("skips", [False, "auto", True])
@pytest.mark.parametrize("name", ["weight_decay"])
def test_an_option_that_is_set_later_is_refused_later(name, skips):
    _, optimizer, step = trained("last", lambda f: jit.trace(f, without_host=skips))
    for batch in BATCHES:
        step(mge.tensor(batch))
    optimizer.param_groups[0][name] = 0.1
    with pytest.raises(TypeError, match=f"Adam with {name}=0.1 takes no gradient that is kept as rows"):
        step(mge.tensor(BATCHES[0]))


def test_a_call_that_does_not_run_leaves_the_rows():
    table, _, step = trained("first", lambda f: f)
    step(mge.tensor(BATCHES[0]))
    before = table.grad
    with pytest.raises(MemoryError):
        jit.trace(step, memory_limit=100)(mge.tensor(BATCHES[1]))
    assert table.grad is before
    jit.trace(step).plan(mge.tensor(BATCHES[1]))
    assert table.grad is before and np.isfinite(before.numpy()).all()


def test_rows_go_with_what_holds_them():
    def held():
        gc.collect()
        return sum(isinstance(each, RowGradient) for each in gc.get_objects())

    before = held()
    table, _, step = trained("first", lambda f: jit.trace(f, without_host=True))
    for batch in BATCHES:
        step(mge.tensor(batch))
    del table, _, step
    assert held() == before


# ---- what takes no rows


def with_rows(*others):
    table = mge.Parameter(SMALL)
    gradient(table, lambda table: looked_up(table, True).sum())
    for other in others:
        other.grad = F.ones_like(other)
    return table


REFUSALS = {
    **{
        name: (f"optimizer.{name} takes no .*\n  fix: .*sparse=False, or train it with SGD or Adam", lambda name=name: getattr(optim, name)([with_rows()], lr=0.1).step())
        for name in ("Adadelta", "Adafactor", "Adagrad", "Adam8bit", "AdamW8bit", "LAMB", "Lion", "RMSprop")
    },
    "momentum": ("SGD with momentum=0.9 takes no .*\n  fix: .*momentum=0", lambda: optim.SGD([with_rows()], lr=0.1, momentum=0.9).step()),
    "decay": ("SGD with weight_decay=0.1 takes no .*\n  fix: .*weight_decay=0", lambda: optim.SGD([with_rows()], lr=0.1, weight_decay=0.1).step()),
    "AdamW": ("AdamW with weight_decay=0.01 takes no .*\n  fix: ", lambda: optim.AdamW([with_rows()], lr=0.1).step()),
    "norm": ("clip_grad_norm takes no .*\n  fix: ", lambda: optim.clip_grad_norm(with_rows(), 1.0)),
    "value": ("clip_grad_value takes no .*\n  fix: ", lambda: optim.clip_grad_value(with_rows(), -1.0, 1.0)),
    "ufunc": ("RowGradient.*\n  fix: use grad.to_dense", lambda: np.exp(with_rows().grad)),
    "array": ("RowGradient.*\n  fix: use grad.to_dense", lambda: np.asarray(with_rows().grad)),
    "function": ("RowGradient.*\n  fix: use grad.to_dense", lambda: F.exp(with_rows().grad)),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_needs_the_whole_gradient_says_so(case):
    message, call = REFUSALS[case]
    with pytest.raises(TypeError, match=message):
        call()


def test_a_step_that_is_refused_has_updated_nothing():
    other = mge.Parameter([1.0])
    optimizer = optim.SGD([{"params": other}, {"params": with_rows(other), "weight_decay": 0.1}], lr=0.1)
    with pytest.raises(TypeError, match="weight_decay"):
        optimizer.step()
    assert other.item() == 1.0


TABLES = {
    "a product": lambda table: looked_up(table * 2, True),
    "rows of it": lambda table: F.embedding(mge.tensor([0]), looked_up(table, True), sparse=True),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_table_that_is_computed_has_no_rows(case):
    with pytest.raises(ValueError, match="is computed from what is attached.*\n  why: .*\n  fix: give the attached Parameter"):
        gradient(mge.Parameter(SMALL), lambda table: TABLES[case](table).sum())


def test_functions_of_functions_refuse_a_lookup_of_rows():
    for derive in (autodiff.jacobian, lambda f, x: autodiff.jvp(f, (x,), (x,))):
        with pytest.raises(ValueError, match="fix: .*sparse=False"):
            derive(lambda table: looked_up(table, True), mge.tensor(SMALL))
    with pytest.raises(TypeError, match="vmap: a lookup with sparse=True\n.*\n  fix: sparse=False"):
        gradient(mge.Parameter(SMALL), lambda table: autodiff.vmap(lambda i: F.embedding(i, table, sparse=True))(X).sum())


LOOPS = {
    "scan": lambda table: F.scan(lambda c, i: (c + F.embedding(i, table, sparse=True), c), F.zeros((2,)), X)[0],
    "cond": lambda table: F.cond(X.sum() > 0, lambda: looked_up(table, True).sum(), lambda: F.zeros(())),
    "a scan in one": lambda table: F.scan(
        lambda c, i: (c + F.scan(lambda d, j: (d + F.embedding(j, table, sparse=True), d), c, X)[0], c), F.zeros((2,)), X
    )[0],
}


@pytest.mark.parametrize("case", LOOPS)
def test_loops_in_graphs_refuse_a_lookup_of_rows(case):
    step = jit.trace(lambda: gradient(mge.Parameter(SMALL), lambda table: LOOPS[case](table).sum()))
    with pytest.raises(RuntimeError, match="a lookup with sparse=True is in .*\n  why: .*\n  fix: look the rows up outside"):
        step()
    frozen, other = mge.tensor(SMALL), mge.Parameter(np.float32(2))
    jit.trace(lambda: gradient(other, lambda other: (other * LOOPS[case](frozen)).sum()))()
    assert np.isfinite(other.grad.item())


def test_sums_over_processes_take_no_rows():
    callback = dist.make_allreduce_cb("mean")
    assert isinstance(gradient(mge.Parameter(SMALL), lambda table: looked_up(table, True).sum(), callbacks=[callback]), RowGradient)  # of one process


# ---- what takes them besides


def test_recomputed_lookups():
    found = []
    for sparse in (True, False):
        table = mge.Parameter(SMALL)
        manager = GradManager().attach(table)

        @jit.trace
        def step(x, sparse=sparse, table=table, manager=manager):
            with manager:
                manager.backward(jit.recompute(lambda x: F.exp(F.embedding(x, table, sparse=sparse)))(x).sum())

        step(X)
        table.grad = None
        step(X)
        found.append(table.grad.numpy())
    np.testing.assert_allclose(*found, rtol=1e-6)


@pytest.mark.parametrize("factor", [1.0, np.inf])
def test_a_scaler_scales_rows(factor):
    grads = []
    for sparse in (True, False):
        table = mge.Parameter(SMALL)
        manager, scaler = GradManager().attach(table), amp.GradScaler()
        with manager:
            scaler.backward(manager, (looked_up(table, sparse) * factor).sum())
        grads.append((None if table.grad is None else table.grad.numpy().tolist(), scaler.scale_factor))
    assert grads[0] == grads[1] and (grads[0][0] is None) is (factor == np.inf)


def test_a_sum_of_halves_that_overflows_is_found():
    table = mge.Parameter(np.zeros((6, 2), np.float16))
    manager, scaler = GradManager().attach(table), amp.GradScaler(init_scale=1.0)
    with manager:
        scaler.backward(manager, looked_up(table, True), np.float16(6e4) * F.ones((4, 2), dtype="float16"))
    assert table.grad is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_zeros_in_place_of_rows():
    table = with_rows()
    optim.SGD([table], lr=0.1).zero_grad()
    assert isinstance(table.grad, RowGradient) and not table.grad.numpy().any()
