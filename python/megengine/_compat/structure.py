"""Nests of modules by dotted keys, and the layers that have a quantized form, under the names that older programs import."""

from collections.abc import Callable
from typing import Any

from ..module import qat


def _access_structure(obj: Any, key: str, callback: Callable[[Any, str, Any], Any] | None = None) -> Any:
    """Returns the object at ``key`` in ``obj``, such as "layers.0.weight"; or the result of
    ``callback(holder, last step, object)``.

    AttributeError, IndexError or KeyError for a step that leads nowhere.
    """
    holder, step, found = None, "", obj
    for step in key.split("."):
        holder = found
        found = holder[step] if isinstance(holder, dict) else holder[int(step)] if isinstance(holder, (list, tuple)) else getattr(holder, step)
    return found if callback is None else callback(holder, step, found)


def _get_quantable_module_names() -> list[str]:
    """Layers of `megengine.module` that `quantize_qat` replaces."""
    return [name for name in qat.__all__ if name != "QATModule"]
