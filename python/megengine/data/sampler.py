"""Samplers: which samples make up which batch.

In: the length of a dataset, and the rank of this process among ``world_size`` processes. Out: lists
of indices, one list per batch. Map samplers know the length; a stream sampler only the batch size.
"""

from __future__ import annotations

import sys
from abc import ABC
from collections.abc import Iterator, Sequence, Sized
from typing import Any

import numpy as np
import numpy.random  # noqa: F401  -- else loaded at the first draw, and its import swallows a Ctrl-C

from ..core import random_state
from ..distributed import group


class Sampler(ABC):  # noqa: B024  -- what it must have depends on the kind
    """The base class of all samplers; iterating gives a list of indices for each batch.

    `MapSampler` is for datasets with a length, `StreamSampler` for streams.

    Examples
    --------
    >>> class EveryOther(MapSampler):
    ...     def sample(self):
    ...         return range(0, len(self.dataset), 2)
    >>> isinstance(EveryOther("abcdef", batch_size=2), Sampler)
    True
    """


class MapSampler(Sampler):
    """The base class of samplers for datasets with a length; subclasses define ``sample``.

    Parameters
    ----------
    dataset : Sized
        Anything with a length; nothing else of it is used.
    batch_size : int
        Number of samples in a batch.
    drop_last : bool
        Whether to leave out the last batch if it is not full.
    num_samples : int or None
        Samples in one pass, at least batch_size; None: as many as ``sample`` gives.
    world_size, rank : int or None
        Number of processes that share the samples, and number of this process; None: those of
        ``megengine.distributed``. All processes get the same number of samples: the first samples
        are used again where needed.
    seed : int or None
        Seed of the random order, 0 to 2**32 - 1. None takes one that follows from `random.seed`, or
        a random one before that is called; all processes of a world take the same.

    Raises
    ------
    ValueError
        For values out of range.
    TypeError
        For indices or weights that are not sequences.

    Examples
    --------
    >>> class EveryOther(MapSampler):
    ...     def sample(self):
    ...         return range(0, len(self.dataset), 2)
    >>> list(EveryOther("abcdef", batch_size=2))
    [[0, 2], [4]]
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int = 1,
        drop_last: bool = False,
        num_samples: int | None = None,
        world_size: int | None = None,
        rank: int | None = None,
        seed: int | None = None,
    ) -> None:
        _check_positive("batch_size", batch_size)
        if not isinstance(drop_last, (bool, np.bool_)):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last!r}")
        if num_samples is not None:
            _check_positive("num_samples", num_samples)
            if num_samples < batch_size:
                raise ValueError(f"num_samples is {num_samples}, less than batch_size {batch_size}")
        self.batch_size = int(batch_size)
        self.dataset = dataset
        self.drop_last = bool(drop_last)
        self.world_size, self.rank = _place(world_size, rank)
        self.num_samples = len(dataset) if num_samples is None else int(num_samples)
        self.rng = np.random.RandomState(_common_seed(seed, self.world_size))

    def __iter__(self) -> Iterator[list[int]]:
        return self.batch()

    def __len__(self) -> int:
        """Number of batches that this process gets in one pass."""
        mine = -(-self.num_samples // self.world_size)
        return mine // self.batch_size if self.drop_last else -(-mine // self.batch_size)

    def sample(self) -> Sequence[int]:
        """Returns the indices of one pass in order, before processes share them. Subclasses define it; TypeError otherwise."""
        raise TypeError(
            f"{type(self).__name__} does not say which samples to take; define sample() in it"
        )

    def scatter(self, indices: Sequence[int]) -> list[int]:
        """Returns this process's part of some indices.

        Parameters
        ----------
        indices : sequence of int
            Indices of all processes; the first ones are repeated until their number is a multiple
            of ``world_size``.

        Returns
        -------
        list of int
            Every ``world_size``-th index, beginning with the ``rank``-th.
        """
        indices = list(indices)
        missing = -len(indices) % self.world_size
        while missing and indices:  # more processes than samples: go round more than once
            extra = indices[:missing]
            indices += extra
            missing -= len(extra)
        return indices[self.rank :: self.world_size]

    def batch(self) -> Iterator[list[int]]:
        """Iterates over the batches of one pass: lists of ``batch_size`` indices; the last one may be shorter."""
        indices = [int(index) for index in self.sample()]
        if self.num_samples is not None:
            indices = indices[: self.num_samples]
        if self.world_size > 1:
            indices = self.scatter(indices)
        for start in range(0, len(indices), self.batch_size):
            chosen = indices[start : start + self.batch_size]
            if len(chosen) == self.batch_size or not self.drop_last:
                yield chosen


class StreamSampler(Sampler):
    """Sets the batch size for a `StreamDataset`, whose samples have no indices.

    Parameters
    ----------
    batch_size : int
        Number of samples in a batch; the last batch of a stream may hold fewer.

    Raises
    ------
    ValueError
        For a batch_size below 1.

    Examples
    --------
    >>> from megengine.data import DataLoader
    >>> from megengine.data.dataset import StreamDataset
    >>> class Count(StreamDataset):
    ...     def __iter__(self):
    ...         return iter(range(5))
    >>> [batch.tolist() for batch in DataLoader(Count(), StreamSampler(batch_size=2))]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, batch_size: int = 1) -> None:
        _check_positive("batch_size", batch_size)
        self.batch_size = int(batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        return self.batch()

    def batch(self) -> Iterator[list[int]]:
        """Iterates without end over lists of placeholders, one list per batch; the stream itself ends the pass."""
        while True:
            yield self.sample()

    def sample(self) -> list[int]:
        """Returns the placeholders of one batch, a list."""
        return list(range(self.batch_size))


class SequentialSampler(MapSampler):
    """Takes all samples in order.

    Parameters
    ----------
    dataset : Sized
        Anything with a length; the sampler uses nothing else of it.
    batch_size : int
        Number of samples in a batch.
    drop_last : bool
        Whether to leave out the last batch if it is not full.
    indices : sequence of int or None
        Indices of the samples to take, in this order; None takes all.
    world_size, rank : int or None
        Number of processes that share the samples, and number of this process; None: those of
        ``megengine.distributed``.

    See Also
    --------
    RandomSampler : Takes samples in random order.

    Examples
    --------
    >>> list(SequentialSampler(range(5), batch_size=2))
    [[0, 1], [2, 3], [4]]
    >>> list(SequentialSampler(range(5), 2, world_size=2, rank=1))  # 5 samples for 2 processes: sample 0 is used twice
    [[1, 3], [0]]
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int = 1,
        drop_last: bool = False,
        indices: Sequence[int] | None = None,
        world_size: int | None = None,
        rank: int | None = None,
    ) -> None:
        super().__init__(dataset, batch_size, drop_last, None, world_size, rank)
        self.indices = _check_indices(indices)
        if self.indices is not None:
            self.num_samples = len(self.indices)

    def sample(self) -> list[int]:
        """Returns the indices in order, a list."""
        return list(range(self.num_samples)) if self.indices is None else list(self.indices)


class RandomSampler(MapSampler):
    """Takes all samples once per pass, each time in a new random order.

    Parameters
    ----------
    dataset : Sized
        Anything with a length; the sampler uses nothing else of it.
    batch_size : int
        Number of samples in a batch.
    drop_last : bool
        Whether to leave out the last batch if it is not full.
    indices : sequence of int or None
        Indices of the samples to take; None takes all.
    world_size, rank, seed : int or None
        Number of processes that share the samples, number of this process (None: those of
        ``megengine.distributed``), and seed of the random order; see `MapSampler`.

    See Also
    --------
    SequentialSampler : Takes samples in order.
    ReplacementSampler : Draws with replacement.
    Infinite : Repeats a sampler without end.

    Examples
    --------
    >>> sampler = RandomSampler(range(5), batch_size=2, seed=1)
    >>> list(sampler), list(sampler)
    ([[2, 1], [4, 0], [3]], [[0, 2], [4, 3], [1]])
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int = 1,
        drop_last: bool = False,
        indices: Sequence[int] | None = None,
        world_size: int | None = None,
        rank: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(dataset, batch_size, drop_last, None, world_size, rank, seed)
        self.indices = _check_indices(indices)
        if self.indices is not None:
            self.num_samples = len(self.indices)

    def sample(self) -> list[int]:
        """Returns the indices in a new random order, a list."""
        order = self.rng.permutation(self.num_samples)
        if self.indices is None:
            return order.tolist()
        return [self.indices[position] for position in order]


class ReplacementSampler(MapSampler):
    """Draws samples at random with replacement.

    Parameters
    ----------
    dataset : Sized
        Anything with a length; the sampler uses nothing else of it.
    batch_size : int
        Number of samples in a batch.
    drop_last : bool
        Whether to leave out the last batch if it is not full.
    num_samples : int or None
        Number of draws in one pass; None: as many as there are samples.
    weights : sequence of float or None
        Relative probability of each sample, one number for each, none of them negative and
        at least one above 0; None:
        all equal.
    world_size, rank, seed : int or None
        Number of processes that share the samples, number of this process (None: those of
        ``megengine.distributed``), and seed of the random order; see `MapSampler`.

    Examples
    --------
    >>> list(ReplacementSampler(range(3), batch_size=2, num_samples=4, weights=[0, 1, 0]))
    [[1, 1], [1, 1]]
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int = 1,
        drop_last: bool = False,
        num_samples: int | None = None,
        weights: Sequence[float] | None = None,
        world_size: int | None = None,
        rank: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(dataset, batch_size, drop_last, num_samples, world_size, rank, seed)
        self.weights = None if weights is None else _check_weights(weights, len(dataset))

    def sample(self) -> list[int]:
        """Returns the drawn indices, a list."""
        count = len(self.dataset)
        if self.weights is None:
            return self.rng.randint(0, count, size=self.num_samples).tolist()
        chances = self.weights / self.weights.sum()
        return self.rng.choice(count, size=self.num_samples, p=chances).tolist()


class Infinite(MapSampler):
    """Repeats a sampler without end, for training by steps instead of passes.

    Its length is ``sys.maxsize``.

    Parameters
    ----------
    sampler : MapSampler
        The sampler that is repeated; each round is a new pass of it.

    Raises
    ------
    RuntimeError
        When the sampler gives no batch at all.

    Examples
    --------
    >>> import itertools
    >>> list(itertools.islice(Infinite(SequentialSampler(range(3), batch_size=2)), 4))
    [[0, 1], [2], [0, 1], [2]]
    """

    def __init__(self, sampler: MapSampler) -> None:
        self.sampler = sampler
        self.sampler_iter = iter(sampler)

    def sample(self) -> Sequence[int]:
        """Returns the indices of one pass of the wrapped sampler."""
        return self.sampler.sample()

    def __iter__(self) -> Iterator[list[int]]:
        return self

    def __next__(self) -> list[int]:
        for _ in range(2):
            try:
                return next(self.sampler_iter)
            except StopIteration:
                self.sampler_iter = iter(self.sampler)
        raise RuntimeError(
            f"{type(self.sampler).__name__} gives no batch at all, so repeating it never will; "
            "is the dataset smaller than batch_size with drop_last=True?"
        )

    def __len__(self) -> int:
        return sys.maxsize

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in (
            "sampler",
            "sampler_iter",
        ):  # the attribute is missing during copying and unpickling
            raise AttributeError(name)
        return getattr(self.sampler, name)


def _check_positive(name: str, value: Any) -> None:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value!r}")


def _check_indices(indices: Sequence[int] | None) -> list[int] | None:
    if indices is None:
        return None
    if isinstance(indices, (str, bytes)) or not hasattr(indices, "__len__"):
        raise TypeError(f"indices should be None or a sequence, but got indices={indices!r}")
    return [int(index) for index in indices]


def _check_weights(weights: Sequence[float], count: int) -> np.ndarray:
    if isinstance(weights, (str, bytes)) or not hasattr(weights, "__len__"):
        raise TypeError(f"weights should be None or a sequence, but got weights={weights!r}")
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (count,):
        raise ValueError(
            f"weights needs one number for each of {count} samples, got shape {array.shape}"
        )
    if not np.isfinite(array).all() or (array < 0).any() or array.sum() <= 0:
        raise ValueError("weights must be finite and not negative, and some must be positive")
    return array


def _place(world_size: int | None, rank: int | None) -> tuple[int, int]:
    """Returns (world_size, rank), from the process group where they are not given."""
    # A process that never imported the module is in no group; an import here could swallow a Ctrl-C.
    group = sys.modules.get(__name__.replace(".data.sampler", ".distributed.group"))
    if world_size is None:
        world_size = 1 if group is None else group.get_world_size()
    if rank is None:
        rank = 0 if group is None else group.get_rank()
    _check_positive("world_size", world_size)
    if not isinstance(rank, (int, np.integer)) or not 0 <= rank < world_size:
        raise ValueError(
            f"rank must be an int from 0 to world_size - 1 = {world_size - 1}, got {rank!r}"
        )
    return int(world_size), int(rank)


def _common_seed(seed: int | None, world_size: int) -> int | None:
    """Returns a seed that all processes share, so that they shuffle alike and each sample is used
    once.
    """
    if seed is not None:
        if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
            raise ValueError(f"seed must be an int from 0 to 2**32 - 1, got {seed!r}")
        return int(seed)
    if world_size == 1:
        return random_state.seed_beside()
    if not group.is_distributed():
        return 0  # sharded by hand: no channel to agree on anything else
    # It draws in any case, so that NumPy's later numbers do not depend on mge.random.
    drawn, ours = int(np.random.randint(0, 2**31 - 1)), random_state.seed_beside()
    mine = drawn if ours is None else ours
    # As text: a call of the server takes numbers of 31 bits.
    told = str(mine) if group.get_rank() == 0 else None
    return int(group.get_client().bcast_val(told, "sampler_seed", world_size))
