"""Handle of a registered hook: keeps it removable."""

from __future__ import annotations

import weakref
from collections.abc import Callable, MutableMapping
from typing import Any


class HookHandler:
    """Puts ``hook`` into ``source_dict`` under a fresh id; ``remove()`` takes it out again.

    Parameters
    ----------
    source_dict : MutableMapping of int
        An ordered dict of hooks, held weakly when it can be.
    hook : callable
        The hook, a function.
    """

    hook_num = 0

    def __init__(self, source_dict: MutableMapping[int, Any], hook: Callable[..., Any]) -> None:
        self.id = HookHandler.hook_num
        HookHandler.hook_num += 1
        self.source_ref = _reference_to(source_dict)
        source_dict[self.id] = hook

    def remove(self) -> None:
        """Takes the hook out; a second call, or one after the dict has gone, does nothing."""
        source_dict = self.source_ref()
        if source_dict is not None:
            source_dict.pop(self.id, None)


def _reference_to(source_dict: MutableMapping[int, Any]) -> Callable[[], Any]:
    try:
        return weakref.ref(source_dict)
    except TypeError:  # a plain dict takes no weak references
        return lambda: source_dict
