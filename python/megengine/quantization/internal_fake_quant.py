"""Names that programs of older versions import from here."""

from ..autodiff import Function
from .observer import MinMaxObserver
from .qconfig import QConfig
from .utils import QParams

__all__ = ["Function", "MinMaxObserver", "QConfig", "QParams"]
