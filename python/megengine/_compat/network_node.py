"""Objects for what a :class:`~megengine.utils.network.Network` holds: variables and operators.

They are views: the graph lies in the extension, and each look at an attribute reads it there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from .. import functional as F
from ..core._registry import WrongKey
from ..functional import quantized, vision
from ..tensor import Tensor
from . import builtin, mesh_indexing
from .builtin import Registered
from .functions import _assert_equal as assert_equal

if TYPE_CHECKING:
    from .network import Network

__all__ = [
    "ConstOpBase", "Host2DeviceCopy", "ImmutableTensor", "NetworkNode", "OpNode", "SharedDeviceTensor",
    "VarNode", "str_to_mge_class",
]  # fmt: skip

__name__ = "megengine.utils.network_node"  # its classes are named by this path

shapes_are_variables = False  # see network.set_symbolic_shape


class NetworkNode:
    """Base of variables and operators."""

    _network: Network


class VarNode(NetworkNode, Tensor):
    """A value of a network. It is a Tensor without data: functions of it, and operators, extend the graph.

    ``==`` compares elements, as for every Tensor; the result is a variable and counts as false, so that
    ``var in a_list`` looks for the object. Networks make them; ``VarNode(var)`` gives ``var``.
    """

    def __new__(
        cls, var: VarNode, *, owner_opr: OpNode | None = None, name: str | None = None
    ) -> VarNode:
        if not isinstance(var, VarNode):
            raise TypeError(
                f"VarNode: {type(var).__name__} is not a variable of a network\n"
                "  fix: use Network.make_input_node or Network.make_const"
            )
        if owner_opr is not None and owner_opr is not var.owner:
            raise ValueError(f"VarNode: {owner_opr!r} does not make {var!r}")
        if name is not None:
            var.name = name
        return var

    def __init__(
        self, var: VarNode, *, owner_opr: OpNode | None = None, name: str | None = None
    ) -> None:
        pass

    @classmethod
    def load(cls, sym_var: VarNode, owner_opr: OpNode | None = None) -> VarNode:
        """``sym_var``, as for the class itself."""
        return cls(sym_var, owner_opr=owner_opr)

    def __setitem__(self, index: Any, value: Any) -> None:
        # ``v[...] = value`` of other tensors takes the value itself, which stands in no graph.
        super().__setitem__((slice(None),) * self.ndim if index is Ellipsis else index, value)

    @property
    def id(self) -> int:
        """Its number, which stays."""
        return _core.variable_link(self)[1]

    @property
    def name(self) -> str:
        """The name of an input or output in dumps."""
        return self._network.graph.value_name(self.id)

    @name.setter
    def name(self, name: str) -> None:
        self._network.graph.rename_value(self.id, name)
        self._network._changed()

    @property
    def owner(self) -> OpNode:
        """The operator that makes it."""
        return self._network._opr(self._network.graph.owner(self.id))

    @property
    def users(self) -> list[OpNode]:
        """Operators of the graph that read it."""
        return [opr for opr in self._network.all_oprs if self.id in opr._input_ids]

    @property
    def graph(self) -> _core.GraphEditor:
        return self._network.graph

    @property
    def comp_node(self) -> Any:
        """The device, as older programs call it."""
        return self.device

    @property
    def shape(self) -> tuple[int, ...] | VarNode:  # type: ignore[override]  # here it is no tuple
        """Extents: a tuple, or a constant variable after ``set_symbolic_shape(True)``."""
        return self.shapeof() if shapes_are_variables else self._tuple_shape

    @property
    def partial_shape(self) -> tuple[int, ...]:
        """The shape; all extents of our graphs are known."""
        return self._tuple_shape

    def shapeof(self, axis: int | None = None) -> VarNode:
        """The extent of an axis as a variable of shape (1,), or all extents. They are constants, as
        our shapes are known.
        """
        extents = self._tuple_shape if axis is None else (self._tuple_shape[axis],)
        return self._network.make_const(np.array(extents, np.int32))

    def set_owner_opr(self, owner_opr: OpNode) -> None:
        """Raises ValueError unless that operator makes it: the graph tells which operator makes a
        variable.
        """
        type(self)(self, owner_opr=owner_opr)

    def numpy(self) -> np.ndarray:
        """The value of a variable that depends on constants only. RuntimeError for others."""
        return self._network.graph.constant_value(self.id).numpy()

    def item(self, *args: Any) -> Any:
        return self.numpy().item(*args)

    def __bool__(self) -> bool:
        return False

    # A variable has no value as a number; asking for one raises Python's own error.
    __index__ = None  # type: ignore[assignment]  # taken back
    __int__ = None  # type: ignore[assignment]  # taken back
    __float__ = None  # type: ignore[assignment]  # taken back
    __complex__ = None  # type: ignore[assignment]  # taken back
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"VarNode(name={self.name!r}, shape={self._tuple_shape}, dtype={self.dtype})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"{self!r} is part of a network\n  fix: keep the network with Network.dump")


class _Inputs(list[VarNode]):
    """Operands of an operator; writing one changes the graph."""

    def __init__(self, opr: OpNode) -> None:
        super().__init__(map(opr._network._var, opr._input_ids))
        self._opr = opr

    def __setitem__(self, index: int, var: VarNode) -> None:  # type: ignore[override]  # one at a time
        network = self._opr._network
        index = range(len(self))[index]
        network._edit("set_operand", self._opr.id, index, network._id_of(var))
        super().__setitem__(index, var)


class _Params(dict[str, Any]):
    """Attributes of an operator; the first write is remembered for `OpNode.compile`."""

    def __init__(self, opr: OpNode, attrs: dict[str, Any]) -> None:
        super().__init__(attrs)
        self._opr = opr

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self:
            raise WrongKey(f"{self._opr!r} has no attribute {name!r}; there are {', '.join(self)}")
        super().__setitem__(name, value)
        self._opr._changed_params = self


class OpNode(NetworkNode):
    """An operator of a network; made by functions of variables, and by the network."""

    type = "OpNode"
    _changed_params: dict[str, Any] | None
    opdef: Any = None  # makes the operator again: a class of core.ops.builtin, or a function of variables
    _number: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError(
            f"{type(self).__name__}: operators are made by networks\n"
            "  fix: call a function on variables, Network.make_input_node or Network.make_const"
        )

    @classmethod
    def _of(cls, network: Network, number: int) -> OpNode:
        self = object.__new__(cls)
        self._network = network
        self._number = number
        self._changed_params = None
        return self

    @classmethod
    def load(cls, opr: OpNode | VarNode) -> OpNode:
        """An operator as it is, or the one that makes a variable. TypeError when it is not of this class."""
        opr = opr.owner if isinstance(opr, VarNode) else opr
        if not isinstance(opr, cls):
            raise TypeError(f"{cls.__name__}.load: {opr!r} is of another class")
        return opr

    def compile(self) -> None:
        """Applies what was written into ``params``: the operator is made again, and takes the place of the old one.

        An error, such as a shape that does not fit, changes nothing.
        """
        if self._changed_params is not None:
            attrs, self._changed_params = self._changed_params, None
            made = Registered(self._network.graph.kind(self._number), **attrs)(*self.inputs)
            pairs = zip(self.outputs, made if isinstance(made, (list, tuple)) else [made], strict=True)
            name = self.name
            self._network.replace_vars(dict(pairs))
            self._take_number((made[0] if isinstance(made, (list, tuple)) else made).owner)
            self.name = name

    def _take_number(self, other: OpNode) -> None:
        self._number = other._number
        self._network._oprs[self._number] = self

    @property
    def id(self) -> int:
        """Its number, which only `compile` changes."""
        return self._number

    @property
    def name(self) -> str:
        return self._network.graph.node_name(self._number)

    @name.setter
    def name(self, name: str) -> None:
        self._network.graph.rename_node(self._number, name)

    @property
    def params(self) -> dict[str, Any]:
        """Attributes of the operator, and for element-wise ones ``mode``; `compile` applies what is written into it."""
        if self._changed_params is not None:
            return self._changed_params
        return _Params(self, self._network.graph.attrs(self._number))

    @property
    def _input_ids(self) -> list[int]:
        return self._network.graph.inputs(self._number)

    @property
    def inputs(self) -> list[VarNode]:
        """Operands; ``opr.inputs[0] = var`` makes it read another one."""
        return _Inputs(self)

    @property
    def outputs(self) -> list[VarNode]:
        return [self._network._var(number) for number in self._network.graph.outputs(self._number)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, id={self._number})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"{self!r} is part of a network\n  fix: keep the network with Network.dump")


class Elemwise(OpNode):
    """An element-wise operator; ``params["mode"]`` says which."""

    type = "Elemwise"
    opdef = builtin.Elemwise

    @property
    def params(self) -> dict[str, Any]:
        graph = self._network.graph
        return {"mode": graph.type_name(self._number), **graph.attrs(self._number)}

    def __repr__(self) -> str:
        return f"Elemwise(mode={self.params['mode']}, name={self.name!r}, id={self._number})"


class _Source(OpNode):
    """Base of the operators that begin a network, with one result."""

    shape = property(lambda self: self.outputs[0]._tuple_shape)
    dtype = property(lambda self: self.outputs[0].dtype)
    device = property(lambda self: self.outputs[0].device)


class Host2DeviceCopy(_Source):
    """An input of the network."""

    type = "Host2DeviceCopy"

    def compile(self, graph: Network | None = None) -> VarNode | None:  # type: ignore[override]  # as published
        """Makes an input like this one in another network."""
        if graph is None:
            return None
        return graph.make_input_node(self.shape, self.dtype, self.name, self.device)


class ConstOpBase(_Source):
    """A constant."""

    type = "ConstOpBase"

    def compile(self, graph: Network | None = None) -> VarNode | None:  # type: ignore[override]  # as published
        """Makes a constant like this one in another network."""
        if graph is None:
            return None
        return graph.make_const(self.numpy(), self.name, self.device)

    def numpy(self) -> np.ndarray:
        return self.outputs[0].numpy()

    def set_value(self, data: ArrayLike, device: str | None = None) -> None:
        """Sets other data, which may have another shape if the readers can take it."""
        value = data if isinstance(data, Tensor) else Tensor(data, device=device)
        self._network._edit("set_constant", self._number, value)


class ImmutableTensor(ConstOpBase):
    """A number or array of the program."""

    type = "ImmutableTensor"


class SharedDeviceTensor(ConstOpBase):
    """A parameter."""

    type = "SharedDeviceTensor"


class ReadOnlyOpNode(OpNode):
    """An operator whose attributes are fixed."""

    @property
    def params(self) -> dict[str, Any]:
        return dict(super().params)


class RNGOpr(OpNode):
    """Draws random numbers."""


class IndexingBase(OpNode):
    """Reads or writes parts of a tensor."""


def _operator(name: str, type_name: str, base: type[OpNode] = OpNode, opdef: Any = Registered) -> type[OpNode]:
    made = type(name, (base,), {"type": type_name, "__module__": __name__, "opdef": opdef})
    made.__doc__ = f"The operator ``{type_name}``."
    globals()[name] = made
    return made


# Classes by the names that dumped operators carry (type_name_of in jit/file/export.cpp). Those of other operators are called as these are,
# and made at first use.
_CLASSES = {
    type_name: _operator(name, type_name, base)
    for base, names in {
        OpNode: {
            "AdaptivePoolingForward": "AdaptivePooling", "Argmax": "Argmax", "Argmin": "Argmin", "ArgsortForward": "Argsort",
            "BatchNormForward": "BatchNorm", "Broadcast": "Broadcast", "Concat": "Concat", "ConvolutionBackwardData": "ConvTranspose",
            "ConvolutionForward": "Convolution", "Copy": "CopyTo", "Dimshuffle": "Dimshuffle", "Identity": "Identity",
            "MatrixInverse": "MatrixInverse", "MatrixMul": "MatrixMul", "NMSKeep": "Nms", "PoolingForward": "Pooling", "Reduce": "Reduce",
            "Reshape": "Reshape", "SVD": "SVD", "TopK": "TopK", "TypeCvt": "TypeCvt",
        },
        IndexingBase: {
            "IndexingIncrMultiAxisVec": "IndexingIncrMultiAxisVec", "IndexingMultiAxisVec": "IndexingMultiAxisVec",
            "IndexingOneHot": "IndexingOneHot", "IndexingSetMultiAxisVec": "IndexingSetMultiAxisVec",
            "IndexingSetOneHot": "IndexingSetOneHot", "SetSubtensor": "SetSubtensor", "Subtensor": "Subtensor",
        },
    }.items()
    for name, type_name in names.items()
}  # fmt: skip
_CLASSES["ConvolutionBackwardData"] = _CLASSES["ConvTranspose"]
_CLASSES.update(
    (type_name, _operator(f"_{type_name}", type_name, RNGOpr))
    for type_name in ("RandomUniform", "RandomNormal", "RandomGamma", "RandomBeta", "RandomPoisson", "RandomPermutation", "RandomMultinomial")
)
# What is an operator elsewhere is made of several here: no graph holds these, and `opdef` is the function that writes its parts.
UNUSED: set[type[OpNode]] = set()
for _name, _type_name, _function in (
    ("AssertEqual", "AssertEqual", assert_equal), ("BatchConvBiasForward", "BatchConvBias", quantized.batch_conv_bias_activation),
    ("BatchedMatrixMul", "BatchedMatmul", builtin.BatchedMatrixMul), ("CondTake", "CondTake", F.cond_take),
    ("ConvBiasForward", "ConvBias", quantized.conv_bias_activation), ("CvtColorForward", "CvtColor", vision.cvt_color),
    ("DeformableConvForward", "DeformableConv", F.deformable_conv2d),
    ("DeformablePSROIPoolingForward", "DeformablePSROIPooling", F.deformable_psroi_pooling), ("Dot", "Dot", F.dot),
    ("ElemwiseMultiType", "ElemwiseMultiType", builtin.Elemwise), ("Eye", "Eye", F.eye), ("GetVarShape", "GetVarShape", builtin.GetVarShape),
    ("GroupLocalForward", "GroupLocal", F.local_conv2d), ("Linspace", "Linspace", F.linspace), ("NvOf", "NvOf", vision.nvof),
    ("ROIAlignForward", "ROIAlign", vision.roi_align), ("ROIPoolingForward", "ROIPooling", vision.roi_pooling),
    ("RemapForward", "Remap", vision.remap), ("ResizeForward", "Resize", vision.resize),
    ("WarpAffineForward", "WarpAffine", vision.warp_affine), ("WarpPerspectiveForward", "WarpPerspective", vision.warp_perspective),
):  # fmt: skip
    UNUSED.add(_operator(_name, _type_name, OpNode, _function))
_operator("IncrSubtensor", "IncrSubtensor", IndexingBase, mesh_indexing.add_to_slice)
_grids: dict[str, Any] = {"Mesh": mesh_indexing.read, "SetMesh": mesh_indexing.write, "IncrMesh": mesh_indexing.add}
for _name, _on_grid in _grids.items():
    _operator(f"{_name}Indexing", f"{_name}Indexing", IndexingBase, _on_grid)
    _operator(f"Batched{_name}Indexing", f"Batched{_name}Indexing", IndexingBase, partial(_on_grid, batched=True))


class AxisAddRemove(OpNode):
    """Adds axes of extent 1 or takes them away; a ``Reshape`` in our graphs."""

    type = "AxisAddRemove"
    opdef = builtin.AddAxis


__all__ += [name for name, cls in list(vars().items()) if isinstance(cls, type) and issubclass(cls, OpNode) and name[0] != "_" and name not in __all__]

_KINDS = {"input": Host2DeviceCopy, "constant": ImmutableTensor, "parameter": SharedDeviceTensor}
_ELEMENTWISE = {row["name"] for row in _core.op_table() if row["elementwise"]} - {"cast"}


def class_of(graph: _core.GraphEditor, number: int) -> type[OpNode]:
    """The class for the node ``number``."""
    kind = graph.kind(number)
    if kind in _KINDS:
        return _KINDS[kind]
    if kind in _ELEMENTWISE:
        return Elemwise
    name = graph.type_name(number)
    if name not in _CLASSES:
        _CLASSES[name] = _operator(name, name)
    return _CLASSES[name]


def flops_elemwise(opnode: Elemwise, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """One for each element of the result."""
    return outputs[0].size


def flops_matmul(opnode: OpNode, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """One for each multiply-add of a product of matrices."""
    inner = inputs[0]._tuple_shape[-2 if opnode.params.get("transpose_a") else -1]
    return outputs[0].size * inner


flops_batchmatmul = flops_matmul


def flops_conv(opnode: OpNode, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """One for each multiply-add of a convolution."""
    weight = inputs[1]._tuple_shape
    return outputs[0].size * math.prod(weight[1:] if len(weight) == inputs[0].ndim else weight[2:])


def receptive_field(
    opnode: OpNode, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns (extents of the window, its stride) of a convolution, in elements of its input."""
    spatial = inputs[0].ndim - 2
    kernel = inputs[1]._tuple_shape[-spatial:]
    stride, dilation = (tuple(opnode.params[name]) for name in ("stride", "dilation"))
    return tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)), stride


def str_to_mge_class(classname: str) -> type:
    """The class of this module with that name. ValueError when there is none."""
    found = globals().get(classname)
    if not (isinstance(found, type) and issubclass(found, NetworkNode)):
        raise ValueError(f"network_node: no class {classname!r}")
    return found


def as_list(nodes: Any) -> list[Any]:
    """One node, or several."""
    return (
        list(nodes) if isinstance(nodes, Iterable) and not isinstance(nodes, VarNode) else [nodes]
    )
