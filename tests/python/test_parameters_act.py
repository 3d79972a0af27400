"""Each optional parameter of a function or an optimizer acts: another value changes the result, warns that it has no effect, or is refused.

A row is a call and, for each optional parameter, another value of it; a pair (value, changes) changes other arguments of both calls, too.
"""

import inspect
import warnings

import numpy as np
import pytest
from test_names_in_tests import public

import megengine as mge
import megengine.functional as F
import megengine.optimizer as optim
from megengine import Tensor, random
from megengine.core import _telling

L, V = F.loss, F.vision


def normal(*shape, seed=0):
    return Tensor(np.random.default_rng(seed + sum(shape)).normal(size=shape).astype(np.float32))


def ints(*values):
    return Tensor(np.array(values, np.int32))


X, IMAGE, CUBE = normal(3, 4), normal(2, 4, 6, 5), normal(2, 3, 4)
PIXELS = Tensor(np.random.default_rng(1).integers(0, 255, (1, 6, 5, 3)).astype(np.uint8))
STEEP = Tensor(np.array([[[0.9, 0.3, 2.4], [0.1, 0.8, 3.3]]] * 2, np.float32))
MATRICES = Tensor(np.array([[[0.9, 0.3, 0.4], [0.1, 0.8, 1.3], [0, 0, 1]], [[1.1, 0, 2.5], [0, 1, 0.5], [0, 0, 1]]], np.float32))
PLACES = Tensor(np.random.default_rng(3).uniform(-2, 6, (2, 3, 3, 2)).astype(np.float32))
ROIS = Tensor(np.array([[0, 0.7, 0.9, 3.2, 4.1], [1, 1.1, 0.4, 4.3, 3.8]], np.float32))
KERNEL, GROUPED = normal(4, 4, 3, 3), normal(2, 2, 2, 3, 3)
ONE = {"stride": 2, "padding": 1, "dilation": 2}
CONVOLVED = {**ONE, "conv_mode": "convolution", "compute_mode": "half"}
REDUCED = {"axis": 1, "keepdims": (True, {"axis": 1})}
MADE = {"dtype": "int32"}
AFFINE = {"weight": (normal(4, seed=1), {"bias": normal(4)}), "bias": (normal(4), {"weight": normal(4, seed=2)}), "eps": 0.5}
NOT_AFFINE = {"affine": False, **AFFINE}
HALF = X.astype("float16")
WIDE = normal(3, 64, seed=3).astype("float16")


def bias(*shape):
    return normal(*shape, seed=5)


PROJECTED = {**dict.fromkeys(("qproj_size", "kproj_size", "vproj_size", "oproj_size"), 4), "io_weight_bias": normal(4 * 16 + 4)}
ATTENTION = (
    (normal(2, 3, 4), normal(2, 3, 4, seed=1), normal(2, 3, 4, seed=2), 4, 2, 0.0, 0.0, None),
    {
        "bias_k": (normal(1, 1, 4), {"bias_v": normal(1, 1, 4)}), "bias_v": (normal(1, 1, 4, seed=3), {"bias_k": normal(1, 1, 4)}),
        "add_zero_attn": True, "key_padding_mask": Tensor(np.array([[0, 0, 1], [0, 1, 0]], bool)), "attn_mask": normal(3, 3), "need_weights": True,
        "average_attn_weights": (True, {"need_weights": True}), "is_causal": (True, {"attn_mask": None}), "maybe_cudnn_style_mask": (True, {"attn_mask": ints([0, 0, 1], [2, 3, 3])}),
        "reslink": True, "training": (False, {"attn_drop": 0.5}), "qproj_size": 4, "kproj_size": 4, "vproj_size": 4, "oproj_size": 4,
        **{name: (True, PROJECTED) for name in ("qbias", "kbias", "vbias", "obias")},
    },
)  # fmt: skip


def running_sums(total, x):
    total = total + (1 if x is None else x)
    return total, total


