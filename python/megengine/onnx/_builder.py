"""Building an fx graph from ONNX values: which are known while loading, which are computed, which are parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import fx
from ..module import Module
from ..tensor import Parameter, Tensor
from ._proto import onnx

_RESERVED = frozenset(dir(Module())) | {"graph", "code", "recompile"}


@dataclass
class Operand:
    """A value of the ONNX graph. array: what it holds, where that is known. shape: None where it is not known."""

    name: str
    node: fx.Node | None = None
    array: np.ndarray | None = None
    is_stored: bool = False  # an initializer: a parameter of the module, even if it is one number
    element_type: int = 0
    shape: tuple[int, ...] | None = None

    @property
    def is_float(self) -> bool:
        return self.element_type in (1, 10, 11, 16)  # FLOAT, FLOAT16, DOUBLE, BFLOAT16

    def plain(self) -> Any:
        """The array as numbers: a tuple of 1-d ones, a single number of 0-d ones."""
        array = self.array.astype(np.float64) if self.array.dtype.kind not in "iub" else self.array
        return array.item() if array.ndim == 0 else tuple(array.tolist())


def as_tensor(array: np.ndarray) -> Tensor:
    """In our dtypes: integers of 64 bits are cut to what 32 hold."""
    if array.dtype in (np.int64, np.uint64, np.uint32):
        array = np.clip(array, -(2**31), 2**31 - 1).astype(np.int32)
    return Tensor(array)


class Builder:
    """A graph under construction, and the tensors that it reads."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.attributes: dict[str, Tensor] = {}

    # -- names -----------------------------------------------------------------------------------

    def path_of(self, name: str) -> str:
        """A free attribute path like ``name``: its dots lead through modules, no step hides anything of theirs."""
        steps = [re.sub(r"^_+", "", step) or "x" for step in name.split(".")]
        steps = [f"{step}_" if step in _RESERVED else step for step in steps]
        path, number = ".".join(steps), 0
        while self._is_taken(path):
            number += 1
            path = f"{'_'.join(steps)}_{number}"
        return path

    def _is_taken(self, path: str) -> bool:
        return any(path == held or path.startswith(f"{held}.") or held.startswith(f"{path}.") for held in self._related(path))

    def _related(self, path: str) -> list[str]:
        head = path.split(".")[0]
        return self._by_head.get(head, [])

    @property
    def _by_head(self) -> dict[str, list[str]]:
        heads: dict[str, list[str]] = {}
        for held in self.attributes:
            heads.setdefault(held.split(".")[0], []).append(held)
        return heads

    # -- nodes -----------------------------------------------------------------------------------

    def store(self, name: str, array: np.ndarray) -> fx.Node:
        """A node that reads ``array``, kept by the module: a Parameter where it is of real numbers."""
        path = self.path_of(name)
        tensor = as_tensor(array)
        is_real = tensor.dtype.name in ("float32", "float16", "bfloat16")
        self.attributes[path] = Parameter(tensor) if is_real else tensor
        return self.graph.get_attr(path)

    def tensor(self, operand: Operand) -> fx.Node:
        """The node that gives the operand's value."""
        if operand.node is None:
            operand.node = self.store(operand.name, operand.array)
        return operand.node

    def call(self, function: Any, *args: Any, name: str = "", **kwargs: Any) -> fx.Node:
        """Calls a function; the value is named like an ONNX value."""
        wanted = re.sub(r"\W+", "_", name).strip("_")
        if wanted and not wanted[0].isdigit() and wanted.isidentifier():
            return self.graph.create_node("call_function", function, args, kwargs, wanted)
        return self.graph.call_function(function, args, kwargs)

    def module(self) -> fx.GraphModule:
        """The finished module."""
        self.graph.lint()
        return fx.GraphModule(self.attributes, self.graph, "OnnxModel")


def array_of(tensor: Any) -> np.ndarray:
    """A TensorProto as an array."""
    return onnx().numpy_helper.to_array(tensor)
