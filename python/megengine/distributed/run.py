"""``python -m megengine.distributed.run -n 4 script.py``: starts the processes of a world, and ends them together.

Each gets its place by the variables that torchrun sets, so that the script calls ``init_process_group()``. Lines of
output begin with the rank. Ctrl-C and SIGTERM go to all; when one process fails, the others are ended and its last words
are shown once more.

On several machines: the same command on each, with --world-size, --rank-start, --master-ip and --port, and one
MEGENGINE_DISTRIBUTED_TOKEN for all; or with --min-nodes and --max-nodes instead of the first two, where machines may be
lost and come again (docs/distributed.md).
"""

from __future__ import annotations

import argparse
import collections
import os
import signal
import subprocess
import sys
import threading
import time
from typing import IO

from ._engine import BACKENDS, COMM
from ._environment import TOKEN, Place, host_for, variables
from ._meeting import Limits, Meeting
from ._token import new_token, shared_token
from .server import Server

# A process that becomes the command once it is sure to end with us. Nothing of Python runs between fork and exec here: threads
# of this process may hold locks that it would need.
_BECOME = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: of the thread that started it, which is our main thread
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"{sys.argv[2]}: {error.strerror}")
"""
_LAST_LINES = 60
_SECONDS_TO_END = 5.0  # time between SIGTERM and SIGKILL
_SECONDS_TO_FOLLOW = 30.0  # time to end after a signal was passed on


class _Process:
    """One rank. Its output is passed on line by line, with the rank before it."""

    def __init__(self, place: Place, command: list[str], local_size: int, token: str) -> None:
        self.rank = place.rank
        # the last lines of its stderr
        self.last_lines: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        self.is_unheard = False  # nobody reads our output any more
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **variables(place, local_size, token)}
        self.process = subprocess.Popen(
            [sys.executable, "-IS", "-c", _BECOME, str(os.getpid()), *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches it through us, once
        )
        self.readers = [
            threading.Thread(target=self._pass_on, args=streams, daemon=True)
            for streams in ((self.process.stdout, sys.stdout), (self.process.stderr, sys.stderr))
        ]

    def _pass_on(self, source: IO[str], target: IO[str]) -> None:
        for line in source:
            if target is sys.stderr:
                self.last_lines.append(line)
            try:
                target.write(f"[{self.rank}] {line}" if line.endswith("\n") else f"[{self.rank}] {line}\n")
                target.flush()
            # keeps reading, or the process would wait for room in its pipe
            except (OSError, ValueError):
                self.is_unheard = self.is_unheard or target is sys.stdout

    def signal(self, number: int) -> None:
        """Sends a signal to the process and all that it has started."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass


def run(command: list[str], place: Place, local_size: int, meeting: Meeting | None = None) -> tuple[int, bool]:
    """Runs the ranks from ``place.rank`` on, and gives their exit code: 0, or that of the first one that failed; and whether a signal ended them.

    meeting: where the machines of a world that may shrink tell each other that they run.
    """
    is_alone = local_size == place.world_size
    token = os.environ.get(TOKEN) or (new_token() if is_alone else shared_token())
    server = None
    if place.rank == 0:
        server = Server._bound(place.port, host_for(is_alone), token)
        place.port = server.py_server_port
    processes = [
        _Process(
            Place(place.master_ip, place.port, place.world_size, place.rank + local, local),
            command,
            local_size,
            token,
        )
        for local in range(local_size)
    ]

    passed_on: list[tuple[int, float]] = []  # (signal, when)

    def pass_on(number: int, _: object) -> None:
        passed_on.append((number, time.monotonic()))
        for each in processes:
            each.signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    if server is not None:
        server._serve()  # after forking, like all that has threads
        if meeting is not None:
            meeting.has_server(place.port)
    for each in processes:
        for reader in each.readers:
            reader.start()
    try:
        code = _wait(processes, server, passed_on, meeting)
        while not (code or is_alone or passed_on) and server is not None and server._has_clients():
            time.sleep(0.05)  # processes on other machines still call it
        return code, bool(passed_on)
    finally:
        _end(processes)
        if server is not None:
            server._close()  # the next run has the port
        for each in processes:
            for reader in each.readers:
                reader.join(1)


def _wait(processes: list[_Process], server: Server | None, passed_on: list[tuple[int, float]], meeting: Meeting | None) -> int:
    """Waits until all have ended well, one has failed, nobody reads their output any more, or a
    signal does not end them.
    """
    running = list(processes)
    while running:
        time.sleep(0.02)
        if any(each.is_unheard for each in processes):
            # drops output that Python has not written yet
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 128 + signal.SIGPIPE
        if passed_on and time.monotonic() - passed_on[0][1] > _SECONDS_TO_FOLLOW:
            return 128 + passed_on[0][0]
        for each in [each for each in running if each.process.poll() is not None]:
            running.remove(each)
        failed = [each for each in processes if each.process.returncode]
        if failed:
            return _tell(failed, processes, server)
        if meeting is not None and not meeting.goes_on("runs"):
            print("another machine has failed or is gone; the processes here were ended", file=sys.stderr, flush=True)
            return 1
    while meeting is not None and not passed_on and meeting.goes_on("done"):
        time.sleep(0.1)  # others may still call the server
    return 0