CALLS = {
    F.scan: ((running_sums, Tensor(1.0), Tensor([1.0, 2.0])), {"xs": Tensor([3.0, 2.0]), "length": (3, {"xs": None}), "reverse": True}),
    F.while_loop: ((lambda x: x < 9, lambda x: x * 2, Tensor(1.0)), {"max_trips": 2}),
    F.clip: ((X,), {"lower": 0.1, "upper": 0.2}),
    F.argmax: ((X,), REDUCED), F.argmin: ((X,), REDUCED), F.argsort: ((X,), {"descending": True}),
    F.cross: ((normal(3, 3), normal(3, 3, seed=1)), {"axisa": 0, "axisb": 0, "axisc": 0, "axis": 0}),
    F.matmul: ((normal(3, 3), normal(3, 3, seed=1)), {"transpose_a": True, "transpose_b": True, "compute_mode": "half"}),
    F.max: ((X,), REDUCED), F.min: ((X,), REDUCED), F.mean: ((X,), REDUCED), F.sum: ((X,), REDUCED), F.prod: ((X,), REDUCED),
    F.any: ((X > 0,), REDUCED), F.all: ((X > 0,), REDUCED), F.std: ((X,), REDUCED), F.var: ((X,), REDUCED),
    F.norm: ((X,), {"ord": (3, {"axis": 1}), "axis": 1, "keepdims": (True, {"axis": 1})}),
    F.normalize: ((X,), {"ord": (1, {"axis": 1}), "axis": 1, "eps": (100.0, {"axis": 1})}),
    F.sort: ((X,), {"descending": True, "dim": 0}),
    F.svd: ((X,), {"full_matrices": True, "compute_uv": False}),
    F.topk: ((X, 2), {"descending": False, "kth_only": True, "no_sort": True}),
    F.topk_accuracy: ((X, ints(1, 2, 0)), {"topk": 3}),
    F.avg_pool2d: ((IMAGE, 3), {"stride": 1, "padding": 1, "mode": ("average", {"padding": 1}), "ceil_mode": (True, {"stride": 2})}),
    F.max_pool1d: ((CUBE, 3), {"stride": 1, "padding": 1, "ceil_mode": (True, {"stride": 2, "kernel_size": 3})}),
    F.avg_pool1d: ((CUBE, 3), {"stride": 1, "padding": 1, "mode": ("average", {"padding": 1}), "ceil_mode": (True, {"stride": 2})}),
    F.conv_transpose1d: ((CUBE, normal(3, 4, 2)), {
        "bias": bias(1, 4, 1), "stride": 2, "padding": 1, "output_padding": (1, {"stride": 2}), "dilation": 2, "groups": 3,
    }),
    F.bilinear: ((X, normal(3, 2), normal(5, 4, 2)), {"bias": bias(5)}),
    F.elu: ((X,), {"alpha": 0.3}), F.celu: ((X,), {"alpha": 0.3}), F.glu: ((normal(4, 4),), {"axis": 0}),
    F.unfold: ((IMAGE, 2), {"dilation": 2, "padding": 1, "stride": 2}),
    F.fold: ((normal(2, 8, 12), (5, 4), 2), {"dilation": (2, {"output_size": (6, 5)}), "padding": (1, {"output_size": (3, 2)}), "stride": (2, {"output_size": (9, 6)})}),
    F.rms_norm: ((X, 4), {"weight": normal(4), "eps": 0.5}),
    F.cosine_similarity: ((X, normal(3, 4, seed=1)), {"axis": 0, "eps": 9.0}),
    F.pairwise_distance: ((X, normal(3, 4, seed=1)), {"p": 1.0, "eps": 0.5, "keepdims": True}),
    F.dropout2d: ((IMAGE, 0.5), {"training": False}),
    F.embedding_bag: ((ints([0, 2], [1, 1]), X), {
        "offsets": ints(0, 1), "mode": "sum", "per_sample_weights": (normal(2, 2), {"mode": "sum"}), "padding_idx": 1,
    }),
    F.loss.nll_loss: ((normal(3, 3), ints(1, 2, 2)), {"axis": 0, "reduction": "sum", "ignore_index": 2, "weight": normal(3)}),
    F.vision.grid_sample: ((IMAGE, normal(2, 3, 3, 2)), {"mode": "nearest", "padding_mode": "border", "align_corners": True}),
    F.max_pool2d: ((IMAGE, 3), {"stride": 1, "padding": 1, "ceil_mode": (True, {"stride": 2})}),
    F.batch_norm: ((IMAGE, F.zeros(4), F.ones(4)), {
        "running_mean": (normal(4), {"running_var": F.ones(4)}), "running_var": F.full(4, 2.0), "weight": normal(4), "bias": normal(4),
        "training": True, "momentum": (0.5, {"training": True, "inplace": False}), "eps": 0.5, "inplace": (False, {"training": True}),
    }),
    F.conv1d: ((normal(2, 4, 7), normal(4, 4, 3)), {"bias": bias(1, 4, 1), **CONVOLVED, "groups": (2, {"weight": normal(2, 2, 2, 3)})}),
    F.conv2d: ((IMAGE, KERNEL), {"bias": bias(1, 4, 1, 1), **CONVOLVED, "groups": (2, {"weight": GROUPED})}),
    F.conv3d: ((normal(1, 2, 5, 5, 5), normal(2, 2, 3, 3, 3)), {
        "bias": bias(1, 2, 1, 1, 1), **ONE, "conv_mode": "convolution", "groups": (2, {"weight": normal(2, 1, 1, 3, 3, 3)}),
    }),
    F.conv_transpose2d: ((IMAGE, KERNEL), {
        "bias": bias(1, 4, 1, 1), **CONVOLVED, "output_padding": (1, {"stride": 2}), "groups": (2, {"weight": GROUPED}),
    }),
    F.conv_transpose3d: ((normal(1, 2, 3, 3, 3), normal(2, 2, 3, 3, 3)), {
        "bias": bias(1, 2, 1, 1, 1), **ONE, "output_padding": (1, {"stride": 2}), "groups": (2, {"weight": normal(2, 1, 1, 3, 3, 3)}),
    }),
    F.deformable_conv2d: ((IMAGE, KERNEL, normal(2, 18, 4, 3), F.ones((2, 9, 4, 3))), {
        "bias": bias(1, 4, 1, 1), "stride": (2, {"offset": normal(2, 18, 2, 2), "mask": F.ones((2, 9, 2, 2))}),
        "padding": (1, {"offset": normal(2, 18, 6, 5), "mask": F.ones((2, 9, 6, 5))}),
        "dilation": (2, {"offset": normal(2, 18, 2, 1), "mask": F.ones((2, 9, 2, 1))}), "groups": (2, {"weight": GROUPED}),
        "conv_mode": "convolution", "compute_mode": "half",
    }),
    F.deformable_psroi_pooling: ((IMAGE, ROIS, normal(2, 2, 2, 2), False, 2, 2, 2, 2, 1.0), {"trans_std": 0.9}),
    F.dropout: ((X, 0.5), {"training": False}),
    F.embedding: ((ints(0, 2, 1), X), {"padding_idx": 9, "max_norm": 0.1, "norm_type": 1.0}),
    F.general_norm: ((CUBE, (2,)), {
        "affine": (False, {"weight": normal(4), "bias": normal(4, seed=1)}), "weight": (normal(4, seed=1), {"bias": normal(4)}),
        "bias": (normal(4, seed=2), {"weight": normal(4)}), "eps": (0.5, {"affine": False}),
    }),
    F.group_norm: ((IMAGE, 2, True, normal(4), normal(4, seed=1)), {"weight": normal(4, seed=2), "bias": normal(4, seed=3), "eps": 0.5}),
    F.instance_norm: ((IMAGE, True, normal(4), normal(4, seed=1)), {"weight": normal(4, seed=2), "bias": normal(4, seed=3), "eps": 0.5}),
    F.layer_norm: ((CUBE, 4, True, normal(4), normal(4, seed=1)), {"weight": normal(4, seed=2), "bias": normal(4, seed=3), "eps": 0.5}),
    F.indexing_one_hot: ((X, ints(1, 0, 3)), {"axis": (0, {"index": ints(1, 0, 2, 2)}), "keepdims": True}),
    F.leaky_relu: ((X,), {"negative_slope": 0.5}),
    F.linear: ((X, normal(2, 4)), {"bias": normal(2), "compute_mode": "half"}),
    F.local_conv2d: ((IMAGE, normal(1, 4, 3, 4, 3, 3, 4)), {
        "bias": bias(1, 4, 4, 3), "stride": (2, {"weight": normal(1, 2, 2, 4, 3, 3, 4)}), "padding": (1, {"weight": normal(1, 6, 5, 4, 3, 3, 4)}),
        "dilation": (2, {"weight": normal(1, 2, 1, 4, 3, 3, 4)}), "conv_mode": "convolution",
    }),
    F.region_restricted_conv: ((IMAGE, normal(1, 4, 4, 3, 3), F.ones((2, 6, 5), dtype="int32"), F.ones((2, 4, 3), dtype="int32")), {
        "bias": bias(1, 4, 1, 1), "stride": (2, {"rout": F.ones((2, 2, 2), dtype="int32")}), "padding": (1, {"rout": F.ones((2, 6, 5), dtype="int32")}),
        "dilation": (2, {"rout": F.ones((2, 2, 1), dtype="int32")}), "conv_mode": "convolution", "compute_mode": "half",
        "groups": (2, {"weight": normal(2, 2, 2, 3, 3)}),
    }),
    F.local_response_norm: ((IMAGE,), {"kernel_size": 3, "k": 1.0, "alpha": 0.5, "beta": 0.5}),
    F.logsumexp: ((X, 1), {"keepdims": True}),
    F.pad: ((X, ((1, 1), (1, 1))), {
        "pad_width": ((2, 2), (2, 2)), "mode": "reflect", "constant_value": 2.0, "pad_witdth": (((1, 1), (1, 1)), {"pad_width": None}),
    }),
    F.remap: ((IMAGE, PLACES), {"border_mode": "constant", "scalar": (3.0, {"border_mode": "constant"}), "interp_mode": "nearest"}),
    F.sliding_window: ((IMAGE, 3), ONE), F.sliding_window_transpose: ((F.sliding_window(IMAGE, 3), (6, 5), 3), {k: (v, {"inp": F.sliding_window(IMAGE, 3, **{k: v})}) for k, v in ONE.items()}),
    F.softmax: ((X,), {"axis": 0}),
    F.sync_batch_norm: ((IMAGE, F.zeros(4), F.ones(4)), {
        "weight": normal(4), "bias": normal(4), "training": True, "momentum": (0.5, {"training": True}), "eps": 0.5, "eps_mode": ("max", {"eps": 2.0}),
    }),
    F.warp_affine: ((IMAGE.transpose(0, 2, 3, 1), STEEP, (4, 4)), {
        "border_mode": "constant", "border_val": (3.0, {"border_mode": "constant"}), "format": "NCHW", "interp_mode": "nearest",
    }),
    F.warp_perspective: ((IMAGE, MATRICES, (4, 4)), {
        "mat_idx": ints(1, 0), "border_mode": "constant", "border_val": (3.0, {"border_mode": "constant"}), "format": "NHWC", "interp_mode": "nearest",
    }),
    F.arange: ((), {"start": (2, {"stop": 9}), "stop": (5, {"start": 3}), "step": (2, {"start": 0, "stop": 9}), **{k: (v, {"stop": 3}) for k, v in MADE.items()}}),
    F.concat: (([X, X],), {"axis": 1}), F.stack: (([X, X],), {"axis": 1}),
    F.copy: ((X,), {}), F.non_zero: ((X > 0,), {"as_tuple": True}),
    F.diag: ((X,), {"k": 1}), F.tril: ((X,), {"k": 1}), F.triu: ((X,), {"k": 1}), F.unbind: ((X,), {"axis": 1}),
    F.bincount: ((ints(0, 2, 2),), {"weights": normal(3), "minlength": 5, "length": 5}), F.searchsorted: ((ints(1, 1, 2), ints(1)), {"side": "right"}),
    F.unique: ((ints(0, 2, 2),), dict.fromkeys(("return_index", "return_inverse", "return_counts"), True)), F.eye: ((3,), {"M": 4, **MADE}), F.full: (((2, 3), 1.5), MADE), F.linspace: ((0, 9, 4), MADE),
    F.ones: (((2, 3),), MADE), F.zeros: (((2, 3),), MADE), F.flatten: ((CUBE,), {"start_axis": 1, "end_axis": 1}),
    F.meshgrid: ((normal(3), normal(2)), {"indexing": "ij"}), F.repeat: ((X, 2), {"axis": 1}), F.roll: ((X, 1), {"axis": 0}),
    F.split: ((CUBE, 2), {"axis": 2}), F.squeeze: ((normal(1, 3, 1),), {"axis": 0}), F.where: ((X > 0,), {"x": (X, {"y": 2 * X}), "y": (X, {"x": 2 * X})}),
    L.cross_entropy: ((X, ints(1, 0, 3)), {
        "axis": (0, {"label": ints(1, 0, 2, 1)}), "with_logits": (False, {"pred": F.softmax(X)}), "label_smooth": 0.3, "reduction": "sum",
        "ignore_index": 0, "weight": normal(4),
    }),
    L.huber_loss: ((X, X + 1.5), {"reduction": "sum", "delta": 0.3}), L.smooth_l1_loss: ((X, X + 1.5), {"reduction": "sum", "beta": 0.3}),
    L.kl_div: ((X, F.softmax(X)), {"reduction": "sum", "log_target": True}),
    L.cosine_embedding_loss: ((X, X * X, ints(1, 1, -1)), {"margin": -0.9, "reduction": "sum"}),
    L.triplet_margin_loss: ((X, X + 1, X * X), {"margin": 2.0, "p": 3.0, "eps": 0.1, "swap": True, "reduction": "sum"}),
    L.binary_cross_entropy: ((F.sigmoid(X), (X > 0).astype("float32")), {"with_logits": False, "reduction": "sum"}),
    L.l1_loss: ((X, X + 1.5), {"reduction": "sum"}), L.square_loss: ((X, X + 1.5), {"reduction": "sum"}),
    L.hinge_loss: ((X, F.sign(X)), {"norm": "L2", "reduction": "sum"}),
    L.ctc_loss: ((F.softmax(normal(4, 2, 3), axis=2), ints(4, 3), ints(1, 2, 2), ints(2, 1)), {"blank": (2, {"label": ints(1, 0, 1)}), "reduction": "sum"}),
    V.correlation: ((IMAGE, normal(2, 4, 6, 5, seed=1)), {
        "kernel_size": 3, "max_displacement": 2, "stride1": 2, "stride2": 2, "pad_size": 1, "is_multiply": False,
    }),
    V.cvt_color: ((PIXELS,), {"mode": "RGB2YUV"}),
    V.interpolate: ((IMAGE,), {
        "size": ((3, 4), {"scale_factor": None}), "scale_factor": (1.5, {"size": None}), "mode": ("nearest", {"size": (3, 4)}),
        "align_corners": (True, {"size": (3, 4)}),
    }),
    V.nms: ((Tensor([[0.0, 0, 2, 2], [0, 0, 1, 1], [5, 5, 6, 6]]), Tensor([0.5, 0.9, 0.7]), 0.5), {"max_output": 1}),
    V.batched_nms: ((Tensor([[0.0, 0, 2, 2], [0, 0, 1, 1], [5, 5, 6, 6]]), Tensor([0.5, 0.9, 0.7]), ints(0, 1, 1), 0.5), {"max_output": 1}),
    V.roi_align: ((IMAGE, ROIS, 2), {"mode": "max", "spatial_scale": 0.5, "sample_points": 3, "aligned": False}),
    V.roi_pooling: ((IMAGE, ROIS, 2), {"mode": "average", "scale": 0.5}),
    V.flip: ((PIXELS,), {"vertical": False, "horizontal": False}), V.rot90: ((PIXELS,), {"clockwise": False}),
    V.rotate: ((IMAGE, 30.0), {"format": "NHWC", "interp_mode": "nearest", "angle": 60.0}),
    V.resize: ((IMAGE, 3), {"format": ("NHWC", {"size": (3, 3)}), "imode": "nearest", "max_size": (4, {"inp": normal(1, 1, 12, 4)})}),
    **{function: ((CUBE,), {"n": 3, "axis": 0, "norm": "ortho"}) for function in (F.fft.fft, F.fft.ifft, F.fft.rfft, F.fft.irfft)},
    **{function: ((CUBE,), {"s": (2, 5), "axes": (0, 1), "norm": "ortho"}) for function in (
        F.fft.fft2, F.fft.ifft2, F.fft.rfft2, F.fft.irfft2, F.fft.fftn, F.fft.ifftn, F.fft.rfftn, F.fft.irfftn)},
    F.fft.fftfreq: ((4,), {"d": 0.5, "dtype": "float16"}), F.fft.rfftfreq: ((4,), {"d": 0.5, "dtype": "float16"}),
    F.fft.fftshift: ((CUBE,), {"axes": 1}), F.fft.ifftshift: ((CUBE,), {"axes": 1}),
    F.linalg.qr: ((normal(4, 3),), {"mode": "complete"}), F.linalg.pinv: ((X,), {"rcond": 0.9}),
    random.multinomial: ((Tensor([1.0, 1.0, 1.0]), 3), {"replacement": True}), random.RNG: ((), {"seed": 7}),
    F.nn.multi_head_attention: ATTENTION,
    F.nn.scaled_dot_product_attention: ((normal(2, 3, 4), normal(2, 5, 4, seed=1), normal(2, 5, 4, seed=2)), {
        "attn_mask": normal(3, 5), "dropout_p": 0.5, "is_causal": True, "scale": 2.0, "enable_gqa": (True, {"query": normal(4, 3, 4)}),
    }),
    random.normal: ((), {"mean": 5.0, "std": 3.0, "size": (2,)}), random.uniform: ((), {"low": -5.0, "high": 9.0, "size": (2,)}),
    random.gamma: ((X * X + 0.5,), {"scale": 3.0, "size": (2,)}), random.exponential: ((), {"rate": 9.0, "size": (2,)}),
    random.poisson: ((F.full(3, 4.0),), {"size": (2,)}), random.beta: ((X * X + 0.5, 2.0), {"size": (2,)}),
    random.permutation: ((5,), {"dtype": "float32"}),
}  # fmt: skip

