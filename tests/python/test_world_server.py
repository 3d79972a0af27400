"""The world's server: values, barriers, who joins, and who has the token."""

import socket
import threading
import time

import pytest

import megengine.distributed as dist


@pytest.fixture
def server():
    server = dist.Server()
    yield server
    server._close()


def test_a_value_is_waited_for_and_can_be_taken(server):
    client = dist.Client("localhost", server.py_server_port)
    other = dist.Client("localhost", server.py_server_port)
    threading.Timer(0.1, client.user_set, ("k", {"a": [1, None, b"x"]})).start()
    assert other.user_get("k") == {"a": [1, None, b"x"]} and other.user_pop("k") == {
        "a": [1, None, b"x"]
    }
    client.set_is_grad("t", True)
    assert other.check_is_grad("t") is True
    assert client.get_mm_server_port() == server.mm_server_port


def test_who_waits_for_a_message_is_told_when_one_that_it_holds_back_is_taken(server):
    waiting, other = (dist.Client("localhost", server.py_server_port) for _ in range(2))
    waiting.user_set("held", 1)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(waiting._pop_message("what nobody sets", ["held"])))
    thread.start()
    time.sleep(0.2)  # it waits at the server
    assert other.user_pop("held") == 1
    thread.join(30)
    assert answers == [[False, ["held"]]]


def test_a_barrier_opens_when_all_are_there(server):
    done = []

    def wait():
        dist.Client("localhost", server.py_server_port).group_barrier("0,1", 2)
        done.append(time.monotonic())

    threads = [threading.Thread(target=wait) for _ in range(2)]
    threads[0].start()
    time.sleep(0.2)
    assert not done
    threads[1].start()
    for thread in threads:
        thread.join(5)
    assert len(done) == 2


def test_a_taken_port_is_told(server):
    with pytest.raises(OSError, match="choose another port"):
        dist.Server(server.py_server_port)


def joined(calls):
    """What several clients of one server are told when they join: (rank, size, version)."""
    server = dist.Server(token="secret")
    told = [None] * len(calls)

    def join(i, rank, size, version):
        try:
            told[i] = dist.Client("localhost", server.py_server_port, "secret")._join(rank, size, version, ["", i], 30)
        except RuntimeError as error:
            told[i] = str(error)

    threads = [threading.Thread(target=join, args=(i, *call)) for i, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    server._close()
    return told


@pytest.mark.parametrize(
    "calls, words",
    [
        ([(0, 2, "1"), (1, 3, "1")], "same world_size"),
        ([(0, 3, "1"), (1, 3, "1"), (1, 3, "1")], "two processes joined the world as rank 1"),
        ([(0, 2, "1"), (1, 2, "2")], "one version everywhere"),
    ],
    ids=["sizes", "ranks", "versions"],
)
def test_processes_that_do_not_fit_are_told_all_of_them(calls, words):
    assert all(words in text for text in joined(calls))


def test_who_comes_to_a_complete_world_by_mistake_is_no_failure_of_it():
    server = dist.Server(token="secret")
    clients = [dist.Client("localhost", server.py_server_port, "secret") for _ in range(3)]
    member = threading.Thread(target=clients[0]._join, args=(0, 2, "1", ["", 0], 30))
    member.start()
    clients[1]._join(1, 2, "1", ["", 1], 30)
    member.join()
    for rank, size in ((1, 2), (2, 3)):
        with pytest.raises(RuntimeError, match="another world has this server's port"):
            clients[2]._join(rank, size, "1", ["", 2], 30)
        assert clients[2]._fail(rank, "it is not where it should be") == ""
    clients[1].user_set("key", 7)
    assert clients[0].user_get("key") == 7  # its members are told of no failure
    clients[0]._fail(0, "a failure of its own")
    with pytest.raises(RuntimeError, match="rank 0 failed: a failure of its own"):
        clients[1].user_get("what nobody sets")
    server._close()


def test_addresses_come_by_rank():
    assert joined([(1, 2, "1"), (0, 2, "1")]) == [[["", 1], ["", 0]]] * 2


def test_who_does_not_join_is_named():
    server = dist.Server(token="secret")
    client = dist.Client("localhost", server.py_server_port, "secret")
    with pytest.raises(RuntimeError, match="rank 1 did not join the world of 2 within 0.1 s"):
        client._join(0, 2, "1", ["", 0], 0.1)
    server._close()


def test_the_token_never_travels_and_what_was_overheard_is_of_no_use(monkeypatch):
    server = dist.Server(token="secret")
    client = dist.Client("127.0.0.1", server.py_server_port, token="secret")
    client.user_set("a", 0)
    sent = []

    class Overheard(socket.socket):
        def sendall(self, data):
            sent.append(bytes(data))
            super().sendall(data)

    monkeypatch.setattr(socket, "socket", Overheard)
    other = dist.Client("127.0.0.1", server.py_server_port, token="secret")
    sent.clear()
    other.user_set("a", 1)
    monkeypatch.undo()
    greeting, overheard = (next(data for data in sent if words in data) for words in (b"megjit", b"user_set"))
    assert b'["user_set", ["a", 1]]' in overheard and b"secret" not in greeting + overheard
    client.user_set("a", 2)
    for forged in (overheard, overheard.replace(b'"a", 1', b'"a", 9'), b"\xff" * 40):
        with socket.create_connection(("127.0.0.1", server.py_server_port)) as connection:
            connection.sendall(greeting + forged)
            answer = b""
            while step := connection.recv(1 << 16):
                answer += step
            assert answer.startswith(b"megjit store 1\n") and answer.endswith(b"\xff\xff\xff\xff")
    assert client.user_get("a") == 2


def test_a_client_without_the_token_is_turned_away():
    server = dist.Server(token="secret")
    with pytest.raises(RuntimeError, match="another token; set MEGENGINE_DISTRIBUTED_TOKEN"):
        dist.Client("localhost", server.py_server_port, "guessed")
    server._close()


def test_a_barrier_of_the_server_has_a_time_limit():
    server = dist.Server()
    with pytest.raises(RuntimeError, match="1 of 2 processes came to the barrier 'x' within 0.1 s"):
        dist.Client("localhost", server.py_server_port).group_barrier("x", 2, 0.1)
    server._close()


def test_who_comes_to_a_barrier_of_the_server_again_is_not_two():
    server = dist.Server(0)
    client = dist.Client("127.0.0.1", server.py_server_port)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="1 of 2 processes came to the barrier 'start' within 0.1 s"):
            client.group_barrier("start", 2, 0.1)


