"""A key-value server for the processes of one world, and its client.

In: small values by key, barriers, one-to-all messages, the members of the world, and why it failed.
Out: the same in every
process. Tensors do not pass here: processes find each other by this server and connect (``_joining``). It listens on this
machine only unless told otherwise, and answers those who have the world's token (``_token``, ``_store``).
"""

from __future__ import annotations

import argparse
import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ._environment import TOKEN
from ._store import Connection, Failed, NoStore, StoreServer, WrongToken
from ._token import shared_token

_CONNECT_SECONDS = 30.0  # how long a client waits for its server to come up
# how long a call that waits for no process may take: the server may be out of reach, or another program
_ANSWER_SECONDS = 5.0
SECONDS = 600.0  # how long a call waits for other processes
_SLACK_SECONDS = 60.0  # a process that waits longer for its answer has lost the server


@dataclass
class _Member:
    """The facts that a process tells when it joins. process: a name that no other process has."""

    size: int
    version: str
    address: list[Any]
    process: str


class Methods:
    """The methods of the server; each call runs in its own thread and may wait."""

    def __init__(self, mm_server_port: int, host: str = "127.0.0.1") -> None:
        self.host = host
        self.lock = threading.Condition()
        self.mm_server_port = mm_server_port
        self.dict_is_grad: dict[str, bool] = {}
        self.dict_remote_tracer: dict[str, Any] = {}
        self.dict_pack_list: dict[str, Any] = {}
        self.dict_barrier_counter: dict[str, int] = {}
        self.dict_barrier_event: dict[str, threading.Event] = {}
        self.dict_barrier_size: dict[str, int] = {}
        self.user_dict: dict[str, Any] = {}
        # key -> [value, number of processes that have it]
        self.bcast_dict: dict[str, list[Any]] = {}
        self.members: dict[int, _Member] = {}  # rank -> its member
        self.failures: list[tuple[int, str]] = []  # (rank, why), the first one first

    def connect(self) -> bool:
        """Answers, which shows that the server is up."""
        return True

    def get_mm_server_port(self) -> int:
        """Port of the server for collective operations: this one, by which processes find each other."""
        return self.mm_server_port

    def listens_on(self) -> str:
        """Returns the address of the server, on which processes of its world listen, too; "0.0.0.0"
        is every address of its machine.
        """
        return self.host

    def join(self, rank: int, member: list[Any], seconds: float) -> list[Any]:
        """Waits until all processes have joined; returns their addresses by rank. member: the
        fields of `_Member`.

        While the world is not complete, every process gets the error if one does not fit; later
        only a process of another world gets it.
        """
        joining = _Member(*member)
        with self.lock:
            wrong = self._misfit(rank, joining)
            if wrong and self._is_complete():
                raise RuntimeError(f"another world has this server's port, and all of its processes are there: {wrong}")
            if wrong:
                self.failures.append((rank, wrong))
            elif rank not in self.members:
                self.members[rank] = joining
            self.lock.notify_all()
            self._wait(lambda: len(self.members) == joining.size, seconds, lambda: (
                f"rank {sorted(set(range(joining.size)) - set(self.members))[0]} did not join the world of {joining.size}"
            ))  # fmt: skip
            return [self.members[each].address for each in range(joining.size)]

    def _is_complete(self) -> bool:
        return any(member.size == len(self.members) for member in self.members.values())

    def _misfit(self, rank: int, joining: _Member) -> str:
        if rank in self.members:
            return f"two processes joined the world as rank {rank}; give each a rank of its own"
        for other, member in self.members.items():
            if member.size != joining.size:
                return (
                    f"rank {rank} has a world of {joining.size} processes, rank {other} one of {member.size}; "
                    "give all the same world_size"
                )
            if member.version != joining.version:
                return (
                    f"rank {rank} runs megjit {joining.version}, rank {other} megjit {member.version}; "
                    "install one version everywhere"
                )
        return ""

    def fail(self, rank: int, process: str, why: str) -> str:
        """Notes that a process gives up, with its reason. Returns the reason of the first that did,
        "" for the first itself.

        A process that comes to a complete world by mistake does not end it.
        """
        with self.lock:
            if self._is_complete() and process not in (member.process for member in self.members.values()):
                return ""
            first = next((f"rank {other} failed: {text}" for other, text in self.failures if other != rank), "")
            self.failures.append((rank, why))
            self.lock.notify_all()
            return first

    def set_is_grad(self, key: str, is_grad: bool) -> bool:
        """Say whether the tensor sent under ``key`` wants a gradient."""
        return self._set(self.dict_is_grad, key, is_grad)

    def check_is_grad(self, key: str) -> bool:
        """Waits for ``set_is_grad`` and takes its answer."""
        return self._wait_for(self.dict_is_grad, key, take=True)

    def set_remote_tracer(self, key: str, tracer_set: object) -> bool:
        """Say which tracers recorded the tensor sent under ``key``."""
        return self._set(self.dict_remote_tracer, key, tracer_set)

    def check_remote_tracer(self, key: str) -> Any:
        """Waits for ``set_remote_tracer`` and takes its answer."""
        return self._wait_for(self.dict_remote_tracer, key, take=True)

    def group_barrier(self, key: str, size: int, seconds: float = SECONDS) -> bool:
        """Waits until ``size`` calls with this key are here."""
        with self.lock:
            if (wanted := self.dict_barrier_size.setdefault(key, size)) != size:
                raise RuntimeError(f"the barrier {key!r} is one of {wanted} processes here, and one of {size} there")
            event = self.dict_barrier_event.setdefault(key, threading.Event())
            count = self.dict_barrier_counter[key] = self.dict_barrier_counter.get(key, 0) + 1
            if count == size:
                del self.dict_barrier_counter[key], self.dict_barrier_event[key], self.dict_barrier_size[key]
                event.set()
                self.lock.notify_all()
            try:
                self._wait(event.is_set, seconds, lambda: (
                    f"{self.dict_barrier_counter[key]} of {size} processes came to the barrier {key!r}"
                ))  # fmt: skip
            except RuntimeError:
                # it no longer waits: a process that comes again counts once
                self.dict_barrier_counter[key] -= 1
                raise
        return True

    def user_set(self, key: str, val: object) -> bool:
        """Stores a value."""
        return self._set(self.user_dict, key, val)

    def user_get(self, key: str) -> Any:
        """Waits until a value is stored under the key; the value stays."""
        return self._wait_for(self.user_dict, key, take=False)

    def user_pop(self, key: str) -> Any:
        """Waits until a value is stored under the key; the value is removed."""
        return self._wait_for(self.user_dict, key, take=True)

    def pop_message(self, key: str, held: list[str]) -> list[Any]:
        """Waits until a value is stored under the key: [True, value], which is removed; or until one of ``held`` is taken: [False, those]."""
        with self.lock:
            self._wait(
                lambda: key in self.user_dict or any(each not in self.user_dict for each in held), SECONDS, lambda: f"nobody set {key!r}"
            )
            if key in self.user_dict:
                return [True, self._taken(self.user_dict, key)]
            return [False, [each for each in held if each not in self.user_dict]]

    def bcast_val(self, val: object, key: str, size: int) -> Any:
        """The value that one of ``size`` callers gave (the others give None)."""
        with self.lock:
            if val is not None:
                self.bcast_dict[key] = [val, 0]
                self.lock.notify_all()
            self._wait(lambda: key in self.bcast_dict, SECONDS, lambda: f"nobody gave a value for {key!r}")
            entry = self.bcast_dict[key]
            entry[1] += 1
            if entry[1] == size:
                del self.bcast_dict[key]
            return entry[0]

    def _set(self, store: dict[str, Any], key: str, value: Any) -> bool:
        with self.lock:
            store[key] = value
            self.lock.notify_all()
        return True

    def _wait_for(self, store: dict[str, Any], key: str, take: bool) -> Any:
        with self.lock:
            self._wait(lambda: key in store, SECONDS, lambda: f"nobody set {key!r}")
            return self._taken(store, key) if take else store[key]

    def _taken(self, store: dict[str, Any], key: str) -> Any:
        """Takes a message out, with the lock held, and wakes those who wait for that in
        `pop_message`.
        """
        self.lock.notify_all()
        return store.pop(key)

    def _wait(self, ready: Callable[[], bool], seconds: float, missing: Callable[[], str]) -> None:
        """Waits, with the lock held. RuntimeError if a process failed or the time is up."""
        if not self.lock.wait_for(lambda: ready() or self.failures, seconds):
            raise RuntimeError(f"{missing()} within {seconds:g} s")
        if not ready():
            rank, why = self.failures[0]
            raise RuntimeError(f"rank {rank} failed: {why}")


