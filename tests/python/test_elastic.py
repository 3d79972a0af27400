"""``run --min-nodes A --max-nodes B``: a world goes on with the machines that are left, and with those that come again. A machine is a ``run`` here."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from megengine.distributed import Server, _meeting
from megengine.distributed.helper import get_free_ports

# With less patience than a cluster needs.
COMMAND = """
import sys
import megengine.distributed.run as run, megengine.distributed._meeting as meeting
meeting.SECONDS_TO_COME, meeting.SECONDS_TO_MEET = 2, {patience}
sys.exit(run.main())
"""
# Two train until one machine is killed, one alone until another one has come, and fails then; two end it.
TRAIN = """
import os, sys, time
from pathlib import Path
import numpy as np
import megengine as mge, megengine.distributed as dist, megengine.module as M, megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.distributed import checkpoint

folder = Path(sys.argv[1])
dist.init_process_group()
size = dist.get_world_size()
if size == 1 and not (folder / "ready 0").exists():  # the second machine came late
    while not (folder / "both").exists():
        time.sleep(0.05)
    os._exit(3)
net = M.Linear(4, 3)
opt = optim.sharded(optim.Adam(net.parameters(), lr=0.01))
gm = GradManager().attach(net.parameters())
sizes, found = [], checkpoint.load(folder / "states")
if found:
    net.load_state_dict(found[0]["net"])
    opt.load_state_dict(found[0]["opt"])
    sizes = found[0]["sizes"]
for step in range(len(sizes), 30):
    if step == 10 and size == 2:
        (folder / f"ready {dist.get_rank()}").touch()
        time.sleep(600) if dist.get_rank() else dist.group_barrier()
    if step == 20 and size == 1:
        (folder / "alone").touch()
        while not (folder / "go").exists():
            time.sleep(0.05)
        os._exit(3)
    with gm:
        gm.backward((net(mge.tensor(np.ones((2, 4), "float32"))) ** 2).mean())
    opt.step().clear_grad()
    sizes.append(size)
    checkpoint.save(folder / "states", {"net": net, "opt": opt, "sizes": sizes}, step)
    checkpoint.wait()
