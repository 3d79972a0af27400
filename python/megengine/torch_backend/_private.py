"""What megjit takes of torch that torch does not promise to keep: all of it is here. Known to work: torch 2.15."""

from __future__ import annotations

from typing import Any

import torch
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.descriptors import (
    BufferAOTInput,
    GradAOTOutput,
    InputMutationAOTOutput,
    ParamAOTInput,
    PlainAOTOutput,
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
    unset_fake_temporarily,
)

__all__ = [
    "BufferAOTInput", "DataDependentOutputException", "DynamicOutputShapeException", "GradAOTOutput", "InputMutationAOTOutput", "ParamAOTInput", "PlainAOTOutput", "aot_autograd", "aot_export_joint_with_descriptors",
    "decompositions", "default_partition", "extract_forward_and_backward", "min_cut_rematerialization_partition",
    "unset_fake_temporarily",
]  # fmt: skip


def decompositions() -> dict[Any, Any]:
    """What becomes simpler operations before our tables see it."""
    rules: dict[Any, Any] = core_aten_decompositions()
    # Its rule gives weights in place of the logarithms of sums, which backward reads.
    rules.pop(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default, None)
    return rules
