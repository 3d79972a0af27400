"""Operations that read and write at places, reduce, sort and compute special functions: none is left to torch, and results and gradients are torch's."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from test_op_samples import compiled, directions, run

from megengine.torch_backend import _compiled

NAN, INF = math.nan, math.inf
SPECIAL = torch.tensor([0.0, -0.0, 1, -1, -2.5, 0.5, -0.5, 3.75, 88, 100, -100, INF, -INF, NAN, 1e-30])


def floats(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def whole(most, *shape):
    return torch.randint(most, shape, generator=torch.Generator().manual_seed(1))


def with_nan(x, *where):
    return torch.where(torch.zeros(x.shape, dtype=torch.bool).index_fill(-1, torch.tensor(where), True), NAN, x.detach())


def agree(function, *tensors, left=()):
    """Results and gradients are those of eager mode, and only ``left`` is torch's."""
    seen = set()
    with pytest.MonkeyPatch.context() as patch:
        named = _compiled.Compiled._names
        patch.setattr(_compiled.Compiled, "_names", lambda self: seen.update(str(node.target) for node in self._left) or named(self))
        got = run(compiled(function), tensors, directions)
    want = run(function, tensors, directions)
    for mine, theirs in zip(sum(got, []), sum(want, []), strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True, rtol=1e-4, atol=1e-4)
    assert {each for each in seen if "getitem" not in each} == set(left)


@pytest.mark.parametrize(("dim", "size", "step"), [(0, 3, 1), (-1, 2, 2), (1, 2, 3), (1, 7, 1), (1, 3, 4), (1, 17, 1), (1, 35, 2)])
def test_windows_along_an_axis(dim, size, step):
    wide = 7 if size <= 7 else 70
    agree(lambda x: x.unfold(dim, size, step) * 1, floats(5, wide))
    agree(lambda x: x.unfold(dim, size, step) * 1, whole(9, 5, wide))


@pytest.mark.parametrize("offset", [-5, -1, 0, 2])
@pytest.mark.parametrize("axes", [(0, 1), (2, 0), (-1, -2)])
def test_diagonals(offset, axes):
    agree(lambda x: x.diagonal(offset, *axes) * 1, floats(3, 4, 5))
    agree(lambda x: torch.diagonal_scatter(x, x.diagonal(offset, *axes) * 2, offset, *axes), floats(3, 4, 5))


STRIDED = [((3, 2, 2), (2, 1, 3), 1), ((2, 3, 4), (12, 2, 1), 1), ((2, 3, 2), (8, 2, 1), 3), ((2, 3), (1, 6), None), ((), (), 7), ((3,), (0,), 5), ((4, 3, 2), (0, 6, 0), 1), ((8, 3, 5), (1, 2, 3), 0), ((0, 2), (2, 1), 1)]


@pytest.mark.parametrize(("size", "stride", "offset"), STRIDED)
def test_memory_by_strides(size, stride, offset):
    agree(lambda x: x.as_strided(size, stride, offset) * 2, floats(4, 6))


@pytest.mark.filterwarnings("ignore:megjit leaves")
def test_strides_name_the_memory_of_which_a_view_shows_a_part():
    """torch was given the part alone, in memory of its own, and read beside it."""
    agree(lambda x: (x * 2)[1:].as_strided((3, 2), (2, 1), 1) * 2, floats(4, 6).detach())
    agree(lambda x: (x * 2).t().as_strided((3, 2), (2, 1)) * 2, floats(4, 6).detach())
    part = torch.arange(24.0)[6:]
    torch.testing.assert_close(compiled(lambda x: x.as_strided((3, 2), (2, 1), 1) * 2)(part), torch.arange(1.0, 7).reshape(3, 2) * 2)


@pytest.mark.parametrize("shape", [(4, 6), (4, 1), (6,), (1, 1)])
def test_elements_at_a_mask(shape):
    agree(lambda x, values, mask: x.masked_scatter(mask, values), floats(4, 6), floats(5, 5), whole(2, *shape) > 0)
    agree(lambda x, values, mask: x.masked_scatter(mask & False, values), floats(4, 6), floats(3), whole(2, *shape) > 0)


def written(x, *place_and_values):
    *place, values = place_and_values
    y = x * 2
    y[tuple(place)] = values
    return y


