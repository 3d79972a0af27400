"""Forty popular networks, small, built from their configurations, and whether their gradients are right."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable
from typing import Any

from cases import _torch_door as door

TOLERANCE = 1e-3
_NUDGES = 4
WORDS = 96
_TEXT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_KEYS = {**_TEXT, "num_key_value_heads": 2, "head_dim": 8}
_PIXELS = {**_TEXT, "image_size": 32, "patch_size": 8}
# By the prefix of their classes in `transformers`: what kind of model, and its configuration.
TRANSFORMERS: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT2": ("LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4}),
    "GPTNeoX": ("ForCausalLM", _TEXT),
    "GPTJ": ("ForCausalLM", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 8}),
    "OPT": ("ForCausalLM", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    "Bloom": ("ForCausalLM", {"hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "Llama": ("ForCausalLM", _KEYS),
    "Mistral": ("ForCausalLM", _KEYS),
    "Mixtral": ("ForCausalLM", {**_KEYS, "num_local_experts": 4}),
    "Qwen2": ("ForCausalLM", _KEYS),
    "Qwen3": ("ForCausalLM", _KEYS),
    "Gemma": ("ForCausalLM", _KEYS),
    "Phi": ("ForCausalLM", _TEXT),
    "Bert": ("ForMaskedLM", _TEXT),
    "Roberta": ("ForMaskedLM", _TEXT),
    "DistilBert": ("ForMaskedLM", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    "Albert": ("ForMaskedLM", {**_TEXT, "embedding_size": 16}),
    "Electra": ("ForMaskedLM", {**_TEXT, "embedding_size": 16}),
    "DebertaV2": ("ForMaskedLM", _TEXT),
    "T5": ("ForConditionalGeneration", {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}),
    "Bart": ("ForConditionalGeneration", {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}),
    "ViT": ("ForImageClassification", _PIXELS),
    "DeiT": ("ForImageClassification", _PIXELS),
    "Wav2Vec2": ("Model", {**_TEXT, "conv_dim": (16, 16, 16), "conv_kernel": (5, 3, 2), "conv_stride": (5, 2, 2), "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "mask_time_prob": 0.0}),
}  # fmt: skip
# Names of timm's registry with a smaller form of each, and the size of images.
TIMM: dict[str, tuple[dict[str, Any], int]] = {
    "resnet18": ({}, 32), "resnext50_32x4d": ({}, 32), "efficientnet_b0": ({}, 32), "mobilenetv3_small_100": ({}, 32), "regnety_002": ({}, 32),
    "convnext_atto": ({}, 32), "vit_tiny_patch16_224": ({"img_size": 32, "depth": 3}, 32), "mixer_s32_224": ({"img_size": 64}, 64),
    "swin_tiny_patch4_window7_224": ({"img_size": 56, "embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)}, 56), "poolformer_s12": ({}, 64),
}  # fmt: skip
TORCHVISION = ["alexnet", "densenet121", "googlenet", "mnasnet0_5", "mobilenet_v2", "shufflenet_v2_x0_5", "squeezenet1_0", "vgg11_bn"]


def _without_dropout(values: Any) -> None:
    for name, value in vars(values).items():
        if "drop" in name and isinstance(value, float):
            setattr(values, name, 0.0)


def _transformer(name: str) -> tuple[Any, dict[str, Any]]:
    import torch
    import transformers

    kind, given = TRANSFORMERS[name]
    is_text = kind not in ("ForImageClassification", "Model")
    config = getattr(transformers, f"{name}Config")(**given, **({"vocab_size": WORDS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2} if is_text else {}))
    _without_dropout(config)
    config.use_cache = False
    if name == "Bart":
        config.decoder_start_token_id = 2
    if name == "T5":
        config.decoder_start_token_id = 0
    model = getattr(transformers, f"{name}{kind}")(config)
    if kind == "Model":
        return model, {"input_values": torch.rand(2, 800)}
    if kind == "ForImageClassification":
        return model, {"pixel_values": torch.rand(4, 3, 32, 32), "labels": torch.tensor([0, 1, 0, 1])}
    tokens = torch.randint(3, WORDS, (4, 16))
    return model, {"input_ids": tokens, "labels": tokens}


def _of_timm(name: str) -> tuple[Any, dict[str, Any]]:
    import timm
    import torch

    given, size = TIMM[name]
    return timm.create_model(name, pretrained=False, num_classes=10, **given), {"x": torch.rand(4, 3, size, size)}


def _of_torchvision(name: str) -> tuple[Any, dict[str, Any]]:
    import torch
    import torchvision

    more = {"init_weights": True, "aux_logits": False} if name == "googlenet" else {}
    return torchvision.models.get_model(name, num_classes=10, **more), {"x": torch.rand(4, 3, 96, 96)}


FAMILIES: dict[str, tuple[list[str], Callable[[str], tuple[Any, dict[str, Any]]]]] = {
    "transformers": (list(TRANSFORMERS), _transformer),
    "timm": (list(TIMM), _of_timm),
    "torchvision": (TORCHVISION, _of_torchvision),
}


def _gradients(net: Any, inputs: dict[str, Any], run: Any) -> dict[str, Any]:
    import torch

    net.zero_grad()
    given = {name: each.to(next(net.parameters()).dtype) if each.is_floating_point() else each for name, each in inputs.items()}
    result = run(*given.values()) if "x" in given else run(**given)
    loss = getattr(result, "loss", None)
    if loss is None:
        result = result if isinstance(result, torch.Tensor) else result[0] * torch.linspace(0, 1, result[0].shape[-1])  # squares of a norm's results add up to a constant
        loss = result.square().mean()
    loss.backward()
    return {name: each.grad.double() for name, each in net.named_parameters() if each.grad is not None}


def _nudged(net: Any, seed: int) -> Any:
    """A copy in which weights differ by half a unit in the last place, or not at all."""
    import torch

    other, generator = copy.deepcopy(net), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for each in other.parameters():
            each.mul_(1 + (torch.randint(3, each.shape, generator=generator) - 1) * 2.0**-24)
    return other


def _errors(net: Any, inputs: dict[str, Any], run: Any) -> dict[str, float]:
    """Errors of gradients against those of float64: the norm of a parameter's error ÷ that of the gradient. What is 1e-7 of the norm of all gradients is zero but for rounding."""
    wide = copy.deepcopy(net).double()
    if hasattr(wide, "set_experts_implementation"):
        wide.set_experts_implementation("eager")  # grouped products have no float64
    exact, found = _gradients(wide, inputs, wide), _gradients(net, inputs, run)
    if found.keys() != exact.keys():
        raise RuntimeError(f"gradients of {sorted(exact.keys() ^ found.keys())[0]}")
    sizes = {key: each.norm().item() for key, each in exact.items()}
    least = 1e-7 * math.hypot(*sizes.values())
    if sum(size > least for size in sizes.values()) < len(sizes) // 2:
        raise RuntimeError("most gradients are zero")
    return {key: (found[key] - each).norm().item() / max(sizes[key], least) for key, each in exact.items()}


