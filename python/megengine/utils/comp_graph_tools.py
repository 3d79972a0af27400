"""Running dumped models."""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import IO, Any

import numpy as np

from .. import _core, serialization
from ..tensor import Tensor

__all__ = ["GraphInference"]


def load_model(file: str | os.PathLike | IO[bytes]) -> _core.Model:
    """The graph that ``dump`` wrote: the first one of a path, the next one of an open binary file.

    RuntimeError that names the file when it is truncated, damaged or something else.
    """
    if hasattr(file, "read"):
        start = file.tell() if hasattr(file, "seekable") and file.seekable() else None
        model, used = _core.load_model(file.read(), str(getattr(file, "name", type(file).__name__)))
        if start is not None:
            file.seek(start + used)
        return model
    with open(file, "rb") as stream:
        return _core.load_model(stream.read(), os.path.basename(os.fspath(file)))[0]


def metadata_of(model: _core.Model) -> dict[str, Any] | None:
    """What dump noted besides the graph (user_info and options), or None. Builds plain data and arrays only."""
    data = model.metadata
    return serialization.load(io.BytesIO(data)) if data else None


class GraphInference:
    """A dumped model as a function of arrays.

    file: path or open binary file. outputs: names of the wanted outputs; None: all.
    profiling: accepted, has no effect. optimize_for_inference: also join element-wise operations into
    generated kernels. Raises RuntimeError for a damaged file, KeyError for an unknown output.

    >>> import io, numpy as np, megengine as mge
    >>> double = mge.jit.trace(lambda x: x * 2, capture_as_const=True)
    >>> double(mge.tensor([1.0, 2.0])).numpy()
    array([2., 4.], dtype=float32)
    >>> file = io.BytesIO(); info = double.dump(file, arg_names=["x"], output_names=["y"])
    >>> GraphInference(io.BytesIO(file.getvalue())).run(np.float32([3, 4]))
    OrderedDict([('y', array([6., 8.], dtype=float32))])
    """

    def __init__(
        self,
        file: str | os.PathLike | IO[bytes],
        outputs: Sequence[str] | None = None,
        profiling: bool = False,
        optimize_for_inference: bool = False,
        **kwargs,
    ):
        if kwargs:
            from ..jit.dump import checked_options  # jit is imported after this package

            checked_options(kwargs)
        self._model = load_model(file)
        self._inputs = self._model.inputs
        self._types = self._model.input_types
        held = self._model.outputs
        self._outputs = (
            held if outputs is None else [outputs] if isinstance(outputs, str) else list(outputs)
        )
        for name in self._outputs:
            if name not in held:
                raise KeyError(
                    f"GraphInference: the model has no output {name!r}; it has {', '.join(held)}"
                )
        self._program = self._model.program(
            [held.index(name) for name in self._outputs], 3 if optimize_for_inference else 2
        )

    def run(
        self, *inp_args: np.ndarray, inp_dict: dict[str, np.ndarray] | None = None
    ) -> OrderedDict[str, np.ndarray]:
        """The outputs by name. Arrays are given in the model's order, by name, or both.

        AssertionError unless they are exactly the model's inputs; ValueError for another shape or dtype.
        """
        given = dict(inp_dict or {})
        free = [name for name in self._inputs if name not in given]
        if len(inp_args) != len(free) or not set(given) <= set(self._inputs):
            raise AssertionError(
                f"GraphInference: got {len(inp_args)} arrays and the names [{', '.join(given)}]\n"
                f"  why: the inputs of the model are [{', '.join(self._inputs)}]"
            )
        given.update(zip(free, inp_args))
        tensors = [
            self._tensor(name, given[name], *self._types[i]) for i, name in enumerate(self._inputs)
        ]
        return OrderedDict(
            (name, value.numpy()) for name, value in zip(self._outputs, self._program.run(tensors))
        )

    @staticmethod
    def _tensor(name: str, value: Any, dtype: np.dtype, shape: tuple) -> Tensor:
        array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
        if array.shape == () and shape == (1,):
            array = array.reshape(1)
        if array.dtype != dtype and not np.can_cast(array.dtype, dtype, "same_kind"):
            raise ValueError(
                f"GraphInference: input {name} is {array.dtype}, the model has {dtype}\n  fix: convert it with astype"
            )
        if array.shape != shape:
            raise ValueError(
                f"GraphInference: input {name} has shape {array.shape}, the model has {shape}\n"
                "  why: a dumped graph is made for the shapes of the recorded call\n"
                "  fix: call the function with this shape and dump it again"
            )
        return Tensor(array.astype(dtype, copy=False))
