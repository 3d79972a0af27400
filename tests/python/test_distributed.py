"""One process as a world of its own; worlds of several processes on the CPU; the RPC pair."""

import os
import pickle
import signal
import time
import warnings

import numpy as np
import pytest

import megengine.distributed as dist
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.distributed import _engine, helper
from megengine.distributed import functional as DF
from megengine.tensor import Tensor

# ----------------------------------------------------------------------------------------- one process


def test_outside_of_a_group_there_is_one_process():
    assert (dist.get_rank(), dist.get_world_size(), dist.is_distributed()) == (0, 1, False)
    assert (dist.WORLD.size, dist.WORLD.rank, dist.get_local_device_id()) == (1, 0, 0)
    dist.group_barrier()


@pytest.mark.parametrize("name", [name for name in DF.__all__ if not name.startswith("remote")])
def test_collectives_of_one_process_are_identities(name):
    x = Tensor([1.0, 2.0])
    assert getattr(DF, name)(x) is x


def test_functional_distributed_has_the_same_functions():
    import megengine.functional.distributed as other

    assert all(getattr(other, name) is getattr(DF, name) for name in DF.__all__)


def test_callbacks_and_broadcasts_of_one_process_change_nothing():
    x = Tensor([1.0])
    assert dist.make_allreduce_cb("mean")(x, x) is x
    dist.bcast_list_([x])
    assert dist.synchronized(lambda a: a + 1)(2) == 3
    with pytest.raises(ValueError, match='"sum" or "mean"'):
        dist.make_allreduce_cb("max")


@pytest.mark.parametrize(
    "act",
    [
        dist.get_client,
        dist.get_py_server_addr,
        dist.get_mm_server_addr,
        lambda: dist.functional.remote_send(Tensor([1.0]), 1),
    ],
)
def test_what_needs_a_group_says_so(act):
    with pytest.raises(RuntimeError, match="init_process_group"):
        act()


def test_only_tensors_are_sent():
    with pytest.raises(TypeError, match="remote_send: \\[1.0\\] is not a Tensor"):
        dist.functional.remote_send([1.0], 1)


def test_the_backend_can_be_set_and_overridden():
    before = dist.backend
    try:
        dist.backend = "tcp"
        with dist.override_backend("nccl"):
            assert dist.get_backend() == "nccl"
        assert dist.backend == "tcp"
        with pytest.raises(ValueError, match="auto, nccl, mpi, gloo, local, tcp, got 'carrier pigeon'"):
            dist.backend = "carrier pigeon"
    finally:
        dist.backend = before


def test_names_of_vendors_engines_mean_auto_and_are_warned_of_once(capsys):
    with dist.override_backend("cncl"):
        assert dist.get_backend() == "auto"
        dist.make_allreduce_cb("sum", backend="cncl")
    assert capsys.readouterr().err.count("backend 'cncl' is not an engine of megjit: it means 'auto'") == 1


@pytest.mark.parametrize(
    ("given", "variable", "expected"),
    [
        ("auto", "", ("auto", "auto")),
        ("auto", "tcp", ("tcp", "tcp")),
        ("nccl", "mpi", ("nccl", "mpi")),  # of the host's tensors nothing was said
        ("local", "mpi", ("local", "local")),
    ],
)
def test_what_the_program_says_comes_before_the_variable(monkeypatch, given, variable, expected):
    monkeypatch.setenv("MEGJIT_COMM", variable)
    assert _engine.chosen(given) == expected


def test_an_unknown_variable_is_refused(monkeypatch):
    monkeypatch.setenv("MEGJIT_COMM", "pigeon")
    with pytest.raises(ValueError, match="MEGJIT_COMM: backend must be one of auto, .*'pigeon'"):
        dist.init_process_group("localhost", 1, 1, 0, 0)


def test_auto_is_mpi_where_an_mpiexec_has_started_several_machines(monkeypatch):
    for name in ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_SIZE", "SLURM_JOB_NUM_NODES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert not _engine.is_mpis_turn()
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "1")
    monkeypatch.setenv("PMI_SIZE", "4")
    monkeypatch.setenv("MPI_LOCALNRANKS", "4")
    assert not _engine.is_mpis_turn()
    monkeypatch.setenv("MPI_LOCALNRANKS", "2")
    assert _engine.is_mpis_turn()
    monkeypatch.setenv("MEGENGINE_DISTRIBUTED_SERVER", "1")  # within such a job distributed.run has started this process
    assert not _engine.is_mpis_turn()
    monkeypatch.delenv("MEGENGINE_DISTRIBUTED_SERVER")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not _engine.is_mpis_turn()


