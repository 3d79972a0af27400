"""Uses of torch's private interfaces, all in this file, for the releases KNOWN."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

KNOWN = ("2.14", "2.15")  # `make test-torch` runs with each


def check_release(version: str) -> None:
    """Raises ImportError for a torch that is too old; warns once about a newer one than those
    known.
    """
    first, last, own = (tuple(int(part) for part in each.split(".")[:2]) for each in (KNOWN[0], KNOWN[-1], version))
    known = " to ".join(dict.fromkeys((KNOWN[0], KNOWN[-1])))
    if own < first:
        raise ImportError(f"megjit's backend works with torch {known}, and this is {version}\n  fix: pip install 'torch>={KNOWN[0]}'")
    if own > last:
        warnings.warn(f"megjit's backend is tested with torch {known}, and this is {version}: what has changed may be an error here", stacklevel=2)


check_release(torch.__version__)
# ruff: noqa: E402  # these names may be missing in other releases
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.descriptors import (
    BufferAOTInput,
    GradAOTOutput,
    InputMutationAOTOutput,
    ParamAOTInput,
    PlainAOTInput,
    PlainAOTOutput,
    TangentAOTInput,
)
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._functorch.partitioners import (
    _extract_fwd_bwd_modules as extract_forward_and_backward,
)
from torch._functorch.partitioners import (
    default_partition,
    min_cut_rematerialization_partition,
)
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.fx.experimental.symbolic_shapes import (
    GuardOnDataDependentSymNode,
    free_symbols,
    free_unbacked_symbols,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

__all__ = [
    "KNOWN", "BufferAOTInput", "DataDependentOutputException", "DynamicOutputShapeException", "FakeTensorMode", "GradAOTOutput", "InputMutationAOTOutput", "ParamAOTInput", "PlainAOTInput", "PlainAOTOutput", "TangentAOTInput", "active_ddp", "aot_autograd", "aot_export_joint_with_descriptors",
    "breaks_behind", "check_release", "decompositions", "default_partition", "extract_forward_and_backward", "free_symbols", "free_unbacked_symbols", "min_cut_rematerialization_partition",
    "sequence_number", "source_of_argument", "unset_fake_temporarily", "with_one_attention",
]  # fmt: skip


@functools.cache
def decompositions() -> dict[Any, Any]:
    """Returns the decompositions that run before our tables see a graph. One table serves all
    graphs, because torch looks through all operations to make one.
    """
    rules = dict[Any, Any](core_aten_decompositions())
    # Its rule gives weights in place of the logarithms of sums, which backward reads.
    rules.pop(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default, None)
    rules.pop(torch.ops.aten.native_batch_norm_backward.default, None)  # ours is one operation, too
    return {operation: _whole_if_unknown(rule) for operation, rule in rules.items()}


def _whole_if_unknown(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a rule so that it leaves an operation unchanged if it needs a number that data decides.
    """

    @functools.wraps(rule)
    def apply(*args: Any, **kwargs: Any) -> Any:
        try:
            return rule(*args, **kwargs)
        except GuardOnDataDependentSymNode:
            return NotImplemented

    return apply


def with_one_attention(device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Lets torch trace attention on GPUs as one operation, not as that of a library for the card,
    dtype and sizes.
    """
    if device.type != "cuda":
        return contextlib.nullcontext()
    return sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


def sequence_number() -> int:
    """The number of the node that autograd has made for the function whose forward runs."""
    return int(torch.autograd._get_sequence_nr()) - 1


def active_ddp() -> Any:
    """The `DistributedDataParallel` module whose forward runs, or None."""
    return torch.nn.parallel.DistributedDataParallel._get_active_ddp_module()


def source_of_argument(node: Any) -> str:
    """Returns the expression by which dynamo found an argument of its graph:
    "L['self']._modules['layers']._parameters['weight']"; "" if it does not say.
    """
    return str(getattr(getattr(node, "_dynamo_source", None), "name", ""))


def breaks_behind(graph: Any) -> bool:
    """Whether dynamo ends this graph within a function, so that another one follows."""
    reason = getattr(graph, "compile_subgraph_reason", None)
    return bool(getattr(reason, "graph_break", False))
