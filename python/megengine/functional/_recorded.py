"""The functions whose calls tracers of module graphs see."""

import sys
from collections.abc import Iterator
from types import FunctionType

from . import debug_param, loss, metric, nn, vision

MODULES = (debug_param, loss, metric, nn, vision)


def recorded_functions() -> Iterator[FunctionType]:
    """The public functions of `megengine.functional` and of its modules."""
    package = sys.modules[__package__]
    for module in (package, *MODULES):
        for name, found in vars(module).items():
            if isinstance(found, FunctionType) and not name.startswith("_"):
                if found.__module__.startswith(package.__name__):
                    yield found
