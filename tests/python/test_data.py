"""Samplers, collator, datasets from arrays, and the loader with its worker processes."""

import collections
import dataclasses
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from megengine import Tensor
from megengine import random as mge_random
from megengine.data import (
    Collator,
    DataLoader,
    Infinite,
    MapSampler,
    RandomSampler,
    ReplacementSampler,
    Sampler,
    SequentialSampler,
    StreamSampler,
)
from megengine.data.dataloader import _mapped, get_worker_info
from megengine.data.dataset import ArrayDataset, ConcatDataset, Dataset, StreamDataset, from_torch
from megengine.data.transform import PseudoTransform, Transform


class Numbers(Dataset):
    """Sample i is (i everywhere, i); an index in ``bad`` calls ``act``."""

    def __init__(self, count=10, shape=(2,), bad=-1, act=None):
        self.count, self.shape, self.bad, self.act = count, shape, bad, act

    def __getitem__(self, index):
        if index == self.bad:
            self.act()
        return np.full(self.shape, index, np.float32), index

    def __len__(self):
        return self.count


class Stream(StreamDataset):
    def __iter__(self):
        info = get_worker_info()
        first = 0 if info is None else 100 * info.idx
        yield from range(first, first + 7)


def labels(loader):
    return [batch[1].tolist() for batch in loader]


# ---------------------------------------------------------------------------------------- samplers


def test_a_sequential_sampler_goes_in_order():
    assert list(SequentialSampler(range(5), batch_size=2)) == [[0, 1], [2, 3], [4]]
    assert list(SequentialSampler(range(5), batch_size=2, drop_last=True)) == [[0, 1], [2, 3]]
    assert list(SequentialSampler(range(9), batch_size=2, indices=[7, 3, 5])) == [[7, 3], [5]]


@pytest.mark.parametrize(
    "count, batch, drop, world",
    [(10, 3, False, 1), (10, 3, True, 1), (10, 3, False, 4), (2, 1, False, 3)],
)
def test_the_length_is_the_number_of_batches(count, batch, drop, world):
    sampler = SequentialSampler(range(count), batch, drop, world_size=world, rank=world - 1)
    assert len(sampler) == len(list(sampler))


def test_a_random_sampler_takes_each_sample_once_and_repeats_with_its_seed():
    first, second = (RandomSampler(range(20), batch_size=6, seed=3) for _ in range(2))
    epochs = [list(first), list(first)]
    assert sorted(sum(epochs[0], [])) == list(range(20))
    assert epochs[0] != epochs[1]
    assert [list(second), list(second)] == epochs


def test_samplers_without_a_seed_follow_the_seed_of_mge_random():
    def orders():
        mge_random.seed(4)
        return [sum(RandomSampler(range(20)), []) for _ in range(2)]

    first = orders()
    assert orders() == first and first[0] != first[1]  # two samplers shuffle differently
    mge_random.seed(5)
    assert sum(RandomSampler(range(20)), []) not in first


def test_a_sampler_moves_no_generator():
    mge_random.seed(4, numpy=True)
    before = mge_random.get_state()
    list(RandomSampler(range(20)))
    after = mge_random.get_state()
    assert [before[name] for name in ("seed", "counter")] == [after[name] for name in ("seed", "counter")]
    np.testing.assert_array_equal(before["numpy"]["state"]["key"], after["numpy"]["state"]["key"])
    assert before["numpy"]["state"]["pos"] == after["numpy"]["state"]["pos"]


def test_shards_cover_all_samples_and_are_equally_long():
    shards = [
        sum(RandomSampler(range(10), seed=1, world_size=4, rank=rank), []) for rank in range(4)
    ]
    assert {len(shard) for shard in shards} == {3}
    assert set(sum(shards, [])) == set(range(10))


def test_shards_without_a_seed_agree_on_the_order():
    shards = [sum(RandomSampler(range(10), world_size=2, rank=rank), []) for rank in range(2)]
    assert sorted(shards[0] + shards[1]) == list(range(10))


def test_draws_with_replacement_follow_the_weights():
    sampler = ReplacementSampler(range(3), batch_size=10, num_samples=50, weights=[0, 1, 3], seed=0)
    counts = collections.Counter(sum(sampler, []))
    assert counts[0] == 0 and counts[2] > counts[1] > 0 and sum(counts.values()) == 50


def test_an_infinite_sampler_starts_over_and_knows_the_batch_size():
    sampler = Infinite(SequentialSampler(range(3), batch_size=2))
    assert [next(sampler) for _ in range(3)] == [[0, 1], [2], [0, 1]]
    assert sampler.batch_size == 2 and isinstance(sampler, MapSampler)
    assert len(sampler) == len(DataLoader(range(3), sampler)) == sys.maxsize


