"""Values of a traced graph: tensors and modules, which behave like these inside ``insert_exprs``."""

from __future__ import annotations

import abc
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from .. import functional as F
from .._files.container import Damaged, is_count
from .._files.values import expect, read_dtype, record, write_dtype
from .._graph.core import GraphError
from .._graph.tree import Value
from .._graph.unknown import Unknown
from ..core._origin import users_line
from ..core.qparams import QParams
from ..device import Device
from ..fx._watch import OPERATORS
from ..module import Module
from ..tensor import Tensor
from . import module_tracer

if TYPE_CHECKING:
    import typing_extensions  # every checker knows it: its default says what a plain ``ModuleNode`` has

    from .expr import Expr
    from .traced_module import InternalGraph

    _M = typing_extensions.TypeVar("_M", bound=Module, default=Module)
    _ActsAs = Tensor  # inside insert_exprs functions and operators take a node for one
else:
    _M = TypeVar("_M")
    _ActsAs = object

__all__ = ["ModuleNode", "Node", "TensorNode"]


class Node(Value, abc.ABC, _ActsAs):
    """Something that an expr makes and others read.

    expr: makes it. users: exprs that read it. name: unique in its graph. qualname: where the traced
    program made it, ``Net.conv.[out]``.
    """

    expr: Expr = None  # type: ignore[assignment]  # until an expr takes it
    _name: str

    def __init__(self, expr: Expr | None, name: str | None = None, qualname: str | None = None) -> None:
        super().__init__()
        self.expr = expr  # type: ignore[assignment]  # as above
        self._name = name or ""
        self._qualname = qualname or ""
        self._id: int | None = None

    @property
    def name(self) -> str:
        """Name in the graph. AssertionError when set to a name that another node of it has."""
        return self._name

    @name.setter
    def name(self, new_name: str) -> None:
        graph = self.top_graph
        if graph is not None and new_name != self._name:
            if new_name in graph._names:
                raise AssertionError(f"{new_name!r} is the name of another node of {graph.name}\n  fix: choose another name")
            graph._names.drop(self._name)
            new_name = graph._names.take(new_name)
        self._name = new_name

    @property
    def qualname(self) -> str:
        """Path in the traced program, which edits of the graph do not change."""
        return self._qualname

    @property
    def _orig_name(self) -> str:
        """A name after the module, function or method that made this, by its path below the top:
        ``conv_bn.1_out``.
        """
        path = self._qualname.split(".[")
        base = path[0].partition(".")[2]
        if len(path) == 1:
            return base
        kind, _, name = path[1].rstrip("]").partition("_")
        if kind == "out":
            return f"{base}_out"
        made = f"{name}_out" if kind in ("func", "method") else path[1].rstrip("]")  # an input or a constant
        return f"{base}.{made}" if base else made

    @property
    def users(self) -> list[Expr]:
        """The exprs that read this node, in order of first use."""
        return [expr for expr in self.readers if expr.op != "output"]

    @property
    def top_graph(self) -> InternalGraph:
        """The graph this node is in; None before it is in one."""
        return self.expr.top_graph if self.expr is not None else None

    def _written(self, writer: Any) -> dict[str, Any]:
        """Returns the record of the node in a file; ``writer`` writes values."""
        return {"kind": type(self).__name__, "name": self._name, "qualname": self._qualname}

    @staticmethod
    def _read(data: Any, reader: Any) -> Node:
        """Returns the node of a record that `_written` made."""
        record(data, "kind name qualname", "shape dtype device qparams value")
        kind, name, qualname = (expect(data[key], str) for key in ("kind", "name", "qualname"))
        if kind == "ModuleNode":
            return ModuleNode(None, name, qualname)
        if kind != "TensorNode":
            raise Damaged(f"the node {name!r} is of an unknown kind")
        shape, dtype = data.get("shape"), data.get("dtype")
        if shape is not None and not all(map(is_count, expect(shape, list))):
            raise Damaged(f"the node {name!r} has the shape {shape}")
        node = TensorNode(None, name, qualname, shape, None if dtype is None else read_dtype(dtype))
        node._device = expect(data.get("device"), (str, type(None)))
        node._qparams, node._value = reader(data.get("qparams")), reader(data.get("value"))
        if not isinstance(node._qparams, QParams | None) or not isinstance(node._value, Tensor | None):
            raise Damaged(f"the node {name!r} has a value that is not a tensor")
        return node

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state that a copy of the node takes over: all but its maker and readers."""
        return {key: value for key, value in vars(self).items() if key not in ("expr", "readers")}

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        vars(self).update(state or {})

    def __repr__(self) -> str:
        return self._name

    def __format__(self, format_spec: str) -> str:
        """Puts the id before the name for "i", and the graph's name for "p"; "ip" does both."""
        name = self._name
        if "p" in format_spec and self.top_graph is not None:
            name = f"{self.top_graph.name}_{name}"
        return f"%{self._id}_{name}" if "i" in format_spec else name


