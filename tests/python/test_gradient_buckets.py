"""Gradients that two processes add up in buckets, beside backward: the same calls and the same bits whether a step runs eagerly, is recorded
or replayed; and what is left when one of them fails.

The processes are started once: each runs every check, in order, and says what came of it.
"""


import numpy as np
import pytest
import world_checks
from test_distributed_failures import bits, told

import megengine as mge
import megengine.distributed as dist
import megengine.functional as F
import megengine.module as M
from megengine import _core
from megengine.autodiff import Function, GradManager
from megengine.distributed import functional as DF
from megengine.jit import SublinearMemoryConfig, trace
from megengine.tensor import Tensor

SIZE = 2
SHAPES = [(7,), (16, 4), (3, 5), (64,), (1,), (33, 2), (16, 16)]
DEFAULT = (1 << 20, 25 << 20)  # sizes of buckets
CHECKS = world_checks.Checks()
check = CHECKS.add


def one_by_one(param, grad):
    return DF.all_reduce_sum(grad) / SIZE


def parameters(shapes=SHAPES, dtype="float32"):
    return [mge.Parameter(np.random.RandomState(k).normal(size=shape).astype(dtype)) for k, shape in enumerate(shapes)]


def attached(params, callback=None):
    return GradManager().attach(params, callbacks=[callback or dist.make_allreduce_cb("mean")])


def loss_of(params, rank, factor=1.0):
    """Each is used twice, early and late."""
    x = Tensor([rank + 0.25])
    loss = sum(F.mean(F.tanh(param * x) ** 2) for param in params)
    return loss + sum(F.mean(param) for param in reversed(params)) * factor


def gradients(params, rank, callback=None, uses=None):
    gm = attached(params, callback)
    with gm:
        gm.backward(loss_of(params if uses is None else uses, rank))
    found = [None if param.grad is None else param.grad.numpy() for param in params]
    for param in params:
        param.grad = None
    return found


def expect_same(got, wanted, message=""):
    for a, b in zip(got, wanted, strict=True):
        assert (a is None) == (b is None), message
        if a is not None:
            np.testing.assert_array_equal(a, b, err_msg=str(message))


class BucketSizes:
    """``with BucketSizes(first, others):``"""

    def __init__(self, *sizes):
        self.sizes = sizes

    def __enter__(self):
        dist.set_bucket_sizes(*self.sizes)

    def __exit__(self, *_):
        dist.set_bucket_sizes()


def exchanged(function):
    """The all-reduces that a call makes: elements of each."""
    _core.start_call_log(False)
    try:
        function()
    finally:
        calls = _core.stop_call_log()
    return [int(np.prod(eval(name.split("f32")[1]))) for name, *_ in calls if name.startswith("all_reduce_sum")]


# ---- eager


@check
def buckets_have_the_bits_of_separate_reductions(rank):
    params = parameters()
    wanted = gradients(params, rank, one_by_one)
    for sizes in ((1, 1), (64, 256), DEFAULT):
        with BucketSizes(*sizes):
            expect_same(gradients(params, rank), wanted, sizes)


@check
def each_bucket_ends_with_the_gradient_that_fills_it(rank):
    """Backward is through with the tensors that the loss reads first last; nothing runs beside the last bucket."""
    params = parameters([(32,)] * 6)
    counts = []
    for sizes in ((1, 1), (128, 256), DEFAULT):
        with BucketSizes(*sizes):
            counts.append(exchanged(lambda: gradients(params, rank)))
    assert counts == [[32] * 6, [32, 64, 64, 32], [192]]


@check
def a_second_backward_adds_to_the_first(rank):
    params = parameters()
    gm = attached(params)
    for _ in range(2):
        with gm:
            gm.backward(loss_of(params, rank))
    twice = [param.grad.numpy() for param in params]
    expect_same(twice, [2 * grad for grad in gradients(parameters(), rank)])


