"""Small networks for graphs, points, tables, fields and losses of many kinds; `test_training.py` trains each."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class GraphConvolution(nn.Module):
    """Kipf and Welling 2017: sums over edges, scaled by degrees."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x, edges):
        start, end = edges
        degree = torch.zeros(x.shape[0]).index_add(0, end, torch.ones(end.shape[0])) + 1
        scale = degree.rsqrt()
        for layer in (self.first, self.second):
            y = layer(x)
            x = F.elu(torch.zeros_like(y).index_add_(0, end, y[start] * (scale[start] * scale[end])[:, None]) + y / degree[:, None])
        return x.log_softmax(-1)


class GraphAttention(nn.Module):
    """Velickovic et al. 2018: softmax over the edges that end at a node; the largest value of each graph."""

    def __init__(self):
        super().__init__()
        self.turn, self.one, self.other = nn.Linear(6, 8), nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x, edges, graph):
        start, end = edges
        y = self.turn(x)
        scores = F.leaky_relu(self.one(y)[start] + self.other(y)[end], 0.2).squeeze(-1)
        largest = torch.full((x.shape[0],), -torch.inf).scatter_reduce(0, end, scores.detach(), "amax")
        weights = (scores - largest[end]).exp()
        weights = weights / torch.zeros(x.shape[0]).scatter_add(0, end, weights)[end]
        y = torch.zeros_like(y).index_add(0, end, y[start] * weights[:, None])
        return torch.zeros(2, 8).scatter_reduce(0, graph[:, None].expand_as(y), y, "amax", include_self=False)


class Points(nn.Module):
    """Qi et al. 2017, and Wang et al. 2019: a transform, then the largest over the nearest neighbours."""

    def __init__(self):
        super().__init__()
        self.turn, self.edge, self.head = nn.Linear(3, 9), nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU()), nn.Linear(8, 4)

    def forward(self, x):
        x = x @ (self.turn(x.amax(1)).view(-1, 3, 3) + torch.eye(3))
        near = torch.cdist(x, x).topk(3, -1, largest=False)[1]
        other = x.gather(1, near.flatten(1)[..., None].expand(-1, -1, 3)).view(*near.shape, 3)
        pairs = torch.cat([other - x[:, :, None], x[:, :, None].expand_as(other)], -1)
        y = self.edge(pairs.flatten(0, 2)).view(*near.shape, 8).max(2)[0]
        return self.head(y.max(1)[0])


class Dlrm(nn.Module):
    """Naumov et al. 2019: bags of embeddings, products of all pairs."""

    def __init__(self):
        super().__init__()
        self.bags, self.dense, self.head = nn.ModuleList(nn.EmbeddingBag(11, 6, mode=mode) for mode in ("sum", "mean")), nn.Linear(4, 6), nn.Linear(9, 1)
        self.register_buffer("places", torch.tril_indices(3, 3, -1))

    def forward(self, x, words, offsets):
        dense = F.relu(self.dense(x))
        found = torch.stack([dense, *(bag(words, offsets) for bag in self.bags)], 1)
        pairs = (found @ found.mT)[:, self.places[0], self.places[1]]
        return self.head(torch.cat([dense, pairs], 1)).sigmoid()


class DeepFM(nn.Module):
    """Guo et al. 2017: factorization by squares of sums, beside a deep network."""

    def __init__(self):
        super().__init__()
        self.table, self.linear, self.deep = nn.Embedding(20, 4), nn.Embedding(20, 1), nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x, labels):
        v = self.table(x)
        pairs = (v.sum(1).square() - v.square().sum(1)).sum(-1) / 2
        scores = self.linear(x).sum((1, 2)) + pairs + self.deep(v).squeeze(-1)
        return F.binary_cross_entropy_with_logits(scores, labels, pos_weight=torch.tensor(2.0))


class Siamese(nn.Module):
    """Three losses of pairs and triplets over one network."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(self, a, b, c):
        a, b, c = self.net(a), self.net(b), self.net(c)
        signs = torch.tensor([1.0, -1, 1, -1])
        return F.triplet_margin_loss(a, b, c) + F.cosine_embedding_loss(a, b, signs) + F.margin_ranking_loss(F.pairwise_distance(a, b), F.pairwise_distance(a, c), signs)


class Contrastive(nn.Module):
    """Chen et al. 2020 and Zbontar et al. 2021: two views of each sample; a slow copy of the head (He et al. 2020)."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, affine=False), nn.ReLU(), nn.Linear(8, 4))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, a, b):
        a, b = self.net(a), self.net(b)
        with torch.no_grad():
            self.mean.lerp_(a.mean(0), 0.1)
        both = F.normalize(torch.cat([a - self.mean, b - self.mean]), dim=-1)
        scores = (both @ both.T / 0.5).masked_fill(torch.eye(2 * len(a), dtype=torch.bool), -1e9)
        crossed = (a - a.mean(0)).T @ (b - b.mean(0)) / len(a) - torch.eye(4)
        return F.cross_entropy(scores, torch.arange(2 * len(a)).roll(len(a))) + crossed.square().sum() * 0.1