# Tested on two emulated cards, in worlds of several processes, by gradients (test_row_gradients.py); and what no device of this machine computes.
ELSEWHERE = {"device", "group", "numpy", "precision", "sparse"}


def optional(function):
    return [p.name for p in inspect.signature(function).parameters.values() if p.default is not p.empty and p.name not in ELSEWHERE]


def flat(value):
    """What of a result could differ: dtypes, shapes and bytes."""
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *map(flat, value)]
    if isinstance(value, random.RNG):
        return flat(value.uniform(size=(3,)))
    return (str(value.dtype), value._tuple_shape, value.numpy().tobytes()) if isinstance(value, mge.Tensor) else value


def copied(value):
    return Tensor(value) if isinstance(value, mge.Tensor) else value


def outcome(function, args, given, apart):
    """The result of a call and its arguments but one, as they are then; what it is told, or refused."""
    random.seed(3)
    names = list(inspect.signature(function).parameters)
    several = any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(function).parameters.values())
    args, given = ((), {**dict(zip(names, args)), **given}) if not several else (args, given)
    args, given = tuple(map(copied, args)), {key: copied(value) for key, value in given.items()}
    _telling._told.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            result = function(*args, **given)
            return flat((result, *args, *(value for key, value in given.items() if key != apart)))  # running statistics are written
        except (Exception, UserWarning) as error:
            return type(error).__name__, str(error)


