"""Model files taken apart and put together again, so that tests can change what they say."""

import io
import json
import struct

KEY = "megengine.model"


def header_of(content):
    """(header, data): the JSON of a safetensors file, and the rest."""
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def headed(header, data):
    """The file of what `header_of` gave, changed perhaps."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def opened(content):
    """(header, model, data): the JSON of the container, that of the model, and the rest."""
    header, data = header_of(content)
    return header, json.loads(header["__metadata__"][KEY]), data


def joined(header, model, data):
    """The file of what `opened` gave, changed perhaps."""
    if isinstance(header.get("__metadata__"), dict):
        header["__metadata__"][KEY] = json.dumps(model)
    return headed(header, data)


def saved(module):
    """The content of the file of ``module``."""
    file = io.BytesIO()
    module.save(file)
    return file.getvalue()


def changed(module, change):
    """The file of ``module``, open, with ``change(model)`` applied to its text."""
    header, model, data = opened(saved(module))
    change(model)
    return io.BytesIO(joined(header, model, data))
