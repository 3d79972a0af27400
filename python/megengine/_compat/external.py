"""Programs compiled by other runtimes, as functions and as layers: each needs its vendor's runtime and device, and is refused."""

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ..module import Module
from ..tensor import Tensor

__name__ = "megengine.module.external"  # files name the layers of this module so

_Inputs = Tensor | Sequence[Tensor]


def _missing(runtime: str, inputs: _Inputs) -> NoReturn:
    for x in inputs if isinstance(inputs, (list, tuple)) else [inputs]:
        if not isinstance(x, Tensor):
            raise TypeError(f"{runtime}: input {x!r} is not a Tensor")
    raise RuntimeError(
        f"{runtime}: this machine has no {runtime} runtime that could run the program\n"
        "  fix: run the original model here, megengine.jit.trace compiles it for this device"
    )


def extern_opr_subgraph(
    inputs: _Inputs,
    output_shapes: list[Any],
    dump_name: str,
    dump_data: bytes,
    output_dtypes: list[Any] | None = None,
) -> NoReturn:
    """Runs a subgraph of a custom loader.

    Parameters
    ----------
    inputs : Tensor or sequence of Tensor
        Tensors that the program reads.
    output_shapes : list of tuple of int
        Shape of each result.
    dump_name : str
        Name of the loader that runs the program.
    dump_data : bytes
        The program, in the loader's format.
    output_dtypes : list of dtype or None
        Data type of each result; None is float32.

    Raises
    ------
    TypeError
        For inputs that are not tensors.
    RuntimeError
        Otherwise, because no loader can be registered.
    """
    _missing(f"loader {dump_name!r}", inputs)


def tensorrt_runtime_opr(inputs: _Inputs, *, data: bytes | None = None) -> NoReturn:
    """Runs a serialized TensorRT engine.

    Parameters
    ----------
    inputs : Tensor or sequence of Tensor
        Tensors that the program reads.
    data : bytes or None
        The serialized engine, in TensorRT's format.

    Raises
    ------
    TypeError
        For inputs that are not tensors.
    RuntimeError
        Otherwise, because there is no TensorRT.
    """
    _missing("TensorRT", inputs)


def cambricon_runtime_opr(
    inputs: _Inputs, data: bytes, symbol: str, tensor_dim_mutable: bool
) -> NoReturn:
    """Runs a serialized Cambricon model.

    Parameters
    ----------
    inputs : Tensor or sequence of Tensor
        Tensors that the program reads.
    data : bytes
        The serialized model, in the vendor's format.
    symbol : str
        Name of the program in it.
    tensor_dim_mutable : bool
        Whether shapes may change.

    Raises
    ------
    TypeError
        For inputs that are not tensors.
    RuntimeError
        Otherwise, because there is no runtime of Cambricon.
    """
    _missing("Cambricon", inputs)


def atlas_runtime_opr(inputs: _Inputs, data: bytes) -> NoReturn:
    """Runs a serialized Atlas model.

    Parameters
    ----------
    inputs : Tensor or sequence of Tensor
        Tensors that the program reads.
    data : bytes
        The serialized model, in the vendor's format.

    Raises
    ------
    TypeError
        For inputs that are not tensors.
    RuntimeError
        Otherwise, because there is no runtime of Atlas.
    """
    _missing("Atlas", inputs)


def magicmind_runtime_opr(inputs: _Inputs, data: bytes) -> NoReturn:
    """Runs a serialized MagicMind model.

    Parameters
    ----------
    inputs : Tensor or sequence of Tensor
        Tensors that the program reads.
    data : bytes
        The serialized model, in the vendor's format.

    Raises
    ------
    TypeError
        For inputs that are not tensors.
    RuntimeError
        Otherwise, because there is no runtime of MagicMind.
    """
    _missing("MagicMind", inputs)


class _Compiled(Module):
    """data: the compiled program, kept as an array of bytes, so that it is saved with the module."""

    def __init__(self, data: bytes, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data = data

    @property
    def data(self) -> bytes:
        return self._data.tobytes()

    @data.setter
    def data(self, data: bytes) -> None:
        self._data = np.frombuffer(bytes(data), dtype=np.uint8)


class ExternOprSubgraph(_Compiled):
    """A program of a custom loader as a layer that calls `extern_opr_subgraph`.

    Parameters
    ----------
    output_shapes : list of tuple of int
        Shape of each result.
    dump_name : str
        Name of the loader that runs the program.
    dump_data : bytes
        The program; it is saved with the module.
    output_dtypes : list of dtype or None
        Data type of each result; None is float32.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    def __init__(
        self,
        output_shapes: list[Any],
        dump_name: str,
        dump_data: bytes,
        output_dtypes: list[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dump_data, **kwargs)
        self.name = dump_name
        self.output_shapes = output_shapes
        self.output_dtypes = output_dtypes

    @property
    def name(self) -> str:
        """The name of the loader."""
        return self._loader

    @name.setter
    def name(self, name: str) -> None:
        self._loader = name

    def forward(self, *inputs: Tensor) -> Any:
        return extern_opr_subgraph(
            inputs, self.output_shapes, self.name, self.data, self.output_dtypes
        )


class TensorrtRuntimeSubgraph(_Compiled):
    """A serialized TensorRT engine as a layer that calls `tensorrt_runtime_opr`.

    Parameters
    ----------
    data : bytes
        The engine; it is saved with the module.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    def forward(self, *inputs: Tensor) -> Any:
        return tensorrt_runtime_opr(inputs, data=self.data)


class CambriconRuntimeSubgraph(_Compiled):
    """A serialized Cambricon model as a layer that calls `cambricon_runtime_opr`.

    Parameters
    ----------
    data : bytes
        The model; it is saved with the module.
    symbol : str
        Name of the program in it.
    tensor_dim_mutable : bool
        Whether shapes may change.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    def __init__(self, data: bytes, symbol: str, tensor_dim_mutable: bool, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        self.symbol = symbol
        self.tensor_dim_mutable = tensor_dim_mutable

    def forward(self, *inputs: Tensor) -> Any:
        return cambricon_runtime_opr(inputs, self.data, self.symbol, self.tensor_dim_mutable)


class AtlasRuntimeSubgraph(_Compiled):
    """A serialized Atlas model as a layer that calls `atlas_runtime_opr`.

    Parameters
    ----------
    data : bytes
        The model; it is saved with the module.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    def forward(self, *inputs: Tensor) -> Any:
        return atlas_runtime_opr(inputs, self.data)


class MagicMindRuntimeSubgraph(_Compiled):
    """A serialized MagicMind model as a layer that calls `magicmind_runtime_opr`.

    Parameters
    ----------
    data : bytes
        The model; it is saved with the module.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    def forward(self, *inputs: Tensor) -> Any:
        return magicmind_runtime_opr(inputs, self.data)
