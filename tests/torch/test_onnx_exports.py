"""What torch.onnx writes of networks with open axes: imports compute what torch does, at the sizes of the export and at others, in eager mode,
in a symbolic trace, and without its body.
"""

import io
import warnings

import numpy as np
import pytest
import torch
import torchvision
import transformers
from torch import nn
from torch.nn import functional as F

import megengine as mge
import megengine.onnx
from megengine.jit import trace


class Program(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *given):
        return self.function(*given)


class Named(nn.Module):
    """A network of transformers: tensors by position, the first result."""

    def __init__(self, kind, names, options):
        super().__init__()
        config = getattr(transformers, f"{kind}Config")(**options)
        config._attn_implementation = "eager"
        self.net, self.names = getattr(transformers, f"{kind}Model")(config), names

    def forward(self, *given):
        return self.net(**dict(zip(self.names, given, strict=True)), return_dict=False)[0]


def floats(*shape):
    """Shapes are expressions of n and m: numbers, or "n", "m", "2n" and so on."""
    return lambda sizes: torch.randn(extents(shape, sizes))


def words(*shape):
    return lambda sizes: torch.randint(2, 90, extents(shape, sizes))


def ones(*shape):
    return lambda sizes: torch.ones(extents(shape, sizes), dtype=torch.int64)


def extents(shape, sizes):
    return [each if isinstance(each, int) else int(each[:-1] or 1) * sizes[each[-1]] for each in shape]


def row(make, *given):
    """given: functions of sizes, with the shape that they were made of."""
    return make, given


def of(kind, options, **given):
    return row(lambda: Named(kind, [*given], options), *given.values())


def program(function, *given):
    return row(lambda: function, *given)


def image(name, size="32n", **options):
    return row(lambda: getattr(torchvision.models, name)(weights=None, num_classes=7, **options), floats("n", 3, size, size))


_ENCODER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 99, "max_position_embeddings": 64}
_TEXT = {"input_ids": words("n", "m"), "attention_mask": ones("n", "m")}
_VISION = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 16, "patch_size": 4}

