"""Transformers and their training step (Adam) in three frameworks: blocks alone, or a language model.

The block is x + attention(norm(x)), then x + mlp(norm(x)), with gelu (Radford et al. 2019, "Language Models are
Unsupervised Multitask Learners"), without dropout.
"""

import math
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
from cases import _frameworks as on

RATE, EPS = 1e-4, 1e-5
MATRICES = {"qkv": (3, 1), "out": (1, 1), "up": (4, 1), "down": (1, 4)}  # rows, columns in widths


@dataclass(frozen=True)
class Shape:
    """words: of the vocabulary of a causal language model, whose embedding is also its last layer; none: blocks
    from x to a wanted y, with the mean square as loss. halves: products and attention in bfloat16."""

    blocks: int
    width: int
    heads: int
    tokens: int
    batch: int
    words: int = 0
    halves: bool = False

    @property
    def scale(self):
        return 1 / math.sqrt(self.width // self.heads)

    @property
    def compared(self):
        last = self.blocks - 1
        return ("0.qkv.weight", f"{last}.out.weight", f"{last // 2}.up.weight", f"{last}.down.weight",
                f"{last}.norm1.weight")  # fmt: skip

    @property
    def flops(self):
        """Operations of a step. Multiply-adds for each token and block: four projections, the two of the MLP, and twice the
        attention, half of it where it is causal."""
        attention = (1 if self.words else 2) * self.tokens * self.width
        a_token = self.blocks * (12 * self.width**2 + attention) + self.words * self.width
        return 2 * 3 * a_token * self.tokens * self.batch


BLOCKS = Shape(4, 768, 12, 256, 4)


def data(net):
    """Weights by name, [out, in] as in torch and megengine; and batches of (x, wanted y)."""
    rng = np.random.RandomState(0)
    weights = {}
    for block in range(net.blocks):
        for norm in ("norm1", "norm2"):
            weights[f"{block}.{norm}.weight"] = np.ones(net.width, np.float32)
            weights[f"{block}.{norm}.bias"] = np.zeros(net.width, np.float32)
        for name, (rows, columns) in MATRICES.items():
            matrix = 0.02 * rng.randn(rows * net.width, columns * net.width)
            weights[f"{block}.{name}.weight"] = matrix.astype(np.float32)
            weights[f"{block}.{name}.bias"] = (0.01 * rng.randn(rows * net.width)).astype(
                np.float32
            )
    if net.words:
        weights["words"] = (0.02 * rng.randn(net.words, net.width)).astype(np.float32)
        weights["places"] = (0.01 * rng.randn(net.tokens, net.width)).astype(np.float32)

    def batch():
        if not net.words:
            return tuple(
                rng.randn(net.batch, net.tokens, net.width).astype(np.float32) for _ in range(2)
            )
        text = rng.randint(0, net.words, (net.batch, net.tokens + 1)).astype(np.int32)
        return text[:, :-1].copy(), text[:, 1:].copy()

    return weights, [batch() for _ in range(3)]


def movement(net, weights, trained):
    return {f"moved {name}": trained[name] - weights[name] for name in net.compared}


def megjit(net=BLOCKS, **trace_options):
    on.setup_megjit()
    import megengine as mge
    import megengine.functional as F
    import megengine.module as M
    from megengine.amp import autocast
    from megengine.autodiff import GradManager
    from megengine.jit import trace
    from megengine.optimizer import Adam

    weights, batches = data(net)

    class Block(M.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = M.LayerNorm(net.width, EPS), M.LayerNorm(net.width, EPS)
            for name, (rows, columns) in MATRICES.items():
                setattr(self, name, M.Linear(columns * net.width, rows * net.width))

        def attention(self, x):
            split = self.qkv(x).reshape(net.batch, net.tokens, 3, net.width)
            if net.words:
                q, k, v = (split[:, :, i] for i in range(3))
                return self.out(F.multi_head_attention(
                    q, k, v, net.width, net.heads, 0.0, 0.0, None, is_causal=True)[0])  # fmt: skip
            split = split.reshape(net.batch, net.tokens, 3, net.heads, net.width // net.heads)
            q, k, v = (F.transpose(split[:, :, i], (0, 2, 1, 3)) for i in range(3))
            scores = F.softmax(F.matmul(q, k, transpose_b=True) * net.scale, axis=-1)
            mixed = F.transpose(F.matmul(scores, v), (0, 2, 1, 3))
            return self.out(mixed.reshape(net.batch, net.tokens, net.width))

        def forward(self, x):
            x = x + self.attention(self.norm1(x))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Model(M.Module):
        def __init__(self):
            super().__init__()
            for i in range(net.blocks):
                setattr(self, str(i), Block())
            if net.words:
                self.words = mge.Parameter(weights["words"])
                self.places = mge.Parameter(weights["places"])

        def forward(self, x):
            if net.words:
                x = F.embedding(x, self.words) + self.places
            for i in range(net.blocks):
                x = getattr(self, str(i))(x)
            return F.linear(x, self.words) if net.words else x

    model = Model()
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        parameter[...] = mge.tensor(weights[name])
    optimizer = Adam(model.parameters(), lr=RATE)
    gm = GradManager().attach(model.parameters())

    @trace(**{"symbolic": True, "opt_level": 3, **trace_options})
    def step(x, y, *, model, optimizer, gm):
        with gm:
            with autocast(low_prec_dtype="bfloat16") if net.halves else nullcontext():
                out = model(x)
            if net.words:
                loss = F.loss.cross_entropy(
                    out.astype("float32").reshape(-1, net.words), y.reshape(-1)
                )
            else:
                loss = F.mean(F.square(out - y))
            gm.backward(loss)
            optimizer.step().clear_grad()
        return loss

    def now():
        return movement(net, weights, {name: parameters[name].numpy() for name in net.compared})

    return on.training_megjit(
        lambda x, y: step(x, y, model=model, optimizer=optimizer, gm=gm), batches, now
    )


def torch(net=BLOCKS, compiled=False):
    import torch
    import torch.nn.functional as F

    on.setup_torch()
    weights, batches = data(net)
    p = {name: torch.tensor(array, requires_grad=True) for name, array in weights.items()}
    optimizer = torch.optim.Adam(p.values(), lr=RATE, fused=True)

    def linear(x, name):
        return F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])

    def norm(x, name):
        return F.layer_norm(x, (net.width,), p[f"{name}.weight"], p[f"{name}.bias"], EPS)

    def attention(x, block):
        split = linear(x, f"{block}.qkv").reshape(net.batch, net.tokens, 3, net.heads, -1)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=bool(net.words)).transpose(1, 2)
        return linear(mixed.reshape(net.batch, net.tokens, net.width), f"{block}.out")

    def model(x):
        if net.words:
            x = F.embedding(x, p["words"]) + p["places"]
        for b in range(net.blocks):
            x = x + attention(norm(x, f"{b}.norm1"), b)
            x = x + linear(F.gelu(linear(norm(x, f"{b}.norm2"), f"{b}.up")), f"{b}.down")
        return F.linear(x, p["words"]) if net.words else x

    def loss_of(x, y):
        device = torch.get_default_device().type
        with torch.autocast(device, torch.bfloat16) if net.halves else nullcontext():
            out = model(x)
        if not net.words:
            return F.mse_loss(out, y)
        return F.cross_entropy(out.float().reshape(-1, net.words), y.reshape(-1))

    if compiled:
        loss_of = torch.compile(loss_of)

    def step(x, y):
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def now():
        return movement(net, weights, {name: on.numpy_of_torch(p[name]) for name in net.compared})

    return on.training_torch(step, batches, now)


