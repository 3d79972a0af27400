"""What calls make and read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass


class Value:
    """What a call makes: it has a ``name`` and ``users``, the calls that read it, in order of first use."""

    name: str = ""

    def __init__(self) -> None:
        self.users: dict[Any, None] = {}  # calls of the face
        super().__init__()

    def replace_all_uses(
        self, new: Value, only: Callable[[Any], bool] = lambda user: True
    ) -> list[Any]:
        """Let all users for which ``only`` holds read ``new``; returns the users that were changed."""
        changed = [user for user in self.users if only(user)]
        for user in changed:
            user.replace_input(self, new)
        return changed
