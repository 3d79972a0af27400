"""Iterating over batches of a dataset, in this process or with worker processes.

In: dataset, sampler, transform, collator. Out: batches (NumPy arrays; tensors with ``preload``), always in
the sampler's order. No process outlives its iterator.
"""

from __future__ import annotations

import functools
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Protocol, Self, TypeVar, overload

import numpy as np

from .. import _core
from ..core._telling import warn_of
from ..core._tree import leaves, opened
from ..device import get_default_device
from ..logger import get_logger
from ._workers import GLOBAL_TIMEOUT as GLOBAL_TIMEOUT
from ._workers import EndOfStream, WorkerPool, ordered_results
from ._workers import ManagerWatchdog as ManagerWatchdog
from ._workers import WorkerInfo as WorkerInfo
from ._workers import get_worker_info as get_worker_info
from .collator import Collator
from .dataset import Dataset, StreamDataset
from .sampler import MapSampler, Sampler, SequentialSampler, StreamSampler
from .transform import PseudoTransform, Transform

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .transform import VisionTransform

_logger = get_logger(__name__)


def get_monitor_time_stats(
    func: Callable[..., Any], *args: Any, **kwargs: Any
) -> tuple[float, Any]:
    """Calls ``func`` and returns the tuple (seconds it took, its result)."""
    start = time.perf_counter()
    result = func(*args, **kwargs)
    return time.perf_counter() - start, result


def raise_timeout_error() -> NoReturn:
    """Raises the RuntimeError for a batch that took longer than the loader's ``timeout``."""
    raise RuntimeError(
        "no batch within the timeout of the data loader; make the dataset faster or raise the timeout"
    )


_Batch = TypeVar("_Batch")
if TYPE_CHECKING:  # every checker knows this module, whose defaults say what a plain ``DataLoader`` is
    import typing_extensions

    _Sample = typing_extensions.TypeVar("_Sample", covariant=True, default=Any)
    # Tensor with preload
    _Array = typing_extensions.TypeVar("_Array", covariant=True, default=np.ndarray)
    _S = TypeVar("_S", covariant=True)
    _Part = np.ndarray | np.generic | Tensor | float  # becomes one array of a batch

    class _ByIndex(Protocol[_S]):
        """The type of a dataset, by its annotated __getitem__."""

        def __getitem__(self, index: int, /) -> _S: ...
        def __len__(self) -> int: ...

    class _Stream(Protocol[_S]):
        """The type of a StreamDataset, by its annotated __iter__."""

        def __iter__(self) -> Iterator[_S]: ...

    class _Unknown:
        """A type that no sample has, so that only samples of type Any match it."""

    class _Merged(Generic[_S]):
        """The type of a sample whose batch the user's collator makes."""

    class _Applies(Protocol[_S]):
        """The type of a transform, by its annotated apply."""

        def apply(self, input: Any, /) -> _S: ...
        def apply_batch(self, inputs: Sequence[Any], /) -> Any: ...

    class _Merges(Protocol[_S]):
        """The type of a collator, by its annotated apply."""

        def apply(self, inputs: Any, /) -> _S: ...

    _Data = _ByIndex[_S] | _Stream[_S]
    _SameStructure = VisionTransform | PseudoTransform | None
else:
    _Sample = TypeVar("_Sample", covariant=True)
    _Array = TypeVar("_Array", covariant=True)


