"""OpenCV, loaded by the first function that needs it."""

from __future__ import annotations

import functools
from typing import Any


@functools.lru_cache(maxsize=1)
def opencv() -> Any:
    """The module cv2. Raises ImportError with the command that installs it."""
    try:
        import cv2
    except ImportError as error:
        raise ImportError(
            f"images need OpenCV, which cannot be imported ({error}); "
            "install it with: pip install 'megjit[vision]'"
        ) from error
    from ._workers import get_worker_info

    if get_worker_info() is not None:  # many worker processes, one thread each
        cv2.setNumThreads(0)
    return cv2
