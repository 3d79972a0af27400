"""Graphs, texts and numbers for TensorBoard: a `SummaryWriter` of tensorboardX that also writes graphs given node by node.

Needs the package tensorboardX (``pip install 'megjit[tensorboard]'``).

>>> import os, tempfile
>>> with tempfile.TemporaryDirectory() as folder, SummaryWriterExtend(folder) as writer:
...     writer.add_scalar("loss", 0.5, 1)
...     len(os.listdir(folder))
1
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

try:
    from tensorboardX import SummaryWriter
    from tensorboardX.proto.attr_value_pb2 import AttrValue
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.graph_pb2 import GraphDef
    from tensorboardX.proto.node_def_pb2 import NodeDef
    from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboardX.proto.tensor_pb2 import TensorProto
    from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboardX.proto.types_pb2 import DataType
    from tensorboardX.proto.versions_pb2 import VersionDef
except ImportError as error:
    raise ImportError(
        "megengine.utils.tensorboard needs the package tensorboardX\n  fix: pip install 'megjit[tensorboard]'"
    ) from error

__all__ = [
    "NodeRaw", "SummaryWriterExtend", "attr_value_proto", "graph", "node", "node_proto", "tensor_shape_proto", "text",
]  # fmt: skip

# Our dtypes -> TensorFlow's names, if these differ.
_DTYPES = {"float32": "DT_FLOAT", "float64": "DT_DOUBLE", "float16": "DT_HALF"}


def tensor_shape_proto(shape: Iterable[int]) -> TensorShapeProto:
    """A TensorShapeProto."""
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=int(extent)) for extent in shape])


def attr_value_proto(shape: Iterable[int] | None, dtype: object, attr: dict[str, Any]) -> dict[str, AttrValue]:
    """AttrValues by name: ``_output_shapes``, ``dtype`` if there are some, and ``attr`` as text."""
    values = {}
    if shape is not None:
        values["_output_shapes"] = AttrValue(list=AttrValue.ListValue(shape=[tensor_shape_proto(shape)]))
    if dtype is not None:
        name = _DTYPES.get(str(dtype), f"DT_{dtype}".upper())
        values["dtype"] = AttrValue(type=DataType.Value(name) if name in DataType.keys() else DataType.DT_INVALID)
    return values | {name: AttrValue(s=str(value).encode()) for name, value in attr.items()}


def node_proto(
    name: str,
    op: str = "UnSpecified",
    input: str | Sequence[str] | None = None,
    outputshape: Iterable[int] | None = None,
    dtype: object = None,
    attributes: dict[str, Any] = {},  # noqa: B006  (never written; the default is part of the interface)
) -> NodeDef:
    """A NodeDef. input: names of the nodes that it reads."""
    inputs = [input] if isinstance(input, str) else input or []
    return NodeDef(name=name, op=op, input=inputs, attr=attr_value_proto(outputshape, dtype, attributes))


node = node_proto


def graph(node_list: Iterable[NodeDef]) -> GraphDef:
    """A GraphDef of nodes."""
    return GraphDef(node=list(node_list), versions=VersionDef(producer=22))


def text(tag: str, text: str | Sequence[str]) -> Summary:
    """A Summary with one text, or a list of texts."""
    texts = [text] if isinstance(text, str) else list(text)
    shape = None if isinstance(text, str) else tensor_shape_proto([len(texts)])
    tensor = TensorProto(dtype="DT_STRING", string_val=[one.encode() for one in texts], tensor_shape=shape)
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])


class NodeRaw:
    """A node that is still being described; see `SummaryWriterExtend.add_node_raw`."""

    def __init__(
        self, name: str, op: str, input: Any, outputshape: Any, dtype: Any, attributes: dict[str, Any]
    ) -> None:
        self.name, self.op, self.input = name, op, input
        self.outputshape, self.dtype, self.attributes = outputshape, dtype, attributes


class SummaryWriterExtend(SummaryWriter):  # type: ignore[misc]
    """Writes an event file into ``logdir`` (None: ``runs/<time>_<host><comment>``), with all methods of its base.

    purge_step: events of an earlier run from this step on are not shown. max_queue, flush_secs: the
    most events that wait, and the longest time that they wait. write_to_disk False: nothing is
    written. log_dir: an older name of logdir.
    """

    def __init__(
        self,
        logdir: str | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
        write_to_disk: bool = True,
        log_dir: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            logdir, comment, purge_step, max_queue, flush_secs, filename_suffix, write_to_disk, log_dir, **kwargs
        )
        self.node_raw_dict: dict[str, NodeRaw] = {}

    def add_text(
        self,
        tag: str,
        text_string_list: str | Sequence[str],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Adds a text, or a list of texts."""
        self._get_file_writer().add_summary(text(tag, text_string_list), global_step, walltime)

    def add_node_raw(
        self,
        name: str,
        op: str = "UnSpecified",
        input: str | Sequence[str] = [],  # noqa: B006  (copied; the default is part of the interface)
        outputshape: Sequence[int] | None = None,
        dtype: object = None,
        attributes: dict[str, Any] = {},  # noqa: B006
    ) -> None:
        """Adds a node to the graph that `add_graph_by_node_raw_list` writes; parameters as for `node`."""
        inputs = [input] if isinstance(input, str) else list(input)
        self.node_raw_dict[name] = NodeRaw(name, op, inputs, outputshape, dtype, dict(attributes))

    def add_node_raw_name_suffix(self, name: str, suffix: str) -> None:
        """Shows the node ``name`` as name + suffix, for its readers, too. KeyError for an unknown one."""
        self.node_raw_dict[name].name += suffix

    def add_node_raw_attributes(self, name: str, attributes: dict[str, Any]) -> None:
        """Adds attributes to the node ``name``. KeyError for an unknown one."""
        self.node_raw_dict[name].attributes.update(attributes)

    def add_graph_by_node_raw_list(self) -> None:
        """Writes the graph of the nodes that were added."""
        names = {name: raw.name for name, raw in self.node_raw_dict.items()}
        nodes = [
            node(raw.name, raw.op, [names.get(i, i) for i in raw.input], raw.outputshape, raw.dtype, raw.attributes)
            for raw in self.node_raw_dict.values()
        ]
        self._get_file_writer().add_event(Event(graph_def=graph(nodes).SerializeToString()))
