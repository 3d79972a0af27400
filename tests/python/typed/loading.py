"""A dataset of the user's, a sampler, transforms, a collator, and what a DataLoader gives of them."""

from collections.abc import Iterator, Sequence

import numpy as np

import megengine as mge
import megengine.functional as F
from megengine.data import Collator, DataLoader, RandomSampler, SequentialSampler
from megengine.data import transform as T
from megengine.data.dataset import ArrayDataset, Dataset, StreamDataset


class Circles(Dataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        image = np.zeros((16, 16, 3), np.uint8)
        image[index % 16] = 255
        return image, index % 10

    def __len__(self) -> int:
        return self.count


class Lines(StreamDataset):
    def __iter__(self) -> Iterator[str]:
        yield from ("one", "two", "three")


class Padded(Collator):
    def apply(self, inputs: Sequence[list[int]]) -> tuple[np.ndarray, list[int]]:
        lengths = [len(each) for each in inputs]
        return np.array([each + [0] * (max(lengths) - len(each)) for each in inputs], "int32"), lengths


dataset = Circles(20)
sampler = RandomSampler(dataset, batch_size=4, drop_last=True)
look = T.Compose([T.Normalize(mean=128.0, std=64.0), T.ToMode("CHW")])
for image, label in DataLoader(dataset, sampler, transform=look):
    print(image.shape, label.dtype, mge.tensor(image).mean().item() + 0.5)

for pixels, target in DataLoader(dataset, sampler, look, preload=True):
    loss = F.loss.cross_entropy(pixels.reshape(pixels.shape[0], -1)[:, :10], target)
    print(loss.item() < 100)

arrays = ArrayDataset(np.arange(6, dtype="float32"), np.arange(6))
for x, y in DataLoader(arrays, SequentialSampler(arrays, batch_size=3)):
    print((x * y).sum())
for lines in DataLoader(Lines()):
    print(lines[0].upper())
for rows, lengths in DataLoader([[1, 2], [3]], SequentialSampler([0, 1], batch_size=2), collator=Padded()):
    print(rows.shape, max(lengths))
print(len(DataLoader(dataset, sampler)))
