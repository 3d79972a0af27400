"""optimizer.sharded: the bits of the optimizer itself, with a part of its state in each of three processes."""

import warnings

import numpy as np
import pytest
import world_checks

import megengine as mge
import megengine.distributed as dist
import megengine.functional as F
import megengine.optimizer as optim
from megengine import amp
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import _sharded
from megengine.tensor import Tensor

SIZE = 3
SHAPES = [(7,), (16, 4), (3, 5), (24, 4), (1,), (33, 2)]
OPTIMIZERS = {
    "SGD": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, nesterov=True),
    "Adam": lambda params: optim.Adam(params, lr=0.01),
    "AdamW": lambda params: optim.AdamW(params, lr=0.01),
    "AdamW8bit": lambda params: optim.AdamW8bit(params, lr=0.01, block_size=16, min_size=90),  # of (24, 4) alone
    "Adagrad": lambda params: optim.Adagrad(params, lr=0.1),
    "Adadelta": lambda params: optim.Adadelta(params),
    "RMSprop": lambda params: optim.RMSprop(params, lr=0.01, momentum=0.9, centered=True),
    "Lion": lambda params: optim.Lion(params, lr=0.01, weight_decay=0.1),
    "groups": lambda params: optim.Adam([{"params": params[:2]}, {"params": params[2:], "lr": 0.1}], lr=0.01),
}
CHECKS = world_checks.Checks()
check = CHECKS.add


class Training:
    """One of the optimizers at work; `sharded` takes the gradients of each process, the others their mean."""

    def __init__(self, make, is_sharded, wrap=lambda step: step, reduce_method="mean"):
        self.params = [
            mge.Parameter(np.random.RandomState(k).normal(size=shape).astype("float32"))
            for k, shape in enumerate(SHAPES)
        ]
        self.optimizer = make(self.params)
        reduces = not is_sharded or reduce_method is None
        if is_sharded:
            self.optimizer = optim.sharded(self.optimizer, reduce_method=reduce_method)
        callbacks = [dist.make_allreduce_cb(reduce_method or "mean")] if reduces else []
        gm = GradManager().attach(self.params, callbacks=callbacks)

        @wrap
        def step(x):
            with gm:
                # The last parameter has no gradient.
                gm.backward(sum(F.mean(F.tanh(param * x) ** 2) for param in self.params[:-1]))
            self.optimizer.step().clear_grad()

        self.step = step

    def run(self, steps, begin=0):
        for k in range(begin, begin + steps):
            self.step(Tensor([dist.get_rank() + 0.25 * k]))
        return self

    def values(self):
        return [param.numpy() for param in self.params]


def expect_same(got, wanted, message=""):
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=message)


def state_bytes(optimizer):
    return sum(
        value.numpy().nbytes
        for states in optimizer._inner._state.values()
        for name, value in states.items()
        if name != "step"
    )


@check
def eager_steps_give_the_bits_of_the_optimizer_itself(rank):
    for name, make in OPTIMIZERS.items():
        for method in ("mean", "sum", None):
            wanted = Training(make, False, reduce_method=method or "mean").run(4)
            expect_same(Training(make, True, reduce_method=method).run(4).values(), wanted.values(), f"{name} {method}")


@check
def traced_steps_too(rank):
    for name, make in OPTIMIZERS.items():
        wanted = Training(make, False).run(4).values()
        for options in (
            {"symbolic": False},
            {"symbolic": True, "opt_level": 3, "numerics": "exact"},
            {"symbolic": True, "without_host": True},
        ):
            with warnings.catch_warnings():  # a sharded step keeps tensors: without_host=True records it in each call, and says so
                warnings.filterwarnings("ignore", ".* is recorded again in each call")
                got = Training(make, True, trace(**options)).run(4).values()
            expect_same(got, wanted, f"{name} {options}")


@check
def each_process_holds_its_part_of_the_state(rank):
    whole = sum(2 * 4 * int(np.prod(shape)) for shape in SHAPES)
    padding = 2 * 4 * len(SHAPES)  # at most an element of each
    assert state_bytes(Training(OPTIMIZERS["Adam"], True).run(2).optimizer) <= whole / SIZE + padding


@check
def all_processes_keep_all_where_the_gradients_of_one_overflow(rank):
    def states(wrap, is_sharded):
        training = Training(OPTIMIZERS["Adam"], is_sharded)
        gm = GradManager().attach(training.params, callbacks=[] if is_sharded else [dist.make_allreduce_cb("mean")])
        scaler = amp.GradScaler(init_scale=8.0, growth_interval=2)

        def step(x):
            with gm:
                scaler.backward(gm, sum(F.mean(F.tanh(param * x) ** 2) for param in training.params))
            training.optimizer.step().clear_grad()

        step, found = wrap(step), []
        for number in range(7):
            step(mge.tensor(np.float32(np.inf if (rank, number) in ((1, 2), (0, 4)) else rank + 1)))
            found.append([*(param.numpy() for param in training.params), scaler.scale_factor, scaler._growth_tracker])
        return found

    wanted = states(lambda step: step, False)
    for wrap in (lambda step: step, lambda step: trace(step, symbolic=True), lambda step: trace(step, symbolic=True, without_host=True)):
        for got, right in zip(states(wrap, True), wanted, strict=True):
            for a, b in zip(got, right, strict=True):
                np.testing.assert_array_equal(a, b)


