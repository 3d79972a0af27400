"""Layers, losses and optimizers that have torch's names give torch's numbers, forward and backward; the 120 names exist in torch."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager

sys.path.append(str(Path(__file__).parents[1] / "python"))
from usual_names import TABLE  # noqa: E402


def test_the_usual_names_are_torchs():
    places = {"nn": nn, "F": nn.functional, "optim": torch.optim}
    assert all(hasattr(places[place], name) for place, _, name in (each.partition(".") for each in TABLE))


def array(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).normal(size=shape).astype(np.float32)


X, LINE, IMAGE, LABEL = array(3, 4), array(2, 4, 9), array(2, 4, 6, 8), np.array([1, 0, 3], np.int32)
CHANCE, BAGS = (1 / (1 + np.exp(-X))).astype(np.float32), np.array([[0, 3, 3], [1, 2, 0]], np.int32)
# Ours, torch's, inputs; weights of ours are torch's.
LAYERS = [
    (M.Tanh(), nn.Tanh(), X), (M.ELU(0.5), nn.ELU(0.5), X), (M.CELU(0.5), nn.CELU(0.5), X), (M.SELU(), nn.SELU(), X), (M.Mish(), nn.Mish(), X),
    (M.ReLU6(), nn.ReLU6(), 9 * X), (M.Hardswish(), nn.Hardswish(), 3 * X), (M.Hardsigmoid(), nn.Hardsigmoid(), 3 * X), (M.Softplus(), nn.Softplus(), X),
    (M.LogSigmoid(), nn.LogSigmoid(), X), (M.LogSoftmax(1), nn.LogSoftmax(1), X), (M.GLU(1), nn.GLU(1), X),
    (M.Flatten(), nn.Flatten(), IMAGE), (M.Unflatten(1, (2, 2)), nn.Unflatten(1, (2, 2)), IMAGE),
    (M.Upsample(scale_factor=2), nn.Upsample(scale_factor=2), IMAGE), (M.Upsample((4, 11)), nn.Upsample((4, 11)), IMAGE),
    (M.Upsample((3, 9), mode="bilinear", align_corners=True), nn.Upsample((3, 9), mode="bilinear", align_corners=True), IMAGE),
    (M.Upsample(5, mode="linear"), nn.Upsample(5, mode="linear"), LINE), (M.Upsample(scale_factor=1.5, mode="bicubic"), nn.Upsample(scale_factor=1.5, mode="bicubic"), IMAGE),
    (M.MaxPool1d(3, 2, 1), nn.MaxPool1d(3, 2, 1), LINE), (M.MaxPool1d(2, ceil_mode=True), nn.MaxPool1d(2, ceil_mode=True), LINE),
    (M.AvgPool1d(3, 2, 1, "average"), nn.AvgPool1d(3, 2, 1), LINE), (M.AvgPool1d(3, 2, 1), nn.AvgPool1d(3, 2, 1, count_include_pad=False), LINE),
    (M.AdaptiveAvgPool1d(3), nn.AdaptiveAvgPool1d(3), LINE), (M.AdaptiveMaxPool1d(3), nn.AdaptiveMaxPool1d(3), LINE),
    (M.PixelUnshuffle(2), nn.PixelUnshuffle(2), IMAGE), (M.Unfold((3, 2), 1, 1, 2), nn.Unfold((3, 2), 1, 1, 2), IMAGE),
    (M.Unfold(2, dilation=2), nn.Unfold(2, dilation=2), IMAGE), (M.Fold((5, 4), (3, 2), 1, 1, 2), nn.Fold((5, 4), (3, 2), 1, 1, 2), array(2, 12, 9)),
    (M.RMSNorm(9), nn.RMSNorm(9), LINE), (M.RMSNorm((4, 9), eps=0.1), nn.RMSNorm((4, 9), eps=0.1), LINE),
    (M.ConvTranspose1d(4, 6, 3, 2, 1, 1), nn.ConvTranspose1d(4, 6, 3, 2, 1, 1), LINE), (M.Bilinear(4, 4, 5), nn.Bilinear(4, 4, 5), X, CHANCE),
    *((M.EmbeddingBag(4, 5, mode), nn.EmbeddingBag(4, 5, mode=mode), BAGS) for mode in ("sum", "mean", "max")),
    *((M.EmbeddingBag(4, 5, mode, padding_idx=3), nn.EmbeddingBag(4, 5, mode=mode, padding_idx=3), BAGS) for mode in ("sum", "mean", "max")),
    *((M.EmbeddingBag(4, 5, mode), nn.EmbeddingBag(4, 5, mode=mode), BAGS.ravel(), np.array([0, 2, 2], np.int32)) for mode in ("sum", "mean")),
    (M.CosineSimilarity(), nn.CosineSimilarity(), X, CHANCE), (M.CosineSimilarity(0), nn.CosineSimilarity(0), X, CHANCE),
    (M.PairwiseDistance(), nn.PairwiseDistance(), X, CHANCE), (M.PairwiseDistance(3.0, 0.1, True), nn.PairwiseDistance(3.0, 0.1, True), X, CHANCE),
    (M.CrossEntropyLoss(label_smooth=0.1), nn.CrossEntropyLoss(label_smoothing=0.1), X, LABEL),
    (M.CrossEntropyLoss(mge.tensor(CHANCE[0]), 0), nn.CrossEntropyLoss(torch.from_numpy(CHANCE[0]), ignore_index=0), X, LABEL),
    (M.NLLLoss(), nn.NLLLoss(), X, LABEL), (M.NLLLoss(mge.tensor(CHANCE[0]), 0, "sum"), nn.NLLLoss(torch.from_numpy(CHANCE[0]), ignore_index=0, reduction="sum"), X, LABEL),
    (M.BCELoss(), nn.BCELoss(), CHANCE, CHANCE), (M.BCEWithLogitsLoss(), nn.BCEWithLogitsLoss(), X, CHANCE), (M.MSELoss(), nn.MSELoss(), X, CHANCE),
    (M.L1Loss("none"), nn.L1Loss(reduction="none"), X, CHANCE), (M.SmoothL1Loss(0.5), nn.SmoothL1Loss(beta=0.5), X, CHANCE), (M.HuberLoss(0.5), nn.HuberLoss(delta=0.5), X, CHANCE),
    (M.KLDivLoss(reduction="batchmean"), nn.KLDivLoss(reduction="batchmean"), X, CHANCE), (M.TripletMarginLoss(9.0, swap=True), nn.TripletMarginLoss(9.0, swap=True), X, CHANCE, X[::-1].copy()),
    (M.CosineEmbeddingLoss(0.1), nn.CosineEmbeddingLoss(0.1), X, CHANCE, np.array([1, -1, 1], np.int32)),
    *((M.TransformerEncoderLayer(4, 2, 8, 0.0, each, norm_first=first), nn.TransformerEncoderLayer(4, 2, 8, 0.0, each, norm_first=first, batch_first=True), array(2, 5, 4))
      for each, first in (("relu", False), ("gelu", True))),
    *((M.TransformerDecoderLayer(4, 2, 8, 0.0, norm_first=first), nn.TransformerDecoderLayer(4, 2, 8, 0.0, norm_first=first, batch_first=True), array(2, 3, 4), array(2, 5, 4)) for first in (False, True)),
    (M.Transformer(4, 2, 2, 2, 8, 0.0), nn.Transformer(4, 2, 2, 2, 8, 0.0, batch_first=True), array(2, 5, 4), array(2, 3, 4)),
]  # fmt: skip


def packed(theirs):
    """The parameters of torch's attention as ours has them: matrices [in, out] of query, key, value and output, then their biases."""
    e = theirs.embed_dim
    matrices = [*theirs.in_proj_weight.detach().numpy().reshape(3, e, e), theirs.out_proj.weight.detach().numpy()]
    return np.concatenate([*(each.T.ravel() for each in matrices), theirs.in_proj_bias.detach().numpy(), theirs.out_proj.bias.detach().numpy()])


