"""Nothing of these functions is left to torch: results and gradients are those of eager mode."""

import pytest
import torch
import torch.nn.functional as F

IMAGE, ROWS, COUNTS = (2, 4, 8, 8), (3, 6, 5), torch.tensor([1, 3, 3])


def written(x, places, value):
    y = x * 1
    y[places] = value
    return y


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
    "concatenation with nothing": (lambda x: torch.cat([torch.empty(0), x * 2], 0), ROWS),
}


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
