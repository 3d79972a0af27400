"""Small networks for sequences, as their papers have them; `test_training.py` trains each."""

import math

import torch
import torch.nn.functional as F
import transformers
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

WORDS, DIM, HEADS = 23, 16, 2


def words(count=2, length=8):
    return torch.randint(0, WORDS, (count, length))


def heads(x):
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


class T5(nn.Module):
    """Raffel et al. 2020: a bias by the bucket of a distance, RMS norm, gated GELU, tied embeddings."""

    def __init__(self):
        super().__init__()
        self.words, self.bias, self.norm, self.norm2 = nn.Embedding(WORDS, DIM), nn.Embedding(8, HEADS), nn.RMSNorm(DIM), nn.RMSNorm(DIM)
        self.qkv, self.out, self.gate, self.down = nn.Linear(DIM, 3 * DIM, False), nn.Linear(DIM, DIM, False), nn.Linear(DIM, 64, False), nn.Linear(32, DIM, False)

    def buckets(self, length):
        distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
        back = (-distance).clamp(min=0)
        far = 4 + (torch.log(back.float().clamp(min=1) / 4) / math.log(4) * 4).long()
        return torch.where(back < 4, back, far.clamp(max=7))

    def forward(self, x):
        y = self.words(x)
        q, k, v = (heads(each) for each in self.qkv(self.norm(y)).chunk(3, -1))
        scores = q @ k.mT + self.bias(self.buckets(x.shape[1])).permute(2, 0, 1)[None]
        scores = scores.masked_fill(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1), -1e9)
        y = y + self.out((scores.float().softmax(-1).type_as(scores) @ v).transpose(1, 2).flatten(2))
        a, b = self.gate(self.norm2(y)).chunk(2, -1)
        return F.linear(y + self.down(F.gelu(a, approximate="tanh") * b), self.words.weight)


class Bart(nn.Module):
    """Lewis et al. 2020: encoder and decoder; the decoder reads its words one by one, and its cache begins with nothing."""

    def __init__(self):
        super().__init__()
        self.words, self.places, self.encoder = nn.Embedding(WORDS, DIM, padding_idx=1), nn.Embedding(10, DIM), nn.TransformerEncoderLayer(DIM, HEADS, 32, 0.0, "gelu", batch_first=True)
        self.qkv, self.q, self.kv, self.norm, self.head = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, 2 * DIM), nn.LayerNorm(DIM), nn.Linear(DIM, WORDS)

    def forward(self, x, y):
        memory = self.encoder(self.words(x) * DIM**0.5 + self.places.weight[: x.shape[1]], src_key_padding_mask=x == 1)
        keys, values, found = torch.empty(0), torch.empty(0), []
        across = [heads(each) for each in self.kv(memory).chunk(2, -1)]
        for step in range(y.shape[1]):
            now = self.words(y[:, step : step + 1]) + self.places.weight[step]
            q, k, v = (heads(each) for each in self.qkv(now).chunk(3, -1))
            keys, values = (torch.cat([old, new], -2) for old, new in ((keys, k), (values, v)))
            now = self.norm(now + F.scaled_dot_product_attention(q, keys, values).transpose(1, 2).flatten(2))
            now = now + F.scaled_dot_product_attention(heads(self.q(now)), *across).transpose(1, 2).flatten(2)
            found.append(self.head(now))
        return torch.cat(found, 1)


def rotated(x, base=100.0):
    angles = torch.outer(torch.arange(x.shape[-2]).float(), base ** -(torch.arange(0, x.shape[-1], 2).float() / x.shape[-1]))
    one, other = x[..., ::2], x[..., 1::2]
    return torch.stack([one * angles.cos() - other * angles.sin(), one * angles.sin() + other * angles.cos()], -1).flatten(-2)


class Llama(nn.Module):
    """Touvron et al. 2023: rotated queries, queries in groups, SwiGLU; loss of the next word."""

    def __init__(self):
        super().__init__()
        self.words, self.norm, self.norm2 = nn.Embedding(WORDS, DIM), nn.RMSNorm(DIM), nn.RMSNorm(DIM)
        self.q, self.kv, self.out, self.up, self.down = nn.Linear(DIM, DIM, False), nn.Linear(DIM, 8, False), nn.Linear(DIM, DIM, False), nn.Linear(DIM, 48, False), nn.Linear(24, DIM, False)

    def forward(self, x):
        y = self.words(x)
        q = rotated(self.q(self.norm(y)).unflatten(-1, (4, 4)).transpose(1, 2))
        k, v = (each.unflatten(-1, (1, 4)).transpose(1, 2) for each in self.kv(self.norm(y)).chunk(2, -1))
        y = y + self.out(F.scaled_dot_product_attention(q, rotated(k), v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2))
        a, b = self.up(self.norm2(y)).chunk(2, -1)
        scores = F.linear(y + self.down(F.silu(a) * b), self.words.weight)
        return F.cross_entropy(scores[:, :-1].flatten(0, 1), x[:, 1:].flatten(), label_smoothing=0.1)


