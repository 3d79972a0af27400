import random

import numpy as np

import megengine.data.transform as T
from megengine.data import DataLoader, Infinite, SequentialSampler
from megengine.data.dataset import ArrayDataset

PLACES = np.stack([*np.mgrid[:20, :30], np.zeros((20, 30))], -1).astype("uint8")  # each pixel says where it is


def at_corners(transform):
    found = []
    for seed in range(5):
        np.random.seed(seed)
        random.seed(seed)
        found.append(transform.apply(PLACES)[[0, -1], [0, -1], :2].tolist())
    return found


def ask_drawn_crops():
    return at_corners(T.RandomCrop(5)), at_corners(T.RandomCrop((24, 20), padding_size=2)), at_corners(T.RandomResizedCrop(5, interpolation=0))


def ask_sizes_that_are_no_whole_numbers():
    images = [np.zeros((h, w, 3), "uint8") for h, w in ((8, 6), (6, 8), (7, 9), (100, 67), (333, 500), (5, 5))]
    shorter = [T.Resize(size).apply(image).shape for image in images for size in (4, 5, 7, 224)]
    bounded = [T.ShortestEdgeResize(*sizes).apply(image).shape for image in images for sizes in ((4, 100), (5, 6), (224, 300), (800, 1333))]
    return shorter, bounded


def ask_length_of_an_endless_loader():
    data = ArrayDataset(np.ones(3))
    return len(Infinite(SequentialSampler(data))), len(DataLoader(data, Infinite(SequentialSampler(data))))


def ask_drawn_colours():
    image, sums = (np.arange(8 * 6 * 3) * 7 % 256).reshape(8, 6, 3).astype("uint8"), []
    for seed in range(8):
        np.random.seed(seed)
        random.seed(seed)
        sums.append([int(transform.apply(image).sum()) for transform in (T.HueTransform(0.4), T.ColorJitter(0.4, 0.4, 0.4, 0.2))])
    return sums


def ask_length_of_a_pass_that_has_begun():
    data, lengths = ArrayDataset(np.arange(10)), []
    for workers in (0, 1):
        batches = iter(DataLoader(data, SequentialSampler(data, batch_size=3), num_workers=workers))
        next(batches)
        lengths.append(len(batches))
    return lengths, len(list(DataLoader(data, SequentialSampler(data, batch_size=3))))


def ask_dtypes_of_normalized_images():
    transform = T.Normalize([2, 3], [4, 5])
    return [transform.apply(np.full((1, 1, 2), 6, dtype)) for dtype in ("uint8", "int32", "float16", "float32", "float64")]
