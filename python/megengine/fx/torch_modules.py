"""Layers of torch as layers of ours: a table from the name of a class in torch.nn to a function that builds ours.

Ours have torch's names of parameters, and the shapes that `megengine.module` gives them. torch is not imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import module as M
from ..module.module import Module
from ..tensor import Parameter, Tensor
from .torchlike import FUNCTIONS, images, layers, networks, pooling, recurrent
from .torchlike import elementwise as e

# take(tensor or None, shape=None): returns our tensor, the same one at each call
Take = Callable[..., Any]


def _made(cls: type[Module], *args: Any, **kwargs: Any) -> Any:
    """Makes a module whose parameters are about to be replaced; none is drawn, so random generators
    do not move.
    """
    undrawn = type(cls.__name__, (cls,), {"reset_parameters": lambda self: None})
    made = undrawn(*args, **kwargs)
    made.__class__ = cls
    return made


def _take_affine(ours: Any, theirs: Any, take: Take) -> Any:
    """Takes weight and bias in the shapes of our layers."""
    for name in ("weight", "bias"):
        own = getattr(ours, name)
        if own is not None:
            setattr(ours, name, take(getattr(theirs, name), own._tuple_shape))
    return ours


# -- convolutions and linear maps --------------------------------------------------------------------


def _convolution(cls: type[Module]) -> Callable[..., Any]:
    def build(m: Any, take: Take) -> Module:
        options = {} if m.padding_mode == "zeros" else {"padding_mode": m.padding_mode}
        if options and cls is M.Conv3d:
            raise ValueError(f"padding_mode={m.padding_mode!r}")
        sizes = (m.in_channels, m.out_channels, m.kernel_size, m.stride, m.padding, m.dilation)
        ours = _made(cls, *sizes, m.groups, m.bias is not None, **options)
        return _take_affine(ours, m, take)

    return build


def _transposed_convolution(cls: type[Module]) -> Callable[..., Any]:
    def build(m: Any, take: Take) -> Module:
        sizes = (m.in_channels, m.out_channels, m.kernel_size, m.stride, m.padding)
        ours = _made(cls, *sizes, m.output_padding, m.dilation, m.groups, m.bias is not None)
        return _take_affine(ours, m, take)

    return build


def _linear(m: Any, take: Take) -> Module:
    return _take_affine(_made(M.Linear, m.in_features, m.out_features, m.bias is not None), m, take)


def _embedding(m: Any, take: Take) -> Module:
    if m.max_norm is not None or m.scale_grad_by_freq:
        raise ValueError("max_norm or scale_grad_by_freq")
    ours = _made(layers.Embedding, m.num_embeddings, m.embedding_dim, m.padding_idx, sparse=m.sparse)
    ours.weight = take(m.weight)
    return ours


def _embedding_bag(m: Any, take: Take) -> Module:
    if m.max_norm is not None or m.scale_grad_by_freq:
        raise ValueError("max_norm or scale_grad_by_freq")
    ours = _made(layers.EmbeddingBag, m.num_embeddings, m.embedding_dim, m.mode, m.padding_idx, sparse=m.sparse)
    ours.include_last_offset = m.include_last_offset
    ours.weight = take(m.weight)
    return ours


# -- normalization -----------------------------------------------------------------------------------


def _batch_norm(cls: type[Any]) -> Callable[..., Any]:
    def build(m: Any, take: Take) -> Module:
        if m.momentum is None and m.training:
            raise ValueError("momentum=None, the average over all batches, in training mode")
        momentum = 0.9 if m.momentum is None else 1 - m.momentum
        ours = cls(m.num_features, m.eps, momentum, m.affine, m.running_mean is not None)
        for name in ("running_mean", "running_var"):
            if getattr(m, name) is not None:
                setattr(ours, name, take(getattr(m, name), (1, m.num_features, 1, 1)))
        return _take_affine(ours, m, take)

    return build


def _layer_norm(m: Any, take: Take) -> Module:
    if (m.weight is None) != (m.bias is None):
        settings = {"normalized_shape": tuple(m.normalized_shape), "eps": m.eps}
        return layers.Functional(networks.layer_norm, settings, {"weight": take(m.weight)})
    ours = M.LayerNorm(tuple(m.normalized_shape), m.eps, m.weight is not None)
    return _take_affine(ours, m, take)


def _rms_norm(m: Any, take: Take) -> Module:
    ours = M.RMSNorm(tuple(m.normalized_shape), m.eps, m.weight is not None)
    ours.weight = None if m.weight is None else take(m.weight)
    return ours


def _group_norm(m: Any, take: Take) -> Module:
    return _take_affine(M.GroupNorm(m.num_groups, m.num_channels, m.eps, m.affine), m, take)


def _instance_norm(m: Any, take: Take) -> Module:
    if m.running_mean is None:
        return _take_affine(M.InstanceNorm(m.num_features, m.eps, m.affine), m, take)
    if m.training:
        raise ValueError("running statistics of instance normalization in training mode")
    names = ("running_mean", "running_var", *(("weight", "bias") if m.affine else ()))
    tensors = {name: take(getattr(m, name)) for name in names}
    return layers.Functional(
        networks.instance_norm, {"use_input_stats": False, "eps": m.eps}, tensors
    )


# -- activations, pooling, what has no parameters ----------------------------------------------------


def _simply(cls: type[Module], *names: str) -> Callable[..., Any]:
    """A layer of ours whose arguments are these attributes of torch's."""
    return lambda m, take: cls(*(getattr(m, name) for name in names))