class Rwkv(nn.Module):
    """Peng et al. 2023: time mix by a running weighted mean, word by word."""

    def __init__(self):
        super().__init__()
        self.words, self.norm, self.kvr, self.out, self.head = nn.Embedding(WORDS, DIM), nn.LayerNorm(DIM), nn.Linear(DIM, 3 * DIM, False), nn.Linear(DIM, DIM), nn.Linear(DIM, WORDS)
        self.mix, self.decay, self.first = nn.Parameter(torch.rand(DIM)), nn.Parameter(torch.rand(DIM)), nn.Parameter(torch.randn(DIM))

    def forward(self, x):
        y = self.words(x)
        z = self.norm(y)
        k, v, r = self.kvr(z * self.mix + F.pad(z, (0, 0, 1, -1)) * (1 - self.mix)).chunk(3, -1)
        a, b, p, found = torch.zeros_like(k[:, 0]), torch.zeros_like(k[:, 0]), torch.full_like(k[:, 0], -1e30), []
        for t in range(x.shape[1]):
            q = torch.maximum(p, self.first + k[:, t])
            e1, e2 = (p - q).exp(), (self.first + k[:, t] - q).exp()
            found.append((e1 * a + e2 * v[:, t]) / (e1 * b + e2))
            q = torch.maximum(p - self.decay.exp(), k[:, t])
            e1, e2 = (p - self.decay.exp() - q).exp(), (k[:, t] - q).exp()
            a, b, p = e1 * a + e2 * v[:, t], e1 * b + e2, q
        return self.head(y + self.out(torch.sigmoid(r) * torch.stack(found, 1)))


class Mamba(nn.Module):
    """Gu and Dao 2023: a state space whose step the input chooses."""

    def __init__(self, states=4):
        super().__init__()
        self.words, self.into, self.conv = nn.Embedding(WORDS, DIM), nn.Linear(DIM, 4 * DIM), nn.Conv1d(2 * DIM, 2 * DIM, 4, padding=3, groups=2 * DIM)
        self.choose, self.step, self.out, self.head = nn.Linear(2 * DIM, 1 + 2 * states), nn.Linear(1, 2 * DIM), nn.Linear(2 * DIM, DIM), nn.Linear(DIM, WORDS)
        self.log_a, self.d = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(2 * DIM, 1)), nn.Parameter(torch.ones(2 * DIM))

    def forward(self, x):
        y, gate = self.into(self.words(x)).chunk(2, -1)
        y = F.silu(self.conv(y.mT)[..., : x.shape[1]].mT)
        dt, b, c = self.choose(y).split([1, 4, 4], -1)
        dt = F.softplus(self.step(dt))
        decay = (dt[..., None] * -self.log_a.exp()).exp()
        added, state, found = dt[..., None] * b[:, :, None] * y[..., None], 0, []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + added[:, t]
            found.append(torch.einsum("bds,bs->bd", state, c[:, t]))
        return self.head(self.out((torch.stack(found, 1) + y * self.d) * F.silu(gate)))


class Translator(nn.Module):
    """Bahdanau et al. 2015: an LSTM reads, a cell writes, and looks back by additive attention."""

    def __init__(self):
        super().__init__()
        self.words, self.reader, self.cell = nn.Embedding(WORDS, DIM), nn.LSTM(DIM, 8, 2, batch_first=True, bidirectional=True), nn.LSTMCell(2 * DIM, DIM)
        self.key, self.query, self.score, self.head = nn.Linear(DIM, 8), nn.Linear(DIM, 8), nn.Linear(8, 1), nn.Linear(DIM, WORDS)

    def forward(self, x, y):
        memory, (h, c) = self.reader(self.words(x))
        state, found = (torch.cat([h[-2], h[-1]], -1), torch.cat([c[-2], c[-1]], -1)), []
        for t in range(y.shape[1]):
            weights = self.score(torch.tanh(self.key(memory) + self.query(state[0])[:, None])).softmax(1)
            state = self.cell(torch.cat([self.words(y[:, t]), (weights * memory).sum(1)], -1), state)
            found.append(self.head(state[0]))
        return torch.stack(found, 1)


