"""Learning-rate schedules against PyTorch 2.15's sequences, averages of weights, and accumulated gradients in one traced step."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import Parameter
from megengine.autodiff import GradManager
from megengine.jit import trace

VALUES = [3, 2, 2.5, 2.1, 1.99999, 2, 2, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0, 2.1]
# A schedule, and the rates of torch.optim.lr_scheduler's class of that name and the same arguments, from 0.5.
SEQUENCES = {
    "lambda": (lambda opt: optim.LambdaLR(opt, lambda e: 1 / (1 + e)), [0.5, 0.25, 0.166666666667, 0.125, 0.1]),
    "lambdas": (lambda opt: optim.LambdaLR(opt, [lambda e: 1 / (1 + e)]), [0.5, 0.25, 0.166666666667, 0.125, 0.1]),
    "step": (lambda opt: optim.StepLR(opt, 3, 0.5), [0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125]),
    "exponential": (lambda opt: optim.ExponentialLR(opt, 0.9), [0.5, 0.45, 0.405, 0.3645, 0.32805, 0.295245]),
    "cosine": (lambda opt: optim.CosineAnnealingLR(opt, 4, 0.1), [0.5, 0.441421356237, 0.3, 0.158578643763, 0.1, 0.158578643763, 0.3]),
    "restarts": (
        lambda opt: optim.CosineAnnealingWarmRestarts(opt, 2, 2, 0.1),
        [0.5, 0.3, 0.5, 0.441421356237, 0.3, 0.158578643763, 0.5, 0.484775906502, 0.441421356237, 0.376536686473],
    ),
    "one cycle": (
        lambda opt: optim.OneCycleLR(opt, 2.0, 10),
        [0.08, 1.04, 2.0, 1.900969264027, 1.6234913079, 1.222524043873, 0.777483956127, 0.3765166921, 0.099038735973, 8e-06],
    ),
    "one other cycle": (
        lambda opt: optim.OneCycleLR(opt, [2.0], 8, pct_start=0.5, div_factor=10.0, final_div_factor=100.0),
        [0.2, 0.65, 1.55, 2.0, 1.707399674405, 1.001, 0.294600325595, 0.002],
    ),
}
PLATEAUS = {
    "min": ({"factor": 0.5, "patience": 1}, [0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.125, 0.125, 0.0625, 0.0625, 0.03125, 0.03125]),
    "max": (
        {"mode": "max", "factor": 0.5, "patience": 1, "threshold": 0.2, "threshold_mode": "abs", "cooldown": 2, "min_lr": 0.1},
        [0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125, 0.125, 0.1, 0.1, 0.1],
    ),
}  # fmt: skip


def sgd():
    return optim.SGD([Parameter([1.0])], lr=0.5)


def rate(opt):
    return opt.param_groups[0]["lr"]


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_schedule_has_the_rates_of_pytorch(name):
    make, wanted = SEQUENCES[name]
    opt = sgd()
    schedule, seen = make(opt), []
    for i in range(len(wanted)):
        seen.append(rate(opt))
        if i < len(wanted) - 1:
            schedule.step()
    assert seen == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", PLATEAUS)
def test_a_plateau_lowers_the_rates_when_pytorch_does(name):
    options, wanted = PLATEAUS[name]
    opt = sgd()
    schedule, seen = optim.ReduceLROnPlateau(opt, **options), []
    for value in VALUES:
        seen.append(rate(opt))
        schedule.step(mge.Tensor(value) if value == 2.5 else value)
    assert seen == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_schedule_goes_on_from_its_state_and_that_of_the_optimizer(name):
    make, wanted = SEQUENCES[name]
    opt, other = sgd(), sgd()
    schedule = make(opt)
    for _ in range(2):
        schedule.step()
    resumed = make(other)
    resumed.load_state_dict(schedule.state_dict())
    other.load_state_dict(opt.state_dict())
    assert rate(other) == rate(opt) and resumed.current_epoch == 2
    resumed.step()
    assert rate(other) == pytest.approx(wanted[3], rel=1e-9)
    assert make(opt).current_epoch == 0


def test_a_warm_up_rises_in_equal_steps_and_ends_at_the_lowest_rate():
    opt = sgd()
    schedule, seen = optim.CosineAnnealingLR(opt, T_max=6, eta_min=0.1, warmup=4), [rate(opt)]
    for _ in range(6):
        schedule.step()
        seen.append(rate(opt))
    assert seen == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.3, 0.1])


def test_one_cycle_may_be_called_after_its_last_step():
    opt = optim.SGD([mge.Parameter([1.0])], lr=1.0)
    schedule = optim.OneCycleLR(opt, 1.0, total_steps=4)
    for _ in range(3):
        schedule.step()
    last = rate(opt)
    schedule.step()
    assert rate(opt) == last


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda opt: optim.LambdaLR(opt, [abs, abs]), "2 functions for 1 groups"),
        (lambda opt: optim.StepLR(opt, 0), "step_size must be at least 1, got 0"),
        (lambda opt: optim.CosineAnnealingLR(opt, 0), "T_max must be at least 1"),
        (lambda opt: optim.CosineAnnealingLR(opt, 3, warmup=3), "warmup must be at least 0 and below T_max = 3"),
        (lambda opt: optim.CosineAnnealingWarmRestarts(opt, 2, 0), "T_mult must be at least 1"),
        (lambda opt: optim.OneCycleLR(opt, [1.0, 2.0], 9), "2 rates for 1 groups"),
        (lambda opt: optim.OneCycleLR(opt, 1.0, 1), "total_steps must be at least 2"),
        (lambda opt: optim.OneCycleLR(opt, 1.0, 9, pct_start=1.0), "pct_start must lie between"),
        (lambda opt: optim.OneCycleLR(opt, 1.0, 9, div_factor=0.0), "div_factor must be above 0"),
        (lambda opt: optim.OneCycleLR(opt, 1.0, 2, current_epoch=-1).step(3), "called 3 times in a cycle of 2 steps"),
        (lambda opt: optim.ReduceLROnPlateau(opt, mode="least"), 'mode must be "min" or "max"'),
        (lambda opt: optim.ReduceLROnPlateau(opt, threshold_mode="part"), 'threshold_mode must be "rel" or "abs"'),
        (lambda opt: optim.ReduceLROnPlateau(opt, factor=1.0), "factor must be at least 0 and below 1"),
    ],
)
def test_a_schedule_refuses_what_it_cannot_do(make, says):
    with pytest.raises(ValueError, match=says):
        make(sgd())


def test_a_traced_step_takes_the_rates_of_a_schedule():
    opt = optim.SGD([w := Parameter([0.0])], lr=8.0)
    schedule, gm = optim.ExponentialLR(opt, 0.5), GradManager().attach([w])

    @trace(symbolic=True, without_host=True)
    def step():
        with gm:
            gm.backward(w * 1.0)
        opt.step().clear_grad()

    for _ in range(4):
        step()
        schedule.step()
    assert w.item() == -(8 + 4 + 2 + 1)


# -- averages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [None, {"symbolic": True}, {"symbolic": True, "without_host": True}], ids=["eager", "traced", "without host"])
def test_averages_follow_the_weights_and_are_lent_to_them(mode):
    w, want = Parameter([[1.0, -2.0]]), np.array([[1.0, -2.0]])
    ema = optim.EMA([w], decay=0.9)

    def step(x):
        w[...] = w + x
        ema.update()

    called = step if mode is None else trace(step, **mode)
    for i in range(5):
        called(mge.Tensor([[float(i), 1.0]]))
        want = 0.9 * want + 0.1 * w.numpy()
    own = w.numpy()
    with pytest.raises(ZeroDivisionError), ema.applied():
        np.testing.assert_allclose(w.numpy(), want, rtol=1e-6)
        raise ZeroDivisionError
    np.testing.assert_array_equal(w.numpy(), own)
    again = optim.EMA([Parameter([[0.0, 0.0]])])
    again.load_state_dict(ema.state_dict())
    np.testing.assert_allclose(again.state_dict()["averages"][0], want, rtol=1e-6)


def test_averages_refuse_other_things():
    for wrong, kind in (([], ValueError), ([mge.Tensor([1.0])], TypeError)):
        with pytest.raises(kind, match="EMA"):
            optim.EMA(wrong)
    with pytest.raises(ValueError, match="decay must be"):
        optim.EMA([Parameter([1.0])], decay=1.0)
    with pytest.raises(ValueError, match="number 0"):
        optim.EMA([Parameter([1.0])]).load_state_dict({"averages": [np.zeros(2)]})


# -- accumulation --------------------------------------------------------------------------------


def trained(mode, parts, batches):
    mge.random.seed(1)
    net = M.Sequential(M.Linear(6, 64), M.ReLU(), M.Linear(64, 2))
    opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    gm = GradManager().attach(net.parameters())

    def step(x, y):
        rows, total = x.shape[0] // parts, 0.0
        for i in range(parts):
            with gm:
                loss = F.loss.square_loss(net(x[i * rows : (i + 1) * rows]), y[i * rows : (i + 1) * rows]) / parts
                gm.backward(loss)
            total = total + loss
        optim.clip_grad_norm(net.parameters(), 1.0)
        opt.step().clear_grad()
        return total

    called = step if mode is None else trace(step, **mode)
    losses = [called(mge.Tensor(x), mge.Tensor(y)).item() for x, y in batches]
    return losses, net[0].weight.numpy(), called


@pytest.mark.parametrize("mode", [None, {"symbolic": True}, {"symbolic": False}, {"symbolic": True, "without_host": True}], ids=str)
def test_parts_of_a_batch_give_the_step_of_the_whole(mode):
    rng = np.random.default_rng(0)
    batches = [(rng.normal(size=(256, 6)).astype("float32"), rng.normal(size=(256, 2)).astype("float32")) for _ in range(4)]
    losses, weight, _ = trained(None, 1, batches)
    in_parts, weight_of_parts, _ = trained(mode, 4, batches)
    np.testing.assert_allclose(in_parts, losses, rtol=1e-5)
    np.testing.assert_allclose(weight_of_parts, weight, rtol=1e-4, atol=1e-6)


def test_parts_of_a_batch_need_less_memory_than_the_whole():
    rng = np.random.default_rng(0)
    batches = [(rng.normal(size=(1024, 6)).astype("float32"), rng.normal(size=(1024, 2)).astype("float32"))]
    whole, parts = (trained({"symbolic": True}, n, batches)[2].memory_plan().planned_bytes for n in (1, 8))
    assert parts < whole / 2
