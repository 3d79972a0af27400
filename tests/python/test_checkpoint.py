"""Checkpoints of worlds: what comes back, in worlds of other sizes; what is damaged, full or killed; the bits of runs that go on."""

import os
import resource
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import megengine as mge
import megengine.distributed as dist
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.distributed import checkpoint


def saved(folder, state, step):
    checkpoint.save(folder, state, step)
    assert checkpoint.wait() == ""


def manifests(folder):
    return sorted(path.parent.name for path in Path(folder).glob("*/manifest.json"))


def test_values_of_all_kinds_come_back(tmp_path):
    net = M.Sequential(M.Linear(3, 2), M.BatchNorm1d(2))
    adam = optim.Adam(net.parameters(), lr=0.1)
    state = {
        "net": net,
        "adam": adam,
        "tensor": mge.tensor([1.5, -2.0]).astype("bfloat16"),
        "array": np.arange(6, dtype="int64").reshape(2, 3),
        "empty": np.zeros((0, 4), "float32"),
        "scalar": np.float16(3),
        "others": [1, 2.5, "text", None, True, (1, (2,)), {3: "three", "x": {}}],
    }
    saved(tmp_path, state, 12)
    got, step = checkpoint.load(tmp_path)
    assert step == 12 and got["others"] == state["others"]
    assert isinstance(got["tensor"], mge.Tensor) and got["tensor"].dtype.name == "bfloat16"
    assert got["tensor"].astype("float32").tolist() == [1.5, -2.0]
    for name in ("array", "empty", "scalar"):
        assert got[name].dtype == state[name].dtype and np.array_equal(got[name], state[name]) and got[name].shape == state[name].shape
    other = M.Sequential(M.Linear(3, 2), M.BatchNorm1d(2))
    other.load_state_dict(got["net"])
    for name, value in net.state_dict().items():
        assert np.array_equal(other.state_dict()[name], value)
    adam.load_state_dict(got["adam"])


@pytest.mark.parametrize("value", [object(), {"a": [1, lambda: 0]}, {(1,): 2}, np.array(["text"])])
def test_what_no_checkpoint_holds_is_refused_with_its_place(tmp_path, value):
    with pytest.raises(TypeError, match=r"checkpoint.save: state\['x'\]"):
        checkpoint.save(tmp_path, {"x": value}, 0)
    with pytest.raises(ValueError, match="step"):
        checkpoint.save(tmp_path, {}, -1)
    assert checkpoint.load(tmp_path) is None


def test_it_is_written_beside_what_goes_on_with_the_values_of_the_call(tmp_path, monkeypatch):
    may_write, write = threading.Event(), checkpoint._Saving._write

    def waits(self, path):
        may_write.wait(60)
        return write(self, path)

    monkeypatch.setattr(checkpoint._Saving, "_write", waits)
    x, array = mge.tensor([1.0]), np.ones(3)
    checkpoint.save(tmp_path, {"x": x, "array": array}, 1)
    assert manifests(tmp_path) == []
    x[...] = 2.0
    array[:] = 2
    may_write.set()
    checkpoint.save(tmp_path, {"x": x, "array": array}, 2)  # waits for the first one
    assert "step-000000000001" in manifests(tmp_path)
    checkpoint.wait()
    assert checkpoint.load(tmp_path)[0]["x"].tolist() == [2.0]
    for path in (tmp_path / "step-000000000002").iterdir():
        path.unlink()
    state, step = checkpoint.load(tmp_path)
    assert step == 1 and state["x"].tolist() == [1.0] and state["array"].tolist() == [1, 1, 1]


def test_the_last_two_are_kept_and_what_was_not_finished_goes(tmp_path):
    (tmp_path / "step-000000000001").mkdir()
    for step in (2, 3, 4, 3):
        saved(tmp_path, {"step": step}, step)
    assert sorted(os.listdir(tmp_path)) == ["step-000000000003", "step-000000000004"]


@pytest.mark.parametrize("how", ["cut", "changed", "missing", "manifest"])
def test_the_one_before_a_damaged_one_is_taken_and_said(tmp_path, how, capsys):
    for step in (1, 2):
        saved(tmp_path, {"x": mge.tensor(np.full(1000, step, "float32"))}, step)
    newest = tmp_path / "step-000000000002"
    shard = newest / "0-of-1.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    if how == "missing":
        shard.unlink()
    else:
        {
            "cut": lambda: shard.write_bytes(content[:-100]),
            "changed": lambda: shard.write_bytes(content),
            "manifest": lambda: (newest / "manifest.json").write_text("{"),
        }[how]()
    state, step = checkpoint.load(tmp_path)
    assert step == 1 and state["x"].tolist() == [1.0] * 1000
    assert "step-000000000002 is damaged" in capsys.readouterr().err
    (tmp_path / "step-000000000001" / "0-of-1.safetensors").unlink()
    with pytest.raises(RuntimeError, match="no checkpoint of .* can be read"):
        checkpoint.load(tmp_path)


def test_random_states_go_on(tmp_path):
    def draws():
        return mge.random.normal(size=(4,)).tolist(), F.dropout(mge.functional.ones(64), 0.5).tolist(), np.random.rand(4).tolist()

    draws()
    np.random.seed(3)
    np.random.normal()  # leaves half of a pair
    saved(tmp_path, {}, 0)
    expected = draws(), np.random.normal()
    np.random.seed(4)
    mge.random.seed(4)
    assert checkpoint.load(tmp_path) == ({}, 0)
    assert (draws(), np.random.normal()) == expected


