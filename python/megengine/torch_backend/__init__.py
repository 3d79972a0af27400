"""``torch.compile(model, backend="megjit", options={"memory_limit": "2GB"})``: PyTorch's programs on this runtime.

Dynamo and AOTAutograd give forward and backward as graphs of ATen operations; each becomes a program whose memory is planned before it
runs. PyTorch is not installed with this package, which asks for it here alone.

options:

- ``memory_limit``: bytes, or text such as "2GB", that a call of one graph (forward, or backward) may take for its arguments, results and all
  between. Values are computed again where that is needed; MemoryError, before anything runs, if it cannot be kept. What torch holds beside
  them (parameters of other graphs, the optimizer's states, gradients) does not count.
- ``opt_level`` (3) and ``numerics`` ("fast"): as of `megengine.jit.trace`.
- ``fallback`` (True): graphs with an operation, dtype or device that megjit does not have are run by torch, with a warning that names it; False: a
  RuntimeError.

On CPUs. int64 is for places, labels and counters: 32 bits are computed with, and calls whose values do not fit are torch's; float64 and complex
numbers are left to torch. Dropout follows ``torch.manual_seed`` (not torch's own numbers).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd

from ._aten import Unsupported
from ._program import Program, reason_against

__all__ = ["backend"]

_OPTIONS = {"memory_limit", "opt_level", "numerics", "fallback"}


def _decompositions() -> dict[Any, Any]:
    rules = core_aten_decompositions()
    # Its rule gives weights in place of the logarithms of sums, which backward reads.
    rules.pop(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default, None)
    return rules


def _compiler(options: dict[str, Any], fallback: bool) -> Callable[..., Any]:
    def leave(graph: Any, why: str) -> None:
        if not fallback:
            raise RuntimeError(f"megjit cannot compile this graph: {why}\n  fix: leave fallback=False out")
        warnings.warn(f"megjit leaves a graph to torch: {why}", stacklevel=2)

    def compile(graph: Any, _: Any) -> Any:
        program: Program | None = None
        if why := reason_against(graph):
            leave(graph, why)
        else:
            program = Program(graph, options)

        def run(arguments: list[Any]) -> list[Any]:
            nonlocal program
            try:
                results = program(arguments) if program else list(graph(*arguments))
            except Unsupported as error:  # found when the program is recorded: nothing has run
                leave(graph, str(error))
                program, results = None, list(graph(*arguments))
            arguments.clear()
            return results

        run._boxed_call = True  # type: ignore[attr-defined]  # torch's protocol: one list, which the call empties
        return run

    return compile


def backend(graph: Any, example_inputs: Any, *, options: dict[str, Any] | None = None, **more: Any) -> Any:
    """What ``torch.compile`` calls. ValueError for an option that does not exist."""
    given = {**(options or {}), **more}
    if unknown := given.keys() - _OPTIONS:
        raise ValueError(f"megjit has no option {sorted(unknown)[0]!r}; it has {', '.join(sorted(_OPTIONS))}")
    fallback = bool(given.pop("fallback", True))
    compile = _compiler({"opt_level": 3, **given}, fallback)
    compiled = aot_autograd(fw_compiler=compile, bw_compiler=compile, inference_compiler=compile, decompositions=_decompositions())
    return compiled(graph, example_inputs)
