"""ResNet-18 and -50 and their training step (cross entropy, SGD with momentum) in four frameworks."""

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
from cases import _frameworks as on

RATE, MOMENTUM = 0.001, 0.9


@dataclass(frozen=True)
class Net:
    """blocks: of each stage. bottleneck: 1x1, 3x3, 1x1 in place of two 3x3, and results four times as wide.

    compared: convolutions whose movement is compared, besides that of the last layer.
    batches: that are trained on in turn.
    """

    blocks: tuple[int, ...]
    bottleneck: bool
    compared: tuple[str, ...]
    batches: int = 3

    @property
    def features(self):
        return 2048 if self.bottleneck else 512

    def stages(self):
        """(prefix, input channels, width, stride, whether the shortcut has a convolution) of all blocks."""
        channels = 64
        for stage, count in enumerate(self.blocks):
            width = 64 << stage
            for block in range(count):
                stride = 2 if stage and not block else 1
                result = 4 * width if self.bottleneck else width
                yield f"{stage}.{block}", channels, width, stride, channels != result
                channels = result

    def convolutions(self):
        """(name, shape of the kernel, stride) of all convolutions."""
        yield "stem.conv", (64, 3, 7, 7), 2
        for prefix, channels, width, stride, down in self.stages():
            if self.bottleneck:
                yield f"{prefix}.conv1", (width, channels, 1, 1), 1
                yield f"{prefix}.conv2", (width, width, 3, 3), stride
                yield f"{prefix}.conv3", (4 * width, width, 1, 1), 1
            else:
                yield f"{prefix}.conv1", (width, channels, 3, 3), stride
                yield f"{prefix}.conv2", (width, width, 3, 3), 1
            if down:
                result = 4 * width if self.bottleneck else width
                yield f"{prefix}.down.conv", (result, channels, 1, 1), stride

    def last(self):
        """Name of the last convolution."""
        return [name for name, _, _ in self.convolutions() if "down" not in name][-1]

    def forward(
        self, x, conv_bn, relu, max_pool, head, call_block=lambda block, *args: block(*args)
    ):
        """The network; conv_bn(x, name) does a convolution and its batch norm."""

        def block(x, prefix, down):
            y = relu(conv_bn(x, f"{prefix}.conv1"))
            y = conv_bn(y, f"{prefix}.conv2")
            if self.bottleneck:
                y = conv_bn(relu(y), f"{prefix}.conv3")
            return relu(y + (conv_bn(x, f"{prefix}.down.conv") if down else x))

        x = max_pool(relu(conv_bn(x, "stem.conv")))
        for prefix, _, _, _, down in self.stages():
            x = call_block(block, x, prefix, down)
        return head(x)


RESNET18 = Net((2, 2, 2, 2), False, ("stem.conv", "0.0.conv1", "2.0.down.conv", "3.1.conv2"))
# One batch: from these weights a second step of 50 layers makes half a gradient of the rounding of the first.
RESNET50 = Net(
    (3, 4, 6, 3), True, ("stem.conv", "0.0.conv1", "2.0.down.conv", "3.2.conv3"), batches=1
)


def data(net, batch, size, classes=1000):
    rng = np.random.RandomState(0)
    weights = {}
    for name, shape, _ in net.convolutions():
        scale = np.sqrt(2 / (shape[0] * shape[2] * shape[3]))
        weights[name] = (scale * rng.randn(*shape)).astype(np.float32)
        norm = name.replace("conv", "bn")
        weights[f"{norm}.weight"] = np.ones(shape[0], np.float32)
        weights[f"{norm}.bias"] = np.zeros(shape[0], np.float32)
    weights["fc.weight"] = (rng.randn(classes, net.features) / np.sqrt(net.features)).astype(
        np.float32
    )
    weights["fc.bias"] = np.zeros(classes, np.float32)
    batches = [
        (
            rng.randn(batch, 3, size, size).astype(np.float32),
            rng.randint(0, classes, batch).astype(np.int32),
        )
        for _ in range(net.batches)
    ]
    return weights, batches


def movement(weights, trained):
    """How far training took the weights: their own size would hide a wrong gradient."""
    return {f"moved {name}": trained[name] - weights[name] for name in trained}


