"""The CNN of examples/train_digits.py and its training step in four frameworks."""

from functools import partial

import numpy as np
from cases import _frameworks as on

BATCH = 64
RATE, MOMENTUM, DECAY, DROPOUT = 0.05, 0.9, 1e-4, 0.2
# name -> shape; batch norm's scale and shift are named after the convolution
SHAPES = {
    "conv1.weight": (16, 1, 3, 3),
    "conv1.bias": (16,),
    "bn1.weight": (16,),
    "bn1.bias": (16,),
    "conv2.weight": (32, 16, 3, 3),
    "conv2.bias": (32,),
    "bn2.weight": (32,),
    "bn2.bias": (32,),
    "fc1.weight": (64, 128),
    "fc1.bias": (64,),
    "fc2.weight": (10, 64),
    "fc2.bias": (10,),
}
COMPARED = ("conv1.weight", "conv2.weight", "fc1.weight", "fc2.bias")


def data():
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = labels.astype(np.int32)
    batches = [(images[i : i + BATCH], labels[i : i + BATCH]) for i in range(0, 8 * BATCH, BATCH)]
    rng = np.random.RandomState(0)
    weights = {}
    for name, shape in SHAPES.items():
        if name.startswith("bn"):
            weights[name] = np.full(shape, float(name.endswith("weight")), np.float32)
        else:
            scale = np.sqrt(2 / max(1, np.prod(shape[1:]))) if len(shape) > 1 else 0.01
            weights[name] = (scale * rng.randn(*shape)).astype(np.float32)
    return weights, batches