CASES = [(function, name) for function, (_, others) in CALLS.items() for name in others]


@pytest.mark.parametrize(("function", "name"), CASES, ids=[f"{function.__name__}-{name}" for function, name in CASES])
def test_another_value_changes_the_result_or_says_why_not(function, name):
    args, others = CALLS[function]
    value, besides = others[name] if isinstance(others[name], tuple) and isinstance(others[name][-1], dict) else (others[name], {})
    default = inspect.signature(function).parameters[name].default
    assert outcome(function, args, besides | {name: value}, name) != outcome(function, args, besides | {name: default}, name)


def test_every_optional_parameter_of_a_function_is_in_the_table():
    modules = ("megengine.functional", "megengine.functional.fft", "megengine.functional.linalg", "megengine.functional.loss", "megengine.functional.vision", "megengine.random")
    functions = [found for name, found in public() if name.rpartition(".")[0] in modules]
    missing = [f"{each.__name__}: {name}" for each in functions for name in optional(each) if name not in CALLS.get(each, ((), {}))[1]]
    assert len(functions) > 150 and not missing


def test_a_parameter_that_does_nothing_is_found():
    def idle(x, mode="a"):
        return x + 1

    def writing(x, mode="a"):
        x[0] = len(mode)

    assert outcome(idle, (X,), {"mode": "a"}, "mode") == outcome(idle, (X,), {"mode": "b"}, "mode")
    assert outcome(writing, (X,), {"mode": "a"}, "mode") != outcome(writing, (X,), {"mode": "bb"}, "mode")


