"""Input pipeline: dataset -> sampler (which indices) -> transform -> collator (a batch) -> loader.

In: indexable or iterable data on the host. Out: batches as NumPy arrays, or tensors with ``preload``.
"""

from .collator import Collator as Collator
from .dataloader import DataLoader as DataLoader
from .sampler import Infinite as Infinite
from .sampler import MapSampler as MapSampler
from .sampler import RandomSampler as RandomSampler
from .sampler import ReplacementSampler as ReplacementSampler
from .sampler import Sampler as Sampler
from .sampler import SequentialSampler as SequentialSampler
from .sampler import StreamSampler as StreamSampler