class Packed(nn.Module):
    """A GRU over sequences of several lengths."""

    def __init__(self):
        super().__init__()
        self.words, self.gru, self.head = nn.Embedding(WORDS, DIM), nn.GRU(DIM, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x, lengths):
        y = self.gru(self.words(x))[0]
        last = y[torch.arange(x.shape[0]), lengths - 1]
        seen = torch.arange(x.shape[1]) < lengths[:, None]
        return self.head(last + (y * seen[..., None]).sum(1) / lengths[:, None])


class WaveNet(nn.Module):
    """van den Oord et al. 2016: dilated causal convolutions with gates."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv1d(1, 8, 1), nn.Conv1d(8, 6, 1)
        self.gates, self.on, self.skip = (nn.ModuleList(make(n) for n in range(3)) for make in (lambda n: nn.Conv1d(8, 16, 2, dilation=2**n), lambda n: nn.Conv1d(8, 8, 1), lambda n: nn.Conv1d(8, 8, 1)))

    def forward(self, x):
        y, skipped = self.first(x), 0
        for number, (gates, on, skip) in enumerate(zip(self.gates, self.on, self.skip, strict=True)):
            a, b = gates(F.pad(y, (2**number, 0))).chunk(2, 1)
            z = torch.tanh(a) * torch.sigmoid(b)
            y, skipped = y + on(z), skipped + skip(z)
        return self.last(F.relu(skipped)).log_softmax(1)


class Temporal(nn.Module):
    """Bai et al. 2018: weight norm over convolutions of time, behind them a straight line."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.side = weight_norm(nn.Conv1d(3, 8, 3, dilation=2, padding=4)), weight_norm(nn.Conv1d(8, 8, 3, padding=2), dim=1), nn.Conv1d(3, 8, 1)

    def forward(self, x):
        y = F.relu(self.first(x)[..., :-4])
        return F.relu(F.relu(self.second(y)[..., :-2]) + self.side(x)).mean(-1)


class Perceiver(nn.Module):
    """Jaegle et al. 2021: few latent vectors read a long input."""

    def __init__(self):
        super().__init__()
        self.latents, self.read, self.think = nn.Parameter(torch.randn(4, DIM)), nn.MultiheadAttention(DIM, HEADS, kdim=6, vdim=6, batch_first=True), nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, 5)

    def forward(self, x):
        places = torch.stack([f(torch.linspace(0, 3, x.shape[1])) for f in (torch.sin, torch.cos)], -1).expand(x.shape[0], -1, -1)
        x = torch.cat([x, places], -1)
        y = self.latents.expand(x.shape[0], -1, -1)
        y = y + self.read(self.norm(y), x, x, need_weights=False)[0]
        y = y + self.think(y, y, y)[0]
        return self.head(y.mean(1))


class Mixer(nn.Module):
    """Tolstikhin et al. 2021."""

    def __init__(self):
        super().__init__()
        self.patches, self.norm, self.norm2 = nn.Conv2d(3, 8, 4, 4), nn.LayerNorm(8), nn.LayerNorm(8)
        self.tokens, self.channels = (nn.Sequential(nn.Linear(n, 24), nn.GELU(), nn.Linear(24, n)) for n in (16, 8))

    def forward(self, x):
        x = self.patches(x).flatten(2).mT
        x = x + self.tokens(self.norm(x).mT).mT
        return (x + self.channels(self.norm2(x))).mean(1)


class Gated(nn.Module):
    """Liu et al. 2021, gMLP: a gate over places; the causal part of its weight is used."""

    def __init__(self):
        super().__init__()
        self.words, self.up, self.norm, self.places, self.down, self.head = nn.Embedding(WORDS, DIM), nn.Linear(DIM, 32), nn.LayerNorm(16), nn.Conv1d(8, 8, 1), nn.Linear(16, DIM), nn.Linear(DIM, WORDS)

    def forward(self, x):
        y = self.words(x)
        u, v = F.gelu(self.up(y)).chunk(2, -1)
        v = F.conv1d(self.norm(v), self.places.weight.squeeze(-1).tril()[..., None], self.places.bias + 1)
        return self.head(y + self.down(u * v))


