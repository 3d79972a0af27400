"""Nothing of these functions is left to torch: results and gradients are those of eager mode."""

import warnings

import pytest
import torch
import torch.nn.functional as F

LABELS = torch.tensor([[1, 2, 0], [3, 0, 0], [1, 2, 0], [2, 2, 1], [0, 0, 0], [1, 1, 0]])  # the fourth does not fit three frames
IMAGE, ROWS, COUNTS = (2, 4, 8, 8), (3, 6, 5), torch.tensor([1, 3, 3])


def written(x, places, value):
    y = x * 1
    y[places] = value
    return y


def positive_definite(x):
    return x @ x.mT + 3 * torch.eye(x.shape[-2])


def pooled_by_graph(x):
    """As PointNet pools: the largest of what goes to a place."""
    rows = x.flatten(0, 1)
    return torch.zeros(4, 5).scatter_reduce(0, (torch.arange(18) % 3)[:, None].expand(-1, 5), rows, "amax", include_self=False)


def attention_of_edges(x):
    """As graph attention: softmax over the edges of each node."""
    scores, to = x.flatten(0, 1), torch.arange(18) * 7 % 4
    largest = torch.full((4, 5), -torch.inf).scatter_reduce(0, to[:, None].expand(-1, 5), scores, "amax")
    weights = (scores - largest[to]).exp()
    return weights / torch.zeros(4, 5).index_add(0, to, weights)[to]


def products_of_groups(x):
    """Groups of rows, one of them empty, of columns and of terms, and batches. (What is behind the last end torch does not write.)"""
    ends = torch.tensor([3, 3, 8], dtype=torch.int32)
    rows, columns = torch._grouped_mm(x[0], x.mT, offs=ends), torch._grouped_mm(x, x[1], offs=ends)
    terms, batches = torch._grouped_mm(x[0].mT, x[2], offs=ends), torch._grouped_mm(x, x.mT)
    return torch.cat([each.flatten() for each in (rows, columns, terms, batches)])


def likelihood_of_a_process(x):
    factor = torch.linalg.cholesky(positive_definite(x))
    return torch.cholesky_solve(x, factor).sum(-1) + factor.diagonal(dim1=-2, dim2=-1).log()