class DataLoader(Generic[_Sample, _Array]):
    """Iterates over a dataset in batches; each ``iter(loader)`` is a new pass.

    Parameters
    ----------
    dataset : Dataset
        A dataset with a length and access by index, or a `StreamDataset`.
    sampler : Sampler or None
        Chooses the samples of each batch; None: one sample a batch, in order.
    transform : Transform or None
        Transform of the samples of a batch; None changes nothing.
    collator : Collator or None
        Merges samples into a batch; None means ``Collator()``.
    num_workers : int
        Number of worker processes; 0 loads in this process.
    timeout : int
        Seconds to wait for a batch; 0 waits without limit.
    preload : bool
        Whether to give tensors on the default device instead of NumPy arrays. They are copied while
        earlier batches are computed on: two steps ahead for a GPU, from pinned memory that is used
        again and again, and one step ahead on a CPU.
    parallel_stream : bool
        Whether each worker reads its own part of a StreamDataset, which asks ``get_worker_info()``
        for its number. False lets a single worker read it, so that no sample comes twice.
    divide : bool or None
        Deprecated and without effect: workers always make whole batches.

    Raises
    ------
    ValueError
        For negative numbers.
    TypeError
        For a wrong dataset, transform or collator.
    AssertionError
        For a sampler of the wrong kind.

    See Also
    --------
    RandomSampler : Takes samples in random order.
    Collator : Merges samples into a batch.
    data.transform.Compose : Applies several transforms.

    Notes
    -----
    Iterating raises what the dataset raises, whichever process it runs in, and RuntimeError when a
    worker is killed or the timeout passes.

    Examples
    --------
    >>> import numpy as np
    >>> from megengine.data.dataset import ArrayDataset
    >>> loader = DataLoader(ArrayDataset(np.arange(4)), SequentialSampler(range(4), batch_size=2))
    >>> [batch[0].tolist() for batch in loader]
    [[0, 1], [2, 3]]
    """

    # fmt: off
    @overload  # A batch has the structure of a sample, with arrays ...
    def __init__(self: DataLoader[_S, np.ndarray], dataset: _Data[_S], sampler: Sampler | None = None, transform: _SameStructure = None, collator: None = None, num_workers: int = 0, timeout: int = 0, preload: Literal[False] = False, parallel_stream: bool = False, *, divide: bool | None = None) -> None: ...
    @overload  # ... or tensors.
    def __init__(self: DataLoader[_S, Tensor], dataset: _Data[_S], sampler: Sampler | None = None, transform: _SameStructure = None, collator: None = None, num_workers: int = 0, timeout: int = 0, *, preload: Literal[True], parallel_stream: bool = False, divide: bool | None = None) -> None: ...
    @overload  # The types of transforms and collators follow from their methods.
    def __init__(self: DataLoader[_S, np.ndarray], dataset: _Data[object], sampler: Sampler | None = None, *, transform: _Applies[_S], collator: None = None, num_workers: int = 0, timeout: int = 0, preload: Literal[False] = False, parallel_stream: bool = False, divide: bool | None = None) -> None: ...
    @overload
    def __init__(self: DataLoader[_S, Tensor], dataset: _Data[object], sampler: Sampler | None = None, *, transform: _Applies[_S], collator: None = None, num_workers: int = 0, timeout: int = 0, preload: Literal[True], parallel_stream: bool = False, divide: bool | None = None) -> None: ...
    @overload
    def __init__(self: DataLoader[_Merged[_S], np.ndarray], dataset: _Data[object], sampler: Sampler | None = None, transform: Transform | None = None, *, collator: _Merges[_S], num_workers: int = 0, timeout: int = 0, preload: Literal[False] = False, parallel_stream: bool = False, divide: bool | None = None) -> None: ...
    @overload
    def __init__(self: DataLoader[Any, Any], dataset: _Data[object], sampler: Sampler | None = None, transform: Transform | None = None, collator: Collator | None = None, num_workers: int = 0, timeout: int = 0, preload: bool = False, parallel_stream: bool = False, *, divide: bool | None = None) -> None: ...
    # fmt: on

    def __init__(  # type: ignore[misc]  # datasets, transforms and collators are known by their methods
        self,
        dataset: Dataset,
        sampler: Sampler | None = None,
        transform: Transform | None = None,
        collator: Collator | None = None,
        num_workers: int = 0,
        timeout: int = 0,
        preload: bool = False,
        parallel_stream: bool = False,
        *,
        divide: bool | None = None,
    ) -> None:
        if num_workers < 0:
            raise ValueError(f"num_workers should not be negative, got {num_workers}")
        if timeout < 0:
            raise ValueError(f"timeout should not be negative, got {timeout}")
        if divide:
            warn_of("data.DataLoader(divide=True)")
        self.datakind = "stream" if isinstance(dataset, StreamDataset) else "map"
        if self.datakind == "map" and not (
            hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        ):
            raise TypeError(
                f"a dataset needs __getitem__ and __len__, or to be a StreamDataset; "
                f"got {type(dataset).__name__}"
            )
        if transform is not None and not hasattr(transform, "apply_batch"):
            raise TypeError(
                f"transform must be a Transform (have apply_batch), got {type(transform).__name__}\n"
                "  fix: subclass megengine.data.transform.Transform and define apply"
            )
        if collator is not None and not hasattr(collator, "apply"):
            raise TypeError(
                f"collator must be a Collator (have apply), got {type(collator).__name__}"
            )
        self.dataset = dataset
        self.num_workers = num_workers
        self.timeout = timeout
        self.preload = preload
        self.parallel_stream = parallel_stream
        self.sampler = _sampler_for(dataset, self.datakind, sampler)
        self.transform = transform if transform is not None else PseudoTransform()
        self.collator = collator if collator is not None else Collator()

    @overload
    def __iter__(self: DataLoader[_Unknown, object]) -> PreLoader[Any]: ...
    @overload
    def __iter__(self: DataLoader[_Merged[_Batch], object]) -> PreLoader[_Batch]: ...
    @overload
    def __iter__(self: DataLoader[_Part, _Batch]) -> PreLoader[_Batch]: ...
    @overload
    def __iter__(self: DataLoader[tuple[_Part, ...] | list[_Part], _Batch]) -> PreLoader[list[_Batch]]: ...
    @overload
    def __iter__(self: DataLoader[Mapping[str, _Part], _Batch]) -> PreLoader[dict[str, _Batch]]: ...
    @overload
    def __iter__(self: DataLoader[str, object]) -> PreLoader[list[str]]: ...
    @overload
    def __iter__(self) -> PreLoader[Any]: ...
    def __iter__(self) -> PreLoader[Any]:
        return (
            _ParallelLoader(self, self.preload)
            if self.num_workers
            else _SerialLoader(self, self.preload)
        )

    def __len__(self) -> int:
        """Number of batches in a pass; ``sys.maxsize`` with an infinite sampler. Raises TypeError for streams."""
        return len(self.sampler)  # type: ignore[arg-type]  # whose TypeError this is

    def check_memory_rationality(self) -> None:
        """Logs a warning when the batches that workers keep ready take more than half of the free memory.

        Loads one sample to see how large it is. Does nothing for streams, or where the free memory is unknown.
        """
        free = _free_memory_bytes()
        if self.datakind == "stream" or free is None or len(self.dataset) == 0:
            return
        sample_bytes = _bytes_of(self.dataset[0])
        need = sample_bytes * getattr(self.sampler, "batch_size", 1) * max(1, 3 * self.num_workers)
        if need > free // 2:
            _logger.warning(
                "%d workers hold about %d MiB of batches, and %d MiB are free: "
                "use fewer workers or smaller batches",
                self.num_workers,
                need >> 20,
                free >> 20,
            )


