"""What the stand-in for libcudart serves, so that what fails elsewhere is ours."""

import pytest
import torch
from card import emulated


def test_values_go_there_and_come_back():
    x = torch.randn(100, 7)
    y = x.cuda()
    assert y.device == torch.device("cuda", 0) and torch.equal(y.clone().cpu(), x)
    assert torch.equal(torch.zeros(9, dtype=torch.int64, device="cuda").cpu(), torch.zeros(9, dtype=torch.int64))


def test_the_allocator_counts():
    before = torch.cuda.memory_allocated()
    x = torch.empty(1 << 20, device="cuda")
    assert torch.cuda.memory_allocated() - before == 4 << 20
    del x
    assert torch.cuda.memory_allocated() == before
    free, total = torch.cuda.mem_get_info()
    assert 0 < free < total == torch.cuda.get_device_properties(0).total_memory


def test_a_stream_runs_beside_the_host():
    x, stream = torch.arange(1 << 16).float().pin_memory(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        y = torch.empty(x.shape, pin_memory=True).copy_(x.cuda(non_blocking=True).clone(), non_blocking=True)
    stream.synchronize()
    assert torch.equal(x, y) and stream.query()


def test_events_order_streams_and_tell_time():
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    x, y = torch.full((1 << 16,), 3.0).pin_memory(), torch.zeros(1 << 16, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(first):
        begin.record()
        for _ in range(4):
            y.copy_(x, non_blocking=True)
        end.record()
    second.wait_event(end)
    with torch.cuda.stream(second):
        z = y.clone()
    second.synchronize()
    assert torch.equal(z.cpu(), x) and begin.elapsed_time(end) >= 0


def test_copies_are_captured():
    x, y, graph = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.copy_(x)
    x.copy_(torch.ones(64))
    graph.replay()
    assert torch.equal(y.cpu(), torch.ones(64))


@emulated
def test_a_kernel_of_torchs_is_refused_by_name(capfd):
    with pytest.raises(RuntimeError, match="not supported"):
        torch.zeros(4, device="cuda") + 1
    assert "has no machine code of PyTorch's kernel _ZN2at6native" in capfd.readouterr().err
