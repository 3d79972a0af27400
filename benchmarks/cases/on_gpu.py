"""What is a GPU used for: bandwidth of generated kernels, and training steps?"""

from dataclasses import replace
from functools import partial

import numpy as np
from case import Case, Subject, Target
from cases import _digits, _resnet, _transformer, gelu_chain, rows
from cases import _frameworks as on

COMPILERS = ("NVRTC", "MLIR", "Halide")
FLOATS = rows.ROWS * rows.COLUMNS
REFERENCE = None if on.IS_EMULATED else "torch"
IMAGES, SIDE = on.size(128, 2), on.size(224, 32)
RESNET18, RESNET50 = (
    on.size(net, replace(net, blocks=(1, 1, 1, 1), compared=("stem.conv",)))
    for net in (_resnet.RESNET18, _resnet.RESNET50)
)
SMALL = _transformer.Shape(2, 32, 2, 16, 2, words=97)
GPT2 = on.size(_transformer.Shape(12, 768, 12, 1024, 8, words=50257), SMALL)


def copy():
    """From one array of the card to another, by its driver."""
    on.setup_megjit()
    import megengine as mge
    import megengine.functional as F

    x = mge.tensor(np.ones(FLOATS, np.float32))

    def run(calls):
        for _ in range(calls):
            F.copy(x)
        mge.synchronize()

    return Subject(run, dict)


def kernel(name, words, builder, peers, passes, **tolerances):
    """Rows for each compiler: against the peers, and against a copy, of whose bandwidth 0.9 is wanted."""
    ours = {
        f"megjit_{compiler.lower()}": on.by_backend(compiler.upper(), builder)
        for compiler in COMPILERS
    }
    targets = []
    for compiler, of in zip(COMPILERS, ours, strict=True):
        targets += [
            Target(f"{words}, {compiler}", of=of, against=tuple(peers)),
            Target(f"{words}, {compiler}, copy", of=of, against=("copy",),
                   at_most=round(passes / 2 / 0.9, 2), other_case="gpu_copy"),
        ]  # fmt: skip
    return Case(
        name=f"gpu_{name}",
        builders={**ours, **peers},
        device="gpu",
        targets=tuple(targets),
        reference=REFERENCE,
        work={"bytes": 4.0 * FLOATS * passes},
        seconds=on.size(0.1, 0),
        **tolerances,
    )


def row_kernel(name, words, norm, grad, atol):
    peers = {
        "torch": partial(rows.torch, norm, grad),
        "torch_compile": partial(rows.torch, norm, grad, compiled=True),
        "jax": partial(rows.jax, norm, grad),
    }
    return kernel(
        name, words, partial(rows.megjit, norm, grad), peers, rows.PASSES[name], atol=atol
    )


def step(name, words, ours, peers, at_most, **more):
    return Case(
        name=f"gpu_{name}",
        builders={"megjit": ours, **peers},
        device="gpu",
        targets=(Target(words, against=tuple(peers), at_most=at_most),),
        rounds=on.size((5, 2), (1, 1)),
        seconds=on.size(0.5, 0),
        **{"reference": REFERENCE, **more},
    )


def gpt2(halves):
    net = replace(GPT2, halves=halves)
    kind = "bfloat16" if halves else "TF32"
    return step(
        f"gpt2_{kind.lower()}",
        f"GPT-2 small, batch {net.batch} x {net.tokens} tokens, {kind}",
        partial(_transformer.megjit, net),
        {
            "torch": partial(_transformer.torch, net),
            "torch_compile": partial(_transformer.torch, net, compiled=True),
            "jax": partial(_transformer.jax, net),
        },
        0.95,
        rtol=2e-2,
        atol=2e-2,
        work={"flops": net.flops},
    )


def resnet(name, net, words, images, side, halves=False):
    """In bfloat16 ours and PyTorch's are channels-last; JAX has no builder for it."""
    kind = "bfloat16" if halves else "TF32"
    torch = partial(_resnet.torch, net, images, side, halves=halves)
    peers = {
        "torch": torch,
        "torch_channels_last": partial(torch, channels_last=True),
        "torch_compile_channels_last": partial(torch, compiled=True, channels_last=True),
    }
    if not halves:
        peers["jax"] = partial(_resnet.jax, net, images, side)
    return step(
        name,
        f"{words} step, batch {images}, {kind}",
        partial(_resnet.megjit, net, images, side, halves=halves, channels_last=halves),
        peers,
        0.9 if halves else 0.95,
        rtol=3e-2,
        atol=2e-2,
        work={"flops": 2 * 3 * 4.09e9 * images * (side / 224) ** 2} if net is RESNET50 else {},
    )


def digits():
    def builders(**options):
        return {
            "megjit": partial(_digits.megjit, **options),
            "torch_compile": partial(_digits.torch_compile, mode="reduce-overhead", **options),
            "jax": partial(_digits.jax, **options),
        }

    peers = builders()
    return step("digits", "digits step against reduce-overhead", peers.pop("megjit"), peers, 0.5,
                checked=builders(dropout=0.0), reference=REFERENCE and "jax", rtol=1e-2, atol=1e-3)  # fmt: skip


def chain():
    peers = {
        "torch": partial(gelu_chain.torch, FLOATS),
        "torch_compile": partial(gelu_chain.torch, FLOATS, compiled=True),
        "jax": partial(gelu_chain.jax, FLOATS),
    }
    return kernel(
        "gelu_chain",
        "gelu chain",
        partial(gelu_chain.megjit, FLOATS),
        peers,
        2,
        rtol=1e-5,
        atol=2e-6,
    )


CASES = [
    Case(
        name="gpu_copy",
        builders={"copy": copy},
        device="gpu",
        targets=(Target("limit: copy on the card", of="copy"),),
        reference=None,
        work={"bytes": 8.0 * FLOATS},
        seconds=on.size(0.1, 0),
    ),
    chain(),
    row_kernel("layer_norm", "layer norm", True, False, 1e-5),
    row_kernel("layer_norm_grad", "layer norm and its gradient", True, True, 1e-3),
    row_kernel("softmax", "softmax", False, False, 1e-5),
    row_kernel("softmax_grad", "softmax and its gradient", False, True, 1e-5),
    digits(),
    resnet("resnet18", RESNET18, "ResNet-18", IMAGES, on.size(32, 16)),
    resnet("resnet50", RESNET50, "ResNet-50", IMAGES, SIDE),
    resnet("resnet50_bfloat16", RESNET50, "ResNet-50", IMAGES, SIDE, halves=True),
    gpt2(halves=False),
    gpt2(halves=True),
]
