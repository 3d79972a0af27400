"""Functions of tensors. Losses, measures and functions of images have modules of their own.

Operands of elementwise functions are tensors or numbers; they broadcast, and their dtypes are
promoted. Axes may be negative: they count from the end. Arguments stay as they are, except for the
running statistics of `batch_norm`.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .. import _words
from . import debug_param as debug_param
from . import fft as fft
from . import linalg as linalg
from . import loss as loss
from . import metric as metric
from . import nn as nn
from . import vision as vision
from ._control_flow import cond as cond
from ._control_flow import scan as scan
from ._control_flow import while_loop as while_loop
from .einsum import einsum as einsum
from .elemwise import *  # noqa: F403
from .elemwise import lerp as lerp
from .math import *  # noqa: F403
from .metric import topk_accuracy as topk_accuracy
from .nn import *  # noqa: F403
from .tensor import *  # noqa: F403

if not _TYPE_CHECKING:
    __getattr__ = _words.module_getattr(__name__, "F")