RATES = {"weight_decay": 0.3}
ADAM = {"betas": (0.5, 0.6), "eps": 0.3, **RATES}
EIGHT_BITS = {**ADAM, "block_size": (16, {"min_size": 0}), "min_size": (0, {"block_size": 16})}
LAMB = {**ADAM, "bias_correction": False, "always_adapt": (True, {"weight_decay": 0.0})}
OPTIMIZERS = {
    optim.SGD: {"momentum": 0.5, "nesterov": (True, {"momentum": 0.5}), **RATES}, optim.Adadelta: {"lr": 0.3, "rho": 0.5, "eps": 0.3, **RATES},
    optim.Adagrad: {"lr": 0.3, "lr_decay": 0.5, "eps": 0.3, **RATES}, optim.Adam: ADAM, optim.AdamW: ADAM, optim.LAMB: LAMB, optim.LAMBFp16: LAMB,
    optim.RMSprop: {"lr": 0.3, "alpha": 0.5, "eps": 0.3, "momentum": 0.5, "centered": True, **RATES}, optim.Lion: {"lr": 0.3, "betas": (0.5, 0.6), **RATES},
    optim.Adafactor: {"lr": 0.3, "beta2_decay": -0.3, "eps": (0.3, 9.0), "d": 0.3, **RATES}, optim.Adam8bit: EIGHT_BITS, optim.AdamW8bit: EIGHT_BITS,
}  # fmt: skip


