"""Blocks of a transformer and their training step (mean square, Adam) in three frameworks.

The block is x + attention(norm(x)), then x + mlp(norm(x)), with gelu (Radford et al. 2019, "Language Models are
Unsupervised Multitask Learners"), without mask and dropout.
"""

import math

import numpy as np
from cases import _frameworks as on

BLOCKS, WIDTH, HEADS, TOKENS, BATCH = 4, 768, 12, 256, 4
RATE, EPS = 1e-4, 1e-5
SCALE = 1 / math.sqrt(WIDTH // HEADS)
MATRICES = {"qkv": (3, 1), "out": (1, 1), "up": (4, 1), "down": (1, 4)}  # rows, columns in WIDTHs
COMPARED = ("0.qkv.weight", "1.out.weight", "2.up.weight", "3.down.weight", "3.norm1.weight")


def data():
    """Weights by name, [out, in] as in torch and megengine; and batches of (x, wanted y)."""
    rng = np.random.RandomState(0)
    weights = {}
    for block in range(BLOCKS):
        for norm in ("norm1", "norm2"):
            weights[f"{block}.{norm}.weight"] = np.ones(WIDTH, np.float32)
            weights[f"{block}.{norm}.bias"] = np.zeros(WIDTH, np.float32)
        for name, (rows, columns) in MATRICES.items():
            matrix = 0.02 * rng.randn(rows * WIDTH, columns * WIDTH)
            weights[f"{block}.{name}.weight"] = matrix.astype(np.float32)
            weights[f"{block}.{name}.bias"] = (0.01 * rng.randn(rows * WIDTH)).astype(np.float32)
    batches = [
        tuple(rng.randn(BATCH, TOKENS, WIDTH).astype(np.float32) for _ in range(2))
        for _ in range(3)
    ]
    return weights, batches


def movement(weights, trained):
    return {f"moved {name}": trained[name] - weights[name] for name in COMPARED}


def megjit(**trace_options):
    on.setup_megjit()
    import megengine as mge
    import megengine.functional as F
    import megengine.module as M
    from megengine.autodiff import GradManager
    from megengine.jit import trace
    from megengine.optimizer import Adam

    weights, batches = data()

    class Block(M.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = M.LayerNorm(WIDTH, EPS), M.LayerNorm(WIDTH, EPS)
            for name, (rows, columns) in MATRICES.items():
                setattr(self, name, M.Linear(columns * WIDTH, rows * WIDTH))

        def attention(self, x):
            split = self.qkv(x).reshape(BATCH, TOKENS, 3, HEADS, WIDTH // HEADS)
            q, k, v = (F.transpose(split[:, :, i], (0, 2, 1, 3)) for i in range(3))
            scores = F.softmax(F.matmul(q, k, transpose_b=True) * SCALE, axis=-1)
            mixed = F.transpose(F.matmul(scores, v), (0, 2, 1, 3))
            return self.out(mixed.reshape(BATCH, TOKENS, WIDTH))

        def forward(self, x):
            x = x + self.attention(self.norm1(x))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    net = M.Sequential(*(Block() for _ in range(BLOCKS)))
    parameters = dict(net.named_parameters())
    for name, parameter in parameters.items():
        parameter[...] = mge.tensor(weights[name])
    optimizer = Adam(net.parameters(), lr=RATE)
    gm = GradManager().attach(net.parameters())

    @trace(**{"symbolic": True, "opt_level": 3, **trace_options})
    def step(x, y, *, net, optimizer, gm):
        with gm:
            loss = F.mean(F.square(net(x) - y))
            gm.backward(loss)
            optimizer.step().clear_grad()
        return loss

    def now():
        return movement(weights, {name: parameters[name].numpy() for name in COMPARED})

    return on.training_megjit(
        lambda x, y: step(x, y, net=net, optimizer=optimizer, gm=gm), batches, now
    )


def torch(compiled=False):
    import torch
    import torch.nn.functional as F

    on.setup_torch()
    weights, batches = data()
    p = {name: torch.tensor(array, requires_grad=True) for name, array in weights.items()}
    optimizer = torch.optim.Adam(p.values(), lr=RATE, fused=True)

    def linear(x, name):
        return F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])

    def norm(x, name):
        return F.layer_norm(x, (WIDTH,), p[f"{name}.weight"], p[f"{name}.bias"], EPS)

    def attention(x, block):
        split = linear(x, f"{block}.qkv").reshape(BATCH, TOKENS, 3, HEADS, WIDTH // HEADS)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        return linear(mixed.reshape(BATCH, TOKENS, WIDTH), f"{block}.out")

    def loss_of(x, y):
        for b in range(BLOCKS):
            x = x + attention(norm(x, f"{b}.norm1"), b)
            x = x + linear(F.gelu(linear(norm(x, f"{b}.norm2"), f"{b}.up")), f"{b}.down")
        return F.mse_loss(x, y)

    if compiled:
        loss_of = torch.compile(loss_of)

    def step(x, y):
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def now():
        return movement(weights, {name: p[name].detach().numpy() for name in COMPARED})

    return on.training_torch(step, batches, now)


def jax():
    import jax
    import jax.numpy as jnp

    weights, batches = data()
    p = {name: jnp.asarray(array.T) for name, array in weights.items()}  # matrices [in, out]
    zeros = {name: jnp.zeros_like(array) for name, array in p.items()}
    state = [p, zeros, jax.tree.map(jnp.copy, zeros), jnp.float32(0)]

    def linear(p, x, name):
        return x @ p[f"{name}.weight"] + p[f"{name}.bias"]

    def norm(p, x, name):
        mean, var = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
        normal = (x - mean) * jax.lax.rsqrt(var + EPS)
        return normal * p[f"{name}.weight"] + p[f"{name}.bias"]

    def attention(p, x, block):
        split = linear(p, x, f"{block}.qkv").reshape(BATCH, TOKENS, 3, HEADS, WIDTH // HEADS)
        q, k, v = split.transpose(2, 0, 3, 1, 4)
        scores = jax.nn.softmax(q @ k.swapaxes(-1, -2) * SCALE)
        mixed = (scores @ v).swapaxes(1, 2).reshape(BATCH, TOKENS, WIDTH)
        return linear(p, mixed, f"{block}.out")

    def loss_of(p, x, y):
        for b in range(BLOCKS):
            x = x + attention(p, norm(p, x, f"{b}.norm1"), b)
            up = linear(p, norm(p, x, f"{b}.norm2"), f"{b}.up")
            x = x + linear(p, jax.nn.gelu(up, approximate=False), f"{b}.down")
        return jnp.mean((x - y) ** 2)

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
        return movement(weights, {name: np.asarray(state[0][name]).T for name in COMPARED})

    return on.training_jax(step, batches, now)
