"""fsdp.fully_shard: the numbers of the network as it is, with a part of each parameter in each of three processes."""

import copy

import numpy as np
import pytest
import world_checks

import megengine as mge
import megengine.distributed as dist
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.amp import GradScaler, Xla_GradScaler
from megengine.autodiff import GradManager
from megengine.distributed import checkpoint
from megengine.distributed._forecast import Gradient, Network, Step
from megengine.distributed.fsdp import fully_shard, gathered
from megengine.jit import recompute, trace
from megengine.quantization import quantize_weights
from megengine.reports import world

SIZE = 3
CHECKS = world_checks.Checks()
check = CHECKS.add
OPTIMIZERS = {
    "SGD": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=0.01),
    "Adam": lambda params: optim.Adam(params, lr=0.01),
    "AdamW": lambda params: optim.AdamW(params, lr=0.01),
    "AdamW8bit": lambda params: optim.AdamW8bit(params, lr=0.01, min_size=768),  # three blocks of each large weight
}


class Block(M.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = M.LayerNorm(width)
        self.up, self.down = M.Linear(width, 3 * width), M.Linear(3 * width, width)
        self.scales = [mge.Parameter(np.ones(width, "float32"))]

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x)))) * self.scales[0]


class Net(M.Module):
    def __init__(self, width=16, blocks=3):
        super().__init__()
        self.embed = M.Embedding(20, width)
        self.blocks = M.Sequential(*[Block(width) for _ in range(blocks)])
        self.head = M.Linear(width, 7)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x)).mean(axis=1))


class Training:
    """``is_cut``: with parts; else with whole parameters and the mean of the gradients."""

    def __init__(self, is_cut, optimizer="Adam", wrap=lambda step: step, unit=(), clip=None, make=Net):
        mge.random.seed(dist.get_rank())  # the first process's values count
        self.net = net = make()
        if is_cut:
            fully_shard(net, unit=unit)
        else:
            dist.bcast_list_(net.parameters())
        self.opt = OPTIMIZERS[optimizer](net.parameters())
        gm = GradManager().attach(net.parameters(), callbacks=[] if is_cut else [dist.make_allreduce_cb("mean")])

        @wrap
        def step(x, y):
            with gm:
                loss = F.nn.cross_entropy(net(x), y)
                gm.backward(loss)
            if clip is not None:
                optim.clip_grad_norm(net.parameters(), *clip)
            self.opt.step().clear_grad()
            return loss

        self.step = step

    def run(self, steps, begin=0):
        losses = []
        for k in range(begin, begin + steps):
            random = np.random.RandomState(10 * k + dist.get_rank())
            x, y = random.randint(0, 20, (6, 5)), random.randint(0, 7, 6)
            losses.append(self.step(mge.tensor(x.astype("int32")), mge.tensor(y.astype("int32"))).item())
        return losses


def expect_near(got, wanted):
    assert got.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(got[name], array, rtol=2e-4, atol=2e-6, err_msg=name)


@check
def training_gives_the_same_numbers(rank):
    for optimizer in OPTIMIZERS:
        whole = Training(False, optimizer)
        losses = whole.run(6)
        for wrap in (lambda step: step, trace(symbolic=True)):
            for unit in ((), Block, Net):
                cut = Training(True, optimizer, wrap, unit)
                np.testing.assert_allclose(cut.run(6), losses, rtol=1e-5)
                expect_near(cut.net.state_dict(), whole.net.state_dict())


