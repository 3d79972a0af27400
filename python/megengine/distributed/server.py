"""A key-value server for the processes of one world, and its client: an RPC pair over XML-RPC.

In: small values by key, barriers, one-to-all messages. Out: the same in every process. Next to it, on a second port,
listens the server for collective operations (``collectives``). Both trust whoever can reach them, so they listen on
this machine only unless told otherwise.
"""

from __future__ import annotations

import argparse
import threading
import time
import xmlrpc.client
from socketserver import ThreadingMixIn
from typing import Any
from xmlrpc.server import SimpleXMLRPCServer

from .collectives import CollectiveServer

_CONNECT_SECONDS = 30  # how long a client waits for its server to come up


class Methods:
    """What the server can be asked for; each call runs in a thread of its own and may wait."""

    def __init__(self, mm_server_port: int) -> None:
        self.lock = threading.Condition()
        self.mm_server_port = mm_server_port
        self.dict_is_grad: dict[str, bool] = {}
        self.dict_remote_tracer: dict[str, Any] = {}
        self.dict_pack_list: dict[str, Any] = {}
        self.dict_barrier_counter: dict[str, int] = {}
        self.dict_barrier_event: dict[str, threading.Event] = {}
        self.user_dict: dict[str, Any] = {}
        self.bcast_dict: dict[str, list[Any]] = {}  # key -> [value, how many have it]

    def connect(self) -> bool:
        """Answer, to show that the server is up."""
        return True

    def get_mm_server_port(self) -> int:
        """Port of the server for collective operations."""
        return self.mm_server_port

    def set_is_grad(self, key: str, is_grad: bool) -> bool:
        """Say whether the tensor sent under ``key`` wants a gradient."""
        return self._set(self.dict_is_grad, key, is_grad)

    def check_is_grad(self, key: str) -> bool:
        """Wait for ``set_is_grad`` and take its answer."""
        return self._wait_for(self.dict_is_grad, key, take=True)

    def set_remote_tracer(self, key: str, tracer_set: Any) -> bool:
        """Say which tracers recorded the tensor sent under ``key``."""
        return self._set(self.dict_remote_tracer, key, tracer_set)

    def check_remote_tracer(self, key: str) -> Any:
        """Wait for ``set_remote_tracer`` and take its answer."""
        return self._wait_for(self.dict_remote_tracer, key, take=True)

    def group_barrier(self, key: str, size: int) -> bool:
        """Wait until ``size`` calls with this key are here."""
        with self.lock:
            event = self.dict_barrier_event.setdefault(key, threading.Event())
            self.dict_barrier_counter[key] = self.dict_barrier_counter.get(key, 0) + 1
            if self.dict_barrier_counter[key] == size:
                del self.dict_barrier_counter[key], self.dict_barrier_event[key]
                event.set()
        event.wait()
        return True

    def user_set(self, key: str, val: Any) -> bool:
        """Store a value."""
        return self._set(self.user_dict, key, val)

    def user_get(self, key: str) -> Any:
        """Wait until a value is stored under the key; the value stays."""
        return self._wait_for(self.user_dict, key, take=False)

    def user_pop(self, key: str) -> Any:
        """Wait until a value is stored under the key; the value is removed."""
        return self._wait_for(self.user_dict, key, take=True)

    def bcast_val(self, val: Any, key: str, size: int) -> Any:
        """The value that one of ``size`` callers gave (the others give None)."""
        with self.lock:
            if val is not None:
                self.bcast_dict[key] = [val, 0]
                self.lock.notify_all()
            self.lock.wait_for(lambda: key in self.bcast_dict)
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
            self.lock.wait_for(lambda: key in store)
            return store.pop(key) if take else store[key]


class ThreadXMLRPCServer(ThreadingMixIn, SimpleXMLRPCServer):
    """XML-RPC with one thread per connection."""

    daemon_threads = True
    request_queue_size = 128