def _tell(failed: list[_Process], processes: list[_Process], server: Server | None) -> int:
    """Prints which process failed first, the one that was killed or else the first that told its
    reason, and ends the others. Returns its exit code.
    """
    killed = [each for each in failed if each.process.returncode < 0]
    told = server._first_failed() if server is not None else set()
    culprit = (killed or [each for each in processes if each.rank in told] or failed)[0]
    try:
        culprit.process.wait(_SECONDS_TO_END)  # it may still be writing its error
    except subprocess.TimeoutExpired:
        pass
    _end(processes)
    for reader in culprit.readers:
        reader.join(1)
    code = culprit.process.returncode or 1
    how = f"was killed by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"failed with exit code {code}"
    print(f"rank {culprit.rank} {how}; the other processes were ended", file=sys.stderr)
    sys.stderr.writelines(culprit.last_lines)
    return 128 - code if code < 0 else code


def _end(processes: list[_Process]) -> None:
    """Asks, waits for a while, kills."""
    for each in processes:
        if each.process.poll() is None:
            each.signal(signal.SIGTERM)
    deadline = time.monotonic() + _SECONDS_TO_END
    for each in processes:
        try:
            each.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        each.signal(signal.SIGKILL)  # ends processes that it left behind
        each.process.wait()


def _run_with_who_is_there(command: list[str], meeting: Meeting, local_size: int) -> int:
    """Runs worlds of the machines that are there, one after the other, until one has ended well or
    no restarts are left.
    """
    code = 0
    while True:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)  # nothing of ours runs
        place = meeting.place()
        if isinstance(place, int):
            meeting.end()
            return place and (code or place)
        ranks = f"{place.rank} to {place.rank + local_size - 1}"
        print(f"a world of {place.world_size} processes begins; here are ranks {ranks}", file=sys.stderr, flush=True)
        code, is_ended = run(command, place, local_size, meeting)
        if is_ended:
            return code


def main() -> int:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="python -m megengine.distributed.run", description=(__doc__ or "").partition("\n")[0])  # fmt: skip
    parser.add_argument("-n", "--processes", type=int, required=True, help="processes on this machine")
    parser.add_argument("--world-size", type=int, help="processes on all machines; default: those here")
    parser.add_argument("--rank-start", type=int, default=0, help="rank of the first process here")
    parser.add_argument("--master-ip", default="127.0.0.1", help="address of the machine with rank 0")
    parser.add_argument("--port", type=int, default=0, help="where the machines meet; 0: any, on one machine")
    parser.add_argument("--backend", choices=BACKENDS, help=f"what init_process_group takes where the script names none ({COMM})")
    parser.add_argument("--restarts", type=int, default=0, help="how many times all processes start again after one has failed")
    parser.add_argument("--min-nodes", type=int, help="with who is there, on at least so many machines, all processes start, and again after a failure")
    parser.add_argument("--max-nodes", type=int, help="and on at most so many; a machine that comes later takes part from the next start on")
    parser.add_argument("-m", dest="is_module", action="store_true", help="the script is a module's name")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    is_elastic = given.min_nodes is not None or given.max_nodes is not None
    if is_elastic and not 1 <= (given.min_nodes or 0) <= (given.max_nodes or 0):
        parser.error(f"--min-nodes A --max-nodes B need 1 <= A <= B, got {given.min_nodes} and {given.max_nodes}")
    if is_elastic and (given.world_size or given.rank_start or not given.port):
        parser.error("with --min-nodes, the machines need a --port to meet at; --world-size and --rank-start follow from who comes")
    size = given.world_size or given.processes
    if given.processes < 1 or given.rank_start < 0 or given.rank_start + given.processes > size:
        parser.error(f"ranks {given.rank_start} to {given.rank_start + given.processes - 1} are not part of a world of {size}")  # fmt: skip
    if size > given.processes and not given.port:
        parser.error("several machines need a --port to meet at")
    if given.backend == "mpi":
        parser.error(f"MPI starts its processes itself: mpiexec -n {size} python {given.script}, with {COMM}=mpi")
    if given.backend:
        os.environ[COMM] = given.backend
    command = [sys.executable, *(["-m"] if given.is_module else []), given.script, *given.arguments]
    if is_elastic:
        limits = Limits(given.min_nodes, given.max_nodes, given.restarts)
        try:
            meeting = Meeting(given.master_ip, given.port, given.processes, limits, shared_token())
            return _run_with_who_is_there(command, meeting, given.processes)
        except RuntimeError as error:
            parser.exit(1, f"{error}\n")
    for left in range(given.restarts, -1, -1):
        code, is_ended = run(command, Place(given.master_ip, given.port, size, given.rank_start, 0), given.processes)
        if code == 0 or is_ended or left == 0:
            break
        print(f"all processes start again; {left - 1} more times at most", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
