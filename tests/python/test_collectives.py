"""Collective operations, their gradients and their place in traces, in a world of three processes (and a group of two).

The processes are started once: each runs every check, in order, and says what came of it.
"""


import numpy as np
import pytest
import world_checks

import megengine as mge
import megengine.distributed as dist
import megengine.functional as F
from megengine import _core, dtr
from megengine.autodiff import GradManager
from megengine.core import ops
from megengine.distributed import functional as DF
from megengine.jit import trace
from megengine.tensor import Tensor

SIZE = 3
CHECKS = world_checks.Checks()
check = CHECKS.add


def data_of(rank, shape=(6, 3), dtype="float32"):
    return (np.random.RandomState(rank).randint(-8, 8, size=shape)).astype(dtype)


def everything(shape=(6, 3), dtype="float32"):
    return [data_of(rank, shape, dtype) for rank in range(SIZE)]


def same(tensor, expected):
    assert tensor._tuple_shape == expected.shape, (tensor._tuple_shape, expected.shape)
    np.testing.assert_array_equal(tensor.numpy(), expected)


# ---- results


@check
def reductions(rank):
    all_of_them = everything()
    x = Tensor(data_of(rank))
    same(DF.all_reduce_sum(x), sum(all_of_them))
    same(DF.all_reduce_max(x), np.maximum.reduce(all_of_them))
    same(DF.all_reduce_min(x), np.minimum.reduce(all_of_them))
    total = DF.reduce_sum(x)
    assert (total is None) == (rank != 0)
    if rank == 0:
        same(total, sum(all_of_them))
    same(ops.all_reduce_prod(x, group=dist.WORLD.key)[0], np.multiply.reduce(all_of_them))


@check
def moves(rank):
    all_of_them = everything()
    x = Tensor(data_of(rank))
    part = slice(2 * rank, 2 * rank + 2)
    same(DF.broadcast(x), all_of_them[0])
    same(DF.all_gather(x), np.concatenate(all_of_them))
    same(DF.all_gather(x, axis=1), np.concatenate(all_of_them, axis=1))
    same(DF.reduce_scatter_sum(x), sum(all_of_them)[part])
    same(DF.reduce_scatter_sum(x, axis=1), sum(all_of_them)[:, rank : rank + 1])
    same(DF.scatter(x), all_of_them[0][part])
    same(DF.scatter(x, axis=-1), all_of_them[0][:, rank : rank + 1])
    same(DF.all_to_all(x), np.concatenate([each[part] for each in all_of_them]))
    same(DF.all_to_all(x, split_axis=0, concat_axis=1), np.concatenate([each[part] for each in all_of_them], axis=1))
    whole = DF.gather(x, axis=1)
    assert (whole is None) == (rank != 0)
    if rank == 0:
        same(whole, np.concatenate(all_of_them, axis=1))