def _functional(
    function: Callable[..., Any], names: Sequence[str] = (), tensors: Sequence[str] = (), **fixed: Any
) -> Callable[..., Any]:
    """`Functional`, with these attributes of torch's layer as arguments of the same names."""

    def build(m: Any, take: Take) -> Module:
        settings = {name: getattr(m, name) for name in names} | fixed
        return layers.Functional(function, settings, {name: take(getattr(m, name)) for name in tensors})

    return build


def _gelu(m: Any, take: Take) -> Module:
    if m.approximate == "none":
        return M.GELU()
    return layers.Functional(e.gelu, {"approximate": m.approximate})


def _softplus(m: Any, take: Take) -> Module:
    return M.Softplus() if m.beta == 1 else layers.Functional(e.softplus, {"beta": m.beta, "threshold": m.threshold})


def _log_softmax(m: Any, take: Take) -> Module:
    return layers.Functional(e.log_softmax, {"dim": None}) if m.dim is None else M.LogSoftmax(m.dim)


def _prelu(m: Any, take: Take) -> Module:
    ours = layers.PReLU(m.num_parameters)
    ours.weight = take(m.weight, ours.weight._tuple_shape)
    return ours


_WINDOW = ("kernel_size", "stride", "padding", "ceil_mode")


def _of_rank(size: Any, rank: int) -> Any:
    """Returns an int for layers of lines, where torch's may have a tuple of one."""
    return size[0] if rank == 1 and isinstance(size, (tuple, list)) else size


def _max_pool(rank: int, cls: type[Any] | None = None) -> Callable[..., Any]:
    def build(m: Any, take: Take) -> Module:
        if m.return_indices:
            raise ValueError("return_indices=True: maxima are found without their places")
        if cls and pooling.is_plain(m.dilation):
            return cls(*(_of_rank(size, rank) for size in (m.kernel_size, m.stride, m.padding)), m.ceil_mode)
        return _functional(pooling.max_pool, (*_WINDOW, "dilation"), rank=rank)(m, take)

    return build


def _avg_pool(rank: int, cls: type[Any] | None = None) -> Callable[..., Any]:
    def build(m: Any, take: Take) -> Module:
        if getattr(m, "divisor_override", None) is not None:
            raise ValueError("divisor_override")
        if cls:
            exclude = "" if m.count_include_pad else "_count_exclude_padding"
            return cls(*(_of_rank(size, rank) for size in (m.kernel_size, m.stride, m.padding)), "average" + exclude, m.ceil_mode)
        return _functional(pooling.avg_pool, (*_WINDOW, "count_include_pad"), rank=rank)(m, take)

    return build


def _adaptive(function: Callable[..., Any], cls: type[Module] | None = None, **settings: Any) -> Callable[..., Any]:
    """Converts an adaptive pooling layer. cls: our layer, whose windows equal torch's only for an
    output of size 1.
    """

    def build(m: Any, take: Take) -> Module:
        size = m.output_size
        if getattr(m, "return_indices", False):
            raise ValueError("return_indices=True: maxima are found without their places")
        if cls and set(np.ravel(size)) == {1}:
            return cls(_of_rank(size, settings.get("rank", 2)))
        if function is pooling.adaptive_max_pool2d and None in np.ravel(size):
            raise ValueError(f"output_size={size}")
        return layers.Functional(function, {"output_size": size, **settings})

    return build


def _upsample(m: Any, take: Take) -> Module:
    names = ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor")
    return _functional(images.interpolate, names)(m, take)


def _pad(mode: str) -> Callable[..., Any]:
    def build(m: Any, take: Take) -> Module:
        settings = {"pad": tuple(m.padding), "mode": mode, "value": getattr(m, "value", 0.0)}
        return layers.Functional(images.pad, settings)

    return build


# -- attention and recurrence ------------------------------------------------------------------------


