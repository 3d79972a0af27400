"""Safetensors and GGUF files from bytes, so that what a test wants wrong is wrong."""

import json
import struct

import ml_dtypes
import numpy as np

DTYPES = {
    "F32": "float32", "F16": "float16", "BF16": ml_dtypes.bfloat16, "F64": "float64", "I8": "int8",
    "U8": "uint8", "I16": "int16", "U16": "uint16", "I32": "int32", "I64": "int64", "BOOL": "bool",
}  # fmt: skip
GGUF_NUMBERS = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q4_K": 12,
    "Q5_K": 13, "Q6_K": 14, "I8": 24, "I16": 25, "I32": 26, "I64": 27, "F64": 28, "BF16": 30,
}  # fmt: skip


def written(path, content):
    """The path, at which the content now stands."""
    path.write_bytes(content)
    return path


def floats(*numbers):
    """Bytes of float32."""
    return np.array(numbers, "<f4").tobytes()


def halves(*numbers):
    """Bytes of float16."""
    return np.array(numbers, "<f2").tobytes()


# ---- safetensors


def safetensors(tensors, **changes):
    """A safetensors file of (dtype, shape, bytes) by name, with these entries in its header."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        place = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": place}
        data += content
    return with_header(json.dumps(header | changes), data)


def with_header(text, data=b""):
    """A safetensors file with this text for a header."""
    text = text.encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def of_array(array):
    """(dtype, shape, bytes) of an array."""
    word = next(word for word, dtype in DTYPES.items() if array.dtype == dtype)
    return word, array.shape, array.tobytes()


# ---- GGUF


def text(value):
    """A text of a GGUF file."""
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value_of(value):
    """A value of GGUF's metadata, behind the number of its kind."""
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    items = [value_of(item) for item in value]
    head = struct.pack("<I", 9) + items[0][:4] + struct.pack("<Q", len(items))
    return head + b"".join(item[4:] for item in items)


def tensor(name, format, shape, place):
    """What a GGUF file says of a tensor."""
    extents = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
    return text(name) + extents + struct.pack("<IQ", GGUF_NUMBERS.get(format, format), place)


def gguf(tensors, metadata=None, alignment=32, version=3):
    """A GGUF file of (format, shape, bytes) by name."""
    metadata = dict(metadata or {})
    if alignment != 32:
        metadata["general.alignment"] = alignment
    told, data = b"", b""
    for name, (format, shape, content) in tensors.items():
        data += bytes(-len(data) % alignment)
        told += tensor(name, format, shape, len(data))
        data += content
    keys = b"".join(text(key) + value_of(each) for key, each in metadata.items())
    return gguf_of(len(tensors), len(metadata), keys + told, data, alignment, version)


def gguf_of(tensors, keys, told, data=b"", alignment=32, version=3):
    """A GGUF file with these counts, header and data."""
    header = b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + told
    return header + bytes(-len(header) % alignment) + data
