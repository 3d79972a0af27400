"""Op objects of older programs: ``apply(Elemwise(mode="add"), x, y)``. New code calls
``megengine.functional``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._core import apply_const
from ..core import ops
from ..core._telling import no_effect
from ..core.op_objects import OpDef, apply
from ..core.tensor import shapes
from ..core.tensor.dtype import dtype_name
from ..core.tensor.elemwise_modes import function_of, mode_of
from ..functional import pad
from ..tensor import Tensor
from . import random_ops
from .random_ops import *  # noqa: F403  # under their names

__name__ = "megengine.core.ops.builtin"  # files name the classes of this module so
__all__ = [
    "AddAxis", "BatchedMatrixMul", "Broadcast", "Composed", "Concat", "Dimshuffle", "Elemwise", "GetVarShape",
    "FakeQuant", "IndexingMultiAxisVec", "InplaceAdd", "Linspace", "MatrixMul", "OpDef", "Padding", "Reduce", "Registered", "RemoveAxis", "Reshape", "Subtensor", "TypeCvt", "apply",
    *random_ops.__all__,
]  # fmt: skip


class Registered(OpDef):
    """An op of the registry, by its name and attributes: ``Registered("concat", axis=0)``."""

    op: str

    def __init__(self, op: str, **attrs: Any) -> None:
        super().__init__(op=op, **attrs)

    def run(self, *inputs: Any) -> Any:
        attrs = dict(vars(self))
        return getattr(ops, attrs.pop("op"))(*inputs, **attrs)


class Composed(OpDef):
    """An op of several others: ``function(*tensors)`` gives its outputs."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        super().__init__(name=name, function=function)

    def run(self, *inputs: Any) -> Any:
        return self.function(*inputs)  # type: ignore[attr-defined]  # a parameter


