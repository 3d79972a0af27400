"""CUDA tensors: where programs run, in which order, and whose memory they take."""

import gc
import subprocess
import sys
import warnings
import weakref

import pytest
import torch
from card import MAKES, WAITS, emulated, none_of
from torch import nn

from megengine.torch_backend import backend, step


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, backend=backend, options={"fallback": False, **options})


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


def ahead(value, stream):
    """A tensor whose elements are written late, on that stream, and where the result of a call goes behind it."""
    with torch.cuda.stream(stream):
        host = torch.full((1 << 16,), value).pin_memory()
        x = torch.empty(host.shape, device="cuda")
        for _ in range(6):
            x.copy_(host, non_blocking=True)
    return x


@pytest.mark.parametrize("where", ["a side stream", "the default stream", "turns"])
def test_work_is_in_order_with_torchs(where):
    """Of 30 results 6 to 12 were wrong when nobody waited."""
    run, wrong = compiled(lambda x: x * 2 + 1), 0
    streams = {"a side stream": [torch.cuda.Stream()], "the default stream": [torch.cuda.default_stream()], "turns": [torch.cuda.Stream(), torch.cuda.default_stream()]}[where]
    for number in range(300):
        stream = streams[number % len(streams)]
        x = ahead(float(number), stream)
        with torch.cuda.stream(stream):
            y = torch.empty(x.shape, pin_memory=True).copy_(run(x), non_blocking=True)
        stream.synchronize()
        wrong += not torch.equal(y, torch.full(x.shape, 2.0 * number + 1))
    assert wrong == 0


def test_arguments_may_be_overwritten_behind_a_call():
    run, stream = compiled(lambda x: (x * 3).cumsum(0)), torch.cuda.Stream()
    zeros = torch.zeros(1 << 14).pin_memory()
    for number in range(40):
        with torch.cuda.stream(stream):
            x = torch.full((1 << 14,), float(number)).pin_memory().cuda(non_blocking=True)
            y = run(x)
            x.copy_(zeros, non_blocking=True)
            last = y[-1:].cpu()
        assert last.item() == 3.0 * number * (1 << 14)


def test_results_lie_on_the_graphs_device_without_copies():
    run = compiled(lambda x: (x.sin(), x.t() + 1, x.sum()))
    x = torch.rand(4, 3)
    for _ in range(4):
        for got, want in zip(run(x.cuda()), (x.sin(), x.t() + 1, x.sum()), strict=True):
            assert got.device == torch.device("cuda", 0) and got.stride() == want.stride()
            torch.testing.assert_close(got.cpu(), want)


def test_numbers_of_the_host_are_operands():
    run = compiled(lambda x, n: (x * n, n + 1))
    x, n = torch.rand(5), torch.tensor(3.0)
    scaled, more = run(x.cuda(), n)
    torch.testing.assert_close(scaled.cpu(), x * n)
    assert more.device.type == "cpu" and more == 4


def test_graphs_of_the_host_stay_there():
    """A GPU is the default device where there is one: constants of the graph were made there."""
    run, x = compiled(lambda x: torch.where(x > 0, x, torch.zeros(3)) + torch.arange(3)), torch.randn(4, 3)
    torch.testing.assert_close(run(x), torch.where(x > 0, x, torch.zeros(3)) + torch.arange(3))


def test_tensors_of_two_devices_are_refused_by_name():
    function = lambda x, y: (x.cos(), y.sin().cuda() + 0)  # noqa: E731
    with pytest.raises(Exception, match=r"aten.sin.default.*a tensor on cpu in a graph on cuda:0: megjit computes on one device"):
        compiled(function)(torch.rand(3).cuda(), torch.rand(3))
    run, (x, y) = compiled(lambda x, y: (x.cos(), y.sin()), fallback=True), torch.rand(2, 3)
    with pytest.warns(UserWarning, match="aten.sin.default.*a tensor on cpu in a graph on cuda:0"):
        got = run(x.cuda(), y)
    torch.testing.assert_close(got[0].cpu(), x.cos()), torch.testing.assert_close(got[1], y.sin())


MISSING = """
import sys, warnings, torch
from megengine.torch_backend import backend
run = torch.compile(lambda x: x * 2, backend=backend, options={"fallback": False})
try:
    run(torch.zeros(3, device="cuda"))
except Exception as error:
    print(error)
"""


@emulated
def test_without_our_cuda_the_missing_library_is_named(tmp_path):
    """torch has its driver here, and we do not find ours."""
    start = "import ctypes, os, sys; sys.path.append(os.environ['MEGJIT_SITE'])\nimport torch\ntorch.zeros(1, device='cuda')\nos.environ['MEGJIT_CUDA_DRIVER'] = '/nowhere/libcuda.so.1'"
    done = subprocess.run([sys.executable, "-c", start + MISSING], capture_output=True, text=True)
    assert "megjit finds no CUDA for cuda:0: there is no CUDA driver: " in done.stdout and "/nowhere/libcuda.so.1" in done.stdout, done.stdout + done.stderr