@check
def a_parameter_without_gradient_is_left_out(rank):
    params = parameters()
    for uses in (params[:3] + params[4:], params[:1], params[-1:]):
        with BucketSizes(64, 256):
            got = gradients(params, rank, uses=uses)
        expect_same(got, gradients(params, rank, one_by_one, uses=uses))
        assert sum(grad is None for grad in got) == len(params) - len(uses)
    untouched = attached(params)
    with untouched, pytest.warns(UserWarning, match="depends on none"):
        untouched.backward(Tensor([1.0]) * 2)
    assert all(param.grad is None for param in params)


@check
def dtypes_and_groups_have_buckets_of_their_own(rank):
    alone = dist.new_group([rank])
    singles, halves, own = parameters(), parameters(dtype="float16"), parameters()
    managers = attached(singles).attach(halves, callbacks=[dist.make_allreduce_cb("sum")])
    managers.attach(own, callbacks=[dist.make_allreduce_cb("sum", alone)])
    with managers:
        managers.backward(loss_of(singles, rank) + loss_of(halves, rank).astype("float32") + loss_of(own, rank))
    got = [[param.grad.numpy() for param in each] for each in (singles, halves, own)]
    assert got[1][0].dtype == np.float16
    expect_same(got[0], gradients(parameters(), rank, one_by_one))
    expect_same(got[1], gradients(parameters(dtype="float16"), rank, lambda param, grad: DF.all_reduce_sum(grad)))
    expect_same(got[2], gradients(parameters(), rank, lambda param, grad: grad))


@check
def behind_another_callback_gradients_are_reduced_one_by_one(rank):
    params = parameters()
    gm = GradManager().attach(params, callbacks=[lambda param, grad: grad * (rank + 1), dist.make_allreduce_cb("sum")])

    def step():
        with gm:
            gm.backward(loss_of(params, 0))

    assert len(exchanged(step)) == len(SHAPES)
    wanted = [3 * grad for grad in gradients(parameters(), 0, lambda param, grad: grad)]
    for param, grad in zip(params, wanted, strict=True):
        np.testing.assert_allclose(param.grad.numpy(), grad, rtol=1e-6)


@check
def outer_managers_see_the_sums(rank):
    x = mge.Parameter([float(rank + 1)])
    outer, inner = GradManager().attach(x), attached([x], dist.make_allreduce_cb("sum"))
    with outer:
        with inner:
            inner.backward(x * x * x)
        outer.backward(x.grad)  # the sum of 3 x**2, whose gradients all add up once more
    np.testing.assert_allclose(x.grad.numpy(), [3 * (1 + 4) + SIZE * 6 * (rank + 1)], rtol=1e-6)


class Exchanging(Function):
    """The identity, whose backward asks all processes, while buckets are on their way."""

    def forward(self, x):
        return x * 1

    def backward(self, dy):
        return dy + 0 * DF.all_reduce_max(dy)


@check
def exchanges_of_backward_itself_keep_their_turn(rank):
    params = parameters([(16, 16)] * 3)

    def found(callback):
        gm = attached(params, callback)
        with gm:
            x = Tensor(np.ones((2, 16), "float32") * (rank + 1))
            for param in params:
                x = Exchanging()(F.tanh(F.matmul(x, param)))
            gm.backward(F.mean(x))
        grads = [param.grad.numpy() for param in params]
        for param in params:
            param.grad = None
        return grads

    with BucketSizes(1, 1):
        expect_same(found(None), found(one_by_one))


# ---- recorded and replayed


def training(wrap, shapes=SHAPES):
    """(step, parameters); the loss is averaged for the log."""
    params = parameters(shapes)
    gm, optimizer = attached(params), mge.optimizer.Adam(params, lr=0.01)

    def step(x):
        with gm:
            loss = sum(F.mean(F.tanh(param * F.mean(x)) ** 2) for param in params)
            gm.backward(loss)
        optimizer.step().clear_grad()
        return DF.all_reduce_sum(loss) / SIZE

    return wrap(step), params


