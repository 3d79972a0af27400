"""Worlds that Ray places, on nodes that are processes of this machine: results, failures with their reasons, processes and a node that die."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import megengine as mge
import megengine.distributed as dist
import megengine.functional as F
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.distributed import checkpoint
from megengine.distributed import ray as world

ray = pytest.importorskip("ray", reason="Ray is not installed: make test-cluster does that")
from ray.cluster_utils import Cluster  # noqa: E402  -- of Ray, which may not be there

STORE = 80 << 20  # bytes of a node's object store


@pytest.fixture
def cluster():
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have this file
    head = {"num_cpus": 2, "resources": {"head": 1}, "object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.second = cluster.add_node(num_cpus=1, object_store_memory=STORE)
    ray.init(address=cluster.address, log_to_driver=False)
    cluster.other = ray.util.placement_group([{"CPU": 1, "head": 1}])  # of somebody else: one CPU of each node is free
    ray.get(cluster.other.ready())
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def ranks():
    dist.init_process_group()
    total = dist.functional.all_reduce_sum(mge.tensor([float(dist.get_rank())]))
    return dist.get_rank(), dist.get_world_size(), total.item()


def fails():
    dist.init_process_group()
    if dist.get_rank() == 1:
        raise ValueError("no such batch")
    dist.functional.all_reduce_sum(mge.tensor([1.0]))


def train(folder, deaths=(), node=None):
    """deaths: (rank, step) after which that process kills itself, once. node: its process waits at step 7, once, for the node to die."""
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    weight = mge.Parameter(np.zeros((4, 1), "float32"))
    opt = optim.sharded(optim.Adam([weight], lr=0.1))
    gm = GradManager().attach([weight])
    losses, found = [], checkpoint.load(folder)
    if found:
        weight[...] = found[0]["weight"]
        opt.load_state_dict(found[0]["opt"])
        losses = found[0]["losses"]
    for step in range(len(losses), 16):
        x = np.random.RandomState(step).normal(size=(4, 4)).astype("float32")[rank * 4 // size : (rank + 1) * 4 // size]
        with gm:
            loss = ((F.matmul(mge.tensor(x), weight) - 1) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        losses.append(dist.functional.all_reduce_sum(loss).item())
        if step % 3 == 2:
            checkpoint.save(folder, {"weight": weight, "opt": opt, "losses": losses}, step)
        mark = Path(f"{folder}.{step}.{rank}")
        if (rank, step) in deaths and not mark.exists():
            checkpoint.wait()
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if step == 7 and node == ray.get_runtime_context().get_node_id():
            mark.touch()
            time.sleep(3600)
    checkpoint.wait()
    return losses


def test_results_come_back_by_rank_and_failures_with_their_reason(cluster):
    assert world.run(ranks, workers=2) == [(0, 2, 1.0), (1, 2, 1.0)]
    with pytest.raises(RuntimeError, match="(?s)rank . failed: .*no such batch"):
        world.run(fails, workers=2)
    with pytest.raises(RuntimeError, match="2 workers with {'CPU': 4} each are not free within 1 s"):
        world.run(ranks, workers=2, resources_per_worker={"CPU": 4}, timeout=1)


def test_a_killed_process_costs_no_bit(cluster, tmp_path):
    expected = world.run(lambda folder: train(folder), workers=2, checkpoint=str(tmp_path / "quiet"))
    folder = str(tmp_path / "killed")
    assert world.run(lambda folder: train(folder, [(1, 4)]), workers=2, restarts=1, checkpoint=folder) == expected
    with pytest.raises(RuntimeError, match="rank 1 was lost"):
        world.run(lambda folder: train(folder, [(1, 4)]), workers=2, checkpoint=str(tmp_path / "ended"))


def test_a_node_that_dies_costs_no_bit(cluster, tmp_path):
    """Both processes go on, on the node that is left, once somebody else has left it."""
    expected = world.run(lambda folder: train(folder), workers=2, checkpoint=str(tmp_path / "quiet"))
    node = cluster.second.node_id

    def kill():
        while not list(tmp_path.glob("killed.7.*")):
            time.sleep(0.1)
        ray.util.remove_placement_group(cluster.other)
        cluster.remove_node(cluster.second, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    found = world.run(lambda folder: train(folder, node=node), workers=2, restarts=1, checkpoint=str(tmp_path / "killed"))
    killer.join()
    assert found == expected


def test_a_cluster_that_is_gone_is_not_waited_for():
    """Ray notes in a file which cluster was last started here, and leaves it there when that crashes."""
    with tempfile.TemporaryDirectory() as folder:  # a short path: Ray puts sockets there
        Path(folder, "ray").mkdir()
        Path(folder, "ray/ray_current_cluster").write_text("127.0.0.1:9")
        program = "from megengine.distributed import ray; print(ray.run(lambda: 3, workers=1))"
        done = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "RAY_TMPDIR": folder}, capture_output=True, text=True, timeout=150
        )
        assert done.stdout == "[3]\n", done.stderr