class Variational(nn.Module):
    """Kingma and Welling 2014; the noise is given, as each framework draws its own."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(12, 8), nn.Linear(4, 12)

    def forward(self, x, noise):
        mean, log_var = self.encoder(x).chunk(2, -1)
        y = self.decoder(mean + noise * (log_var / 2).exp())
        return F.binary_cross_entropy_with_logits(y, x.sigmoid(), reduction="sum") - 0.5 * (1 + log_var - mean.square() - log_var.exp()).sum()


class Quantized(nn.Module):
    """van den Oord et al. 2017: the nearest of a book's vectors, gradients straight through."""

    def __init__(self):
        super().__init__()
        self.encoder, self.book, self.decoder = nn.Conv1d(2, 4, 3, 2, 1), nn.Parameter(torch.randn(7, 4)), nn.ConvTranspose1d(4, 2, 4, 2, 1)

    def forward(self, x):
        z = self.encoder(x).mT
        nearest = (z.square().sum(-1, keepdim=True) - 2 * z @ self.book.T + self.book.square().sum(-1)).argmin(-1)
        q = F.embedding(nearest, self.book)
        y = self.decoder((z + (q - z).detach()).mT)
        return F.mse_loss(y, x) + F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())


class Radiance(nn.Module):
    """Mildenhall et al. 2020: encoded places along rays, what light is left behind each."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3 * 8 + 3, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, start, direction):
        t = torch.linspace(0.5, 2, 6)
        places = start[:, None] + direction[:, None] * t[:, None]
        waves = places[..., None] * 2.0 ** torch.arange(4)
        seen = self.net(torch.cat([torch.cat([waves.sin(), waves.cos()], -1).flatten(-2), F.normalize(direction, dim=-1)[:, None].expand(-1, 6, -1)], -1))
        apart = torch.cat([t[1:] - t[:-1], torch.tensor([1e3])])
        opaque = 1 - (-F.relu(seen[..., 3]) * apart).exp()
        left = torch.cumprod(torch.cat([torch.ones(len(start), 1), 1 - opaque + 1e-10], 1), 1)[:, :-1]
        return ((left * opaque)[..., None] * seen[..., :3].sigmoid()).sum(1)


class Sine(nn.Module):
    """Sitzmann et al. 2020: sines instead of rectifiers; derivatives by the chain rule, written out."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 12), nn.Linear(12, 1)

    def forward(self, x):
        inner = 10 * self.first(x)
        slope = (10 * inner.cos() * self.last.weight) @ self.first.weight
        return torch.cat([self.last(inner.sin()), slope], -1)


class Differential(nn.Module):
    """Chen et al. 2018: the flow of a network in fixed steps of Runge and Kutta's fourth order."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))

    def field(self, t, x):
        return self.net(torch.cat([x, torch.full_like(x[:, :1], t)], -1))

    def forward(self, x, step=0.25):
        for number in range(3):
            t = number * step
            a = self.field(t, x)
            b = self.field(t + step / 2, x + step / 2 * a)
            c = self.field(t + step / 2, x + step / 2 * b)
            x = x + step / 6 * (a + 2 * b + 2 * c + self.field(t + step, x + step * c))
        return x


class Hyper(nn.Module):
    """Ha et al. 2017: a network gives the weights of another; each sample has its own, by vmap."""

    def __init__(self):
        super().__init__()
        self.make = nn.Linear(3, 4 * 6 + 6)

    def forward(self, context, x):
        weights = self.make(context)
        return torch.vmap(lambda row, each: torch.tanh(F.linear(each, row[:24].view(6, 4), row[24:])))(weights, x)


class Flow(nn.Module):
    """Dinh et al. 2017 and Kingma et al. 2018: couplings, and a turned basis; the likelihood of what was given."""

    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 4)) for _ in range(2))
        self.lower, self.upper, self.size = nn.Parameter(torch.randn(4, 4) * 0.1), nn.Parameter(torch.randn(4, 4) * 0.1), nn.Parameter(torch.zeros(4))

    def forward(self, x):
        turn = (self.lower.tril(-1) + torch.eye(4)) @ (self.upper.triu(1) + torch.diag(self.size.exp()))
        x, log_det = x @ turn.T, self.size.sum()
        for net in self.nets:
            a, b = x.chunk(2, -1)
            scale, shift = net(a).chunk(2, -1)
            scale = torch.tanh(scale)
            x, log_det = torch.cat([b * scale.exp() + shift, a], -1), log_det + scale.sum(-1)
        return log_det - (x.square() + math.log(2 * math.pi)).sum(-1) / 2


class Mixture(nn.Module):
    """Bishop 1994: the likelihood under a mixture of distributions that a network gives."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 12), nn.Softplus(), nn.Linear(12, 9))

    def forward(self, x, y):
        odds, mean, log_scale = self.net(x).chunk(3, -1)
        normal = torch.distributions.Normal(mean, F.softplus(log_scale) + 1e-3)
        mixed = torch.logsumexp(odds.log_softmax(-1) + normal.log_prob(y), -1)
        return -mixed - 0.1 * torch.distributions.Categorical(logits=odds).entropy()


