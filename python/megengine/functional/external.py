"""Programs compiled by other runtimes, as ops. Each needs its vendor's runtime and device."""

from collections.abc import Sequence
from typing import Any, NoReturn

from ..tensor import Tensor

__all__ = [
    "atlas_runtime_opr", "cambricon_runtime_opr", "extern_opr_subgraph", "magicmind_runtime_opr",
    "tensorrt_runtime_opr",
]  # fmt: skip


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
    """Runs a subgraph of a custom loader. RuntimeError where no loader is registered for
    ``dump_name``.
    """
    _missing(f"loader {dump_name!r}", inputs)


def tensorrt_runtime_opr(inputs: _Inputs, *, data: bytes | None = None) -> NoReturn:
    """Runs a serialized TensorRT engine. RuntimeError without TensorRT."""
    _missing("TensorRT", inputs)


def cambricon_runtime_opr(
    inputs: _Inputs, data: bytes, symbol: str, tensor_dim_mutable: bool
) -> NoReturn:
    """Runs a serialized Cambricon model. RuntimeError without its runtime."""
    _missing("Cambricon", inputs)


def atlas_runtime_opr(inputs: _Inputs, data: bytes) -> NoReturn:
    """Runs a serialized Atlas model. RuntimeError without its runtime."""
    _missing("Atlas", inputs)


def magicmind_runtime_opr(inputs: _Inputs, data: bytes) -> NoReturn:
    """Runs a serialized MagicMind model. RuntimeError without its runtime."""
    _missing("MagicMind", inputs)
