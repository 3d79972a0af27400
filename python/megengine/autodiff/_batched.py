"""Tensors with a hidden batch axis, of which the functions that compute with them know nothing.

A `Batched` tensor looks like one example; its value holds all of them along a first axis. While a
level is open, calls of ops with such
operands go to `batching_rules`; other calls, and other threads, are not affected.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import _core, core
from ..core import ops
from ..core.tensor.amp import to_high
from ..core.tensor.array_method import as_tensor
from ..tensor import Tensor
from ._batching_rules import NoRule, apply_rule, refuse

_RANDOM = ("random_", "dropout_mask")
_IN_PLACE = tuple(f"__i{name}__" for name in "add sub mul mod pow lshift rshift and xor or floordiv truediv".split())
_WRITES = ("_assign", "_hold", "_reset", *_IN_PLACE)
_MOST_INSTALLS = 100  # that are nested


class Level:
    """One running vmap of this thread: how many examples there are."""

    def __init__(self, size: int) -> None:
        self.size = size
        # ids of later tensors are greater
        self.first_id = _placeholder((), "float32", "")._value_id()

    def of(self, value: Tensor) -> "Batched":
        """Makes the tensor whose examples lie along the first axis of ``value``."""
        made = _placeholder(value._tuple_shape[1:], value.dtype.name, value._device_name)
        made.level, made.value = self, value
        return made

    def value_of(self, x: Any) -> Tensor:
        """All examples of ``x`` along a first axis; what is the same for all is repeated."""
        if isinstance(x, Batched) and x.level is self:
            return x.value
        x = as_tensor(x)
        shape = x._tuple_shape
        return ops.broadcast_to(ops.reshape(x, shape=(1, *shape)), shape=(self.size, *shape))


def _placeholder(shape: tuple[int, ...], dtype: str, device: str) -> "Batched":
    """Makes a tensor with a type but no value: its graph is gone, so that no computation in C++
    takes it for one example.
    """
    graph = _core.GraphEditor()
    return graph.variable(graph.add_input(shape, dtype, "x", device), Batched)


class _Open(threading.local):
    levels: tuple[Level, ...] = ()


_open = _Open()


def _operator(name: str, cast: Callable[[Any], Any] = lambda x: x) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forth(self: Tensor, other: Any) -> Tensor:
        return getattr(ops, name)(cast(self), cast(other))

    def back(self: Tensor, other: Any) -> Tensor:
        return getattr(ops, name)(cast(other), cast(self))

    return forth, back


def _bits(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Makes operator ``name`` and its reflection; for bools they are logical."""

    def forth(self: Tensor, other: Any) -> Tensor:
        are_bools = self.dtype == np.bool_ and (isinstance(other, bool) or getattr(other, "dtype", None) == np.bool_)
        return getattr(ops, f"logical_{name}" if are_bools else f"bit_{name}")(self, other)

    return forth, forth


def all_examples(x: Tensor) -> Tensor:
    """Returns a tensor that tapes know, with the examples of all open levels along its first axes.
    """
    for level in reversed(_open.levels):
        x = level.value_of(x)
    return x


def one_example(value: Tensor) -> Tensor:
    """Undoes `all_examples`."""
    for level in _open.levels:
        value = level.of(value)
    return value