class Server:
    """Serves one world from threads of this process, until it is deleted or the process ends.

    port: of the key-value server, 0 for any; see ``py_server_port``. host: address to listen on; "0.0.0.0" lets other
    machines in. Raises OSError when the port is taken.
    """

    def __init__(self, port: int = 0, host: str = "127.0.0.1") -> None:
        self._bind(port, host)
        self._serve()

    @classmethod
    def _bound(cls, port: int, host: str) -> Server:
        """A server that has its ports, but no threads yet: a process that is to fork has none then."""
        server = cls.__new__(cls)
        server._bind(port, host)
        return server

    def _bind(self, port: int, host: str) -> None:
        self.proc: threading.Thread | None = None
        self._collectives = CollectiveServer(host)
        self.mm_server_port = self._collectives.port
        try:
            self._rpc = ThreadXMLRPCServer(
                (host, port), logRequests=False, allow_none=True, use_builtin_types=True
            )
        except OSError as error:
            self._collectives.close()
            raise OSError(
                error.errno,
                f"cannot listen on {host}:{port}: {error.strerror}; "
                "choose another port, or 0 for any",
            ) from error
        self.py_server_port = self._rpc.server_address[1]
        self._rpc.register_instance(Methods(self.mm_server_port))

    def _serve(self) -> None:
        self._collectives.start()
        self.proc = threading.Thread(
            target=self._rpc.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self.proc.start()

    def _close(self) -> None:
        if self.proc is not None:
            self._rpc.shutdown()
            self.proc = None
        self._rpc.server_close()
        self._collectives.close()

    def __del__(self) -> None:
        if "_rpc" in self.__dict__:  # else the ports could not be had
            self._close()


class Client:
    """Calls the server of a world. Raises RuntimeError when no server answers within 30 seconds."""

    def __init__(self, master_ip: str, port: int) -> None:
        self.master_ip = master_ip
        self.port = port
        self.bcast_dict: dict[str, int] = {}  # key -> how many messages came under it
        self._local = threading.local()
        self.connect()

    @property
    def _proxy(self) -> Any:
        """A connection for each thread: one that waits does not hold up the others."""
        if not hasattr(self._local, "proxy"):
            self._local.proxy = xmlrpc.client.ServerProxy(
                f"http://{self.master_ip}:{self.port}", allow_none=True, use_builtin_types=True
            )
        return self._local.proxy

    def connect(self) -> None:
        """Wait for the server to answer."""
        deadline = time.monotonic() + _CONNECT_SECONDS
        while True:
            try:
                self._proxy.connect()
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        f"no server answers at {self.master_ip}:{self.port}: {error}; "
                        "start a distributed.Server there first"
                    ) from error
                time.sleep(0.1)

    def get_mm_server_port(self) -> int:
        """Port of the server for collective operations."""
        return self._proxy.get_mm_server_port()

    def set_is_grad(self, key: str, is_grad: bool) -> None:
        """Say whether the tensor sent under ``key`` wants a gradient."""
        self._proxy.set_is_grad(key, is_grad)

    def check_is_grad(self, key: str) -> bool:
        """Wait for ``set_is_grad`` and take its answer."""
        return self._proxy.check_is_grad(key)

    def set_remote_tracer(self, key: str, tracer_set: Any) -> None:
        """Say which tracers recorded the tensor sent under ``key``."""
        self._proxy.set_remote_tracer(key, tracer_set)

    def check_remote_tracer(self, key: str) -> Any:
        """Wait for ``set_remote_tracer`` and take its answer."""
        return self._proxy.check_remote_tracer(key)

    def group_barrier(self, key: str, size: int) -> None:
        """Wait until ``size`` processes called it with this key."""
        self._proxy.group_barrier(key, size)

    def user_set(self, key: str, val: Any) -> None:
        """Store a value: a number (32-bit int, float), string, bytes, bool, None, or lists and dicts of them."""
        self._proxy.user_set(key, val)

    def user_get(self, key: str) -> Any:
        """Wait for a value under the key; it stays there."""
        return self._proxy.user_get(key)

    def user_pop(self, key: str) -> Any:
        """Wait for a value under the key; it is removed."""
        return self._proxy.user_pop(key)

    def bcast_val(self, val: Any, key: str, size: int) -> Any:
        """The value that one of ``size`` processes gives; the others give None."""
        count = self.bcast_dict[key] = self.bcast_dict.get(key, 0) + 1
        return self._proxy.bcast_val(val, f"{key}#{count}", size)


def main(port: int = 0, verbose: bool = True) -> None:
    """Serve until interrupted. port: 0 for any."""
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