@check
def the_state_goes_to_any_world_and_back(rank):
    for name in ("Adam", "AdamW8bit"):
        goes_to_any_world_and_back(OPTIMIZERS[name])


def goes_to_any_world_and_back(make):
    plain, parts = Training(make, False).run(2), Training(make, True).run(2)
    state, expected = parts.optimizer.state_dict(), plain.optimizer.state_dict()
    assert state["param_groups"] == expected["param_groups"]
    for number, states in expected["state"].items():
        assert sorted(state["state"][number]) == sorted(states)
        for name, value in states.items():
            np.testing.assert_array_equal(state["state"][number][name], value, err_msg=name)
    wanted = plain.run(2, begin=2).values()
    for is_sharded in (True, False):
        resumed = Training(make, is_sharded)
        for param, value in zip(resumed.params, Training(make, False).run(2).values(), strict=True):
            param[...] = Tensor(value)
        resumed.optimizer.load_state_dict(state)
        expect_same(resumed.run(2, begin=2).values(), wanted)


@check
def options_that_change_count_and_groups_are_added(rank):
    def scheduled(is_sharded):
        training = Training(lambda params: optim.SGD(params[:3], lr=0.1, momentum=0.5), is_sharded)
        training.optimizer.add_param_group({"params": training.params[3:], "lr": 0.2})
        training.run(1)
        training.optimizer.param_groups[0]["lr"] = 0.01
        return training.run(2, begin=1).values()

    expect_same(scheduled(True), scheduled(False))


@check
def whole_parameters_are_refused(rank):
    params = [mge.Parameter(np.ones(3, "float32"))]
    with pytest.raises(ValueError, match="LAMB needs whole parameters"):
        optim.sharded(optim.LAMB(params, lr=0.1))
    blocks = [mge.Parameter(np.ones((16, 4), "float32"))]
    with pytest.raises(ValueError, match="3 processes cannot share a parameter of shape .16, 4.\n  why: it has 4 blocks of 16 elements\n  fix: .*min_size=math.inf"):
        optim.sharded(optim.AdamW8bit(blocks, lr=0.1, block_size=16, min_size=0))
    opt = optim.sharded(optim.AdamW8bit(params, lr=0.1, block_size=16, min_size=4))
    with pytest.raises(ValueError, match="4 blocks of 16"):
        opt.add_param_group({"params": blocks})
    assert len(opt.param_groups) == 1 and len(opt.state_dict()["state"]) == 1
    with pytest.raises(ValueError, match="block_size of AdamW8bit is 16 here and 32 in the state dict"):
        opt.load_state_dict(optim.AdamW8bit(params, lr=0.1, block_size=32, min_size=4).state_dict())
    with pytest.raises(ValueError, match="reduce_method must be"):
        optim.sharded(optim.SGD(params, lr=0.1), reduce_method="max")


def test_a_gather_that_fails_leaves_parameters_and_state_as_they_were(monkeypatch):
    """With several gathers, none is written before all are there."""

    def body():
        training = Training(OPTIMIZERS["Adam"], True)
        dist.set_bucket_sizes(1, 1)
        training.run(2)
        state = training.optimizer._inner._state
        before = [value.numpy() for value in (*training.params, *(each for states in state.values() for each in states.values()))]
        gather, calls = _sharded.all_gather, []

        def failing(*args):
            calls.append(args)
            if len(calls) == 3 and dist.get_rank() == 1:
                raise KeyError("the third gather")
            return gather(*args)

        monkeypatch.setattr(_sharded, "all_gather", failing)
        with pytest.raises((RuntimeError, KeyError)) as error:
            training.run(1, begin=2)
        after = [value.numpy() for value in (*training.params, *(each for states in state.values() for each in states.values()))]
        expect_same(after, before)
        return error.type.__name__

    assert sorted(dist.launcher(body, n_gpus=2, timeout=120.0)()) == ["KeyError", "RuntimeError"]


results = CHECKS.results(SIZE)


@pytest.mark.parametrize("name", CHECKS)
def test_in_three_processes(results, name):
    world_checks.expect_passed(results, name)


def test_in_one_process_it_is_the_optimizer_itself():
    optimizer = optim.SGD([mge.Parameter([1.0])], lr=0.1)
    assert optim.sharded(optimizer) is optimizer
