"""Tensors of GPUs that go by NCCL: a stand-in for it (nccl_stand_in.cpp), and a card of its own in each process."""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import emulated
import pytest

import megengine.distributed as dist
from megengine import _core
from megengine.distributed import _nccl, group

HERE = Path(__file__).parent
START = f"""
import ctypes, json, os, sys, threading, time
sys.path.insert(0, {str(HERE)!r})
import numpy as np
import megengine as mge
import megengine.distributed as dist
from megengine import jit
from megengine.distributed import functional as DF
from megengine.tensor import Tensor

def operations():
    return ctypes.CDLL(os.environ["MEGJIT_NCCL"]).megjit_stand_in_operations()

dist.init_process_group(timeout=float(os.environ.get("TIMEOUT", "120")))
rank = dist.get_rank()
"""


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    compiler = shutil.which("c++")
    if not compiler:
        pytest.skip("needs a C++ compiler")
    path = tmp_path_factory.mktemp("nccl") / "libnccl.so.2"
    command = [compiler, "-std=c++20", "-O1", "-shared", "-fPIC", f"-I{HERE.parents[1]}", "-o", path]
    flags = os.environ.get("CXXFLAGS", "").split()
    subprocess.run([*command, *flags, HERE / "nccl_stand_in.cpp"], check=True)
    return str(path)


def run_world(folder, source, settings):
    """Runs a script in a process for each of the settings; gives their exit codes and outputs."""
    script = folder / "script.py"
    script.write_text(START + textwrap.dedent(source))
    port, size = dist.get_free_ports(1)[0], len(settings)
    processes = []
    for rank, own in enumerate(settings):
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
        place |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MEGENGINE_DISTRIBUTED_TOKEN": "secret"}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        environment = {**os.environ, **place, **own}
        processes.append(subprocess.Popen([sys.executable, script], env=environment, text=True, **streams))
    outputs = [process.communicate(timeout=600)[0] for process in processes]
    return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]


@pytest.fixture
def world(stand_in, tmp_path):
    """run_world on emulated cards, with the stand-in."""

    def run(source, *settings, size=2):
        common = {**emulated.gpus(size), "MEGJIT_NCCL": stand_in}
        return run_world(tmp_path, source, [{**common, **own} for own in settings or [{}] * size])

    return run


def good(results):
    for code, output in results:
        assert code == 0, output
    return [output for _, output in results]


# ---- what they compute


def test_every_collective_its_gradient_and_traced_steps(world):
    """All of test_collectives.py, on GPUs."""
    outputs = world(
        """
        import test_collectives, world_checks
        failed = world_checks.failures_here(test_collectives.CHECKS)
        print("results " + json.dumps([failed, operations()]))
        """,
        size=3,
    )
    for rank, output in enumerate(good(outputs)):
        failed, operations = json.loads(re.search("^results (.*)$", output, re.M)[1])
        assert not failed, f"rank {rank}: " + "\n".join(failed.values())
        assert operations > 100
        assert "through the host" not in output


# What test_gpu.py runs on two real ones, too.
AGREES = """
    from megengine.autodiff import GradManager

    def results(x):
        parts = [getattr(DF, name)(x) for name in DF.__all__ if not name.startswith("remote")]
        return [np.zeros(0) if part is None else part.astype("float32").numpy() for part in parts]

    for dtype in ("float32", "float16", "bfloat16", "int32", "int8", "uint8"):
        x = mge.tensor(np.random.RandomState(rank).randint(0, 50, size=(6, 1000)).astype("float32")).astype(dtype)
        with dist.override_backend("tcp"):
            expected = results(x)
        for got, right in zip(results(x), expected, strict=True):
            np.testing.assert_array_equal(got, right)

    if rank == 0:
        DF.remote_send(mge.tensor(np.int16([[7, 8]])), 1)
    else:
        assert DF.remote_recv(0).numpy().tolist() == [[7, 8]]

    def train(wrap):
        params = [mge.Parameter(np.random.RandomState(k).normal(size=(32, 32)).astype("float32") / 6) for k in range(3)]
        gm = GradManager().attach(params, callbacks=[dist.make_allreduce_cb("mean")])
        opt = mge.optimizer.SGD(params, lr=0.1, momentum=0.9)

        @wrap
        def step(x):
            with gm:
                for p in params:
                    x = mge.functional.tanh(x @ p)
                loss = (x * x).mean()
                gm.backward(loss)
            opt.step().clear_grad()
            return DF.all_reduce_sum(loss)

        inputs = [np.random.RandomState(2 * k + rank).normal(size=(8, 32)).astype("float32") for k in range(5)]
        return [step(mge.tensor(x)).item() for x in inputs]

    np.testing.assert_allclose(train(jit.trace(symbolic=True)), train(lambda step: step), rtol=1e-4)
    print("all agree")
"""


