"""What is kept, what is refused, and what can be done with the result."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
import torchvision
from agree import assert_agree, check, ours
from torch import nn

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx
from megengine.fx import torch_import
from megengine.fx.experimental.optimization import fuse, optimize_for_inference, remove_dropout

# -- the documents' example ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def resnet():
    torch.manual_seed(0)
    return torchvision.models.resnet18(weights=None).eval()


def test_the_passes_work_on_resnet18(resnet):
    x = torch.randn(2, 3, 64, 64)
    converted = fx.from_torch(resnet)
    fused = fuse(converted, verify=ours(x))
    assert not any(isinstance(module, M.BatchNorm2d) for module in fused.modules())
    for module in fused, fx.symbolic_trace(converted), remove_dropout(converted):
        assert_agree(resnet, module, x)


def test_resnet18_is_optimized_for_inference(resnet):
    x = torch.randn(1, 3, 64, 64)
    optimized = optimize_for_inference(fx.from_torch(resnet))
    assert any("mkldnn" in type(layer).__name__.lower() for layer in optimized.modules())
    assert_agree(resnet, optimized, x)


def test_long_conversions_show_how_far_they_are(monkeypatch):
    seen = []

    class Noted(torch_import.Progress):
        def __init__(self, what, total, **options):
            super().__init__(what, total, **options)
            seen.append(total)

        def update(self, count=1):
            seen[0] -= count

    monkeypatch.setattr(torch_import, "Progress", Noted)
    fx.from_torch(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
    assert seen == [0]


def test_dropout_is_removed_from_a_network_that_has_some():
    module = torchvision.models.alexnet(weights=None).eval()
    removed = remove_dropout(fx.from_torch(module))
    assert not any(isinstance(layer, M.Dropout) for layer in removed.modules())
    assert_agree(module, removed, torch.randn(1, 3, 96, 96))


def test_names_of_nodes_and_layers_are_torchs(resnet):
    theirs = torch.fx.symbolic_trace(resnet)
    converted = fx.from_torch(theirs)
    named = [(node.name, node.op) for node in converted.graph.nodes]
    assert named == [(node.name, node.op) for node in theirs.graph.nodes]
    assert {n.target for n in converted.graph.nodes if n.op == "call_module"} == {
        n.target for n in theirs.graph.nodes if n.op == "call_module"
    }


def test_the_result_can_be_copied_pickled_compiled_and_trained(resnet):
    x, converted = torch.randn(2, 3, 32, 32), fx.from_torch(resnet)
    assert_agree(resnet, copy.deepcopy(converted), x)
    assert_agree(resnet, pickle.loads(pickle.dumps(converted)), x)
    assert_agree(resnet, mge.jit.trace(converted, symbolic=True), x)
    converted.train()
    manager = mge.autodiff.GradManager().attach(converted.parameters())
    with manager:
        manager.backward(F.loss.cross_entropy(converted(ours(x)), mge.Tensor([1, 2])))
    assert all(parameter.grad is not None for parameter in converted.parameters())


def test_gradients_are_torchs(resnet):
    x = torch.randn(2, 3, 32, 32)
    converted = fx.from_torch(resnet)
    resnet.zero_grad()
    resnet(x).square().sum().backward()
    with mge.autodiff.GradManager().attach(converted.parameters()) as manager:
        manager.backward((converted(ours(x)) ** 2).sum())
    want = resnet.layer3[0].conv1.weight.grad.numpy()
    got = dict(converted.named_parameters())["layer3.0.conv1.weight"].grad.numpy()
    assert np.abs(got - want).max() <= 1e-3 * np.abs(want).max()


# -- what is kept ----------------------------------------------------------------------------------


def test_modes_are_kept():
    module = nn.Sequential(nn.Sequential(nn.Dropout(), nn.ReLU()), nn.Dropout())
    module[0].eval()
    converted = fx.from_torch(module)
    assert converted.training and getattr(converted, "1").training
    assert not getattr(converted, "0").training
    layer = fx.from_torch(nn.Sequential(nn.TransformerEncoderLayer(4, 2)).eval())
    assert not any(module.training for module in layer.modules())


def test_a_layer_that_is_called_twice_stays_one():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = self.second = nn.Linear(4, 4)

        def forward(self, x):
            return self.second(self.first(x))

    converted = check(Twice(), torch.randn(3, 4))
    assert len(list(converted.parameters())) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_weights_keep_their_dtype(dtype):
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)).to(dtype)
    converted = fx.from_torch(module)
    assert {str(p.dtype) for p in converted.parameters()} == {str(dtype).removeprefix("torch.")}
    x = torch.randn(3, 8).to(dtype)
    got = converted(mge.Tensor(x.float().numpy()).astype(str(dtype).removeprefix("torch.")))
    np.testing.assert_allclose(got.astype("float32").numpy(), module(x).detach().float().numpy(), atol=0.03)


def test_buffers_that_a_program_writes_are_written():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x):
            self.total.add_(x.sum(0))
            return x * self.total

    module = Counting()
    program = torch.export.export(module, (torch.ones(2, 4),))
    for exported in program, program.run_decompositions():
        converted = fx.from_torch(exported)
        for times in 2, 4:
            assert (converted(F.ones((2, 4))).numpy() == times).all()
        assert (converted.state_dict()["total"] == 4).all()


def test_exported_training_moves_statistics():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    x = torch.randn(2, 3, 8, 8)
    program = torch.export.export(module, (x,))
    for exported in program, program.run_decompositions():
        converted, theirs = fx.from_torch(exported), copy.deepcopy(module)
        assert_agree(theirs, converted, x)
        np.testing.assert_allclose(converted.state_dict()["1.running_var"], theirs[1].running_var, rtol=1e-4)


def test_random_streams_are_left_alone():
    mge.random.seed(3)
    want = mge.random.normal(size=(4,)).numpy()
    mge.random.seed(3)
    fx.from_torch(nn.Sequential(nn.Linear(8, 8), nn.Conv2d(3, 3, 3), nn.Embedding(4, 4)))
    assert (mge.random.normal(size=(4,)).numpy() == want).all()


# -- writes in place -------------------------------------------------------------------------------


class Residual(nn.Module):
    """Reads x after the layer has written it."""

    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        x = x - 0.5
        return self.relu(x) + 10 * x


def test_a_later_reader_sees_what_a_layer_wrote_in_place():
    check(Residual(), torch.randn(3, 4))


def test_functions_that_write_in_place_by_keyword_do():
    class Net(nn.Module):
        def forward(self, x):
            x = x * 2
            y = torch.nn.functional.relu(input=x, inplace=True)
            return x + y

    check(Net(), torch.randn(3, 4))


class WritesAView(nn.Module):
    def forward(self, x):
        x = x * 2
        x.view(-1).add_(1)
        return x


def test_a_write_through_a_view_that_others_read_is_refused_and_exported_programs_do_it():
    with pytest.raises(ValueError, match="writes in place.*mul.*read later"):
        fx.from_torch(WritesAView())
    x = torch.randn(2, 3)
    program = torch.export.export(WritesAView(), (x,))
    for exported in (program, program.run_decompositions()):  # which from_torch runs itself where it must
        assert_agree(WritesAView(), fx.from_torch(exported), x)


def test_sizes_are_numbers_that_in_place_operators_do_not_write():
    class Net(nn.Module):
        def forward(self, x):
            n = m = x.size(0)
            m += 1
            return x.reshape(n, -1) * m

    check(Net(), torch.randn(3, 4))


# -- what is refused -------------------------------------------------------------------------------


class Unknown(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.FractionalMaxPool2d(2, 2)
        self.pool = nn.MaxPool2d(2, return_indices=True)

    def forward(self, x):
        spectrum = torch.fft.hfft(x)
        return self.pool(spectrum)[0] + x.digamma() + self.bag(x)


def test_all_that_cannot_be_converted_is_listed_at_once():
    with pytest.raises(ValueError) as caught:
        fx.from_torch(Unknown())
    text = str(caught.value)
    assert "4 of" in text
    for part in ("fft_hfft", "pool = call_module pool: return_indices", "digamma = call_method", "torch.nn.modules.pooling.FractionalMaxPool2d"):
        assert part in text
    assert "fix: pass rules=" in text


def test_rules_say_what_stands_for_something_else():
    rules = {
        torch.fft.fft: lambda x: x * 2,
        "digamma": lambda x: x + 1,
        nn.EmbeddingBag: lambda theirs: M.Identity(),
        nn.MaxPool2d: lambda theirs: M.Concat(),
    }

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.bag = nn.EmbeddingBag(4, 4)

        def forward(self, x):
            return self.bag(torch.fft.fft(x)) + x.digamma()

    converted = fx.from_torch(Net(), rules=rules)
    assert converted(mge.Tensor([1.0])).numpy() == [4]


def test_other_things_are_refused():
    with pytest.raises(TypeError, match="GraphModule.*got 3"):
        fx.from_torch(3)
    with pytest.raises(ValueError, match="32 bits"):
        module = nn.Module()
        module.register_buffer("large", torch.tensor([2**40]))
        graph = torch.fx.Graph()
        graph.output(graph.get_attr("large"))
        fx.from_torch(torch.fx.GraphModule(module, graph))


def test_importing_fx_does_not_import_torch():
    program = "import sys, megengine.fx.torchlike; assert 'torch' not in sys.modules"
    path = f"import sys; sys.path.append({mge.__path__[0] + '/..'!r}); "
    subprocess.run([sys.executable, "-c", path + program], check=True)


def test_boxes_are_aligned_as_by_torchvision():
    class Net(nn.Module):
        def forward(self, x, boxes):
            return torchvision.ops.roi_align(x, boxes, (3, 2), 0.5, 2, True)

    inputs = torch.rand(2, 3, 10, 12), torch.tensor([[0, 1.0, 2.0, 9.0, 13.0], [1, 0.0, 0.0, 7.0, 7.0], [0, -3.0, 2.0, 30.0, 20.0]])
    assert_agree(Net(), fx.from_torch(torch.export.export(Net(), inputs)), *inputs)


def test_weights_of_any_strides_are_read():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5)).eval().to(memory_format=torch.channels_last)
    net[0].bias = nn.Parameter(torch.rand(16)[::2])
    net[3].weight, net[3].bias = nn.Parameter(torch.rand(128, 5).t()), nn.Parameter(torch.rand(1).expand(5))
    check(net, torch.rand(2, 3, 6, 6))
