"""Weights in halves that a step's updates write for the next step: a step gives the bits of one that casts its weights in each call, whatever happens to
the weights between two steps."""

import contextlib
import copy
import ctypes
import gc
import io
import os

import emulated
import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import dtr
from megengine.amp import autocast
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import SGD, Adam
from megengine.utils.comp_graph_tools import GraphInference

WORDS, WIDTH = 261, 256  # products want more rows of words


class Model(M.Module):
    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.hidden = M.Linear(WIDTH, WIDTH)
        self.words = mge.Parameter(rng.standard_normal((WORDS, WIDTH)).astype("float32") / 16)
        self.hidden.weight[...] = mge.tensor(rng.standard_normal((WIDTH, WIDTH)).astype("float32") / 16)

    def forward(self, places):
        return F.linear(self.hidden(F.embedding(places, self.words)), self.words)


def step_of(model, rule, low="bfloat16", **options):
    gm = GradManager().attach(model.parameters())

    @trace(symbolic=True, opt_level=3, **options)
    def step(places):
        with gm:
            with autocast(low != "float32", low_prec_dtype=low):
                out = model(places)
            loss = F.loss.cross_entropy(out.astype("float32"), (places * 5 + 1) % WORDS)
            gm.backward(loss)
        rule.step().clear_grad()
        return loss

    return step


class Twins:
    """A model whose step keeps copies, and one whose step casts its weights, as a limit of memory wants it."""

    def __init__(self, make_rule=lambda p: SGD(p, lr=0.1, momentum=0.9), low="bfloat16"):
        self.models = Model(), Model()
        self.rules = [make_rule(model.parameters()) for model in self.models]
        self.steps = [step_of(self.models[0], self.rules[0], low), step_of(self.models[1], self.rules[1], low, memory_limit="64GB")]
        for _ in range(3):
            self.step()

    def step(self, rows=264):
        places = (np.arange(rows) * 7 % WORDS).astype("int32")
        losses = [step(mge.tensor(places)) for step in self.steps]
        assert losses[0].numpy().tobytes() == losses[1].numpy().tobytes() and losses[0].item() > 0.1
        self.compare()

    def compare(self):
        first, second = (dict(model.named_parameters()) for model in self.models)
        for name, value in first.items():
            assert value.numpy().tobytes() == second[name].numpy().tobytes(), name


@pytest.mark.parametrize("low", ["bfloat16", "float16"])
@pytest.mark.parametrize("make_rule", [lambda p: SGD(p, lr=0.1), lambda p: Adam(p, lr=0.01)])
def test_a_step_gives_the_bits_of_one_that_casts_its_weights(make_rule, low):
    twins = Twins(make_rule, low)
    twins.step()


def test_a_step_casts_no_weight():
    twins = Twins()
    count = emulated.launches()
    places = mge.tensor((np.arange(264) % WORDS).astype("int32"))
    twins.steps[0](places).item()
    gc.collect()
    count()
    twins.steps[0](places).item()
    assert count() == 1
    kept = [name for buffer in twins.steps[0].memory_plan().buffers for name in buffer.values if " as bfloat16" in name]
    assert len(kept) == 2 and f"[{WORDS + 3}, {WIDTH}]" in "".join(kept)


def set_values(model):
    model.hidden.weight[...] = 0.25
    model.words[3:5] = 1.0


def multiply(model):
    model.hidden.weight *= 0.5


def load(model):
    model.load_state_dict({name: value.numpy() * np.float32(0.75) for name, value in model.named_parameters()})


@pytest.mark.parametrize("change", [set_values, multiply, load])
def test_a_weight_that_is_changed_between_steps(change):
    twins = Twins()
    for _ in range(2):
        for model in twins.models:
            change(model)
        twins.step()
        twins.step()


def test_other_batches_are_other_versions():
    twins = Twins()
    for rows in [264, 272, 264, 264, 272, 272, 280]:
        twins.step(rows)


@pytest.mark.parametrize("low", ["float32", "float16"])
def test_another_function_updates_the_weights(low):
    twins = Twins()
    places = mge.tensor((np.arange(264) % WORDS).astype("int32"))
    others = [step_of(model, rule, low) for model, rule in zip(twins.models, twins.rules, strict=True)]
    for _ in range(3):
        for other in others:
            other(places)
        twins.compare()
        twins.step()


def test_eager_updates_between_steps():
    twins = Twins()
    for model in twins.models:
        rule, gm = SGD(model.parameters(), lr=0.5), GradManager().attach(model.parameters())
        with gm:
            gm.backward((model.hidden.weight * model.words[:WIDTH]).mean())
        rule.step().clear_grad()
    twins.step()