OPTIONS = [{"symbolic": False}, {"symbolic": True}, {"symbolic": True, "opt_level": 3, "numerics": "exact"}, {"symbolic": True, "opt_level": 0}]


def batch(rank, k, size=4):
    return Tensor(np.full(size, rank + 0.25 * k, "float32"))


@check
def one_process_is_eager_and_the_other_one_traced(rank):
    step, params = training(lambda step: step)
    wanted = [step(batch(rank, k)).item() for k in range(3)], [param.numpy() for param in params]
    for sizes in ((64, 256), DEFAULT):
        for options in OPTIONS:
            for traced in range(SIZE):
                with BucketSizes(*sizes):
                    step, params = training(trace(**options) if rank == traced else lambda step: step)
                    losses = [step(batch(rank, k)).item() for k in range(3)]
                assert losses == wanted[0], (sizes, options)
                expect_same([param.numpy() for param in params], wanted[1], (sizes, options))


@check
def one_process_records_anew_while_the_other_one_replays(rank):
    """As with a last batch that is shorter in one of them."""
    step, params = training(lambda step: step)
    wanted = [step(batch(rank, k, 3 if rank == 0 and k == 3 else 4)).item() for k in range(5)]
    for options in OPTIONS:
        with BucketSizes(64, 256):
            step, params = training(trace(**options))
            assert [step(batch(rank, k, 3 if rank == 0 and k == 3 else 4)).item() for k in range(5)] == wanted, options


@check
def a_normalization_over_processes_lies_between_buckets(rank):
    """Whose exchanges stand between them in every process, traced or not."""
    images = np.random.RandomState(rank).normal(size=(3, 4, 2, 6, 6)).astype("float32")

    def losses(is_traced):
        mge.random.seed(0)
        net = M.Sequential(M.Conv2d(2, 4, 3), M.SyncBatchNorm(4), M.ReLU(), M.Conv2d(4, 4, 3), M.SyncBatchNorm(4))
        dist.bcast_list_(net.parameters())
        gm, optimizer = attached(net.parameters()), mge.optimizer.SGD(net.parameters(), lr=0.05)

        def step(x):
            with gm:
                loss = F.mean(net(x) ** 2 * F.mean(x))
                gm.backward(loss)
            optimizer.step().clear_grad()
            return loss

        if is_traced:
            step = trace(step, symbolic=True)
        return [step(Tensor(image)).item() for image in images]

    with BucketSizes(1, 1):
        wanted = losses(False)
        assert losses(rank == 0) == wanted


@check
def other_gradients_than_recorded_are_told(rank):
    """Attached anew, without the sum: what was recorded is not replayed in silence."""
    params = parameters()
    managers = [attached(params), GradManager().attach(params)]

    @trace(symbolic=True)
    def step(x):
        with managers[0]:
            managers[0].backward(loss_of(params, 0) * F.mean(x))
        grads = [param.grad for param in params]
        for param in params:
            param.grad = None
        return grads

    step(Tensor([1.0]))
    managers.reverse()
    with pytest.raises(mge.jit.TraceError, match="adds up other gradients over processes"):
        step(Tensor([1.0]))


# ---- memory


def deep(**options):
    """(step, its arguments, parameters): activations are most of what it takes; a gradient of each layer is a bucket."""
    mge.random.seed(0)
    net = M.Sequential(*(layer for _ in range(8) for layer in (M.Linear(32, 32), M.ReLU())))
    for k, param in enumerate(net.parameters()):
        param[...] = Tensor(np.random.RandomState(k).normal(size=param._tuple_shape).astype("float32") * 0.2)
    gm, optimizer = attached(net.parameters()), mge.optimizer.SGD(net.parameters(), lr=0.1)

    @trace(symbolic=True, **options)
    def step(x):
        with gm:
            loss = F.mean(net(x) ** 2)
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    return step, Tensor(np.random.RandomState(dist.get_rank()).normal(size=(256, 32)).astype("float32")), list(net.parameters())


def trained(**options):
    step, x, params = deep(**options)
    return [step(x).numpy().tobytes() for _ in range(3)] + bits(params), step.memory_plan()


