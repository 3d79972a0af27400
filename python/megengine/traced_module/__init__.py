"""Modules as graphs: trace a module, look at it, change it, save it.

>>> import megengine as mge, megengine.module as M, megengine.traced_module as tm
>>> traced = tm.trace_module(M.Sequential(M.Linear(2, 3), M.ReLU()), mge.tensor([[1.0, 2.0]]))
>>> print([expr.method for expr in traced.graph.get_method_by_type("__call__")])
['__call__', '__call__']
"""

from .._files.container import ModelFileError
from ._file import load
from ._passes import optimize
from .pytree import register_supported_type
from .tm_config import disable_default_checker, enable_expr_checker
from .traced_module import TracedModule, register_as_builtin, trace_module, wrap

__all__ = [
    "ModelFileError", "TracedModule", "disable_default_checker", "enable_expr_checker", "load", "optimize",
    "register_as_builtin", "register_supported_type", "trace_module", "wrap",
]  # fmt: skip