def test_an_infinite_sampler_of_nothing_is_an_error_and_not_an_endless_loop():
    with pytest.raises(RuntimeError, match="no batch at all"):
        next(Infinite(SequentialSampler(range(1), batch_size=2, drop_last=True)))


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 0},
        {"batch_size": 1.5},
        {"drop_last": 2},
        {"num_samples": 0},
        {"num_samples": 1, "batch_size": 2},
        {"world_size": 0},
        {"world_size": 2, "rank": 2},
        {"rank": -1},
        {"seed": -1},
        {"weights": [1, 2]},
        {"weights": [0, 0, 0]},
    ],
)
def test_senseless_sampler_options_are_refused(options):
    with pytest.raises(ValueError):
        ReplacementSampler(range(3), **options)


def test_a_user_sampler_only_says_the_order():
    class Reversed(MapSampler):
        def sample(self):
            return list(range(len(self.dataset)))[::-1]

    assert list(Reversed(range(3), batch_size=2)) == [[2, 1], [0]]


# ------------------------------------------------------------------------------------ collator, datasets


def test_the_collator_keeps_the_structure():
    Point = collections.namedtuple("Point", "x y")
    samples = [
        ({"a": np.zeros((2, 3), "uint8"), "s": "u"}, Point(1, 2.0), True),
        ({"a": np.ones((2, 3), "uint8"), "s": "v"}, Point(3, 4.0), False),
    ]
    parts, point, flags = Collator().apply(samples)
    assert (
        parts["a"].shape == (2, 2, 3) and parts["a"].dtype == np.uint8 and parts["s"] == ["u", "v"]
    )
    assert point.x.dtype == np.int32 and point.y.dtype == np.float32 and isinstance(point, Point)
    assert flags.tolist() == [True, False]


@dataclasses.dataclass
class Labelled:
    image: object
    label: int


def test_dataclasses_of_samples_are_batches():
    dataset = [Labelled(np.full((2,), i, np.float32), i) for i in range(3)]
    batch = Collator().apply(dataset)
    assert isinstance(batch, Labelled) and batch.image.shape == (3, 2) and batch.label.tolist() == [0, 1, 2]
    (loaded,) = _mapped([batch], Tensor)
    assert isinstance(loaded.image, Tensor) and loaded.label.shape == (3,)


def test_samples_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError, match="^all input arrays must have the same shape"):
        Collator().apply([np.zeros(2), np.zeros(3)])
    with pytest.raises(ValueError, match="different numbers of parts"):
        Collator().apply([(1, 2), (1,)])
    with pytest.raises(TypeError, match="object"):
        Collator().apply([object(), object()])


def test_array_datasets_give_tuples():
    dataset = ArrayDataset(np.arange(6).reshape(3, 2), [7, 8, 9])
    assert len(dataset) == 3 and dataset[1][0].tolist() == [2, 3] and dataset[1][1] == 8
    with pytest.raises(ValueError, match=r"\[3, 2\]"):
        ArrayDataset(np.zeros(3), np.zeros(2))
    with pytest.raises(TypeError):
        ArrayDataset()


def test_concatenated_datasets_count_on():
    dataset = ConcatDataset([Numbers(2), Numbers(0), Numbers(3)])
    assert [dataset[i][1] for i in range(5)] == [0, 1, 0, 1, 2] and dataset[-1][1] == 2
    with pytest.raises(IndexError):
        dataset[5]
    with pytest.raises(TypeError, match="dataset 1 is a StreamDataset"):
        ConcatDataset([Numbers(1), Stream()])


# ------------------------------------------------------------------------------------------- loader


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_come_in_the_samplers_order(workers):
    loader = DataLoader(
        Numbers(20), RandomSampler(range(20), batch_size=3, seed=5), num_workers=workers
    )
    expected = list(RandomSampler(range(20), batch_size=3, seed=5))
    assert labels(loader) == expected and len(loader) == 7


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_can_be_iterated_again(workers):
    loader = DataLoader(Numbers(4), num_workers=workers)
    assert labels(loader) == labels(loader) == [[0], [1], [2], [3]]


def test_order_is_kept_when_some_samples_take_long():
    class Uneven(Numbers):
        def __getitem__(self, index):
            time.sleep(0.02 * (index % 3 == 0))
            return super().__getitem__(index)

    assert labels(DataLoader(Uneven(12), num_workers=4)) == [[i] for i in range(12)]


def test_large_batches_arrive_whole_writable_and_independent():
    loader = DataLoader(Numbers(8, (3, 100, 100)), SequentialSampler(range(8), 2), num_workers=2)
    batches = [batch for batch, _ in loader]
    for i, batch in enumerate(batches):
        assert batch.shape == (2, 3, 100, 100) and batch.flags.writeable
        assert (batch[0] == 2 * i).all() and (batch[1] == 2 * i + 1).all()
    batches[0][...] = -1
    assert (batches[1][0] == 2).all()


