"""The meeting of the machines of a world that may grow and shrink: ``run --min-nodes A --max-nodes
B``.

The machine that has the address ``--master-ip`` keeps the list; each ``run``, a node here, says twice a second what it does, and hears what to do.
A node that says nothing for a while is gone. Rank 0 is on the machine that keeps the list.
"""

from __future__ import annotations

import errno
import secrets
import socket
import sys
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from ._environment import TOKEN, Place
from ._store import Connection, Failed, NoStore, WrongToken
from .server import Server

SECONDS_TO_COME = 10.0  # wait for further nodes after the last one came
# silence after which a node counts as gone; one that ends its processes may be silent for ten
SECONDS_OF_SILENCE = 15.0
SECONDS_TO_MEET = 600.0  # wait for the least number of nodes
_BEAT_SECONDS = 0.5
_ANSWER_SECONDS = 5.0


@dataclass
class Limits:
    """Limits of a world: the fewest and most nodes, and the number of times that it may start
    again.
    """

    least: int
    most: int
    restarts: int


@dataclass
class _Node:
    """The entry of the list for one ``run``."""

    processes: int
    seen: float
    waits: bool = False
    came: float = 0.0  # when it began to wait
    has_heard: bool = False  # that all is over


@dataclass
class _List:
    """The list of nodes that are there and of those in the world. Nodes call only its `beat`."""

    limits: Limits
    keeper: str
    # the number of the world that runs, or ran last
    number: int = field(default_factory=lambda: secrets.randbits(30))
    port: int = 0  # the port of that world's server; 0: none yet
    code: int | None = None  # once all is over
    nodes: dict[str, _Node] = field(default_factory=dict)
    members: list[str] = field(default_factory=list)  # the nodes of the world that runs, by rank
    done: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def beat(self, node: str, processes: int, doing: str, number: int) -> list[Any]:
        """Tells the node what to do: ["wait"], ["begin", number, first rank, size, port], ["go
        on"], ["stop"] or ["over", exit code].

        doing: "waits", "runs" or "done". number: the number of the world that it runs in or, if it
        waits, of the last one that it was part of.
        """
        with self.lock:
            self._note(self.nodes.setdefault(node, _Node(processes, 0)), doing)
            self._decide(node, doing, number)
            if self.code is not None:
                self.nodes[node].has_heard = True
                return ["over", self.code]
            if doing != "waits":
                return ["go on" if node in self.members and number == self.number else "stop"]
            if node not in self.members or not (self.port or node == self.keeper):
                return ["wait"]
            sizes = [self.nodes[each].processes for each in self.members]
            return ["begin", self.number, sum(sizes[: self.members.index(node)]), sum(sizes), self.port]

    def _note(self, node: _Node, doing: str) -> None:
        node.seen = time.monotonic()
        if doing == "waits" and not node.waits:
            node.came = node.seen
        node.waits = doing == "waits"
        self.nodes = {name: each for name, each in self.nodes.items() if node.seen - each.seen <= SECONDS_OF_SILENCE}

    def _decide(self, node: str, doing: str, number: int) -> None:
        if self.code is not None:
            return
        if node in self.members and number == self.number and doing == "done":
            self.done.add(node)
            if self.done == set(self.members):
                self.code = 0
                return
        has_failed = node in self.members and number == self.number and doing == "waits"
        if has_failed or not self.nodes.keys() >= set(self.members):  # a member failed or is gone
            self.members, self.done = [], set()
            if self.limits.restarts == 0:
                self.code = 1
            self.limits.restarts -= 1
        if not self.members and self.code is None and self.keeper in self.nodes and self.nodes[self.keeper].waits:
            self._begin()

    def _begin(self) -> None:
        waiting = [self.keeper, *(name for name, each in self.nodes.items() if each.waits and name != self.keeper)]
        waited = time.monotonic() - max(self.nodes[name].came for name in waiting)
        # otherwise some are ending their processes, or are gone
        are_all = len(waiting) == len(self.nodes)
        if len(waiting) >= self.limits.most or (len(waiting) >= self.limits.least and are_all and waited > SECONDS_TO_COME):
            self.members = waiting[: self.limits.most]
            self.number, self.port = (self.number + 1) % (1 << 30), 0
            for name in self.members:
                self.nodes[name].waits = False


