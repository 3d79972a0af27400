"""Chooses the engine that moves host tensors between the processes of a world.

``local``: ours, for one machine: sockets, and reading what others have in their memory. ``mpi``: the cluster's own (`_mpi`).
``gloo``: a plug-in over libgloo, where the build found it. ``tcp``: ours, through sockets alone. ``auto`` decides by where the processes run. Tensors of GPUs go by NCCL where that is chosen
(`_nccl`).
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from functools import cache

from .. import _core
from ..core._telling import is_first
from ..logger import get_logger
from ._environment import HAS_SERVER

HOST_ENGINES = ("mpi", "gloo", "local", "tcp")
BACKENDS = ("auto", "nccl", *HOST_ENGINES)
_OF_VENDORS = ("rccl", "cncl", "hccl", "ucx", "shm")  # older programs name these
COMM = "MEGJIT_COMM"
# Variables that tell how many machines a world spans, or how many processes are here: (variable, None or the value from which it must differ).
_SPANS = (
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"),
    ("MPI_LOCALNRANKS", "PMI_SIZE"),
    ("SLURM_JOB_NUM_NODES", None),
)


def checked(name: str) -> str:
    """The backend that a program means by a name. ValueError for an unknown one."""
    if name in _OF_VENDORS:
        if is_first(("backend", name)):
            get_logger(__name__).warning("backend %r is not an engine of megjit: it means 'auto'", name)
        return "auto"
    if name not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {name!r}")
    return name


def chosen(given: str) -> tuple[str, str]:
    """Returns (backend, engine for tensors of the host or "auto"), from the program's backend or
    else ``MEGJIT_COMM``. ValueError for an unknown name.
    """
    backend = checked(given)
    try:
        by_user = checked(os.environ.get(COMM) or "auto")
    except ValueError as error:
        raise ValueError(f"{COMM}: {error}") from None
    if backend == "auto":
        backend = by_user
    return backend, next((each for each in (backend, by_user) if each in HOST_ENGINES), "auto")


def is_mpis_turn() -> bool:
    """Whether ``auto`` means MPI: mpiexec or srun has started this process in a world of several machines, and mpi4py is installed."""
    if HAS_SERVER in os.environ:  # our launchers set it
        return False
    for own, other in _SPANS:
        here = os.environ.get(own)
        if here is not None and here != (os.environ.get(other) if other else "1"):
            return importlib.util.find_spec("mpi4py") is not None
    return False


def gloo() -> str:
    """The file of the plug-in that exchanges tensors by Gloo. RuntimeError, which tells what to
    install, if it is missing.
    """
    plugin = os.path.join(os.path.dirname(_core.__file__), "libmegjit_gloo.so")
    if not os.path.exists(plugin):
        raise RuntimeError(
            "backend 'gloo': this build of megjit was made without Gloo, as the wheels are\n"
            "  fix: apt-get install libgloo-dev, then build megjit from its source; or backend='tcp'"
        )
    try:
        ctypes.CDLL(plugin)
    except OSError as error:
        raise RuntimeError(f"backend 'gloo': {error}\n  fix: apt-get install libgloo0; or backend='tcp'") from None
    return plugin


@cache
def _has_gloo() -> bool:
    try:
        return bool(gloo())
    except RuntimeError:
        return False


def machine() -> str:
    """Returns a unique name of this machine; a container with a network of its own counts as one.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()}/{os.readlink('/proc/self/ns/net')}"
    except OSError:
        return os.uname().nodename


def settled(engine: str, told: list[str], rank: int = 0) -> str:
    """Returns the engine of a world from the `place_of` of each process, by rank. RuntimeError if
    they do not match.
    """
    engines, gloos, machines = zip(*(each.split(" ", 2) for each in told), strict=True)
    for other, its in enumerate(engines):
        if its != engines[0]:
            raise RuntimeError(f"rank 0 has the backend {engines[0]!r}, and rank {other} {its!r}; give all the same")
    count = len(set(machines))
    if engine == "local" and count > 1:
        far = next(other for other, each in enumerate(machines) if each != machines[0])
        raise RuntimeError(
            f"backend 'local' is for processes of one machine, and rank {far} runs on another one than rank 0\n"
            "  fix: backend='auto', 'mpi', 'gloo' or 'tcp'"
        )
    if engine != "auto":
        return engine
    if count > 1 and "-" not in gloos:
        return "gloo"
    if count > 2 and rank == 0:
        get_logger(__name__).warning(
            "%d machines exchange tensors by plain TCP; MPI, which knows their network, is used where mpiexec or srun starts the "
            "program and mpi4py is installed: pip install 'megjit[mpi]', or mpi4py for the MPI that is there; Gloo where megjit is "
            "built with it: apt-get install libgloo-dev", count
        )  # fmt: skip
    return "local" if count == 1 else "tcp"


def place_of(engine: str, is_alone: bool) -> str:
    """Returns the text that a process tells the others when it joins: engine, gloo, machine.
    is_alone: all processes run on this machine.
    """
    return f"{engine} {'-' if is_alone or not _has_gloo() else 'gloo'} {machine()}"


def machines_of(told: list[str]) -> list[str]:
    """The machine of each process, by rank."""
    return [each.split(" ", 2)[2] for each in told]