@pytest.mark.parametrize("accumulate", [False, True])
def test_the_same_is_written_at_each_place_of_a_mask(accumulate):
    at, number = whole(2, 4, 6) > 0, torch.tensor(0.5)

    def put(x, values, *places):
        return torch.ops.aten.index_put(x, places, values, accumulate)

    agree(put, floats(4, 6), number, at)
    agree(put, floats(4, 6, 3), torch.arange(3.0), at)
    agree(put, floats(6, 3, 2), torch.arange(3.0).reshape(1, 3, 1), at[0])
    agree(lambda x, values, mask: put(x, values, None, mask), floats(2, 4, 6, 3), torch.arange(2.0).reshape(2, 1, 1), at)
    agree(lambda x, mask: written(x, mask, torch.finfo(torch.float32).max), floats(4, 6), at)
    agree(lambda x, mask: written(x, slice(None), mask, 3.0), floats(4, 6), at[0])


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin", "prod"])
def test_reductions_to_places(reduce, include_self):
    agree(lambda x, values, where: x.scatter_reduce(1, where, values, reduce, include_self=include_self), floats(3, 4), floats(3, 5), whole(4, 3, 5))
    agree(lambda x, values, where: x.scatter_reduce(-1, where, values, reduce, include_self=include_self), whole(9, 4, 4) - 5, whole(9, 3, 5), whole(4, 3, 5))


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["mean", "amax", "amin", "prod"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_reductions_of_slices_to_places(reduce, include_self, dtype):
    x, values, where = (whole(5, 3, 4) - 2).to(dtype), (whole(4, 3, 6) - 2).to(dtype), torch.tensor([0, 2, 2, 0, 0, 1])
    given = [each.requires_grad_() for each in (x, values)] if dtype is torch.float32 else [x, values]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="index_reduce")
        agree(lambda x, values, where: x.index_reduce(1, where, values, reduce, include_self=include_self), *given, where)


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_extrema_of_places_are_nan_where_one_is(reduce):
    x, values = with_nan(floats(3, 4), 1), with_nan(floats(3, 5), 2)
    agree(lambda x, values, where: x.scatter_reduce(1, where, values, reduce), x, values, whole(4, 3, 5))


@pytest.mark.parametrize("right", [False, True])
def test_places_in_a_sorted_sequence(right):
    bounds, values = torch.tensor([1.0, 2, 2, 3]), torch.tensor([[0.0, 1, 2, 2.5], [3, 4, NAN, -INF]])
    agree(lambda values, bounds: torch.bucketize(values, bounds, right=right), values, bounds)
    agree(lambda values, bounds: torch.bucketize(values, bounds[:0], right=right), values, bounds)
    agree(lambda values, rows: torch.searchsorted(rows, values, right=right, sorter=rows.argsort(1)), floats(3, 5).detach(), floats(3, 8).detach())


@pytest.mark.parametrize("with_end", [False, True])
@pytest.mark.parametrize("padding", [None, 1])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_rows(mode, padding, with_end):
    table, indices, starts = floats(10, 3), torch.tensor([0, 1, 2, 1, 4]), torch.tensor([0, 2, 2, 5])
    starts = starts if with_end else starts[:3]
    options = {"mode": mode, "padding_idx": padding, "include_last_offset": with_end}
    for scaled in (False,) if mode == "max" else (False, True):
        agree(lambda table, indices, starts: F.embedding_bag(indices, table, starts, scale_grad_by_freq=scaled, **options), table, indices, starts)  # noqa: B023
    for fixed in (table.detach(), table.detach().round()):
        agree(lambda table, indices, starts: F.embedding_bag(indices, table, starts, **options), fixed, indices, starts)
        agree(lambda table, indices, starts: F.embedding_bag(indices, table, starts, **options), fixed.clone().requires_grad_(), indices, starts)
    if mode == "sum":
        agree(lambda table, factors, indices, starts: F.embedding_bag(indices, table, starts, per_sample_weights=factors, **options), table, floats(5), indices, starts)


