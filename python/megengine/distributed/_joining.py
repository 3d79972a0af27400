"""Finds the other processes of a world and connects with each of them.

In: the world's key-value server. Out: a connected socket for each other process. Each listens
on the loopback if the server does, else on all addresses, tells the server the one by which it reaches it, and connects to those of
lower rank; both sides show that they have the token, by signing numbers that the other has drawn
for this connection alone, so overheard messages are of no use.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
import time
from typing import Any

from ..version import megjit_version
from ._environment import LOOPBACK, host_for
from ._store import receive
from .server import Client

_NONCE_BYTES, _SIGNATURE_BYTES = 16, 32
_HELLO = struct.Struct(f">{_NONCE_BYTES}sI")  # a nonce; the rank


def connect(client: Client, rank: int, size: int, seconds: float) -> list[int]:
    """File descriptors of the connections, by rank; -1 at the own one.

    Raises RuntimeError when the processes do not fit together, or one does not come.
    """
    with socket.create_connection((client.master_ip, client.port)) as probe:
        host = probe.getsockname()[0]
    listens_on = host_for(client._listens_on() in LOOPBACK)
    deadline = time.monotonic() + seconds
    sockets: dict[int, socket.socket] = {}
    try:
        with socket.create_server((listens_on, 0), backlog=size) as listener:
            address = [host, listener.getsockname()[1]]
            addresses = client._join(rank, size, megjit_version, address, seconds)
            for other in range(rank):
                sockets[other] = _connection_to(other, rank, addresses[other], client, deadline)
            while len(sockets) < size - 1:
                other, connection = _next_caller(listener, rank, client._token, deadline)
                # a process that has the token, but belongs to another world
                if not rank < other < size or other in sockets:
                    connection.close()
                    continue
                sockets[other] = connection
    except OSError as error:
        for connection in sockets.values():
            connection.close()
        missing = sorted(set(range(size)) - {rank} - set(sockets))
        raise RuntimeError(f"rank {rank} has no connection with rank {missing[0]}: {error}") from error
    for connection in sockets.values():
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # a machine that is gone sends no error
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return [sockets[other].detach() if other != rank else -1 for other in range(size)]


def _connection_to(
    other: int, rank: int, address: list[Any], client: Client, deadline: float
) -> socket.socket:
    host, port = address
    if host.startswith("127."):  # it is on the server's machine, which has another name here
        host = client.master_ip
    connection = socket.create_connection((host, port), _left(deadline))
    hello = _HELLO.pack(secrets.token_bytes(_NONCE_BYTES), rank)
    connection.sendall(hello)
    answer = receive(connection, _HELLO.size)
    proof = receive(connection, _SIGNATURE_BYTES)
    wanted = _signature(client._token, b"listener", hello, answer)
    if _HELLO.unpack(answer)[1] != other or not hmac.compare_digest(proof, wanted):
        connection.close()
        raise OSError("it is another process that answers at its address")
    connection.sendall(_signature(client._token, b"caller", hello, answer))
    return connection


def _next_caller(listener: socket.socket, rank: int, token: str, deadline: float) -> tuple[int, socket.socket]:
    """The rank and connection of the next process that has the token."""
    while True:
        listener.settimeout(_left(deadline))
        connection, _ = listener.accept()
        # a silent process delays the others only briefly
        connection.settimeout(min(5.0, _left(deadline)))
        try:
            hello = receive(connection, _HELLO.size)
            answer = _HELLO.pack(secrets.token_bytes(_NONCE_BYTES), rank)
            connection.sendall(answer + _signature(token, b"listener", hello, answer))
            proof = receive(connection, _SIGNATURE_BYTES)
            if hmac.compare_digest(proof, _signature(token, b"caller", hello, answer)):
                return _HELLO.unpack(hello)[1], connection
        except OSError:
            pass
        connection.close()


def _signature(token: str, side: bytes, hello: bytes, answer: bytes) -> bytes:
    return hmac.digest(token.encode(), side + hello + answer, "sha256")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time is up")
    return left
