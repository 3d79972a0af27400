"""Training by several processes: groups, collective operations, a launcher, a key-value server.

Without ``init_process_group`` the rank is 0, the world has one process, and every collective operation returns its input: a program
written for many processes runs unchanged as one.
"""

import importlib as _importlib
import sys as _sys
import types as _types
import typing as _typing

from . import group as group
from .group import WORLD as WORLD
from .group import Group as Group
from .group import get_backend as get_backend
from .group import get_client as get_client
from .group import get_local_device_id as get_local_device_id
from .group import get_mm_server_addr as get_mm_server_addr
from .group import get_py_server_addr as get_py_server_addr
from .group import get_rank as get_rank
from .group import get_world_size as get_world_size
from .group import group_barrier as group_barrier
from .group import init_process_group as init_process_group
from .group import is_distributed as is_distributed
from .group import new_group as new_group
from .group import override_backend as override_backend
from .group import set_timeout as set_timeout
from .helper import bcast_list_ as bcast_list_
from .helper import get_free_ports as get_free_ports
from .helper import group_end as group_end
from .helper import group_start as group_start
from .helper import make_allreduce_cb as make_allreduce_cb
from .helper import set_bucket_sizes as set_bucket_sizes
from .helper import synchronized as synchronized
from .launcher import launcher as launcher

if _typing.TYPE_CHECKING:
    from . import checkpoint as checkpoint
    from . import fsdp as fsdp
    from .server import Client as Client
    from .server import Server as Server


def __getattr__(name: str) -> _typing.Any:
    if name in ("Client", "Server"):  # only programs that start a world need them
        return getattr(_importlib.import_module(f"{__name__}.server"), name)
    if name in ("checkpoint", "fsdp", "ray"):
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _DistributedModule(_types.ModuleType):
    """This module, with ``backend`` as a property that can be set."""

    def __reduce__(self) -> tuple[_typing.Any, ...]:
        """Pickles the module by its name: cloudpickle, and so Ray, sends functions with the modules
        that they name.
        """
        return _importlib.import_module, (self.__name__,)

    @property
    def backend(self) -> str:
        return group.get_backend()

    @backend.setter
    def backend(self, value: str) -> None:
        group._set_backend(value)


_sys.modules[__name__].__class__ = _DistributedModule