class FNet(nn.Module):
    """Lee-Thorp et al. 2021: words are mixed by a Fourier transform."""

    def __init__(self):
        super().__init__()
        self.words, self.norm, self.head = nn.Embedding(WORDS, DIM), nn.LayerNorm(DIM), nn.Linear(DIM, WORDS)

    def forward(self, x):
        y = self.words(x)
        return self.head(self.norm(y + torch.fft.fft2(y).real))


class LongConvolutions(nn.Module):
    """Poli et al. 2023: convolutions as long as the sequence, by Fourier transforms."""

    def __init__(self):
        super().__init__()
        self.words, self.filter, self.gate, self.head = nn.Embedding(WORDS, DIM), nn.Parameter(torch.randn(DIM, 8) * 0.3), nn.Linear(DIM, DIM), nn.Linear(DIM, WORDS)

    def forward(self, x):
        y = self.words(x)
        n = 2 * x.shape[1]
        mixed = torch.fft.irfft(torch.fft.rfft(y.mT, n) * torch.fft.rfft(self.filter, n), n)[..., : x.shape[1]].mT
        return self.head(mixed * self.gate(y))


class Hopfield(nn.Module):
    """Ramsauer et al. 2021: patterns that were stored are found again in some steps."""

    def __init__(self):
        super().__init__()
        self.stored, self.query, self.beta = nn.Parameter(torch.randn(12, DIM)), nn.Linear(6, DIM), nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        state = F.normalize(self.query(x), dim=-1)
        for _ in range(3):
            state = F.softmax(self.beta * state @ F.normalize(self.stored, dim=-1).T, -1) @ self.stored
        return state - torch.logsumexp(self.beta * x, -1, keepdim=True)


class RoutedExperts(nn.Module):
    """Fedus et al. 2021: each word goes to two experts; a loss lets all experts work."""

    def __init__(self, experts=4):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(DIM, experts, False), nn.Parameter(torch.randn(experts, DIM, 24) * 0.2), nn.Parameter(torch.randn(experts, 24, DIM) * 0.2)

    def forward(self, x):
        rows = x.flatten(0, 1)
        odds = self.gate(rows).softmax(-1)
        weights, chosen = odds.topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        y = torch.zeros_like(rows)
        for expert in range(self.up.shape[0]):
            share = (weights * (chosen == expert)).sum(-1, keepdim=True)
            y = y.add(share * (F.silu(rows @ self.up[expert]) @ self.down[expert]))
        balance = (F.one_hot(chosen, odds.shape[-1]).float().mean((0, 1)) * odds.mean(0)).sum()
        return y + balance


class SortedExperts(RoutedExperts):
    """Words are sorted by expert, and each expert multiplies its own rows (grouped products)."""

    def forward(self, x):
        rows = x.flatten(0, 1)
        odds, chosen = self.gate(rows).softmax(-1).max(-1)
        order = chosen.argsort(stable=True)
        ends = F.one_hot(chosen, self.up.shape[0]).sum(0).cumsum(0).to(torch.int32)
        given = rows[order].to(torch.bfloat16)
        y = F.silu(torch._grouped_mm(given, self.up.to(torch.bfloat16), offs=ends))
        y = torch._grouped_mm(y, self.down.to(torch.bfloat16), offs=ends).float()
        return torch.zeros_like(rows).index_copy(0, order, y) * odds[:, None]


class LanguageModel(nn.Module):
    """The logits of a model of transformers."""

    def __init__(self, config):
        super().__init__()
        self.model = transformers.AutoModelForCausalLM.from_config(config)

    def forward(self, words):
        return self.model(words, use_cache=False).logits


def mixtral():
    """Jiang et al. 2024: transformers sorts words by expert, and has an operation of its own for the products."""
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1}
    return LanguageModel(transformers.MixtralConfig(vocab_size=40, num_local_experts=4, router_jitter_noise=0.0, **sizes))


class Retention(nn.Module):
    """Sun et al. 2023: attention whose weights decay with distance; each head has its own."""

    def __init__(self):
        super().__init__()
        self.words, self.qkvg, self.norm, self.out = nn.Embedding(WORDS, DIM), nn.Linear(DIM, 4 * DIM), nn.GroupNorm(HEADS, DIM), nn.Linear(DIM, WORDS)

    def forward(self, x):
        q, k, v, g = self.qkvg(self.words(x)).chunk(4, -1)
        decay = 1 - 2.0 ** (-5 - torch.arange(HEADS))
        apart = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])
        mask = (decay[:, None, None] ** apart.clamp(min=0)).tril()
        y = (rotated(heads(q)) @ rotated(heads(k)).mT * mask) @ heads(v)
        y = self.norm(y.transpose(1, 2).flatten(2).flatten(0, 1)).view_as(g)
        return self.out(F.silu(g) * y)


