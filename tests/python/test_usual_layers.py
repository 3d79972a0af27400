"""Layers, functions and optimizers that programs for PyTorch use most: they are here under the names of usual_names.py, and layers are their functions.

Formulas of functions are judged by op_samples.py, those of layers and optimizers by torch in tests/torch/test_usual.py, too.
"""

import pickle

import numpy as np
import pytest
from usual_names import TABLE

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.jit import trace

PLACES = {"M": M, "F": F, "optim": optim}


def found(name):
    place, *path = name.split(".")
    thing = PLACES[place]
    for part in path:
        thing = getattr(thing, part)
    return thing


def test_usual_names_are_here():
    here = {name for name in TABLE.values() if name != "-"}
    assert len(TABLE) == 120 and sum(name != "-" for name in TABLE.values()) >= 110
    assert all(callable(found(name)) for name in here)


@pytest.mark.parametrize("name", [name for name, ours in TABLE.items() if name.replace("nn.", "M.") != ours])
def test_what_is_called_otherwise_or_not_here_is_told(name):
    place, _, last = name.rpartition(".")
    with pytest.raises(AttributeError, match="\n  fix: ") as told:
        getattr({"nn": M, "F": F, "optim": optim}[place], last)
    assert TABLE[name] == "-" or TABLE[name].rpartition(".")[2] in str(told.value)


def array(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).normal(size=shape).astype(np.float32)


