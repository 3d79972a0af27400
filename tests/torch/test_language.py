"""Language models: traced and exported, for batches and lengths other than the example's."""

import pytest
import torch
from agree import assert_agree, check
from language import Decoder, Encoder

from megengine import fx


def tokens(batch, length):
    return torch.randint(0, 40, (batch, length))


def mask(batch, length):
    kept = torch.ones(batch, length, dtype=torch.long)
    kept[:, length - 2 :] = 0
    return kept


def test_a_decoder_gives_torchs_results_for_other_batches_and_lengths():
    module = Decoder().eval()
    converted = check(module, tokens(2, 9))
    assert_agree(module, converted, tokens(3, 17))
    assert converted.head.weight is converted.tokens.weight


def test_an_encoder_gives_torchs_results_for_other_batches_and_lengths():
    module = Encoder().eval()
    converted = check(module, tokens(2, 9), mask(2, 9))
    assert_agree(module, converted, tokens(4, 6), mask(4, 6))
    assert "places" in converted.state_dict()  # a buffer


@pytest.mark.parametrize("core", [False, True], ids=["as exported", "core operators"])
def test_exported_models_take_other_batches_and_lengths(core):
    sizes = {0: torch.export.Dim("batch", min=1, max=16), 1: torch.export.Dim("length", min=4, max=32)}
    for module, arguments in (Decoder().eval(), (tokens,)), (Encoder().eval(), (tokens, mask)):
        example = tuple(make(2, 9) for make in arguments)
        program = torch.export.export(module, example, dynamic_shapes=tuple(sizes for _ in example))
        converted = fx.from_torch(program.run_decompositions() if core else program)
        other = tuple(make(3, 17) for make in arguments)
        assert_agree(module, converted, *other)


def test_an_exported_dict_of_results_keeps_its_keys():
    module, example = Encoder().eval(), (tokens(2, 9), mask(2, 9))
    converted = fx.from_torch(torch.export.export(module, example))
    out = converted(*(fx_input(value) for value in example))
    assert set(out) == {"hidden", "pooled"}


def fx_input(value):
    import megengine as mge

    return mge.Tensor(value.numpy())
