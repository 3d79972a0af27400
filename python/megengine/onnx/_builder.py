"""Builds an fx graph from ONNX values: some are known while loading, others are computed, others
are parameters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import functional as F
from .. import fx
from ..module import Module
from ..tensor import Parameter, Tensor
from ._proto import NARROW_AS, OnnxError, held_as, onnx
from .functions.arrays import constant

REAL = frozenset({"float64", "float32", "float16", "bfloat16"})
MOST_ELEMENTS = 1024  # the most elements of a value that is kept as known while loading
_RESERVED = frozenset(dir(Module())) | {"graph", "code", "recompile"}


@dataclass
class Operand:
    """A value of the ONNX graph. array: its elements, if known. shape: None if it is not known;
    None also stands for extents that differ from call to call. dtype: our dtype, "" if unknown.
    is_of_sizes: it follows from extents and constants alone.
    narrow: TensorProto's number of the dtype in the file, if a wider one holds it. maker: the
    `Application` whose result it is.
    """

    name: str
    node: fx.Node | None = None
    array: np.ndarray | None = None
    is_stored: bool = False  # an initializer: a parameter of the module, even if it is one number
    dtype: str = ""
    shape: tuple[int | None, ...] | None = None
    partial: np.ma.MaskedArray | None = None  # the known elements; others are masked
    is_of_sizes: bool = False
    narrow: int = 0
    is_tensor: bool = True  # otherwise a sequence, or an optional value
    maker: Any = None

    def hold(self, array: np.ndarray) -> None:
        """Holds a known value."""
        self.array, self.shape, self.dtype = array, array.shape, held_as(array.dtype.name)

    @property
    def is_small(self) -> bool:
        """Whether it is known, no parameter, and small enough that each graph that reads it may
        hold it. Whole numbers are never parameters.
        """
        return self.array is not None and (not self.is_stored or self.array.dtype.kind in "iub") and self.array.size <= MOST_ELEMENTS

    @property
    def has_few_integers(self) -> bool:
        """Whether it is known to be of integers, and no more than are kept as known."""
        extents = [extent for extent in self.shape or () if extent is not None]
        is_known = self.dtype in ("int32", "int64") and self.shape is not None and len(extents) == len(self.shape)
        return is_known and math.prod(extents) <= MOST_ELEMENTS

    @property
    def type_text(self) -> str:
        """Returns the type as errors print it."""
        extents = "of any shape" if self.shape is None else [extent if extent is not None else "?" for extent in self.shape]
        return f"{self.dtype or '?'} {extents}"

    def may_become(self, other: Operand) -> bool:
        """Whether both can be of one type, as far as that is known."""
        if self.dtype and other.dtype and self.dtype != other.dtype:
            return False
        if self.shape is None or other.shape is None:
            return True
        return len(self.shape) == len(other.shape) and all(a == b or None in (a, b) for a, b in zip(self.shape, other.shape, strict=True))

    @property
    def is_float(self) -> bool:
        return self.dtype in REAL

    def plain(self) -> Any:
        """Returns the array as numbers: a tuple for a 1-d array, a single number for a 0-d one."""
        if self.array is None:
            raise AssertionError("self.array is not None does not hold")
        array = self.array.astype(np.float64) if self.array.dtype.kind not in "iub" else self.array
        return array.item() if array.ndim == 0 else tuple(array.tolist())


def _above(path: str) -> set[str]:
    """The paths on the way to an attribute."""
    steps = path.split(".")
    return {".".join(steps[:depth]) for depth in range(1, len(steps))}


def as_tensor(array: np.ndarray) -> Tensor:
    """Returns a tensor of our dtype, a Parameter if that is one of real numbers."""
    dtype = held_as(array.dtype.name)
    if array.dtype.kind == "u" and dtype == "int64":
        array = array.astype(np.int64)  # uint64 keeps its bits
    return (Parameter if dtype in REAL else Tensor)(array, dtype=dtype)


class Builder:
    """A graph under construction, and the tensors that it reads."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.attributes: dict[str, Any] = {}  # tensors, and modules of graphs that nodes hold
        # weights of recurrent layers and of products of bytes; key: the arrays that they are made of
        self.laid_out: dict[Any, list[fx.Node | None]] = {}
        self._modules: set[str] = set()  # paths on the way to attributes

    # -- names -----------------------------------------------------------------------------------

    def path_of(self, name: str) -> str:
        """Returns a free attribute path like ``name``: its dots lead through modules, and no step
        hides an attribute of theirs.
        """
        steps = [re.sub(r"^_+", "", step) or "x" for step in name.split(".")]
        steps = [f"{step}_" if step in _RESERVED else step for step in steps]
        path, number = ".".join(steps), 0
        while path in self.attributes or path in self._modules or self.attributes.keys() & _above(path):
            number += 1
            path = f"{'_'.join(steps)}_{number}"
        self._modules |= _above(path)
        return path

    # -- nodes -----------------------------------------------------------------------------------

    def store(self, name: str, array: np.ndarray) -> fx.Node:
        """A node that reads ``array``, which the module keeps."""
        path = self.path_of(name)
        self.attributes[path] = as_tensor(array)
        return self.graph.get_attr(path)

    def tensor(self, operand: Operand) -> fx.Node:
        """The node that gives the operand's value."""
        if operand.array is not None:
            return self.shaped(operand, operand.array.shape)
        if operand.node is None:
            raise OnnxError(f"load: nothing makes {operand.name!r}")
        return operand.node

    def shaped(self, operand: Operand, shape: tuple[int, ...]) -> fx.Node:
        """The node that gives a constant in another shape. It is stored once, in the shape that the first reader wants."""
        if operand.array is None:
            raise AssertionError("operand.array is not None does not hold")
        if operand.node is None:
            operand.node = self.store(operand.name, operand.array.reshape(shape))
        is_so = operand.node.op != "get_attr" or self.attributes[str(operand.node.target)]._tuple_shape == shape
        return operand.node if is_so else self.call(F.reshape, operand.node, shape)

    def made(self, operand: Operand) -> fx.Node:
        """Returns a tensor; a known value is made in each call. Unlike `tensor` it adds no tensor
        to the module: a symbolic trace could not read its value.
        """
        if operand.array is None:
            return self.tensor(operand)
        return self.call(constant, operand.array.tolist(), held_as(operand.array.dtype.name), name=operand.name)

    def call(self, function: Callable[..., Any], *args: Any, name: str = "", **kwargs: Any) -> fx.Node:
        """Calls a function; the value is named like an ONNX value."""
        wanted = re.sub(r"\W+", "_", name).strip("_")
        if wanted and not wanted[0].isdigit() and wanted.isidentifier():
            return self.graph.create_node("call_function", function, args, kwargs, wanted)
        return self.graph.call_function(function, args, kwargs)

    def module(self) -> fx.GraphModule:
        """Returns the finished module, without tensors that only shape arithmetic reads."""
        self.graph.eliminate_dead_code()
        return fx.GraphModule(self.attributes, self.graph, "OnnxModel")


def array_of(tensor: object) -> np.ndarray:
    """A TensorProto as an array, of a wider dtype where there are no tensors of its own."""
    array = onnx().numpy_helper.to_array(tensor)
    return array.astype(NARROW_AS[array.dtype.name]) if array.dtype.name in NARROW_AS else array