def worst_error(name: str, family: str, how: str = "door") -> float:
    """The worst error of a training step's gradients: the error of a parameter ÷ (what is allowed); 1 is the limit.

    Runs with weights that differ by rounding: one alone may be right, or wrong, by chance (a rectified value at zero). The median of ours may have twice the
    largest of eager mode's errors.
    """
    import torch

    torch._dynamo.reset()
    torch.manual_seed(0)
    net, inputs = FAMILIES[family][1](name)
    net.train()
    for module in net.modules():
        _without_dropout(module)
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    with torch.no_grad():
        for key, each in net.named_parameters():
            if key.endswith(("weight", "gamma")) and each.abs().max() < 1e-4:  # what begins at zero, or nearly, lets no gradient through
                each.normal_(0, 0.02) if each.dim() > 1 else each.uniform_(0.5, 1)
    starts = [copy.deepcopy(net).state_dict(), *(_nudged(net, seed).state_dict() for seed in range(_NUDGES))]

    def errors(run: Any) -> list[dict[str, float]]:
        found = []
        for start in starts:
            net.load_state_dict(start)
            found.append(_errors(net, inputs, run))
        return found

    eager, ours = errors(net), errors(door.compiled(net, how))
    allowed = {key: max(TOLERANCE, 2 * max(each[key] for each in eager)) for key in eager[0]}
    return max(statistics.median(each[key] for each in ours) / most for key, most in allowed.items())


def part_that_fails(family: str, told: Callable[[str, Any], None], how: str = "door") -> float:
    """The part of a family's networks whose gradients are wrong, or that do not run."""
    names, failed = FAMILIES[family][0], 0
    for name in names:
        try:
            error = worst_error(name, family, how)
            told(name, f"{error:.2g} of what is allowed")
            failed += not error <= 1
        except Exception as problem:
            told(name, f"{type(problem).__name__}: {(str(problem).splitlines() or [''])[0][:200]}")
            failed += 1
    return failed / len(names)
