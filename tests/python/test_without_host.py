"""trace(without_host=True): later calls run the program alone, behind guards."""

import collections
import dataclasses
import functools
import importlib
import logging
import math
import operator
import os
import pathlib
import re
import secrets

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import Tensor, jit
from megengine.autodiff import GradManager
from megengine.jit import trace
from test_trace import losses, step, t


def test_the_body_does_not_run_again():
    calls = []

    @trace(without_host=True, symbolic=True)
    def f(x):
        calls.append(1)
        return x * 2

    assert [f(t(v)).item() for v in (1, 2, 3)] == [2, 4, 6]
    assert calls == [1]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_training_step_is_the_eager_one(optimizer):
    expected, weights = losses(step, optimizer)
    got, traced = losses(trace(step, without_host=True, symbolic=True), optimizer)
    np.testing.assert_array_equal(got, expected)
    for a, b in zip(traced, weights):
        np.testing.assert_array_equal(a, b)


def test_a_learning_rate_schedule_is_followed():
    def run(function):
        net = M.Linear(4, 2)
        for p in net.parameters():
            p[...] = mge.tensor(np.full(p.shape, 0.5, np.float32))
        opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        gm = GradManager().attach(net.parameters())
        for i in range(5):
            opt.param_groups[0]["lr"] = 0.1 / (i + 1)
            function(mge.tensor(np.ones((3, 4), np.float32)), net=net, opt=opt, gm=gm)
        return net.weight.numpy()

    def body(x, *, net, opt, gm):
        with gm:
            loss = (net(x) ** 2).sum()
            gm.backward(loss)
            opt.step().clear_grad()
        return loss

    traced = trace(body, without_host=True, symbolic=True)
    np.testing.assert_array_equal(run(traced), run(body))


SCALE = 2.0
TABLE = {"k": 1.0}


def test_a_changed_global_records_again():
    global SCALE
    f = trace(lambda x: x * SCALE, without_host=True)
    assert f(t(1)).item() == f(t(1)).item() == 2
    SCALE = 3.0
    try:
        assert f(t(1)).item() == 3
        assert "SCALE has changed" in f.explain()
    finally:
        SCALE = 2.0


def test_a_changed_item_of_a_global_dict_records_again():
    f = trace(lambda x: x * TABLE["k"], without_host=True)
    f(t(1)), f(t(1))
    TABLE["k"] = 5.0
    assert f(t(1)).item() == 5
    TABLE["k"] = 1.0


def test_a_changed_closure_cell_records_again():
    state = [2.0]
    f = trace(lambda x: x * state[0], without_host=True)
    f(t(1)), f(t(1))
    state[0] = 4.0
    assert f(t(1)).item() == 4


def test_a_changed_training_flag_records_again():
    net = M.Dropout(0.5)
    f = trace(lambda x: net(x), without_host=True)
    x = mge.tensor(np.ones(64, np.float32))
    assert (f(x).numpy() == 0).any()
    net.eval()
    assert (f(x).numpy() == 1).all()


def test_other_shapes_record_again():
    f = trace(lambda x: x.sum(), without_host=True)
    assert f(t(1, 2)).item() == 3
    assert f(t(1, 2, 3)).item() == 6


def test_other_sizes_walk_over_what_the_body_reaches_once(monkeypatch):
    walks = []

    def follow(walk, things):
        walks.append(1)
        original(walk, things)

    original = importlib.import_module("megengine.jit.walk").Walk.follow
    monkeypatch.setattr("megengine.jit.walk.Walk.follow", follow)
    net, drawn = M.Linear(4, 2), []

    def body(x):
        return net(x) + (np.random.rand() if len(drawn) and x.shape[0] == 5 else 0)

    f = trace(body, without_host=True, symbolic=True)
    for rows in (1, 2, 3, 1, 2, 3):
        np.testing.assert_array_equal(f(F.ones((rows, 4))).numpy(), net(F.ones((rows, 4))).numpy())
    assert len(walks) == 1
    drawn.append(1)  # the walk has seen it, so that all sizes walk anew
    assert f(F.ones((5, 4))).numpy().tolist() != f(F.ones((5, 4))).numpy().tolist()
    np.testing.assert_array_equal(f(F.ones((2, 4))).numpy(), net(F.ones((2, 4))).numpy())


