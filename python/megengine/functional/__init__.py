"""Functions on tensors."""

from . import (
    debug_param,
    distributed,
    external,
    inplace,
    loss,
    metric,
    nn,
    tensor_cache,
    utils,
    vision,
)
from .einsum import einsum
from .elemwise import *  # noqa: F403
from .math import *  # noqa: F403
from .metric import topk_accuracy
from .nn import *  # noqa: F403
from .tensor import *  # noqa: F403

_modules = (
    debug_param,
    distributed,
    external,
    inplace,
    loss,
    metric,
    nn,
    tensor_cache,
    utils,
    vision,
)
_functions = (einsum, topk_accuracy)
