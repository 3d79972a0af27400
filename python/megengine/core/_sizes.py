"""Sizes in bytes, as an int or as a text such as "500MB"."""

import re

_UNITS = {"": 1, "B": 1, "K": 2**10, "KB": 2**10, "M": 2**20, "MB": 2**20, "G": 2**30, "GB": 2**30}
_MOST = 2**63 - 1


def to_bytes(value: int | str, what: str = "dtr") -> int:
    """Bytes of an int or of a text such as "500MB"; ``what`` begins the message of an error.

    Raises ValueError for wrong text, a negative size or one of 2**63 bytes and more, TypeError for
    other types.
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError(
            f"{what}: {value!r} ({type(value).__name__}) is neither an int nor a text such as '500MB'"
        )
    if isinstance(value, int):
        size = value
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value, re.ASCII)
        if not match or match[2].upper() not in _UNITS:
            raise ValueError(
                f"{what}: {value!r} is not a size; write a number and one of B, KB, MB, GB"
            )
        size = int(float(match[1]) * _UNITS[match[2].upper()]) if len(match[1]) < 300 else _MOST + 1
    if size < 0:
        raise ValueError(f"{what}: a size of {size} bytes is negative")
    if size > _MOST:
        raise ValueError(f"{what}: a size of {str(value)[:40]} is beyond any memory")
    return size