print(sizes, flush=True)
"""


def node(port, script, *arguments, limits=(1, 2), restarts=5, patience=300):
    options = ["-n", 1, "--port", port, "--restarts", restarts, "--min-nodes", limits[0], "--max-nodes", limits[1], script, *arguments]
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND.format(patience=patience), *map(str, options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for(path, nodes):
    deadline = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < deadline and all(each.poll() is None for each in nodes), [each.communicate() for each in nodes]
        time.sleep(0.05)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


@pytest.mark.parametrize("killed", [0, 1], ids=["the machine where all meet", "another machine"])
def test_a_world_shrinks_and_grows(killed, script, tmp_path):
    (port,) = get_free_ports(1)
    nodes = [node(port, script, tmp_path)]
    assert "waits for a world of 1 to 2 machines" in nodes[0].stderr.readline()
    nodes.append(node(port, script, tmp_path))
    assert nodes[1].stderr.readline()  # it is on the list
    (tmp_path / "both").touch()
    try:
        for rank in range(2):
            wait_for(tmp_path / f"ready {rank}", nodes)
        lost = nodes.pop(killed)
        lost.send_signal(signal.SIGKILL)
        lost.communicate()
        wait_for(tmp_path / "alone", nodes)
        nodes.append(node(port, script, tmp_path))
        assert "waits for a world of 1 to 2 machines" in nodes[1].stderr.readline()
        (tmp_path / "go").touch()
        said = [each.communicate(timeout=300) for each in nodes]
    finally:
        for each in nodes:
            each.kill()
    assert [each.returncode for each in nodes] == [0, 0], said
    assert all(output.count("\n") == 1 for output, _ in said), said  # each program ended once
    sizes = [json.loads(output.partition("] ")[2]) for output, _ in said]
    assert sizes[0] == sizes[1] == [2] * 10 + [1] * 10 + [2] * 10
    assert "a world of 1 processes begins" in said[0][1] and "rank 0 failed with exit code 3" in said[0][1]


def test_the_exit_code_is_that_of_who_failed_when_no_restarts_are_left(tmp_path):
    (port,) = get_free_ports(1)
    script = tmp_path / "fails.py"
    script.write_text("import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(3)\ntime.sleep(600)\n")
    nodes = [node(port, script, limits=(2, 2), restarts=1) for _ in range(2)]
    said = [each.communicate(timeout=300)[1] for each in nodes]
    assert sorted(each.returncode for each in nodes) == [1, 3], said
    assert all(each.count("a world of 2 processes begins") == 2 for each in said)
    assert sum("another machine has failed or is gone" in each for each in said) == 1, said


def test_the_server_is_there_until_all_are_done(tmp_path):
    (port,) = get_free_ports(1)
    script = tmp_path / "asks.py"
    script.write_text(
        "import os, socket, time\nif os.environ['RANK'] == '1':\n"
        "    time.sleep(3)\n    socket.create_connection(('127.0.0.1', int(os.environ['MASTER_PORT'])))\n"
    )
    nodes = [node(port, script, limits=(2, 2)) for _ in range(2)]
    said = [each.communicate(timeout=300)[1] for each in nodes]
    assert [each.returncode for each in nodes] == [0, 0] and all(each.count("begins") == 1 for each in said), said


def test_too_few_machines_are_an_error(tmp_path):
    (port,) = get_free_ports(1)
    alone = node(port, tmp_path / "none.py", limits=(2, 3), patience=1)
    _, errors = alone.communicate(timeout=300)
    assert alone.returncode == 1 and f"no world of at least 2 machines began at 127.0.0.1:{port} within 1 s" in errors


@pytest.mark.parametrize("options", [["--min-nodes", "2"], ["--max-nodes", "2"], ["--min-nodes", "3", "--max-nodes", "2"],
                                     ["--min-nodes", "1", "--max-nodes", "2", "--world-size", "2"]])  # fmt: skip
def test_what_does_not_fit_together_is_refused(options):
    command = [sys.executable, "-m", "megengine.distributed.run", "-n", "1", "--port", "1", *options, "none.py"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "--min-nodes" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(("token", "why"), [("one", "is no run with --min-nodes"), ("two", "has another token")])
def test_what_else_answers_is_told(token, why):
    server = Server(token="one")
    meeting = _meeting.Meeting("127.0.0.1", server.py_server_port, 1, _meeting.Limits(2, 2, 0), token)
    with pytest.raises(RuntimeError, match=why):
        meeting.place()
    server._close()


def test_who_has_heard_that_all_is_over_begins_no_world_of_its_own():
    """The keeper closes when all have heard it, which may be before the last of them asks for its place."""
    (port,) = get_free_ports(1)
    keeper, other = (_meeting.Meeting("127.0.0.1", port, 1, _meeting.Limits(1, 2, 3), "one") for _ in range(2))
    keeper._keep()
    assert [each._ask("waits") for each in (keeper, other)] == [["wait"], ["wait"]]
    assert keeper.place().rank == 0
    keeper.has_server(7)
    assert other.place().rank == 1
    assert keeper.goes_on("done") and not other.goes_on("done")
    keeper._server._close()
    assert other.place() == 0 and other._list is None


def test_who_is_silent_is_gone(monkeypatch):
    """A machine without power says nothing: the others stop, and begin without it."""
    clock = itertools.count()  # each question is a second
    monkeypatch.setattr(_meeting.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(_meeting, "SECONDS_OF_SILENCE", 50.0)
    meeting = _meeting._List(_meeting.Limits(1, 2, 1), "a")
    meeting.beat("a", 2, "waits", -1)
    meeting.beat("b", 3, "waits", -1)
    word, number, first, size, _ = meeting.beat("a", 2, "waits", -1)
    assert (word, first, size) == ("begin", 0, 5) and meeting.beat("b", 3, "waits", -1) == ["wait"]
    meeting.port = 7
    assert meeting.beat("b", 3, "waits", -1) == ["begin", number, 2, 5, 7]
    answers = [meeting.beat("a", 2, "runs", number)[0] for _ in range(80)]
    assert sorted(set(answers)) == ["go on", "stop"] and answers[0] == "go on" and answers[-1] == "stop"
    while (answer := meeting.beat("a", 2, "waits", number)) == ["wait"]:
        pass
    assert answer == ["begin", number + 1, 0, 2, 0]
    assert meeting.beat("a", 2, "done", number + 1) == ["over", 0]
