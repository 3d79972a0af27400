"""Static graphs: ``trace`` records a function once and runs it as a planned program afterwards."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .configs import DTRConfig, GraphOptimizationConfig, SublinearMemoryConfig
from .functions import dump_functions
from .largest_batch import LargestBatch, TriedBatch, largest_batch
from .marks import keep, offload, recompute
from .tracing import TraceError, exclude_from_trace, trace

if _TYPE_CHECKING:
    from .._compat.partial_trace import partial_trace, xla_trace

__all__ = [
    "DTRConfig",
    "GraphOptimizationConfig",
    "LargestBatch",
    "SublinearMemoryConfig",
    "TraceError",
    "TriedBatch",
    "dump_functions",
    "exclude_from_trace",
    "keep",
    "largest_batch",
    "offload",
    "partial_trace",
    "recompute",
    "trace",
    "xla_trace",
]