def _attention(m: Any, take: Take) -> Module:
    if m.bias_k is not None or m.add_zero_attn:
        raise ValueError("add_bias_kv or add_zero_attn")
    ours = layers.MultiheadAttention(m.embed_dim, m.num_heads, m.dropout, m.batch_first)
    for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias"):
        setattr(ours, name, take(getattr(m, name)))
    ours.out_proj = build(m.out_proj, take)
    return ours


def _activation(given: Any, take: Take) -> Callable[..., Any]:
    """A function of torch, or a layer."""
    name, module = getattr(given, "__name__", ""), getattr(given, "__module__", None) or ""
    known = module.startswith("torch") and name in FUNCTIONS
    return FUNCTIONS[name] if known else build(given, take)


def _of_parts(cls: type[Module], **attributes: Any) -> Module:
    """Makes a module from these attributes without calling its ``__init__``."""
    ours = cls.__new__(cls)
    Module.__init__(ours)
    for name, value in attributes.items():
        setattr(ours, name, value)
    return ours


def _transformer_layer(cls: type[Module]) -> Callable[..., Any]:
    def build_layer(m: Any, take: Take) -> Module:
        parts = {name: build(part, take) for name, part in m.named_children() if name != "activation"}
        return _of_parts(cls, norm_first=m.norm_first, activation=_activation(m.activation, take), **parts)

    return build_layer


def _transformer(cls: type[Module]) -> Callable[..., Any]:
    def build_stack(m: Any, take: Take) -> Module:
        norm = None if m.norm is None else build(m.norm, take)
        return _of_parts(cls, layers=[build(layer, take) for layer in m.layers], norm=norm)

    return build_stack


def _recurrent(m: Any, take: Take) -> Module:
    ours = recurrent.Recurrent(
        m.mode, m.hidden_size, m.proj_size, m.num_layers, m.batch_first, m.dropout, m.bidirectional
    )
    for name, parameter in m.named_parameters(recurse=False):
        setattr(ours, name, take(parameter))
    return ours


def _cell(cls: type[Module], *names: str) -> Callable[..., Any]:
    def build_cell(m: Any, take: Take) -> Module:
        options = {name: getattr(m, name) for name in names}
        ours = _made(cls, m.input_size, m.hidden_size, m.bias, **options)
        for name, parameter in m.named_parameters():
            setattr(ours, name, take(parameter))
        return ours

    return build_cell