def test_plain_arguments_are_guarded():
    f = trace(lambda x, n: x * n, without_host=True)
    assert f(t(1), 2).item() == f(t(1), 2).item() == 2
    assert f(t(1), 5).item() == 5


def test_random_streams_go_on():
    def draw(x):
        return F.dropout(x, 0.5)

    def run(function):
        mge.random.seed(3)
        return [function(mge.tensor(np.ones(16, np.float32))).numpy() for _ in range(4)]

    np.testing.assert_array_equal(run(draw), run(trace(draw, without_host=True)))


def test_a_body_that_reads_values_is_refused_with_its_line():
    @trace(without_host=True)
    def f(x):
        if x.sum().item() > 0:
            return x * 2
        return x

    with pytest.raises(RuntimeError, match=r"test_without_host.py:\d+"):
        f(t(1))


def test_buffers_that_the_body_updates_go_on():
    net = M.BatchNorm1d(3)
    other = M.BatchNorm1d(3)
    f = trace(lambda x: net(x), without_host=True)
    rng = np.random.RandomState(0)
    for _ in range(4):
        x = rng.randn(8, 3).astype(np.float32)
        np.testing.assert_allclose(f(mge.tensor(x)).numpy(), other(mge.tensor(x)).numpy(), rtol=1e-6)
    np.testing.assert_allclose(net.running_mean.numpy(), other.running_mean.numpy(), rtol=1e-6)


def _environment(x):
    return x * float(os.environ["MEGJIT_TEST_FACTOR"])


def _file(x, path=pathlib.Path(__file__).with_name("conftest.py")):
    return x * (1 if pathlib.Path(path).exists() else 2)


def _secret(x):
    return x * secrets.randbelow(2)


def _imported_clock(x):
    import time

    return x * time.time()


@pytest.mark.filterwarnings("ignore:.* is recorded again in each call")
@pytest.mark.parametrize("body", [_environment, _file, _secret, _imported_clock])
def test_what_cannot_be_watched_makes_each_call_walk_the_body(body, monkeypatch):
    monkeypatch.setenv("MEGJIT_TEST_FACTOR", "2")
    calls = []

    def counted(x):
        calls.append(1)
        return body(x)

    traced = trace(counted, without_host=True)
    for _ in range(4):
        traced(Tensor([1.0]))
    assert len(calls) == 4


def test_a_changed_environment_is_seen(monkeypatch):
    traced = trace(_environment, without_host=True)
    for factor in ("2", "2", "3"):
        monkeypatch.setenv("MEGJIT_TEST_FACTOR", factor)
        y = traced(Tensor([1.0]))
    assert y.tolist() == [3]


def test_pure_modules_are_no_reason_to_walk_the_body():
    calls = []

    def body(x):
        calls.append(1)
        return x * math.sqrt(4.0) + functools.reduce(operator.add, [1, 2])

    traced = trace(body, without_host=True)
    for _ in range(4):
        y = traced(Tensor([1.0]))
    assert len(calls) < 4 and y.tolist() == [5]


Pair = collections.namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass(frozen=True)
class Outcome:
    loss: Tensor
    parts: dict
    name: str


@pytest.mark.parametrize(
    "result",
    [
        lambda x: Pair(x + 1, [x * 2, 7]),
        lambda x: collections.OrderedDict(b=x + 1, a=(x * 2,)),
        lambda x: Outcome(x + 1, {"x": x * 2}, "step"),
    ],
)
def test_results_in_containers_do_not_record_each_time(result):
    calls = []

    def body(x):
        calls.append(1)
        return result(x)

    traced = trace(body, without_host=True)
    for value in (1.0, 2.0, 3.0, 4.0):
        got = traced(Tensor([value]))
    wanted = result(Tensor([4.0]))
    assert type(got) is type(wanted) and repr(got) == repr(wanted)
    assert len(calls) < 4


@dataclasses.dataclass
class Sample:
    image: Tensor
    scale: float

    def scaled(self):
        return self.image * self.scale


