"""Each optional parameter of a module's constructor acts: another value changes what the module computes, its gradients or what it keeps, warns
that it has no effect, or is refused. Rows as in test_parameters_act.py, with the inputs of forward behind the arguments.
"""

import inspect
import warnings

import numpy as np
import pytest
from test_parameters_act import flat, ints, normal

import megengine.module as M
from megengine import Tensor, random
from megengine.autodiff import GradManager
from megengine.core import _telling

IMAGE, CUBE, LINE, ROW = normal(2, 4, 7, 6), normal(1, 2, 5, 5, 5), normal(2, 4, 9), normal(3, 4)
PIXELS = Tensor(np.random.default_rng(1).integers(1, 255, (2, 3, 7, 6)).astype(np.uint8))
MIXED = (PIXELS.astype("float32"), normal(2, 3), PIXELS[::-1].astype("float32"), normal(2, 3, seed=1))


def REGION(height, width):
    return Tensor((np.arange(2 * height * width) % 2).reshape(2, height, width).astype(np.int32))


CONVOLVED = {"stride": 2, "padding": 1, "dilation": 2, "groups": 2, "bias": False, "conv_mode": "convolution"}
CONV = {**CONVOLVED, "compute_mode": "half", "padding_mode": ("reflect", {"padding": 1})}
CONV3D = {**CONVOLVED}
TRANSPOSED = {**CONVOLVED, "compute_mode": "half", "output_padding": (1, {"stride": 2})}
NORM = {"eps": 0.5, "momentum": 0.5, "affine": False, "track_running_stats": False}
BATCH_NORM = {**NORM, "freeze": True}
LINEAR = {"bias": False, "compute_mode": "half"}
WINDOW = {"padding": 1, "stride": 2, "dilation": 2}
RECURRENT = {
    "num_layers": 2, "bias": False, "batch_first": True, "dropout": (0.5, {"num_layers": 2}), "bidirectional": True, "proj_size": 2,
}  # fmt: skip
SUMMED, CHANCE, SEQUENCE = {"reduction": "sum"}, Tensor(np.linspace(0.1, 0.9, 12, dtype=np.float32).reshape(3, 4)), normal(2, 5, 4)
LAYER = {"dim_feedforward": 8, "dropout": 0.5, "activation": "gelu", "layer_norm_eps": 0.5, "norm_first": True}
SMALL = {"num_encoder_layers": 1, "num_decoder_layers": 1, "dim_feedforward": 6}
SEEDED = {"seed": 7}
NOISE = {"per_channel": True, **SEEDED}

