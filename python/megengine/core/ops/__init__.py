"""All registered ops by name: ``ops.add(x, y)``, ``ops.conv(x, w, stride=(1, 1), ...)``."""

from ..._core import ops as _native

globals().update(
    {name: getattr(_native, name) for name in dir(_native) if not name.startswith("_")}
)
