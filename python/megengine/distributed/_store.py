"""Calls over TCP: a client asks a server for one of its methods by name.

Both sides begin with a greeting and a random number for this connection. Each later message is its
length (4 bytes), a signature (32 bytes)
and JSON: [method, arguments] there, {"result": value} or {"error": text} back. The world's token
signs both numbers, the side, the message's place and the message. The token itself is never sent,
and overheard messages are of no use.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import socket
import struct
from collections.abc import Mapping
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

MOST_BYTES = 64 << 20  # bytes of one message
_GREETING, _NONCE_BYTES, _SIGNATURE_BYTES = b"megjit store 1\n", 16, 32
_LENGTH = struct.Struct(">I")
_TURNED_AWAY = 0xFFFF_FFFF  # stands where other messages have a length
_GREETING_SECONDS = 10.0  # seconds after which a silent client is dropped


class NoStore(Exception):
    """Raised when another program than our server answers."""


class WrongToken(Exception):
    """The server has another token."""


class Failed(Exception):
    """The server's method raised an error, with this text."""


class _Stream:
    """Signed messages in both directions of one connection."""

    def __init__(self, connection: socket.socket, token: str, nonces: bytes, sides: tuple[bytes, bytes]) -> None:
        self._connection, self._token, self._nonces = connection, token.encode(), nonces
        self._own, self._other = sides
        self._sent = self._received = 0

    def send(self, value: Any) -> None:
        message = json.dumps(_plain(value)).encode()
        if len(message) > MOST_BYTES:
            raise ValueError(f"a message has {len(message):,} bytes, and may have {MOST_BYTES:,}")
        self._connection.sendall(_LENGTH.pack(len(message)) + self._signature(self._own, self._sent, message) + message)
        self._sent += 1

    def receive(self) -> Any:
        """Receives a message. WrongToken if it is not signed with the token, OSError if the
        connection ends.
        """
        (length,) = _LENGTH.unpack(receive(self._connection, _LENGTH.size))
        if length > MOST_BYTES:
            raise WrongToken
        signature = receive(self._connection, _SIGNATURE_BYTES)
        message = receive(self._connection, length)
        if not hmac.compare_digest(signature, self._signature(self._other, self._received, message)):
            raise WrongToken
        self._received += 1
        return json.loads(message, object_hook=_with_bytes)

    def _signature(self, side: bytes, place: int, message: bytes) -> bytes:
        return hmac.digest(self._token, self._nonces + side + place.to_bytes(8, "big") + message, "sha256")


class Connection:
    """One connection of a client; calls follow each other. Raises OSError when no answer comes within ``seconds``, NoStore, or WrongToken."""

    def __init__(self, host: str, port: int, token: str, seconds: float) -> None:
        self._socket = socket.create_connection((host, port), seconds)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            own = secrets.token_bytes(_NONCE_BYTES)
            self._socket.sendall(_GREETING + own)
            if (greeting := self._socket.recv(len(_GREETING))) and not _GREETING.startswith(greeting):
                raise NoStore(f"it says {greeting!r}")
            rest = receive(self._socket, len(_GREETING) - len(greeting) + _NONCE_BYTES)
        except BaseException:
            self._socket.close()
            raise
        self._stream = _Stream(self._socket, token, own + rest[-_NONCE_BYTES:], (b"client", b"server"))

    def call(self, method: str, arguments: tuple[Any, ...], seconds: float) -> Any:
        """Returns the result of the method. Failed if it raises an error."""
        self._socket.settimeout(seconds)
        self._stream.send([method, list(arguments)])
        answer = self._stream.receive()
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["result"]

    def close(self) -> None:
        self._socket.close()

    def __del__(self) -> None:
        if "_socket" in self.__dict__:  # otherwise nothing answered
            self.close()


class _Handler(BaseRequestHandler):
    """Answers one connection, in its own thread, and refuses clients without the token."""

    server: StoreServer

    def handle(self) -> None:
        connection: socket.socket = self.request
        connection.settimeout(_GREETING_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # a machine that is gone sends no error
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10)):
            connection.setsockopt(socket.IPPROTO_TCP, option, seconds)
        try:
            if receive(connection, len(_GREETING)) != _GREETING:
                return
            other, own = receive(connection, _NONCE_BYTES), secrets.token_bytes(_NONCE_BYTES)
            connection.sendall(_GREETING + own)
            stream = _Stream(connection, self.server.token, other + own, (b"server", b"client"))
            while True:
                method, arguments = stream.receive()
                connection.settimeout(None)  # it has the token, and may take its time
                self.server.clients.add(self)
                try:
                    stream.send({"result": self._result(method, arguments)})
                except OSError:
                    raise
                except Exception as error:
                    stream.send({"error": str(error) or type(error).__name__})
        except WrongToken:
            connection.sendall(_LENGTH.pack(_TURNED_AWAY))
        except OSError:  # the client has gone
            pass
        finally:
            self.server.clients.discard(self)

    def _result(self, name: str, arguments: list[Any]) -> Any:
        method = None if name.startswith("_") else getattr(self.server.methods, name, None)
        if not callable(method):
            raise AttributeError(f"this server has no method {name!r}")
        return method(*arguments)


class StoreServer(ThreadingTCPServer):
    """Answers calls of the public methods of ``methods``, with one thread a connection."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], token: str) -> None:
        self.token = token
        self.methods: object = None
        self.clients: set[_Handler] = set()  # connections of clients that have the token
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores an error: a stranger's bytes must not show in this program's output."""


def receive(connection: socket.socket, size: int) -> bytes:
    """Receives exactly ``count`` bytes. OSError if the connection ends before."""
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        step = connection.recv_into(view[done:])
        if not step:
            raise ConnectionError("the connection was closed")
        done += step
    return bytes(data)


def _plain(value: Any) -> Any:
    """Returns a value as JSON holds it, bytes as text. TypeError for a value that JSON would
    change.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return {_BYTES: base64.b64encode(value).decode()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or key == _BYTES:
                raise TypeError(f"a dict for other processes has texts as keys, not {key!r}")
        return {key: _plain(each) for key, each in value.items()}
    raise TypeError(f"other processes can be sent numbers, texts, bytes, None, lists and dicts of these, not a {type(value).__name__}")


_BYTES = "\0bytes"


def _with_bytes(found: dict[str, Any]) -> Any:
    return base64.b64decode(found[_BYTES]) if _BYTES in found else found
