"""Reports: those of ``python -m megengine``, the pages of plans and graphs, and progress of long
calls.
"""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    """A report loads when it is first named: it needs most of the package, of which progress bars
    need nothing.
    """
    if name in ("graphs", "kernels", "package", "plans", "tensors", "world"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