def test_transforms_and_collators_run_on_batches():
    class Double(Transform):
        def apply(self, input):
            return input[0] * 2, input[1]

    class Last(Collator):
        def apply(self, inputs):
            return inputs[-1]

    loader = DataLoader(Numbers(4), SequentialSampler(range(4), 2), Double(), Last(), num_workers=1)
    assert [label for _, label in loader] == [1, 3] and next(iter(loader))[0].tolist() == [2, 2]


def fail():
    raise KeyError("sample five")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    os._exit(3)


class Unpicklable(Exception):
    def __init__(self, a, b):
        super().__init__(a)


def fail_unpicklable():
    raise Unpicklable("first", "second")


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_dataset_keeps_its_class(workers):
    iterator = iter(DataLoader(Numbers(9, bad=5, act=fail), num_workers=workers))
    assert [next(iterator)[1].tolist() for _ in range(5)] == [[0], [1], [2], [3], [4]]
    with pytest.raises(KeyError, match="sample five") as caught:
        next(iterator)
    if workers:
        assert "in fail" in str(caught.value.__cause__)
        assert multiprocessing.active_children() == []


def test_an_error_that_cannot_travel_becomes_a_runtime_error_with_its_traceback():
    with pytest.raises(RuntimeError, match="Unpicklable.*\n(.*\n)*.*first"):
        labels(DataLoader(Numbers(9, bad=5, act=fail_unpicklable), num_workers=2))


@pytest.mark.parametrize("act, words", [(die, "killed by signal 9"), (leave, "exit code 3")])
def test_a_dead_worker_is_a_runtime_error(act, words):
    with pytest.raises(RuntimeError, match=words):
        labels(DataLoader(Numbers(9, bad=5, act=act), num_workers=2))
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("workers", [0, 2])
def test_a_slow_sample_is_a_runtime_error_after_the_timeout(workers):
    loader = DataLoader(
        Numbers(9, bad=2, act=lambda: time.sleep(600)), num_workers=workers, timeout=1
    )
    with pytest.raises(RuntimeError, match="timeout"):
        labels(loader)


def test_the_timeout_holds_in_any_thread():
    caught = []

    def load():
        with pytest.raises(RuntimeError, match="timeout") as error:
            labels(DataLoader(Numbers(9, bad=2, act=lambda: time.sleep(5)), timeout=1))
        caught.append(error)
        assert labels(DataLoader(Numbers(3), timeout=60)) == labels(DataLoader(Numbers(3)))
        with pytest.raises(ZeroDivisionError):
            labels(DataLoader(Numbers(9, bad=2, act=lambda: 1 / 0), timeout=60))
        caught.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    thread.join(60)
    assert len(caught) == 2


def test_leaving_the_loop_early_ends_the_workers():
    for _ in DataLoader(Numbers(1000), num_workers=2):
        break
    assert multiprocessing.active_children() == []


def test_workers_are_seeded_differently_and_know_their_place():
    class Draws(Numbers):
        def __getitem__(self, index):
            return np.random.randint(1 << 30), get_worker_info().idx, get_worker_info().worker_num

    batches = [[int(part[0]) for part in batch] for batch in DataLoader(Draws(6), num_workers=3)]
    assert len({draw for draw, _, _ in batches}) == 6
    assert [idx for _, idx, _ in batches] == [0, 1, 2, 0, 1, 2] and batches[0][2] == 3
    assert get_worker_info() is None


def test_workers_draw_tensors_of_their_own():
    class Drawn(ArrayDataset):
        def __getitem__(self, index):
            return mge_random.uniform(size=(4,)).numpy()

    dataset = Drawn(np.zeros(8))
    batches = list(DataLoader(dataset, SequentialSampler(dataset, 1), num_workers=2))
    assert len({batch.tobytes() for batch in batches}) == 8


def test_worker_information_is_read_only():
    class Changes(Numbers):
        def __getitem__(self, index):
            get_worker_info().idx = 4

    with pytest.raises(RuntimeError, match="read only"):
        list(DataLoader(Changes(2), num_workers=1))


def test_an_infinite_sampler_makes_an_endless_loader():
    iterator = iter(DataLoader(Numbers(2), Infinite(SequentialSampler(range(2))), num_workers=2))
    assert [next(iterator)[1].item() for _ in range(5)] == [0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    "workers, parallel, expected",
    [
        (0, False, [[0, 1, 2], [3, 4, 5], [6]]),
        (2, False, [[0, 1, 2], [3, 4, 5], [6]]),
        (2, True, [[0, 1, 2], [100, 101, 102], [3, 4, 5], [103, 104, 105], [6], [106]]),
    ],
)
def test_a_stream_is_read_once_unless_each_worker_has_its_own(workers, parallel, expected):
    loader = DataLoader(Stream(), StreamSampler(3), num_workers=workers, parallel_stream=parallel)
    assert [batch.tolist() for batch in loader] == expected