def take(ours, theirs):
    """torch's weights; biases drawn, which it begins at 0."""
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.from_numpy(0.1 * array(*parameter.shape)))
    modules = dict(theirs.named_modules())
    for name, module in ours.named_modules():
        if isinstance(module, M.MultiHeadAttention):
            module.io_weight_bias[...] = packed(modules[name])
            continue
        for key, parameter in modules[name].named_parameters(recurse=False) if name in modules else ():
            own = getattr(module, key)
            own[...] = parameter.detach().numpy().reshape(own.shape)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("row", LAYERS, ids=[repr(theirs).split("\n")[0] for _, theirs, *_ in LAYERS])
def test_a_layer_gives_torchs_results_and_gradients(row):
    ours, theirs, *inputs = row
    take(ours, theirs)
    given = [torch.from_numpy(x).long() if x.dtype == np.int32 else torch.from_numpy(x.copy()).requires_grad_() for x in inputs]
    want = theirs(*given)
    direction = array(*want.shape, seed=3) if want.shape else np.float32(1)
    want.backward(torch.from_numpy(np.asarray(direction)))
    own = [mge.tensor(x) for x in inputs]
    leaves = [(a, b) for a, b in zip(own, given, strict=True) if b.requires_grad]
    gm = GradManager().attach([a for a, _ in leaves] + list(ours.parameters()))
    with gm:
        got = ours(*own)
        gm.backward(got, mge.tensor(direction))
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=2e-5, atol=1e-5)
    for a, b in leaves:
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-4, atol=2e-5)
    if not any(isinstance(each, M.MultiHeadAttention) for each in ours.modules()):
        for name, parameter in theirs.named_parameters():
            np.testing.assert_allclose(getattr(ours, name).grad.numpy().reshape(parameter.shape), parameter.grad.numpy(), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [False, True])
