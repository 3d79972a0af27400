"""Counts the buckets of `DistributedDataParallel`, which are as large as the gradients that they
gather.
"""

from __future__ import annotations

import weakref
from typing import Any

from ._private import active_ddp

# module that has called a graph of ours -> bytes of its buckets
_bytes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def bucket_bytes() -> int:
    """Returns the bytes of the buckets of all such modules that live, with the one whose forward runs."""
    if (module := active_ddp()) is not None and module not in _bytes:
        trained = [each for each in module.module.parameters() if each.requires_grad]
        _bytes[module] = sum(each.numel() * each.element_size() for each in trained)
    return sum(_bytes.values())