class Tied(nn.Module):
    """A sparse autoencoder with tied weights: the largest activations alone are kept (Makhzani and Frey 2014)."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(12, 8) * 0.3), nn.Parameter(torch.zeros(8))

    def forward(self, x):
        h = F.linear(x, self.weight, None)
        top, places = h.topk(3, -1)
        return F.smooth_l1_loss(F.linear(torch.zeros_like(h).scatter(-1, places, F.relu(top)), self.weight.T, self.bias), x) + h.abs().mean()


class Words(nn.Module):
    """Mikolov et al. 2013: negative samples."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Embedding(30, 5, max_norm=None), nn.Embedding(30, 5)

    def forward(self, word, near, far):
        v = self.inner(word)
        good = (v * self.outer(near)).sum(-1)
        bad = torch.bmm(self.outer(far), v[..., None]).squeeze(-1)
        return -(F.logsigmoid(good) + F.logsigmoid(-bad).sum(-1))


class Dueling(nn.Module):
    """Wang et al. 2016: values and advantages; a target without gradients, Huber's loss, clipped policies (Schulman et al. 2017)."""

    def __init__(self):
        super().__init__()
        self.body, self.value, self.advantage = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(8, 3)

    def both(self, x):
        y = F.relu(self.body(x))
        a = self.advantage(y)
        return self.value(y) + a - a.mean(-1, keepdim=True), a.log_softmax(-1)

    def forward(self, x, action, reward, following):
        (q, policy), (after, _) = self.both(x), self.both(following)
        target = reward + 0.9 * after.max(-1).values.detach()
        ratio = (policy.gather(1, action[:, None]).squeeze(1) - policy.detach().mean(-1)).exp()
        clipped = -torch.min(ratio * reward, ratio.clamp(0.8, 1.2) * reward).mean()
        return F.huber_loss(q.gather(1, action[:, None]).squeeze(1), target) + clipped