# class: (arguments, inputs of forward, other values of optional parameters)
CALLS = {
    M.AvgPool2d: ((3,), (IMAGE,), {"stride": 1, "padding": 1, "ceil_mode": True, "mode": ("average", {"padding": 1})}),
    M.AvgPool1d: ((3,), (LINE,), {"stride": 1, "padding": 1, "ceil_mode": (True, {"stride": 4}), "mode": ("average", {"padding": 1})}),
    M.MaxPool1d: ((3,), (LINE,), {"stride": 1, "padding": 1, "ceil_mode": (True, {"stride": 4})}),
    M.ConvTranspose1d: ((4, 4, 3), (LINE,), {key: value for key, value in TRANSPOSED.items() if key not in ("conv_mode", "compute_mode")}),
    M.ELU: ((), (ROW,), {"alpha": 0.3}), M.CELU: ((), (ROW,), {"alpha": 0.3}), M.GLU: ((), (normal(4, 4),), {"axis": 0}), M.LogSoftmax: ((), (ROW,), {"axis": 0}),
    M.Flatten: ((), (IMAGE,), {"start_axis": 0, "end_axis": 2}),
    M.Upsample: ((), (IMAGE,), {"size": (3, {"scale_factor": 2}), "scale_factor": (2, {"size": 3}), "mode": ("bilinear", {"size": 3}), "align_corners": (True, {"size": 3, "mode": "bilinear"})}),
    M.Dropout2d: ((), (IMAGE,), {"drop_prob": 0.5}),
    M.Unfold: ((3,), (IMAGE,), WINDOW), M.Fold: (((4, 3), 3), (normal(1, 9, 2),), {"padding": 1, "stride": 2, "dilation": 2}),
    M.RMSNorm: ((6,), (IMAGE,), {"eps": 0.5, "affine": False}),
    M.EmbeddingBag: ((5, 4), (ints([0, 2], [1, 1]),), {
        "mode": "sum", "padding_idx": 1, "sparse": True, "initial_weight": normal(5, 4, seed=4), "freeze": (True, {"initial_weight": normal(5, 4)}),
    }),
    M.Bilinear: ((4, 2, 3), (ROW, normal(3, 2)), {"bias": False}), M.CosineSimilarity: ((), (ROW, normal(3, 4, seed=1)), {"axis": 0, "eps": 9.0}),
    M.PairwiseDistance: ((), (ROW, normal(3, 4, seed=1)), {"p": 1.0, "eps": 0.5, "keepdims": True}),
    M.CrossEntropyLoss: ((), (ROW, ints(1, 0, 3)), {"weight": normal(4), "ignore_index": 0, "label_smooth": 0.3, "reduction": "sum"}),
    M.NLLLoss: ((), (ROW, ints(1, 0, 3)), {"weight": normal(4), "ignore_index": 0, "reduction": "sum"}),
    M.BCELoss: ((), (CHANCE, CHANCE), SUMMED), M.BCEWithLogitsLoss: ((), (ROW, CHANCE), SUMMED),
    M.MSELoss: ((), (ROW, CHANCE), SUMMED), M.L1Loss: ((), (ROW, CHANCE), SUMMED),
    M.SmoothL1Loss: ((), (ROW, CHANCE), {"beta": 0.3, **SUMMED}), M.HuberLoss: ((), (ROW, CHANCE), {"delta": 0.3, **SUMMED}),
    M.KLDivLoss: ((), (ROW, CHANCE), {"log_target": True, **SUMMED}),
    M.CosineEmbeddingLoss: ((), (ROW, CHANCE, ints(1, -1, 1)), {"margin": -0.9, **SUMMED}),
    M.TripletMarginLoss: ((), (ROW, CHANCE, normal(3, 4, seed=1)), {"margin": 9.0, "p": (1.0, {"margin": 9.0}), "swap": (True, {"margin": 9.0}), **SUMMED}),
    M.TransformerEncoderLayer: ((4, 2), (SEQUENCE,), LAYER), M.TransformerDecoderLayer: ((4, 2), (SEQUENCE, SEQUENCE), LAYER),
    M.TransformerEncoder: ((M.TransformerEncoderLayer(4, 2, 8), 2), (SEQUENCE,), {"norm": M.LayerNorm(4)}),
    M.TransformerDecoder: ((M.TransformerDecoderLayer(4, 2, 8), 2), (SEQUENCE, SEQUENCE), {"norm": M.LayerNorm(4)}),
    M.Transformer: ((4, 2), (SEQUENCE, SEQUENCE), {name: (value, SMALL) for name, value in {"num_encoder_layers": 2, "num_decoder_layers": 2, **LAYER}.items()}),
    M.MaxPool2d: ((3,), (IMAGE,), {"stride": 1, "padding": 1, "ceil_mode": (True, {"stride": 2})}),
    M.BatchMatMulActivation: ((2, 4, 3), (normal(2, 4, 5),), {"bias": False, "nonlinear_mode": "relu"}),
    M.BatchNorm1d: ((4,), (LINE,), BATCH_NORM), M.BatchNorm2d: ((4,), (IMAGE,), BATCH_NORM), M.BatchNorm3d: ((2,), (CUBE,), BATCH_NORM),
    M.SyncBatchNorm: ((4,), (IMAGE,), BATCH_NORM),
    M.Conv1d: ((4, 4, 3), (LINE,), CONV), M.Conv2d: ((4, 4, 3), (IMAGE,), CONV), M.Conv3d: ((2, 2, 3), (CUBE,), CONV3D),
    M.ConvRelu2d: ((4, 4, 3), (IMAGE,), CONV), M.ConvBn2d: ((4, 4, 3), (IMAGE,), {**CONV, **NORM}), M.ConvBnRelu2d: ((4, 4, 3), (IMAGE,), {**CONV, **NORM}),
    M.ConvTranspose2d: ((4, 4, 3), (IMAGE,), TRANSPOSED),
    M.ConvTranspose3d: ((2, 2, 3), (CUBE,), {key: value for key, value in TRANSPOSED.items() if key not in ("conv_mode", "compute_mode")}),
    M.ConvTransposeRelu2d: ((4, 4, 3), (IMAGE,), TRANSPOSED), M.ConvTransposeBn2d: ((4, 4, 3), (IMAGE,), {**TRANSPOSED, **NORM}),
    M.ConvTransposeBnRelu2d: ((4, 4, 3), (IMAGE,), {**TRANSPOSED, **NORM}),
    M.DeformableConv2d: ((4, 4, 3), (IMAGE, normal(2, 18, 5, 4), normal(2, 9, 5, 4)), {**CONVOLVED, "compute_mode": "half"}),
    M.DeformablePSROIPooling: (
        (False, 2, 2, 2, 2, 1.0), (IMAGE, Tensor([[0, 0.7, 0.9, 3.2, 4.1], [1, 1.1, 0.4, 4.3, 3.8]]), normal(2, 2, 2, 2)), {"trans_std": 0.9},
    ),
    M.LocalConv2d: ((4, 4, 7, 6, 3), (IMAGE,), {key: value for key, value in CONVOLVED.items() if key != "bias"}),
    M.RegionRestrictedConv: (
        (4, 4, 3), (IMAGE, REGION(7, 6), REGION(5, 4)), {**CONV, "padding_mode": ("reflect", {"padding": 1, "inputs": (IMAGE, REGION(7, 6), REGION(7, 6))})},
    ),
    M.Dropout: ((), (ROW,), {"drop_prob": 0.5}),
    M.Embedding: ((5, 4), (ints(0, 2, 1),), {
        "padding_idx": 1, "sparse": True, "max_norm": 0.1, "norm_type": 1.0, "initial_weight": normal(5, 4, seed=4), "freeze": (True, {"initial_weight": normal(5, 4)}),
    }),
    M.GeneralNorm: ((2,), (IMAGE,), {"normalized_axis": (1, {"affine": False}), "normalized_shape": (5, {"affine": False}), "eps": 0.5, "affine": False}),
    M.GroupNorm: ((2, 4), (IMAGE,), {"eps": 0.5, "affine": False}), M.InstanceNorm: ((4,), (IMAGE,), {"eps": 0.5, "affine": False}),
    M.LayerNorm: ((6,), (IMAGE,), {"eps": 0.5, "affine": False}),
    M.GRU: ((4, 3), (normal(5, 2, 4),), RECURRENT), M.LSTM: ((4, 3), (normal(5, 2, 4),), RECURRENT), M.RNN: ((4, 3), (normal(5, 2, 4),), {**RECURRENT, "nonlinearity": "relu"}),
    M.GRUCell: ((4, 3), (normal(2, 4), normal(2, 3)), {"bias": False}), M.LSTMCell: ((4, 3), (normal(2, 4), (normal(2, 3), normal(2, 3))), {"bias": False}),
    M.RNNCell: ((4, 3), (normal(2, 4), normal(2, 3)), {"bias": False, "nonlinearity": "relu"}),
    M.LeakyReLU: ((), (ROW,), {"negative_slope": 0.5}), M.PReLU: ((), (ROW,), {"num_parameters": 4, "init": 0.5}), M.Softmax: ((), (ROW,), {"axis": 0}),
    M.Linear: ((4, 3), (ROW,), LINEAR), M.LinearRelu: ((4, 3), (ROW,), LINEAR),
    M.LinearBn1d: ((4, 3), (ROW,), {**LINEAR, **NORM}), M.LinearBnRelu1d: ((4, 3), (ROW,), {**LINEAR, **NORM}),
    M.LocalResponseNorm: ((), (IMAGE,), {"kernel_size": 3, "k": 1.0, "alpha": 0.5, "beta": 0.5}),
    M.MultiHeadAttention: ((4, 2), (normal(3, 2, 4), normal(3, 2, 4, seed=1), normal(3, 2, 4, seed=2)), {
        "attn_dropout": 0.5, "out_dropout": 0.5, "bias": False, "add_bias_kv": True, "add_zero_attn": True, "kdim": 3, "vdim": 3,
    }),
    M.Pad: ((((0, 0), (0, 0), (1, 2), (1, 1)),), (IMAGE,), {"mode": "reflect", "constant_val": 2.0}),
    M.SlidingWindow: ((3,), (IMAGE,), WINDOW),
    M.SlidingWindowTranspose: (((4, 3), 3), (normal(1, 2, 2, 1, 3, 3),), WINDOW),
    M.AdditiveGaussianNoise: ((), (PIXELS,), {"mean": 50.0, "std": 30.0, **NOISE}), M.AdditiveLaplaceNoise: ((), (PIXELS,), {"mean": 50.0, "std": 30.0, **NOISE}),
    M.AdditivePoissonNoise: ((), (PIXELS,), {"lam": 30.0, **NOISE}),
    M.CropAndPad: ((), (IMAGE, (0.1, 0.2, -0.1, 0.15)), {"mode": "nearest", "align_corners": True}),
    M.Cutmix: ((1.0,), MIXED, SEEDED), M.Mixup: ((1.0,), MIXED, SEEDED),
    M.Dilation: ((), (PIXELS, np.ones((3, 3))), {"iterations": 2, "border_type": ("BORDER_REPLICATE", {"border_value": 255.0}), "border_value": 255.0}),
    M.Emboss: (((0.1, 0.9), (0.1, 0.9)), (PIXELS,), SEEDED), M.Sharpen: (((0.1, 0.9), (0.1, 0.9)), (PIXELS,), SEEDED),
    M.Flip: ((), (PIXELS,), {"vertical": False, "horizontal": False}), M.Rot90: ((), (PIXELS,), {"clockwise": False}),
    M.GaussianBlur: ((3,), (PIXELS,), {"sigma_x": 3.0, "sigma_y": (3.0, {"sigma_x": 1.0}), "border_mode": "REFLECT_101"}),
    M.LinearContrast: (((0.1, 0.9),), (PIXELS,), NOISE), M.Resize: ((4,), (IMAGE,), {"format": "NHWC", "imode": "nearest"}),
    M.Rotate: ((), (IMAGE,), {"angle": 30.0, "format": ("NHWC", {"angle": 30.0}), "interp_mode": ("nearest", {"angle": 30.0})}),
}  # fmt: skip
# Everywhere the module's name; groups are tested in worlds of several processes; a base class computes nothing.
ELSEWHERE, ABSTRACT = {"name", "group"}, [M.AdditiveElemwise]