class PreLoader(Generic[_Batch]):
    """Iterator over the batches of a loader; with ``preload`` it gives tensors and loads ahead."""

    def __init__(self, loader: DataLoader[Any, Any], preload: bool) -> None:
        self.dataset = loader.dataset
        self.sampler = loader.sampler
        self.seed = int(np.random.randint(0, 2**31 - 1)) if loader.num_workers else 0
        self.transform = loader.transform
        self.collator = loader.collator
        self.num_workers = loader.num_workers
        self.timeout = loader.timeout
        self.num_processed = 0
        self.datakind = loader.datakind
        self.parallel_stream = loader.parallel_stream
        self.preload = preload
        self.default_device = self.pre_load_device = None
        self.pre_load_device_cache: list[Any] = []  # the batches that are on their way
        if preload:
            self.default_device = self.pre_load_device = get_default_device()
            device = _core.find_device(self.default_device)
            self._uploads = _core.Uploads(device)
            self._ahead = 1 if device.startswith("cpu") else 2  # a copy waits for the steps queued before it

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        """Returns the number of batches of the whole pass, whatever number has been given."""
        return len(self.sampler)  # type: ignore[arg-type]  # whose TypeError this is

    def __next__(self) -> _Batch:
        if not self.preload:
            batch: _Batch = self._next_batch()
        else:
            self._load_ahead()
            if not self.pre_load_device_cache:
                raise StopIteration
            batch = _mapped(self.pre_load_device_cache.pop(0), _taken)
            self._load_ahead()
        self.num_processed += 1
        return batch

    def _load_ahead(self) -> None:
        try:
            while len(self.pre_load_device_cache) < self._ahead:
                self.pre_load_device_cache.append(_mapped(self._next_batch(), self._begun))
        except StopIteration:
            pass

    def _begun(self, leaf: Any) -> Any:
        """Starts the copy of an array or a number to the device; strings and the like stay."""
        is_array = isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind in "biufcV"
        return self._uploads.begin(leaf) if is_array or isinstance(leaf, (int, float)) else leaf

    def _next_batch(self) -> Any:
        raise StopIteration


class _SerialLoader(PreLoader[Any]):
    """Loads in this process, one batch per ``next``."""

    def __init__(self, loader: DataLoader[Any, Any], preload: bool) -> None:
        super().__init__(loader, preload)
        self._fetch = _make_fetch(
            self.datakind, self.dataset, self.transform, self.collator, self.parallel_stream
        )
        self._indices = iter(self.sampler)  # type: ignore[call-overload]  # DataLoader made one

    def _next_batch(self) -> Any:
        indices = next(self._indices)
        batch = (
            _within(self.timeout, self._fetch, indices) if self.timeout else self._fetch(indices)
        )
        if batch is EndOfStream:
            self._indices = iter(())
            raise StopIteration
        return batch


