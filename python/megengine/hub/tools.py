"""Load a module from a file; work in another folder for a while."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from types import ModuleType


def load_module(name: str, path: str) -> ModuleType:
    """The module in the file ``path``, under ``name``, executed anew. Its folder serves its imports.

    Raises what the file raises, and ImportError when it cannot be loaded at all.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded as a Python module")
    module = importlib.util.module_from_spec(spec)
    with import_path(os.path.dirname(os.path.abspath(path))):
        spec.loader.exec_module(module)
    return module


def check_module_exists(module: str) -> bool:
    """Whether ``import module`` would find something."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


@contextlib.contextmanager
def import_path(folder: str) -> Iterator[None]:
    """Lets imports look into ``folder`` first, inside a ``with`` block."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


@contextlib.contextmanager
def cd(target: str) -> Iterator[None]:
    """The current folder is ``target`` inside a ``with`` block."""
    previous = os.getcwd()
    os.chdir(target)
    try:
        yield
    finally:
        os.chdir(previous)