def megjit(dropout=DROPOUT, traced=True, **trace_options):
    import megengine as mge
    import megengine.functional as F
    import megengine.module as M
    from megengine.autodiff import GradManager
    from megengine.jit import trace
    from megengine.optimizer import SGD

    on.setup_megjit()
    weights, batches = data()

    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = M.Conv2d(1, 16, 3, padding=1), M.BatchNorm2d(16)
            self.conv2, self.bn2 = M.Conv2d(16, 32, 3, padding=1), M.BatchNorm2d(32)
            self.pool = M.MaxPool2d(2)
            self.fc1, self.fc2 = M.Linear(32 * 2 * 2, 64), M.Linear(64, 10)
            self.dropout = M.Dropout(dropout)

        def forward(self, x):
            x = self.pool(F.relu(self.bn1(self.conv1(x))))
            x = self.pool(F.relu(self.bn2(self.conv2(x))))
            x = F.flatten(x, 1)
            return self.fc2(self.dropout(F.relu(self.fc1(x))))

    net = Net()
    named = dict(net.named_parameters())
    for name, array in weights.items():
        named[name][...] = mge.tensor(array.reshape(named[name].shape))
    optimizer = SGD(net.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    gm = GradManager().attach(net.parameters())
    net.train()

    def step(image, label, *, net, optimizer, gm):
        with gm:
            loss = F.loss.cross_entropy(net(image), label)
            gm.backward(loss)
            optimizer.step().clear_grad()
        return loss

    if traced:
        step = trace(step, **{"symbolic": True, "opt_level": 3, **trace_options})

    def now():
        return {name: named[name].numpy().reshape(SHAPES[name]) for name in COMPARED} | {
            "mean": net.bn2.running_mean.numpy().ravel(),
            "var": net.bn2.running_var.numpy().ravel(),
        }

    return on.training_megjit(
        lambda x, y: step(x, y, net=net, optimizer=optimizer, gm=gm), batches, now
    )


def torch(dropout=DROPOUT):
    import torch
    import torch.nn.functional as F

    on.setup_torch()
    weights, batches = data()
    p = {name: torch.tensor(array, requires_grad=True) for name, array in weights.items()}
    running = _running_torch()
    optimizer = torch.optim.SGD(
        p.values(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY, fused=True
    )

    def block(x, i):
        x = F.conv2d(x, p[f"conv{i}.weight"], p[f"conv{i}.bias"], padding=1)
        mean, var = running[f"mean{i}"], running[f"var{i}"]
        x = F.batch_norm(x, mean, var, p[f"bn{i}.weight"], p[f"bn{i}.bias"], training=True)
        return F.max_pool2d(F.relu(x), 2)

    def step(x, y):
        x = block(block(x, 1), 2).flatten(1)
        x = F.relu(F.linear(x, p["fc1.weight"], p["fc1.bias"]))
        x = F.dropout(x, dropout)
        loss = F.cross_entropy(F.linear(x, p["fc2.weight"], p["fc2.bias"]), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return on.training_torch(step, batches, lambda: _now_torch(p, running))


def torch_compile(dropout=DROPOUT, mode=None):
    """The whole step as one compiled function, running statistics included."""
    import torch
    import torch.nn.functional as F

    on.setup_torch()
    weights, batches = data()
    p = {name: torch.tensor(array) for name, array in weights.items()}
    v = {name: torch.zeros_like(w) for name, w in p.items()}
    running = _running_torch()

    def block(p, x, i, statistics):
        x = F.conv2d(x, p[f"conv{i}.weight"], p[f"conv{i}.bias"], padding=1)
        var, mean = torch.var_mean(x, (0, 2, 3), correction=1)
        statistics[f"mean{i}"], statistics[f"var{i}"] = mean, var
        x = F.batch_norm(x, None, None, p[f"bn{i}.weight"], p[f"bn{i}.bias"], training=True)
        return F.max_pool2d(F.relu(x), 2)

    def loss_of(p, x, y):
        statistics = {}
        x = block(p, block(p, x, 1, statistics), 2, statistics).flatten(1)
        x = F.relu(F.linear(x, p["fc1.weight"], p["fc1.bias"]))
        x = F.dropout(x, dropout)
        return F.cross_entropy(F.linear(x, p["fc2.weight"], p["fc2.bias"]), y), statistics

    @partial(torch.compile, mode=mode)
    def step(p, v, running, x, y):
        grads, (loss, statistics) = torch.func.grad_and_value(loss_of, has_aux=True)(p, x, y)
        for name in p:
            v[name].mul_(MOMENTUM).add_(grads[name] + DECAY * p[name])
            p[name].sub_(v[name], alpha=RATE)
        for name in running:
            running[name].mul_(0.9).add_(statistics[name], alpha=0.1)
        return loss

    return on.training_torch(
        lambda x, y: step(p, v, running, x, y), batches, lambda: _now_torch(p, running)
    )


def _running_torch():
    import torch

    return {
        "mean1": torch.zeros(16),
        "var1": torch.ones(16),
        "mean2": torch.zeros(32),
        "var2": torch.ones(32),
    }


def _now_torch(p, running):
    return {name: on.numpy_of_torch(p[name]) for name in COMPARED} | {
        "mean": on.numpy_of_torch(running["mean2"]),
        "var": on.numpy_of_torch(running["var2"]),
    }


def jax(dropout=DROPOUT):
    import jax
    import jax.numpy as jnp
    from jax import lax

    weights, batches = data()
    batches = [(images.transpose(0, 2, 3, 1).copy(), labels) for images, labels in batches]

    def arranged(name, array):  # HWIO kernels and (in, out) matrices: XLA's best on a CPU
        if array.ndim == 4:
            return jnp.asarray(array.transpose(2, 3, 1, 0))
        if name == "fc1.weight":  # channels come last here when flattened
            return jnp.asarray(array.reshape(64, 32, 2, 2).transpose(2, 3, 1, 0).reshape(128, 64))
        return jnp.asarray(array.T)

    p = {name: arranged(name, array) for name, array in weights.items()}
    v = {name: jnp.zeros_like(w) for name, w in p.items()}
    running = {f"{kind}{i}": value(16 * i) for i in (1, 2)
               for kind, value in (("mean", jnp.zeros), ("var", jnp.ones))}  # fmt: skip
    state = [p, v, running, jax.random.key(0, impl="rbg")]

    def block(p, x, i, statistics):
        kernel = p[f"conv{i}.weight"]
        x = lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = x + p[f"conv{i}.bias"]
        mean, var = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
        count = x.size // x.shape[-1]
        statistics[f"mean{i}"], statistics[f"var{i}"] = mean, var * (count / (count - 1))
        x = (x - mean) * (lax.rsqrt(var + 1e-5) * p[f"bn{i}.weight"]) + p[f"bn{i}.bias"]
        x = jax.nn.relu(x)
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def loss_of(p, x, y, key):
        statistics = {}
        x = block(p, block(p, x, 1, statistics), 2, statistics).reshape(len(x), -1)
        x = jax.nn.relu(x @ p["fc1.weight"] + p["fc1.bias"])
        if dropout:
            kept = jax.random.bernoulli(key, 1 - dropout, x.shape)
            x = jnp.where(kept, x / (1 - dropout), 0)
        return on.cross_entropy_jax(x @ p["fc2.weight"] + p["fc2.bias"], y), statistics

    def whole(p, v, running, key, x, y):
        key, now = jax.random.split(key)
        (loss, statistics), grads = jax.value_and_grad(loss_of, has_aux=True)(p, x, y, now)
        v = {name: MOMENTUM * v[name] + grads[name] + DECAY * p[name] for name in p}
        p = {name: p[name] - RATE * v[name] for name in p}
        running = {name: 0.9 * running[name] + 0.1 * statistics[name] for name in running}
        return p, v, running, key, loss

    compiled = jax.jit(whole, donate_argnums=(0, 1, 2, 3))

    def step(x, y):
        *state[:], loss = compiled(*state, x, y)
        return loss

    def now():
        p, running = {name: np.asarray(w) for name, w in state[0].items()}, state[2]
        fc1 = p["fc1.weight"].reshape(2, 2, 32, 64).transpose(3, 2, 0, 1).reshape(64, 128)
        return {
            "conv1.weight": p["conv1.weight"].transpose(3, 2, 0, 1),
            "conv2.weight": p["conv2.weight"].transpose(3, 2, 0, 1),
            "fc1.weight": fc1,
            "fc2.bias": p["fc2.bias"],
            "mean": np.asarray(running["mean2"]),
            "var": np.asarray(running["var2"]),
        }

    return on.training_jax(step, batches, now)