class Samples(list):
    def scaled(self):
        return self[0] * 2


@pytest.mark.parametrize("make", [lambda value: Sample(Tensor([value]), 2.0), lambda value: Samples([Tensor([value])])])
def test_arguments_of_other_classes_are_opened_and_their_classes_watched(make, monkeypatch):
    calls = []

    def body(sample):
        calls.append(1)
        return sample.scaled()

    traced = trace(body, without_host=True)
    assert [traced(make(value)).item() for value in (1.0, 2.0, 3.0, 4.0)] == [2, 4, 6, 8] and len(calls) < 4
    monkeypatch.setattr(type(make(0.0)), "scaled", lambda sample: Tensor([7.0]))
    assert traced(make(1.0)).item() == 7


def test_another_number_beside_the_tensor_of_a_dataclass_is_another_version():
    traced = trace(lambda sample: sample.scaled(), without_host=True)
    for scale in (2.0, 2.0, 2.0, 3.0, 3.0, 2.0):
        assert traced(Sample(Tensor([1.0]), scale)).item() == scale


# ---- without_host="auto"

LOG: list[int] = []
logger = logging.getLogger(__name__)


class Counts(M.Module):
    def __init__(self, count, keep):
        super().__init__()
        self.fc, self.count, self.keep, self.calls, self.kept = M.Linear(1, 2), count, keep, 0, []

    def forward(self, x):
        if self.count:
            self.calls += 1
        if self.keep:
            self.kept.append(1)
        return self.fc(F.expand_dims(x, 0))


class Quiet(M.Module):
    def __init__(self):
        super().__init__()
        self.layers = [M.Linear(1, 2), M.BatchNorm1d(2), M.Dropout(0.1)]

    def forward(self, x):
        found = []
        for layer in self.layers:
            x = layer(x)
            found.append(x)
        return F.stack(found[1:]).sum()

    def describe(self):
        print("never called")


def _prints(x):
    print("seen")
    return x * 2


def _appends(x):
    LOG.append(1)
    return x * 2


def _logs(x):
    logger.info("seen")
    return x * 2


def _counts(x):
    global calls_of_counts
    calls_of_counts += 1
    return x * 2


def _writes_an_item(x):
    TABLE["other"] = 1.0
    return x * 2


def _saves(x):
    np.save(os.devnull, np.ones(2))
    return x * 2


calls_of_counts = 0
WEIGHT = Tensor(2.0)


def decided(body, *make, calls=5):
    """What "auto" made of a body: does each call run it, and the results."""
    traced = trace(body, without_host="auto")
    results = [traced(Tensor([float(i)]), *make) for i in range(calls)]
    return traced._walks > 0, results, traced.explain()


@pytest.mark.parametrize(
    "body, why",
    [
        (_prints, "print()"), (_appends, "LOG.append()"), (_logs, "logger"), (_counts, "writes calls_of_counts"), (_environment, "os.environ"),
        (_writes_an_item, "writes an item"), (_saves, "np.save"), (lambda x: x * 2 if x.item() > -1 else x, "reads values"),
        (lambda x: x * WEIGHT.item(), "reads values"),
    ],
)  # fmt: skip
def test_auto_runs_a_body_that_acts_or_reads_in_each_call(body, why, monkeypatch, capsys):
    monkeypatch.setenv("MEGJIT_TEST_FACTOR", "2")
    LOG.clear()
    walks, results, explanation = decided(body)
    assert walks and f"each call runs the body because {'the body ' if 'reads' in why else ''}" in explanation and why in explanation
    assert [y.item() for y in results] == [0, 2, 4, 6, 8]
    assert capsys.readouterr().out.count("seen") == (5 if body is _prints else 0) and len(LOG) == (5 if body is _appends else 0)


@pytest.mark.parametrize("count, keep", [(True, False), (False, True)])
def test_auto_loses_no_effect_of_a_module(count, keep):
    net = Counts(count, keep)
    assert decided(lambda x: net(x))[0] is True
    assert (net.calls, len(net.kept)) == ((5, 0) if count else (0, 5))


