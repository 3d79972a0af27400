"""megjit: a JIT-compiling static-graph runtime for deep learning, with the megengine API."""

import importlib as _importlib
import typing as _typing

from . import _core  # noqa: F401  (first: everything else stands on it)

from .tensor import Parameter, Tensor  # isort: skip

tensor = Tensor

from . import (  # noqa: E402
    amp,
    autodiff,
    config,
    device,
    distributed,
    distributions,
    dtr,
    functional,
    jit,
    module,
    optimizer,
    quantization,
    random,
    utils,
)
from ._installation import check_misc  # noqa: E402
from .core._imperative_rt.core2 import full_sync as _full_sync  # noqa: E402
from .device import *  # noqa: E402,F403
from .logger import enable_debug_log, get_logger, set_log_file, set_log_level  # noqa: E402
from .serialization import load, save  # noqa: E402
from .utils import comp_graph_tools as cgtools  # noqa: E402
from .version import __version__  # noqa: E402

if _typing.TYPE_CHECKING:
    from . import data, fx, hub, traced_module

_LAZY = ("data", "fx", "hub", "traced_module")  # worker processes, graphs, downloads: loaded when first named


def __getattr__(name: str) -> _typing.Any:
    if name in _LAZY:
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