def test_the_sampler_must_fit_the_dataset():
    with pytest.raises(AssertionError, match="MapSampler"):
        DataLoader(Numbers(), StreamSampler())
    with pytest.raises(AssertionError, match="StreamSampler"):
        DataLoader(Stream(), SequentialSampler(range(3)))


@pytest.mark.parametrize(
    "options, error",
    [
        ({"num_workers": -1}, ValueError),
        ({"timeout": -1}, ValueError),
        ({"transform": len}, TypeError),
        ({"collator": 3}, TypeError),
    ],
)
def test_senseless_loader_options_are_refused(options, error):
    with pytest.raises(error):
        DataLoader(Numbers(), **options)


def test_a_stream_has_no_length_and_no_index():
    for act in (lambda: len(Stream()), lambda: Stream()[0], lambda: len(DataLoader(Stream()))):
        with pytest.raises(TypeError):
            act()
    assert list(Stream()) == list(range(7))


@pytest.mark.parametrize("workers", [0, 2])
def test_preload_gives_tensors_in_the_same_structure(workers):
    from megengine.tensor import Tensor

    batches = list(
        DataLoader(Numbers(4), SequentialSampler(range(4), 2), num_workers=workers, preload=True)
    )
    assert [label.numpy().tolist() for _, label in batches] == [[0, 1], [2, 3]]
    assert all(isinstance(part, Tensor) for batch in batches for part in batch)


def test_loaders_and_their_parts_pickle():
    loader = pickle.loads(
        pickle.dumps(DataLoader(Numbers(2), RandomSampler(range(2), seed=1), PseudoTransform()))
    )
    assert sorted(labels(loader)) == [[0], [1]]
    assert next(pickle.loads(pickle.dumps(StreamSampler(2))).batch()) == [0, 1]


PROGRAM = """
import signal, sys, time, os
from megengine.data import DataLoader
from megengine.data.dataset import Dataset
class Slow(Dataset):
    def __getitem__(self, index):
        time.sleep(0.05)
        return index
    def __len__(self):
        return 100000
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
for batch in DataLoader(Slow(), num_workers=3):
    if batch[0] == 3:
        import multiprocessing
        print(*[child.pid for child in multiprocessing.active_children()], flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_its_program(number):
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    workers = [int(pid) for pid in program.stdout.readline().split()]
    assert len(workers) == 3
    program.send_signal(number)
    _, errors = program.communicate(timeout=300)
    while any(map(running, workers)):
        time.sleep(0.05)
    if number == signal.SIGINT:
        assert errors.count(b"Traceback") == 1 and b"KeyboardInterrupt" in errors


def running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_sampler_is_one_of_two_kinds():
    for kind in (SequentialSampler, RandomSampler, StreamSampler):
        assert issubclass(kind, Sampler)
    with pytest.raises(AssertionError, match="Numbers needs a MapSampler, got object"):
        DataLoader(Numbers(3), sampler=object())


# ------------------------------------------------------------------------------- datasets of others


class Foreign:
    """A tensor or an image of another library."""

    def __init__(self, value):
        self.value = value

    def __array__(self, dtype=None, copy=None):
        return np.array(self.value, dtype)


class IterableDataset:
    """As PyTorch's: it inherits access by index, which raises."""

    def __getitem__(self, index):
        raise NotImplementedError

    def __len__(self):
        return 3

    def __iter__(self):
        return iter([{"x": Foreign([i])} for i in range(3)])


def test_samples_of_another_librarys_dataset_are_arrays():
    dataset = from_torch([(Foreign([0.5, 1]), np.int64(0)), (Foreign([2.5, 3]), np.int64(1))])
    assert isinstance(dataset, Dataset) and len(dataset) == 2
    ((x, y),) = DataLoader(dataset, SequentialSampler(dataset, batch_size=2), num_workers=1)
    assert x.tolist() == [[0.5, 1], [2.5, 3]] and y.tolist() == [0, 1] and y.dtype == np.int64


def test_an_iterable_dataset_of_another_library_is_a_stream():
    dataset = from_torch(IterableDataset())
    assert isinstance(dataset, StreamDataset)
    assert [batch["x"].tolist() for batch in DataLoader(dataset, StreamSampler(batch_size=2))] == [[[0], [1]], [[2]]]
    assert list(from_torch(iter([Foreign(1)]))) == [1]


def test_what_is_no_dataset_at_all_is_refused():
    with pytest.raises(TypeError, match="__iter__; got int"):
        from_torch(3)
