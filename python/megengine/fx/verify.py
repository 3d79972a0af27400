"""Proof by example that an edit keeps what a model computes: run before and after, and compare."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import module as M
from .._graph.tree import leaves, map_leaves
from ..tensor import Tensor
from ._running import Interpreter
from .graph_module import GraphModule
from .node import Node

__all__ = ["VerificationError", "computes", "verify_same"]

_COMPUTES = "computes"  # key of Node.meta


class VerificationError(AssertionError):
    """An edit changed what a model computes; the message names the first node whose value differs.

    Examples
    --------
    >>> import megengine as mge
    >>> from megengine import fx
    >>> before, after = fx.symbolic_trace(lambda x: x * 2), fx.symbolic_trace(lambda x: x * 3)
    >>> try:
    ...     fx.verify_same(before, after, mge.tensor([1.0]))
    ... except fx.VerificationError as error:
    ...     print(str(error).splitlines()[0])
    the edit changed the result: off by 1, where the largest element is 2
    """

    __module__ = "megengine.fx"  # where programs import it from, which tracebacks print


def computes(node: object, original: Node) -> None:
    """Note that ``node`` makes the value that ``original`` made before an edit, for `verify_same`."""
    if isinstance(node, Node):
        node.meta[_COMPUTES] = original.meta.get(_COMPUTES, original.name)


def verify_same(before: M.Module, after: GraphModule, inputs: object, tolerance: float = 1e-4) -> None:
    """Runs two models on the same inputs and compares the results.

    Parameters
    ----------
    before : Module
        The model before its edits.
    after : GraphModule
        The model after its edits.
    inputs : Tensor or tuple
        A tensor, or a tuple of arguments of the models.
    tolerance : float
        Allowed difference, relative to the largest element of each tensor. Integers must be equal.

    Raises
    ------
    VerificationError
        When results differ.

    Examples
    --------
    >>> import megengine as mge
    >>> from megengine import fx
    >>> before, after = fx.symbolic_trace(lambda x: x * 2), fx.symbolic_trace(lambda x: x + x)
    >>> fx.verify_same(before, after, mge.tensor([1.0, 2.0]))
    """
    args = inputs if isinstance(inputs, tuple) else (inputs,)
    want, got = before(*_fresh(args)), after(*_fresh(args))
    why = difference(want, got, tolerance)
    if why is None:
        return
    where = _first_different(before, after, args, tolerance)
    raise VerificationError(
        f"the edit changed the result: {why}\n"
        + (f"  first different value: {where}\n" if where else "")
        + "  fix: keep this part of the model out of the pass, and report the model"
    )


def _fresh(args: Any) -> Any:
    """Copies the handles, so that a model that writes into its inputs gets the same values twice.
    """
    return map_leaves(args, lambda leaf: Tensor(leaf) if isinstance(leaf, Tensor) else leaf)


def difference(want: object, got: object, tolerance: float, least_scale: float = 0.0) -> str | None:
    """Describes how two trees of tensors, arrays and constants differ; None if they do not.

    tolerance: relative to the largest element of each tensor, or to ``least_scale`` where all are smaller.
    """
    wanted, gotten = list(leaves(want)), list(leaves(got))
    if len(wanted) != len(gotten):
        return f"{len(gotten)} values instead of {len(wanted)}"
    for a, b in zip(wanted, gotten, strict=True):
        a, b = map(_array, (a, b))
        if np.shape(a) != np.shape(b):
            return f"shape {list(np.shape(b))} instead of {list(np.shape(a))}"
        if not isinstance(a, np.ndarray) or a.dtype.kind not in "fc":
            if not np.array_equal(a, b):
                return "other elements" if isinstance(a, np.ndarray) else f"{b!r} instead of {a!r}"
            continue
        scale = float(np.abs(a[np.isfinite(a)]).max(initial=least_scale))
        if not np.allclose(a, b, rtol=0, atol=tolerance * scale, equal_nan=True):
            return (
                f"off by {float(np.abs(a - b).max()):.3g}, where the largest element is {scale:.3g}"
            )
    return None


def _array(leaf: Any) -> Any:
    """A tensor as an array of numbers that NumPy compares; other leaves as they are."""
    value = leaf.numpy() if isinstance(leaf, Tensor) else leaf
    return value.astype(np.float32) if isinstance(value, np.ndarray) and value.dtype.kind == "V" else value  # bfloat16


def _first_different(
    before: M.Module, after: GraphModule, args: tuple[Any, ...], tolerance: float
) -> str | None:
    """Describes the first node of ``after`` whose value differs from that of its counterpart in
    ``before``.
    """
    if not isinstance(before, GraphModule):
        return None
    wanted = {node.name: value for node, value in values_of(before, args)}
    for node, value in values_of(after, args):
        name = node.meta.get(_COMPUTES, node.name)
        if node.op != "output" and name in wanted:
            why = difference(wanted[name], value, tolerance)
            if why is not None:
                return f"{node.describe()}: {why}"
    return None


def values_of(gm: GraphModule, args: tuple[Any, ...]) -> list[tuple[Node, Any]]:
    """Every node with the value that it has in a run, in order."""
    runner = _Recorder(gm)
    runner.run(*_fresh(args))
    return runner.values


class _Recorder(Interpreter):
    def __init__(self, gm: GraphModule) -> None:
        super().__init__(gm)
        self.values: list[tuple[Node, Any]] = []

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        self.values.append((n, _fresh(value)))
        return value
