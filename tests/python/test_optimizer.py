"""Optimizers against NumPy, their groups and state, schedules and clipping."""

import copy
import pickle

import numpy as np
import pytest

import megengine.functional as F
import megengine.optimizer as optim
from megengine import Parameter, Tensor
from megengine.amp import convert_tensor_format
from megengine.autodiff import GradManager
from megengine.jit import trace


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# -- one step of each rule in float64; s is the state of one parameter --------------------------


def sgd(p, g, s, lr, momentum=0.0, nesterov=False, weight_decay=0.0):
    g = g + weight_decay * p
    if momentum:
        s["v"] = momentum * s.get("v", 0) + g
        g = g + momentum * s["v"] if nesterov else s["v"]
    return p - lr * g


def adam_moments(g, s, betas):
    t = s["t"] = s.get("t", 0) + 1
    s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g**2
    return s["m"] / (1 - betas[0] ** t), s["v"] / (1 - betas[1] ** t)


def adam(p, g, s, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
    m, v = adam_moments(g + weight_decay * p, s, betas)
    return p - lr * m / (np.sqrt(v) + eps)


def adamw(p, g, s, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
    m, v = adam_moments(g, s, betas)
    return p - lr * (m / (np.sqrt(v) + eps) + weight_decay * p)


def adagrad(p, g, s, lr=1e-2, lr_decay=0.0, eps=1e-10, weight_decay=0.0):
    g = g + weight_decay * p
    s["t"] = s.get("t", 0) + 1
    s["s"] = s.get("s", 0) + g**2
    return p - lr / (1 + (s["t"] - 1) * lr_decay) * g / (np.sqrt(s["s"]) + eps)


def adadelta(p, g, s, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0.0):
    g = g + weight_decay * p
    s["s"] = rho * s.get("s", 0) + (1 - rho) * g**2
    d = np.sqrt(s.get("a", 0) + eps) / np.sqrt(s["s"] + eps) * g
    s["a"] = rho * s.get("a", 0) + (1 - rho) * d**2
    return p - lr * d


def lamb(
    p,
    g,
    s,
    lr,
    betas=(0.9, 0.999),
    eps=1e-8,
    bias_correction=True,
    weight_decay=0.0,
    always_adapt=False,
):
    m, v = adam_moments(g, s, betas)
    if not bias_correction:
        m, v = s["m"], s["v"]
    u = m / (np.sqrt(v) + eps) + weight_decay * p
    adapts = (always_adapt or weight_decay > 0) and np.linalg.norm(p) > 0 and np.linalg.norm(u) > 0
    return p - lr * (np.linalg.norm(p) / np.linalg.norm(u) if adapts else 1) * u


def rmsprop(p, g, s, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False):
    g = g + weight_decay * p
    s["s"] = alpha * s.get("s", 0) + (1 - alpha) * g**2
    s["m"] = alpha * s.get("m", 0) + (1 - alpha) * g
    u = g / (np.sqrt(s["s"] - (s["m"] ** 2 if centered else 0)) + eps)
    s["v"] = momentum * s.get("v", 0) + u
    return p - lr * s["v"]


def lion(p, g, s, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
    m = s.get("m", 0 * p)
    s["m"] = betas[1] * m + (1 - betas[1]) * g
    return p - lr * (np.sign(betas[0] * m + (1 - betas[0]) * g) + weight_decay * p)


def adafactor(p, g, s, lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0):
    t = s["t"] = s.get("t", 0) + 1
    new, least = t**beta2_decay, 2.0**-23 if eps[0] is None else eps[0]
    if p.ndim < 2:
        v = s["v"] = (1 - new) * s.get("v", 0) + new * g**2
    else:
        for name, axis in (("r", -1), ("c", -2)):
            s[name] = (1 - new) * s.get(name, 0) + new * (g**2).mean(axis, keepdims=True)
        v = s["r"] * s["c"] / np.maximum(s["r"].mean(-2, keepdims=True), least)
    u = g / np.sqrt(np.maximum(v, least**2))
    u = u / max(1, np.sqrt((u**2).mean()) / d)
    return p * (1 - lr * weight_decay) - max(eps[1], np.sqrt((p**2).mean())) * min(lr, t**-0.5) * u


RULES = [
    (optim.RMSprop, rmsprop, {"lr": 0.01}),
    (optim.RMSprop, rmsprop, {"lr": 0.01, "alpha": 0.8, "eps": 0.1, "weight_decay": 0.1, "momentum": 0.9, "centered": True}),
    (optim.Lion, lion, {"lr": 0.01}),
    (optim.Lion, lion, {"lr": 0.01, "betas": (0.5, 0.8), "weight_decay": 0.1}),
    (optim.Adafactor, adafactor, {}),
    (optim.Adafactor, adafactor, {"lr": 0.9, "beta2_decay": -0.5, "eps": (0.1, 0.5), "d": 0.3, "weight_decay": 0.1}),
    (optim.SGD, sgd, {"lr": 0.1}),
    (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}),
    (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    (optim.Adam, adam, {"lr": 0.01}),
    (optim.Adam, adam, {"lr": 0.01, "betas": (0.8, 0.9), "weight_decay": 0.1, "eps": 1e-3}),
    (optim.AdamW, adamw, {"lr": 0.01, "weight_decay": 0.1}),
    (optim.AdamW, adamw, {"lr": 0.01, "weight_decay": 0.0}),
    (optim.Adagrad, adagrad, {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1}),
    (optim.Adadelta, adadelta, {}),
    (optim.Adadelta, adadelta, {"lr": 0.5, "rho": 0.5, "weight_decay": 0.1}),
    (optim.LAMB, lamb, {"lr": 0.01}),
    (optim.LAMB, lamb, {"lr": 0.01, "weight_decay": 0.1}),
    (optim.LAMB, lamb, {"lr": 0.01, "always_adapt": True, "bias_correction": False}),
]
# Averages in codes: no rule in float64 has their bits, see test_adam8bit.py.
CODED = [(cls, None, {"lr": 0.01, "weight_decay": 0.1, "block_size": 16, "min_size": 0}) for cls in (optim.Adam8bit, optim.AdamW8bit)]


def params():
    return [Parameter(array(3, 4)), Parameter(array(5, seed=1))]


def descend(opt, ps, steps):
    """Steps along given gradients; returns the parameters as arrays."""
    for step in range(steps):
        for i, p in enumerate(ps):
            p.grad = Tensor(array(*p.shape, seed=100 + 10 * step + i))
        opt.step().clear_grad()
    return [p.numpy() for p in ps]


@pytest.mark.parametrize(("cls", "rule", "options"), RULES)
def test_steps_follow_the_published_rule(cls, rule, options):
    ps = params()
    want = [p.numpy().astype(np.float64) for p in ps]
    states = [{}, {}]
    got = descend(cls(ps, **options), ps, 4)
    for step in range(4):
        for i in range(2):
            grad = array(*want[i].shape, seed=100 + 10 * step + i).astype(np.float64)
            want[i] = rule(want[i], grad, states[i], **options)
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-6)


def matrix():
    return array(6, 4), Parameter(array(4, 3)), F.matmul


def channels_last():
    """States began row-major, and updates left them channels-last: the second call was another program than the first."""
    return array(2, 3, 5, 5), convert_tensor_format(Parameter(array(4, 3, 3, 3))), F.conv2d


@pytest.mark.parametrize("weight", [matrix, channels_last])
@pytest.mark.parametrize(("cls", "rule", "options"), RULES + CODED)
def test_a_traced_step_equals_an_eager_one(cls, rule, options, weight):
    def training(tracing):
        x, w, product = weight()
        opt = cls([w], **options)
        gm = GradManager().attach([w])

        def step(data):
            with gm:
                loss = ((product(data, w) - 1) ** 2).mean()
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        step = trace(step, symbolic=False) if tracing else step
        losses = []
        for epoch in range(5):
            for group in opt.param_groups:
                group["lr"] *= 0.5 if epoch == 3 else 1
            losses.append(float(step(Tensor(x)).numpy()))
        return losses, w.numpy()

    (eager_losses, eager), (traced_losses, traced) = training(False), training(True)
    np.testing.assert_allclose(traced_losses, eager_losses, rtol=1e-5)
    np.testing.assert_allclose(traced, eager, rtol=1e-5, atol=1e-6)


def test_weight_decay_may_change_between_traced_steps():
    w = Parameter(np.ones(2, np.float32))
    opt = optim.SGD([w], lr=0.1, weight_decay=0.0)
    gm = GradManager().attach([w])

    @trace(symbolic=False)
    def step(x):
        with gm:
            gm.backward((w * x).sum())
        opt.step().clear_grad()

    zero = Tensor(np.zeros(2, np.float32))
    for _ in range(3):
        step(zero)
    np.testing.assert_array_equal(w.numpy(), 1)
    opt.param_groups[0]["weight_decay"] = 1.0
    step(zero)
    np.testing.assert_allclose(w.numpy(), 0.9, rtol=1e-6)


# -- groups --------------------------------------------------------------------------------------


def test_groups_have_options_of_their_own():
    a, b = params()
    opt = optim.SGD([{"params": a, "lr": 1.0}, {"params": [b]}], lr=0.5)
    a.grad, b.grad = F.ones_like(a), F.ones_like(b)
    before = a.numpy(), b.numpy()
    opt.step()
    np.testing.assert_allclose(a.numpy(), before[0] - 1, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(b.numpy(), before[1] - 0.5, rtol=1e-6, atol=1e-6)


def test_wrong_parameters_are_refused():
    p = params()[0]
    with pytest.raises(ValueError, match="empty"):
        optim.SGD([], lr=1)
    with pytest.raises(TypeError, match="Parameter"):
        optim.SGD([Tensor([1.0])], lr=1)
    with pytest.raises(TypeError, match="mixes"):
        optim.SGD([p, {"params": [p]}], lr=1)
    with pytest.raises(TypeError):
        optim.SGD(3, lr=1)
    with pytest.raises(AssertionError, match="^some parameters appear in more than one parameter group"):
        optim.SGD([{"params": [p]}, {"params": [p]}], lr=1)
    with pytest.raises(ValueError, match="^Invalid learning rate: -1"):
        optim.SGD([p], lr=-1)
    with pytest.raises(ValueError, match="betas"):
        optim.Adam([p], lr=1, betas=(1.0, 0.9))
    with pytest.raises(ValueError, match="^Nesterov momentum requires a momentum"):
        optim.SGD([p], lr=1, nesterov=True)


def test_a_missing_required_option_is_a_value_error():
    from megengine.optimizer.optimizer import required

    with pytest.raises(ValueError, match="speed"):
        optim.Optimizer(params(), {"speed": required})


def test_parameters_without_gradient_are_left_alone_and_count_no_step():
    a, b = params()
    opt = optim.Adam([a, b], lr=0.1)
    before = b.numpy()
    a.grad = F.ones_like(a)
    opt.step()
    np.testing.assert_array_equal(b.numpy(), before)
    state = opt.state_dict()["state"]
    assert state[0]["step"] == 1 and state[1]["step"] == 0
    b.grad = F.ones_like(b)
    opt.step()
    state = opt.state_dict()["state"]
    assert state[0]["step"] == 2 and state[1]["step"] == 1
    # the first step of Adam moves each element by lr, whatever the gradient
    np.testing.assert_allclose(b.numpy(), before - 0.1, rtol=1e-4)


@pytest.mark.parametrize("undone", ["a plan", "a limit that cannot hold"])
@pytest.mark.parametrize("cls", [optim.Adadelta, optim.Adafactor, optim.Adagrad, optim.Adam, optim.AdamW, optim.AdamW8bit, optim.LAMB])
def test_a_call_that_is_undone_leaves_the_count_of_steps(cls, undone):
    used, unused = Parameter(array(64)), Parameter(array(64))
    opt, gm = cls([used, unused], lr=0.1), GradManager().attach([used, unused])

    def body(x):
        with gm:
            gm.backward(F.sum(used * x))
        opt.step().clear_grad()

    if undone == "a plan":
        trace(body, symbolic=True).plan(Tensor(array(64)))
    else:
        with pytest.raises(MemoryError):
            trace(body, symbolic=True, memory_limit=64)(Tensor(array(64)))
    assert [float(state["step"]) for state in opt.state_dict()["state"].values()] == [0, 0]
    step = trace(body, symbolic=True)
    step(Tensor(array(64)))
    step(Tensor(array(64)))
    assert [float(state["step"]) for state in opt.state_dict()["state"].values()] == [2, 0]


def test_steps_keep_handles_and_dtypes():
    w = Parameter(np.ones(4, np.float16))
    opt = optim.SGD([w], lr=0.1, momentum=0.9)
    w.grad = Tensor(np.ones(4, np.float16))
    assert opt.step() is opt and w.dtype == np.float16
    np.testing.assert_allclose(w.numpy(), 0.9, rtol=1e-3)


@pytest.mark.parametrize("gradient", [1e-4, 300.0])
@pytest.mark.parametrize("cls", [optim.Adadelta, optim.Adafactor, optim.Adagrad, optim.Adam, optim.AdamW, optim.LAMB])
def test_squares_of_half_gradients_are_float32(cls, gradient):
    """In float16 the square of 1e-4 is 0 and that of 300 infinite: the step would be infinite, or none."""
    half, single = (Parameter(np.ones(4, dtype)) for dtype in (np.float16, np.float32))
    for p in (half, single):
        opt = cls([p], lr=0.125)
        for _ in range(2):
            p.grad = Tensor(np.full(4, gradient, np.float16).astype(p.dtype))
            opt.step()
    np.testing.assert_allclose(half.numpy(), single.numpy(), rtol=2e-3)


def test_states_saved_as_halves_are_converted_when_loaded():
    p = Parameter(np.ones(4, np.float16))
    opt = optim.Adam([p], lr=0.5)
    saved = opt.state_dict()
    saved["state"][0]["exp_avg_sq"] = np.full(4, 0.25, np.float16)
    opt.load_state_dict(saved)
    loaded = opt.state_dict()["state"][0]["exp_avg_sq"]
    assert loaded.dtype == np.float32 and (loaded == 0.25).all()


def test_a_momentum_can_be_set_later():
    p, q = Parameter(np.ones(4, np.float32)), Parameter(np.ones(4, np.float32))
    late, early = optim.SGD([p], lr=0.1), optim.SGD([q], lr=0.1, momentum=0.9)
    late.param_groups[0]["momentum"] = 0.9
    for _ in range(3):
        p.grad, q.grad = Tensor(np.ones(4, np.float32)), Tensor(np.ones(4, np.float32))
        late.step(), early.step()
    np.testing.assert_array_equal(p.numpy(), q.numpy())


def test_lamb_fp16_keeps_a_float32_copy():
    w = Parameter(np.ones(4, np.float16))
    opt = optim.LAMBFp16([w], lr=1e-4)
    for _ in range(3):
        w.grad = Tensor(np.ones(4, np.float16))
        opt.step()
    master = opt.state_dict()["state"][0]["param_fp32"]
    assert master.dtype == np.float32 and w.dtype == np.float16
    np.testing.assert_allclose(master, 1 - 3e-4, rtol=1e-5)


def test_a_custom_optimizer_defines_state_and_updates():
    class SignDescent(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        def _create_state(self, param_group):
            for param in param_group["params"]:
                self._add_state(param, "seen")

        def _updates(self, param_group):
            for param in param_group["params"]:
                if param.grad is not None:
                    self._state[param]["seen"] += 1
                    param -= param_group["lr"] * F.sign(param.grad)

    p = Parameter(np.zeros(2, np.float32))
    opt = SignDescent([p], lr=0.5)
    p.grad = Tensor([3.0, -2.0])
    opt.step()
    np.testing.assert_array_equal(p.numpy(), [-0.5, 0.5])
    np.testing.assert_array_equal(opt.state_dict()["state"][0]["seen"], [1, 1])


def test_clearing_zeroing_and_refusing():
    p = params()[0]
    opt = optim.SGD([p], lr=1)
    p.grad = F.ones_like(p)
    with pytest.warns(DeprecationWarning, match="Optimizer.zero_grad"):
        opt.zero_grad()
    np.testing.assert_array_equal(p.grad.numpy(), 0)
    assert opt.clear_grad() is opt and p.grad is None
    with pytest.raises(RuntimeError, match="GradManager"):
        opt.backward(Tensor(1.0))
    opt.bcast_param()


# -- state ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "rule", "options"), RULES + CODED)
def test_a_loaded_state_goes_on_where_it_was_saved(cls, rule, options):
    ps = params()
    opt = cls(ps, **options)
    descend(opt, ps, 2)
    state = pickle.loads(pickle.dumps(opt.state_dict()))
    twins = [Parameter(p.numpy()) for p in ps]
    twin = cls(twins, **{**options, "lr": 123.0})
    twin.load_state_dict(state)
    for ours, theirs in zip(descend(twin, twins, 2), descend(opt, ps, 2), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_state_dict_has_groups_and_states_by_number():
    a, b = params()
    opt = optim.Adam([{"params": [a]}, {"params": [b], "lr": 2.0}], lr=1.0)
    state = opt.state_dict()
    assert [group["params"] for group in state["param_groups"]] == [[0], [1]]
    assert [group["lr"] for group in state["param_groups"]] == [1.0, 2.0]
    assert set(state["state"][1]) == {"exp_avg", "exp_avg_sq", "step"}
    assert isinstance(state["state"][1]["exp_avg"], np.ndarray)
    assert opt.state_dict(keep_var=True)["state"][0]["exp_avg"] is opt._state[a]["exp_avg"]
    assert set(optim.SGD([a], lr=1).state_dict()["state"]) == set()
    assert set(optim.Adagrad([a]).state_dict()["state"][0]) == {"square_avg", "step"}
    assert set(optim.Adadelta([a]).state_dict()["state"][0]) == {"square_avg", "acc_delta", "step"}


def test_other_groups_cannot_be_loaded():
    a, b = params()
    state = optim.SGD([a, b], lr=1).state_dict()
    with pytest.raises(ValueError, match=r"\[1\] here and \[2\]"):
        optim.SGD([a], lr=1).load_state_dict(state)


@pytest.mark.parametrize(
    ("spoil", "error", "text"),
    [
        (lambda state: state["state"][1].pop("exp_avg"), ValueError, "needs .*exp_avg"),
        (lambda state: state["state"][1].update(momentum_buffer=np.zeros(3)), ValueError, "momentum_buffer"),
        (lambda state: state["state"].pop(1), ValueError, "parameter 1"),
        (lambda state: state["state"][1].update(exp_avg=np.zeros(5)), ValueError, r"\(5,\)"),
        (lambda state: state["state"][1].update(exp_avg=np.array(["a"] * 3)), TypeError, "numbers"),
        (lambda state: state["param_groups"][0].update(lr=-1), ValueError, "-1"),
        (lambda state: state["param_groups"][0].update(lr=float("nan")), ValueError, "nan"),
        (lambda state: state["param_groups"][0].update(betas=(0.9, 1.5)), ValueError, "1.5"),
        (lambda state: state["param_groups"][0].update(betas=0.9), TypeError, "betas"),
        (lambda state: state["param_groups"][0].update(lr="fast"), TypeError, "fast"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(spoil, error, text):
    ps = [Parameter(array(2)), Parameter(array(3))]
    opt = optim.Adam(ps, lr=0.1)
    descend(opt, ps, 1)
    state = opt.state_dict()
    state["state"][0]["exp_avg"] = state["state"][0]["exp_avg"] + 1
    spoil(state)
    before = pickle.dumps(opt.state_dict())
    with pytest.raises(error, match=text):
        opt.load_state_dict(state)
    assert pickle.dumps(opt.state_dict()) == before


def test_a_copied_optimizer_is_independent():
    p = params()[0]
    opt = optim.Adam([p], lr=0.1)
    twin = copy.deepcopy(opt)
    p.grad = F.ones_like(p)
    opt.step()
    assert twin.state_dict()["state"][0]["step"] == 0


# -- schedules -----------------------------------------------------------------------------------


def test_multi_step_lr():
    opt = optim.SGD(params(), lr=1.0)
    schedule = optim.MultiStepLR(opt, [2, 4], gamma=0.1)
    group = opt.param_groups[0]
    assert group["initial_lr"] == 1.0 and schedule.current_epoch == 0
    seen = []
    for _ in range(5):
        seen.append(group["lr"])
        schedule.step()
    assert seen == pytest.approx([1, 1, 0.1, 0.1, 0.01])
    state = schedule.state_dict()
    assert state == {"milestones": [2, 4], "gamma": 0.1, "current_epoch": 5}
    schedule.step(0)
    assert group["lr"] == 1.0
    schedule.load_state_dict(state)
    assert schedule.current_epoch == 5


def test_milestones_must_rise():
    with pytest.raises(ValueError, match="^Milestones should be a list of increasing integers"):
        optim.MultiStepLR(optim.SGD(params(), lr=1), [4, 2])


def test_a_schedule_resumes_only_with_initial_rates():
    opt = optim.SGD(params(), lr=1.0)
    with pytest.raises(KeyError, match="initial_lr"):
        optim.MultiStepLR(opt, [2], current_epoch=3)
    optim.MultiStepLR(opt, [2])
    assert optim.MultiStepLR(opt, [2], current_epoch=3).current_epoch == 4
    assert opt.param_groups[0]["lr"] == pytest.approx(0.1)


def test_own_schedules_define_get_lr():
    class Halving(optim.LRScheduler):
        def get_lr(self):
            return [lr * 0.5**self.current_epoch for lr in self.base_lrs]

    opt = optim.SGD(params(), lr=8.0)
    schedule = Halving(opt)
    schedule.step()
    assert opt.param_groups[0]["lr"] == 4.0
    assert schedule.state_dict() == {"current_epoch": 1, "base_lrs": [8.0]}
    with pytest.raises(TypeError):
        Halving(3)


# -- clipping ------------------------------------------------------------------------------------


def with_grads():
    ps = [*params(), Parameter([1.0])]
    for i, p in enumerate(ps[:2]):
        p.grad = Tensor(array(*p.shape, seed=7 + i))
    return ps, np.concatenate([p.grad.numpy().ravel() for p in ps[:2]])


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, float("inf")])
def test_clip_grad_norm_scales_all_gradients_by_one_factor(order):
    ps, before = with_grads()
    total = np.linalg.norm(before, order)
    grad = ps[0].grad
    norm = optim.clip_grad_norm(ps, max_norm=total / 4, ord=order)
    assert float(norm.numpy()) == pytest.approx(total, rel=1e-5)
    assert ps[0].grad is grad
    after = np.concatenate([p.grad.numpy().ravel() for p in ps[:2]])
    np.testing.assert_allclose(after, before / 4, rtol=1e-4)


def test_clip_grad_norm_leaves_small_gradients():
    ps, before = with_grads()
    optim.clip_grad_norm(ps, max_norm=1e3)
    after = np.concatenate([p.grad.numpy().ravel() for p in ps[:2]])
    np.testing.assert_array_equal(after, before)
    with pytest.raises(ValueError, match="ord"):
        optim.clip_grad_norm(ps, 1.0, ord=0)
    assert float(optim.clip_grad_norm(Parameter([1.0]), 1.0).numpy()) == 0


def test_clip_grad_value_limits_every_element():
    ps, before = with_grads()
    optim.clip_grad_value(ps, -0.5, 0.25)
    after = np.concatenate([p.grad.numpy().ravel() for p in ps[:2]])
    np.testing.assert_allclose(after, np.clip(before, -0.5, 0.25), rtol=1e-6)
