"""The metadata of a dumped file, as JSON; older files have a pickle, which is read without running
anything.
"""

from __future__ import annotations

import base64
import io
import json
import math
from typing import Any

import numpy as np

from .._files import unpickler
from .._files.admitted import Admission
from .._files.container import Damaged
from .._files.values import ValueReader, ValueWriter

_OTHER = "user_info_values"  # the key of a user_info that JSON cannot hold directly


def _is_json(value: Any, depth: int = 0) -> bool:
    if depth > 50:
        return False
    if type(value) is dict:
        return all(type(key) is str and _is_json(item, depth + 1) for key, item in value.items())
    if type(value) is list:
        return all(_is_json(item, depth + 1) for item in value)
    return value is None or type(value) in (bool, int, str) or type(value) is float and math.isfinite(value)


def _text_of(array: Any) -> str:
    if not isinstance(array, np.ndarray):
        raise Damaged(f"it holds a {type(array).__name__}")
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return base64.b64encode(stream.getvalue()).decode()


def _array_of(text: str) -> np.ndarray:
    return np.load(io.BytesIO(base64.b64decode(text, validate=True)), allow_pickle=False)


def _no_module(thing: Any) -> Any:
    raise Damaged("it holds a module")


def metadata_bytes(entries: dict[str, Any]) -> bytes:
    """``entries`` as JSON. TypeError for a user_info that is neither plain data nor an array."""
    user_info = entries.get("user_info")
    if _is_json(user_info):
        return json.dumps(entries).encode()
    try:
        values = ValueWriter(_text_of, _no_module)(user_info)
    except (Damaged, ValueError) as error:
        raise TypeError(
            f"dump: user_info cannot be written: {error}\n  fix: give numbers, text, arrays, and containers of them"
        ) from None
    written = {_OTHER if name == "user_info" else name: entry for name, entry in entries.items()} | {_OTHER: values}
    return json.dumps(written).encode()


def read_metadata(data: bytes) -> dict[str, Any] | None:
    """Reads what `metadata_bytes` or an older version wrote; None if nothing was written.
    RuntimeError for other data.
    """
    if not data:
        return None
    if not data.startswith(b"{"):
        return unpickler.load(io.BytesIO(data), "the metadata of the model")
    try:
        entries: dict[str, Any] = json.loads(data)
        if _OTHER in entries:
            user_info = ValueReader(Admission(), _array_of, _no_module)(entries.pop(_OTHER))
            entries = {"user_info": user_info, **entries}
    except (Damaged, ValueError, RecursionError) as error:
        raise RuntimeError(f"the metadata of the model is damaged: {error}\n  fix: dump it again") from None
    return entries
