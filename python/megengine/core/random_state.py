"""The random states of a process: the default one, and that of dropout's masks, which differs
between the ranks of a world.
"""

import os
from collections.abc import Callable

import numpy as np

from .. import _core
from .._core import RandomState


def fresh_seed() -> int:
    """Returns a seed for generators without one of their own, from the system: numpy.random takes
    long to load.
    """
    return int.from_bytes(os.urandom(8), "little")


def default_random_state() -> RandomState:
    """The state that module functions, dropout and initialisers draw from."""
    return _default


_default = _core.default_random_state()
_default.seed(fresh_seed())
_is_seeded = False  # whether the program has set a seed
_beside = 0  # seeds given by `seed_beside` since then
_rank: int | None = None  # rank of this process in a world
_of_rank = RandomState(0)  # kept alive by programs that draw from it
_noise = _default


def noise_state() -> RandomState:
    """The state that dropout draws its masks from: the default one, or in a world of processes that of this rank."""
    return _noise


def enter_world(rank: int | None, gather: Callable[[str], list[str]] | None = None) -> None:
    """Makes initial weights the same in all processes from here on, but not masks. rank: None when
    the world ends. gather: returns the value of each process, by rank. A process whose program
    called `seed` keeps that seed; the others take rank 0's.
    """
    global _rank, _noise
    _rank = rank
    if rank is None or gather is None:
        _noise = _default
        return
    first = gather(str(_default.current_seed))[0]
    if not _is_seeded:
        _default.seed(int(first))
    _noise = _of_rank
    _noise.seed(_seed_of_rank())


def state() -> list[int]:
    """The random state of this process: seed and counter of the default state, and the counter of that of the masks."""
    return [_default.current_seed, _default.counter, _noise.counter]


def restore(seed: int, counter: int, noise_counter: int) -> None:
    """Continues where `state` was taken, in a world of any size."""
    global _is_seeded, _beside
    _default.restore(seed, counter)
    _is_seeded, _beside = True, 0
    if _rank is not None:
        _noise.restore(_seed_of_rank(), noise_counter)


def _seed_of_rank() -> int:
    mixed = np.random.SeedSequence([_default.current_seed, _rank or 0])
    return int(mixed.generate_state(1, np.uint64)[0])


def start(seed: int) -> None:
    """Start both states anew."""
    global _is_seeded, _beside
    _default.seed(seed)
    _is_seeded, _beside = True, 0
    if _rank is not None:
        _noise.seed(_seed_of_rank())


def seed_beside() -> int | None:
    """Returns a seed of 32 bits for a generator of NumPy, a new one at each call; None if the
    program has not called `seed`.

    It follows from the default state and leaves it where it is, so that making a sampler does not change the weights that are drawn after it.
    """
    global _beside
    if not _is_seeded:
        return None
    _beside += 1
    mixed = np.random.SeedSequence([_default.current_seed, _default.counter, _beside])
    return int(mixed.generate_state(1, np.uint32)[0])