# -- memory


def reset():
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.synchronize()


def networks():
    torch.manual_seed(0)
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.GELU())), nn.LayerNorm(256))


def test_memory_is_torchs_and_goes_with_the_compiled_function():
    reset()
    before = torch.cuda.memory_allocated()
    net, x = networks().cuda(), torch.rand(512, 256).cuda()
    held = torch.cuda.memory_allocated()
    run = compiled(net)
    for _ in range(3):
        y = run(x)
    with_arena = torch.cuda.memory_allocated()
    assert with_arena >= held + y.numel() * 4  # its arena beside the result
    del y
    assert held < torch.cuda.memory_allocated() == with_arena - 512 * 256 * 4
    del run
    reset()
    assert torch.cuda.memory_allocated() == held
    del net, x
    reset()
    assert torch.cuda.memory_allocated() == before


@emulated
def test_no_bytes_are_taken_beside_torchs_allocator():
    """What cards have beside it are handles of libraries: 4 KiB for each in the stand-ins."""

    def beside():
        free, total = torch.cuda.mem_get_info()
        return total - free - torch.cuda.memory_reserved()

    reset()
    net, x = networks().cuda(), torch.rand(512, 256).cuda()
    run, before = compiled(lambda x: (net(x), x.sum(), x.argmax(1))), beside()
    for _ in range(3):
        run(x)
    assert beside() - before <= 4 * 4096


def test_a_fraction_of_the_card_is_kept():
    reset()
    total = torch.cuda.get_device_properties(0).total_memory
    run, x = compiled(lambda x: (x[:, None] * x[None, :]).sin()), torch.rand(4000, device="cpu").cuda()
    try:
        torch.cuda.set_per_process_memory_fraction(8e6 / total)
        with pytest.raises(MemoryError, match="out of memory: .* needs 64000000 bytes"):
            run(x)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert run(x).shape == (4000, 4000)


def test_arguments_are_let_go_of_with_the_call():
    run, alive = compiled(lambda x: x.exp() + 1), []
    for _ in range(3):
        x = torch.rand(1000).cuda()
        alive.append(weakref.ref(x))
        run(x)
        del x
        assert alive[-1]() is None


@emulated
def test_a_steady_call_waits_for_nothing_and_takes_no_memory_of_the_driver():
    net, x = networks().cuda(), torch.rand(64, 256).cuda()
    run = compiled(net)
    for _ in range(8):
        run(x)
    with none_of(*WAITS, *MAKES):
        for _ in range(10):
            run(x)


@emulated
def test_a_steady_training_step_waits_for_nothing():
    net, x, dy = networks().cuda(), torch.rand(64, 256).cuda(), torch.rand(64, 256).cuda()
    run = compiled(net)

    def train():
        net.zero_grad()
        run(x).backward(dy)

    with torch.enable_grad():
        for _ in range(8):
            train()
        with none_of(*WAITS, *MAKES):
            for _ in range(5):
                train()


@emulated
def test_a_steady_whole_step_waits_for_nothing():
    net, x, y = networks().cuda(), torch.rand(64, 256).cuda(), torch.rand(64, 256).cuda()
    train = step(net, nn.functional.mse_loss, torch.optim.SGD(net.parameters(), 0.01))
    for _ in range(8):
        train(x, y)
    with none_of(*WAITS, *MAKES):
        for _ in range(5):
            train(x, y)


# -- random numbers, failures


def test_dropout_follows_torchs_generator_of_the_device():
    run, x = compiled(lambda x: nn.functional.dropout(x, 0.5)), torch.ones(1000).cuda()

    def drawn(seed):
        torch.cuda.manual_seed(seed)
        return torch.stack([run(x).cpu() for _ in range(3)])

    first = drawn(1)
    assert torch.equal(first, drawn(1)) and not torch.equal(first, drawn(2)) and len({tuple(each.tolist()) for each in first}) == 3
    state, host = torch.cuda.get_rng_state(), torch.get_rng_state()
    again = run(x).cpu()
    torch.cuda.set_rng_state(state)
    assert torch.equal(run(x).cpu(), again) and torch.equal(torch.get_rng_state(), host)


def test_a_failure_on_the_card_is_told_by_the_next_call():
    """torch never asks: a wrong index is found when somebody calls us again."""
    run, table = compiled(nn.functional.embedding), torch.rand(10, 4).cuda()
    good = torch.arange(3).cuda()
    run(good, table)
    run(torch.tensor([1, 99, 2]).cuda(), table)
    torch.cuda.synchronize()
    with pytest.raises(Exception, match="99"):
        run(good, table)
    assert torch.equal(run(good, table).cpu(), table[:3].cpu())


# -- graphs of torch's


def captured(function):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = function()
    return graph, results


