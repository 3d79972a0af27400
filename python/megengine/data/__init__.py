"""Loading data: a dataset gives samples, a sampler chooses them, transforms change them, a collator makes batches, a loader runs it all.

Samples and batches are NumPy arrays on the host; a `DataLoader` with ``preload`` gives tensors.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .. import _words
from .collator import Collator as Collator
from .dataloader import DataLoader as DataLoader
from .dataset import from_torch as from_torch
from .sampler import Infinite as Infinite
from .sampler import MapSampler as MapSampler
from .sampler import RandomSampler as RandomSampler
from .sampler import ReplacementSampler as ReplacementSampler
from .sampler import Sampler as Sampler
from .sampler import SequentialSampler as SequentialSampler
from .sampler import StreamSampler as StreamSampler

if not _TYPE_CHECKING:
    __getattr__ = _words.module_getattr(__name__, "data")