class Diffusion(nn.Module):
    """Ho et al. 2020: a step's number is encoded and scales a norm; the noise that was added is guessed."""

    def __init__(self):
        super().__init__()
        self.time, self.first, self.norm, self.last = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 16)), nn.Conv2d(2, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.Conv2d(8, 2, 3, padding=1)
        self.register_buffer("kept", torch.linspace(0.99, 0.1, 10))

    def forward(self, x, steps, noise):
        kept = self.kept[steps][:, None, None, None]
        angles = steps[:, None] * torch.exp(-math.log(100) * torch.arange(4) / 4)
        scale, shift = self.time(torch.cat([angles.sin(), angles.cos()], -1))[..., None, None].chunk(2, 1)
        y = self.norm(self.first(kept.sqrt() * x + (1 - kept).sqrt() * noise)) * (1 + scale) + shift
        return F.mse_loss(self.last(F.silu(y)), noise, reduction="none").mean((1, 2, 3))


class Splines(nn.Module):
    """Liu et al. 2024: functions on edges, as sums of B-splines by Cox and de Boor."""

    def __init__(self):
        super().__init__()
        self.weights, self.base = nn.Parameter(torch.randn(3, 4, 7) * 0.3), nn.Linear(3, 4)
        self.register_buffer("knots", torch.linspace(-2.5, 2.5, 11))

    def forward(self, x):
        t, each = self.knots, x[..., None]
        basis = ((each >= t[:-1]) & (each < t[1:])).float()
        for k in range(1, 4):
            left = (each - t[: -k - 1]) / (t[k:-1] - t[: -k - 1]) * basis[..., :-1]
            basis = left + (t[k + 1 :] - each) / (t[k + 1 :] - t[1:-k]) * basis[..., 1:]
        return self.base(F.silu(x)) + torch.einsum("bik,iok->bo", basis, self.weights)


class Sets(nn.Module):
    """Zaheer et al. 2017 and Lee et al. 2019: sums over sets of several sizes; Sinkhorn's distance between two."""

    def __init__(self):
        super().__init__()
        self.net, self.head = nn.Sequential(nn.Linear(3, 8), nn.CELU(), nn.Linear(8, 4)), nn.Linear(4, 2)

    def forward(self, x, sizes):
        y = self.net(x) * (torch.arange(x.shape[1]) < sizes[:, None])[..., None]
        cost = torch.cdist(y[0], y[1]).square()
        f = torch.zeros(x.shape[1])
        for _ in range(3):
            g = -torch.logsumexp(f[:, None] - cost, 0)
            f = -torch.logsumexp(g - cost, 1)
        return self.head(y.sum(1)) + ((f[:, None] + g - cost).exp() * cost).sum()


class Recurrence(nn.Module):
    """Shi et al. 2015: an LSTM of images; and fixed steps to an equilibrium (Bai et al. 2019) by halves."""

    def __init__(self):
        super().__init__()
        self.gates, self.mix = nn.Conv2d(6, 16, 3, padding=1), nn.Conv2d(4, 4, 1)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], 4, *x.shape[3:])
        for each in x.unbind(1):
            i, f, o, g = self.gates(torch.cat([each, h], 1)).chunk(4, 1)
            c = c * f.sigmoid() + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        z = h
        for _ in range(3):
            z = (z + torch.tanh(self.mix(z) + h)) / 2
        return z.flatten(1).std(1) + z.mean((1, 2, 3))


EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 0, 4, 5, 3, 3, 5]])

NETWORKS = {
    "graph convolution": lambda: (GraphConvolution(), torch.randn(6, 6), EDGES),
    "graph attention": lambda: (GraphAttention(), torch.randn(6, 6), EDGES, torch.tensor([0, 0, 1, 1, 0, 1])),
    "points": lambda: (Points(), torch.randn(2, 7, 3)),
    "DLRM": lambda: (Dlrm(), torch.randn(3, 4), torch.randint(0, 11, (7,)), torch.tensor([0, 2, 5])),
    "DeepFM": lambda: (DeepFM(), torch.randint(0, 20, (5, 3)), torch.tensor([1.0, 0, 1, 1, 0])),
    "pairs": lambda: (Siamese(), *torch.randn(3, 4, 6)),
    "contrast": lambda: (Contrastive(), *torch.randn(2, 4, 6)),
    "variational": lambda: (Variational(), torch.randn(3, 12), torch.randn(3, 4)),
    "a book of vectors": lambda: (Quantized(), torch.randn(2, 2, 8)),
    "radiance field": lambda: (Radiance(), torch.randn(3, 3), torch.randn(3, 3)),
    "sines": lambda: (Sine(), torch.rand(5, 2)),
    "differential equation": lambda: (Differential(), torch.randn(4, 2)),
    "weights by a network": lambda: (Hyper(), torch.randn(3, 3), torch.randn(3, 4)),
    "flow": lambda: (Flow(), torch.randn(5, 4)),
    "mixture": lambda: (Mixture(), torch.randn(4, 3), torch.randn(4, 1)),
    "sparse autoencoder": lambda: (Tied(), torch.randn(4, 8)),
    "word vectors": lambda: (Words(), torch.randint(0, 30, (4,)), torch.randint(0, 30, (4,)), torch.randint(0, 30, (4, 3))),
    "values and policies": lambda: (Dueling(), torch.randn(5, 4), torch.randint(0, 3, (5,)), torch.randn(5), torch.randn(5, 4)),
    "diffusion": lambda: (Diffusion(), torch.randn(2, 2, 6, 6), torch.tensor([2, 7]), torch.randn(2, 2, 6, 6)),
    "splines": lambda: (Splines(), torch.randn(5, 3)),
    "sets": lambda: (Sets(), torch.randn(2, 5, 3), torch.tensor([5, 3])),
    "recurrence of images": lambda: (Recurrence(), torch.randn(2, 3, 2, 5, 5)),
}
