"""Parts of import and export alike: the optional package ``onnx``, dtypes, the error."""

from __future__ import annotations

import functools
from types import ModuleType

import numpy as np

from .. import _core

OLDEST_OPSET = 17
# dtypes of files by other names, or that there are no tensors of, and those that hold their values here.
_HELD_AS = {"float": "float32", "double": "float64", "uint32": "int64", "uint64": "int64", "complex128": "complex64"}
# Narrow numbers by their names in TensorProto and in NumPy.
NARROW_AS = {
    **dict.fromkeys(("int4", "int2"), "int8"), **dict.fromkeys(("uint4", "uint2"), "uint8"),
    **dict.fromkeys(("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0", "float4e2m1"), "float32"),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"), "float32"),
}  # fmt: skip
_HELD_AS |= NARROW_AS


class OnnxError(ValueError):
    """A model that cannot be written as ONNX, or a file that cannot be read; the message lists what
    is wrong.

    Examples
    --------
    >>> import megengine.onnx
    >>> try:
    ...     megengine.onnx.load(b"not a model")
    ... except megengine.onnx.OnnxError as error:
    ...     print("refused")
    refused
    """

    __module__ = "megengine.onnx"  # where programs import it from, which tracebacks print


def need_no_recording(what: str) -> None:
    """Raises RuntimeError inside a traced function or a GradManager's block, where nothing else can
    be recorded.
    """
    if _core.is_tracing() or _core.open_tapes():
        raise RuntimeError(f"{what}: not possible inside a traced function or a GradManager's block\n  fix: call it before")


@functools.cache
def onnx() -> ModuleType:
    """Returns the package with the modules that are used. ImportError that tells how to install it.
    """
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
        import onnx.reference
    except ImportError as error:
        raise ImportError(
            "megengine.onnx needs the package onnx\n  fix: pip install 'megjit[onnx]'"
        ) from error
    return onnx


def held_as(name: str) -> str:
    """Returns the name of the dtype here for a dtype's name in NumPy or ONNX."""
    return _HELD_AS.get(name, name)


@functools.cache
def element_type(dtype: np.dtype | str) -> int:
    """TensorProto's number for a dtype."""
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    return getattr(onnx().TensorProto, {"float32": "FLOAT", "float64": "DOUBLE"}.get(name, name.upper()))