class Meeting:
    """The side of one ``run``. It keeps the list if its machine has the address ``--master-ip`` and
    no other process there keeps it.
    """

    def __init__(self, master_ip: str, port: int, processes: int, limits: Limits, token: str) -> None:
        self._ip, self._port, self._processes, self._limits, self._token = master_ip, port, processes, limits, token
        self._node, self._number = secrets.token_hex(8), -1
        self._list: _List | None = None
        self._server: Server | None = None
        self._next_beat = 0.0
        self._answered = time.monotonic()
        self._why = ""  # the last question had no answer
        # the exit code, once this machine has heard that all is over: it asks no more, for the keeper may be gone by then
        self._code: int | None = None

    def place(self) -> Place | int:
        """Waits until a world begins that this machine is part of: its place there; or the exit code, where none will.

        RuntimeError where too few come.
        """
        deadline = time.monotonic() + SECONDS_TO_MEET
        has_told = False
        while self._code is None:
            self._keep()
            word, *rest = self._ask("waits")
            if word == "begin":
                self._number, first, size, port = rest
                return Place(self._ip, port, size, first, 0)
            if word == "wait" and not has_told:
                text = f"waits for a world of {self._limits.least} to {self._limits.most} machines to begin at {self._ip}:{self._port}"
                print(text, file=sys.stderr, flush=True)
                has_told = True
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"no world of at least {self._limits.least} machines began at {self._ip}:{self._port} within {SECONDS_TO_MEET:g} s"
                    + (f": {self._why}" if self._why else "")
                )
            time.sleep(_BEAT_SECONDS / 2)
        return self._code

    def has_server(self, port: int) -> None:
        """Tells the port of the world's server, so that the others begin."""
        # the server is local: rank 0 is on the machine that keeps the list
        if self._list is not None:
            self._list.port = port

    def goes_on(self, doing: str) -> bool:
        """Tells the list, now and then, what this machine does ("runs" or "done"); returns False if
        its part
        is over: others have failed, or all are done.
        """
        now = time.monotonic()
        if now < self._next_beat:
            return True
        self._next_beat = now + _BEAT_SECONDS
        return self._ask(doing)[0] in ("go on", "")

    def end(self) -> None:
        """Keeps the list until all have heard that it is over."""
        if self._list is not None and self._server is not None:
            deadline = time.monotonic() + SECONDS_OF_SILENCE
            while time.monotonic() < deadline and not all(known.has_heard for known in list(self._list.nodes.values())):
                time.sleep(0.05)
            self._server._close()

    def _keep(self) -> None:
        """Keeps the list, if nobody does at this address, and it is one of this machine."""
        if self._list is not None:
            return
        try:
            self._server = Server._bound(self._port, self._ip, self._token)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, socket.EAI_NONAME, socket.EAI_AGAIN):
                raise
            return
        self._list = _List(self._limits, self._node)
        self._server._store.methods = self._list
        self._server._serve()

    def _ask(self, doing: str) -> list[Any]:
        answer = self._answer_of_list(doing)
        if answer[0] == "over":
            self._code = int(answer[1])
        return answer

    def _answer_of_list(self, doing: str) -> list[Any]:
        """Asks the list; returns [""] if no answer comes, ["stop"] if none has come for long."""
        question = self._node, self._processes, doing, self._number
        if self._list is not None:
            return self._list.beat(*question)
        try:
            with closing(Connection(self._ip, self._port, self._token, _ANSWER_SECONDS)) as connection:
                answer: list[Any] = connection.call("beat", question, _ANSWER_SECONDS)
            self._answered, self._why = time.monotonic(), ""
            return answer
        except (Failed, NoStore, WrongToken) as error:
            is_stranger = isinstance(error, WrongToken)
            why = f"has another token; set {TOKEN} to one value on all" if is_stranger else f"is no run with --min-nodes: {error}"
            raise RuntimeError(f"what answers at {self._ip}:{self._port} {why}") from None
        except OSError as error:
            self._why = str(error) or type(error).__name__
            return ["stop" if time.monotonic() - self._answered > SECONDS_OF_SILENCE else ""]