X, LINE, IMAGE, BAGS, LABEL = array(3, 4), array(2, 4, 9), array(2, 4, 6, 8), np.array([[0, 3, 3], [1, 2, 0]], np.int32), np.array([1, 0, 3], np.int32)
PROBABILITY = (1 / (1 + np.exp(-X))).astype(np.float32)
# The layer, its inputs, and the function of the layer and its inputs that it is.
LAYERS = [
    (M.Tanh(), (X,), lambda m, x: F.tanh(x)),
    (M.ELU(0.5), (X,), lambda m, x: F.elu(x, 0.5)),
    (M.CELU(0.5), (X,), lambda m, x: F.celu(x, 0.5)),
    (M.SELU(), (X,), lambda m, x: F.selu(x)),
    (M.Mish(), (X,), lambda m, x: F.mish(x)),
    (M.ReLU6(), (9 * X,), lambda m, x: F.relu6(x)),
    (M.Hardswish(), (X,), lambda m, x: F.hswish(x)),
    (M.Hardsigmoid(), (X,), lambda m, x: F.hsigmoid(x)),
    (M.Softplus(), (X,), lambda m, x: F.softplus(x)),
    (M.LogSigmoid(), (X,), lambda m, x: F.logsigmoid(x)),
    (M.LogSoftmax(0), (X,), lambda m, x: F.log_softmax(x, 0)),
    (M.GLU(1), (X,), lambda m, x: F.glu(x, 1)),
    (M.Flatten(), (IMAGE,), lambda m, x: F.flatten(x, 1)),
    (M.Unflatten(-1, (2, -1)), (IMAGE,), lambda m, x: F.reshape(x, (2, 4, 6, 2, 4))),
    (M.Upsample(scale_factor=2), (IMAGE,), lambda m, x: F.vision.interpolate(x, scale_factor=2, mode="nearest")),
    (M.Upsample((3, 9), mode="bilinear", align_corners=True), (IMAGE,), lambda m, x: F.vision.interpolate(x, (3, 9), align_corners=True)),
    (M.MaxPool1d(3, 2, 1, ceil_mode=True), (LINE,), lambda m, x: F.max_pool1d(x, 3, 2, 1, True)),
    (M.AvgPool1d(3, 2, 1, "average"), (LINE,), lambda m, x: F.avg_pool1d(x, 3, 2, 1, "average")),
    (M.AdaptiveMaxPool1d(4), (LINE,), lambda m, x: F.adaptive_max_pool1d(x, 4)),
    (M.AdaptiveAvgPool1d(4), (LINE,), lambda m, x: F.adaptive_avg_pool1d(x, 4)),
    (M.ConvTranspose1d(4, 6, 3, 2, 1, 1, groups=2), (LINE,), lambda m, x: F.conv_transpose1d(x, m.weight, m.bias, 2, 1, 1, 1, 2)),
    (M.PixelUnshuffle(2), (IMAGE,), lambda m, x: F.pixel_unshuffle(x, 2)),
    (M.Unfold((3, 2), padding=1, stride=2), (IMAGE,), lambda m, x: F.unfold(x, (3, 2), padding=1, stride=2)),
    (M.Fold((3, 4), 2), (array(2, 8, 6),), lambda m, x: F.fold(x, (3, 4), 2)),
    (M.RMSNorm(9, eps=0.1), (LINE,), lambda m, x: F.rms_norm(x, 9, m.weight, 0.1)),
    (M.RMSNorm((4, 9), affine=False), (LINE,), lambda m, x: F.rms_norm(x, (4, 9))),
    (M.EmbeddingBag(4, 5, "sum", padding_idx=1), (BAGS,), lambda m, i: F.embedding_bag(i, m.weight, mode="sum", padding_idx=1)),
    (M.EmbeddingBag(4, 5), (BAGS.ravel(), np.array([0, 2], np.int32)), lambda m, i, o: F.embedding_bag(i, m.weight, o)),
    (M.Bilinear(4, 2, 5), (X, array(3, 2)), lambda m, x, y: F.bilinear(x, y, m.weight, m.bias)),
    (M.CosineSimilarity(), (X, array(3, 4, seed=1)), lambda m, x, y: F.cosine_similarity(x, y)),
    (M.PairwiseDistance(1.0, keepdims=True), (X, array(3, 4, seed=1)), lambda m, x, y: F.pairwise_distance(x, y, 1.0, keepdims=True)),
    (M.CrossEntropyLoss(label_smooth=0.1, reduction="sum"), (X, LABEL), lambda m, x, i: F.loss.cross_entropy(x, i, label_smooth=0.1, reduction="sum")),
    (M.NLLLoss(ignore_index=0), (X, LABEL), lambda m, x, i: F.loss.nll_loss(x, i, ignore_index=0)),
    (M.BCELoss(), (PROBABILITY, PROBABILITY), lambda m, x, y: F.loss.binary_cross_entropy(x, y, with_logits=False)),
    (M.BCEWithLogitsLoss("none"), (X, PROBABILITY), lambda m, x, y: F.loss.binary_cross_entropy(x, y, reduction="none")),
    (M.MSELoss(), (X, PROBABILITY), lambda m, x, y: F.loss.square_loss(x, y)),
    (M.L1Loss("sum"), (X, PROBABILITY), lambda m, x, y: F.loss.l1_loss(x, y, "sum")),
    (M.SmoothL1Loss(0.5), (X, PROBABILITY), lambda m, x, y: F.loss.smooth_l1_loss(x, y, beta=0.5)),
    (M.HuberLoss(0.5), (X, PROBABILITY), lambda m, x, y: F.loss.huber_loss(x, y, delta=0.5)),
    (M.KLDivLoss(reduction="batchmean"), (X, PROBABILITY), lambda m, x, y: F.loss.kl_div(x, y, "batchmean")),
    (M.CosineEmbeddingLoss(0.1), (X, PROBABILITY, np.array([1, -1, 1], np.int32)), lambda m, x, y, i: F.loss.cosine_embedding_loss(x, y, i, 0.1)),
    (M.TripletMarginLoss(9.0, swap=True), (X, PROBABILITY, -X), lambda m, x, y, z: F.loss.triplet_margin_loss(x, y, z, 9.0, swap=True)),
    (M.TransformerEncoderLayer(4, 2, 8, activation=F.silu, norm_first=True), (array(2, 5, 4),), lambda m, x: _encoded(m, x)),
    (M.TransformerEncoder(M.TransformerEncoderLayer(4, 2, 8, norm_first=True), 2, M.LayerNorm(4)), (array(2, 5, 4),), lambda m, x: m.norm(_encoded(m.layers[1], _encoded(m.layers[0], x)))),
    (M.TransformerDecoderLayer(4, 2, 8), (array(2, 3, 4), array(2, 5, 4)), lambda m, x, y: _decoded(m, x, y)),
    (M.TransformerDecoder(M.TransformerDecoderLayer(4, 2, 8), 1), (array(2, 3, 4), array(2, 5, 4)), lambda m, x, y: _decoded(m.layers[0], x, y)),
    (M.Transformer(4, 2, 1, 1, 8), (array(2, 5, 4), array(2, 3, 4)), lambda m, x, y: m.decoder(y, m.encoder(x))),
]  # fmt: skip


def _encoded(m, x):
    """A layer that normalizes first, of its parts."""
    y = m.norm1(x)
    x = x + m.self_attn(y, y, y)[0]
    return x + m.linear2(m.activation(m.linear1(m.norm2(x))))


