"""Static graphs: ``trace`` records a function once and runs it as a planned program afterwards."""

from .configs import DTRConfig, GraphOptimizationConfig, SublinearMemoryConfig
from .marks import keep, offload, recompute
from .partial import partial_trace, xla_trace
from .tracing import TraceError, exclude_from_trace, trace

__all__ = [
    "DTRConfig",
    "GraphOptimizationConfig",
    "SublinearMemoryConfig",
    "TraceError",
    "exclude_from_trace",
    "keep",
    "offload",
    "partial_trace",
    "recompute",
    "trace",
    "xla_trace",
]
