"""``group_start`` and ``group_end``: processes that send before they receive do not wait for each other, whatever the size."""

import numpy as np
import pytest

import megengine as mge
from megengine import distributed as dist
from megengine.autodiff import GradManager

LARGE = 16 << 20  # of float32: more than any socket takes in


def world(size, main):
    return dist.launcher(main, n_gpus=size, device_type="cpu")()


def test_two_processes_that_send_64_megabytes_before_they_receive():
    def main():
        other = 1 - dist.get_rank()
        x = mge.functional.full((LARGE,), dist.get_rank() + 1.0)
        dist.group_start()
        dist.functional.remote_send(x, other)
        x[...] = 0.0  # what was sent is the value at the call
        y = dist.functional.remote_recv(other)
        dist.group_end()
        return y._tuple_shape, float(y.min()), float(y.max())

    assert world(2, main) == [((LARGE,), 2.0, 2.0), ((LARGE,), 1.0, 1.0)]


def test_a_ring_of_three_and_messages_of_several_shapes():
    def main():
        rank, size = dist.get_rank(), dist.get_world_size()
        dist.group_start()
        dist.group_start()
        for n in (1 << 20, 3):
            dist.functional.remote_send(mge.tensor(np.full((2, n), rank, "float32")), (rank + 1) % size)
        dist.group_end()
        got = [dist.functional.remote_recv((rank - 1) % size) for _ in range(2)]
        dist.group_end()
        return [(y._tuple_shape, float(y.mean())) for y in got]

    assert world(3, main) == [[((2, 1 << 20), r), ((2, 3), r)] for r in (2.0, 0.0, 1.0)]


@pytest.mark.parametrize("groups", [(0,), (0, 1)], ids=["one side", "both sides"])
def test_a_side_that_receives_first_is_sent_to_and_gradients_come_back(groups):
    def main():
        x = mge.Parameter(np.ones(1 << 22, "float32"))
        with GradManager().attach(x) as gm:
            if dist.get_rank() in groups:
                dist.group_start()
            if dist.get_rank() == 0:
                dist.functional.remote_send(x * 3, 1)
                loss = dist.functional.remote_recv(1).sum()
            else:
                y = dist.functional.remote_recv(0)
                dist.functional.remote_send(y * x, 0)
                loss = None
            if dist.get_rank() in groups:
                dist.group_end()
            gm.backward(loss)
        return float(x.grad.min()), float(x.grad.max())

    assert world(2, main) == [(3.0, 3.0), (3.0, 3.0)]


def test_other_operations_and_the_end_send_what_waits():
    def main():
        rank, one = dist.get_rank(), mge.tensor([1.0])
        dist.group_start()
        if rank == 0:
            dist.functional.remote_send(one, 1)
        got = dist.functional.remote_recv(0).item() if rank == 1 else 0.0
        got += dist.functional.all_reduce_sum(one).item()
        if rank == 1:
            dist.functional.remote_send(mge.tensor([7.0]), 0)
        dist.group_end()
        return got + (dist.functional.remote_recv(1).item() if rank == 0 else 0)

    assert world(2, main) == [9.0, 3.0]


def test_an_end_without_a_beginning_is_refused():
    with pytest.raises(RuntimeError, match="no group was begun"):
        dist.group_end()
    dist.group_start()
    dist.group_end()
