"""Image datasets, read from files on disk."""

from .cifar import CIFAR10 as CIFAR10
from .cifar import CIFAR100 as CIFAR100
from .cityscapes import Cityscapes as Cityscapes
from .coco import COCO as COCO
from .folder import ImageFolder as ImageFolder
from .imagenet import ImageNet as ImageNet
from .meta_vision import VisionDataset as VisionDataset
from .mnist import MNIST as MNIST
from .objects365 import Objects365 as Objects365
from .voc import PascalVOC as PascalVOC
