"""OpenCV, loaded by the first function that needs it."""

from __future__ import annotations

import functools
import sys
from typing import Any

_has_one_thread = False  # whether it should compute with one thread


def use_one_thread() -> None:
    """Makes OpenCV use one thread in this process, now and when it is loaded, because there are
    many workers.
    """
    global _has_one_thread
    _has_one_thread = True
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)


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
    if _has_one_thread:
        cv2.setNumThreads(0)
    return cv2
