"""``torch.compile(model, backend="megjit", options={"memory_limit": "2GB"})``: PyTorch's programs on this runtime.

Dynamo and AOTAutograd give forward and backward as graphs of ATen operations; each becomes a program whose memory is planned before it
runs. PyTorch is not installed with this package; only this folder imports it.

options:

- ``memory_limit``: bytes, or text such as "2GB", that a forward or a backward may take for its arguments, results and all between, with what other graphs
  keep for their backward meanwhile. Which values cross from forward to backward is chosen so that both keep it, the others are computed again;
  MemoryError, before anything runs, if it cannot be kept. What torch holds beside them (the optimizer's states, other gradients) does not count: `step` has
  one limit for a whole step.
- ``opt_level`` (3) and ``numerics`` ("fast"): as of `megengine.jit.trace`.
- ``fallback`` (True): an operation, dtype or device that megjit does not have is torch's, and the graph runs in parts, with one warning that names
  all such operations and their lines; False: a RuntimeError.

On CPUs, and on one GPU for each graph, whose memory and streams are torch's. int64 and float64 are computed in 64 bits; pooling and resizing of float64 are torch's, as complex
numbers are. Dropout follows ``torch.manual_seed`` (not torch's own numbers); other random numbers are torch's.
"""

from __future__ import annotations

from typing import Any

from ..core._telling import no_effect
from ._devices import device_of
from ._names import arguments_of, tell_lines
from ._pair import Pair
from ._private import (
    aot_autograd,
    breaks_behind,
    decompositions,
    with_one_attention,
)
from ._step import Step, step

__all__ = ["Step", "backend", "step"]

_OPTIONS = {"memory_limit", "opt_level", "numerics", "fallback"}


# torch's names
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def _tell_of_mode(mode: Any) -> None:
    if mode is not None and mode not in _MODES:
        raise ValueError(f"megjit has no mode {mode!r}; torch.compile has {', '.join(_MODES)}")
    no_effect("torch.compile", "megjit has one way to compile; its options are opt_level, numerics and memory_limit", mode=mode not in (None, "default"))


def backend(graph: Any, example_inputs: Any, *, options: dict[str, Any] | None = None, **more: Any) -> Any:
    """Compiles a graph for ``torch.compile``. ValueError for an option, or a mode, that does not
    exist.
    """
    given = {**(options or {}), **more}
    _tell_of_mode(given.pop("mode", None))
    given.pop("name", None)  # torch's logs use the name
    if unknown := given.keys() - _OPTIONS:
        raise ValueError(f"megjit has no option {sorted(unknown)[0]!r}; it has {', '.join(sorted(_OPTIONS))}")
    fallback = bool(given.pop("fallback", True))
    options = {"opt_level": 3, **given}
    tell_lines(graph)
    pair = Pair(options, fallback, example_inputs, breaks_behind(graph), arguments_of(graph))
    compiled = aot_autograd(
        fw_compiler=pair.forward, bw_compiler=pair.backward, inference_compiler=pair.alone, partition_fn=pair.partition, decompositions=decompositions()
    )
    with with_one_attention(device_of(graph.graph)):
        return compiled(graph, example_inputs)
