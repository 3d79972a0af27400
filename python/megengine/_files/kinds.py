"""Kinds of files by their first bytes, to tell what an unsuitable file is and which function reads
it.
"""

from __future__ import annotations

import re
from typing import IO

from .container import HEADER_BYTES

_LOOKED_AT = 4096  # bytes
_PICKLE, _OLD_TORCH = rb"\x80[\x02-\x05]", rb"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19\."
PICKLE = ("a pickle, as megengine.save writes", "load it with megengine.load(path)")
_KINDS: list[tuple[bytes, str, str]] = [
    # a pattern of the first bytes; what such a file is; what to do
    (rb"MEGJITGF", "a compiled graph, which trace.dump writes", "run it with utils.comp_graph_tools.GraphInference(path); utils.network.Network.load(path) edits it"),
    (rb"MGBC|.{8}mg[bv]\d", "a graph that MegEngine dumped", "load the network's state dict in its class, and dump that here"),
    (rb"GGUF", "a GGUF file", "load its tensors with megengine.load(path)"),
    (rb"\x93NUMPY", "an array of NumPy's", "read it with numpy.load"),
    (rb"PK\x03\x04.{0,300}\.npy", "an archive of NumPy's", "read it with numpy.load, and pass what it holds as a dict"),
    (rb"PK\x03\x04", "a zip archive, as torch.save writes", "read it with torch.load, and pass its tensors as NumPy arrays"),
    (_OLD_TORCH, "a file of an old torch.save", "read it with torch.load, and pass its tensors as NumPy arrays"),
    (rb"\x08[\x01-\x20][\x12\x1a\x22\x28\x32\x3a\x42]", "an ONNX model", "load it with megengine.onnx.load(path)"),
    (rb"\x89HDF\r\n", "an HDF5 file", "read it with h5py, and pass its arrays as a dict"),
    (rb"\x1f\x8b|BZh\d|\xfd7zXZ", "a compressed file", "unpack it first"),
    (rb"\s*(?:<!DOCTYPE|<html)", "a page of the web, not a model", "download the file itself"),
    (rb"version https://git-lfs", "a pointer of Git LFS, not the file itself", "fetch it with git lfs pull"),
]  # fmt: skip


def first_bytes(file: IO[bytes]) -> bytes:
    """Returns how a file that can be read again begins, and nothing of other files. The file stays where it is."""
    try:
        start = file.seek(file.tell())
        begin = file.read(_LOOKED_AT)
        file.seek(start)
        return begin
    except (OSError, ValueError, AttributeError):
        return b""


def is_model_file(begin: bytes) -> bool:
    """Tells whether a file begins like a container (`container.py`): the length of a header, and a header."""
    return len(begin) > 8 and begin[8:9] == b"{" and int.from_bytes(begin[:8], "little") <= HEADER_BYTES


def holds_tensors(begin: bytes) -> bool:
    """Tells whether a file begins like a container or a GGUF file."""
    return is_model_file(begin) or begin.startswith(b"GGUF")


def kind_of(begin: bytes) -> tuple[str, str] | None:
    """Returns the kind of a file with these first bytes, and what to do with it; None for a kind
    that is not known.
    """
    if re.match(_PICKLE, begin) and not re.match(_OLD_TORCH, begin):
        return PICKLE
    return next(((what, fix) for pattern, what, fix in _KINDS if re.match(pattern, begin, re.DOTALL)), None)
