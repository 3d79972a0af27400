"""Optimizers, learning-rate schedules, clipping of gradients, and averages of weights."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .. import _words
from ._sharded import sharded
from .adadelta import Adadelta
from .adafactor import Adafactor
from .adagrad import Adagrad
from .adam import Adam
from .adam8bit import Adam8bit, AdamW8bit
from .adamw import AdamW
from .clip_grad import clip_grad_norm, clip_grad_value
from .ema import EMA
from .lamb import LAMB, LAMBFp16
from .lion import Lion
from .lr_scheduler import LRScheduler
from .multi_step_lr import MultiStepLR
from .optimizer import Optimizer
from .rmsprop import RMSprop
from .schedules import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    OneCycleLR,
    ReduceLROnPlateau,
    StepLR,
)
from .sgd import SGD

__all__ = [
    "EMA",
    "LAMB",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "Adam8bit",
    "AdamW",
    "AdamW8bit",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "ExponentialLR",
    "LAMBFp16",
    "LRScheduler",
    "LambdaLR",
    "Lion",
    "MultiStepLR",
    "OneCycleLR",
    "Optimizer",
    "RMSprop",
    "ReduceLROnPlateau",
    "StepLR",
    "clip_grad_norm",
    "clip_grad_value",
    "sharded",
]

if not _TYPE_CHECKING:
    __getattr__ = _words.module_getattr(__name__, "optim")