class _ParallelLoader(PreLoader[Any]):
    """Loads with worker processes, which end with this iterator, with an error, or with Ctrl-C."""

    def __init__(self, loader: DataLoader[Any, Any], preload: bool) -> None:
        super().__init__(loader, preload)
        one_stream = self.datakind == "stream" and not self.parallel_stream
        make_fetch = functools.partial(
            _make_fetch,
            self.datakind,
            self.dataset,
            self.transform,
            self.collator,
            self.parallel_stream,
        )
        self._pool: WorkerPool | None = WorkerPool(
            1 if one_stream else self.num_workers, self.seed, make_fetch
        )
        self._batches = ordered_results(self._pool, iter(self.sampler), self.timeout)  # type: ignore[call-overload]  # as above

    def _next_batch(self) -> Any:
        if self._pool is None:
            raise StopIteration
        end = object()
        try:
            batch = next(self._batches, end)
        except BaseException:  # an error, or Ctrl-C: the workers end in any case
            self._end()
            raise
        if batch is end:
            self._end()
            raise StopIteration
        return batch

    def _end(self) -> None:
        self._pool.close()  # type: ignore[union-attr]  # _next_batch saw one
        self._pool = None


# ------------------------------------------------------------------------------------ how a batch is made


def map_fetcher(
    dataset: Dataset,
    place_holder: Sequence[int],
    transform: Transform,
    collate: Collator,
    parallel_stream: bool,
    batch_size: int,
) -> Any:
    """Returns the batch of the samples with the indices ``place_holder``."""
    return collate.apply(transform.apply_batch([dataset[index] for index in place_holder]))


def stream_fetcher(
    dataset_iter: Iterator[Any],
    place_holder: object,
    transform: Transform,
    collate: Collator,
    parallel_stream: bool,
    batch_size: int,
) -> Any:
    """Returns the batch of the next ``batch_size`` samples; fewer at the end. Raises StopIteration when there are none."""
    samples: list[Any] = []
    for sample in dataset_iter:
        samples.append(sample)
        if len(samples) == batch_size:
            break
    if not samples:
        raise StopIteration
    return collate.apply(transform.apply_batch(samples))


def _make_fetch(
    kind: str, dataset: Any, transform: Any, collator: Any, parallel_stream: bool
) -> Callable[[Any], Any]:
    """Function from a list of indices to a batch, or to EndOfStream; made in the process that uses it."""
    if kind == "map":
        return lambda indices: map_fetcher(
            dataset, indices, transform, collator, parallel_stream, len(indices)
        )
    stream = iter(dataset)

    def fetch(place_holder: Any) -> Any:
        try:
            return stream_fetcher(
                stream, place_holder, transform, collator, parallel_stream, len(place_holder)
            )
        except StopIteration:
            return EndOfStream

    return fetch


def _sampler_for(dataset: Any, kind: str, sampler: Sampler | None) -> Sampler:
    if sampler is None:
        return StreamSampler(batch_size=1) if kind == "stream" else SequentialSampler(dataset)
    wanted = StreamSampler if kind == "stream" else MapSampler
    if not isinstance(sampler, wanted):
        raise AssertionError(
            f"{type(dataset).__name__} needs a {wanted.__name__}, got {type(sampler).__name__}"
        )
    return sampler


def _within(seconds: float, func: Callable[..., Any], *args: Any) -> Any:
    """Calls ``func``, but raises RuntimeError when it takes longer. Only the main thread can be interrupted: others leave the call to end by itself."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        return _awaited(seconds, func, *args)
    old_handler = signal.signal(signal.SIGALRM, lambda *_: raise_timeout_error())
    old_timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return func(*args)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *old_timer)
        signal.signal(signal.SIGALRM, old_handler)


def _awaited(seconds: float, func: Callable[..., Any], *args: Any) -> Any:
    """Calls ``func`` in a thread of its own, and waits for it that long."""
    results: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put((True, func(*args)))
        except BaseException as error:
            results.put((False, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        is_done, found = results.get(timeout=seconds)
    except queue.Empty:
        raise_timeout_error()
    if not is_done:
        raise found
    return found


def _mapped(batch: Any, func: Callable[[Any], Any]) -> Any:
    """The batch with ``func`` of its leaves."""
    if isinstance(batch, Mapping):
        return {key: _mapped(value, func) for key, value in batch.items()}
    branch = opened(batch)
    return func(batch) if branch is None else branch.made_of([_mapped(part, func) for part in branch.parts])


def _taken(leaf: Any) -> Any:
    return leaf.take() if isinstance(leaf, _core.Upload) else leaf


def _bytes_of(sample: Any) -> int:
    return sum(int(getattr(leaf, "nbytes", 8)) for leaf in leaves(sample))


def _free_memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
