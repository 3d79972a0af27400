"""The operators of ONNX as functions of Tensors, if `megengine.functional` has none with the same
meaning.

Inputs are positional, attributes are keywords of their ONNX names. Loaded graphs call these.
`COUNTERPARTS` is the table: op type -> function of ours.
"""

from . import (  # noqa: F401
    arrays,
    attention,
    draws,
    elementwise,
    indices,
    layers,
    loops,
    narrow,
    quantized,
    recurrent,
    regions,
    resizing,
    sequences,
    spectra,
    windows,
)
from ._table import COUNTERPARTS, Counterpart

__all__ = ["COUNTERPARTS", "Counterpart"]