def test_a_call_is_captured_and_repeated():
    net, ours, x = networks(), networks().cuda(), torch.rand(64, 256).cuda()
    run, other = compiled(ours), torch.compile(lambda x: (x @ x.T).softmax(-1), backend=backend, options={"fallback": False})
    run(x), other(x)
    graph, y = captured(lambda: run(x))
    for rows in (32, 300):  # others have their arenas meanwhile, and take larger ones
        given, many = torch.rand(64, 256), torch.rand(rows, 256)
        x.copy_(given)
        graph.replay()
        torch.testing.assert_close(y.cpu(), net(given), rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(other(many.cuda()).cpu(), (many @ many.T).softmax(-1), rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(run(many.cuda()).cpu(), net(many), rtol=1e-3, atol=1e-4)


def test_a_training_step_is_captured_and_repeated():
    net, ours = (networks() for _ in range(2))
    ours, x, dy = ours.cuda(), torch.rand(64, 256).cuda(), torch.rand(64, 256).cuda()
    run = compiled(ours)

    def train():
        ours.zero_grad()
        y = run(x)
        y.backward(dy)
        return y

    with torch.enable_grad():
        for _ in range(3):
            train()
        graph, y = captured(train)
        for _ in range(2):
            given, back = torch.rand(64, 256), torch.rand(64, 256)
            x.copy_(given), dy.copy_(back)
            graph.replay()
            net.zero_grad()
            want = net(given)
            want.backward(back)
            torch.testing.assert_close(y.detach().cpu(), want.detach(), rtol=1e-3, atol=1e-4)
            for mine, theirs in zip(ours.parameters(), net.parameters(), strict=True):
                torch.testing.assert_close(mine.grad.cpu(), theirs.grad, rtol=1e-3, atol=1e-3 * theirs.grad.abs().max().item())


def test_a_graph_has_the_memory_that_it_had():
    """The graph keeps the memory that is freed while it is captured; it has no part of the arena of other calls."""
    net, x = networks().cuda(), torch.rand(64, 256).cuda()
    run = compiled(net)
    want = run(x).cpu()
    graph, y = captured(lambda: run(x))
    for _ in range(3):
        run(torch.rand(300, 256).cuda())  # the arena grows
        held = [torch.full((1 << 18,), 7.0).cuda() for _ in range(4)]
        graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(each.cpu(), torch.full((1 << 18,), 7.0)) for each in held)
        torch.testing.assert_close(y.cpu(), want)


def refused(run, *given, why):
    with pytest.raises(RuntimeError, match=f"(?s)cannot become a part of a CUDA graph.*{why}"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's: the graph is empty
        captured(lambda: run(*given))


def test_a_call_that_has_not_run_before_is_refused_in_a_graph():
    """The program takes all sizes; torch refuses to compile any other during a capture."""
    torch._dynamo.reset()
    run, x = torch.compile(lambda x: x * 2, backend=backend, dynamic=True, options={"fallback": False}), torch.rand(4).cuda()
    run(torch.rand(7).cuda())
    refused(run, x, why="has not run for these shapes before.*call it before the capture")
    torch.testing.assert_close(run(x).cpu(), x.cpu() * 2)


THREE = torch.tensor(3.0)


@pytest.mark.parametrize("function", [lambda x: nn.functional.dropout(x, 0.5), lambda x: x * THREE], ids=["random numbers", "tensors of the host"])
def test_values_of_the_host_are_refused_in_a_graph(function):
    run, x = compiled(function), torch.ones(4).cuda()
    run(x)
    refused(run, x, why="random numbers")
    assert set(run(x).cpu().tolist()) <= {0.0, 2.0, 3.0}


def test_a_whole_step_is_refused_in_a_graph():
    net, x, y = networks().cuda(), torch.rand(64, 256).cuda(), torch.rand(64, 256).cuda()
    train = step(net, nn.functional.mse_loss, torch.optim.SGD(net.parameters(), 0.01))
    before = train(x, y).cpu()
    refused(train, x, y, why="brings values of the host")
    assert train(x, y).cpu() < before


def test_a_failure_in_a_graph_is_told_by_the_next_call():
    run, table = compiled(nn.functional.embedding), torch.rand(10, 4).cuda()
    places = torch.arange(3).cuda()
    run(places, table)
    graph, y = captured(lambda: run(places, table))
    graph.replay()
    assert torch.equal(y.cpu(), table[:3].cpu())
    places.copy_(torch.tensor([1, 99, 2]))
    graph.replay()
    torch.cuda.synchronize()
    places.copy_(torch.tensor([4, 5, 6]))
    with pytest.raises(Exception, match="99"):
        run(places, table)
    graph.replay()
    assert torch.equal(run(places, table).cpu(), table[4:7].cpu()) and torch.equal(y.cpu(), table[4:7].cpu())


def test_what_torch_runs_is_in_order_too():
    """Parts take turns: copies are torch's here."""
    run, x = compiled(lambda x: (x * 2).cpu() + 1, fallback=True), torch.rand(1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(20):
            torch.testing.assert_close(run(x.cuda()), x * 2 + 1)