# Schedules: a call without the optimizer, and for each optional parameter another value.
SCHEDULES = {
    optim.MultiStepLR: ({"milestones": [1, 3]}, {"gamma": 0.3}), optim.LambdaLR: ({"lr_lambda": lambda epoch: 1 / (1 + epoch)}, {}),
    optim.StepLR: ({"step_size": 2}, {"gamma": 0.3}), optim.ExponentialLR: ({"gamma": 0.5}, {}), optim.CosineAnnealingLR: ({"T_max": 5}, {"eta_min": 0.1, "warmup": 2}),
    optim.CosineAnnealingWarmRestarts: ({"T_0": 2}, {"T_mult": 2, "eta_min": 0.1}),
    optim.OneCycleLR: ({"max_lr": 2.0, "total_steps": 9}, {"pct_start": 0.6, "div_factor": 3.0, "final_div_factor": 2.0}),
    optim.ReduceLROnPlateau: ({}, {"mode": ("max", {"patience": 1}), "factor": (0.3, {"patience": 1}), "patience": 1, "threshold": (0.9, {"patience": 1}), "threshold_mode": ("abs", {"threshold": 0.3, "patience": 0}), "cooldown": (3, {"patience": 0}), "min_lr": (0.4, {"patience": 0})}),
}  # fmt: skip