def _decoded(m, x, memory):
    """A layer that normalizes behind, of its parts."""
    x = m.norm1(x + m.self_attn(x, x, x)[0])
    x = m.norm2(x + m.multihead_attn(x, memory, memory)[0])
    return m.norm3(x + m.linear2(F.relu(m.linear1(x))))


@pytest.mark.parametrize("symbolic", [None, False, True], ids=["eager", "value", "symbolic"])
@pytest.mark.parametrize(("layer", "inputs", "function"), LAYERS, ids=[repr(layer).split("(")[0] for layer, *_ in LAYERS])
def test_a_layer_is_its_function(layer, inputs, function, symbolic):
    layer.eval()
    call = layer.__call__ if symbolic is None else trace(lambda *given: layer(*given), symbolic=symbolic)
    given = [Tensor(x) for x in inputs]
    want = function(layer, *given).numpy()
    for _ in range(2):
        np.testing.assert_allclose(call(*given).numpy(), want, rtol=1e-5, atol=1e-6)
    again = pickle.loads(pickle.dumps(layer))
    np.testing.assert_allclose(again(*given).numpy(), want, rtol=1e-5, atol=1e-6)


def test_masks_and_causality_hide_positions():
    layer = M.TransformerEncoderLayer(4, 2, 8).eval()
    x, later = Tensor(array(2, 5, 4)), np.triu(np.ones((5, 5), bool), 1)
    want = layer(x, Tensor(later)).numpy()
    np.testing.assert_allclose(layer(x, is_causal=True).numpy(), want, rtol=1e-5, atol=1e-6)
    assert abs(layer(x).numpy() - want)[:, :-1].max() > 1e-3
    alone = layer(x, src_key_padding_mask=Tensor(np.arange(5)[None] >= [[2], [5]])).numpy()
    np.testing.assert_allclose(alone[0, :2], layer(x[:1, :2]).numpy()[0], rtol=1e-5, atol=1e-6)


def test_whole_channels_are_dropped_in_training_alone():
    layer = M.Dropout2d(0.5)
    y = layer(F.ones((8, 32, 3, 3))).numpy().reshape(256, 9)
    assert set(np.unique(y)) == {0, 2} and (y == y[:, :1]).all() and 64 < y[:, 0].sum() / 2 < 192
    x = F.ones((1, 2, 2))
    assert layer.eval()(x) is x and F.dropout2d(x, 0.0) is x


