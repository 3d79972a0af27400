"""Merging a list of samples into one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core._tree import branch_of


class Collator:
    """Merges samples into a batch: stacks equal parts along a new first axis.

    * arrays (H, W, C) and tensors become an array (N, H, W, C) of the same dtype on the host
    * int becomes int32 (N,), float becomes float32 (N,), bool becomes bool (N,); NumPy scalars keep their dtype
    * str and bytes become a list
    * tuples, lists, mappings and dataclasses are merged part by part

    Subclasses that define ``apply`` merge in other ways.

    Examples
    --------
    >>> import numpy as np
    >>> images, labels = Collator().apply([(np.zeros((4, 6)), 0), (np.ones((4, 6)), 1)])
    >>> images.shape, labels
    ((2, 4, 6), array([0, 1], dtype=int32))
    """

    def apply(self, inputs: Sequence[Any]) -> Any:
        """Returns the batch of some samples.

        Parameters
        ----------
        inputs : sequence
            A non-empty sequence of samples of the same structure.

        Returns
        -------
        object
            The batch, in the structure of a sample.

        Raises
        ------
        TypeError
            For parts that cannot be merged.
        ValueError
            For no samples, or for samples that differ in shape or length.
        """
        if len(inputs) == 0:
            raise ValueError("cannot merge an empty list of samples into a batch")
        first = inputs[0]
        if isinstance(first, np.ndarray):
            return _stack(inputs)
        if isinstance(first, np.generic):
            return np.array(inputs)
        if isinstance(first, bool):
            return np.array(inputs, dtype=bool)
        if isinstance(first, int):
            return np.array(inputs, dtype=np.int32)
        if isinstance(first, float):
            return np.array(inputs, dtype=np.float32)
        if isinstance(first, (str, bytes)):
            return list(inputs)
        if isinstance(first, Mapping):
            return {key: self.apply([sample[key] for sample in inputs]) for key in first}
        branch = branch_of(first)
        if branch is not None and branch.names is not None:
            return branch.made_of(self._parts([getattr(branch_of(sample), "parts", sample) for sample in inputs]))
        if isinstance(first, Sequence):
            return self._parts(inputs)
        if hasattr(
            first, "numpy"
        ):  # a tensor: batches live on the host until the program moves them
            return _stack([sample.numpy() for sample in inputs])
        raise TypeError(
            f"default_collator: inputs must contain numpy arrays, numbers, Unicode strings, bytes, dicts or lists; found {type(first)}\n"
            "  fix: convert it in the dataset, or pass a collator"
        )

    def _parts(self, inputs: Sequence[Sequence[Any]]) -> list[Any]:
        lengths = {len(sample) for sample in inputs}
        if len(lengths) > 1:
            raise ValueError(
                f"samples of one batch have different numbers of parts: {sorted(lengths)}"
            )
        return [self.apply(list(parts)) for parts in zip(*inputs, strict=True)]


def _stack(arrays: Sequence[np.ndarray]) -> np.ndarray:
    shapes = {np.shape(array) for array in arrays}
    if len(shapes) > 1:
        raise ValueError(
            f"all input arrays must have the same shape\n  why: the samples of one batch have {sorted(shapes)}\n"
            "  fix: resize or pad them in a transform, or pass a collator that pads"
        )
    return np.stack(arrays)