def rates_of(schedule, given):
    opt = optim.SGD([mge.Parameter([1.0])], lr=0.5)
    opt.param_groups[0]["initial_lr"] = 0.5
    made, rates = schedule(opt, **given), []
    for value in (1.0, 0.5, 0.3, 0.41, 0.39, 0.5, 0.6):
        rates.append(opt.param_groups[0]["lr"])
        made.step(*([value] if schedule is optim.ReduceLROnPlateau else []))
    rates.append(opt.param_groups[0]["lr"])
    return rates


@pytest.mark.parametrize(("schedule", "name"), [(each, name) for each in SCHEDULES for name in optional(each)])
def test_each_option_of_a_schedule_changes_its_rates(schedule, name):
    required, others = SCHEDULES[schedule]
    found = {"current_epoch": 0, **others}[name]
    value, besides = found if isinstance(found, tuple) else (found, {})
    default = inspect.signature(schedule).parameters[name].default
    assert rates_of(schedule, required | besides | {name: value}) != rates_of(schedule, required | besides | {name: default})


def test_every_schedule_is_in_the_table():
    classes = [each for each in vars(optim).values() if inspect.isclass(each) and issubclass(each, optim.LRScheduler) and each is not optim.LRScheduler]
    assert set(classes) == set(SCHEDULES)


