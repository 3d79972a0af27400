"""Older place of ``megengine.functional.metric``, and a check of values."""

import numpy as np

from ..logger import get_logger
from ..tensor import Tensor
from .metric import topk_accuracy

__all__ = ["topk_accuracy"]


def _assert_equal(
    expect: Tensor, actual: Tensor, *, maxerr: float = 0.0001, verbose: bool = False
) -> Tensor:
    """``actual``, after a look at both: RuntimeError where they differ by more than ``maxerr`` of the larger, or of 1.

    verbose: log the largest difference in any case.
    """
    wanted, found = (x.numpy().astype(np.float64) for x in (expect, actual))
    scale = np.maximum(np.maximum(abs(wanted), abs(found)), 1)
    worst = float((abs(wanted - found) / scale).max(initial=0))
    if verbose:
        get_logger(__name__).info("_assert_equal: largest difference %g", worst)
    if not worst <= maxerr:
        raise RuntimeError(f"_assert_equal: values differ by {worst:g}, more than {maxerr:g}")
    return actual