WINDOWS = [{"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 3, "stride": 2, "ceil_mode": True}]
IMAGES = {"distinct": floats(2, 3, 9, 10), "equal": floats(2, 3, 9, 10).detach().round().requires_grad_(), "nan": with_nan(floats(2, 3, 9, 10), 2, 3), "one": floats(3, 9, 10)}


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("image", IMAGES.values(), ids=IMAGES.keys())
def test_places_of_maxima(image, window):
    agree(lambda x: F.max_pool2d(x, return_indices=True, **window), image)
    agree(lambda x: F.adaptive_max_pool2d(x, (4, 3), return_indices=True), image)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_maxima_of_volumes(window):
    agree(lambda x: F.max_pool3d(x, **window), floats(2, 2, 6, 7, 8))
    agree(lambda x: F.max_pool3d(x, return_indices=True, **window), floats(2, 6, 7, 8).detach().round().requires_grad_())
    agree(lambda x: F.adaptive_avg_pool3d(x, (3, None, 4)), floats(2, 6, 7, 8))


def test_maxima_go_back_to_their_places():
    agree(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), floats(1, 2, 8, 8))
    agree(lambda x: F.max_pool2d(x, 3), floats(1, 1, 3, 3))


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_sampled_images(mode, padding, aligned):
    """Also at the border, where torch's gradient is 0."""
    line = torch.tensor([-1.0, 1, 0, -0.5, 0.5, 1.5, -1.5, -0.25])
    border = torch.stack(torch.meshgrid(line, line, indexing="ij"), -1)[None].repeat(2, 1, 1, 1).requires_grad_()
    for grid in (border, floats(2, 5, 6, 2)):
        agree(lambda x, grid: F.grid_sample(x, grid, mode, padding, aligned), floats(2, 3, 4, 5), grid)


ORDERED = {"distinct": floats(4, 7), "nan": with_nan(floats(4, 7), 1, 5), "all nan": torch.full((2, 3), NAN), "whole": whole(5, 9, 3), "row": floats(5), "number": floats()}


@pytest.mark.parametrize("x", ORDERED.values(), ids=ORDERED.keys())
def test_medians(x):
    agree(lambda x: (x.median(), x.nanmedian()), x)
    agree(lambda x: (x.detach().median(-1)[0], x.detach().nanmedian(0, True)[0], x.detach().kthvalue(1, -1)[0]), x)


@pytest.mark.filterwarnings("ignore:megjit leaves")
def test_which_of_equal_elements_is_the_median_torch_decides():
    agree(lambda x: x.median(1), floats(4, 7).detach().round(), left=["aten.median.dim"])


def test_running_logarithms_of_sums():
    agree(lambda x: x.logcumsumexp(1), torch.tensor([[-INF, -INF, 0.0, 1, 200, -300, NAN, 2], [INF, 1, 2, 3, -INF, 4, 5, 6]]))
    agree(lambda x: x.logcumsumexp(0), floats(17, 3))
    agree(lambda x: x.logcumsumexp(0), floats())
    for name in ("cummax", "cummin"):  # of equal ones the last, of NaNs each one
        agree(lambda x, name=name: getattr(x, name)(1), torch.tensor([[1.0, 3, 3, -2, 5, 0, 5, -INF], [0, NAN, 7, NAN, 1, INF, 2, 3]]))
        agree(lambda x, name=name: getattr(x, name)(0), floats(17, 3))
        agree(lambda x, name=name: getattr(x, name)(-1), torch.tensor([[4, 4, 1], [2, 9, 9]]))
        agree(lambda x, name=name: getattr(x, name)(0), floats())


@pytest.mark.parametrize("p", [0, 1, 2, INF])
def test_distances_of_rows(p):
    agree(lambda x, y: torch.cdist(x, y, p), floats(1, 4, 5), torch.randn(3, 3, 5).requires_grad_())
    agree(lambda x, y: torch.cdist(x, y, p), floats(4, 5), floats(4, 5).detach())  # some are 0
    agree(lambda x, y: torch.cdist(x, y, p), floats(4, 0), floats(3, 0))


ELEMENTS = ["lgamma", "digamma", "erfinv", "i0", "i0e", "i1", "i1e", "ndtri"]


@pytest.mark.parametrize("name", ELEMENTS)
def test_special_functions(name):
    agree(getattr(torch.special, {"lgamma": "gammaln"}.get(name, name)), SPECIAL)
    if name != "ndtri":
        agree(getattr(torch.special, {"lgamma": "gammaln"}.get(name, name)), torch.linspace(0.1, 0.9, 7).requires_grad_())


@pytest.mark.parametrize("name", ["fmax", "fmin", "hypot"])
def test_functions_of_two_numbers(name):
    agree(getattr(torch, name), *torch.meshgrid(SPECIAL, SPECIAL, indexing="ij"))


@pytest.mark.parametrize("decimals", [-2, 0, 1, 3])
def test_rounding_to_decimals(decimals):
    agree(lambda x: torch.round(x, decimals=decimals), torch.tensor([0.5, 1.5, 2.5, -2.5, 250, 350, 0.25, 0.35, 123.4567]))


def test_tensors_without_axes_have_one_element():
    agree(lambda x: (x.sum(-1, keepdim=True), x.softmax(0), x.log_softmax(0), x.max(0)[0], x.sort(0)[0], x.topk(1)[0], x.cumsum(0)), floats())
    agree(lambda x, where: (x.gather(0, where), x.index_select(0, where), x.scatter_add(0, where, x)), floats(), torch.tensor(0))