def test_the_decay_of_averages_acts():
    averages = {}
    for decay in (0.999, 0.5):
        ema = optim.EMA([w := mge.Parameter([1.0])], decay=decay)
        w[...] = 3.0
        ema.update()
        averages[decay] = ema.state_dict()["averages"][0].item()
    assert averages[0.5] == 2.0 and averages[0.999] == pytest.approx(1.002)


def weights_after_three_steps(optimizer, options):
    weight = mge.Parameter(np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3))
    opt = optimizer([weight], **({"lr": 0.1} | options))
    for step in range(3):
        weight.grad = Tensor(np.cos(np.arange(6, dtype=np.float32) + step).reshape(2, 3))
        opt.step()
    return weight.numpy().tobytes()


@pytest.mark.parametrize(("optimizer", "name"), [(each, name) for each, others in OPTIMIZERS.items() for name in others])
def test_each_option_of_an_optimizer_changes_its_steps(optimizer, name):
    found = OPTIMIZERS[optimizer][name]
    value, besides = found if isinstance(found, tuple) and isinstance(found[-1], dict) else (found, {})
    default = inspect.signature(optimizer).parameters[name].default
    assert weights_after_three_steps(optimizer, besides | {name: value}) != weights_after_three_steps(optimizer, besides | {name: default})


def test_every_optimizer_and_option_is_in_the_table():
    classes = [each for each in vars(optim).values() if inspect.isclass(each) and issubclass(each, optim.Optimizer) and each is not optim.Optimizer]
    assert set(classes) == set(OPTIMIZERS)
    assert not [f"{each.__name__}: {name}" for each in classes for name in optional(each) if name not in OPTIMIZERS[each]]
