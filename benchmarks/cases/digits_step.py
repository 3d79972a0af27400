"""How long does a training step of the digits CNN take (examples/train_digits.py, batch 64)?"""

from functools import partial

from case import Case, Target
from cases import _digits

PEERS = ("torch", "torch_compile", "jax")


def builders(**options):
    return {
        "megjit": partial(_digits.megjit, **options),
        "megjit_no_body": partial(_digits.megjit, without_host=True, **options),
        "megjit_eager": partial(_digits.megjit, traced=False, **options),
        "torch": partial(_digits.torch, **options),
        "torch_compile": partial(_digits.torch_compile, **options),
        "jax": partial(_digits.jax, **options),
    }


CASES = [
    # Random numbers differ by framework: what is compared has no dropout, what is timed has it.
    Case(
        name="digits_step",
        builders=builders(),
        checked=builders(dropout=0.0),
        targets=(
            Target("digits step, traced", against=PEERS, at_most=0.5),
            Target("digits step, traced, without_host", of="megjit_no_body", against=PEERS),
            Target("digits step, eager", of="megjit_eager", against=("torch",)),
        ),
        rtol=2e-3,
        atol=2e-5,
    )
]