def test_results_are_those_of_the_host(world):
    for output in good(world(AGREES)):
        assert output.endswith("all agree\n")


def test_parts_of_parameters_are_gathered_by_it_in_eager_and_traced_steps(world):
    outputs = good(world("""
        import megengine.module as M
        import megengine.optimizer as optim
        from megengine.autodiff import GradManager
        from megengine.distributed.fsdp import fully_shard

        def losses(wrap, cut):
            mge.random.seed(1)
            net = M.Sequential(M.Linear(6, 33), M.ReLU(), M.Linear(33, 33), M.ReLU(), M.Linear(33, 3))
            if cut:
                fully_shard(net)
            callbacks = [] if cut else [dist.make_allreduce_cb("mean")]
            gm, opt = GradManager().attach(net.parameters(), callbacks=callbacks), optim.Adam(net.parameters(), lr=0.01)

            @wrap
            def step(x):
                with gm:
                    loss = (net(x) ** 2).mean()
                    gm.backward(loss)
                opt.step().clear_grad()
                return loss

            return [step(mge.tensor(np.full((4, 6), k + rank, "float32"))).item() for k in range(4)]

        whole = losses(lambda step: step, False)
        for wrap in (lambda step: step, jit.trace(symbolic=True)):
            np.testing.assert_allclose(losses(wrap, True), whole, rtol=1e-4)
        print("all agree")
    """))  # fmt: skip
    assert all(output.endswith("all agree\n") and "through the host" not in output for output in outputs), outputs


def test_buckets_of_gradients_travel_on_a_stream_beside_backward(world):
    outputs = world(
        """
        from megengine.autodiff import GradManager

        params = [mge.Parameter(np.full((64, 64), 0.1, "float32")) for _ in range(4)]
        gm = GradManager().attach(params, callbacks=[dist.make_allreduce_cb("mean")])
        opt = mge.optimizer.SGD(params, lr=0.1)

        def step(x):
            with gm:
                for p in params:
                    x = mge.functional.tanh(x @ p)
                gm.backward((x * x).mean())
            opt.step().clear_grad()

        def exchanges(step):
            before = operations()
            step(mge.tensor(np.full((8, 64), rank + 1, "float32")))
            mge.synchronize()
            return operations() - before

        print("in one bucket", exchanges(step))
        dist.set_bucket_sizes(first=1, others=1)
        traced = jit.trace(step, symbolic=True, profiling=True)
        print("in four", [exchanges(traced) for _ in range(3)])
        print("beside", [s["is_transfer"] for s in traced.get_profile()["profiler"]["steps"]].count(True))
        """
    )
    for output in good(outputs):
        assert "in one bucket 1\n" in output and "in four [4, 4, 4]\n" in output, output
        assert "beside 3\n" in output, output  # the update waits for the last one


# ---- when tensors go through the host


SUMS = """
    x = Tensor(np.arange(6, dtype="float32"))
    np.testing.assert_array_equal(DF.all_reduce_sum(x).numpy(), 2 * np.arange(6))
    print("operations", operations() if os.path.exists(os.environ["MEGJIT_NCCL"]) else 0)
"""


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([{}, {"MEGJIT_STAND_IN_VERSION": "22703"}], "rank 0 has NCCL 2.28.9, and rank 1 2.27.3"),
        ([{}, {"MEGJIT_NCCL": "/nowhere/libnccl.so.2"}], "rank 1 has no NCCL: no /nowhere/libnccl.so.2 was found"),
        ([{"MEGJIT_STAND_IN_VERSION": "21203"}, {}], "rank 0 has no NCCL: .*version 2.12.3 is too old, 2.18 is needed"),
        ([{"MEGJIT_NCCL": ""}, {"MEGJIT_NCCL": ""}], "rank 0 has no NCCL: an emulated GPU does not run it"),
    ],
    ids=["versions", "absent", "old", "emulated"],
)
def test_where_processes_cannot_by_nccl_they_go_through_the_host(world, settings, words):
    source = SUMS + "    dist.group_barrier()\n"
    with_nccl = 'dist.backend = "nccl"\n' + textwrap.dedent(source)
    for output in good(world(with_nccl, *settings)):
        assert "operations 0" in output
        assert re.search(f"tensors of GPUs go through the host: {words}", output), output


