"""Datasets: base classes, arrays, and the published image datasets."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ... import _words
from ...core import _later
from .meta_dataset import ArrayDataset as ArrayDataset
from .meta_dataset import ConcatDataset as ConcatDataset
from .meta_dataset import Dataset as Dataset
from .meta_dataset import StreamDataset as StreamDataset
from .meta_dataset import from_torch as from_torch

if _TYPE_CHECKING:
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
else:
    _in_vision = "CIFAR10 CIFAR100 COCO MNIST Cityscapes ImageFolder ImageNet Objects365 PascalVOC VisionDataset"
    __getattr__, __dir__ = _later.names_of(__name__, {"": "vision", "vision": _in_vision}, _words.module_getattr(__name__, "data"))