def megjit(
    net, batch, size, traced=True, only_plan=False, callbacks=(), channels_last=False, halves=False, **trace_options
):
    import megengine as mge
    import megengine.functional as F
    import megengine.module as M
    from megengine.amp import autocast, convert_module_format
    from megengine.autodiff import GradManager
    from megengine.jit import trace
    from megengine.optimizer import SGD

    on.setup_megjit()
    weights, batches = data(net, batch, size)

    class ConvNorm(M.Module):
        def __init__(self, shape, stride):
            super().__init__()
            out, channels, kernel, _ = shape
            self.conv = M.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)
            self.bn = M.BatchNorm2d(out)

        def forward(self, x):
            return self.bn(self.conv(x))

    class Model(M.Module):
        def __init__(self):
            super().__init__()
            self.parts = {
                name.replace(".", "_"): ConvNorm(shape, stride)
                for name, shape, stride in net.convolutions()
            }
            self.pool = M.MaxPool2d(3, 2, 1)
            self.fc = M.Linear(net.features, 1000)

        def forward(self, x):
            def head(x):
                return self.fc(F.flatten(F.avg_pool2d(x, x.shape[-1]), 1))

            def conv_bn(x, name):
                return self.parts[name.replace(".", "_")](x)

            return net.forward(x, conv_bn, F.relu, self.pool, head)

    model = Model()
    for name, _, _ in net.convolutions():
        part, norm = model.parts[name.replace(".", "_")], name.replace("conv", "bn")
        part.conv.weight[...] = mge.tensor(weights[name])
        for target, key in ((part.bn.weight, "weight"), (part.bn.bias, "bias")):
            target[...] = mge.tensor(weights[f"{norm}.{key}"].reshape(target.shape))
    model.fc.weight[...] = mge.tensor(weights["fc.weight"])
    model.fc.bias[...] = mge.tensor(weights["fc.bias"])
    if channels_last:
        convert_module_format(model)
    optimizer = SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    gm = GradManager().attach(model.parameters(), callbacks=callbacks)
    model.train()

    def step(image, label, *, model, optimizer, gm):
        with gm:
            with autocast(low_prec_dtype="bfloat16") if halves else nullcontext():
                out = model(image)
            loss = F.loss.cross_entropy(out.astype("float32"), label)
            gm.backward(loss)
            optimizer.step().clear_grad()
        return loss

    if traced:
        step = trace(step, **{"symbolic": True, "opt_level": 3, **trace_options})

    def now():
        parts = {name.replace("_", "."): part for name, part in model.parts.items()}
        arrays = {name: parts[name].conv.weight.numpy() for name in net.compared}
        mean = parts[net.last()].bn.running_mean.numpy().ravel()
        arrays["fc.weight"] = model.fc.weight.numpy()
        return movement(weights, arrays) | {"mean": mean}

    state = {"model": model, "optimizer": optimizer, "gm": gm}
    if only_plan:
        return on.arena_of_megjit(lambda x, y: step.plan(x, y, **state), batches[0])
    return on.training_megjit(lambda x, y: step(x, y, **state), batches, now)


