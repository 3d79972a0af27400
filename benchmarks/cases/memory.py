"""What memory does a training step of ResNet-50 take, and what does recomputation cost?

Time and bytes, plain and recomputed, beside PyTorch's eager mode and its checkpointing of each residual block.
"""

from functools import partial

from case import Case, Target
from cases import _frameworks as on
from cases import _resnet

NET, SIZE = _resnet.RESNET50, 224


def sublinear(*args, **options):
    from megengine.jit import SublinearMemoryConfig

    return _resnet.megjit(
        *args, sublinear_memory_config=SublinearMemoryConfig(num_worker=2), **options
    )


def bytes_of(batch):
    """Ours are plans, which the arena keeps to the byte; PyTorch's are measured."""
    sizes = NET, batch, SIZE
    torch = partial(_resnet.torch, *sizes)
    return Case(
        name=f"resnet50_bytes_{batch}",
        builders={
            "megjit": partial(_resnet.megjit, *sizes, only_plan=True),
            "megjit_sublinear": partial(sublinear, *sizes, only_plan=True),
            "torch": partial(on.peak_of_torch, torch),
            "torch_checkpoint": partial(on.peak_of_torch, partial(torch, checkpointed=True)),
        },
        targets=(
            Target(f"ResNet-50 step's memory, batch {batch}", against=("torch",), at_most=0.75),
            Target(
                f"ResNet-50, batch {batch}, recomputed",
                of="megjit_sublinear",
                against=("torch_checkpoint",),
                at_most=0.7,
            ),
        ),
        reference=None,
        unit="B",
        rounds=(1, 1),
    )


CASES = [
    Case(
        name="resnet50_recomputed",
        builders={
            "megjit": partial(_resnet.megjit, NET, 8, SIZE),
            "megjit_sublinear": partial(sublinear, NET, 8, SIZE),
            "torch": partial(_resnet.torch, NET, 8, SIZE),
            "torch_checkpoint": partial(_resnet.torch, NET, 8, SIZE, checkpointed=True),
        },
        targets=(
            Target(
                "ResNet-50 step, recomputed against plain",
                of="megjit_sublinear",
                against=("megjit",),
                at_most=1.25,
            ),
            Target("the same of PyTorch", of="torch_checkpoint", against=("torch",)),
        ),
        rtol=1e-2,
        atol=6e-3,  # as resnet50_step
        rounds=(5, 2),
        seconds=0.5,
    ),
    bytes_of(8),
    bytes_of(16),
]
