"""What a transform is: a function of one sample, applied to all samples of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np


class Transform(ABC):
    """Base class; subclasses define ``apply``."""

    def apply_batch(self, inputs: Sequence[Any]) -> Any:
        """The transformed samples, as a tuple of the same length."""
        return tuple(self.apply(sample) for sample in inputs)

    @abstractmethod
    def apply(self, input: Any) -> Any:
        """The transformed sample."""

    def __repr__(self) -> str:
        return type(self).__name__


class PseudoTransform(Transform):
    """Leaves samples as they are."""

    def apply(self, input: Any) -> Any:
        """``input`` itself."""
        return input


class CudaTransform(Transform):
    """Base for transforms that compute on the device: moves the arrays of a sample there.

    Use it in the main process (``num_workers=0``): tensors do not live in worker processes.
    """

    def apply(self, input: Any) -> Any:
        """The sample with its arrays as tensors on the default device."""
        from ...tensor import Tensor

        if isinstance(input, np.ndarray):
            return Tensor(input)
        if isinstance(input, (tuple, list)):
            return type(input)(self.apply(part) for part in input)
        return input