def test_a_world_settles_on_one_engine(capsys):
    assert _engine.settled("auto", ["auto gloo one", "auto gloo one"]) == "local"
    assert _engine.settled("auto", ["auto gloo one", "auto gloo two"]) == "gloo"
    assert _engine.settled("auto", ["auto gloo one", "auto - two"]) == "tcp"
    assert capsys.readouterr().err == ""
    for rank in (0, 1):
        assert _engine.settled("auto", ["auto - one", "auto - two", "auto - three"], rank) == "tcp"
    assert capsys.readouterr().err.count("pip install 'megjit[mpi]'") == 1
    with pytest.raises(RuntimeError, match="rank 0 has the backend 'mpi', and rank 1 'tcp'"):
        _engine.settled("mpi", ["mpi - one", "tcp - one"])
    with pytest.raises(RuntimeError, match="rank 2 runs on another"):
        _engine.settled("local", ["local - one", "local - one", "local - two"])


def test_a_group_is_of_a_single_machine_where_its_members_are(monkeypatch):
    monkeypatch.setattr(dist.group._sd, "machines", ["one", "one", "two", "two"])
    monkeypatch.setattr(dist.group._sd, "world_size", 4)
    monkeypatch.setattr(dist.group._sd, "proc_rank", 0)
    assert dist.new_group([0, 1]).is_single_machine and dist.new_group([2, 3]).is_single_machine
    assert not dist.new_group([1, 2]).is_single_machine
    assert dist.group._sd.machine_ranks == [0, 1]


def test_a_message_of_another_shape_or_dtype_than_expected_is_an_error_of_who_receives():
    @dist.launcher(n_gpus=2, device_type="cpu")
    def main():
        if dist.get_rank() == 0:
            for _ in range(4):
                DF.remote_send(Tensor(np.ones((2, 3), "float32")), 1)
            return None
        told = []
        for expected in ({"shape": (3, 2)}, {"dtype": "int32"}):
            with pytest.raises(ValueError, match="rank 0 sent a tensor of shape \\(2, 3\\) and dtype float32, and rank 1 expects") as error:
                DF.remote_recv(0, **expected)
            told.append(str(error.value).partition("expects ")[2])
        DF.remote_recv(0, shape=[2, 3], dtype=np.float32)  # the next one comes all the same
        return [*told, DF.remote_recv(0, shape=None).shape]

    assert main()[1] == ["shape (3, 2) and dtype float32", "shape (2, 3) and dtype int32", (2, 3)]


@pytest.mark.parametrize("kind", ["gpu", "cuda"])
def test_a_gpu_that_is_not_there_is_an_error(monkeypatch, kind):
    monkeypatch.setattr(dist.group, "get_device_count", lambda kind: 0)
    with pytest.raises(RuntimeError, match=f"device_type '{kind}': this machine has no GPU"):
        dist.init_process_group("localhost", 1, 1, 0, 0, device_type=kind)
    with pytest.raises(ValueError, match="xpu, cpu, gpu, cuda"):
        dist.init_process_group("localhost", 1, 1, 0, 0, device_type="rocm")
    assert not dist.is_distributed()


@pytest.mark.parametrize(
    "change, error",
    [
        ({"rank": 2}, ValueError),
        ({"rank": "0"}, TypeError),
        ({"world_size": 0}, ValueError),
        ({"port": "1"}, TypeError),
        ({"backend": "x"}, ValueError),
    ],
)
def test_senseless_arguments_are_refused(change, error):
    with pytest.raises(error):
        dist.init_process_group(
            **{
                "master_ip": "localhost",
                "port": 0,
                "world_size": 2,
                "rank": 0,
                "device": 0,
                **change,
            }
        )
    assert not dist.is_distributed()


def test_packing_and_splitting_are_inverse():
    offsets = helper.get_offsets([(2, 3), (), (4,)])
    assert offsets == [0, 6, 6, 7, 7, 11]
    parts = helper.param_pack_split(Tensor(np.arange(11)), offsets, [(2, 3), (), (4,)])
    assert parts[0].numpy().tolist() == [[0, 1, 2], [3, 4, 5]] and parts[2].numpy().tolist() == [
        7,
        8,
        9,
        10,
    ]


# -------------------------------------------------------------------------------------------- launcher


def test_the_launcher_runs_a_worker_and_returns_its_result():
    @dist.launcher
    def worker(a, b=0):
        return dist.get_rank(), dist.get_world_size(), dist.is_distributed(), a + b, os.getpid()

    [(rank, size, inside, total, pid)] = worker(1, b=2)
    assert (rank, size, inside, total) == (0, 1, True, 3) and pid != os.getpid()
    assert not dist.is_distributed() and worker.__name__ == "worker"


def test_results_come_by_rank():
    @dist.launcher(n_gpus=3)
    def worker():
        time.sleep(0.1 * (2 - dist.get_rank()))
        return dist.get_rank(), dist.WORLD.key, dist.get_world_size()

    assert worker() == [(rank, "0,1,2", 3) for rank in range(3)]


