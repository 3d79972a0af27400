"""MPI, as mpi4py has found it: its handles for the engine of collective operations (backends/processes/mpi), and where a world meets.

mpi4py is imported only where MPI is asked for. Processes that mpiexec or srun has started need neither addresses nor a token: rank 0
tells them by MPI.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from typing import Any

from . import _engine
from ._environment import TOKEN, Place, host_for
from ._token import new_token
from .server import Server

_CONSTANTS = (
    "BYTE", "FLOAT", "DOUBLE", "INT8_T", "INT16_T", "INT32_T", "INT64_T", "UINT8_T", "UINT16_T", "C_FLOAT_COMPLEX",
    "SUM", "PROD", "MAX", "MIN",
)  # fmt: skip


_ends_with_us = False  # otherwise the program has imported mpi4py, which ends MPI itself


class Mpi:
    """This process's MPI, and a communicator of the world in the order of ranks.

    Raises RuntimeError, with the way out, if MPI is missing or too old, or has another world.
    """

    def __init__(self, rank: int, size: int) -> None:
        self._mpi = mpi = _imported()
        theirs = mpi.COMM_WORLD.size
        if theirs != size:
            raise RuntimeError(
                f"backend 'mpi': MPI started {theirs} process{'es' * (theirs > 1)} together, and the world has {size}\n"
                f"  fix: start the program by mpiexec -n {size} or srun --mpi=pmix"
            )
        if mpi.Query_thread() < mpi.THREAD_SERIALIZED:
            raise RuntimeError(
                "backend 'mpi': MPI was initialized for one thread alone\n"
                "  fix: leave mpi4py.rc.thread_level as it is, 'multiple'"
            )
        self._world = mpi.COMM_WORLD.Split(0, rank)

    def meet(self, place: Place) -> Server | None:
        """Starts the world's server in rank 0, which tells its address to the others; ``place``
        gets it. Returns the server in rank 0.
        """
        machines = self._world.allgather(_engine.machine())
        server, told = None, None
        if place.rank == 0:
            is_alone = len(set(machines)) == 1
            token = os.environ.get(TOKEN) or new_token()
            server = Server(0, host_for(is_alone), token)
            told = ("127.0.0.1" if is_alone else socket.gethostname(), server.py_server_port, token)
        place.master_ip, place.port, os.environ[TOKEN] = self._world.bcast(told)
        return server

    def handles(self) -> tuple[str, int, dict[str, int]]:
        """Returns (a file that has MPI's functions, the communicator, constants by name): what
        `_core.World.use_mpi` takes.
        """
        number = {name: _unsigned(self._mpi._handleof(getattr(self._mpi, name))) for name in _CONSTANTS}
        number["IN_PLACE"] = _unsigned(int(self._mpi.IN_PLACE))
        return self._mpi.__file__, _unsigned(self._mpi._handleof(self._world)), number

    def end(self) -> None:
        """Ends MPI in a process whose world had no failure; every process of the world calls it."""
        if _ends_with_us and not self._mpi.Is_finalized():
            # It waits for the others, which may still call the server of this process; mpi4py's own function would hold the interpreter.
            ctypes.CDLL(self._mpi.__file__).MPI_Finalize()


def _imported() -> Any:
    global _ends_with_us
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            mpi4py.rc.finalize = False  # a wait for a process that failed would never end
            _ends_with_us = True
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            f"backend 'mpi': {error}\n"
            "  fix: pip install 'megjit[mpi]', which brings an MPI; or pip install 'mpi4py>=4.1' where the cluster has one"
        ) from None
    if not hasattr(MPI, "_handleof"):
        raise RuntimeError(
            f"backend 'mpi': mpi4py {mpi4py.__version__} does not give its handles\n  fix: pip install 'mpi4py>=4.1'"
        )
    return MPI


def _unsigned(handle: int) -> int:
    return handle & (1 << 64) - 1
