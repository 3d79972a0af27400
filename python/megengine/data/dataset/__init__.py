"""Datasets: base classes, arrays, and the published image datasets."""

from .meta_dataset import ArrayDataset as ArrayDataset
from .meta_dataset import ConcatDataset as ConcatDataset
from .meta_dataset import Dataset as Dataset
from .meta_dataset import StreamDataset as StreamDataset
from .meta_dataset import from_torch as from_torch
from .vision import CIFAR10 as CIFAR10
from .vision import CIFAR100 as CIFAR100
from .vision import COCO as COCO
from .vision import MNIST as MNIST
from .vision import Cityscapes as Cityscapes
from .vision import ImageFolder as ImageFolder
from .vision import ImageNet as ImageNet
from .vision import Objects365 as Objects365
from .vision import PascalVOC as PascalVOC
from .vision import VisionDataset as VisionDataset
