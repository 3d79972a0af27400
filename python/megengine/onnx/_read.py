"""Reads a file or proto as a model that is safe to convert: checked, its tensors in memory, its ops
those of opset 13 and up.

Sizes and places in a file are checked against its content before they are used.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Container, Iterator
from typing import Any

import numpy as np

from ._proto import OnnxError, onnx

OLDEST_READ = 13  # older models are brought to it by the package's converter
_SCAN_WITHOUT_BATCH = 9  # opset; the converter takes the axis away from the inputs of the model
_LARGE = 4096  # elements
_TOOL_SECONDS = 60


def read(source: Any) -> tuple[Any, dict[str, Any]]:
    """The model of a path, an open binary file, bytes or a ModelProto, and its large tensors by name.

    These are inputs of the returned model: the package's tools write and parse what they are given, up to 2 GB.
    OnnxError for an unsound model.
    """
    folder = None
    if isinstance(source, onnx().ModelProto):
        model = onnx().ModelProto()
        model.CopyFrom(source)
    elif isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as file:
            model = _parsed(file.read(), os.fspath(source))
        folder = os.path.dirname(os.path.abspath(source))
    else:
        data = source if isinstance(source, bytes) else source.read()
        model = _parsed(data, str(getattr(source, "name", "the model")))
    for tensor in _tensors(model):
        _check_tensor(tensor, folder)
    large = _taken_out(model.graph)
    bare = [info for info in (*model.graph.input, *model.graph.output) if _is_bare(info)]
    try:
        for info in bare:  # the checker wants a shape, any
            info.type.tensor_type.shape.SetInParent()
        onnx().checker.check_model(model)
    except Exception as error:  # the checker raises its own class, and others for unexpected input
        raise OnnxError(f"load: the model is not sound\n  why: {error}") from None
    for info in bare:
        info.type.tensor_type.ClearField("shape")
    return _modernized(model), large


def _is_bare(info: Any) -> bool:
    """Whether the number of a tensor's axes is unknown."""
    return info.type.HasField("tensor_type") and not info.type.tensor_type.HasField("shape")


