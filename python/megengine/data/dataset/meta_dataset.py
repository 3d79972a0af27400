"""Kinds of datasets: by index, as a stream, from arrays, concatenated, of PyTorch's kind."""

from __future__ import annotations

import bisect
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Never, NoReturn

import numpy as np

from ...core._tree import mapped


class Dataset(ABC):
    """The base class of datasets with a length; subclasses define ``__getitem__`` and ``__len__``.

    A sample is a NumPy array, a number, a string, or a tuple, list or dict of these; a `DataLoader`
    merges samples into batches.

    See Also
    --------
    StreamDataset : Gives samples one after the other, of unknown number.
    ArrayDataset : Holds arrays of equal length.

    Examples
    --------
    >>> from megengine.data import DataLoader
    >>> class Squares(Dataset):
    ...     def __getitem__(self, index):
    ...         return float(index), float(index * index)
    ...     def __len__(self):
    ...         return 3
    >>> [y.tolist() for x, y in DataLoader(Squares())]
    [[0.0], [1.0], [4.0]]
    """

    @abstractmethod
    def __getitem__(self, index: int) -> Any:
        """Returns the sample with an index, 0 to len(dataset) - 1."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples."""


MapDataset = Dataset  # name of earlier releases


class StreamDataset(Dataset):
    """The base class of datasets that give samples one after the other, of unknown number;
    subclasses define ``__iter__``.

    Raises
    ------
    TypeError
        For its length and for access by index.

    Examples
    --------
    >>> class Lines(StreamDataset):
    ...     def __iter__(self):
    ...         yield from ("one", "two")
    >>> list(Lines())
    ['one', 'two']
    """

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Returns a new iterator over the samples."""

    def __getitem__(self, idx: Never) -> NoReturn:  # type: ignore[override]  # no index is right
        raise TypeError("a StreamDataset has no index access; iterate over it, or use a Dataset")

    def __len__(self) -> NoReturn:
        raise TypeError("a StreamDataset has no length; iterate over it, or use a Dataset")


class ArrayDataset(Dataset):
    """A dataset of arrays, tensors or lists of equal length: sample i is the tuple of their i-th
    elements.

    Parameters
    ----------
    *arrays : object
        Arrays, tensors or lists of equal length along the first axis.

    Raises
    ------
    TypeError
        Without any array.
    ValueError
        For different lengths.

    Examples
    --------
    >>> dataset = ArrayDataset([[1, 2], [3, 4], [5, 6]], ["a", "b", "c"])
    >>> len(dataset), dataset[1]
    (3, ([3, 4], 'b'))
    """

    def __init__(self, *arrays: Any) -> None:
        if not arrays:
            raise TypeError("ArrayDataset needs at least one array")
        lengths = [len(array) for array in arrays]
        if len(set(lengths)) > 1:
            raise ValueError(f"lengths of input arrays are inconsistent: {lengths}")
        self.arrays = arrays

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return tuple(array[index] for array in self.arrays)

    def __len__(self) -> int:
        return len(self.arrays[0])


class ConcatDataset(Dataset):
    """Concatenates datasets: the samples of the first, then those of the second, and so on.

    Parameters
    ----------
    datasets : iterable of Dataset
        Datasets, each with a length.

    Raises
    ------
    ValueError
        If there are none.
    TypeError
        For a StreamDataset among them.
    IndexError
        For an index out of range.

    Examples
    --------
    >>> both = ConcatDataset([ArrayDataset("ab"), ArrayDataset("xyz")])
    >>> len(both), both[1], both[2]
    (5, ('b',), ('x',))
    """

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets: Sequence[Dataset] = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset needs at least one dataset")
        for position, dataset in enumerate(self.datasets):
            if isinstance(dataset, StreamDataset):
                raise TypeError(
                    f"dataset {position} is a StreamDataset, which has no length to count on"
                )
        self.cumulative_sizes = list(
            itertools.accumulate(len(dataset) for dataset in self.datasets)
        )

    def __getitem__(self, idx: int) -> Any:
        count = len(self)
        if not -count <= idx < count:
            raise IndexError(f"index {idx} is out of range for {count} samples")
        idx = idx % count
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        start = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][idx - start]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class _TorchDataset(Dataset):
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, index: int) -> Any:
        return _as_arrays(self.dataset[int(index)])

    def __len__(self) -> int:
        return len(self.dataset)


class _TorchStream(StreamDataset):
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return map(_as_arrays, self.dataset)


def _as_arrays(sample: Any) -> Any:
    """Returns a sample with arrays in place of tensors and images of other libraries."""
    return mapped(sample, lambda x: np.asarray(x) if hasattr(x, "__array__") and not isinstance(x, np.generic) else x)


def from_torch(dataset: object) -> Dataset:
    """Wraps a dataset that was written for PyTorch: its tensors and images become NumPy arrays.

    It does not import PyTorch: only the dataset's methods matter.

    Parameters
    ----------
    dataset : object
        Object with ``__getitem__`` and ``__len__``, such as a dataset of torchvision, or with
        ``__iter__`` alone, such as an ``IterableDataset``. A sample may hold objects with
        ``__array__``: tensors, and PIL's images (RGB).

    Returns
    -------
    Dataset
        A dataset with access by index, or a `StreamDataset`. Each worker of a `DataLoader` reads
        the whole of a stream, so the dataset must split it among workers, as with PyTorch.

    Raises
    ------
    TypeError
        For an object that can be read in neither way.

    Examples
    --------
    >>> from megengine.data import DataLoader, SequentialSampler, from_torch
    >>> dataset = from_torch([(0.5, "a"), (1.5, "b"), (2.5, "c")])
    >>> [x.tolist() for x, name in DataLoader(dataset, SequentialSampler(dataset, batch_size=2))]
    [[0.5, 1.5], [2.5]]
    """
    # An IterableDataset inherits a __getitem__ that raises, and may have a length.
    is_stream = any(base.__name__ == "IterableDataset" for base in type(dataset).__mro__)
    if not is_stream and hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return _TorchDataset(dataset)
    if hasattr(dataset, "__iter__"):
        return _TorchStream(dataset)
    raise TypeError(f"a dataset has __getitem__ and __len__, or __iter__; got {type(dataset).__name__}")