MODULES = {
    "Conv1d": _convolution(M.Conv1d), "Conv2d": _convolution(M.Conv2d), "Conv3d": _convolution(M.Conv3d),
    "ConvTranspose1d": _transposed_convolution(M.ConvTranspose1d),
    "ConvTranspose2d": _transposed_convolution(M.ConvTranspose2d),
    "ConvTranspose3d": _transposed_convolution(M.ConvTranspose3d),
    "Linear": _linear, "NonDynamicallyQuantizableLinear": _linear, "Embedding": _embedding, "EmbeddingBag": _embedding_bag, "Bilinear": lambda m, take: _take_affine(
        _made(M.Bilinear, m.in1_features, m.in2_features, m.out_features, m.bias is not None), m, take),
    "BatchNorm1d": _batch_norm(M.BatchNorm1d), "BatchNorm2d": _batch_norm(M.BatchNorm2d),
    "BatchNorm3d": _batch_norm(M.BatchNorm3d), "SyncBatchNorm": _batch_norm(M.SyncBatchNorm),
    "LayerNorm": _layer_norm, "GroupNorm": _group_norm, "InstanceNorm1d": _instance_norm,
    "InstanceNorm2d": _instance_norm, "InstanceNorm3d": _instance_norm,
    "RMSNorm": _rms_norm,
    "LocalResponseNorm": _functional(networks.local_response_norm, ("size", "alpha", "beta", "k")),
    "ReLU": _simply(M.ReLU), "Sigmoid": _simply(M.Sigmoid), "SiLU": _simply(M.SiLU), "GELU": _gelu,
    "LeakyReLU": _simply(layers.LeakyReLU, "negative_slope"), "PReLU": _prelu, "Softmax": _simply(M.Softmax, "dim"),
    "ReLU6": _simply(M.ReLU6), "Tanh": _simply(M.Tanh), "LogSigmoid": _simply(M.LogSigmoid),
    "Hardswish": _simply(M.Hardswish), "Hardsigmoid": _simply(M.Hardsigmoid), "Mish": _simply(M.Mish),
    "ELU": _simply(M.ELU, "alpha"), "CELU": _simply(M.CELU, "alpha"), "SELU": _simply(M.SELU), "Softplus": _softplus, "Softsign": _functional(e.softsign),
    "Hardtanh": _functional(e.hardtanh, ("min_val", "max_val")), "Hardshrink": _functional(e.hardshrink, ("lambd",)),
    "Softshrink": _functional(e.softshrink, ("lambd",)), "Tanhshrink": _functional(e.tanhshrink),
    "Threshold": _functional(e.threshold, ("threshold", "value")), "GLU": _simply(M.GLU, "dim"),
    "Softmin": _functional(e.softmin, ("dim",)), "LogSoftmax": _log_softmax,
    "Softmax2d": _functional(e.softmax, dim=-3), "CosineSimilarity": _simply(M.CosineSimilarity, "dim", "eps"),
    "PairwiseDistance": _simply(M.PairwiseDistance, "norm", "eps", "keepdim"),
    "Dropout": _simply(M.Dropout, "p"), **dict.fromkeys(("Dropout1d", "Dropout2d", "Dropout3d"), _simply(M.Dropout2d, "p")),
    "Identity": _simply(M.Identity), "Flatten": _simply(M.Flatten, "start_dim", "end_dim"),
    "Unflatten": lambda m, take: M.Unflatten(m.dim, m.unflattened_size),
    "MaxPool1d": _max_pool(1, M.MaxPool1d), "MaxPool2d": _max_pool(2, M.MaxPool2d),
    "MaxPool3d": _max_pool(3), "AvgPool1d": _avg_pool(1, M.AvgPool1d),
    "AvgPool2d": _avg_pool(2, M.AvgPool2d), "AvgPool3d": _avg_pool(3),
    "AdaptiveAvgPool1d": _adaptive(pooling.adaptive_avg_pool, M.AdaptiveAvgPool1d, rank=1),
    "AdaptiveAvgPool2d": _adaptive(pooling.adaptive_avg_pool, M.AdaptiveAvgPool2d, rank=2),
    "AdaptiveAvgPool3d": _adaptive(pooling.adaptive_avg_pool, rank=3),
    "AdaptiveMaxPool2d": _adaptive(pooling.adaptive_max_pool2d, M.AdaptiveMaxPool2d), "Upsample": _upsample,
    "UpsamplingNearest2d": _upsample, "UpsamplingBilinear2d": _upsample,
    "PixelShuffle": _simply(M.PixelShuffle, "upscale_factor"),
    "PixelUnshuffle": _simply(M.PixelUnshuffle, "downscale_factor"),
    "Unfold": _simply(M.Unfold, "kernel_size", "dilation", "padding", "stride"),
    "Fold": _simply(M.Fold, "output_size", "kernel_size", "dilation", "padding", "stride"),
    "ChannelShuffle": _functional(images.channel_shuffle, ("groups",)),
    **{f"{name}Pad{rank}d": _pad(mode) for rank in (1, 2, 3) for name, mode in (
        ("Zero", "constant"), ("Constant", "constant"), ("Reflection", "reflect"), ("Replication", "replicate"),
        ("Circular", "circular"),
    )},
    "MultiheadAttention": _attention,
    "TransformerEncoderLayer": _transformer_layer(M.TransformerEncoderLayer),
    "TransformerDecoderLayer": _transformer_layer(M.TransformerDecoderLayer),
    "TransformerEncoder": _transformer(M.TransformerEncoder),
    "TransformerDecoder": _transformer(M.TransformerDecoder),
    "Transformer": lambda m, take: _of_parts(M.Transformer, encoder=build(m.encoder, take), decoder=build(m.decoder, take)),
    "RNN": _recurrent, "LSTM": _recurrent, "GRU": _recurrent,
    "RNNCell": _cell(M.RNNCell, "nonlinearity"), "LSTMCell": _cell(M.LSTMCell), "GRUCell": _cell(M.GRUCell),
}  # fmt: skip


def build(m: Any, take: Take) -> Module:
    """Our layer for a layer of torch. ValueError for a class that is not in the table."""
    cls = type(m)
    if cls.__name__ not in MODULES or not cls.__module__.startswith("torch.nn."):
        raise ValueError(f"no layer of ours stands for {cls.__module__}.{cls.__name__}")
    return MODULES[cls.__name__](m, take)


def as_tensor(theirs: Any, shape: tuple[int, ...]) -> Tensor:
    """A copy of a tensor of torch in this shape, on the host; a Parameter where it is one.

    64-bit dtypes are narrowed. ValueError for other dtypes than ours, and for integers that do not fit.
    """
    cls = Parameter if type(theirs).__name__ == "Parameter" else Tensor
    dtype = str(theirs.dtype).removeprefix("torch.")
    theirs = theirs.detach().cpu().reshape(shape)
    if dtype == "bfloat16":  # NumPy has none
        return cls(theirs.float().numpy(), dtype=dtype)
    try:
        array = theirs.numpy()
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"a tensor of dtype {dtype}: {error}") from None
    if dtype == "int64" and array.size and np.abs(array).max() > np.iinfo(np.int32).max:
        raise ValueError("a tensor of int64 with numbers that 32 bits do not hold")
    return cls(array)