@check
def a_process_has_its_part_alone(rank):
    net = Training(True).net
    whole = Net()
    for part, parameter in zip(net.parameters(), whole.parameters(), strict=True):
        assert part.shape == (-(-parameter.numpy().size // SIZE),)
    with gathered(net.head):
        assert net.head.weight.shape == (7, 16)
    assert net.head.weight.shape == (38,)
    grads = GradManager().attach(net.parameters())
    with grads:
        grads.backward(net(mge.tensor([[1, 2]], dtype="int32")).sum())
    assert net.head.weight.grad.shape == (38,)


@check
def a_forward_that_the_program_has_set_is_kept(rank):
    net = Net()
    dist.bcast_list_(net.parameters())
    head, x = net.head, mge.tensor([[1, 2]], dtype="int32")
    head.forward = lambda x: F.linear(x, head.weight) * 2
    wanted = net(x).numpy()
    np.testing.assert_allclose(fully_shard(net)(x).numpy(), wanted, rtol=1e-5)


@check
def forward_that_fails_leaves_the_parts(rank):
    net = Training(True).net
    try:
        net.blocks[0](mge.tensor(np.ones((2, 3), "float32")))
    except ValueError:
        pass
    else:
        raise AssertionError("no error")
    assert all(len(part.shape) == 1 for part in net.parameters()) and len(list(net.parameters())) == 24


@check
def gradients_are_clipped_by_the_norm_of_all_parts(rank):
    for clip in ((0.1,), (0.1, float("inf")), (0.1, 3.0)):
        whole, cut = Training(False, "SGD", clip=clip), Training(True, "SGD", clip=clip)
        np.testing.assert_allclose(cut.run(3), whole.run(3), rtol=1e-5)
        expect_near(cut.net.state_dict(), whole.net.state_dict())


@check
def states_are_whole_and_load_into_any(rank):
    for optimizer in ("Adam", "AdamW8bit"):
        load_into_any(optimizer)


def load_into_any(optimizer):
    cut = Training(True, optimizer)
    cut.run(3)
    states = [cut.net.state_dict(), cut.opt.state_dict()]
    later = cut.run(3, begin=3)
    for is_cut in (True, False):
        other = Training(is_cut, optimizer)
        other.net.load_state_dict(states[0])
        other.opt.load_state_dict(states[1])
        expect_near(other.net.state_dict(), states[0])
        np.testing.assert_allclose(other.run(3, begin=3), later, rtol=1e-5)


@check
def a_checkpoint_holds_parts(rank):
    for optimizer in ("Adam", "AdamW8bit"):
        checkpoint_of_parts(rank, optimizer)


def checkpoint_of_parts(rank, optimizer):
    folder = dist.get_client().bcast_val(str(checkpoint_folder()) if rank == 0 else None, f"folder of {optimizer}", SIZE)
    cut = Training(True, optimizer)
    cut.run(2)
    checkpoint.save(folder, {"net": cut.net, "opt": cut.opt}, 2)
    checkpoint.wait()
    later = cut.run(2, begin=2)
    other = Training(True, optimizer)
    state, step = checkpoint.load(folder)
    other.net.load_state_dict(state["net"])
    other.opt.load_state_dict(state["opt"])
    assert step == 2 and other.run(2, begin=2) == later


def checkpoint_folder():
    import tempfile

    return tempfile.mkdtemp()


@check
def copies_have_parts_of_their_own(rank):
    net = Training(True).net
    other = copy.deepcopy(net)
    x = mge.tensor([[1, 2]], dtype="int32")
    assert np.array_equal(net(x).numpy(), other(x).numpy())
    other.head.weight[...] = 0
    other.head.bias[...] = 0
    assert not other(x).numpy().any() and net(x).numpy().any()


@check
def averages_are_saved_whole(rank):
    whole, cut = Training(False), Training(True)
    averages = [optim.EMA(each.net.parameters(), decay=0.5) for each in (whole, cut)]
    for each, average in zip((whole, cut), averages, strict=True):
        each.run(2)
        average.update()
    states = [average.state_dict()["averages"] for average in averages]
    for a, b in zip(*states, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6)
    averages[1].load_state_dict({"averages": [array * 0 + 2 for array in states[1]]})
    with averages[1].applied(), gathered(cut.net):
        assert (cut.net.head.weight.numpy() == 2).all()


@check
def all_processes_drop_a_step_that_overflows_in_the_part_of_one(rank):
    net = Training(True).net
    scaler = GradScaler(init_scale=2.0)
    gm = GradManager().attach(net.parameters())
    with gm:
        scaler.backward(gm, net(mge.tensor([[1]], dtype="int32")).sum(), unscale_grad=False)
    if rank == 1:
        net.head.bias.grad[...] = np.inf
    scaler.unscale(gm.attached_tensors())
    assert all(each.grad is None for each in net.parameters())
    scaler.update()
    assert scaler.scale_factor == 1.0

    after = Xla_GradScaler(net, init_scale=8.0)
    before = net.state_dict()
    if rank == 2:
        net.head.bias[...] = np.nan
    after.update(net)
    assert after.scale_factor.item() == 4.0
    expect_near(net.state_dict(), before)


@check
def a_traced_step_of_parts_is_skipped_in_all_processes(rank):
    def losses(wrap):
        training = Training(True)
        optimizer, gm = optim.Adam(training.net.parameters(), lr=0.01), GradManager().attach(training.net.parameters())
        scaler = GradScaler(init_scale=8.0, growth_interval=2)

        def step(x, factor):
            with gm:
                scaler.backward(gm, (training.net(x) * factor).mean())
            optimizer.step().clear_grad()

        step, found = wrap(step), []
        for number in range(6):
            step(mge.tensor([[rank]], dtype="int32"), mge.tensor(np.float32(np.inf if (rank, number) in ((1, 2), (2, 4)) else 1)))
            found.append([param.numpy() for param in training.net.parameters()] + [scaler.scale_factor])
        return found

    wanted = losses(lambda step: step)
    assert [row[-1] for row in wanted] == [8, 16, 8, 8, 4, 4]
    for got, right in zip(losses(lambda step: trace(step, symbolic=True)), wanted, strict=True):
        for a, b in zip(got, right, strict=True):
            np.testing.assert_array_equal(a, b)


class Tied(M.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.head = M.Embedding(20, 8), M.Linear(8, 8), M.Linear(8, 20)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.mix(self.embed(x))).mean(axis=1)


@check
def tied_weights_stay_tied(rank):
    whole = Training(False, make=Tied)
    for wrap in (lambda step: step, trace(symbolic=True)):
        cut = Training(True, wrap=wrap, make=Tied)
        assert cut.net.head.weight is cut.net.embed.weight
        np.testing.assert_allclose(cut.run(3), whole.run(3), rtol=1e-5)
        whole = Training(False, make=Tied)


def message_of(error, call):
    try:
        call()
    except error as found:
        return str(found)
    raise AssertionError(f"no {error.__name__}")


@check
def what_would_be_wrong_in_silence_is_an_error(rank):
    net = Net()
    early = optim.Adam(net.parameters(), lr=0.1)
    fully_shard(net)
    parts = list(net.parameters())
    assert "after this optimizer was made" in message_of(ValueError, early.step)
    assert "is cut by fully_shard" in message_of(ValueError, lambda: dist.bcast_list_(parts))
    assert "parts already" in message_of(ValueError, lambda: fully_shard(net))
    assert "parts already" in message_of(ValueError, lambda: optim.sharded(optim.SGD(parts, lr=0.1)))
    assert "3 processes cannot share a parameter of shape (16, 48)" in message_of(ValueError, lambda: optim.AdamW8bit(parts, lr=0.1, block_size=192, min_size=768))
    assert "needs whole parameters" in message_of(ValueError, lambda: optim.LAMB(parts, lr=0.1))
    assert "cannot be pickled" in message_of(TypeError, lambda: mge.save(net, "/dev/null"))
    assert "convert the network first" in message_of(ValueError, lambda: quantize_weights(net))
    gm = GradManager().attach(parts, callbacks=[dist.make_allreduce_cb("mean")])
    with gm:
        loss = net(mge.tensor([[1]], dtype="int32")).sum()
        assert "is cut by fully_shard" in message_of(ValueError, lambda: gm.backward(loss))


class Wide(M.Module):
    """Parameters are nearly all of its memory."""

    def __init__(self):
        super().__init__()
        self.layers = M.Sequential(*[layer for _ in range(8) for layer in (M.Linear(384, 384), M.ReLU())], M.Linear(384, 8))

    def forward(self, x):
        return self.layers(x)


LAYER = 4 * 384 * 384
STATES = 3 * 8 * LAYER  # parameters, and two of Adam


def wide_step(is_cut, **options):
    mge.random.seed(1)
    net = fully_shard(Wide()) if is_cut else Wide()
    opt, gm = optim.Adam(net.parameters(), lr=1e-3), GradManager().attach(net.parameters())

    def step(x, y):
        with gm:
            loss = F.nn.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    function = trace(step, symbolic=True, **options)
    x, y = np.random.RandomState(0).normal(size=(4, 384)).astype("float32"), np.zeros(4, "int32")
    return lambda: function(mge.tensor(x), mge.tensor(y)).item(), function


@check
def a_traced_step_holds_a_layer_at_a_time(rank):
    run, function = wide_step(True)
    run()
    peak = function.memory_plan().planned_bytes
    gradients = 8 * LAYER
    assert peak <= 1.1 * (STATES + gradients) / SIZE + 1.2 * LAYER, f"{peak / LAYER:.2f} layers"

    run_whole, whole = wide_step(False)
    run_whole()
    plan = whole.memory_plan()
    step = Step(1.0, 1.0, 1.0, tuple(Gradient(LAYER, 1.0) for _ in range(8)))
    told = world.figures(step, plan, STATES * 2 // 3, Network(SIZE, 1e9, 0.0, is_ring=False))["fully_sharded_rank_bytes"]
    assert 0.85 <= told / peak <= 1.15, (told / LAYER, peak / LAYER)


@check
def what_no_process_could_hold_trains_in_parts(rank):
    limit = int(1.1 * (STATES + 8 * LAYER) / SIZE + 1.2 * LAYER)
    message = message_of(MemoryError, wide_step(False, memory_limit=limit)[0])
    assert "memory_limit" in message
    run, function = wide_step(True, memory_limit=limit)
    free, _ = wide_step(True)
    np.testing.assert_allclose([run() for _ in range(4)], [free() for _ in range(4)], rtol=1e-5)
    assert function.memory_plan().planned_bytes <= limit


@check
def inference_gathers_in_each_call(rank):
    net = fully_shard(Wide())
    x = mge.tensor(np.ones((4, 384), "float32"))
    function = trace(net, symbolic=True)
    wanted = net(x).numpy()
    for _ in range(3):
        np.testing.assert_allclose(function(x).numpy(), wanted, rtol=1e-5, atol=1e-6)
    assert function.memory_plan().planned_bytes < 8 * LAYER / SIZE + 3 * LAYER


@check
def layers_within_recompute_are_gathered_again(rank):
    for options in ({}, {"memory_limit": "1GB"}):
        losses = []
        for again in (lambda fn: fn, recompute):
            mge.random.seed(2)
            net = fully_shard(Net())
            gm, opt = GradManager().attach(net.parameters()), optim.SGD(net.parameters(), lr=0.1)

            @trace(symbolic=True, **options)
            def step(x, net=net, gm=gm, opt=opt, again=again):
                with gm:
                    h = net.embed(x)
                    for block in net.blocks:
                        h = again(block)(h)
                    loss = (net.head(h.mean(axis=1)) ** 2).mean()
                    gm.backward(loss)
                opt.step().clear_grad()
                return loss

            losses.append([step(mge.tensor([[1, 2, 3]], dtype="int32")).item() for _ in range(4)])
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


results = CHECKS.results(SIZE)


@pytest.mark.parametrize("name", CHECKS)
def test_in_three_processes(results, name):
    world_checks.expect_passed(results, name)


def test_in_one_process_nothing_changes():
    net = Net()
    weight = net.head.weight
    assert fully_shard(net) is net and net.head.weight is weight and weight.shape == (7, 16)


def test_bad_arguments_are_told():
    with pytest.raises(ValueError, match="reduce_method must be"):
        fully_shard(Net(), reduce_method="max")
    with pytest.raises(ValueError, match="has no parameters"):
        fully_shard(M.ReLU())