def test_a_backend_chooses_the_way(world):
    outputs = world(
        """
        x = Tensor([1.0])
        counts = []
        for name in ("auto", "tcp", "nccl"):
            with dist.override_backend(name):
                before = operations()
                assert DF.all_reduce_sum(x).item() == 2
                counts.append(operations() - before)
        grad = dist.make_allreduce_cb("sum", backend="tcp")
        before = operations()
        assert grad(x, x).item() == 2
        print(*counts, operations() - before)
        """
    )
    assert good(outputs) == ["1 0 1 0\n"] * 2


def test_dtypes_that_nccl_does_not_add_go_through_the_host(world):
    outputs = world(
        """
        before = operations()
        for dtype in ("int16", "uint16"):
            assert DF.all_reduce_sum(Tensor(np.ones(3, dtype))).numpy().tolist() == [2] * 3
        sums = operations() - before
        for dtype in ("int16", "uint16"):
            assert DF.all_gather(Tensor(np.ones(2, dtype))).numpy().tolist() == [1] * 4
        print(sums, operations() - before)
        """
    )
    assert good(outputs) == ["0 2\n"] * 2


def test_two_ranks_on_one_gpu_are_no_group(monkeypatch):
    places = {0: "2.28.9 of GPU-a", 1: "2.28.9 of GPU-b", 2: "2.28.9 of GPU-a", 3: "none: no libnccl.so.2 was found"}
    monkeypatch.setattr(group._sd, "places", places, raising=False)
    assert _nccl.why_not([0, 1]) == ""
    assert _nccl.why_not([2, 1]) == ""
    assert _nccl.why_not([0, 1, 2]) == "ranks 0 and 2 share a GPU, which NCCL refuses"
    assert _nccl.why_not([1, 3]) == "rank 3 has no NCCL: no libnccl.so.2 was found"


# ---- failures


def told(results):
    """What each was told, where it says so."""
    return [json.loads(found[1]) if (found := re.search("^told (.*)$", output, re.M)) else output for _, output in results]


TELL = """
    def told(work):
        try:
            work()
        except RuntimeError as error:
            print("told " + json.dumps(str(error)), flush=True)
        else:
            raise AssertionError("nothing was told")

    x = Tensor([1.0])
    assert DF.all_reduce_sum(x).item() == 2
"""


def test_calls_that_differ_name_both(world):
    results = world(TELL + "    told(lambda: (DF.all_reduce_max if rank else DF.all_reduce_sum)(x))\n")
    for text in told(results):
        assert "the processes of a group make different calls" in text
        assert "all_reduce_sum of f32[1] on GPUs, by NCCL, in the group 0,1 at" in text
        assert "all_reduce_max of f32[1] on GPUs, by NCCL, in the group 0,1 at" in text
        assert text.count("script.py:") >= 2


def test_a_tensor_of_the_host_does_not_meet_one_of_a_gpu(world):
    results = world(TELL + '    told(lambda: DF.all_reduce_sum(x if rank else x.to("cpu0")))\n')
    for text in told(results):
        assert "all_reduce_sum of f32[1] in the group" in text and "all_reduce_sum of f32[1] on GPUs, by NCCL," in text


def test_who_is_killed_before_a_call_is_named(world):
    results = world(TELL + "    if rank == 1: os.kill(os.getpid(), 9)\n    told(lambda: DF.all_reduce_sum(x).numpy())\n")
    assert results[1][0] == -9
    text = told(results)[0]
    assert "rank 1 is gone, which rank 0 waits for in all_reduce_sum of f32[1] on GPUs, by NCCL, in the group 0,1" in text


