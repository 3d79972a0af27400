"""How long does a training step of four transformer blocks take (768 wide, 12 heads, 4 x 256 tokens), in float32 and with products in bfloat16?"""

from dataclasses import replace
from functools import partial

from case import Case, Target
from cases import _frameworks as on
from cases import _transformer

PEERS = ("torch", "torch_compile", "jax")

HALVES = replace(_transformer.BLOCKS, halves=True)

CASES = [
    Case(
        name="transformer_step",
        builders={
            "megjit": on.by_backend("MLIR", _transformer.megjit),
            "megjit_halide": on.by_backend("HALIDE", _transformer.megjit),
            "torch": _transformer.torch,
            "torch_compile": partial(_transformer.torch, compiled=True),
            "jax": _transformer.jax,
        },
        targets=(
            Target("transformer step, MLIR", against=PEERS, at_most=0.85),
            Target("transformer step, Halide", of="megjit_halide", against=PEERS, at_most=0.85),
        ),
        rtol=1e-3,
        atol=1e-4,
        rounds=(5, 2),
        seconds=0.5,
        work={"flops": _transformer.BLOCKS.flops},
    ),
    Case(
        name="transformer_step_bf16",
        builders={
            "megjit": partial(_transformer.megjit, HALVES),
            "torch": partial(_transformer.torch, HALVES),
            "torch_compile": partial(_transformer.torch, HALVES, compiled=True),
            "jax": partial(_transformer.jax, HALVES),
        },
        targets=(Target("transformer step, products in bfloat16", against=PEERS, at_most=0.5),),
        rtol=0.1,  # by the 2-norm of how far weights moved
        atol=1e-3,
        rounds=(5, 2),
        seconds=0.5,
        work={"flops": _transformer.BLOCKS.flops},
    ),
]
