"""Each function, method and operator of the tables gives torch's results, traced and exported."""

import pytest
import torch
import torch.nn.functional as F
from agree import assert_agree, check

from megengine import fx

IMAGE, ROWS = (2, 4, 7, 9), (3, 6)
WEIGHT = {shape: torch.randn(shape, generator=torch.Generator().manual_seed(1)) for shape in [
    (6, 4, 3, 3), (6, 2, 3, 3), (4, 3, 2, 2), (4, 2, 2, 2), (6,), (4,), (9,), (7, 9), (9, 5), (5, 9), (5,), (10, 3), (6, 4, 3), (4, 3, 2),
    (6, 4, 1, 3, 3), (4, 3, 1, 2, 2), (3, 4, 8), (3, 8, 4), (8, 8), (8, 4),
]}  # fmt: skip
W = WEIGHT.__getitem__

UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp exp2 expm1 floor log1p neg reciprocal round sigmoid sign sin sinh "
    "square tan tanh trunc relu isnan isfinite logical_not"
).split()


def nn_grouped_mm(a, b, ends=None):
    return F.grouped_mm(a, b, offs=None if ends is None else ends.int())


def of_one(function, positive=False):
    return lambda x: function(x * x + 1.5 if positive else x)


def of_two(function):
    return lambda x: function(x[0], x[1])