class ModuleNode(Node, Generic[_M]):
    """A module: the traced one itself (``self``), or one read from it."""

    @property
    def owner(self) -> _M:
        """The module itself, as the tree holds it now."""
        expr: Any = self.expr  # an Input, GetAttr or Constant
        return expr._module_made()

    @property
    def module_type(self) -> type[_M]:
        """Class of the module."""
        return type(self.owner)

    def __getattr__(self, name: str) -> Any:
        if name in ("owner", "module_type"):  # the property did not find it
            raise AttributeError(f"{self._name!r}: the module that held it has no such attribute")
        if name.startswith("_") and not name[1:].isdigit():
            raise AttributeError(f"ModuleNode has no attribute {name!r}")
        return module_tracer.inserting(f"node.{name}").get_attr(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Insert a call of the module."""
        return module_tracer.inserting(f"{self._name}()").call_module(self, args, kwargs)


class TensorNode(Unknown, Node):
    """A tensor, with shape and dtype as they were while tracing.

    Uses that need its value, such as a condition, raise GraphError while exprs are inserted.
    """

    def __init__(
        self,
        expr: Expr | None,
        name: str | None = None,
        qualname: str | None = None,
        shape: Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        qparams: QParams | None = None,
    ) -> None:
        super().__init__(expr, name, qualname)
        self._shape = None if shape is None else tuple(shape)
        self._dtype = None if dtype is None else np.dtype(dtype)
        self._device: str | None = None
        self._qparams = qparams
        self._value: Tensor | None = None

    @property  # type: ignore[override]  # a node may have none
    def shape(self) -> tuple[int, ...] | None:
        """Shape while tracing; None when not known."""
        return self._shape

    @shape.setter
    def shape(self, shape: Sequence[int]) -> None:
        try:
            self._shape = tuple(map(operator.index, shape))
        except TypeError:
            raise TypeError(f"{self._name!r}: a shape is a tuple of int, got {shape!r}") from None

    @property  # type: ignore[override]  # as above
    def dtype(self) -> np.dtype | None:
        """dtype while tracing; None when not known."""
        return self._dtype

    @dtype.setter
    def dtype(self, dtype: DTypeLike) -> None:
        self._dtype = np.dtype(dtype)

    @property  # type: ignore[override]  # as above
    def device(self) -> str | None:
        """Device while tracing; None when not known."""
        return self._device

    @device.setter
    def device(self, device: str | Device) -> None:
        self._device = str(device)

    @property
    def qparams(self) -> Any:
        """Quantization parameters while tracing, or None."""
        return self._qparams

    @qparams.setter
    def qparams(self, qparams: QParams | None) -> None:
        self._qparams = qparams

    @property
    def value(self) -> Tensor | None:
        """The example value that insertions compute with; None stands for zeros."""
        return self._value

    @value.setter
    def value(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(f"{self._name!r}: value must be a Tensor or None, got {value!r}")
            self._describe(value)
        self._value = value

    def _describe(self, value: Tensor) -> None:
        """Note shape, dtype, device and quantization parameters of ``value``."""
        self._shape = value._tuple_shape
        self._dtype = value.dtype
        self._device = value.device.logical_name
        self._qparams = value._qparams

    def _written(self, writer: Any) -> dict[str, Any]:
        shape = None if self._shape is None else list(self._shape)
        dtype = None if self._dtype is None else write_dtype(self._dtype)
        held = {"qparams": self._qparams, "value": self._value}
        return {
            **super()._written(writer), "shape": shape, "dtype": dtype, "device": self._device,
            **{key: writer(value) for key, value in held.items() if value is not None},
        }  # fmt: skip

    def _example(self) -> Tensor:
        """The value to compute with while exprs are inserted."""
        if self._value is not None:
            return self._value
        if self._shape is None or self._dtype is None:
            raise ValueError(
                f"the shape of {self._name!r} is not known\n  fix: set node.value to a Tensor like those to come"
            )
        return F.zeros(self._shape, dtype=self._dtype)

    def __getattr__(self, name: str) -> Any:
        if name not in module_tracer.TENSOR_METHODS or name.startswith("_"):
            named = self.__dict__.get("_name")
            raise AttributeError(f"{named!r} is a TensorNode, which has no attribute {name!r}")
        recorder = module_tracer.inserting(f"node.{name}")
        return lambda *args, **kwargs: recorder.call_method(name, (self, *args), kwargs)

    __hash__ = object.__hash__

    # -- what needs the value --------------------------------------------------------------------

    def _asked(self, what: str, fix: str) -> GraphError:
        maker = f" ({self.expr.source})" if self.expr is not None and self.expr.source else ""
        if module_tracer.active_module_tracer() is None:
            fix = "compute with nodes under `with graph.insert_exprs():`"
        return GraphError(
            f"{what} of {self._name!r}{maker}: a node has no value yet\n  fix: {fix}\n  at:  {users_line()}"
        )

    def __bool__(self) -> bool:
        recorder = module_tracer.active_module_tracer()
        if recorder is None or not recorder.inserts:
            return True
        raise self._asked("the truth", "choose with functional.where")

    def __len__(self) -> int:
        raise self._asked("len()", "node.shape[0] is the number while tracing")


def _operator(name: str) -> Any:
    def method(self: TensorNode, *args: Any) -> Any:
        return module_tracer.inserting(name).call_method(name, (self, *args), {})

    method.__name__ = name
    return method


# Nodes are keys, so == compares identity; without in-place operators `x += y` is `x = x + y`.
for _name in OPERATORS:
    if _name not in ("__eq__", "__ne__") and not _name.startswith("__i") or _name == "__invert__":
        setattr(TensorNode, _name, _operator(_name))