def _taken_out(graph: Any) -> dict[str, Any]:
    """Replaces tensors that no shape arithmetic reads by inputs of their type."""
    large, small = {}, []
    for tensor in graph.initializer:
        copy = onnx().TensorProto()
        copy.CopyFrom(tensor)
        if math.prod(tensor.dims) > _LARGE:
            large[tensor.name] = copy
        else:
            small.append(copy)
    del graph.initializer[:]
    graph.initializer.extend(small)
    given = {info.name for info in graph.input}
    for name, tensor in large.items():
        if name not in given:
            graph.input.append(onnx().helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
    return large


def _parsed(data: bytes, name: str) -> Any:
    model = onnx().ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:
        raise OnnxError(f"load: {name} is not an ONNX model\n  why: {error}") from None
    if not model.HasField("graph"):
        raise OnnxError(f"load: {name} is not an ONNX model: it has no graph")
    return model


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        yield from _graphs_of(node)


def _graphs_of(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
            yield from _graphs(inner)


def _tensors(model: Any) -> Iterator[Any]:
    """Every tensor that the model holds: initializers, and attributes of nodes."""
    nodes = [node for function in model.functions for node in function.node]
    for graph in [*_graphs(model.graph), *(inner for node in nodes for inner in _graphs_of(node))]:
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
        nodes += graph.node
    for node in nodes:
        for attribute in node.attribute:
            yield from [attribute.t] if attribute.HasField("t") else []
            yield from attribute.tensors


def _check_tensor(tensor: Any, folder: str | None) -> None:
    """Raises OnnxError unless the tensor holds as many bytes as its shape asks for; what lies in
    another file is fetched.
    """
    what = f"load: tensor {tensor.name!r}"
    if any(extent < 0 for extent in tensor.dims):
        raise OnnxError(f"{what} has the shape {list(tensor.dims)}")
    if tensor.HasField("segment"):
        raise OnnxError(f"{what} is stored in segments, which are not read")
    size = math.prod(tensor.dims)
    try:
        dtype = np.dtype(onnx().helper.tensor_dtype_to_np_dtype(tensor.data_type))
    except (KeyError, ValueError):
        dtype = None  # a string, or a kind that is not known: refused where it is used
    needed = 0 if dtype is None else -(-size * _bits(tensor.data_type, dtype) // 8)
    if tensor.data_location == onnx().TensorProto.EXTERNAL:
        if dtype is None:
            raise OnnxError(f"{what} of such elements cannot lie in another file")
        _fetch(tensor, folder, needed, what)
    elif dtype is not None and tensor.HasField("raw_data"):
        if len(tensor.raw_data) != needed:
            raise OnnxError(f"{what} of shape {list(tensor.dims)} needs {needed} bytes and has {len(tensor.raw_data)}")


def _bits(element_type: int, dtype: np.dtype) -> int:
    name = onnx().TensorProto.DataType.Name(element_type)
    return int(name[-1]) if name[-4:] in ("INT4", "INT2") else 4 if name == "FLOAT4E2M1" else 8 * dtype.itemsize


def _fetch(tensor: Any, folder: str | None, needed: int, what: str) -> None:
    """Reads a tensor from a file beside the model; links and paths that lead elsewhere are refused."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise OnnxError(f"{what} lies in the file {location!r}\n  fix: load the model from its path")
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, location))
    if not location or os.path.isabs(location) or os.path.commonpath([root, path]) != root or not os.path.isfile(path):
        raise OnnxError(f"{what} lies in {location!r}, which is not a file in the folder of the model")
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", needed))
    except ValueError:
        raise OnnxError(f"{what}: offset or length in {location!r} is not a number") from None
    if offset < 0 or length != needed or offset + length > os.path.getsize(path):
        raise OnnxError(
            f"{what} needs {needed} bytes; {length} from {offset} on were promised, and {location!r} has {os.path.getsize(path)}"
        )
    with open(path, "rb") as file:
        file.seek(offset)
        tensor.raw_data = file.read(length)
    tensor.data_location = onnx().TensorProto.DEFAULT
    del tensor.external_data[:]


def _with_tool(model: Any, tool: str, *arguments: str) -> Any:
    """Runs a tool of the package on the model (_child.py). OnnxError if it fails, crashes or takes
    too long.
    """
    command = [sys.executable, "-P", os.path.join(os.path.dirname(__file__), "_child.py"), tool, *arguments]
    try:
        done = subprocess.run(command, input=model.SerializeToString(), capture_output=True, timeout=_TOOL_SECONDS)
    except subprocess.TimeoutExpired:
        raise OnnxError(f"load: onnx's tool to {tool} models takes more than {_TOOL_SECONDS} seconds") from None
    if done.returncode:
        why = done.stdout.decode(errors="replace") or "it crashed"
        raise OnnxError(f"load: onnx's tool to {tool} models fails on this one\n  why: {why}")
    return onnx().ModelProto.FromString(done.stdout)


def _modernized(model: Any) -> Any:
    if model.functions:
        model = _with_tool(model, "inline")
    if opset_of(model) >= OLDEST_READ or not any(node.domain in ("", "ai.onnx") for node in model.graph.node):
        return model
    if opset_of(model) < _SCAN_WITHOUT_BATCH and any(node.op_type == "Scan" for graph in _graphs(model.graph) for node in graph.node):
        raise OnnxError(
            f"load: there is no counterpart to Scan of opset {opset_of(model)}\n  why: it has an axis for batches\n"
            f"  fix: export the model with opset {_SCAN_WITHOUT_BATCH} or later"
        )
    return _with_tool(model, "upgrade", str(OLDEST_READ))


def expanded(model: Any, known: Container[str]) -> Any:
    """Replaces operators that are not ``known`` by the nodes that define them in ONNX, if there are
    such.
    """
    done: set[tuple[str, str]] = set()
    while True:
        used = {(own_domain(node), node.op_type) for node in model.graph.node if name_of(node) not in known}
        lacking = {op for op in used - done if _is_defined_by_nodes(*op, _version_of(model, op[0]))}
        if not lacking:
            return model
        done |= lacking
        try:
            model = _with_tool(model, "inline", *(f"{domain}:{op}" for domain, op in sorted(lacking)))
        except OnnxError:  # the op is refused with the others
            return model


def own_domain(node: Any) -> str:
    """The domain of a node's operator: an empty text for ONNX's own operators."""
    return "" if node.domain == "ai.onnx" else node.domain


def name_of(node: Any) -> str:
    """The operator of a node by the name that the table of counterparts has for it."""
    domain = own_domain(node)
    return f"{domain}.{node.op_type}" if domain else node.op_type


def _is_defined_by_nodes(domain: str, op: str, opset: int) -> bool:
    try:
        schema = onnx().defs.get_schema(op, opset, domain)
    except onnx().defs.SchemaError:
        return False
    return schema.has_function or schema.has_context_dependent_function


def opset_of(model: Any) -> int:
    """The version of ONNX's own operators that the model uses."""
    return _version_of(model, "")


def _version_of(model: Any, domain: str) -> int:
    return max((entry.version for entry in model.opset_import if own_domain(entry) == domain), default=1)