EXPORTS = {
    # programs around sizes
    "flat": program(lambda x: x.reshape(x.shape[0], -1), floats("n", "m", 3)),
    "turned": program(lambda x: x.permute(1, 0, 2).reshape(x.shape[1], x.shape[0] * 3), floats("n", "m", 3)),
    "positions": program(lambda x: x + torch.arange(x.shape[1]).float()[None, :, None], floats("n", "m", 3)),
    "halves": program(lambda x: torch.cat([x[:, x.shape[1] // 2 :], x[:, : x.shape[1] // 2]], 1), floats("n", "2m")),
    "mean by length": program(lambda x: x.sum(1) / x.shape[1], floats("n", "m", 3)),
    "triangle": program(lambda x: x @ x.transpose(1, 2) + torch.full((x.shape[1], x.shape[1]), -9.0).triu(1), floats("n", "m", 3)),
    "expanded": program(lambda x, y: x[:, None].expand(-1, y.shape[0], -1) * y, floats("n", 5), floats("m", 5)),
    "zeros beside": program(lambda x: torch.cat([x, torch.zeros(x.shape[0], 2)], 1), floats("n", "m")),
    "twice as large": program(lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"), floats("n", 2, "m", "m")),
    "as large as": program(lambda x, y: F.interpolate(x, y.shape[2:], mode="bilinear", align_corners=False), floats("n", 2, "m", "m"), floats("n", 2, "2m", "3m")),
    "padded": program(lambda x: F.pad(x, (1, 2, 0, 1)), floats("n", 2, "m", "m")),
    "windows": program(lambda x: x.reshape(x.shape[0], x.shape[1] // 4, 4, 3).mean(2), floats("n", "4m", 3)),
    "attention": program(lambda q, k: F.scaled_dot_product_attention(q, k, k), floats("n", 2, "m", 8), floats("n", 2, "m", 8)),
    "largest": program(lambda x: x.topk(2, 1)[0].sum(1), floats("n", "2m")),
    "chosen": program(lambda x, i: torch.gather(x, 1, i // 40), floats("n", "m"), words("n", 3)),
    "layer norm": row(lambda: nn.LayerNorm(6), floats("n", "m", 6)),
    "LSTM": program(nn.LSTM(5, 7, batch_first=True, bidirectional=True), floats("n", "m", 5)),
    "GRU": program(nn.GRU(5, 7, 2), floats("m", "n", 5)),
    "convolutions": row(lambda: nn.Sequential(nn.Conv1d(3, 8, 5, 2, 2), nn.SiLU(), nn.ConvTranspose1d(8, 4, 4, 2, 1)), floats("n", 3, "4m")),
    "pooled": row(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()), floats("n", 3, "4m", "4m")),
    # torchvision
    "ResNet": image("resnet18"),
    "MobileNet": image("mobilenet_v3_small"),
    "ShuffleNet": image("shufflenet_v2_x0_5"),
    "SqueezeNet": image("squeezenet1_1"),
    "EfficientNet": image("efficientnet_b0"),
    "RegNet": image("regnet_y_400mf"),
    "LR-ASPP": row(lambda: torchvision.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3), floats("n", 3, "32m", "32m")),
    # transformers
    "BERT": of("Bert", _ENCODER, **_TEXT),
    "RoBERTa": of("Roberta", {**_ENCODER, "pad_token_id": 1}, **_TEXT),
    "ELECTRA": of("Electra", {**_ENCODER, "embedding_size": 16}, **_TEXT),
    "ALBERT": of("Albert", {**_ENCODER, "embedding_size": 16}, **_TEXT),
    "DistilBERT": of("DistilBert", {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "vocab_size": 99, "max_position_embeddings": 64}, **_TEXT),
    "MPNet": of("MPNet", {**_ENCODER, "pad_token_id": 1}, **_TEXT),
    "ConvBERT": of("ConvBert", {**_ENCODER, "embedding_size": 16, "conv_kernel_size": 3, "head_ratio": 1}, **_TEXT),
    "SqueezeBERT": of("SqueezeBert", {**_ENCODER, "embedding_size": 16, "q_groups": 1, "k_groups": 1, "v_groups": 1, "post_attention_groups": 1, "intermediate_groups": 1, "output_groups": 1}, **_TEXT),
    "RoFormer": of("RoFormer", {**_ENCODER, "embedding_size": 16}, **_TEXT),
    "CamemBERT": of("Camembert", {**_ENCODER, "pad_token_id": 1}, **_TEXT),
    "ViT": of("ViT", _VISION, pixel_values=floats("n", 3, 16, 16)),
    "DeiT": of("DeiT", _VISION, pixel_values=floats("n", 3, 16, 16)),
    "BEiT": of("Beit", _VISION, pixel_values=floats("n", 3, 16, 16)),
    "ConvNeXt": of("ConvNext", {"hidden_sizes": [8, 8, 16, 16], "depths": [1] * 4, "num_channels": 3}, pixel_values=floats("n", 3, "32m", "32m")),
    "ResNet of transformers": of("ResNet", {"hidden_sizes": [8, 8, 16, 16], "depths": [1] * 4, "embedding_size": 8}, pixel_values=floats("n", 3, "32m", "32m")),
    "SegFormer": of("Segformer", {"hidden_sizes": [8, 8, 16, 16], "depths": [1] * 4, "num_attention_heads": [1, 1, 2, 2]}, pixel_values=floats("n", 3, "32m", "32m")),
    "PoolFormer": of("PoolFormer", {"hidden_sizes": [8, 8, 16, 16], "depths": [1] * 4}, pixel_values=floats("n", 3, "32m", "32m")),
    "wav2vec": of("Wav2Vec2", {
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3),
        "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2,
    }, input_values=floats("n", "100m")),
}  # fmt: skip


def exported(net, given, others, exporter):
    """The file, with an open axis wherever the inputs of two calls differ."""
    names = [f"x{k}" for k in range(len(given))]
    axes = [[axis for axis in range(one.dim()) if one.shape[axis] != other.shape[axis]] for one, other in zip(given, others, strict=True)]
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == "torchscript":
            open_axes = {name: {axis: f"{name}_{axis}" for axis in own} for name, own in zip(names, axes, strict=True)}
            torch.onnx.export(net, given, file, input_names=names, dynamic_axes=open_axes, opset_version=17, dynamo=False)
        else:
            shapes = (tuple({axis: torch.export.Dim.DYNAMIC for axis in own} for own in axes),)
            torch.onnx.export(net, given, file, input_names=names, dynamic_shapes=shapes, dynamo=True, verbose=False)
    return file.getvalue()


def results(value):
    if isinstance(value, dict):
        value = list(value.values())
    return [each for item in value for each in results(item)] if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_at_two_sizes(name, exporter):
    torch.manual_seed(0)
    make, given = EXPORTS[name]
    net = Program(make()).eval()  # arguments in one tuple, as dynamic_shapes has them
    calls = [tuple(each(sizes) for each in given) for sizes in ({"n": 2, "m": 4}, {"n": 3, "m": 6})]
    module = megengine.onnx.load(exported(net, calls[0], calls[1], exporter)).eval()
    recorded, skipped = trace(module, symbolic=True), trace(module, symbolic=True, without_host=True)
    for call in (*calls, calls[0]):
        with torch.no_grad():
            wanted = [each.numpy() for each in results(net(*call))]
        tensors = [mge.Tensor(each.numpy().astype("int32") if each.dtype == torch.int64 else each.numpy()) for each in call]
        for way, function in {"eager": module, "symbolic": recorded, "skipped": skipped}.items():
            got = [each.numpy() for each in results(function(*tensors))]
            assert len(got) == len(wanted), way
            for ours, theirs in zip(got, wanted, strict=True):
                assert ours.shape == theirs.shape, way
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4 * max(1, np.abs(theirs).max(initial=0)), err_msg=way)
