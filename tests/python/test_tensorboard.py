"""Event files of utils.tensorboard, read back by tensorboardX's messages."""

import importlib
import os
import struct
import sys
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.graph_pb2 import GraphDef
from tensorboardX.proto.types_pb2 import DataType

from megengine.utils import tensorboard as T


def events(folder):
    """Without the first, which says the version of the format."""
    (name,) = os.listdir(folder)
    data, found = Path(folder, name).read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        found.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    assert found[0].file_version == "brain.Event:2"
    return found[1:]


def test_numbers_and_texts_are_written(tmp_path):
    with T.SummaryWriterExtend(str(tmp_path)) as writer:
        writer.add_scalar("loss", 0.5, 300, walltime=2.0)
        writer.add_text("note", ["a", "b"], 1)
        writer.add_text("line", "c")
    scalar, texts, line = events(tmp_path)
    assert (scalar.wall_time, scalar.step) == (2.0, 300)
    assert scalar.summary.value[0].tag == "loss" and scalar.summary.value[0].simple_value == 0.5
    (value,) = texts.summary.value
    assert value.tag == "note" and [*value.tensor.string_val] == [b"a", b"b"] and texts.step == 1
    assert value.metadata.plugin_data.plugin_name == "text" and [one.size for one in value.tensor.tensor_shape.dim] == [2]
    assert [*line.summary.value[0].tensor.string_val] == [b"c"] and not line.summary.value[0].tensor.tensor_shape.dim


def test_graphs_are_written_from_their_nodes(tmp_path):
    with T.SummaryWriterExtend(str(tmp_path)) as writer:
        writer.add_node_raw("x", "Input", outputshape=[2, 3], dtype="float32")
        writer.add_node_raw("y", "Relu", input="x", dtype="qint8")
        writer.add_node_raw_name_suffix("x", "_0")
        writer.add_node_raw_attributes("y", {"flops": 6})
        writer.add_graph_by_node_raw_list()
        with pytest.raises(KeyError):
            writer.add_node_raw_attributes("z", {})
    (event,) = events(tmp_path)
    x, y = GraphDef.FromString(event.graph_def).node
    assert (x.name, x.op, y.op, [*y.input]) == ("x_0", "Input", "Relu", ["x_0"])
    assert x.attr["dtype"].type == DataType.DT_FLOAT and y.attr["dtype"].type == DataType.DT_QINT8
    assert y.attr["flops"].s == b"6"
    (shape,) = x.attr["_output_shapes"].list.shape
    assert [extent.size for extent in shape.dim] == [2, 3]


@pytest.mark.parametrize("dtype, number", [("float64", 2), ("int32", 3), ("uint8", 4), ("bool", 10), ("bfloat16", 14), ("float16", 19), ("quint4", 0)])
def test_dtypes_have_tensorflows_numbers(dtype, number):
    assert T.node("x", dtype=dtype).attr["dtype"].type == number


def test_what_an_earlier_run_wrote_is_purged_and_nothing_need_be_written(tmp_path):
    with T.SummaryWriterExtend(str(tmp_path / "a"), purge_step=7) as writer:
        writer.add_scalar("loss", 1, 1)
    assert [event.step for event in events(tmp_path / "a") if event.HasField("session_log")] == [7]
    T.SummaryWriterExtend(str(tmp_path / "b"), write_to_disk=False).add_scalar("loss", 1)
    assert not (tmp_path / "b").exists()
    with pytest.raises(TypeError, match="banana"):
        T.SummaryWriterExtend(str(tmp_path / "c"), banana=1)


def test_without_tensorboardx_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    monkeypatch.delitem(sys.modules, "megengine.utils.tensorboard")
    with pytest.raises(ImportError, match=r"pip install 'megjit\[tensorboard\]'"):
        importlib.import_module("megengine.utils.tensorboard")
