"""Op objects, see ``megengine.core.ops.builtin``."""

from ..ops.builtin import *  # noqa: F403
