"""``python -m megengine graph FILE``: the graph of a saved module, as text or as a page."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .._files import modules
from .._files.disk import write_text
from .._graph.core import Graph
from ..fx import GraphModule
from ..module import Module
from ..tensor import Tensor


def graphs_of(file: str) -> list[Graph]:
    """The graphs of a file that `GraphModule.save` or `TracedModule.save` wrote, those that are called last.

    ValueError or OSError, saying why, for another file.
    """
    module = modules.load(file, Module)
    return [module.graph] if isinstance(module, GraphModule) else module._inner_graphs()


def zeros(text: str) -> Tensor:
    """A tensor for "1,3,224,224" or "8,16:int32". ValueError for another text."""
    shape, _, dtype = text.partition(":")
    try:
        extents = [int(extent) for extent in shape.split(",")] if shape else []
        return Tensor(np.zeros(extents, np.dtype(dtype or "float32")))
    except (ValueError, TypeError):
        raise ValueError(
            f"{text!r} is not a shape\n  fix: write extents and dtype like 1,3,224,224:float32"
        ) from None


def run(file: str, page: str | None, before: str | None, inputs: list[str]) -> int:
    """Prints the graphs; with ``page`` writes one, beside that of ``before`` if given. Returns the exit status.

    inputs: shapes of tensors of zeros on which the graph is run for the page, which then shows times.
    """
    found = graphs_of(file)
    if page is None:
        if before or inputs:
            raise ValueError("--before and --input are for pages\n  fix: add --html PAGE")
        print("\n\n".join(map(str, found)))
        return 0
    old = graphs_of(before)[0] if before else None
    text = found[0].html(*map(zeros, inputs), before=old, title=Path(file).name)
    write_text(page, text)
    return 0
