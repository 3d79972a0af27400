"""megjit: a JIT-compiling static-graph runtime for deep learning, with the megengine API."""

import importlib as _importlib
import sys as _sys
import typing as _typing

from . import _core  # noqa: F401  (first: everything else stands on it)

from .tensor import Parameter as Parameter  # isort: skip
from .tensor import Tensor as Tensor  # isort: skip

tensor = Tensor

from . import _words
from . import amp as amp
from . import autodiff as autodiff
from . import config as config
from . import device as device
from . import distributed as distributed
from . import distributions as distributions
from . import dtr as dtr
from . import functional as functional
from . import jit as jit
from . import module as module
from . import optimizer as optimizer
from . import quantization as quantization
from . import random as random
from . import utils as utils
from ._words import switches as _switches
from .core import _older_names as _older_names
from .device import *  # noqa: F403
from .logger import enable_debug_log as enable_debug_log
from .logger import get_logger as get_logger
from .logger import set_log_file as set_log_file
from .logger import set_log_level as set_log_level
from .reports.installation import check_misc as check_misc
from .serialization import load as load
from .serialization import save as save
from .version import __version__ as __version__

if _typing.TYPE_CHECKING:
    from . import data as data
    from . import fx as fx
    from . import hub as hub
    from . import traced_module as traced_module

_switches.warn()
_words.explain_keywords()
_words.explain_in_notebooks()

_LAZY = ("data", "fx", "hub", "traced_module")  # worker processes, graphs, downloads: loaded when first named


def __getattr__(name: str) -> _typing.Any:
    if name in _LAZY:
        return _importlib.import_module(f"{__name__}.{name}")
    raise _words.missing_name(f"module {__name__!r}", name, "mge", _sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


_older_names.install()
