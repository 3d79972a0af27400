"""Whole training steps of the example models: they learn, and traced steps equal eager ones."""

import pickle

import numpy as np
import pytest
from models import MLP, SequenceClassifier, UNet, tiny_resnet

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import Tensor
from megengine.amp import autocast
from megengine.autodiff import GradManager
from megengine.jit import trace


def batch(shape, classes, spatial=(), kind="float32", seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) if kind == "float32" else rng.integers(0, 20, shape)
    return x.astype(kind), rng.integers(0, classes, (shape[0], *spatial)).astype("int32")


CASES = {
    "mlp": (MLP, batch((8, 8), 4)),
    "resnet": (tiny_resnet, batch((4, 3, 8, 8), 10)),
    "lstm": (SequenceClassifier, batch((4, 5), 3, kind="int32")),
    "unet": (UNet, batch((2, 1, 8, 8), 2, spatial=(8, 8))),
}
OPTIMIZERS = {
    "sgd": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=1e-4),
    "adam": lambda params: optim.Adam(params, lr=0.01),
}


def train(make, data, optimizer, steps, **tracing):
    """Losses of each step and the final state dict."""
    mge.random.seed(7)
    model = make()
    opt = OPTIMIZERS[optimizer](model.parameters())
    gm = GradManager().attach(model.parameters())

    def step(x, label):
        with gm:
            loss = F.nn.cross_entropy(model(x), label)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    if tracing:
        step = trace(step, **tracing)
    x, label = (Tensor(v) for v in data)
    losses = [float(step(x, label).numpy()) for _ in range(steps)]
    return losses, model.state_dict()


@pytest.mark.parametrize("tracing", [{}, {"symbolic": True, "opt_level": 3}], ids=["eager", "level3"])
@pytest.mark.parametrize("low", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_losses_of_mixed_precision_stay_beside_those_of_float32(name, low, tracing):
    model, data = CASES[name]
    expected, _ = train(model, data, "adam", 10)
    with autocast(low_prec_dtype=low):
        losses, state = train(model, data, "adam", 10, **tracing)
    np.testing.assert_allclose(losses[0], expected[0], rtol={"float16": 2.0**-11, "bfloat16": 2.0**-8}[low])
    np.testing.assert_allclose(losses, expected, rtol=0.03)  # ten steps of Adam divide small gradients by their size
    assert losses != expected
    assert {value.dtype for value in state.values()} == {np.dtype("float32")}


@pytest.mark.parametrize("name", CASES)
def test_models_learn_a_batch(name):
    losses, _ = train(*CASES[name], "adam", 30)
    assert losses[-1] < 0.6 * losses[0]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", CASES)
def test_a_traced_training_step_equals_an_eager_one(name, optimizer, symbolic):
    eager, eager_state = train(*CASES[name], optimizer, 4)
    traced, traced_state = train(*CASES[name], optimizer, 4, symbolic=symbolic)
    assert traced == eager
    for key, value in eager_state.items():
        np.testing.assert_array_equal(traced_state[key], value, err_msg=key)


def test_training_goes_on_from_a_saved_state():
    make, (x, label) = CASES["mlp"]
    x, label = Tensor(x), Tensor(label)
    model = make()
    opt = OPTIMIZERS["adam"](model.parameters())

    def steps(model, opt, count):
        gm = GradManager().attach(model.parameters())
        for _ in range(count):
            with gm:
                gm.backward(F.nn.cross_entropy(model(x), label))
            opt.step().clear_grad()
        return model.state_dict()

    steps(model, opt, 3)
    saved = pickle.dumps((model.state_dict(), opt.state_dict()))
    want = steps(model, opt, 3)
    twin = make()
    twin_opt = OPTIMIZERS["adam"](twin.parameters())
    model_state, opt_state = pickle.loads(saved)
    twin.load_state_dict(model_state)
    twin_opt.load_state_dict(opt_state)
    for key, value in steps(twin, twin_opt, 3).items():
        np.testing.assert_array_equal(value, want[key])


def test_a_gradient_penalty_trains_through_a_model():
    """d/dw of |d model / dx|^2, as in WGAN-GP (Gulrajani et al. 2017), against finite differences."""
    mge.random.seed(1)
    model = M.Sequential(
        M.Conv2d(2, 3, 3, padding=1), M.SiLU(), M.BatchNorm2d(3), M.Conv2d(3, 1, 3)
    )
    x = Tensor(np.random.default_rng(0).standard_normal((2, 2, 5, 5)).astype("float32"))
    weight = model[0].weight

    def penalty(outer=None):
        with GradManager().attach(x) as inner:
            inner.backward(model(x) ** 2)
        grad, x.grad = x.grad, None
        value = (grad**2).sum()
        if outer is not None:
            outer.backward(value)
        return float(value.numpy())

    with GradManager().attach(weight) as outer:
        penalty(outer)
    start = weight.numpy()
    direction = np.random.default_rng(1).standard_normal(start.shape).astype("float32")

    def slope(step):
        values = []
        for by in (step, -step):
            weight[...] = start + by * direction
            values.append(penalty())
        return (values[0] - values[1]) / (2 * step)

    want = (4 * slope(3e-3) - slope(6e-3)) / 3  # without the term of the step squared
    assert (weight.grad.numpy() * direction).sum() == pytest.approx(want, rel=2e-3)


@pytest.mark.parametrize("options", [None, {}, {"without_host": True}, {"memory_limit": "4MB"}])
def test_modules_that_were_loaded_from_the_same_tensors_are_trained_apart(options):
    """They hold one value, which a step that updates in place must not write to."""
    trained, kept = (M.Sequential(M.Linear(64, 64), M.Linear(64, 64)) for _ in range(2))
    given = {path: Tensor(value) for path, value in kept.state_dict().items()}
    manager = GradManager().attach(trained.parameters())
    optimizer = optim.Adam(trained.parameters(), lr=0.01)

    def step(x):
        with manager:
            manager.backward(F.mean(trained(x) ** 2))
        optimizer.step().clear_grad()

    run = step if options is None else trace(step, symbolic=True, **options)
    x = Tensor(np.ones((4, 64), np.float32))
    for _ in range(3):
        run(x)
    wanted = kept.state_dict()
    for net in (trained, kept):
        net.load_state_dict(given)
    for _ in range(3):
        run(x)
    assert all(np.array_equal(given[path].numpy(), wanted[path]) for path in wanted)
    assert all(np.array_equal(kept.state_dict()[path], wanted[path]) for path in wanted)
    assert not np.array_equal(trained.state_dict()["0.weight"], wanted["0.weight"])