def test_grids_are_sampled_as_in_torch(mode, padding, aligned):
    grid = array(2, 3, 5, 2)
    want = nn.functional.grid_sample(torch.from_numpy(IMAGE), torch.from_numpy(grid), mode, padding, aligned)
    np.testing.assert_allclose(F.vision.grid_sample(mge.tensor(IMAGE), mge.tensor(grid), mode, padding, aligned).numpy(), want.numpy(), rtol=1e-4, atol=1e-5)


OPTIMIZERS = [
    (optim.RMSprop, torch.optim.RMSprop, {}), (optim.RMSprop, torch.optim.RMSprop, {"lr": 0.1, "alpha": 0.8, "eps": 0.1, "weight_decay": 0.1, "momentum": 0.9, "centered": True}),
    (optim.Adafactor, torch.optim.Adafactor, {}), (optim.Adafactor, torch.optim.Adafactor, {"lr": 0.9, "beta2_decay": -0.5, "eps": (0.1, 0.5), "d": 1.5, "weight_decay": 0.1}),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs", "options"), OPTIMIZERS)
def test_steps_are_torchs(ours, theirs, options):
    shapes = (3, 4), (5,), (2, 3, 4), ()
    own = [mge.Parameter(array(*shape)) for shape in shapes]
    given = [nn.Parameter(torch.from_numpy(np.asarray(array(*shape)).copy())) for shape in shapes]
    a, b = ours(own, **options), theirs(given, **options)
    for step in range(5):
        for mine, its in zip(own, given, strict=True):
            grad = np.asarray(array(*mine.shape, seed=step + 7))
            mine.grad, its.grad = mge.tensor(grad), torch.from_numpy(grad)
        a.step()
        b.step()
    for mine, its in zip(own, given, strict=True):
        np.testing.assert_allclose(mine.numpy(), its.detach().numpy(), rtol=1e-4, atol=1e-6)
