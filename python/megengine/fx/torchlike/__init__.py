"""Functions and layers with the names and arguments of torch's, on our tensors; what `megengine.fx.from_torch` calls.

Nothing here imports torch. `FUNCTIONS` serves functions, methods of tensors and operators of exported programs alike:
a name -> a function with torch's arguments. `OPERATORS` has those of exported programs that differ from it. While a
program is converted they run on proxies, so their calls of `megengine.functional` become the nodes; those that ask for
shapes are wrapped: they become one node, and run on tensors.
"""

from __future__ import annotations

from ... import functional as F
from . import aten, recurrent
from . import elementwise as e
from . import images as i
from . import networks as n
from . import pooling as p
from . import reductions as r
from . import shapes as s

_SAME = ("contiguous", "clone", "detach", "cpu", "cuda", "requires_grad", "alias", "lift_fresh_copy", "to_dense")  # fmt: skip
_HINTS = (
    "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range",
    "sym_constrain_range_for_size", "_set_grad_enabled",
)  # fmt: skip
_OWN = ("abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "cos", "cosh", "erf", "exp",
        "expm1", "floor", "isinf", "isnan", "log", "log1p", "logaddexp", "maximum", "minimum", "neg",
        "round", "sigmoid", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh")  # fmt: skip

FUNCTIONS = {
    **{name: getattr(F, name) for name in _OWN},
    **dict.fromkeys(_SAME, s.same),
    **dict.fromkeys(_HINTS, s.nothing),
    **s.CASTS,
    # arithmetic
    "add": e.add, "sub": e.sub, "subtract": e.sub, "rsub": e.rsub, "mul": e.mul,
    "multiply": e.mul, "div": e.div, "divide": e.div, "true_divide": e.div,
    "floor_divide": e.floor_divide, "fmod": e.fmod, "remainder": e.remainder,
    "pow": e.power, "negative": F.neg, "absolute": F.abs, "rsqrt": e.rsqrt,
    "reciprocal": e.reciprocal, "trunc": e.trunc, "fix": e.trunc, "clamp": e.clamp, "clip": e.clamp,
    "clamp_min": e.clamp_min, "clamp_max": e.clamp_max,
    "exp2": e.exp2, "log2": e.log2, "log10": e.log10, "erfc": e.erfc, "isfinite": e.isfinite, "addcmul": e.addcmul,
    "addcdiv": e.addcdiv, "lerp": e.lerp,
    # comparison and choice
    "eq": F.equal, "ne": F.not_equal, "lt": F.less, "le": F.less_equal, "gt": F.greater, "ge": F.greater_equal,
    "bitwise_and": e.bitwise_and, "__and__": e.bitwise_and, "bitwise_or": e.bitwise_or, "__or__": e.bitwise_or,
    "bitwise_xor": e.bitwise_xor, "__xor__": e.bitwise_xor, "bitwise_not": e.bitwise_not, "logical_not": e.logical_not,
    "logical_and": e.logical_and, "logical_or": e.logical_or, "logical_xor": e.logical_xor, "where": e.where, "masked_fill": e.masked_fill,
    # activations
    "relu": e.relu, "relu6": e.relu6, "silu": e.silu, "mish": e.mish, "gelu": e.gelu, "elu": e.elu, "celu": e.celu,
    "selu": e.selu, "leaky_relu": e.leaky_relu, "prelu": e.prelu, "softplus": e.softplus, "softsign": e.softsign,
    "logsigmoid": F.logsigmoid, "log_sigmoid": F.logsigmoid,
    "hardtanh": e.hardtanh, "hardsigmoid": e.hardsigmoid, "hardswish": e.hardswish, "hardshrink": e.hardshrink,
    "softshrink": e.softshrink, "tanhshrink": e.tanhshrink, "threshold": e.threshold, "_threshold": e.threshold,
    "softmax": e.softmax, "log_softmax": e.log_softmax, "softmin": e.softmin, "glu": i.glu,
    # reductions and order
    "sum": r.sum, "mean": r.mean, "prod": r.prod, "amax": r.amax, "amin": r.amin, "max": r.max, "min": r.min,
    "argmax": r.argmax, "argmin": r.argmin, "any": r.any, "all": r.all, "var": r.var, "std": r.std,
    "var_mean": r.var_mean, "norm": r.norm, "linalg_vector_norm": r.norm, "normalize": r.normalize,
    "cosine_similarity": r.cosine_similarity, "logsumexp": r.logsumexp, "cumsum": r.cumsum, "topk": r.topk,
    "sort": r.sort, "argsort": r.argsort,
    # shapes
    "size": s.size, "sym_size": s.size, "dim": s.ndim, "numel": s.numel, "view": s.view, "_unsafe_view": s.reshape,
    "reshape": s.reshape, "view_as": s.view_as, "reshape_as": s.view_as, "flatten": s.flatten, "unflatten": s.unflatten,
    "transpose": s.transpose, "swapaxes": s.transpose, "swapdims": s.transpose, "t": s.t, "mT": s.mT, "numpy_T": s.T, "permute": s.permute,
    "movedim": s.movedim, "moveaxis": s.movedim, "unsqueeze": s.unsqueeze, "squeeze": s.squeeze, "expand": s.expand,
    "broadcast_to": s.expand, "expand_as": s.expand_as, "repeat": s.repeat, "tile": s.repeat,
    "repeat_interleave": s.repeat_interleave, "as_strided": s.as_strided, "roll": s.roll, "flip": s.flip, "meshgrid": s.meshgrid,
    # pieces
    "cat": s.cat, "concat": s.cat, "concatenate": s.cat, "stack": s.stack, "select": s.select, "slice": s.slice_,
    "narrow": s.narrow, "index_select": s.index_select, "gather": s.gather, "scatter": s.scatter, "split": s.split,
    "split_with_sizes": s.split, "chunk": s.chunk, "unbind": s.unbind, "tril": s.tril, "triu": s.triu, "copy": s.copy,
    "index_put": s.index_put, "select_scatter": s.select_scatter, "slice_scatter": s.slice_scatter,
    # dtypes and new tensors
    "to": s.to, "type_as": s.type_as, "full": s.full_, "zeros": s.zeros, "ones": s.ones, "empty": s.zeros,
    "full_like": s.full_like, "fill": s.fill, "zero": s.zeros_like, "zeros_like": s.zeros_like, "ones_like": s.ones_like, "empty_like": s.zeros_like,
    "new_full": s.new_full, "new_zeros": s.new_zeros, "new_ones": s.new_ones, "new_empty": s.new_zeros,
    "arange": s.arange, "linspace": s.linspace, "scalar_tensor": s.scalar_tensor, "_assert": s.check,
    # networks
    "linear": n.linear, "matmul": n.matmul, "mm": n.matmul, "bmm": n.matmul, "mv": n.matmul, "addmm": n.addmm,
    "baddbmm": n.addmm, "outer": n.outer, "einsum": n.einsum, "embedding": n.embedding, "one_hot": n.one_hot,
    "conv1d": n.conv1d, "conv2d": n.conv2d, "conv3d": n.conv3d, "conv_transpose1d": n.conv_transpose1d,
    "conv_transpose2d": n.conv_transpose2d, "conv_transpose3d": n.conv_transpose3d,
    "max_pool1d": p.max_pool1d, "max_pool2d": p.max_pool2d, "max_pool3d": p.max_pool3d, "avg_pool1d": p.avg_pool1d,
    "avg_pool2d": p.avg_pool2d, "avg_pool3d": p.avg_pool3d, "adaptive_avg_pool1d": p.adaptive_avg_pool1d,
    "adaptive_avg_pool2d": p.adaptive_avg_pool2d, "adaptive_avg_pool3d": p.adaptive_avg_pool3d,
    "adaptive_max_pool2d": p.adaptive_max_pool2d, "batch_norm": n.batch_norm, "layer_norm": n.layer_norm,
    "rms_norm": n.rms_norm, "group_norm": n.group_norm, "instance_norm": n.instance_norm,
    "local_response_norm": n.local_response_norm, "scaled_dot_product_attention": n.scaled_dot_product_attention,
    "pad": i.pad, "interpolate": i.interpolate, "upsample": i.interpolate, "pixel_shuffle": i.pixel_shuffle,
    "pixel_unshuffle": i.pixel_unshuffle, "channel_shuffle": i.channel_shuffle, "dropout": i.dropout,
    "dropout1d": i.feature_dropout, "dropout2d": i.feature_dropout, "dropout3d": i.feature_dropout,
    "torchvision.ops.stochastic_depth.stochastic_depth": i.stochastic_depth,
}  # fmt: skip

OPERATORS = {
    **aten.UPSAMPLING,
    **recurrent.OPERATORS,
    "convolution": aten.convolution, "max_pool2d_with_indices": aten.max_pool2d_with_indices,
    "max_pool3d_with_indices": aten.max_pool3d_with_indices, "batch_norm": aten.batch_norm,
    "instance_norm": aten.instance_norm, "_native_batch_norm_legit": aten.native_batch_norm,
    "_native_batch_norm_legit_no_training": aten.native_batch_norm,
    "_native_batch_norm_legit_functional": aten.batch_norm_functional, "layer_norm": aten.layer_norm,
    "native_layer_norm": aten.native_layer_norm, "group_norm": aten.group_norm,
    "native_group_norm": aten.native_group_norm, "dropout": aten.dropout, "feature_dropout": aten.feature_dropout,
    "native_dropout": aten.native_dropout, "embedding": aten.embedding, "_softmax": aten.softmax,
    "_log_softmax": aten.log_softmax, "softmax": aten.softmax_int, "log_softmax": aten.log_softmax_int,
    "constant_pad_nd": aten.constant_pad, "reflection_pad1d": aten.reflection_pad,
    "reflection_pad2d": aten.reflection_pad, "replication_pad1d": aten.replication_pad,
    "replication_pad2d": aten.replication_pad, "_to_copy": aten.to_copy, "index": s.index,
    "_unsafe_index": s.index, "_adaptive_avg_pool2d": p.adaptive_avg_pool2d,
    "_adaptive_avg_pool3d": p.adaptive_avg_pool3d, "adaptive_max_pool2d": aten.adaptive_max_pool2d, "elu": aten.elu,
}  # fmt: skip
