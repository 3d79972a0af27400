"""``export``: from a model to an ONNX file, by way of the ops that it calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from .._files.disk import naming
from ..reports.progress import Progress
from . import (  # noqa: F401  (they fill the tables)
    _to_onnx_arrays,
    _to_onnx_blocks,
    _to_onnx_control_flow,
    _to_onnx_layers,
    _to_onnx_quantized,
)
from ._combine import combine
from ._dynamic import open_axes, record_open
from ._emitter import Emitter
from ._proto import OLDEST_OPSET, onnx
from ._recorded import record, refuse, resized
from ._to_onnx import write_node

if TYPE_CHECKING:
    from onnx import ModelProto

DEFAULT_OPSET = 20
_LARGEST_MESSAGE = 2**31 - 2**20  # bytes of one protobuf message, with room for the graph


def export(
    model: Callable[..., Any],
    args: object,
    path: str | os.PathLike[str] | IO[bytes] | None = None,
    *,
    opset: int = DEFAULT_OPSET,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None,
) -> ModelProto:
    """Writes what ``model(*args)`` computes as an ONNX model.

    Parameters
    ----------
    model : callable
        A Module (call ``eval()`` on it first), TracedModule, fx.GraphModule, traced or plain
        function. It runs once, on placeholders. Results are a Tensor, a flat sequence of Tensors,
        or a dict, whose keys are their names.
    args : object
        Arguments of the model: one Tensor, or a sequence. Tensors and arrays are the inputs, with
        their shapes; all else is fixed.
    path : str, PathLike, IO or None
        A path, an open binary file, or None. If one file cannot hold the tensors, they go to
        ``<path>.data``.
    opset : int
        Version of ONNX's operators, from 17 to the newest one of the package onnx.
    input_names, output_names : sequence of str or None
        Names in the file; None names inputs like the parameters of the model.
    dynamic_axes : mapping of str or None
        Axes whose extent stays open, such as ``{"x": {0: "batch"}}`` or ``{"x": [0]}``. The model
        runs once more for each of them, and once again.

    Returns
    -------
    onnx.ModelProto
        The model.

    Raises
    ------
    ValueError
        For another opset.
    OnnxError
        If ONNX has no counterpart for an operation; the message lists all of them, with the lines
        that call them.

    See Also
    --------
    load : Reads an ONNX model.
    jit.dump_functions : Writes a file for the runtime itself.

    Notes
    -----
    Parameters have their names in the state dict. Integers of quantized layers stay integers,
    between QuantizeLinear and DequantizeLinear.

    Examples
    --------
    >>> import megengine.module as M, megengine.onnx, numpy as np
    >>> proto = megengine.onnx.export(M.Linear(3, 2), np.zeros((1, 3), np.float32))
    >>> graph = proto.graph
    >>> [node.op_type for node in graph.node], [tensor.name for tensor in graph.initializer]
    (['Gemm'], ['weight', 'bias'])
    """
    newest = onnx().defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset <= newest:
        raise ValueError(f"export: opset {opset} is not in [{OLDEST_OPSET}, {newest}]")
    recording = record(model, args, input_names, output_names)
    shapes = [recording.types[value][1] for value in recording.inputs]
    axes = open_axes(dynamic_axes, recording.input_names, shapes)
    if axes:
        record_open(lambda sizes: record(model, resized(args, sizes), input_names, output_names), recording, axes)
    combine(recording)
    emit = Emitter(recording, opset)
    with Progress("writing ONNX", len(recording.nodes), unit="node") as progress:
        for node in recording.nodes:
            write_node(emit, node)
            progress.update()
    refuse(emit.problems)
    proto = emit.finish(getattr(model, "__name__", type(model).__name__))
    if path is not None:
        write(proto, path)
    return proto


def write(proto: Any, path: str | os.PathLike[str] | IO[bytes]) -> None:
    """Writes a model to a file; tensors go into a second one, ``<path>.data``, if one message
    cannot hold them.
    """
    if hasattr(path, "write"):
        path.write(proto.SerializeToString())
        return
    total = sum(len(tensor.raw_data) for tensor in proto.graph.initializer)
    apart = {}
    if total > _LARGEST_MESSAGE:
        apart = {"save_as_external_data": True, "location": f"{os.path.basename(os.fspath(path))}.data"}
    with naming(os.fspath(path)):
        onnx().save_model(proto, os.fspath(path), **apart)
