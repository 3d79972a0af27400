"""How long does a training step of ResNet-18 take at batch 8 and 224 x 224 pixels?"""

from functools import partial

from case import Case, Target
from cases import _resnet

NET, BATCH, SIZE = _resnet.RESNET18, 8, 224
PEERS = ("torch", "torch_channels_last", "torch_compile", "torch_compile_channels_last", "jax")
# 1.81e9 multiply-adds per image forward; backward twice that
FLOPS = 2 * 3 * 1.81e9 * BATCH

CASES = [
    Case(
        name="resnet18_step",
        builders={
            "megjit": partial(_resnet.megjit, NET, BATCH, SIZE),
            "torch": partial(_resnet.torch, NET, BATCH, SIZE),
            "torch_channels_last": partial(_resnet.torch, NET, BATCH, SIZE, channels_last=True),
            "torch_compile": partial(_resnet.torch, NET, BATCH, SIZE, compiled=True),
            "torch_compile_channels_last": partial(
                _resnet.torch, BATCH, SIZE, compiled=True, channels_last=True
            ),
            "jax": partial(_resnet.jax, NET, BATCH, SIZE),
        },
        targets=(Target("ResNet-18 step, batch 8, traced", against=PEERS, at_most=0.85),),
        rtol=1e-2,
        atol=2e-3,
        rounds=(5, 2),
        seconds=0.5,
        work={"flops": FLOPS},
    )
]
