"""Processes of one machine read large tensors where they lie, or get them through sockets: the same bits."""

import ctypes
import hashlib
import os
import socket
import struct

import numpy as np
import pytest

import megengine as mge
import megengine.distributed as dist
from megengine.distributed import functional as DF

SIZE = 3
CALLS = [name for name in DF.__all__ if not name.startswith("remote")]
SYSTEM_CALL = 310  # process_vm_readv of x86-64
LIBC = ctypes.CDLL(None, use_errno=True)


def forbid_reading():
    """A filter of system calls, as containers have them: process_vm_readv fails with EPERM."""

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

    code = [(0x20, 0, 0, 0), (0x15, 0, 1, SYSTEM_CALL), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
    program = Program(len(code), b"".join(struct.pack("<HBBI", *line) for line in code))
    assert LIBC.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert LIBC.prctl(22, 2, ctypes.byref(program), 0, 0) == 0, os.strerror(ctypes.get_errno())  # PR_SET_SECCOMP


def may_read_children():
    """Some systems let nobody read another process's memory."""
    value = ctypes.c_uint64(7)
    got = ctypes.c_uint64()
    child = os.fork()
    if child == 0:
        import signal

        signal.pause()
    remote = (ctypes.c_size_t * 2)(ctypes.addressof(value), 8)
    local = (ctypes.c_size_t * 2)(ctypes.addressof(got), 8)
    count = LIBC.process_vm_readv(child, local, 1, remote, 1, 0)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return count == 8 and got.value == 7


def bytes_received():
    """The bytes that all connections of this process have received."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as end:
                total += struct.unpack_from("<Q", end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136), 128)[0]
        except OSError:
            pass
    return total


def results():
    """What each collective gives for each dtype and for lengths that divide and do not: a digest of its bytes."""
    digests = {}
    for dtype in ("float32", "float16", "bfloat16", "int32", "uint8"):
        for length in (3 * 65_536 * 4, 3 * 100_003 * 4, 150_001 * 3):
            values = np.random.RandomState(dist.get_rank()).normal(size=length) * 50
            x = mge.tensor(values.astype("float32")).astype(dtype)
            for name in CALLS:
                result = getattr(DF, name)(x)
                content = b"" if result is None else result.astype("float32").numpy().tobytes()
                digests[f"{name} {dtype} {length}"] = hashlib.sha256(content).hexdigest()
    return digests


def run(prepare):
    @dist.launcher(n_gpus=SIZE, device_type="cpu")
    def body():
        prepare(dist.get_rank())
        mge._core.reload_debug()
        digests, before = results(), bytes_received()
        for name in ("all_reduce_sum", "reduce_sum", "broadcast", "all_gather", "reduce_scatter_sum"):
            getattr(DF, name)(mge.tensor(np.ones(3_000_000, "float32")))
        return digests, bytes_received() - before

    return body()


@pytest.fixture(scope="module")
def through_sockets():
    return run(lambda rank: os.environ.update(MEGJIT_CROSS_MEMORY="0"))


def test_the_same_bits_as_through_sockets(through_sockets):
    read = run(lambda rank: None)
    assert [digests for digests, _ in read] == [digests for digests, _ in through_sockets]
    if may_read_children():
        assert all(received < 100_000 for _, received in read), read
    assert all(received > 10_000_000 for _, received in through_sockets)


@pytest.mark.parametrize("rank", [0, 2])
def test_one_process_that_may_not_or_does_not_want_to(through_sockets, rank):
    forbidden = run(lambda own: forbid_reading() if own == rank else None)
    assert [digests for digests, _ in forbidden] == [digests for digests, _ in through_sockets]
    unwilling = run(lambda own: os.environ.update(MEGJIT_CROSS_MEMORY=str(int(own != rank))))
    assert [digests for digests, _ in unwilling] == [digests for digests, _ in through_sockets]