def test_who_is_killed_while_gpus_exchange_is_named_and_the_gpu_is_free_again(world):
    source = TELL + "    told(lambda: (DF.all_reduce_sum(x) + 1).numpy())\n    print((x + 1).item())\n"
    results = world(source, {}, {"MEGJIT_STAND_IN_FAULT": "3 die"})
    assert results[1][0] == -9
    text = told(results)[0]
    assert "rank 1 is gone while rank 0 waits in all_reduce_sum of f32[1] on GPUs, by NCCL, in the group 0,1" in text
    assert "script.py:" in text
    assert results[0][1].endswith("2.0\n") and results[0][0] == 0, results[0][1]


def test_a_traced_step_that_loses_a_member_leaves_its_parameters(world):
    source = (
        TELL
        + """
    from megengine.autodiff import GradManager

    weight = mge.Parameter(np.ones(4, "float32"))
    gm = GradManager().attach([weight], callbacks=[dist.make_allreduce_cb("mean")])
    opt = mge.optimizer.SGD([weight], lr=0.1, momentum=0.9)

    @jit.trace(symbolic=True)
    def step(x):
        with gm:
            gm.backward((weight * x).sum())
        opt.step().clear_grad()

    def steps():
        for _ in range(2):
            before = weight.numpy()
            kept.append(before)
            step(x)
            weight.numpy()

    kept = []
    told(steps)
    np.testing.assert_array_equal(weight.numpy(), kept[-1])
    print("steps", len(kept))
    """
    )
    results = world(source, {}, {"MEGJIT_STAND_IN_FAULT": "4 die"})
    assert results[1][0] == -9
    text = told(results)[0]
    assert "rank 1 is gone while rank 0 waits in all_reduce_sum of f32[4] on GPUs, by NCCL, in the group 0,1" in text
    assert results[0][1].endswith("steps 2\n") and results[0][0] == 0, results[0][1]


def test_what_hangs_on_gpus_ends_after_the_time_limit(world):
    source = TELL + "    dist.set_timeout(3)\n    told(lambda: DF.all_reduce_sum(x).numpy())\n"
    for text in told(world(source, {}, {"MEGJIT_STAND_IN_FAULT": "3 hang"})):
        assert re.search("NCCL has not ended for 3 s|rank . is gone", text), text
        assert "all_reduce_sum of f32[1] on GPUs, by NCCL, in the group 0,1" in text


def test_an_error_of_nccl_is_told_on_every_rank(world):
    fault = {"MEGJIT_STAND_IN_FAULT": "3 remote"}
    results = told(world(TELL + "    told(lambda: DF.all_reduce_sum(x).numpy())\n", {}, fault))
    words = "remote process exited or there was a network error: the network is down"
    assert f"NCCL failed: {words} while rank 1 waits in all_reduce_sum of f32[1] on GPUs, by NCCL, in the group 0,1" in results[1]
    assert "rank 1 is gone" in results[0] and words in results[0]


def test_a_group_that_does_not_come_together_ends_after_the_time_limit(world):
    fault = {"TIMEOUT": "8", "MEGJIT_STAND_IN_FAULT": "connect"}
    for code, output in world("", fault, fault):
        assert code == 1
        assert re.search("ncclCommInitRank has not ended for [78].* s|rank . is gone", output), output


def test_after_an_error_the_group_has_ended(world):
    source = TELL + "    told(lambda: (DF.all_reduce_max if rank else DF.all_reduce_sum)(x))\n    told(lambda: DF.all_reduce_sum(x))\n"
    for _, output in world(source):
        assert "this process group has ended" in output


# ---- the library itself


def test_the_library_has_what_we_call():
    """Where a real one is installed. Its numbers are those of backends/cuda/nccl/nccl_api.h."""
    path = {row[0]: row[3] for row in _core.nvidia_libraries()}["NCCL"]
    if not path:
        pytest.skip("NCCL is not installed")
    library = ctypes.CDLL(path)
    header = (HERE.parents[1] / "backends/cuda/nccl/nccl_api.h").read_text(encoding="utf-8")
    functions = re.findall(r"X\((nccl\w+)", header)
    assert len(functions) == 15
    for name in functions:
        assert getattr(library, name)
    library.ncclGetErrorString.restype = ctypes.c_char_p
    assert library.ncclGetErrorString(0) == b"no error"
    assert b"in progress" in library.ncclGetErrorString(7)