def optional(module):
    return [p.name for p in inspect.signature(module).parameters.values() if p.default is not p.empty and p.name not in ELSEWHERE]


def set_values(module):
    """By name and shape alone: so that no two constructions differ by what they drew."""
    for name, value in module.named_tensors():
        if not isinstance(module, (M.Embedding, M.PReLU)):  # which take their first values as arguments
            value[...] = np.cos(np.arange(value.size, dtype=np.float32) + len(name)).reshape(value.shape) + 1.5


def outcome(module_class, args, inputs, given):
    """Results and gradients of two calls in training and one in eval, and what the module keeps; or what it warns, or refuses."""
    random.seed(3)
    _telling._told.clear()
    named = dict(zip(inspect.signature(module_class).parameters, args)) if not issubclass(module_class, (M.LSTM, M.RNN)) else {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            module = module_class(*(() if named else args), **{**named, **given})
            set_values(module)
            random.seed(3)
            results = []
            for _ in range(2):
                with GradManager().attach(list(module.parameters())) as gm:
                    result = module(*inputs)
                    first = result[0] if isinstance(result, tuple) else result
                    if first.dtype == np.float32 and list(module.parameters()):
                        gm.backward((first * first).sum())
                results += [flat(result), *[None if p.grad is None else flat(p.grad) for p in module.parameters()]]
            module.eval()
            results.append(flat(module(*inputs)))
            return results + [(name, flat(value)) for name, value in module.named_tensors()]
        except (Exception, UserWarning) as error:
            return type(error).__name__, str(error)


CASES = [(module, name) for module, (_, _, others) in CALLS.items() for name in others]


def has_besides(found):
    return isinstance(found, tuple) and isinstance(found[-1], dict)


@pytest.mark.parametrize(("module", "name"), CASES, ids=[f"{module.__name__}-{name}" for module, name in CASES])
def test_another_value_changes_the_module_or_says_why_not(module, name):
    args, inputs, others = CALLS[module]
    value, besides = others[name] if has_besides(others[name]) else (others[name], {})
    known, inputs = inspect.signature(module).parameters, besides.get("inputs", inputs)
    besides = {"seed": 3} | besides if "seed" in known else besides
    besides = {key: each for key, each in besides.items() if key not in ("inputs", name)}
    default = {name: 3} if name == "seed" else {} if name not in known or known[name].default is inspect.Parameter.empty else {name: known[name].default}
    first = outcome(module, args, inputs, besides | default)
    assert isinstance(first, list), first  # the default computes something
    assert first == outcome(module, args, inputs, besides | default)
    assert first != outcome(module, args, inputs, besides | {name: value})


def test_every_optional_parameter_of_a_module_is_in_the_table():
    modules = [each for each in vars(M).values() if inspect.isclass(each) and issubclass(each, M.Module) and each not in ABSTRACT]
    missing = [f"{each.__name__}: {name}" for each in modules for name in optional(each) if name not in CALLS.get(each, ((), (), {}))[2]]
    assert len(set(modules)) > 60 and not missing


def test_a_parameter_that_does_nothing_is_found():
    class Idle(M.Module):
        def __init__(self, mode="a"):
            super().__init__()
            self.mode = mode

        def forward(self, x):
            return x

    assert outcome(Idle, (), (ROW,), {"mode": "a"}) == outcome(Idle, (), (ROW,), {"mode": "b"})