class Server:
    """A key-value server for the processes of one world; it runs in threads of this process until it is deleted.

    port: the port to listen on, default 0: any free one, which ``py_server_port`` tells.
    host: the address to listen on, default "127.0.0.1": this machine alone; "0.0.0.0" admits other machines.
    token: the secret that clients must show, default: the environment variable ``MEGENGINE_DISTRIBUTED_TOKEN``, else this user's own.

    Raises OSError when the port is taken.
    """

    def __init__(self, port: int = 0, host: str = "127.0.0.1", token: str | None = None) -> None:
        self._bind(port, host, token)
        self._serve()

    @classmethod
    def _bound(cls, port: int, host: str, token: str | None = None) -> Server:
        """Makes a server that has its port but no threads yet, so that this process can fork
        safely.
        """
        server = cls.__new__(cls)
        server._bind(port, host, token)
        return server

    def _bind(self, port: int, host: str, token: str | None) -> None:
        self.proc: threading.Thread | None = None
        self.token = shared_token() if token is None else token
        try:
            self._store = StoreServer((host, port), self.token)
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot listen on {host}:{port}: {error.strerror}; "
                "choose another port, or 0 for any",
            ) from error
        self.py_server_port = self.mm_server_port = self._store.server_address[1]
        self._store.methods = self._methods = Methods(self.mm_server_port, host)

    def _serve(self) -> None:
        self.proc = threading.Thread(
            target=self._store.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self.proc.start()

    def _first_failed(self) -> set[int]:
        """Returns the rank that first gave up, as a set; it is empty if none did."""
        return {rank for rank, _ in self._methods.failures[:1]}

    def _has_clients(self) -> bool:
        """Whether a process that has the token is connected."""
        return bool(self._store.clients)

    def _close(self) -> None:
        if self.proc is not None:
            self._store.shutdown()
            self.proc = None
        self._store.server_close()

    def __del__(self) -> None:
        if "_store" in self.__dict__:  # otherwise the port could not be taken
            self._close()


class Client:
    """A client of a world's `Server`.

    master_ip: address of the server, a str.
    port: its port, an int.
    token: the secret, as of `Server`.

    Raises RuntimeError when no server answers within 30 seconds or its token differs. A call raises RuntimeError when a process of the
    world has failed, when what it waits for does not come within 10 minutes, or when the server is gone.
    """

    def __init__(self, master_ip: str, port: int, token: str | None = None) -> None:
        self.master_ip = master_ip
        self.port = port
        self._token = shared_token() if token is None else token
        # identifies this process; others may come to this server by mistake
        self._process = secrets.token_hex(8)
        self.bcast_dict: dict[str, int] = {}  # key -> number of messages under it
        self._local = threading.local()
        self.connect()

    def _call(self, method: str, *args: Any, seconds: float = SECONDS) -> Any:
        """Calls the server on the thread's own connection, so that a waiting thread does not delay
        others. seconds: the longest wait in the server.
        """
        connection, process = getattr(self._local, "connection", (None, 0))
        try:
            # a fork shares its parent's connection
            if connection is None or process != os.getpid():
                connection = Connection(self.master_ip, self.port, self._token, _ANSWER_SECONDS)
                self._local.connection = connection, os.getpid()
            return self._answer(connection, method, args, seconds + _SLACK_SECONDS)
        except OSError as error:
            if connection is not None:
                connection.close()
            self._local.connection = None, 0
            raise RuntimeError(
                f"the server at {self.master_ip}:{self.port} does not answer any more: {error or type(error).__name__}"
            ) from error

    def _call_in_time(self, method: str, *args: Any) -> Any:
        """Calls the server on a new connection. OSError if no answer comes."""
        with closing(Connection(self.master_ip, self.port, self._token, _ANSWER_SECONDS)) as connection:
            return self._answer(connection, method, args, _ANSWER_SECONDS)

    def _answer(self, connection: Connection, method: str, args: tuple[Any, ...], seconds: float) -> Any:
        try:
            return connection.call(method, args, seconds)
        except Failed as error:
            raise RuntimeError(str(error)) from None
        except WrongToken:
            raise RuntimeError(
                f"the server at {self.master_ip}:{self.port} has another token; "
                f"set {TOKEN} to one value in all processes"
            ) from None

    def connect(self) -> None:
        """Waits until the server answers. Raises RuntimeError after 30 seconds, or if something else answers."""
        deadline = time.monotonic() + _CONNECT_SECONDS
        while True:
            try:
                self._call_in_time("connect")
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        f"no server answers at {self.master_ip}:{self.port}: {error}; "
                        "start a distributed.Server there first"
                    ) from error
                time.sleep(0.1)
            except NoStore as error:
                raise RuntimeError(
                    f"what answers at {self.master_ip}:{self.port} is not a distributed.Server: {error}; "
                    "choose another port"
                ) from error

    def get_mm_server_port(self) -> int:
        """Returns the port by which the processes of collective operations find each other."""
        return self._call("get_mm_server_port")

    def _listens_on(self) -> str:
        """Returns the address at which the server listens."""
        return self._call("listens_on")

    def _join(self, rank: int, size: int, version: str, address: list[Any], seconds: float) -> list[Any]:
        """Waits for the world; the addresses of all processes, by rank."""
        return self._call("join", rank, [size, version, address, self._process], seconds, seconds=seconds)

    def _fail(self, rank: int, why: str) -> str:
        """Tells that this process gives up, and returns the reason of the first that did. It does
        not wait long, as the server itself may be gone.
        """
        return self._call_in_time("fail", rank, self._process, why)

    def set_is_grad(self, key: str, is_grad: bool) -> None:
        """Tells the receiver of the tensor sent under ``key`` whether it needs a gradient: ``is_grad``."""
        self._call("set_is_grad", key, is_grad)

    def check_is_grad(self, key: str) -> bool:
        """Waits for `set_is_grad` with this ``key``, and returns its value."""
        return self._call("check_is_grad", key)

    def set_remote_tracer(self, key: str, tracer_set: object) -> None:
        """Tells the receiver of the tensor sent under ``key`` which tracers recorded it: ``tracer_set``."""
        self._call("set_remote_tracer", key, tracer_set)

    def check_remote_tracer(self, key: str) -> Any:
        """Waits for `set_remote_tracer` with this ``key``, and returns its value."""
        return self._call("check_remote_tracer", key)

    def group_barrier(self, key: str, size: int, seconds: float = SECONDS) -> None:
        """Waits until ``size`` processes have called it with this ``key``. Raises RuntimeError after ``seconds``, default 600."""
        self._call("group_barrier", key, size, seconds, seconds=seconds)

    def user_set(self, key: str, val: object) -> None:
        """Stores a value under a key.

        key: a str.
        val: an int, float, str, bytes, bool, None, or lists and dicts of these.
        """
        self._call("user_set", key, val)

    def user_get(self, key: str) -> Any:
        """Waits until there is a value under ``key``, and returns it."""
        return self._call("user_get", key)

    def user_pop(self, key: str) -> Any:
        """Waits until there is a value under ``key``, removes it, and returns it."""
        return self._call("user_pop", key)

    def _pop_message(self, key: str, held: list[str]) -> list[Any]:
        """Waits for a sender's message under the key, or until a process begins to receive a
        message held back here.
        """
        return self._call("pop_message", key, held)

    def bcast_val(self, val: object, key: str, size: int) -> Any:
        """Sends a value from one process to others; each of them calls it and gets the value.

        val: the value, in the process that has it; None in the others.
        key: a str, the same in all.
        size: the number of processes that call it.
        """
        count = self.bcast_dict[key] = self.bcast_dict.get(key, 0) + 1
        return self._call("bcast_val", val, f"{key}#{count}", size)


def main(port: int = 0, verbose: bool = True) -> None:
    """Serves until interrupted. port: 0 means any free one; verbose: print it."""
    server = Server(port)
    if verbose:
        print(f"serving on port {server.py_server_port}")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        server._close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Key-value server for distributed training.")
    parser.add_argument("-p", "--port", type=int, default=0, help="port to listen on, 0 for any")
    main(parser.parse_args().port)