def test_a_step_trains_what_is_made_of_them():
    mge.random.seed(1)
    body = M.Sequential(M.EmbeddingBag(10, 8), M.Unflatten(1, (2, 4)), M.TransformerEncoderLayer(4, 2, 8, dropout=0.0), M.Flatten(), M.RMSNorm(8), M.ELU(), M.Linear(8, 2), M.LogSoftmax(1))
    gm, optimizer, loss = GradManager().attach(body.parameters()), optim.Adam(body.parameters(), lr=0.01), M.NLLLoss()

    @trace(symbolic=True, opt_level=3)
    def step(x, y):
        with gm:
            found = loss(body(x), y)
            gm.backward(found)
        optimizer.step().clear_grad()
        return found

    bags = np.random.default_rng(1).integers(0, 10, (64, 5)).astype(np.int32)
    label = (bags.sum(1) > 22).astype(np.int32)
    losses = [step(Tensor(bags), Tensor(label)).item() for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_squares_of_halves_are_summed_in_float32(dtype):
    x = np.full((2, 64), 300.0, np.float32)  # whose squares are beyond float16
    y = F.rms_norm(Tensor(x).astype(dtype), 64)
    assert y.dtype.name == dtype and (y.numpy().astype(np.float32) == 1).all()


ERRORS = {
    "an odd number of gates": (lambda: F.glu(Tensor(X[:, :3])), ValueError, "cannot be halved"),
    "a slope of nothing": (lambda: F.celu(Tensor(X), 0), ValueError, "alpha is 0"),
    "images for lines": (lambda: F.max_pool1d(Tensor(IMAGE), 2), ValueError, r"not \[n, c, l\]"),
    "lines for images": (lambda: F.avg_pool2d(Tensor(LINE), 2), ValueError, r"not \[n, c, h, w\]"),
    "columns of another image": (lambda: F.fold(F.ones((1, 4, 5)), 4, 2), ValueError, r"columns \[n, c \* 4, 3 \* 3\]"),
    "pixels that do not fit": (lambda: F.pixel_unshuffle(Tensor(IMAGE), 4), ValueError, "not multiples of 4"),
    "a shape that is not the last": (lambda: F.rms_norm(Tensor(X), 3), ValueError, "does not end in"),
    "another mode of bags": (lambda: M.EmbeddingBag(3, 2, "median"), ValueError, "not one of sum, mean, max"),
    "bags without offsets": (lambda: F.embedding_bag(Tensor(LABEL), Tensor(X)), ValueError, "without offsets"),
    "maxima by offsets": (lambda: F.embedding_bag(Tensor(LABEL), Tensor(X), Tensor([0]), "max"), ValueError, "takes no offsets"),
    "weights of means": (lambda: F.embedding_bag(Tensor(BAGS), Tensor(X), per_sample_weights=Tensor(X[:2, :3])), ValueError, "for mode 'sum'"),
    "vectors that do not fit": (lambda: F.bilinear(Tensor(X), Tensor(X), F.ones((1, 4, 3))), ValueError, "do not fit"),
    "an axis to split": (lambda: M.Unflatten(7, (1, 1))(Tensor(X)), ValueError, "axis 7"),
    "no size": (lambda: M.Upsample(), ValueError, "exactly one"),
    "places of another batch": (lambda: F.vision.grid_sample(Tensor(IMAGE), F.ones((1, 2, 2, 2))), ValueError, "with a number for each spatial axis"),
    "an activation": (lambda: M.TransformerEncoderLayer(4, 2, activation="tanh"), ValueError, "give a function"),
    "no layers": (lambda: M.TransformerDecoder(M.TransformerDecoderLayer(4, 2), 0), ValueError, "at least 1"),
    "a vector without channels": (lambda: F.dropout2d(F.ones(3), 0.5), ValueError, r"not \[n, c, ...\]"),
    "a label of another shape": (lambda: F.loss.nll_loss(Tensor(X), Tensor([[1]])), ValueError, "nll_loss: label has shape"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_what_does_not_fit_is_told(case):
    call, kind, message = ERRORS[case]
    with pytest.raises(kind, match=message):
        call()


# -- NumPy's functions of tensors

REDUCTIONS = [np.sum, np.prod, np.min, np.max, np.amin, np.amax, np.mean, np.var, np.std, np.any, np.all]


@pytest.mark.parametrize("symbolic", [None, False, True], ids=["eager", "value", "symbolic"])
@pytest.mark.parametrize("given", [{}, {"axis": 0}, {"axis": 1, "keepdims": True}, {"axis": (0, 1)}], ids=str)
@pytest.mark.parametrize("function", REDUCTIONS, ids=lambda each: each.__name__)
def test_numpys_reductions_are_the_tensors(function, given, symbolic):
    call = (lambda x: function(x, **given)) if symbolic is None else trace(lambda x: function(x, **given), symbolic=symbolic)
    for _ in range(2):
        got = call(Tensor(X))
        assert isinstance(got, Tensor)
        np.testing.assert_allclose(got.numpy(), function(X, **given), rtol=1e-5)


def test_numpys_reductions_have_gradients():
    x = mge.Parameter(X)
    with GradManager().attach(x) as gm:
        gm.backward(np.sum(np.mean(x * x, 0)))
    np.testing.assert_allclose(x.grad.numpy(), 2 * X / 3, rtol=1e-6)


OF_NUMPY = {
    "concatenate": lambda x: np.concatenate([x, x]), "median": np.median, "sum in another dtype": lambda x: np.sum(x, dtype="float64"),
    "mean by keyword": lambda x: np.mean(a=x), "sum where": lambda x: np.sum(x, where=X > 0), "argmax": np.argmax, "percentile": lambda x: np.percentile(x, 30),
    "shape": np.shape, "where": lambda x: np.where(x > 0, x, 0), "norm": np.linalg.norm, "isclose": lambda x: np.isclose(x, x + 1), "maximum": lambda x: np.maximum(x, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_NUMPY)
def test_other_functions_of_numpy_compute_on_the_host(name):
    got, want = OF_NUMPY[name](Tensor(X)), OF_NUMPY[name](X)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6)


@pytest.mark.parametrize("write", [lambda x: np.copyto(x, 1), lambda x: np.put(x, 0, 1), lambda x: np.sum(x, out=x), lambda x: np.sum(x, nonsense=1)])
def test_what_would_write_to_a_copy_is_refused(write):
    x = Tensor(X)
    with pytest.raises((TypeError, ValueError)):
        write(x)
    np.testing.assert_array_equal(x.numpy(), X)
