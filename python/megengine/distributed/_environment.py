"""Reads what the launcher says about this process: its rank, the size of the world, the meeting
place.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

TOKEN = "MEGENGINE_DISTRIBUTED_TOKEN"  # see _token
# Set by our own launchers: the server runs in the launcher.
HAS_SERVER = "MEGENGINE_DISTRIBUTED_SERVER"

LOOPBACK = ("127.0.0.1", "localhost")

# (launcher, rank, size of the world, rank on this machine); the first whose variables are all set counts.
_LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
_FIRST_PORT, _PORTS = 20000, 10000  # defaults for jobs that name none


@dataclass
class Place:
    """The place of this process in its world."""

    master_ip: str
    port: int
    world_size: int
    rank: int
    device: int
    starts_server: bool = False  # rank 0 starts it, as no launcher has


def host_for(is_alone: bool) -> str:
    """Returns the address to listen on: the loopback, unless processes of the world run on other
    machines.
    """
    return "127.0.0.1" if is_alone else "0.0.0.0"


def place_from_environment() -> Place:
    """Raises RuntimeError where no launcher has started this process, or says too little."""
    for launcher, *names in _LAUNCHERS:
        if names[0] in os.environ and names[1] in os.environ:
            rank, size, local = (_number(name) for name in names)
            return Place(
                _master(launcher), _port(launcher), size, rank, local, HAS_SERVER not in os.environ
            )
    raise RuntimeError(
        "init_process_group() without arguments needs a launcher, and none has started this process\n"
        "  fix: python -m megengine.distributed.run -n 2 script.py; or torchrun, mpiexec, srun; or give master_ip, port, "
        "world_size, rank and device"
    )


def _number(name: str) -> int:
    text = os.environ.get(name, "0")
    try:
        return int(text)
    except ValueError:
        raise RuntimeError(f"the variable {name} must be a number, it is {text!r}") from None


def _master(launcher: str) -> str:
    given = os.environ.get("MASTER_ADDR")
    if given:
        return given
    nodes = os.environ.get("SLURM_JOB_NODELIST") if launcher == "SLURM" else None
    return first_node(nodes) if nodes else "127.0.0.1"


def first_node(nodes: str) -> str:
    """The first node of a list as SLURM writes it: "node[03-05,9],other" begins with "node03"."""
    name, numbers, tail = re.match(r"([^,\[]*)(?:\[([^\]]*)\])?([^,]*)", nodes).groups()  # type: ignore[union-attr]  # matches anything
    return name + re.split("[-,]", numbers or "")[0] + tail


def _port(launcher: str) -> int:
    if "MASTER_PORT" in os.environ:
        port = _number("MASTER_PORT")
        # In this case the port is that of torchrun's own store.
        return port + 1 if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" else port
    if launcher == "SLURM":
        return _FIRST_PORT + _number("SLURM_JOB_ID") % _PORTS
    if launcher != "torchrun":  # processes of one machine have one parent
        return _FIRST_PORT + os.getppid() % _PORTS
    raise RuntimeError("the variable RANK is set, but not MASTER_PORT, where the processes meet")


def variables(place: Place, local_size: int, token: str) -> dict[str, str]:
    """Returns the variables that tell the same to a process that is started."""
    return {
        "MASTER_ADDR": place.master_ip,
        "MASTER_PORT": str(place.port),
        "WORLD_SIZE": str(place.world_size),
        "RANK": str(place.rank),
        "LOCAL_RANK": str(place.device),
        "LOCAL_WORLD_SIZE": str(local_size),
        HAS_SERVER: "1",
        TOKEN: token,
    }