def test_a_failing_process_ends_all_with_its_traceback():
    def worker():
        if dist.get_rank() == 1:
            raise KeyError("rank one")
        dist.group_barrier()

    with pytest.raises(AssertionError, match="process 1(.*\n)*.*rank one"):
        dist.launcher(worker, n_gpus=2)()


def test_a_killed_process_is_told():
    with pytest.raises(AssertionError, match="signal 9"):
        dist.launcher(lambda: os.kill(os.getpid(), signal.SIGKILL))()


def test_a_process_that_leaves_without_a_result_warns():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert dist.launcher(lambda: os._exit(0))() == [None]
    assert any("did not return a value" in str(warning.message) for warning in caught)


def test_a_world_larger_than_its_ranks_is_refused():
    with pytest.raises(ValueError, match="do not fit"):
        dist.launcher(print, n_gpus=2, world_size=2, rank_start=1)


# ------------------------------------------------------------------------------------ several processes


def in_world(size, body, timeout=60.0):
    return dist.launcher(body, n_gpus=size, timeout=timeout)()


def test_group_statistics_of_batches_of_several_sizes_do_not_cancel():
    """E[x^2] - E[x]^2 gave a variance of 0 or less far from the origin, and all batches counted alike."""
    x = (1000 + np.random.default_rng(0).normal(size=(5, 3, 2, 2))).astype("float32")
    dy = np.random.default_rng(1).normal(size=x.shape).astype("float32")

    def worker():
        part = slice(0, 2) if dist.get_rank() == 0 else slice(2, 5)
        inp, mean, var = Tensor(x[part]), Tensor(np.zeros(3, "float32")), Tensor(np.zeros(3, "float32"))
        gm = GradManager().attach([inp])
        with gm:
            y = F.nn.sync_batch_norm(inp, mean, var, training=True, momentum=0.0)
            gm.backward(y, Tensor(dy[part]))
        return y.numpy(), mean.numpy(), var.numpy(), inp.grad.numpy()

    (y0, mean, var, dx0), (y1, *_, dx1) = in_world(2, worker)
    axes, exact = (0, 2, 3), x.astype("float64")
    centred = exact - exact.mean(axes, keepdims=True)
    std = np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5)
    np.testing.assert_allclose(mean, exact.mean(axes), rtol=1e-6)
    np.testing.assert_allclose(var, exact.var(axes, ddof=1), rtol=1e-4)
    np.testing.assert_allclose(np.concatenate([y0, y1]), centred / std, atol=1e-3)
    xhat = centred / std
    dx = dy - dy.mean(axes, keepdims=True) - xhat * (dy * xhat).mean(axes, keepdims=True)
    np.testing.assert_allclose(np.concatenate([dx0, dx1]), dx / std, atol=1e-3)


def test_samplers_share_out_by_rank():
    def worker():
        from megengine.data import RandomSampler

        return sum(RandomSampler(range(10), batch_size=2), [])

    first, second = in_world(2, worker)
    assert sorted(first + second) == list(range(10))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_each_process_its_share(workers):
    """Shuffled alike without a seed, by processes of its own that are in no group; each epoch anew."""

    def worker():
        from megengine.data import DataLoader, RandomSampler
        from megengine.data.dataset import ArrayDataset

        data = ArrayDataset(np.arange(12), np.arange(12) * 10)
        loader = DataLoader(data, sampler=RandomSampler(data, batch_size=3), num_workers=workers)
        epochs = [[np.stack(batch) for batch in loader] for _ in range(2)]
        dist.group_barrier()
        return [np.concatenate(batches, axis=1).tolist() for batches in epochs], len(loader)

    (first, length), (second, _) = in_world(2, worker)
    assert length == 2
    for (x0, y0), (x1, y1) in zip(first, second, strict=True):
        assert sorted(x0 + x1) == list(range(12)) and [10 * x for x in x0 + x1] == y0 + y1
    assert first[0] != first[1]


def test_free_ports_are_different():
    assert len(set(dist.get_free_ports(5))) == 5


def test_a_group_is_ranks_of_the_world():
    group = dist.Group([0])
    assert (group.size, group.rank, group.key, group.is_single_machine) == (1, 0, "0", True)
    with pytest.raises(ValueError, match="1"):
        dist.Group([1])  # the world has one process
    with pytest.raises(ValueError):
        dist.Group([0, 0])
    with pytest.raises(TypeError):
        dist.Group(["0"])


def test_operations_between_group_start_and_end_are_as_outside():
    x = Tensor([1.0, 2.0])
    dist.group_start()
    y = DF.all_reduce_sum(x)
    dist.group_end()
    assert y.tolist() == [1, 2]


def test_functions_that_name_the_package_can_be_pickled_by_value():
    """As cloudpickle does with those of a program."""
    assert pickle.loads(pickle.dumps(dist)) is dist
