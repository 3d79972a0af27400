"""Event files of utils.tensorboard, read back as their formats say."""

import os
import struct
from pathlib import Path

import pytest

from megengine.utils import tensorboard as T


def messages(data):
    """(field number, value) of a message: ints, floats or bytes."""
    place, fields = 0, []

    def varint():
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while place < len(data):
        key = varint()
        if key & 7 == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            value, place = data[place : place + size], place + size
        fields.append((key >> 3, value))
    return fields


def events(folder):
    (name,) = os.listdir(folder)
    data, found = Path(folder, name).read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert T._masked_crc(data[:8]) == data[8:12]
        assert T._masked_crc(data[12 : 12 + length]) == data[12 + length : 16 + length]
        found.append(dict(messages(data[12 : 12 + length])))
        data = data[16 + length :]
    return found


def test_the_checksum_is_that_of_castagnoli():
    crc = 0xE3069283  # of "123456789", the published check value of CRC-32C
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert T._masked_crc(b"123456789") == struct.pack("<I", masked)


def test_numbers_and_texts_are_written(tmp_path):
    with T.SummaryWriterExtend(str(tmp_path)) as writer:
        writer.add_scalar("loss", 0.5, 300, walltime=2.0)
        writer.add_text("note", ["a", "b"], 1)
    head, scalar, text = events(tmp_path)
    assert head[3] == b"brain.Event:2"
    assert struct.unpack("<d", scalar[1]) == (2.0,) and scalar[2] == 300
    value = dict(messages(messages(scalar[5])[0][1]))
    assert value[1] == b"loss" and struct.unpack("<f", value[2]) == (0.5,)
    value = dict(messages(messages(text[5])[0][1]))
    assert value[1] == b"note" and [v for k, v in messages(value[8]) if k == 8] == [b"a", b"b"]


def test_graphs_are_written_from_their_nodes(tmp_path):
    with T.SummaryWriterExtend(str(tmp_path)) as writer:
        writer.add_node_raw("x", "Input", outputshape=[2, 3], dtype="float32")
        writer.add_node_raw("y", "Relu", input="x")
        writer.add_node_raw_name_suffix("x", "_0")
        writer.add_node_raw_attributes("y", {"flops": 6})
        writer.add_graph_by_node_raw_list()
        with pytest.raises(KeyError):
            writer.add_node_raw_attributes("z", {})
    (_, event) = events(tmp_path)
    x, y = ([*messages(value)] for key, value in messages(event[4]) if key == 1)
    assert dict(x)[1] == b"x_0" and dict(x)[2] == b"Input"
    assert (3, b"x_0") in y and dict(y)[2] == b"Relu"
    attributes = {dict(messages(v))[1]: dict(messages(v))[2] for k, v in x + y if k == 5}
    assert messages(attributes[b"flops"]) == [(2, b"6")] and messages(attributes[b"dtype"]) == [(6, 1)]
    shape = messages(dict(messages(attributes[b"_output_shapes"]))[1])[0][1]
    assert [messages(extent) for _, extent in messages(shape)] == [[(1, 2)], [(1, 3)]]


def test_events_wait_and_need_not_be_written(tmp_path):
    writer = T.SummaryWriterExtend(str(tmp_path / "a"), max_queue=3, purge_step=7)
    writer.add_scalar("loss", 1, 1)
    assert len(events(tmp_path / "a")) == 2 and events(tmp_path / "a")[1][2] == 7
    writer.add_scalar("loss", 1, 2)
    writer.add_scalar("loss", 1, 3)
    assert len(events(tmp_path / "a")) == 5
    writer.close()
    T.SummaryWriterExtend(str(tmp_path / "b"), write_to_disk=False).add_scalar("loss", 1)
    assert not (tmp_path / "b").exists()
