"""The secret that the processes of one world share: a process without it can neither ask the server
nor connect.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from .._files.disk import cache_dir
from ._environment import TOKEN


def shared_token() -> str:
    """``MEGENGINE_DISTRIBUTED_TOKEN``; else the content of a file that only this user can read, made at the first use.

    Machines that do not share a home folder need the variable.
    """
    given = os.environ.get(TOKEN)
    if given:
        return given
    path = Path(cache_dir("distributed", "token"))
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"token.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(new_token())
    try:
        os.link(draft, path)  # the first one of several processes makes it
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return path.read_text()


def new_token() -> str:
    """A secret for one world."""
    return secrets.token_hex(16)