class Performer(nn.Module):
    """Choromanski et al. 2021: linear attention by random features, with running sums."""

    def __init__(self):
        super().__init__()
        self.words, self.qkv, self.out = nn.Embedding(WORDS, DIM), nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, WORDS)
        self.register_buffer("features", nn.init.orthogonal_(torch.empty(8, 8)))

    def kernel(self, x):
        return (x @ self.features.T - x.square().sum(-1, keepdim=True) / 2).exp() + 1e-4

    def forward(self, x):
        q, k, v = (heads(each) for each in self.qkv(self.words(x)).chunk(3, -1))
        q, k = self.kernel(q), self.kernel(k)
        sums = torch.einsum("bhnf,bhnd->bhnfd", k, v).cumsum(2)
        y = torch.einsum("bhnf,bhnfd->bhnd", q, sums) / torch.einsum("bhnf,bhnf->bhn", q, k.cumsum(2))[..., None]
        return self.out(y.transpose(1, 2).flatten(2))


class Sliding(nn.Module):
    """Beltagy et al. 2020: each word sees a window, by strided views."""

    def __init__(self):
        super().__init__()
        self.words, self.qkv, self.out = nn.Embedding(WORDS, DIM), nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, WORDS)

    def forward(self, x):
        q, k, v = self.qkv(self.words(x)).chunk(3, -1)
        k, v = (F.pad(each, (0, 0, 2, 2)).unfold(1, 5, 1) for each in (k, v))
        weights = (q[..., None] * k).sum(2).softmax(-1)
        return self.out((weights[:, :, None] * v).sum(-1))


