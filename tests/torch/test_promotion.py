"""An operand without axes beside others: torch rounds it to their dtype before it computes, but where it multiplies or divides by one."""

import itertools

import pytest
import torch

OPERATORS = {
    **{name: getattr(torch, name) for name in ("add", "sub", "mul", "div", "maximum", "minimum", "atan2", "fmod", "remainder", "lt", "eq", "ge")},
    "add with alpha": lambda a, b: torch.add(a, b, alpha=2),
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "pow": lambda a, b: torch.pow(a, b) if a.is_floating_point() or b.is_floating_point() else a,
    "where": lambda a, b: torch.where((a if a.ndim else b) > 1, a, b),
}
NUMBERS = (1.0302, 3000.7, 1e10)  # is no half; rounds to another one; is infinite as float16
FEW_BITS = {torch.float16: 1e-3, torch.bfloat16: 8e-3}


def wide(dtype):
    made = torch.rand(64, generator=torch.Generator().manual_seed(1)) * 3 + 0.1
    return made.to(dtype) if dtype.is_floating_point else (made * 30).to(dtype)


def flat(dtype, number):
    return torch.tensor(number if dtype.is_floating_point else min(number, 2**30 + 1)).to(dtype)


@pytest.mark.parametrize("dtype, beside", [
    *itertools.product((torch.float16, torch.bfloat16), (torch.float32, torch.int64)),
    (torch.float32, torch.float64), (torch.float32, torch.float16), (torch.uint8, torch.int32), (torch.int32, torch.float32),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("is_first", [False, True])
def test_operands_without_axes(dtype, beside, is_first):
    torch._dynamo.reset()
    order = slice(None, None, -1) if is_first else slice(None)
    pairs = [(wide(dtype), flat(beside, number))[order] for number in NUMBERS]

    def every(a, b):
        return [function(a, b) for function in OPERATORS.values()]

    run = torch.compile(every, backend="megjit", options={"fallback": False}, dynamic=False)
    for pair in pairs:
        for name, ours, theirs in zip(OPERATORS, run(*pair), every(*pair), strict=True):
            assert ours.dtype is theirs.dtype, name
            torch.testing.assert_close(ours, theirs, rtol=FEW_BITS.get(theirs.dtype, 1e-6), atol=0, equal_nan=True, msg=lambda text, name=name, pair=pair: f"{name} of {pair}: {text}")
