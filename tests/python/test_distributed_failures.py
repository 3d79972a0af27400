"""What happens when processes do not fit together, fail, hang or are killed: each other one is told who, where and why."""

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import megengine.distributed as dist
from megengine.distributed import functional as DF
from megengine.tensor import Tensor


def lives(pid):
    """Does it run? Who has ended and waits for its parent to look does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def told(size, body, timeout=60.0):
    """What each process is told: the text of its RuntimeError, or what the body gave."""

    def worker():
        try:
            return body(dist.get_rank())
        except RuntimeError as error:
            return str(error)

    return dist.launcher(worker, n_gpus=size, timeout=timeout)()


# ---- calls that do not meet


def test_different_operations_are_an_error_that_names_both_calls_and_their_lines():
    def body(rank):
        if rank == 0:
            DF.all_reduce_sum(Tensor([1.0]))
        else:
            DF.all_reduce_max(Tensor([1.0]))

    for text in told(2, body):
        assert "all_reduce_sum of f32[1] in the group 0,1 at" in text
        assert "all_reduce_max of f32[1] in the group 0,1 at" in text
        assert text.count("test_distributed_failures.py:") >= 2


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda rank: np.zeros((rank + 1, 2), "float32"), ["f32[1, 2]", "f32[2, 2]"]),
        (lambda rank: np.zeros(4, ["float32", "int32"][rank]), ["f32[4]", "i32[4]"]),
    ],
    ids=["shapes", "dtypes"],
)
def test_tensors_that_differ_are_an_error_in_every_process(make, words):
    for text in told(2, lambda rank: DF.all_reduce_sum(Tensor(make(rank)))):
        assert all(word in text for word in words)


def test_traced_calls_that_differ_name_the_lines_of_the_body():
    def body(rank):
        from megengine.jit import trace

        @trace(symbolic=True)
        def step(x):
            return (DF.all_reduce_sum if rank else DF.all_reduce_min)(x + 1)

        return step(Tensor([1.0])).numpy()

    for text in told(2, body):
        assert "all_reduce_sum" in text and "all_reduce_min" in text and text.count("in step") >= 2


def test_groups_of_one_call_must_be_the_same():
    def body(rank):
        group = dist.new_group([0, 1]) if rank == 0 else dist.new_group([1, 0])
        DF.all_reduce_sum(Tensor([1.0]), group)

    for text in told(2, body):
        assert "in the group 0,1" in text and "in the group 1,0" in text


def test_after_an_error_the_group_has_ended():
    def body(rank):
        with pytest.raises(RuntimeError, match="different calls|is gone"):
            (DF.all_reduce_max if rank else DF.all_reduce_sum)(Tensor([1.0]))
        DF.all_reduce_sum(Tensor([1.0]))

    for text in told(2, body):
        assert "this process group has ended" in text


def test_a_collective_outside_of_a_group_says_what_to_do():
    from megengine.core import ops

    with pytest.raises(RuntimeError, match="no group of the ranks 0,1(.*\n)*.*init_process_group"):
        ops.all_reduce_sum(Tensor([1.0]), group="0,1")


# ---- members that are gone


def test_who_ended_is_named_with_the_call_that_waits():
    def body(rank):
        DF.all_reduce_sum(Tensor([1.0]))
        if rank == 0:
            DF.all_reduce_sum(Tensor([1.0, 2.0]))

    text = told(2, body)[0]
    assert "rank 1 is gone, which rank 0 waits for in all_reduce_sum of f32[2]" in text
    assert "test_distributed_failures.py:" in text


def test_who_hangs_is_named_after_the_time_limit():
    """And who waits at the server for what nobody gives is told of the first failure."""

    def body(rank):
        dist.group_barrier()
        if rank == 1:
            dist.get_client().user_get("what nobody sets")
        dist.set_timeout(0.5)
        DF.all_reduce_sum(Tensor([1.0]))

    waiting, hanging = told(2, body)
    assert "rank 1 has not answered for 0.5 s, which rank 0 waits for in all_reduce_sum of f32[1]" in waiting
    assert hanging.startswith("rank 0 failed: rank 1 has not answered")


def test_the_traceback_of_who_failed_reaches_the_others():
    def body(rank):
        if rank == 1:
            raise KeyError("rank one")
        with pytest.raises(RuntimeError, match="rank 1 is gone(.*\n)*.*KeyError: 'rank one'"):
            DF.all_reduce_sum(Tensor([1.0]))
        raise ValueError("of the others")

    with pytest.raises(AssertionError, match="process 1(.*\n)*.*rank one"):
        told(3, body)


def test_a_chain_of_failures_shows_its_beginning():
    """2 waits for 1, which waits for 0."""

    def body(rank):
        pairs = [dist.new_group([0, 1]), dist.new_group([1, 2])]
        if rank == 0:
            raise KeyError("the first one")
        DF.all_reduce_sum(Tensor([1.0]), pairs[rank - 1])

    with pytest.raises(AssertionError, match="process 0(.*\n)*.*the first one"):
        told(3, body)


def test_a_killed_process_ends_all_and_leaves_no_orphan(tmp_path):
    def body(rank):
        (tmp_path / str(rank)).write_text(str(os.getpid()))
        DF.all_reduce_sum(Tensor([1.0]))
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        DF.all_reduce_sum(Tensor([1.0]))

    with pytest.raises(AssertionError, match="process 1 of the launcher failed:\nit was killed by signal 9"):
        told(3, body)
    for rank in range(3):
        assert not lives((tmp_path / str(rank)).read_text())


# ---- traced steps, whose exchanges run beside the rest


def traced_step(without_host=False, differs=False):
    """(step, parameters): of four layers, with a bucket for each gradient."""
    import megengine as mge
    import megengine.functional as F
    from megengine.autodiff import GradManager
    from megengine.jit import trace

    dist.set_bucket_sizes(1, 1)
    layers = [mge.module.Linear(16, 16) for _ in range(4)]
    params = [param for layer in layers for param in layer.parameters()]
    dist.bcast_list_(params)
    gm = GradManager().attach(params, callbacks=[dist.make_allreduce_cb("mean")])
    optimizer = mge.optimizer.SGD(params, lr=0.1, momentum=0.9)

    @trace(symbolic=True, without_host=without_host)
    def step(x):
        with gm:
            y = x
            for layer in layers:
                y = F.tanh(layer(y))
            gm.backward(F.mean(y**2))
        optimizer.step().clear_grad()
        return DF.all_reduce_min(y) if differs else DF.all_reduce_max(y)

    return step, params


def bits(params):
    return [param.numpy().tobytes() for param in params]


@pytest.mark.parametrize("without_host", [False, True])
def test_parameters_stay_as_they_were_when_a_process_is_gone(without_host):
    def body(rank):
        step, params = traced_step(without_host)
        x = Tensor(np.ones((4, 16), "float32"))
        for _ in range(3):
            step(x).numpy()
        if rank == 1:
            return ""
        before = bits(params)
        try:
            step(x)
        finally:
            assert bits(params) == before

    text = told(2, body, timeout=600.0)[0]
    assert "rank 1 is gone, which rank 0 waits for in all_reduce_sum of f32[" in text
    assert "test_distributed_failures.py:" in text


def test_a_call_that_differs_behind_the_buckets_leaves_parameters_as_they_were():
    def body(rank):
        step, params = traced_step(differs=rank == 1)
        before = bits(params)
        try:
            step(Tensor(np.ones((4, 16), "float32")))
        finally:
            assert bits(params) == before

    for text in told(2, body, timeout=600.0):
        assert "all_reduce_min of f32[4, 16]" in text and "all_reduce_max of f32[4, 16]" in text


def test_an_error_of_this_process_alone_exchanges_nothing_twice():
    """A wrong label: what was exchanged before it is not exchanged again by whoever computes the rest."""
    import megengine.functional as F
    from megengine.jit import trace

    def body(rank):
        @trace(symbolic=True)
        def step(x, index):
            total = DF.all_reduce_sum(x)
            return F.nn.one_hot(index, 3) * 2, total

        for k in range(2):
            step(Tensor([1.0]), Tensor(np.int32([k])))
        try:
            step(Tensor([1.0]), Tensor(np.int32([7 if rank else 1])))
        except (IndexError, ValueError, RuntimeError):
            assert rank == 1
        return DF.all_reduce_sum(Tensor([3.0])).item()

    assert told(2, body, timeout=600.0) == [6.0, 6.0]


# ---- processes that nobody launched


def script_processes(tmp_path, source, environments, command=()):
    """Starts a Python script once for each environment; (exit code, output) of each."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(source))
    processes = [
        subprocess.Popen(
            [sys.executable, *command, str(script)],
            env={**os.environ, "MGE_HOME": str(tmp_path), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for environment in environments
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]


JOIN = """
    import os, sys
    import megengine as mge, megengine.distributed as dist
    dist.init_process_group({arguments})
    print(dist.get_rank(), dist.functional.all_reduce_sum(mge.Tensor([1.0 + dist.get_rank()])).item())
"""


def world_by_variables(port):
    """As torchrun says it to two processes."""
    return [{"MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)} for rank in range(2)]


def test_parameters_stay_as_they_were_when_a_process_is_killed(tmp_path):
    source = f"""
        import os, signal, sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import numpy as np, megengine as mge, megengine.distributed as dist
        from test_distributed_failures import bits, traced_step
        dist.init_process_group()
        step, params = traced_step()
        x = mge.Tensor(np.ones((4, 16), "float32"))
        for _ in range(3):
            step(x).numpy()
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        before = bits(params)
        try:
            step(x)
        except RuntimeError as error:
            print(bits(params) == before, error)
    """
    (_, output), (code, _) = script_processes(tmp_path, source, world_by_variables(dist.get_free_ports(1)[0]))
    assert code == -signal.SIGKILL
    assert output.startswith("True rank 1 is gone, which rank 0 waits for in all_reduce_sum of f32["), output


@pytest.mark.parametrize(
    "names",
    [
        ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    ],
    ids=["torchrun", "mpich", "openmpi", "slurm"],
)
def test_each_launcher_gives_the_same_world(tmp_path, names):
    port = {"MASTER_PORT": str(dist.get_free_ports(1)[0])}
    places = [{**port, names[0]: str(rank), names[1]: "2", names[2]: str(rank)} for rank in range(2)]
    results = script_processes(tmp_path, JOIN.format(arguments=""), places)
    assert results == [(0, "0 3.0\n"), (0, "1 3.0\n")]


@pytest.mark.parametrize(
    "host, addresses",
    [("127.0.0.1", ["localhost", "127.0.0.1"]), ("0.0.0.0", ["localhost", "127.0.0.2"])],
    ids=["loopback", "elsewhere"],
)
def test_processes_join_a_server_that_somebody_started(tmp_path, host, addresses):
    os.environ["MGE_HOME"], before = str(tmp_path), os.environ.get("MGE_HOME")
    try:
        server = dist.Server(host=host)
        arguments = f"os.environ['MASTER'], {server.py_server_port}, 2, int(os.environ['N']), 0"
        places = [{"N": str(rank), "MASTER": address} for rank, address in enumerate(addresses)]
        results = script_processes(tmp_path, JOIN.format(arguments=arguments), places)
        server._close()
    finally:
        os.environ.pop("MGE_HOME")
        if before is not None:
            os.environ["MGE_HOME"] = before
    assert results == [(0, "0 3.0\n"), (0, "1 3.0\n")]


def test_the_first_node_of_a_list():
    from megengine.distributed._environment import first_node

    assert first_node("node[03-05,9],other") == "node03"
    assert first_node("gpu-a,gpu-b") == "gpu-a"
    assert first_node("n[7,9]-ib") == "n7-ib"


@pytest.mark.parametrize(
    "answer, seconds, words",
    [(b"", 0.5, "no server answers at 127.0.0.1"), (b"SSH-2.0-x\r\n", 60, "is not a distributed.Server")],
    ids=["silent", "another protocol"],
)
def test_a_port_that_another_program_has_is_an_error_in_each_process(tmp_path, answer, seconds, words):
    def serve():
        while True:
            try:
                kept.append(listener.accept()[0])
            except OSError:  # closed
                return
            kept[-1].sendall(answer)

    kept = []
    source = f"import megengine.distributed.server as server\nserver._CONNECT_SECONDS = server._ANSWER_SECONDS = {seconds}\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        results = script_processes(tmp_path, source + textwrap.dedent(JOIN.format(arguments="")), world_by_variables(port))
        listener.shutdown(socket.SHUT_RDWR)
    for connection in kept:
        connection.close()
    (code0, first), (code1, second) = results
    assert (code0, code1) == (1, 1)
    assert f"cannot listen on 127.0.0.1:{port}" in first and "choose another port" in first
    assert words in second


def test_init_process_group_without_a_launcher_says_how():
    with pytest.raises(RuntimeError, match="megengine.distributed.run"):
        dist.init_process_group()
    with pytest.raises(TypeError, match="rank, device missing"):
        dist.init_process_group("localhost", 0, 2)


# ---- python -m megengine.distributed.run


def run(tmp_path, source, *options):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(source))
    return subprocess.Popen(
        [sys.executable, "-m", "megengine.distributed.run", "-n", "2", *options, str(script), "argument"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_starts_a_world_and_marks_its_output(tmp_path):
    process = run(tmp_path, JOIN.format(arguments="") + "    print(sys.argv[1:], file=sys.stderr)\n")
    output, errors = process.communicate(timeout=300)
    assert sorted(output.splitlines()) == ["[0] 0 3.0", "[1] 1 3.0"]
    assert sorted(errors.splitlines()) == ["[0] ['argument']", "[1] ['argument']"]
    assert process.returncode == 0


def test_the_command_ends_all_and_shows_the_traceback_of_who_failed(tmp_path):
    source = JOIN.format(arguments="") + "    if dist.get_rank() == 1: raise KeyError('rank one')\n    dist.group_barrier()\n"
    process = run(tmp_path, source)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    summary = errors[errors.index("rank 1 failed with exit code 1") :]
    assert "KeyError: 'rank one'" in summary


def test_who_fails_on_the_way_into_the_world_is_named(tmp_path):
    """It used to leave without a word: what was known of the world was forgotten first."""
    source = """
        import os
        import megengine.distributed as dist

        def fail(name):
            raise KeyError("no such device")

        if os.environ["RANK"] == "1":
            dist.group.get_device_count = lambda kind: 1
            dist.group.set_default_device = fail
        dist.init_process_group()
    """
    _, errors = run(tmp_path, source).communicate(timeout=300)
    assert "KeyError: 'no such device'" in errors[errors.index("rank 1 failed with exit code 1") :]
    lines_of_0 = "".join(line for line in errors.splitlines(True) if line.startswith("[0]"))
    assert "rank 1 is gone" in lines_of_0 and "KeyError: 'no such device'" in lines_of_0


def test_the_command_forwards_signals_and_leaves_nobody(tmp_path):
    source = """
        import os, pathlib, threading
        import megengine.distributed as dist
        dist.init_process_group()
        pathlib.Path(os.environ["FOLDER"], os.environ["RANK"]).write_text(str(os.getpid()))
        dist.group_barrier()
        print("ready")
        threading.Event().wait(300)
    """
    os.environ["FOLDER"] = str(tmp_path)
    try:
        process = run(tmp_path, source)
    finally:
        del os.environ["FOLDER"]
    for _ in range(2):
        assert process.stdout.readline().endswith("ready\n")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    for rank in range(2):
        assert not lives((tmp_path / str(rank)).read_text())


def test_nobody_outlives_the_command(tmp_path):
    source = """
        import os, pathlib, threading
        pathlib.Path(os.environ["FOLDER"], os.environ["RANK"]).write_text(str(os.getpid()))
        print("ready", flush=True)
        threading.Event().wait(300)
    """
    os.environ["FOLDER"] = str(tmp_path)
    try:
        process = run(tmp_path, source)
    finally:
        del os.environ["FOLDER"]
    for _ in range(2):
        assert process.stdout.readline().endswith("ready\n")
    process.kill()
    process.communicate(timeout=60)  # until the pipes are closed: by all who held them
    for rank in range(2):
        pid = (tmp_path / str(rank)).read_text()
        deadline = time.monotonic() + 60
        while lives(pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not lives(pid)


def test_the_command_ends_when_nobody_reads_its_output(tmp_path):
    """It used to wait for processes that waited for room in their pipes."""
    source = """
        import itertools, os
        print(os.getpid())
        for line in itertools.count():
            print("line", line)
    """
    process = run(tmp_path, source)
    first = [process.stdout.readline().split() for _ in range(2)]
    process.stdout.close()
    assert process.wait(timeout=60) == 128 + signal.SIGPIPE
    with process.stderr:
        assert "Error" not in process.stderr.read()
    assert not any(lives(words[1]) for words in first if len(words) == 2)


def test_the_command_ends_processes_that_do_not_follow_a_signal(tmp_path):
    script = tmp_path / "deaf.py"
    script.write_text("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(300)\n")
    command = "import sys, megengine.distributed.run as run; run._SECONDS_TO_FOLLOW = 0.2; sys.exit(run.main())"
    process = subprocess.Popen(
        [sys.executable, "-c", command, "-n", "1", str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "[0] ready\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT


def test_collective_ops_are_what_their_group_is():
    """Wrong attributes of ops made by hand used to give zeros, or end the process."""
    from megengine.core import ops

    def body():
        rank = dist.get_rank()
        x = Tensor(np.arange(6, dtype="float32").reshape(2, 3))
        told = []
        for call in (
            lambda: ops.all_gather(x, group="0,1", size=3),
            lambda: ops.all_gather(x, group="0,1", size=1),
            lambda: ops.all_gather(x, group="0,1", size=0),
            lambda: ops.reduce_scatter_sum(x, group="0,1", size=-2),
            lambda: ops.all_to_all(Tensor(np.zeros((0, 3), "float32")), group="0,1", size=0),
            lambda: ops.reduce_sum_to_root(x, group="0,1", is_root=1 - (rank == 0)),
            lambda: ops.broadcast_from_root(x, group="0,1", is_root=rank),
            lambda: ops.send_to(x, group="0,1", peer=99),
            lambda: ops.send_to(x, group="0,1", peer=2**32 + 1 - rank),
            lambda: ops.send_to(x, group="0,1", peer=rank),
            lambda: ops.receive_from(x, group="0,1", peer=-1, shape=(2,), dtype="float32"),
        ):
            try:
                told.append(str(call()))
            except ValueError as error:
                told.append(" ".join(str(error).splitlines()[:2]))
        return told, DF.all_reduce_sum(x).numpy().sum()

    for told, total in dist.launcher(body, n_gpus=2)():
        assert len(told) == 11 and total == 30.0
        for words in told:
            assert re.search(r"the group of the ranks 0,1 has 2 processes|at least one process, not|the group has -?\d processes", words), words


def test_groups_of_one_check_what_they_are_given():
    def body():
        told = []
        x = Tensor([1.0, 2.0])
        for call in (
            lambda: DF.all_reduce_sum(x, dist.Group([1 - dist.get_rank()])),
            lambda: DF.collective_comm(x, "nonsense", dist.Group([dist.get_rank()])),
            lambda: DF.all_gather(x, dist.Group([dist.get_rank()]), axis=7),
            lambda: DF.all_reduce_sum("no tensor", dist.Group([dist.get_rank()])),
        ):
            try:
                call()
                told.append("nothing")
            except (TypeError, ValueError) as error:
                told.append(str(error).splitlines()[0])
        return told

    for rank, told in enumerate(dist.launcher(body, n_gpus=2)()):
        assert told[0] == f"process {rank} is not in the group {1 - rank}"
        assert "'nonsense' is none of" in told[1] and "axis 7" in told[2] and "Tensor" in told[3]


def test_the_launcher_does_not_wait_for_what_a_killed_process_forked(tmp_path):
    def body():
        if dist.get_rank() == 0:
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            (tmp_path / "child").write_text(str(child))
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    start = time.monotonic()
    try:
        with pytest.raises(AssertionError, match="process 0 of the launcher failed:\nit was killed by signal 9"):
            dist.launcher(body, n_gpus=2)()
        assert time.monotonic() - start < 50
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def test_the_server_stays_until_other_machines_have_ended(tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent("""
        import time
        import megengine.distributed as dist

        dist.init_process_group()
        dist.group_barrier()
        if dist.get_rank():
            time.sleep(1.5)  # rank 0 has ended
            dist.get_client().user_set("late", 7)
            print("got", dist.get_client().user_get("late"))
    """))  # fmt: skip
    port = dist.get_free_ports(1)[0]
    environment = {**os.environ, "MEGENGINE_DISTRIBUTED_TOKEN": "secret"}
    command = [sys.executable, "-m", "megengine.distributed.run", "-n", "1", "--world-size", "2", "--master-ip", "127.0.0.1", "--port", str(port)]
    runs = [
        subprocess.Popen([*command, "--rank-start", str(rank), tmp_path / "train.py"], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for rank in range(2)
    ]
    outputs = [each.communicate(timeout=120)[0] for each in runs]
    assert [each.returncode for each in runs] == [0, 0] and "got 7" in outputs[1], outputs