class TransformerXL(nn.Module):
    """Dai et al. 2019: relative places, by a matrix that is shifted; the memory has no gradient."""

    def __init__(self):
        super().__init__()
        self.words, self.q, self.kv, self.r, self.out = nn.Embedding(WORDS, DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, 2 * DIM), nn.Linear(DIM, DIM, False), nn.Linear(DIM, WORDS)
        self.u, self.v = nn.Parameter(torch.zeros(HEADS, 1, DIM // HEADS)), nn.Parameter(torch.zeros(HEADS, 1, DIM // HEADS))

    def forward(self, x, memory):
        y = self.words(x)
        seen = torch.cat([memory.detach(), y], 1)
        k, v = (heads(each) for each in self.kv(seen).chunk(2, -1))
        n, m = y.shape[1], seen.shape[1]
        angles = torch.outer(torch.arange(m - 1, -1, -1.0), 0.3 ** torch.arange(DIM // 2))
        places = heads(self.r(torch.cat([angles.sin(), angles.cos()], -1))[None])
        q = heads(self.q(y))
        relative = (q + self.v) @ places.mT
        relative = F.pad(relative, (1, 0)).view(*relative.shape[:2], m + 1, n)[:, :, 1:].reshape(relative.shape)
        scores = ((q + self.u) @ k.mT + relative) * (DIM // HEADS) ** -0.5
        scores = scores.masked_fill(torch.ones(n, m, dtype=torch.bool).triu(1 + m - n), -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Conformer(nn.Module):
    """Gulati et al. 2020: half steps, a gated depthwise convolution, attention between."""

    def __init__(self):
        super().__init__()
        self.feed, self.norm, self.point = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, 32), nn.SiLU(), nn.Dropout(0.0), nn.Linear(32, DIM)), nn.LayerNorm(DIM), nn.Conv1d(DIM, 2 * DIM, 1)
        self.depth, self.batch, self.attend = nn.Conv1d(DIM, DIM, 3, padding="same", groups=DIM), nn.BatchNorm1d(DIM), nn.MultiheadAttention(DIM, HEADS, batch_first=True)

    def forward(self, x):
        x = x + self.feed(x) / 2
        x = x + self.attend(x, x, x, need_weights=False)[0]
        y = F.silu(self.batch(self.depth(F.glu(self.point(self.norm(x).mT), 1))))
        return x + y.mT


class Tagger(nn.Module):
    """Lample et al. 2016: a conditional random field; all paths by the forward algorithm, and the given one."""

    def __init__(self, tags=4):
        super().__init__()
        self.words, self.lstm, self.head, self.moves = nn.Embedding(WORDS, DIM), nn.LSTM(DIM, 6, batch_first=True, bidirectional=True), nn.Linear(12, tags), nn.Parameter(torch.randn(tags, tags))

    def forward(self, x, tags):
        scores = self.head(self.lstm(self.words(x))[0])
        alpha = scores[:, 0]
        for t in range(1, x.shape[1]):
            alpha = torch.logsumexp(alpha[:, :, None] + self.moves, 1) + scores[:, t]
        given = scores.gather(2, tags[..., None]).squeeze(-1).sum(1) + self.moves[tags[:, :-1], tags[:, 1:]].sum(1)
        return torch.logsumexp(alpha, -1) - given


class Memory(nn.Module):
    """Graves et al. 2014: a memory that is read and written by weights, at places that shift."""

    def __init__(self):
        super().__init__()
        self.cell, self.heads, self.out = nn.GRUCell(DIM + 4, DIM), nn.Linear(DIM, 4 + 1 + 3 + 1 + 4 + 4), nn.Linear(DIM + 4, 3)

    def forward(self, x):
        memory, state = x.new_full((x.shape[0], 6, 4), 0.1), x.new_zeros(x.shape[0], DIM)
        weights, read, found = x.new_full((x.shape[0], 6), 1 / 6), x.new_zeros(x.shape[0], 4), []
        for t in range(x.shape[1]):
            state = self.cell(torch.cat([x[:, t], read], -1), state)
            key, beta, shift, sharp, erase, add = self.heads(state).split([4, 1, 3, 1, 4, 4], -1)
            near = (F.softplus(beta) * F.cosine_similarity(memory, key[:, None], dim=-1)).softmax(-1)
            near = (near + weights) / 2
            moved = sum(torch.roll(near, place - 1, 1) * part for place, part in enumerate(shift.softmax(-1).split(1, -1)))
            weights = moved ** (1 + F.softplus(sharp))
            weights = weights / weights.sum(-1, keepdim=True)
            memory = memory * (1 - weights[..., None] * torch.sigmoid(erase)[:, None]) + weights[..., None] * add[:, None]
            read = (weights[..., None] * memory).sum(1)
            found.append(self.out(torch.cat([state, read], -1)))
        return torch.stack(found, 1)


NETWORKS = {
    "T5": lambda: (T5(), words()),
    "BART with a cache": lambda: (Bart(), words(), words(2, 3)),
    "Llama": lambda: (Llama(), words()),
    "RWKV": lambda: (Rwkv(), words(2, 4)),
    "Mamba": lambda: (Mamba(), words(2, 5)),
    "translation": lambda: (Translator(), words(2, 5), words(2, 3)),
    "several lengths": lambda: (Packed(), words(3, 6), torch.tensor([6, 2, 4])),
    "WaveNet": lambda: (WaveNet(), torch.randn(2, 1, 12)),
    "temporal convolutions": lambda: (Temporal(), torch.randn(2, 3, 12)),
    "Perceiver": lambda: (Perceiver(), torch.randn(2, 20, 4)),
    "MLP-Mixer": lambda: (Mixer(), torch.randn(2, 3, 16, 16)),
    "gMLP": lambda: (Gated(), words()),
    "FNet": lambda: (FNet(), words()),
    "long convolutions": lambda: (LongConvolutions(), words()),
    "Hopfield": lambda: (Hopfield(), torch.randn(5, 6)),
    "routed experts": lambda: (RoutedExperts(), torch.randn(2, 8, DIM)),
    "experts of transformers": lambda: (mixtral(), words()),
    "sorted experts": lambda: (SortedExperts(), torch.randn(2, 8, DIM)),
    "retention": lambda: (Retention(), words()),
    "Performer": lambda: (Performer(), words()),
    "sliding windows": lambda: (Sliding(), words()),
    "Transformer-XL": lambda: (TransformerXL(), words(), torch.randn(2, 4, DIM)),
    "Conformer": lambda: (Conformer(), torch.randn(2, 7, DIM)),
    "random field": lambda: (Tagger(), words(2, 5), torch.randint(0, 4, (2, 5))),
    "memory": lambda: (Memory(), torch.randn(2, 3, DIM)),
}
