"""Small language models, written as such models are."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Attention, then a network, each after a normalization; causal or not."""

    def __init__(self, size, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.network = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size), nn.Dropout(0.1))

    def forward(self, x, mask):
        batch, length, size = x.size(0), x.size(1), self.out.in_features
        q, k, v = self.qkv(self.norm1(x)).split(size, dim=2)
        q, k, v = (p.view(batch, length, self.heads, size // self.heads).transpose(1, 2) for p in (q, k, v))
        if self.causal:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(size // self.heads)
            y = F.softmax(scores.masked_fill(mask[:, None, None, :] == 0, float("-inf")), dim=-1) @ v
        x = x + self.out(y.transpose(1, 2).contiguous().view(batch, length, size))
        return x + self.network(self.norm2(x))


class Decoder(nn.Module):
    """As GPT: causal attention, learnt positions, an output layer that shares the table of tokens."""

    def __init__(self, words=40, size=16, heads=2, layers=2, length=32):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, size), nn.Embedding(length, size)
        self.blocks = nn.ModuleList(Block(size, heads, True) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, words, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0)
        x = self.tokens(ids) + self.positions(places)
        for block in self.blocks:
            x = block(x, None)
        return self.head(self.norm(x))


class Encoder(nn.Module):
    """As BERT: attention where the mask is 1, segments, the first position pooled."""

    def __init__(self, words=40, size=16, heads=2, layers=2, length=32):
        super().__init__()
        self.tokens, self.segments = nn.Embedding(words, size), nn.Embedding(2, size)
        self.positions = nn.Embedding(length, size)
        self.register_buffer("places", torch.arange(length).expand(1, -1))
        self.blocks = nn.ModuleList(Block(size, heads, False) for _ in range(layers))
        self.pooler = nn.Linear(size, size)

    def forward(self, ids, mask):
        places = self.places.narrow(1, 0, ids.size(1))
        x = self.tokens(ids) + self.positions(places) + self.segments(torch.zeros_like(ids))
        for block in self.blocks:
            x = block(x, mask)
        return {"hidden": x, "pooled": torch.tanh(self.pooler(x[:, 0]))}