FUNCTIONS = {
    "upsampling by a number": (lambda x: F.interpolate(x * 1, scale_factor=2, mode="nearest"), IMAGE),
    "upsampling to a size": (lambda x: F.interpolate(x * 1, size=(11, 13), mode="nearest"), IMAGE),
    "linear upsampling": (lambda x: F.interpolate(x * 1, scale_factor=2, mode="bilinear"), IMAGE),
    "cubic upsampling": (lambda x: F.interpolate(x * 1, scale_factor=2, mode="bicubic"), IMAGE),
    "windows": (lambda x: F.unfold(x * 1, 3, padding=1), IMAGE),
    "sums of windows": (lambda x: F.fold(x * 1, (8, 8), 3, padding=1), (2, 36, 64)),
    "instance norm": (F.instance_norm, IMAGE),
    "batch norm without statistics": (lambda x: F.batch_norm(x, None, None, training=True), IMAGE),
    "circular padding": (lambda x: F.pad(x * 1, (1, 2, 1, 1), mode="circular"), IMAGE),
    "replicated borders": (lambda x: F.pad(x * 1, (1, 2, 3, 0), mode="replicate"), IMAGE),
    "replicated borders of a line": (lambda x: F.pad(x * 1, (1, 2), mode="replicate"), ROWS),
    "means of volumes": (lambda x: F.avg_pool3d(x * 1, 3, 2, 1, ceil_mode=True, count_include_pad=False), (2, 3, 6, 7, 8)),
    "local response": (lambda x: F.local_response_norm(x, 3), IMAGE),
    "copy into what is empty": (lambda x: torch.empty_like(x).copy_(x) * 2, IMAGE),
    "places along an inner axis": (lambda x: x[:, COUNTS] * 2, ROWS),
    "places along the last axis": (lambda x: x[..., COUNTS] * 2, ROWS),
    "places along axes apart": (lambda x: x[COUNTS[:2] - 1, :, COUNTS[:2]] * 2, ROWS),
    "places along two inner axes": (lambda x: x[:, COUNTS[:, None], COUNTS] * 2, ROWS),
    "written along an inner axis": (lambda x: written(x, (slice(None), COUNTS[:2]), x[:, :2] * 3), ROWS),
    "written along axes apart": (lambda x: written(x, (COUNTS[:2] - 1, slice(None), COUNTS[:2]), 7.0), ROWS),
    "index_add": (lambda x: torch.index_add(x * 1, 1, COUNTS, x[:, :3]), ROWS),
    "index_copy": (lambda x: torch.index_copy(x * 1, 1, COUNTS[:2], x[:, :2] * 3), ROWS),
    "index_fill": (lambda x: torch.index_fill(x * 1, 1, COUNTS[:2], 2.0), ROWS),
    "the largest of what goes to a place": (pooled_by_graph, ROWS),
    "attention over edges": (attention_of_edges, ROWS),
    "products of what goes to a place": (lambda x: torch.ones(3, 6, 5).scatter_reduce(1, (torch.arange(90) % 6).reshape(3, 6, 5), x, "prod"), ROWS),
    "smallest slices": (lambda x: (x * 1).index_reduce(1, COUNTS, x[:, 1:4] * 2, "amin"), ROWS),
    "weight norm along lines": (lambda x: torch._weight_norm(x, x[:, :1, :1].abs() + 1, 0), ROWS),
    "weight norm along columns": (lambda x: torch._weight_norm(x, x[:1, :1].abs() + 1, 2), ROWS),
    "orthogonal factors": (lambda x: torch.cat(torch.linalg.qr(x), 1), ROWS),
    "triangular systems": (lambda x: torch.linalg.solve_triangular(positive_definite(x), x, upper=True) + torch.linalg.solve_triangular(x[:, :5], x, upper=False, left=False, unitriangular=True), ROWS),
    "determinants": (lambda x: torch.linalg.det(x[:, :5] * 2) + torch.linalg.det((x[:, :5] * 2).mT), ROWS),
    "logarithms of determinants": (lambda x: torch.linalg.slogdet(x[:, :5] * 2).logabsdet + torch.linalg.slogdet((x[:, :5] * 2).mT).sign, ROWS),
    "inverses": (lambda x: torch.linalg.inv_ex(positive_definite(x)).inverse, ROWS),
    "alignments": (lambda x: F.ctc_loss(x.log_softmax(-1), LABELS, (3, 3, 2, 3, 1, 3), (2, 1, 2, 3, 0, 2), reduction="none", zero_infinity=True), ROWS),
    "alignments of labels in one row": (lambda x: F.ctc_loss(x.log_softmax(-1), LABELS[:, 0], (3,) * 6, (1,) * 6, blank=4), ROWS),
    **({"products of groups": (products_of_groups, (3, 8, 8))} if torch.__version__ >= (2, 15) else {}),  # 2.14 traces those of bfloat16 alone
    "numbers of places from floats": (lambda x: x[torch.arange(2, -1, -1.0, dtype=torch.int64)], ROWS),
    "concatenation with nothing": (lambda x: torch.cat([torch.empty(0), x * 2], 0), ROWS),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("function, shape", FUNCTIONS.values(), ids=FUNCTIONS)
def test_results_and_gradients(function, shape):
    torch._dynamo.reset()
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))

    def both(function):
        given = x.clone().requires_grad_()
        y = function(given)
        (y * torch.arange(y.numel(), dtype=y.dtype).reshape(y.shape).sin()).sum().backward()
        return y.detach(), given.grad

    compiled = torch.compile(function, backend="megjit", options={"fallback": False})
    for ours, theirs in zip(both(compiled), both(function), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_products_of_integers(dtype):
    """They wrap in their own dtype."""
    torch._dynamo.reset()
    values = torch.randint(-(2**31), 2**31, (2, 6, 5), generator=torch.Generator().manual_seed(0))
    x = (values * (2**30 + 1)).to(dtype) if dtype is torch.int64 else values.to(dtype)

    def products(x):
        return x[0] @ x[1].T, x @ x.mT, torch.addmm(x[0, :, :1], x[0], x[1].T, beta=2, alpha=3), torch.einsum("bij,bkj->ik", x, x)

    compiled = torch.compile(products, backend="megjit", options={"fallback": False})
    for ours, theirs in zip(compiled(x), products(x), strict=True):
        assert ours.dtype is dtype and torch.equal(ours, theirs)


IN_PART = {  # torch decomposes, or checks what failed
    "likelihood of a Gaussian process": likelihood_of_a_process,
    "systems of equations": lambda x: torch.linalg.solve(positive_definite(x), x),
    "systems from the right": lambda x: torch.linalg.solve(positive_definite(x.mT), x, left=False),
    "factors": lambda x: torch.linalg.lu_factor(x[:, :5]).LU + x[:, :5],
    "inverses": lambda x: torch.linalg.inv(positive_definite(x)),
    "eigenvalues": lambda x: torch.linalg.eigvalsh(positive_definite(x)),
    "singular values": lambda x: torch.linalg.svdvals(x),
}


@pytest.mark.filterwarnings("ignore:megjit leaves")
@pytest.mark.parametrize("function", IN_PART.values(), ids=IN_PART)
def test_graphs_of_matrices_have_torchs_results_and_gradients(function):
    torch._dynamo.reset()
    found = []
    for each in (torch.compile(function, backend="megjit"), function):
        given = torch.randn(ROWS, generator=torch.Generator().manual_seed(0)).requires_grad_()
        y = each(given)
        (y * torch.arange(y.numel(), dtype=y.dtype).reshape(y.shape).sin()).sum().backward()
        found.append((y.detach(), given.grad))
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-3 * max(1, found[1][1].abs().max().item()))


def test_a_singular_matrix_raises_as_in_torch():
    torch._dynamo.reset()
    bad = torch.stack([torch.eye(3), torch.zeros(3, 3)])
    with warnings.catch_warnings(), pytest.raises(torch.linalg.LinAlgError, match="singular"):
        warnings.simplefilter("ignore")
        torch.compile(torch.linalg.solve, backend="megjit")(bad, bad)
