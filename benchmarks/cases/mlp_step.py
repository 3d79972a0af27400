"""How long does a training step of a small MLP take (64-256-256-10, batch 128, SGD with momentum)?"""

from functools import partial

from case import Case, Target
from cases import _mlp

SIZES, BATCH = (64, 256, 256, 10), 128
PEERS = ("torch", "torch_compile", "jax")
# forward, and twice that backward without the input's gradient; a multiply-add is two
FLOPS = 2 * BATCH * (3 * (64 * 256 + 256 * 256 + 256 * 10) - 64 * 256)

CASES = [
    Case(
        name="mlp_step",
        builders={
            "megjit": partial(_mlp.megjit, SIZES, BATCH),
            "megjit_no_body": partial(_mlp.megjit, SIZES, BATCH, without_host=True),
            "megjit_eager": partial(_mlp.megjit, SIZES, BATCH, traced=False),
            "torch": partial(_mlp.torch, SIZES, BATCH),
            "torch_compile": partial(_mlp.torch_compile, SIZES, BATCH),
            "jax": partial(_mlp.jax, SIZES, BATCH),
        },
        targets=(
            Target("MLP step, traced", against=PEERS, at_most=0.5),
            Target("MLP step, traced, without_host", of="megjit_no_body", against=PEERS),
            Target("MLP step, eager", of="megjit_eager", against=("torch",)),
        ),
        rtol=1e-3,
        work={"flops": FLOPS},
    )
]