@check
def a_limit_holds_with_buckets_counted(rank):
    with BucketSizes(4096, 16384):
        wanted, plain = trained(memory_limit="100GB")
        blocks = [buffer for buffer in plain.buffers if any("concat" in value or "all_reduce_sum" in value for value in buffer.values)]
        assert blocks, plain.steps  # they are part of what the plan holds
        for limit in (plain.planned_bytes, int(plain.planned_bytes * 0.8), int(plain.planned_bytes * 0.6)):
            got, plan = trained(memory_limit=limit)
            assert got == wanted and plan.planned_bytes <= limit
        with pytest.raises(MemoryError, match="at least"):
            trained(memory_limit=1)


@check
def a_limit_of_one_process_changes_none_of_its_calls(rank):
    """Others have none: each is its own affair."""
    with BucketSizes(4096, 16384):
        wanted, plain = trained(memory_limit="100GB")
        options = {"memory_limit": int(plain.planned_bytes * 0.6)} if rank == 0 else {}
        assert trained(**options)[0] == wanted


@check
def sublinear_memory_keeps_buckets_and_bits(rank):
    with BucketSizes(4096, 16384):
        wanted, plain = trained(memory_limit="100GB")
        got, less = trained(sublinear_memory_config=SublinearMemoryConfig())
    assert got == wanted and less.planned_bytes < plain.planned_bytes


# ---- failures: worlds of their own


def eager_step(in_backward=lambda: None):
    """(step, parameters): four layers, a bucket for each gradient, and what happens when half of backward is done."""

    class Middle(Function):
        def forward(self, x):
            return x * 1

        def backward(self, dy):
            in_backward()
            return dy

    dist.set_bucket_sizes(1, 1)
    layers = [M.Linear(16, 16) for _ in range(4)]
    params = [param for layer in layers for param in layer.parameters()]
    dist.bcast_list_(params)
    gm, optimizer = attached(params), mge.optimizer.SGD(params, lr=0.1, momentum=0.9)

    def step(x):
        with gm:
            for k, layer in enumerate(layers):
                x = F.tanh(layer(Middle()(x) if k == 2 else x))
            gm.backward(F.mean(x**2))
        optimizer.step().clear_grad()

    return step, params


def failing(rank, in_backward=lambda: None):
    """A good step, and one that fails: it leaves no gradient, and parameters as they were."""
    calls = []
    step, params = eager_step(lambda: calls.append(0) or (in_backward() if len(calls) == 2 else None))
    x = Tensor(np.ones((4, 16), "float32"))
    step(x)
    before = bits(params)
    try:
        step(x)
    finally:
        assert bits(params) == before
        assert all(param.grad is None for param in params)


def test_a_process_that_is_gone_leaves_parameters_as_they_were():
    def body(rank):
        if rank == 1:
            eager_step()[0](Tensor(np.ones((4, 16), "float32")))
            return ""
        return failing(rank)

    text = told(2, body)[0]
    assert "rank 1 is gone, which rank 0 waits for in all_reduce_sum of f32[" in text
    assert "test_gradient_buckets.py:" in text


def test_who_raises_in_the_middle_of_backward_is_named():
    def body(rank):
        def raise_error():
            raise KeyError("in the middle")

        return failing(rank, raise_error if rank == 1 else lambda: None)

    with pytest.raises(AssertionError, match="process 1(.*\n)*.*in the middle"):
        told(2, body)


def test_another_gradient_than_the_others_have_is_a_call_that_differs():
    def body(rank):
        params = parameters()
        gradients(params, rank, uses=params[: len(params) - rank])

    for text in told(2, body):
        assert "the processes of a group make different calls" in text and "all_reduce_sum of f32[" in text


# ------------------------------------------------------------------------------------------------------


results = CHECKS.results(SIZE)


@pytest.mark.parametrize("name", CHECKS)
def test_in_two_processes(results, name):
    world_checks.expect_passed(results, name)