def test_auto_runs_a_hook_in_each_call():
    net, seen = M.Linear(1, 2), []
    net.register_forward_hook(lambda module, args, result: seen.append(1))
    assert decided(lambda x: net(F.expand_dims(x, 0)))[0] is True and len(seen) == 5


@pytest.mark.parametrize("of_numpy", [True, False])
def test_auto_skips_a_body_that_only_computes(of_numpy):
    real = np.sqrt if of_numpy else math.sqrt
    traced = trace(lambda x: x * float(real(4.0)) + sum(range(3)), without_host="auto")
    assert [traced(Tensor([float(i)])).item() for i in range(5)] == [3, 5, 7, 9, 11]
    assert not traced._walks and traced._guards is not None


def test_auto_skips_a_network_and_a_training_step():
    net = Quiet()
    assert decided(lambda x: net(F.broadcast_to(x, (4, 1))))[0] is False
    expected, weights = losses(step, "sgd")
    traced = trace(step, without_host="auto")
    got, ours = losses(traced, "sgd")
    np.testing.assert_array_equal(got, expected)
    assert not traced._walks and traced._guards is not None


def _raises_if(flag, x):
    y = x * 2
    if flag[0]:
        raise KeyError("of the program")
    return y + 1


def _reads_an_input_if(flag, x):
    return x * x.item() if flag[0] else x * 2 + 1


def _reads_a_result_if(flag, x):
    return x * (x + 1).item() if flag[0] else x * 2 + 1


def _reads_and_drops_if(flag, x):
    if flag[0]:
        x.numpy()
    return x * 2 + 1


def _reads_a_weight_if(flag, x):
    return x * WEIGHT.item() if flag[0] else x * 2 + 1


def _takes_anything(flag, x):
    return mge.tensor(x) * 2 + 1 if isinstance(x, np.ndarray) else x * 2 + 1


def _is_a_generator_if(flag, x):
    return (x * i for i in range(2)) if flag[0] else x * 2 + 1


def _other_graphs(flag, x):
    return x * (len(flag) + x) if flag[0] else x * 2 + 1


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("before", [1, 2, 3, 20])
@pytest.mark.parametrize(
    "body",
    [
        _raises_if, _reads_an_input_if, _reads_a_result_if, _reads_and_drops_if, _reads_a_weight_if, _takes_anything, _is_a_generator_if,
        _other_graphs,
    ],
)  # fmt: skip
def test_auto_is_as_new_behind_calls_that_need_the_body(body, before, symbolic):
    """Whatever the calls before did: once the body only computes, few calls run it."""
    flag = [True]
    traced = trace(lambda x: body(flag, x), without_host="auto", symbolic=symbolic)
    for i in range(before):
        try:
            traced(np.ones(1, "float32") if body is _takes_anything else Tensor([float(i)]))
        except (KeyError, ValueError, RuntimeError):  # its own, or the trace's
            pass
    flag[0] = False
    for i in range(40):
        try:
            got = traced(Tensor([float(i)]))
        except jit.TraceError:
            assert i == 0  # the call that differs from its record
        else:
            assert got.item() == 2 * i + 1
    assert traced._known and not traced._walks
    runs = []
    traced._named_body = traced._body = lambda *args: runs.append(args)
    assert traced(Tensor([7.0])).item() == 15 and not runs


def test_auto_does_once_what_a_body_that_reads_an_input_does():
    """The second call is recorded for calls without body, which cannot be: it has happened nevertheless."""
    count = mge.Parameter([0.0])

    def body(x):
        count._reset(count + 1)
        return x * x.item() + count

    traced = trace(body, without_host="auto")
    for i in range(6):
        assert traced(Tensor([2.0])).item() == 4 + i + 1
    assert count.item() == 6 and "reads values" in traced.explain()


def test_auto_tries_seldom_where_it_is_in_vain(monkeypatch):
    recordings = []
    capture = trace._capture
    monkeypatch.setattr(trace, "_capture", lambda self, *given: (recordings.append(1), capture(self, *given))[1])
    traced = trace(lambda x: x * 2 if x.item() > -1 else x, without_host="auto")
    for i in range(300):
        assert traced(Tensor([float(i)])).item() == 2 * i
    assert 2 <= len(recordings) <= 6