def torch(net, batch, size, compiled=False, channels_last=False, checkpointed=False, halves=False):
    from contextlib import contextmanager

    import torch
    import torch.nn.functional as F
    from torch.utils.checkpoint import checkpoint

    on.setup_torch()
    weights, batches = data(net, batch, size)

    def arranged(tensor):
        last = channels_last and tensor.ndim == 4
        return tensor.contiguous(memory_format=torch.channels_last) if last else tensor

    p = {
        name: arranged(on.torch_of(array)).clone().requires_grad_()
        for name, array in weights.items()
    }
    running = {
        name: (torch.zeros(shape[0]), torch.ones(shape[0])) for name, shape, _ in net.convolutions()
    }
    strides = {name: stride for name, _, stride in net.convolutions()}
    optimizer = torch.optim.SGD(p.values(), lr=RATE, momentum=MOMENTUM, fused=True)
    momentum = 0.1  # of the running statistics

    @contextmanager
    def computing_again():
        # Otherwise a step that is checkpointed moves them twice.
        nonlocal momentum
        momentum = 0.0
        yield
        momentum = 0.1

    def call_block(block, *args):
        if not checkpointed:
            return block(*args)
        contexts = nullcontext(), computing_again()
        return checkpoint(block, *args, use_reentrant=False, context_fn=lambda: contexts)

    def conv_bn(x, name):
        kernel, norm = p[name], name.replace("conv", "bn")
        x = F.conv2d(x, kernel, stride=strides[name], padding=kernel.shape[-1] // 2)
        scale, shift = p[f"{norm}.weight"], p[f"{norm}.bias"]
        return F.batch_norm(x, *running[name], scale, shift, True, momentum)

    def loss_of(x, y):
        def head(x):
            return F.linear(x.mean((2, 3)), p["fc.weight"], p["fc.bias"])

        def max_pool(x):
            return F.max_pool2d(x, 3, 2, 1)

        device = torch.get_default_device().type
        with torch.autocast(device, torch.bfloat16) if halves else nullcontext():
            out = net.forward(x, conv_bn, F.relu, max_pool, head, call_block)
        return F.cross_entropy(out.float(), y)

    if compiled:
        loss_of = torch.compile(loss_of)

    def step(x, y):
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def now():
        arrays = {name: on.numpy_of_torch(p[name]) for name in (*net.compared, "fc.weight")}
        return movement(weights, arrays) | {"mean": on.numpy_of_torch(running[net.last()][0])}

    return on.training_torch(step, batches, now, prepare=arranged)


def jax(net, batch, size):
    import jax
    import jax.numpy as jnp
    from jax import lax

    weights, batches = data(net, batch, size)
    batches = [(images.transpose(0, 2, 3, 1).copy(), labels) for images, labels in batches]
    axes = {4: (2, 3, 1, 0), 2: (1, 0), 1: (0,)}  # NHWC with HWIO kernels: XLA's best on a CPU
    p = {name: jnp.asarray(array.transpose(axes[array.ndim])) for name, array in weights.items()}
    v = {name: jnp.zeros_like(w) for name, w in p.items()}
    running = {
        name: (jnp.zeros(shape[0]), jnp.ones(shape[0])) for name, shape, _ in net.convolutions()
    }
    strides = {name: stride for name, _, stride in net.convolutions()}
    state = [p, v, running]

    def loss_of(p, x, y):
        statistics = {}

        def conv_bn(x, name):
            kernel, norm = p[name], name.replace("conv", "bn")
            pad = kernel.shape[0] // 2
            x = lax.conv_general_dilated(
                x, kernel, (strides[name],) * 2, ((pad, pad), (pad, pad)),
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )  # fmt: skip
            mean, var = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
            count = x.size // x.shape[-1]
            statistics[name] = mean, var * (count / (count - 1))
            scale = lax.rsqrt(var + 1e-5) * p[f"{norm}.weight"]
            return (x - mean) * scale + p[f"{norm}.bias"]

        def max_pool(x):
            pads = ((0, 0), (1, 1), (1, 1), (0, 0))
            return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), pads)

        def head(x):
            return jnp.mean(x, (1, 2)) @ p["fc.weight"] + p["fc.bias"]

        logits = net.forward(x, conv_bn, jax.nn.relu, max_pool, head)
        return on.cross_entropy_jax(logits, y), statistics

    def whole(p, v, running, x, y):
        (loss, statistics), grads = jax.value_and_grad(loss_of, has_aux=True)(p, x, y)
        v = {name: MOMENTUM * v[name] + grads[name] for name in p}
        p = {name: p[name] - RATE * v[name] for name in p}
        running = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, running, statistics)
        return p, v, running, loss

    compiled = jax.jit(whole, donate_argnums=(0, 1, 2))

    def step(x, y):
        *state[:], loss = compiled(*state, x, y)
        return loss

    def now():
        kernels = {name: np.asarray(state[0][name]) for name in (*net.compared, "fc.weight")}
        back = {4: (3, 2, 0, 1), 2: (1, 0)}
        arrays = {name: array.transpose(back[array.ndim]) for name, array in kernels.items()}
        return movement(weights, arrays) | {"mean": np.asarray(state[2][net.last()][0])}

    return on.training_jax(step, batches, now)
