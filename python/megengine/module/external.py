"""Programs compiled by other runtimes, as layers. Each needs its vendor's runtime and device: see `megengine.functional.external`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..functional import external
from ..tensor import Tensor
from .module import Module

__all__ = [
    "AtlasRuntimeSubgraph", "CambriconRuntimeSubgraph", "ExternOprSubgraph", "MagicMindRuntimeSubgraph",
    "TensorrtRuntimeSubgraph",
]  # fmt: skip


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
    """`extern_opr_subgraph`: a program of the loader ``dump_name``. output_shapes: of its results; output_dtypes: None for float32."""

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
        return external.extern_opr_subgraph(
            inputs, self.output_shapes, self.name, self.data, self.output_dtypes
        )


class TensorrtRuntimeSubgraph(_Compiled):
    """`tensorrt_runtime_opr`."""

    def forward(self, *inputs: Tensor) -> Any:
        return external.tensorrt_runtime_opr(inputs, data=self.data)


class CambriconRuntimeSubgraph(_Compiled):
    """`cambricon_runtime_opr`. symbol: of the program; tensor_dim_mutable: whether shapes may change."""

    def __init__(self, data: bytes, symbol: str, tensor_dim_mutable: bool, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        self.symbol = symbol
        self.tensor_dim_mutable = tensor_dim_mutable

    def forward(self, *inputs: Tensor) -> Any:
        return external.cambricon_runtime_opr(inputs, self.data, self.symbol, self.tensor_dim_mutable)


class AtlasRuntimeSubgraph(_Compiled):
    """`atlas_runtime_opr`."""

    def forward(self, *inputs: Tensor) -> Any:
        return external.atlas_runtime_opr(inputs, self.data)


class MagicMindRuntimeSubgraph(_Compiled):
    """`magicmind_runtime_opr`."""

    def forward(self, *inputs: Tensor) -> Any:
        return external.magicmind_runtime_opr(inputs, self.data)