def test_auto_sees_what_changes():
    global SCALE
    traced = trace(lambda x: x * SCALE, without_host="auto")
    assert [traced(t(1)).item() for _ in range(3)] == [2, 2, 2]
    SCALE = 3.0
    try:
        assert traced(t(1)).item() == 3
    finally:
        SCALE = 2.0


def test_a_wrong_without_host_is_refused():
    with pytest.raises(ValueError, match="'auto', got 'sometimes'"):
        trace(lambda x: x, without_host="sometimes")


def test_who_is_recorded_again_in_each_call_is_told_once():
    kept = []

    def keep(x):
        kept[:] = [x * 2]

    traced = trace(keep, symbolic=True, without_host=True)
    with pytest.warns(UserWarning, match="keep.* is recorded again in each call.*keeps a tensor that it does not return") as told:
        for _ in range(8):
            traced(Tensor([1.0, 2.0]))
    assert len(told) == 1 and told[0].filename == __file__


@pytest.mark.parametrize("without_host", [True, "auto"])
def test_each_shape_is_recorded_once_and_forgotten_where_its_guards_fail(without_host):
    factor = [2.0]
    f = trace(lambda x: x * factor[0], symbolic=True, without_host=without_host)
    shapes = range(1, 31)
    for _ in range(3):
        for n in shapes:
            assert f(mge.tensor(np.ones(n, "float32"))).numpy().sum() == 2 * n
    assert len(f._known) == 30 and f.explain().startswith("30 versions\n")
    replays = [int(count) for count in re.findall(r"(\d+) replay", f.explain())]
    assert min(replays) >= 1 and sum(replays) >= 58
    factor[0] = 3.0
    for _ in range(2):
        for n in shapes:
            assert f(mge.tensor(np.ones(n, "float32"))).numpy().sum() == 3 * n
    if without_host is True:  # "auto" gives up when what the body reads keeps changing
        assert len(f._known) == 30 and f.explain().startswith("30 versions\n")


class Runner:
    """Keeps the traced step beside what its body reads."""

    def __init__(self):
        self.scale, self.calls = 2.0, []
        self.step = trace(self._step, without_host=True, symbolic=True)

    def _step(self, x):
        calls.append(1)
        return x * self.scale


calls = []


def test_a_program_may_keep_the_traced_function_where_its_body_finds_it():
    calls.clear()
    runner = Runner()
    assert [runner.step(t(v)).item() for v in (1, 2, 3)] == [2, 4, 6]
    assert calls == [1]
    runner.scale = 3.0
    assert [runner.step(t(v)).item() for v in (1, 2, 3)] == [3, 6, 9]
    assert calls == [1, 1]
    runner.other = trace(lambda x: x + runner.scale, symbolic=True)
    runner.scale = 4.0
    assert runner.step(t(1)).item() == 4


def _copied_and_written(x):
    y = F.copy(x)
    y[0] = 1
    return (y * 2).sum()


def _written_twice(x):
    parts = [F.copy(x), x * 3]
    for i, part in enumerate(parts):
        part[i] = 1
        part += parts[0]
    return parts[1]


def _in_a_cycle(x):
    y = F.copy(x)
    y.itself = y
    y[1:] *= 2
    return y.sum()


class _Writing(M.Module):
    def __init__(self):
        super().__init__()
        self.layer = M.Linear(4, 4)

    def forward(self, x):
        return _copied_and_written(self.layer(x))


@pytest.mark.parametrize("body", [_copied_and_written, _written_twice, _in_a_cycle, _Writing()], ids=["copy", "twice", "cycle", "module"])
@pytest.mark.parametrize("options", [{"without_host": True}, {}], ids=["without_host", "decided"])
def test_temporaries_that_are_written_in_place_are_not_recorded_again(body, options):
    traced = trace(lambda x: body(x), symbolic=True, **options)
    for scale in range(5):
        x = mge.tensor(np.full((4, 4), scale, "float32"))
        np.testing.assert_allclose(traced(x).numpy(), body(x).numpy(), rtol=1e-6)
    assert " 4 replays" in traced.explain()