class _Modes(type):
    """``Elemwise.Mode.ADD`` is the mode's name."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return name


class Elemwise(OpDef):
    mode: str

    class Mode(metaclass=_Modes):
        pass

    def __init__(self, mode: Any = "relu") -> None:
        super().__init__(mode=mode_of(mode))
        function_of(mode)

    def run(self, *inputs: Any) -> Tensor:
        return function_of(self.mode)(*inputs)


class Reduce(OpDef):
    mode: str
    axis: int
    keepdim: bool

    class Mode(metaclass=_Modes):
        pass

    _OPS = {
        "sum": "reduce_sum",
        "product": "reduce_prod",
        "min": "reduce_min",
        "max": "reduce_max",
        "mean": "reduce_mean",
    }

    def __init__(
        self,
        mode: Any = "sum",
        axis: int = 2**31 - 1,
        keepdim: bool = True,
        data_type: Any = "default",
    ) -> None:
        super().__init__(mode=mode_of(mode), axis=axis, keepdim=bool(keepdim))
        no_effect(
            "Reduce",
            "half precision is summed in float32, and the result has its operand's dtype",
            data_type=mode_of(data_type) != "default",
        )
        if self.mode not in self._OPS and self.mode != "sum_sqr":
            raise ValueError(f"Reduce: no mode {mode!r}; there are sum_sqr, {', '.join(self._OPS)}")

    def run(self, x: Tensor) -> Tensor:
        if self.mode == "sum_sqr":
            x, mode = ops.square(x), "sum"
        else:
            mode = self.mode
        axes = (
            tuple(range(x.ndim))
            if self.axis == 2**31 - 1
            else shapes.normalize_axes(self.axis, x.ndim, "Reduce")
        )
        return getattr(ops, self._OPS[mode])(x, axes=axes, keepdims=self.keepdim)


class RemoveAxis(OpDef):
    axis: list[int]

    def __init__(self, axis: shapes.IntsLike = ()) -> None:
        super().__init__(axis=list(shapes.as_ints(axis, "RemoveAxis")))

    def run(self, x: Tensor) -> Tensor:
        """Removes axes one after the other; each number counts the axes that are left."""
        shape = list(x._tuple_shape)
        for axis in self.axis:
            if shape.pop(axis) != 1:
                raise ValueError(f"RemoveAxis: axis {axis} of {list(x._tuple_shape)} is not 1 long")
        return ops.reshape(x, shape=tuple(shape))


class AddAxis(OpDef):
    axis: list[int]

    def __init__(self, axis: shapes.IntsLike = ()) -> None:
        super().__init__(axis=list(shapes.as_ints(axis, "AddAxis")))

    def run(self, x: Tensor) -> Tensor:
        shape = list(x._tuple_shape)
        for axis in self.axis:
            shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 1)
        return ops.reshape(x, shape=tuple(shape))


class Dimshuffle(OpDef):
    pattern: list[int | str]

    def __init__(self, pattern: Sequence[int | str] = ()) -> None:
        super().__init__(pattern=["x" if p in (-1, "x") else p for p in pattern])

    def run(self, x: Tensor) -> Tensor:
        return shapes.transpose(x, tuple(self.pattern))


class GetVarShape(OpDef):
    axis: int

    def __init__(self, axis: int = 2**31 - 1) -> None:
        super().__init__(axis=axis)

    def run(self, x: Tensor) -> Tensor:
        shape = x._tuple_shape
        return apply_const(
            np.array(shape if self.axis == 2**31 - 1 else (shape[self.axis],), np.int32)
        )


class TypeCvt(OpDef):
    dtype: str

    def __init__(self, dtype: Any = "float32", idtype: Any = None) -> None:
        super().__init__(dtype=dtype_name(dtype))
        no_effect("TypeCvt", "the operand knows its dtype", idtype=idtype)

    def run(self, x: Tensor) -> Tensor:
        return ops.cast(x, dtype=self.dtype)


class Concat(OpDef):
    axis: int

    comp_node: Any

    def __init__(self, axis: int = 0, comp_node: Any = None) -> None:
        super().__init__(axis=axis, comp_node=comp_node)

    def run(self, *inputs: Tensor) -> Tensor:
        y = ops.concat(*inputs, axis=shapes.normalize_axis(self.axis, inputs[0].ndim, "Concat"))
        return y if self.comp_node is None else y.to(self.comp_node)


class Reshape(OpDef):
    shape: shapes.Shape

    def __init__(self, axis: int = 2**31 - 1, shape: shapes.IntsLike = ()) -> None:
        super().__init__(shape=shapes.as_ints(shape))
        no_effect("Reshape", "write -1 in the shape", axis=axis != 2**31 - 1)

    def run(self, x: Tensor, shape: Any = None) -> Tensor:
        return shapes.reshape(x, self.shape if shape is None else shape)


class Broadcast(OpDef):
    shape: shapes.Shape

    def __init__(self, shape: shapes.IntsLike = ()) -> None:
        super().__init__(shape=shapes.as_ints(shape))

    def run(self, x: Tensor, shape: Any = None) -> Tensor:
        return shapes.broadcast_to(x, self.shape if shape is None else shape)


class MatrixMul(OpDef):
    """Other options warn that they have no effect: sums are float32, and the kernel is chosen by the device."""

    transposeA: bool
    transposeB: bool

    def __init__(
        self,
        transposeA: bool = False,
        transposeB: bool = False,
        compute_mode: Any = "DEFAULT",
        format: Any = "DEFAULT",
        strategy: Any = None,
        workspace_limit: int | None = None,
        dimA: int | None = None,
        dimB: int | None = None,
    ) -> None:
        super().__init__(transposeA=bool(transposeA), transposeB=bool(transposeB))
        chosen = {"format": mode_of(format) != "default", "strategy": strategy, "workspace_limit": workspace_limit}
        no_effect(type(self).__name__, "the device chooses the kernel", **chosen)
        no_effect(type(self).__name__, "operands know their axes", dimA=dimA, dimB=dimB)
        if mode_of(compute_mode) not in ("default", "float32"):
            raise ValueError(f"{type(self).__name__}: compute_mode {compute_mode!r} is neither 'default' nor 'float32'")

    def run(self, a: Tensor, b: Tensor) -> Tensor:
        return ops.matmul(a, b, transpose_a=self.transposeA, transpose_b=self.transposeB)


class BatchedMatrixMul(MatrixMul):
    pass


class InplaceAdd(OpDef):
    """Adds two scaled tensors: ``alpha * dest + beta * delta``, as a new value.

    Parameters
    ----------
    **params : object
        Must be left out: all that it computes with is among its operands.
    """

    def run(self, dest: Any, delta: Any, alpha: Any, beta: Any) -> Tensor:
        """Computes the sum.

        Parameters
        ----------
        dest : Tensor
            First summand, of any shape.
        delta : Tensor
            Second summand, whose shape broadcasts with that of ``dest``.
        alpha : Tensor or float
            Number that ``dest`` is multiplied by.
        beta : Tensor or float
            Number that ``delta`` is multiplied by.

        Returns
        -------
        Tensor
            The sum.
        """
        return ops.add(ops.mul(dest, alpha), ops.mul(delta, beta))


class FakeQuant(OpDef):
    """``run(x, scale, zero_point)``: rounded to the grid, with straight-through gradients."""

    qmin: int
    qmax: int

    def __init__(self, qmin: int = -128, qmax: int = 127) -> None:
        super().__init__(qmin=int(qmin), qmax=int(qmax))

    def run(self, x: Any, scale: Any, zero_point: Any) -> Tensor:
        return ops.fake_quant(x, scale, zero_point, 0.0, qmin=self.qmin, qmax=self.qmax)


class Padding(OpDef):
    """``run(x)``: elements before and behind each axis, ``Padding(front_offset_dim0=1, back_offset_dim3=2)``."""

    padding_val: float
    padding_mode: str

    class PaddingMode(metaclass=_Modes):
        """CONSTANT, REFLECT or REPLICATE."""

    def __init__(self, padding_val: float = 0.0, padding_mode: str = "CONSTANT", **offsets: int) -> None:
        sides = {f"{side}_offset_dim{axis}": 0 for axis in range(7) for side in ("front", "back")}
        if unknown := offsets.keys() - sides:
            raise TypeError(f"Padding: unknown {', '.join(sorted(unknown))}; there are front_offset_dim0 to back_offset_dim6")
        super().__init__(padding_val=float(padding_val), padding_mode=str(padding_mode), **{**sides, **offsets})

    def run(self, x: Tensor) -> Tensor:
        told = vars(self)
        widths = [(told[f"front_offset_dim{axis}"], told[f"back_offset_dim{axis}"]) for axis in range(x.ndim)]
        return pad(x, widths, self.padding_mode, self.padding_val)


class Linspace(OpDef):
    """``run(start, stop, num)``: float32, on ``comp_node`` if one is given."""

    comp_node: Any

    def __init__(self, comp_node: Any = None) -> None:
        super().__init__(comp_node=comp_node)

    def run(self, start: Any, stop: Any, num: Any) -> Tensor:
        y = apply_const(np.linspace(float(start), float(stop), int(num), dtype=np.float32))
        return y if self.comp_node is None else y.to(self.comp_node)


class Subtensor(OpDef):
    """``run(x, *values)``: a part of x. items: (axis, begin, end, step, index) for each axis that is not whole, the last four
    saying which of them ``values`` gives, in that order.
    """

    items: list[tuple[int, bool, bool, bool, bool]]

    def __init__(self, items: Sequence[Sequence[Any]] = ()) -> None:
        super().__init__(items=[(int(axis), *map(bool, has)) for axis, *has in items])

    _one = staticmethod(int)  # turns an index into a number

    def run(self, x: Tensor, *values: Any) -> Tensor:
        given = iter(values)
        index: list[Any] = [slice(None)] * x.ndim
        for axis, *bounds, has_index in self.items:
            begin, end, step = (int(next(given)) if has else None for has in bounds)
            index[axis] = self._one(next(given)) if has_index else slice(begin, end, step)
        return x[tuple(index)]


class IndexingMultiAxisVec(Subtensor):
    """Indexes like `Subtensor`, by vectors of places with an entry for each element of the joint
    axis.
    """

    _one = staticmethod(lambda index: index)  # type: ignore[assignment]  # a tensor as it is
