"""Base of transforms: functions of one sample, applied to all samples of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...tensor import Tensor


class Transform(ABC):
    """The base class of transforms; subclasses define ``apply`` for one sample.

    Examples
    --------
    >>> class Double(Transform):
    ...     def apply(self, input):
    ...         return 2 * input
    >>> Double().apply_batch([1, 2, 3])
    (2, 4, 6)
    """

    def apply_batch(self, inputs: Sequence[Any]) -> Any:
        """Transforms several samples.

        Parameters
        ----------
        inputs : sequence
            The samples of a batch.

        Returns
        -------
        object
            The transformed samples, as many as were given.
        """
        return tuple(self.apply(sample) for sample in inputs)

    @abstractmethod
    def apply(self, input: Any) -> Any:
        """Transforms one sample.

        Parameters
        ----------
        input : object
            The sample that is transformed.

        Returns
        -------
        object
            The transformed sample.
        """

    def __repr__(self) -> str:
        return type(self).__name__


class PseudoTransform(Transform):
    """Does nothing: samples stay as they are.

    Examples
    --------
    >>> PseudoTransform().apply("sample")
    'sample'
    """

    def apply(self, input: object) -> Any:
        """Returns ``input`` itself.

        Parameters
        ----------
        input : object
            Any sample; it is returned as it is.

        Returns
        -------
        object
            ``input`` itself.
        """
        return input


class CudaTransform(Transform):
    """Turns the arrays of samples into tensors on the default device; the base class of transforms
    that compute there.

    Needs a `DataLoader` with ``num_workers=0``: worker processes have no devices.

    Examples
    --------
    >>> import numpy as np
    >>> image, label = CudaTransform().apply((np.zeros((2, 3), np.float32), 5))
    >>> type(image).__name__, label
    ('Tensor', 5)
    """

    def apply(self, input: Any) -> Any:
        """Returns the sample with its arrays as tensors on the default device.

        Parameters
        ----------
        input : object
            The sample that is transformed.

        Returns
        -------
        object
            The sample, with tensors for arrays.
        """
        if isinstance(input, np.ndarray):
            return Tensor(input)
        if isinstance(input, (tuple, list)):
            return type(input)(self.apply(part) for part in input)
        return input
