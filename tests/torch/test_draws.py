"""Random numbers in compiled functions: torch's generator draws them in front of our program, eager mode's bit by bit."""

import pytest
import torch
import torch.nn.functional as F

from megengine.torch_backend import backend

DRAWS = {
    "normal numbers": lambda x: x * torch.randn_like(x) + torch.randn(x.shape) + torch.normal(0.0, 2.0, x.shape),
    "written in place": lambda x: x * torch.empty_like(x).uniform_(0.5, 1.5) + x.new_empty(len(x), 1).normal_(1.0, 0.1),
    "gumbel": lambda x: F.gumbel_softmax(x, 0.5),
    "integers": lambda x: x[torch.randperm(len(x))] * torch.randint(1, 5, x.shape) + torch.randint_like(x.exp(), 2, 9),
    "after a product": lambda x: (x @ x.T).tanh() @ torch.randn_like(x),
    "uniform": lambda x: x * torch.rand(x.shape) + (x.double() * torch.rand(len(x), 1, dtype=torch.float64)).float() + torch.rand_like(x),
    "truths": lambda x: x.exp() * torch.bernoulli(torch.empty_like(x), 0.3) + x * x.new_empty(len(x), 1).bernoulli_(0.7),
    "whole channels": lambda x: F.dropout2d(x.exp()[None, ..., None], 0.4),
    "alpha dropout": lambda x: F.alpha_dropout(x.exp(), 0.4, True) + F.feature_alpha_dropout(x.exp()[None, ..., None], 0.4, True)[0, ..., 0],
    "sums and products of sizes": lambda x: x.exp().repeat(2, 1)[:, :1] * torch.rand(2 * len(x), x.shape[1] + 3),
    "flat": lambda x: x.exp().reshape(-1) * x.detach().sin().reshape(-1).bernoulli(0.3),
    "half": lambda x: x.exp()[: len(x) // 2] * torch.rand_like(x.exp()[: len(x) // 2]),
    "columns": lambda x: x.exp()[:, 1:3] * torch.bernoulli(x.detach().exp()[:, 1:3], 0.4),
    "memory of another order": lambda x: x.exp() * torch.bernoulli(torch.empty_like(x.T.contiguous().T), 0.3),
    "other distributions": lambda x: x * torch.empty_like(x).geometric_(0.3) + torch.empty_like(x.exp()).exponential_() + torch.empty_like(x.exp()).log_normal_(0.1),
    "other dtypes": lambda x: x * torch.empty(x.shape, dtype=torch.float64).bernoulli_(0.3).float() + x.new_empty(x.shape, dtype=torch.int64).geometric_(0.3),
}
WAYS = {"": {}, "limit": {"memory_limit": "1MB"}}


@pytest.mark.parametrize("dynamic", [False, True], ids=["", "dynamic"])
@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_random_numbers_are_torchs_own_and_split_no_graph(draw, options, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(draw, backend=backend, dynamic=dynamic, options={"fallback": False, **options})
    for rows in (8, 6) if dynamic else (8,):
        found = []
        for run in (compiled, draw):
            torch.manual_seed(3)
            x = torch.linspace(-1, 1, rows * 16).reshape(rows, 16).requires_grad_()
            y = run(x)
            y.square().sum().backward()
            found.append((y.detach(), x.grad, torch.rand(2)))
        torch.testing.assert_close(*found)


def test_numbers_that_a_result_decides_are_drawn_behind_it():
    torch._dynamo.reset()
    run = torch.compile(lambda x: torch.normal(x.exp(), 0.1) * 2, backend=backend)
    with pytest.warns(UserWarning, match="leaves operations to torch: aten.normal"):
        assert run(torch.zeros(1000)).mean() - 2 < 0.1


@pytest.mark.filterwarnings("ignore:megjit leaves")
def test_numbers_of_a_size_that_data_decides_are_torchs_own():
    torch._dynamo.reset()

    def draw(x):
        chosen = x[x > 0]
        return (chosen * torch.rand_like(chosen) + chosen * torch.bernoulli(chosen, 0.4)).sum()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        run, found = torch.compile(draw, backend=backend, fullgraph=True), []
        for each in (run, draw):
            torch.manual_seed(3)
            found.append(each(torch.linspace(-1, 1, 100)))
    torch.testing.assert_close(*found)