def test_models_that_share_values():
    """A copy of a model, and an old value, are what they were; each trains on by itself."""
    twins = Twins()
    others = [copy.deepcopy(model) for model in twins.models]
    old = [mge.tensor(model.hidden.weight) for model in twins.models]
    before = old[0].numpy()
    twins.step()
    twins.step()
    assert old[0].numpy().tobytes() == old[1].numpy().tobytes() == before.tobytes()
    places = mge.tensor((np.arange(264) % WORDS).astype("int32"))
    for _ in range(2):
        for model, options in zip(others, [{}, {"memory_limit": "64GB"}], strict=True):
            step_of(model, SGD(model.parameters(), lr=0.1), **options)(places)
    twins.models = others
    twins.compare()


def test_a_step_that_fails_leaves_copies_of_the_weights_as_they_are():
    twins = Twins()
    places = (np.arange(264) % WORDS).astype("int32")
    places[5] = WORDS
    for step in twins.steps:
        with pytest.raises(IndexError):
            step(mge.tensor(places)).item()
    twins.compare()
    for _ in range(3):
        twins.step()


@pytest.mark.parametrize("function", ["cuGraphLaunch", "cuMemAlloc_v2", "cuMemAllocAsync"])
def test_a_run_that_cannot_be_queued(function):
    """It is computed op by op, or leaves all as it was."""
    twins = Twins()
    places = mge.tensor((np.arange(264) * 7 % WORDS).astype("int32"))
    for step in twins.steps:
        gc.collect()
        mge.device.coalesce_free_memory()
        with emulated.failing(function, 1, times=10**6), contextlib.suppress(RuntimeError, MemoryError):
            step(places).item()
    twins.compare()
    twins.step()
    twins.step()


def test_memory_that_is_lent_and_written_to():
    """A library that writes to what it may only read changes the weight; the next step sees that."""
    twins = Twins()
    card = ctypes.CDLL(str(emulated.CARD))
    values = np.random.default_rng(1).standard_normal((WIDTH, WIDTH)).astype("float32") / 16
    for model in twins.models:
        lent = model.hidden.weight.__dlpack__(max_version=(1, 0), copy=False)
        address = mge._core.address(model.hidden.weight)
        assert card.cuMemcpyHtoD_v2(ctypes.c_uint64(address), values.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(values.nbytes)) == 0
        del lent
        np.testing.assert_array_equal(model.hidden.weight.numpy(), values)
    twins.step()
    twins.step()


@pytest.mark.parametrize("make_rule", [lambda p: SGD(p, lr=0.1, momentum=0.9), lambda p: Adam(p, lr=0.01)])
def test_a_step_in_a_file(make_rule):
    """Its weights are states of the file, in another order than their updates."""
    model = Model()
    step = step_of(model, make_rule(model.parameters()), capture_as_const=True)
    places = [mge.tensor((np.arange(264) * k % WORDS).astype("int32")) for k in range(1, 7)]
    step(places[0])
    file = io.BytesIO()
    step.dump(file, arg_names=["places"], output_names=["loss"])
    file.seek(0)
    loaded = GraphInference(file)
    for n, each in enumerate(places):
        assert loaded.run(each.numpy())["loss"].item() == step(each).item()
        if n == 2:
            loaded.load_state_dict({"hidden.weight": loaded.state_dict()["hidden.weight"] * np.float32(0.5)})
            model.hidden.weight *= 0.5
    state = loaded.state_dict()
    for name, value in model.named_parameters():
        assert state[name].tobytes() == value.numpy().tobytes(), name


@pytest.mark.parametrize("lets_go", [False, True])
def test_a_child_of_a_fork_lets_go_of_copies(lets_go):
    """It cannot use the card, on which they stay as they are for its parent."""
    twins = Twins()
    child = os.fork()
    if not child:
        code = 1
        try:
            if lets_go:
                twins = None
                gc.collect()
            code = int((mge.tensor(np.ones(3, "float32"), device="cpu0") * 2).numpy().sum() != 6)
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    twins.step()
    twins.step()


def test_eager_tensors_that_are_evicted_beside_copies():
    twins = Twins()
    gc.collect()
    threshold, least = dtr.eviction_threshold, dtr.evictee_minimum_size
    dtr.evictee_minimum_size = 4096
    dtr.eviction_threshold = mge._core.memory_stats()["in_use"] + (4 << 20)
    dtr.enable()
    try:
        for _ in range(2):
            made = [model.hidden.weight * n for model in twins.models for n in range(20)]  # 10 MiB
            twins.step()
            for n, each in enumerate(made):
                assert np.isfinite(each.numpy()).all(), n
            for model in twins.models:
                model.hidden.weight[...] = model.hidden.weight * 0.5
            twins.step()
    finally:
        dtr.disable()
        dtr.eviction_threshold, dtr.evictee_minimum_size = threshold, least
    twins.step()
