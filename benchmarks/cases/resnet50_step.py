"""How long does a training step of ResNet-50 take at batch 8 and 224 x 224 pixels?"""

from functools import partial

from case import Case, Target
from cases import _frameworks as on
from cases import _resnet

NET, BATCH, SIZE = _resnet.RESNET50, 8, 224
PEERS = ("torch", "torch_channels_last", "torch_compile", "torch_compile_channels_last", "jax")
# 4.09e9 multiply-adds per image forward; backward twice that
FLOPS = 2 * 3 * 4.09e9 * BATCH

ours = partial(_resnet.megjit, NET, BATCH, SIZE)
torch = partial(_resnet.torch, NET, BATCH, SIZE)

CASES = [
    Case(
        name="resnet50_step",
        builders={
            "megjit": on.by_backend("MLIR", ours),
            "megjit_halide": on.by_backend("HALIDE", ours),
            "torch": torch,
            "torch_channels_last": partial(torch, channels_last=True),
            "torch_compile": partial(torch, compiled=True),
            "torch_compile_channels_last": partial(torch, compiled=True, channels_last=True),
            "jax": partial(_resnet.jax, NET, BATCH, SIZE),
        },
        targets=(
            Target("ResNet-50 step, batch 8, MLIR", against=PEERS, at_most=0.8),
            Target(
                "ResNet-50 step, batch 8, Halide", of="megjit_halide", against=PEERS, at_most=0.8
            ),
        ),
        rtol=1e-2,
        atol=6e-3,  # of the last running mean, in which PyTorch's two layouts part by 0.003
        rounds=(5, 2),
        seconds=0.5,
        work={"flops": FLOPS},
    )
]