def test_what_was_overheard_of_a_greeting_opens_no_connection():
    """A recorded caller is turned away, and so is a listener who lacks the token."""
    from megengine.distributed import _joining

    class Caller:  # what _connection_to asks of a client
        master_ip, _token = "127.0.0.1", "secret"

    def listen(token, deadline, found):
        try:
            rank, accepted = _joining._next_caller(listener, 0, token, deadline)
            accepted.close()
            found.append(rank)
        except TimeoutError:
            found.append(None)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = ["127.0.0.1", listener.getsockname()[1]]
        deadline, found = time.monotonic() + 30, []
        thread = threading.Thread(target=listen, args=("secret", deadline, found))
        thread.start()
        real, sent = socket.socket.sendall, []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket.socket, "sendall", lambda self, data: (sent.append((self, data)), real(self, data))[1])
            connection = _joining._connection_to(0, 1, address, Caller(), deadline)
            thread.join()
        assert found == [1]
        overheard = [data for who, data in sent if who is connection]
        thread = threading.Thread(target=listen, args=("secret", time.monotonic() + 2, found))
        thread.start()
        with socket.create_connection(tuple(address)) as thief:
            thief.sendall(b"".join(overheard))
            thread.join()
        assert found == [1, None]
        thread = threading.Thread(target=listen, args=("other", time.monotonic() + 2, found))
        thread.start()
        with pytest.raises(OSError, match="another process"):
            _joining._connection_to(0, 1, address, Caller(), time.monotonic() + 30)
        thread.join()
        assert found == [1, None, None]
        connection.close()


def test_a_server_that_answers_no_more_is_an_error(monkeypatch):
    """The machine of the server may be gone, which says nothing."""
    from megengine.distributed import server as module

    monkeypatch.setattr(module, "_SLACK_SECONDS", 0.2)
    server = dist.Server(token="secret")
    client = dist.Client("127.0.0.1", server.py_server_port, token="secret")
    answers = threading.Event()
    server._methods.user_get = lambda key: answers.wait(60)
    with pytest.raises(RuntimeError, match=rf"the server at 127.0.0.1:{server.py_server_port} does not answer any more: timed out"):
        client._call("user_get", "key", seconds=0.1)
    answers.set()
    assert client._call("user_get", "key", seconds=60) is True
    server._close()
    with pytest.raises(RuntimeError, match="does not answer any more"):
        for _ in range(3):  # the thread that serves this connection may answer once more
            client._call("user_pop", "key", seconds=0.1)


def test_a_barrier_of_the_server_has_one_size():
    server = dist.Server(token="secret")
    first, second = (dist.Client("127.0.0.1", server.py_server_port, token="secret") for _ in range(2))
    thread = threading.Thread(target=lambda: pytest.raises(RuntimeError, first.group_barrier, "key", 3, 1.0))
    thread.start()
    while not server._methods.dict_barrier_counter:
        time.sleep(0.01)
    with pytest.raises(RuntimeError, match="the barrier 'key' is one of 3 processes here, and one of 2 there"):
        second.group_barrier("key", 2, 10.0)
    thread.join()