def trained(steps, state=None):
    """For each process: parameters and the optimizer's state after some steps."""
    size, rank = dist.get_world_size(), dist.get_rank()
    params = [mge.Parameter(np.random.RandomState(k).normal(size=shape).astype("float32")) for k, shape in enumerate([(5, 3), (7,)])]
    opt = optim.sharded(optim.Adam(params, lr=0.1))
    if state is not None:
        for param, value in zip(params, state["params"], strict=True):
            param[...] = value
        opt.load_state_dict(state["opt"])
    gm = GradManager().attach(params)
    for step in steps:
        x = np.random.RandomState(100 + step).normal(size=12).astype("float32")[rank * 12 // size : (rank + 1) * 12 // size]
        with gm:
            gm.backward(sum(((param.reshape(1, -1) * mge.tensor(x).reshape(-1, 1) - 1) ** 2).sum(axis=1).mean() for param in params))
        opt.step().clear_grad()
    return params, opt


@pytest.mark.parametrize("size", [1, 2, 3])
def test_shards_of_two_processes_are_cut_anew_for_others(tmp_path, size):
    @dist.launcher(n_gpus=2, device_type="cpu")
    def write():
        params, opt = trained(range(3))
        saved(tmp_path, {"params": params, "opt": opt}, 3)
        return opt.state_dict()

    whole = write()[0]

    def read():
        state, step = checkpoint.load(tmp_path)
        assert step == 3
        _, opt = trained([], state)
        return opt.state_dict()

    for got in dist.launcher(read, n_gpus=size, device_type="cpu")() if size > 1 else [read()]:
        assert got["param_groups"] == whole["param_groups"]
        for id, states in whole["state"].items():
            for name, value in states.items():
                assert np.array_equal(got["state"][id][name], value), (id, name)
    names = sorted(path.name for path in Path(tmp_path).glob("*/*.safetensors"))
    assert names == ["0-of-2.safetensors", "1-of-2.safetensors"]


def test_a_process_that_cannot_write_is_named_and_training_goes_on(tmp_path):
    @dist.launcher(n_gpus=2, device_type="cpu")
    def main():
        saved(tmp_path, {"x": mge.tensor(np.zeros(5000, "float32")), "y": mge.tensor(np.zeros(5000, "float32"))}, 1)
        if dist.get_rank() == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))  # as a full disk
        checkpoint.save(tmp_path, {"x": mge.tensor(np.ones(5000, "float32")), "y": mge.tensor(np.ones(5000, "float32"))}, 2)
        why = checkpoint.wait()
        state, step = checkpoint.load(tmp_path)
        return why, step, state["x"].tolist() == [0.0] * 5000, dist.functional.all_reduce_sum(mge.tensor([1.0])).item()

    for why, *rest in main():
        assert "rank 1: " in why and "too large" in why and rest == [1, True, 2.0]
    assert manifests(tmp_path) == ["step-000000000001"] == os.listdir(tmp_path)


def test_states_that_differ_are_refused(tmp_path):
    @dist.launcher(n_gpus=2, device_type="cpu")
    def main():
        checkpoint.save(tmp_path, {"x": np.zeros(2 + dist.get_rank())}, 1)
        return checkpoint.wait()

    assert main() == ["the state of rank 1 has other tensors than that of rank 0"] * 2
    assert os.listdir(tmp_path) == []


PROGRAM = """
import os, signal, sys
import numpy as np
import megengine as mge, megengine.distributed as dist, megengine.functional as F, megengine.module as M, megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.distributed import checkpoint

dist.init_process_group()
rank, world = dist.get_rank(), dist.get_world_size()
folder, deaths = sys.argv[1], sys.argv[2:]
mge.random.seed(1)
net = M.Sequential(M.Linear(8, 16), M.ReLU(), M.Dropout(0.5), M.Linear(16, 1))
opt = optim.sharded(optim.Adam(net.parameters(), lr=0.01))
gm = GradManager().attach(net.parameters())
losses, found = [], checkpoint.load(folder)
if found:
    state, begin = found
    net.load_state_dict(state["net"]), opt.load_state_dict(state["opt"])
    losses = state["losses"]
for step in range(len(losses), 30):
    x = np.random.RandomState(step).normal(size=(8, 8)).astype("float32")[rank * 8 // world : (rank + 1) * 8 // world]
    with gm:
        loss = ((net(mge.tensor(x)) - x.sum(1, keepdims=True)) ** 2).mean()
        gm.backward(loss)
    opt.step().clear_grad()
    losses.append(dist.functional.all_reduce_sum(loss).item())
    if step % 4 == 3:
        checkpoint.save(folder, {"net": net, "opt": opt, "losses": losses}, step)
    for death in deaths:
        who, when = map(int, death.split("@"))
        if who == rank and when == step and not os.path.exists(mark := f"{folder}.{death}"):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
checkpoint.wait()
if rank == 0:
    print("losses", *losses)
"""


def test_ranks_that_are_killed_start_again_with_the_losses_of_an_undisturbed_run(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(PROGRAM))

    def run(folder, *arguments):
        command = [sys.executable, "-m", "megengine.distributed.run", "-n", "2", *arguments[:2], script, tmp_path / folder, *arguments[2:]]
        return subprocess.run(command, env={**os.environ, "MEGJIT_COMPILE": "sync"}, capture_output=True, text=True, timeout=300)

    quiet = run("quiet")
    disturbed = run("disturbed", "--restarts", "3", "1@2", "0@11", "1@25")
    assert quiet.returncode == 0 and disturbed.returncode == 0, quiet.stderr + disturbed.stderr
    assert disturbed.stderr.count("all processes start again") == 3
    assert len(quiet.stdout.split()) == 32 and disturbed.stdout == quiet.stdout
    assert run("few", "--restarts", "1", "1@2", "0@3", "1@25").returncode == 137