def jax(net=BLOCKS):
    import jax
    import jax.numpy as jnp

    weights, batches = data(net)
    straight = ("words", "places")  # matrices are [in, out] but these
    p = {
        name: jnp.asarray(array if name in straight else array.T) for name, array in weights.items()
    }
    zeros = {name: jnp.zeros_like(array) for name, array in p.items()}
    state = [p, zeros, jax.tree.map(jnp.copy, zeros), jnp.float32(0)]
    low = jnp.bfloat16 if net.halves else jnp.float32

    def linear(p, x, name):
        return x.astype(low) @ p[f"{name}.weight"].astype(low) + p[f"{name}.bias"].astype(low)

    def norm(p, x, name):
        x = x.astype(jnp.float32)
        mean, var = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
        normal = (x - mean) * jax.lax.rsqrt(var + EPS)
        return normal * p[f"{name}.weight"] + p[f"{name}.bias"]

    def attention(p, x, block):
        split = linear(p, x, f"{block}.qkv").reshape(net.batch, net.tokens, 3, net.heads, -1)
        if net.words:
            library = "cudnn" if net.halves and on.ON_GPU else None
            mixed = jax.nn.dot_product_attention(
                *(split[:, :, i] for i in range(3)), is_causal=True, implementation=library)  # fmt: skip
        else:
            q, k, v = split.transpose(2, 0, 3, 1, 4)
            scores = jax.nn.softmax(q @ k.swapaxes(-1, -2) * net.scale)
            mixed = (scores @ v).swapaxes(1, 2)
        return linear(p, mixed.reshape(net.batch, net.tokens, net.width), f"{block}.out")

    def loss_of(p, x, y):
        if net.words:
            x = p["words"][x] + p["places"]
        for b in range(net.blocks):
            x = x + attention(p, norm(p, x, f"{b}.norm1"), b)
            up = linear(p, norm(p, x, f"{b}.norm2"), f"{b}.up")
            x = x + linear(p, jax.nn.gelu(up, approximate=False), f"{b}.down")
        if not net.words:
            return jnp.mean((x - y) ** 2)
        logits = x.astype(low) @ p["words"].astype(low).T
        return on.cross_entropy_jax(
            logits.astype(jnp.float32).reshape(-1, net.words), y.reshape(-1)
        )

    def whole(p, m, v, count, x, y):
        loss, grads = jax.value_and_grad(loss_of)(p, x, y)
        count = count + 1
        rate, root = RATE / (1 - 0.9**count), (1 - 0.999**count) ** -0.5
        m = {name: 0.9 * m[name] + 0.1 * g for name, g in grads.items()}
        v = {name: 0.999 * v[name] + 0.001 * g * g for name, g in grads.items()}
        p = {name: p[name] - rate * m[name] / (jnp.sqrt(v[name]) * root + 1e-8) for name in p}
        return p, m, v, count, loss

    compiled = jax.jit(whole, donate_argnums=(0, 1, 2))

    def step(x, y):
        *state[:], loss = compiled(*state, x, y)
        return loss

    def now():
        return movement(net, weights, {name: np.asarray(state[0][name]).T for name in net.compared})

    return on.training_jax(step, batches, now)