@check
def large_tensors_give_the_bits_of_small_ones(rank):
    """Above some size each process adds up a part, slice by slice: in the same order."""
    for count in (8192 // 4 * SIZE + 1, 600_001, 1_500_007):
        parts = [np.random.RandomState(each).normal(size=count).astype("float32") for each in range(SIZE)]
        total = parts[0] + parts[1] + parts[2]
        same(DF.all_reduce_sum(Tensor(parts[rank])), total)
        same(DF.broadcast(Tensor(parts[rank])), parts[0])
        if rank == 0:
            same(DF.reduce_sum(Tensor(parts[rank])), total)
        else:
            DF.reduce_sum(Tensor(parts[rank]))
        same(DF.all_reduce_sum(Tensor(parts[rank][:100])), total[:100])


@check
def any_dtype(rank):
    for dtype in ("float32", "float16", "int32", "int16", "int8", "uint8", "uint16"):
        all_of_them = everything(dtype=dtype)
        x = Tensor(data_of(rank, dtype=dtype), dtype=dtype)
        same(DF.all_reduce_sum(x), sum(each.astype(dtype) for each in all_of_them).astype(dtype))
        same(DF.all_reduce_max(x), np.maximum.reduce(all_of_them))
        same(DF.all_gather(x), np.concatenate(all_of_them))
    flags = [each > 0 for each in everything()]
    x = Tensor(flags[rank])
    same(DF.all_reduce_max(x), np.logical_or.reduce(flags))
    same(DF.all_reduce_min(x), np.logical_and.reduce(flags))
    same(DF.broadcast(x), flags[0])
    bf = Tensor(data_of(rank)).astype("bfloat16")
    same(DF.all_reduce_sum(bf).astype("float32"), sum(everything()))


@check
def any_layout_and_shape(rank):
    all_of_them = everything()
    x = Tensor(data_of(rank))
    same(DF.all_reduce_sum(x.transpose()), sum(all_of_them).T)
    same(DF.all_reduce_sum(x[::2, 1:]), sum(all_of_them)[::2, 1:])
    same(DF.all_reduce_sum(Tensor(float(rank))), np.float32(3).reshape(()))
    same(DF.all_reduce_sum(Tensor(np.zeros((0, 4), "float32"))), np.zeros((0, 4), "float32"))
    same(DF.all_gather(Tensor(np.zeros((2, 0), "float32"))), np.zeros((6, 0), "float32"))


@check
def groups_work_beside_each_other(rank):
    pair = dist.new_group([0, 2])
    turned = dist.new_group([2, 1])
    if rank in (0, 2):
        same(DF.all_reduce_sum(Tensor([float(rank)]), pair), np.float32([2]))
        assert pair.rank == (0 if rank == 0 else 1)
    if rank in (1, 2):
        same(DF.all_gather(Tensor([float(rank)]), turned), np.float32([2, 1]))
        same(DF.broadcast(Tensor([float(rank)]), turned), np.float32([2]))
    if rank == 1:
        with pytest.raises(ValueError, match="not in the group 0,2"):
            DF.all_reduce_sum(Tensor([1.0]), pair)
    dist.group_barrier()
    if rank != 1:
        dist.group_barrier(pair)


@check
def helpers(rank):
    tensors = [Tensor(data_of(rank)), Tensor(np.int32([rank]))]
    dist.bcast_list_(tensors)
    same(tensors[0], data_of(0))
    same(tensors[1], np.int32([0]))
    grad = Tensor(data_of(rank))
    same(dist.make_allreduce_cb("sum")(grad, grad), sum(everything()))
    mean = dist.make_allreduce_cb("mean")(grad, grad)
    np.testing.assert_allclose(mean.numpy(), sum(everything()) / SIZE, rtol=1e-6)
    packed = dist.helper.pack_allreduce_split([grad, grad[0]], [(6, 3), (3,)], dist.WORLD, "sum")
    same(packed[1], sum(everything())[0])
    assert dist.synchronized(lambda: rank)() == rank
    client = dist.get_client()
    assert client.bcast_val("from two" if rank == 2 else None, "key", SIZE) == "from two"
    client.group_barrier("all", SIZE, 30)


# ---- gradients: of sum(weights[rank] * result), over all processes


def gradient(function, rank, weight):
    x = Tensor(data_of(rank))
    gm = GradManager().attach(x)
    with gm:
        y = function(x)
        if y is None:
            gm.backward()
        else:
            gm.backward(y, Tensor(np.broadcast_to(weight, y._tuple_shape).astype("float32")))
    return x.grad


@check
def gradients_of_reductions(rank):
    weight = np.float32(rank + 1)
    same(gradient(DF.all_reduce_sum, rank, weight), np.full((6, 3), 6, "float32"))
    same(gradient(DF.reduce_sum, rank, weight), np.full((6, 3), 1, "float32"))
    for function, best in ((DF.all_reduce_max, np.maximum), (DF.all_reduce_min, np.minimum)):
        found = data_of(rank) == best.reduce(everything())
        same(gradient(function, rank, weight), found * np.float32(6))


@check
def gradients_of_moves(rank):
    weight = np.float32(rank + 1)
    at_root = np.full((6, 3), 6, "float32")
    of_broadcast = gradient(DF.broadcast, rank, weight)
    assert (of_broadcast is None) == (rank != 0)
    if rank == 0:
        same(of_broadcast, at_root)
    by_part = np.repeat(np.float32([1, 2, 3]), 2)[:, None] * np.ones((1, 3), "float32")
    of_scatter = gradient(DF.scatter, rank, weight)
    assert (of_scatter is None) == (rank != 0)
    if rank == 0:
        same(of_scatter, by_part)
    same(gradient(lambda x: DF.all_gather(x, axis=1), rank, weight), at_root)
    same(gradient(DF.reduce_scatter_sum, rank, weight), by_part)
    same(gradient(DF.all_to_all, rank, weight), by_part)
    places = np.arange(18 * 3, dtype="float32").reshape(18, 3)
    same(gradient(DF.gather, rank, places), places[6 * rank : 6 * rank + 6])


@check
def messages_with_gradients(rank):
    """1 sends to 0, which goes on; the gradient of 0's loss reaches the weights of both."""
    x = Tensor(data_of(rank))
    gm = GradManager().attach(x)
    with gm:
        if rank == 1:
            DF.remote_send(x * 2, dest_rank=0)
            gm.backward()
            same(x.grad, 2 * data_of(0))
        if rank == 0:
            received = DF.remote_recv(src_rank=1)
            same(received, 2 * data_of(1))
            gm.backward(received * x, Tensor(np.ones((6, 3), "float32")))
            same(x.grad, 2 * data_of(1))
    if rank == 2:
        DF.remote_send(Tensor(np.int16([[7, 8]])), 1)
    if rank == 1:
        received = DF.remote_recv(2)
        assert received.dtype == np.int16
        same(received, np.int16([[7, 8]]))


@check
def second_derivatives(rank):
    x = Tensor([float(rank + 1)])
    outer, inner = GradManager().attach(x), GradManager().attach(x)
    with outer:
        with inner:
            total = DF.all_reduce_sum(x * x)  # the loss of each process: the square of the sum of squares
            inner.backward(total * total)
        outer.backward(x.grad)
    # The sum of all losses is 3 s**2 with s = 1 + 4 + 9; d/dx = 12 s x; what the processes add up once more is
    # d/dx of the sum over the ranks of 12 s x.
    s, xs = 14.0, np.arange(1.0, 4.0)
    expected = 12 * s + 24 * xs[rank] * xs.sum()
    first = 12 * s * xs[rank]
    np.testing.assert_allclose(x.grad.numpy(), [first + expected], rtol=1e-5)


@check
def dtr_never_exchanges_a_second_time(rank):
    """What others took part in is not computed again: values made around it are evicted instead."""
    before = dtr.eviction_threshold
    dtr.enable()
    try:
        x = Tensor(np.ones(1 << 18, "float32"))
        totals = [DF.all_reduce_sum(x * k) for k in range(8)]
        dtr.eviction_threshold = _core.memory_stats()["in_use"] + (4 << 20)
        others = [x + k for k in range(16)]
        if rank == 0:
            for k, total in enumerate(totals):
                assert total.numpy()[0] == SIZE * k
            assert others[0].numpy()[0] == 1
        assert _core.dtr_stats()["evictions"] > 0
    finally:
        dtr.disable()
        dtr.eviction_threshold = before
    dist.group_barrier()


# ---- traces


@check
def traced_steps_give_the_bits_of_eager_ones(rank):
    weights = [np.random.RandomState(k).normal(size=(3, 3)).astype("float32") for k in range(2)]

    def run(wrap):
        params = [mge.Parameter(weight) for weight in weights]
        gm = GradManager().attach(params, callbacks=[dist.make_allreduce_cb("mean")])
        optimizer = mge.optimizer.SGD(params, lr=0.01, momentum=0.9)

        def step(x):
            with gm:
                hidden = F.tanh(F.matmul(x, params[0]))
                loss = F.mean(F.matmul(hidden, params[1]) ** 2)
                gm.backward(loss)
            optimizer.step().clear_grad()
            DF.all_reduce_max(loss)  # nobody reads it: it runs all the same
            return DF.all_reduce_sum(loss)

        step = wrap(step)
        losses = [step(Tensor(data_of(SIZE * k + rank))).item() for k in range(4)]
        return losses, [param.numpy() for param in params]

    expected = run(lambda step: step)
    for options in (
        {"symbolic": False},
        {"symbolic": True},
        {"symbolic": True, "opt_level": 3, "numerics": "exact"},
        {"symbolic": True, "without_host": True},
        {"symbolic": True, "sublinear_memory_config": mge.jit.SublinearMemoryConfig()},
    ):
        losses, params = run(lambda step, options=options: trace(step, **options))
        assert losses == expected[0], options
        for got, wanted in zip(params, expected[1], strict=True):
            np.testing.assert_array_equal(got, wanted)


@check
def buckets_give_the_bits_of_separate_reductions(rank):
    """Gradients have several sizes, whole lines or not; one gradient is there twice, one waits for the result of another."""
    shapes = [(7,), (16, 4), (3, 5), (64,), (1,), (33, 2), (16, 16)]
    weights = [np.random.RandomState(k).normal(size=shape).astype("float32") for k, shape in enumerate(shapes)]

    def run(wrap):
        params = [mge.Parameter(weight) for weight in weights]
        gm = GradManager().attach(params, callbacks=[dist.make_allreduce_cb("mean")])
        optimizer = mge.optimizer.Adam(params, lr=0.01)

        @wrap
        def step(x):
            with gm:
                loss = sum(F.mean(F.tanh(param * x) ** 2) for param in params)
                gm.backward(loss)
            optimizer.step().clear_grad()
            twice = DF.all_reduce_sum(DF.all_reduce_sum(x))
            return DF.all_reduce_max(loss), twice, DF.all_reduce_sum(F.concat([x, x + rank])[:0])

        for k in range(3):
            results = step(Tensor([rank + 0.25 * k]))
        return [tensor.numpy() for tensor in (*results, *params)]

    expected = run(lambda step: step)
    try:
        for sizes in ((1, 1), (64, 256), (1 << 20, 25 << 20)):
            dist.set_bucket_sizes(*sizes)
            for options in ({"opt_level": 0}, {"opt_level": 2}, {"opt_level": 3, "numerics": "exact"}):
                for got, wanted in zip(run(trace(symbolic=True, **options)), expected, strict=True):
                    np.testing.assert_array_equal(got, wanted, err_msg=f"{sizes} {options}")
    finally:
        dist.set_bucket_sizes()


@check
def data_parallel_training_is_that_of_one_process(rank):
    """Each takes a third of the batch; statistics of the normalization are those of the whole one."""
    images = np.random.RandomState(0).normal(size=(5, 12, 2, 4, 4)).astype("float32")
    labels = np.random.RandomState(1).randint(0, 3, size=(5, 12)).astype("int32")

    def losses(is_parallel):
        mge.random.seed(0)
        np.random.seed(0)
        norm = mge.module.SyncBatchNorm(4) if is_parallel else mge.module.BatchNorm2d(4)
        front = mge.module.Sequential(mge.module.Conv2d(2, 4, 3), norm, mge.module.ReLU())
        last = mge.module.Linear(16, 3)
        parameters = [*front.parameters(), *last.parameters()]
        callbacks = [dist.make_allreduce_cb("mean")] if is_parallel else []
        if is_parallel:
            dist.bcast_list_(parameters)
        gm = GradManager().attach(parameters, callbacks=callbacks)
        optimizer = mge.optimizer.SGD(parameters, lr=0.05, momentum=0.9)

        @trace(symbolic=True, opt_level=3)
        def step(image, label):
            with gm:
                loss = F.loss.cross_entropy(last(F.flatten(front(image), 1)), label)
                gm.backward(loss)
            optimizer.step().clear_grad()
            return DF.all_reduce_sum(loss) / SIZE if is_parallel else loss

        part = slice(4 * rank, 4 * rank + 4) if is_parallel else slice(None)
        return [step(Tensor(x[part]), Tensor(y[part])).item() for x, y in zip(images, labels, strict=True)]

    parallel = losses(True)
    assert parallel == losses(True)
    np.testing.assert_allclose(parallel, losses(False), rtol=1e-6)


@check
def constants_are_not_folded_and_equal_calls_not_joined(rank):
    @trace(symbolic=True, opt_level=2)
    def step():
        one = Tensor([1.0])
        return DF.all_reduce_sum(one), DF.all_reduce_sum(one)

    for _ in range(2):
        for result in step():
            same(result, np.float32([SIZE]))


@check
def messages_in_traces(rank):
    @trace(symbolic=True)
    def step(x):
        if rank == 0:
            DF.remote_send(x + 1, 1)
        if rank == 1:
            return DF.remote_recv(0) * x
        return x

    for k in (2.0, 3.0):
        result = step(Tensor([k]))
        if rank == 1:
            same(result, np.float32([(k + 1) * k]))


# ------------------------------------------------------------------------------------------------------


results = CHECKS.results(SIZE)


@pytest.mark.parametrize("name", CHECKS)
def test_in_three_processes(results, name):
    world_checks.expect_passed(results, name)