class Batched(Tensor):
    """One example of several that are computed together."""

    level: Level
    value: Tensor

    __hash__ = object.__hash__

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("sub")
    __mul__, __rmul__ = _operator("mul")
    __mod__, __rmod__ = _operator("mod")
    __pow__, __rpow__ = _operator("pow", to_high)
    __truediv__, __rtruediv__ = _operator("true_div", to_high)
    __floordiv__, __rfloordiv__ = _operator("floor_div")
    __lshift__, __rlshift__ = _operator("left_shift")
    __rshift__, __rrshift__ = _operator("right_shift")
    __and__, __rand__ = _bits("and")
    __or__, __ror__ = _bits("or")
    __xor__, __rxor__ = _bits("xor")
    __eq__, __ne__ = _operator("equal")[0], _operator("not_equal")[0]
    __lt__, __le__ = _operator("less")[0], _operator("less_equal")[0]
    __gt__, __ge__ = _operator("greater")[0], _operator("greater_equal")[0]

    def __neg__(self) -> Tensor:
        return ops.neg(self)

    def __abs__(self) -> Tensor:
        return ops.abs(self)

    def __invert__(self) -> Tensor:
        return ops.logical_not(self) if self.dtype == np.bool_ else ops.bit_not(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of one example."""
        return self._tuple_shape

    def detach(self) -> Tensor:
        """The same value, through which no gradient flows."""
        return ops.stop_gradient(self)

    def _reset(self, other: _core.Tensor) -> None:
        _check_write(self, other)
        made = self.level.of(self.level.value_of(other))
        _core.Tensor._reset(self, made)
        self.value = made.value

    _assign = _hold = _reset

    def _is_readable(self) -> bool:
        return False

    def numpy(self) -> np.ndarray:
        """Refused: it would read one value where there are several."""
        refuse(
            "the function reads the value of a tensor",
            "there is one for each example; what follows from it would be the same for all",
            "use F.where instead of a branch, or a Python loop over the examples",
        )

    def item(self, *args: Any) -> Any:
        """Refused, as `numpy` is."""
        return self.numpy().item(*args)


def _in_place(forth: Callable[..., Any]) -> Callable[..., Any]:
    def compute(self: Batched, other: Any) -> Batched:
        self._reset(forth(self, other))
        return self

    return compute


for _name in _IN_PLACE:
    setattr(Batched, _name, _in_place(getattr(Batched, "__" + _name[3:])))


# ---- what stands in place of ops and of writes while levels are open


def _mapped(name: str, native: Callable[..., Any]) -> Callable[..., Any]:
    def call(*operands: Any, **attrs: Any) -> Any:
        levels = _open.levels
        if not levels:
            return native(*operands, **attrs)
        if name.startswith(_RANDOM):
            refuse(
                f"the function draws random numbers ({name})", "one draw would be the same for all examples",
                "draw before, for all examples, and pass them as an argument",
            )  # fmt: skip
        while isinstance(place := attrs.get("device"), Batched):
            attrs["device"] = place.value
        found = {x.level for x in operands if isinstance(x, Batched)}
        if not found:
            return native(*operands, **attrs)
        if not found <= set(levels):
            refuse(f"{name} of a tensor that belongs to a vmap that has ended, or to another thread", "the function has kept it", "return it")
        level = max(found, key=levels.index)
        result = apply_rule(name, level, operands, attrs)
        return [level.of(each) for each in result] if isinstance(result, list) else level.of(result)

    return call


def _converted(*args: Any) -> list[Tensor]:
    """Operands as Tensors of their promoted dtype: shapes do not matter, so that all examples are converted at once."""
    found = [x.level for x in args if isinstance(x, Batched) and x.level in _open.levels]
    if not found:
        return _core.convert_inputs(*args)
    level = max(found, key=_open.levels.index)
    are = [isinstance(x, Batched) and x.level is level for x in args]
    made = _converted(*(x.value if is_batched else x for x, is_batched in zip(args, are, strict=True)))
    return [level.of(x) if is_batched else x for x, is_batched in zip(made, are, strict=True)]


def _write(native: Callable[..., Any]) -> Callable[..., Any]:
    def write(self: Tensor, *given: Any) -> Any:
        _check_write(self, *given)
        return native(self, *given)

    return write


def _check_write(to: Tensor, *given: Any) -> None:
    levels = _open.levels
    if levels and to._value_id() < levels[-1].first_id:
        refuse(
            f"the function writes a tensor from outside, {to._name or to.dtype.name} {list(to._tuple_shape)}",
            "it is called once for all examples", "return the new value, and write it outside of vmap",
        )  # fmt: skip
    depth = _depth(to)
    if levels and any(_depth(x) > depth for x in given):
        refuse(
            "an example is written into a tensor that is the same for all",
            "it has no batch axis", "make the tensor of the example: F.zeros_like(x), F.concat, F.where",
        )  # fmt: skip


def _depth(x: Any) -> int:
    """Returns the depth of the innermost level whose examples it holds; -1 if it holds none."""
    return _open.levels.index(x.level) if isinstance(x, Batched) and x.level in _open.levels else -1


class _Patches:
    """Makes ops and writes look for batched operands while a vmap runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = self._installs = 0
        self._own: dict[str, Any] = {}  # the class's own attributes while writes are watched

    def enter(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                vars(ops).update(_MAPPED)
                vars(core)["convert_inputs"] = _converted
            if not self._own:
                self._installs += 1
                self._own = {name: vars(Tensor).get(name) for name in _WRITES}
                for name in _WRITES:
                    setattr(Tensor, name, _write(getattr(Tensor, name)))

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            vars(ops).update(_NATIVE)
            vars(core)["convert_inputs"] = _core.convert_inputs
            # CPython 3.12 and later stop caching the attributes of a class that has changed 1000 times.
            if self._installs < _MOST_INSTALLS:
                own, self._own = self._own, {}
                for name, value in own.items():
                    if value is None:
                        delattr(Tensor, name)
                    else:
                        setattr(Tensor, name, value)


_patches = _Patches()
_NATIVE = {row["name"]: getattr(ops, row["name"]) for row in _core.op_table() if hasattr(ops, row["name"])}
_MAPPED = {name: _mapped(name, native) for name, native in _NATIVE.items()}


@contextmanager
def mapping(size: int) -> Iterator[Level]:
    """The innermost level of this thread."""
    outer = _open.levels
    level = Level(size)
    _patches.enter()
    try:
        _open.levels = (*outer, level)
        yield level
    except RuntimeError as error:
        # code in C++ has used the placeholder of an example
        if "belongs to a network that is gone" not in str(error):
            raise
        line = str(error).rpartition("at:  ")[2]
        raise NoRule(
            "vmap: the function does with a tensor what has no rule for batches\n"
            "  why: it is no operation of a tensor, but a recorded loop, a gradient by hand or a conversion\n"
            f"  fix: a Python loop over the examples: F.stack([f(x) for x in xs])\n  at:  {line}"
        ) from error
    finally:
        _open.levels = outer
        _patches.leave()
