"""Small networks of Hugging Face's transformers, of kinds that the other files do not have, from configurations alone."""

import torch
import transformers
from torch import nn

_ENCODER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 99, "max_position_embeddings": 64}
_DECODER = {"vocab_size": 99, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "pad_token_id": 0}
_STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_STILL_SOUND = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "feat_proj_dropout": 0.0, "layerdrop": 0.0, "apply_spec_augment": False}
_SOUND = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3),
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, **_STILL_SOUND,
}  # fmt: skip


class _First(nn.Module):
    """A network whose arguments have names; the first of its results."""

    def __init__(self, kind, names, options):
        super().__init__()
        config = getattr(transformers, f"{kind}Config")(**options)
        made = getattr(transformers, f"{kind}ForCausalLM", None) if "labels" in names else None
        self.net, self.names = (made or getattr(transformers, f"{kind}Model"))(config).train(), names

    def forward(self, *given):
        return self.net(**dict(zip(self.names, given, strict=True)))[0]


def _of(kind, options, **given):
    return lambda: (_First(kind, [*given], options), *(each() for each in given.values()))


def _double(make):
    """The same network in float64, where its gradients are sums that cancel."""

    def made():
        net, *given = make()
        return net.double(), *(each.double() for each in given)

    return made


def _words(length=10):
    return lambda: torch.randint(2, 90, (2, length))


def _floats(*shape):
    return lambda: torch.randn(shape)


NETWORKS = {
    "MobileBERT": _of("MobileBert", {**_ENCODER, **_STILL, "embedding_size": 16, "true_hidden_size": 16, "intra_bottleneck_size": 16}, input_ids=_words()),
    "DeBERTa": _of("DebertaV2", {**_ENCODER, **_STILL, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 4, "norm_rel_ebd": "layer_norm"}, input_ids=_words()),
    "Longformer": _of("Longformer", {**_ENCODER, **_STILL, "attention_window": 4}, input_ids=_words(16)),
    "YOSO": _of("Yoso", {**_ENCODER, **_STILL, "use_expectation": True}, input_ids=_words(16)),
    "Perceiver": _of("Perceiver", {
        "d_model": 16, "d_latents": 12, "num_latents": 5, "num_blocks": 1, "num_self_attends_per_block": 2, "num_self_attention_heads": 2, "num_cross_attention_heads": 2,
        "attention_probs_dropout_prob": 0.0,
    }, inputs=_floats(2, 10, 16)),
    "Gemma": _of("Gemma2", {**_DECODER, "num_key_value_heads": 1, "head_dim": 8, "sliding_window": 4}, input_ids=_words(), labels=_words()),
    "Mamba 2": _of("Mamba2", {
        "vocab_size": 99, "hidden_size": 16, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 8, "state_size": 8, "n_groups": 1, "chunk_size": 4,
    }, input_ids=_words(), labels=_words()),
    "DeepSeek": _of("DeepseekV3", {
        **_DECODER, "num_key_value_heads": 2, "moe_intermediate_size": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "q_lora_rank": 8,
        "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 1,
    }, input_ids=_words(), labels=_words()),
    "wav2vec": _of("Wav2Vec2", _SOUND, input_values=_floats(2, 400)),
    "AST": _of("AST", {
        **{key: value for key, value in _ENCODER.items() if "vocab" not in key and "position" not in key}, **_STILL, "patch_size": 4, "frequency_stride": 3, "time_stride": 3,
        "max_length": 24, "num_mel_bins": 16,
    }, input_values=_floats(2, 24, 16)),
    "GroupViT": _double(_of("GroupViTVision", {  # draws Gumbel noise from rand
        "hidden_size": 16, "intermediate_size": 32, "depths": [1, 1, 1], "num_group_tokens": [4, 2, 0], "num_output_groups": [4, 2, 0], "num_attention_heads": 2, "image_size": 16,
        "patch_size": 4, "dropout": 0.0, "attention_dropout": 0.0,
    }, pixel_values=_floats(2, 3, 16, 16))),
    "SegFormer": _of("Segformer", {
        "hidden_sizes": [8, 8, 16, 16], "depths": [1] * 4, "num_attention_heads": [1, 1, 2, 2], "drop_path_rate": 0.0, **_STILL,
    }, pixel_values=_floats(2, 3, 32, 32)),
}  # fmt: skip