# name -> (function of x, shape of x)
FUNCTIONS = {
    **{name: (of_one(getattr(torch, name)), ROWS) for name in UNARY},
    **{f"positive {name}": (of_one(getattr(torch, name), positive=True), ROWS) for name in (
        "log", "log2", "log10", "sqrt", "rsqrt", "acosh")},
    **{f"two tensors {name}": (of_two(getattr(torch, name)), ROWS) for name in (
        "maximum", "minimum", "atan2", "logaddexp", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_xor")},
    "operators": (lambda x: (-x + 2 * x - x / 3) ** 2 // 0.5 % 2 + (1 - x), ROWS),
    "operators on bools": (lambda x: ((x > 0) & (x < 1)) | ~(x > -1), ROWS),
    "add with alpha": (lambda x: torch.add(x, x * x, alpha=2) + torch.sub(x, 1, alpha=3) + torch.rsub(x, 1), ROWS),
    "remainder": (lambda x: torch.remainder(x, 0.7) + torch.remainder(x, -0.7) * 2 + torch.fmod(x, 0.7) * 4 + torch.remainder(x, x.flip(0)), ROWS),
    "round of halves": (lambda x: torch.round(torch.round(x * 8) / 2), ROWS),
    "div rounded": (lambda x: torch.div(x, 0.3, rounding_mode="floor") + torch.div(x, 0.3, rounding_mode="trunc"), ROWS),
    "addcmul, addcdiv, lerp": (lambda x: torch.addcmul(x, x, x, value=2) + torch.addcdiv(x, x, x * x + 1) + x.lerp(x * 2, 0.3), ROWS),
    "clamp": (lambda x: x.clamp(-0.5, 0.5) + x.clamp(min=0) + torch.clamp(x, max=0.1) + x.clamp_min(0.2), ROWS),
    "pow": (lambda x: x.pow(3) + torch.pow(2.0, x) + x**2, ROWS),
    "where, masked_fill": (lambda x: torch.where(x > 0, x, -1.0) + x.masked_fill(x < 0, 2.0), ROWS),
    "leaky activations": (lambda x: F.leaky_relu(x, 0.2) + F.elu(x, 1.5) + F.celu(x, 2.0) + F.selu(x), ROWS),
    "smooth activations": (lambda x: F.silu(x) + F.mish(x) + F.gelu(x) + F.gelu(x, approximate="tanh") + F.softplus(x), ROWS),
    "softplus with beta": (lambda x: F.softplus(x, beta=2) + F.softsign(x) + F.logsigmoid(x), ROWS),
    "hard activations": (lambda x: F.hardtanh(x, -0.3, 0.6) + F.hardswish(3 * x) + F.hardsigmoid(3 * x) + F.relu6(5 * x), ROWS),
    "shrinking": (lambda x: F.hardshrink(x) + F.softshrink(x) + F.tanhshrink(x) + F.threshold(x, 0.1, 2.0), ROWS),
    "prelu": (lambda x: F.prelu(x, W((4,)).abs()), IMAGE),
    "glu": (lambda x: F.glu(x, 1), IMAGE),
    "softmax": (lambda x: F.softmax(x, dim=-1) + x.softmax(1) + torch.softmax(x, 0) + F.log_softmax(x, dim=1), ROWS),
    "softmax in another dtype": (lambda x: x.half().softmax(-1, torch.float32) + F.softmax(x, dim=0, dtype=torch.float32), ROWS),
    "sum": (lambda x: [x.sum(), x.sum(1), x.sum((2, 3), keepdim=True), torch.sum(x, dim=-1), (x > 0).sum(0)], IMAGE),
    "mean": (lambda x: [x.mean(), x.mean(1), x.mean([2, 3], keepdim=True), torch.mean(x, dim=-1)], IMAGE),
    "var, std": (lambda x: [x.var(), x.var(1), x.var(1, unbiased=False), x.std(-1, keepdim=True), torch.var_mean(x, 1)], IMAGE),
    "amax, amin": (lambda x: [x.amax(), x.amax(1), x.amin((2, 3), keepdim=True)], IMAGE),
    "max, min": (lambda x: [x.max(), x.max(1), x.min(-1, keepdim=True).values, torch.max(x, -x), torch.max(x, dim=2)[1]], IMAGE),
    "argmax, argmin": (lambda x: [x.argmax(), x.argmax(1), x.argmin(-1, keepdim=True)], IMAGE),
    "any, all": (lambda x: [(x > 0).any(), (x > 1).any(1), (x > -2).all(-1), (x > -1).all()], ROWS),
    "prod, cumsum, logsumexp": (lambda x: [x.prod(1), x.cumsum(1), torch.logsumexp(x, 1), x.logsumexp((0, 1))], ROWS),
    "norm": (lambda x: [x.norm(), x.norm(dim=1), torch.linalg.vector_norm(x, 1, 1), F.normalize(x, dim=1), F.normalize(x, 1.0, 0)], ROWS),
    "cosine_similarity": (lambda x: F.cosine_similarity(x[:, :1], x[:, 1:2], dim=-1), IMAGE),
    "topk, sort": (lambda x: [x.topk(2, 1), x.topk(2, largest=False), torch.sort(x, 1), x.sort(descending=True)[0], x.argsort(0)], ROWS),
    "view, reshape": (lambda x: [x.view(x.size(0), -1), x.reshape(2, 4, 63), x.flatten(1), torch.flatten(x), x.view_as(x)], IMAGE),
    "transposes": (lambda x: [x.transpose(1, -1), x.permute(0, 2, 3, 1), torch.permute(x, (3, 2, 1, 0)), x.swapaxes(0, 1), x.mT], IMAGE),
    "movedim": (lambda x: [x.movedim(1, -1), torch.movedim(x, (0, 1), (2, 0)), x[0, 0].t(), x[0, 0].T], IMAGE),
    "new axes": (lambda x: [x.unsqueeze(0), x.unsqueeze(-1), x[:1].squeeze(0), x[:, :1].squeeze(), x.squeeze(1), x[None]], IMAGE),
    "unflatten": (lambda x: [x.unflatten(1, (2, 2)), x.unflatten(-1, (3, -1))], IMAGE),
    "expand, repeat": (lambda x: [x[:, :1].expand(-1, 3, -1, -1), x[:1].expand_as(x), x.repeat(2, 1, 1, 2), x.repeat_interleave(2, 1)], IMAGE),
    "roll, flip": (lambda x: [x.roll((1, -2), (2, 3)), torch.roll(x, 2, 1), x.flip(1), x.flip((0, -1))], IMAGE),
    "cat, stack": (lambda x: [torch.cat([x, x * 2], 1), torch.cat((x, x), dim=-1), torch.stack([x, x], 1), torch.concat([x, x])], IMAGE),
    "pieces": (lambda x: [x.chunk(2, 1), x.chunk(4, -1), x.split(3, -1), x.split([1, 3], 1), x.unbind(1), x.select(1, 2), x.narrow(2, 1, 3)], IMAGE),
    "indexing": (lambda x: [x[0], x[:, 1:3], x[..., -1], x[:, None], x[:, :, ::2], x[:, [0, 2]]], IMAGE),
    "index_select, gather": (lambda x: [x.index_select(1, torch.tensor([2, 0])), x.gather(3, (x[..., :2] > 0).long())], IMAGE),
    "tril, triu": (lambda x: [x.tril(), x.triu(1), torch.tril(x, -1)], IMAGE),
    "cumprod": (lambda x: [x.cumprod(1), torch.cumprod(x, -2)], IMAGE),
    "adding by index": (lambda x: [x.index_add(1, torch.tensor([2, 0, 2]), x[:, :3], alpha=2), x.scatter_add(3, (x[..., :2] > 0).long(), x)], IMAGE),
    "bincount, searchsorted": (lambda x: [
        torch.bincount((x * 2 + 2).long().flatten(), minlength=9), torch.searchsorted(x.sort()[0], x), torch.searchsorted(x[0].sort()[0], x[1], right=True)], ROWS),
    "bits": (lambda x: [(x * 9).int() & 6, ~(x * 9).int() | 1, (x * 9).int() ^ (x > 0), torch.bitwise_not(x > 0), (x * 9).int() << 2, torch.bitwise_right_shift((x * 9).int(), 1)], ROWS),
    "embedding with padding": (lambda x: F.embedding((x * 2).long().clamp(0, 9), W((10, 3)), padding_idx=0), ROWS),
    "padding by name": (lambda x: [F.conv2d(x, W((6, 4, 3, 3)), padding="same"), F.conv2d(x, W((6, 4, 3, 3)), padding="valid")], IMAGE),
    "losses": (lambda x: [
        F.mse_loss(x, -x), F.l1_loss(x, -x, reduction="sum"), F.smooth_l1_loss(x, -x, beta=0.3), F.huber_loss(x, -x, "none", 0.3),
        F.kl_div(x, x.softmax(1), reduction="batchmean"), F.kl_div(x, x.log_softmax(1), reduction="sum", log_target=True)], ROWS),
    "complex parts": (lambda x: [torch.real(torch.complex(x, x * 2)), torch.imag(torch.complex(x, x * 2)), torch.view_as_real(torch.complex(x, -x))], ROWS),
    "dtypes": (lambda x: [x.half(), x.to(torch.float16).to(x.dtype), x.int(), x.long().type_as(x), (x > 0).float(), x.to("cpu"), x.double()], ROWS),
    "new tensors": (lambda x: [torch.zeros(2, 3), torch.ones(x.size(0)), torch.full((2,), 3.5), x.new_zeros(2, 2), torch.zeros_like(x), torch.arange(x.size(1)), torch.full_like(x, 2)], ROWS),
    "ranges": (lambda x: [torch.arange(5), torch.arange(1, 4, 0.5), torch.linspace(0, 1, 5) + x[0, 0], torch.arange(x.shape[1], device=x.device)], ROWS),
    "diff": (lambda x: [torch.diff(x), torch.diff(x, 2, 0), torch.diff(x > 0), torch.diff(x, prepend=x[:, :1], append=x)], ROWS),
    "histc": (lambda x: [torch.histc(x, 5), torch.histc(x, 4, -0.5, 0.5), torch.histc(x * 0, 3)], ROWS),
    "meshgrid": (lambda x: torch.meshgrid(x[0], x[1], indexing="ij"), ROWS),
    "grid_sample": (lambda x: [F.grid_sample(x, 1.4 * x[:, :2].permute(0, 2, 3, 1), mode, padding, corners) for mode in ("bilinear", "nearest", "bicubic") for padding in ("zeros", "border", "reflection") for corners in (False, True)], IMAGE),
    "weight_norm": (lambda x: [torch._weight_norm(x, W((4,)).reshape(1, 4, 1, 1), 1), torch._weight_norm(x[0], W((4,)).reshape(4, 1, 1))], IMAGE),
    "products of experts": (lambda x: [
        nn_grouped_mm(torch.cat([x, -x, x, x]), W((3, 4, 8)), torch.tensor([2, 2, 8])), nn_grouped_mm(W((8, 8)), W((8, 4)), torch.tensor([3, 8])),
        nn_grouped_mm(W((3, 4, 8)), W((8, 8)), torch.tensor([1, 5, 8])), nn_grouped_mm(W((3, 4, 8)), W((3, 8, 4)))], (2, 4)),
    "linear": (lambda x: F.linear(x, W((5, 9)), W((5,))) + F.linear(x, W((5, 9))), IMAGE),
    "matmul": (lambda x: [x @ W((9, 5)), torch.matmul(x, W((9,))), torch.bmm(x[0], x[1].transpose(1, 2)), torch.mm(x[0, 0], W((9, 5)))], IMAGE),
    "addmm": (lambda x: [torch.addmm(W((5,)), x[0, 0], W((9, 5)), beta=2, alpha=0.5), torch.outer(x[0, 0, 0], x[0, 0, 1])], IMAGE),
    "einsum": (lambda x: [torch.einsum("bchw,hw->bc", x, W((7, 9))), torch.einsum("bchw,bdhw->bcd", x, x)], IMAGE),
    "embedding": (lambda x: F.embedding((x * 2).long().clamp(0, 9), W((10, 3))), ROWS),
    "one_hot": (lambda x: F.one_hot((x * 2).long().clamp(0, 4), 5), ROWS),
    "conv2d": (lambda x: F.conv2d(x, W((6, 4, 3, 3)), W((6,)), 2, 1), IMAGE),
    "grouped conv2d": (lambda x: F.conv2d(x, W((6, 2, 3, 3)), None, (1, 2), padding=(1, 0), dilation=(1, 2), groups=2), IMAGE),
    "conv1d": (lambda x: F.conv1d(x[:, :, 0], W((6, 4, 3)), W((6,)), stride=2, padding=1), IMAGE),
    "conv3d": (lambda x: F.conv3d(x.unsqueeze(2), W((6, 4, 1, 3, 3)), padding=(0, 1, 1)), IMAGE),
    "conv_transpose": (lambda x: [F.conv_transpose2d(x, W((4, 3, 2, 2)), None, 2, 1, 1), F.conv_transpose2d(x, W((4, 2, 2, 2)), groups=2), F.conv_transpose1d(x[:, :, 0], W((4, 3, 2)), stride=2)], IMAGE),
    "max_pool": (lambda x: [F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 3, 2, 1, 1, True), F.max_pool2d(x, 2, 1, dilation=2), F.max_pool2d(x, 2, 3, 1, 1, True), F.max_pool1d(x[:, 0], 3, 2, ceil_mode=True)], IMAGE),
    "avg_pool": (lambda x: [F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.avg_pool2d(x, 4, 3, 1, ceil_mode=True), F.avg_pool2d(x, 4, 3, 1, True, False), F.avg_pool2d(x, 2, 3, 1, True), F.avg_pool1d(x[:, 0], 2)], IMAGE),
    "3-d pooling": (lambda x: [F.max_pool3d(x, 2, padding=1), F.avg_pool3d(x, 2), F.adaptive_avg_pool3d(x, (2, 3, 4))], IMAGE),
    "adaptive pooling": (lambda x: [F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_avg_pool2d(x, (None, 2)), F.adaptive_avg_pool1d(x[:, 0], 4), F.adaptive_max_pool2d(x, (2, 5))], IMAGE),
    "batch_norm": (lambda x: F.batch_norm(x, W((4,)), W((4,)).abs(), W((4,)), W((4,)), eps=1e-3), IMAGE),
    "other norms": (lambda x: [F.layer_norm(x, (9,), W((9,)), W((9,))), F.layer_norm(x, (7, 9)), F.group_norm(x, 2, W((4,)), W((4,))), F.instance_norm(x), F.rms_norm(x, (9,), W((9,)), 1e-5), F.local_response_norm(x, 3)], IMAGE),
    "attention": (lambda x: [F.scaled_dot_product_attention(x, x + 1, x), F.scaled_dot_product_attention(x, x, x, is_causal=True), F.scaled_dot_product_attention(x, x, x, torch.ones(7, 7, dtype=torch.bool).tril(), scale=0.3), F.scaled_dot_product_attention(x, x, x, W((7, 9))[:, :7])], IMAGE),
    "pad": (lambda x: [F.pad(x, (1, 2)), F.pad(x, (1, 2, 0, 3), value=2.0), F.pad(x, (1, 2, 2, 0), "reflect"), F.pad(x, (2, 1, 1, 1), "replicate"), F.pad(x, (2, 1, 1, 1), "circular"), F.pad(x, (-1, 2))], IMAGE),
    "interpolate": (lambda x: [F.interpolate(x, scale_factor=2), F.interpolate(x, (5, 13)), F.interpolate(x, (5, 13), mode="bilinear"), F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True), F.interpolate(x, (5, 13), mode="bicubic"), F.interpolate(x[:, 0], 4, mode="linear"), F.interpolate(x, (5, 13), mode="nearest-exact")], IMAGE),
    "shuffles": (lambda x: [F.pixel_shuffle(x, 2), F.pixel_unshuffle(x[..., :6, :6], 2)], IMAGE),
    "in eval mode": (lambda x: F.dropout(x, 0.5, training=False) + F.dropout2d(x, 0.5, training=False), IMAGE),
    "in place": (lambda x: [F.relu(x + 1, inplace=True), (x * 2).add_(1).mul_(x).clamp_(-1, 1), torch.relu_(x * 3)], ROWS),
    "sizes": (lambda x: x.reshape(x.shape[0] * x.size(1), x.shape[-1] // 3, 3 * x.size()[2]) * x.dim() + x.numel(), IMAGE),
}  # fmt: skip


# As they are traced; exported programs have other operators for them.
TRACED = {
    "cross_entropy": (lambda x: [
        F.cross_entropy(x, torch.tensor([1, 5, -100])), F.cross_entropy(x, torch.tensor([1, 5, 2]), W((6,)).abs(), label_smoothing=0.1),
        F.cross_entropy(x, torch.tensor([1, 5, 2]), W((6,)).abs(), ignore_index=5, reduction="none")], ROWS),
    "losses of embeddings": (lambda x: [F.cosine_embedding_loss(x, x * x, (x[:, 0] > 0).int() * 2 - 1, 0.1), F.triplet_margin_loss(x, x * x, -x, p=3.0, swap=True)], ROWS),
    "fft": (lambda x: [torch.view_as_real(each.resolve_conj()) for each in (
        torch.fft.fft(x), torch.fft.ifft(x, 4, 1, "ortho"), torch.fft.rfft(x), torch.fft.rfft2(x), torch.fft.fftn(x, dim=(1, 2)), torch.fft.fftshift(torch.fft.fft2(x)))], IMAGE),
    "inverse fft": (lambda x: [torch.fft.irfft(torch.fft.rfft(x), 9), torch.fft.irfft2(torch.fft.rfft2(x), norm="forward"), torch.fft.irfftn(torch.fft.rfftn(x))], IMAGE),
    "linalg": (lambda x: [
        torch.linalg.inv(x[:, :3] + 3 * torch.eye(3)), torch.linalg.solve(x[:, :3] + 3 * torch.eye(3), x), torch.linalg.cholesky(x @ x.T + torch.eye(3), upper=True),
        torch.linalg.qr(x.T)[0], torch.linalg.qr(x.T)[1], torch.linalg.eigh(x @ x.T).eigenvalues, torch.linalg.eigvalsh(x @ x.T), torch.linalg.det(x[:, :3]), torch.linalg.slogdet(x[:, :3])[1],
        torch.linalg.svdvals(x), torch.linalg.svd(x, False)[1], torch.linalg.matrix_power(x[:, :3], 3)], ROWS),
}  # fmt: skip


class Program(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("name", [*FUNCTIONS, *TRACED])
def test_functions_give_torchs_results(name):
    function, shape = (FUNCTIONS | TRACED)[name]
    torch.manual_seed(0)
    check(Program(function), torch.rand(shape) * 1.8 - 0.9)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_exported_functions_give_torchs_results(name):
    if name == "products of experts" and torch.__version__.startswith("2.14"):
        pytest.skip("torch 2.14 exports them of bfloat16 alone")
    function, shape = FUNCTIONS[name]
    torch.manual_seed(0)
    x = torch.rand(shape) * 1.8 - 0.9
    program = torch.export.export(Program(function), (x,))
    assert_agree(function, fx.from_torch(program), x)
    assert_agree(function, fx.from_torch(program.run_decompositions()), x)
