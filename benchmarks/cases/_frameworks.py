"""What all cases share about the frameworks: threads, devices, training loops that end in a wait."""

import os

import numpy as np
from case import Subject

CHECKED_STEPS = 3
# Where everything computes, by the harness: "cpu", or "gpu" for the machine's first.
ON_GPU = os.environ.get("BENCH_DEVICE") == "gpu"
# An emulated card interprets its code: what runs there shows that a case works, and no more.
IS_EMULATED = ON_GPU and bool(os.environ.get("MEGJIT_EMULATED_GPUS"))


def size(on_card, emulated):
    """An extent of a case: the one that is measured, or one that an emulated card finishes soon."""
    return emulated if IS_EMULATED else on_card


def by_backend(backend, builder):
    """The builder, in a process whose kernels are compiled by that back-end (MLIR, HALIDE)."""

    def build():
        import os

        os.environ["MGB_JIT_BACKEND"] = backend
        return builder()

    return build


def setup_megjit():
    import megengine as mge

    mge.set_default_device("gpu0" if ON_GPU else "cpux")
    mge.config.tf32 = ON_GPU  # as XLA does by default, and torch below
    mge.config.benchmark_kernel = ON_GPU  # as torch below


def setup_torch():
    import logging

    import torch

    torch.set_num_threads(2)
    if ON_GPU:
        torch.set_default_device("cuda")
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    logging.disable(logging.WARNING)


def torch_of(array):
    import torch

    return torch.from_numpy(array).to(torch.get_default_device())


def numpy_of_torch(tensor):
    return tensor.detach().cpu().numpy()


def wait_for_torch(_):
    if ON_GPU:
        import torch

        torch.cuda.synchronize()


def arena_of_megjit(plan, batch):
    """Subject that measures bytes: the arena of the step that ``plan`` plans."""
    import megengine as mge

    inputs = [mge.tensor(array) for array in batch]
    return Subject(lambda calls: plan(*inputs).arena_bytes, dict)


def peak_of_torch(builder):
    """Subject that measures bytes: what a call of the builder's allocates at most beside what was there before.

    That is the allocator's peak in a profiled call, as our arena is: parameters, optimizer state and inputs are not
    in it; activations, gradients and scratch memory of the library are.
    """
    import json
    import tempfile
    from pathlib import Path

    from torch.profiler import ProfilerActivity, profile

    subject = builder()
    subject.run(1)  # makes the optimizer's state

    def run(calls):
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            subject.run(1)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(path))
            events = json.loads(path.read_text())["traceEvents"]
        changes = sorted(
            (e["ts"], e["args"]["Bytes"]) for e in events if e.get("name") == "[memory]"
        )
        return int(np.cumsum([bytes_ for _, bytes_ in changes]).max())

    return Subject(run, dict)


def _calling(function, inputs, read, wait):
    """Subject of ``function``, which takes tensors and returns a tuple of them."""

    def run(calls):
        for _ in range(calls):
            outputs = function(*inputs)
        wait(outputs)

    def result():
        return {f"output {i}": read(y) for i, y in enumerate(function(*inputs))}

    return Subject(run, result)


def calling_megjit(function, arrays, **trace_options):
    import megengine as mge
    from megengine.jit import trace

    traced = trace(function, **{"symbolic": True, "opt_level": 3, **trace_options})
    inputs = [mge.tensor(array) for array in arrays]
    return _calling(traced, inputs, lambda y: y.numpy(), lambda outputs: mge.synchronize())


def gradients_by_megjit(forward, arrays, dy):
    """A Subject: the gradients of all arrays that forward takes, from that of its result."""
    import megengine as mge
    from megengine.autodiff import GradManager

    values = [mge.Parameter(array) for array in arrays]
    gm = GradManager().attach(values)

    def gradients(dy):
        with gm:
            gm.backward(forward(*values), dy)
        grads = tuple(value.grad for value in values)
        for value in values:
            value.grad = None
        return grads

    return calling_megjit(gradients, [dy], without_host=True)


def calling_torch(function, arrays, compiled=False):
    import torch

    function = torch.compile(function) if compiled else function
    inputs = [torch_of(array) for array in arrays]
    return _calling(function, inputs, numpy_of_torch, wait_for_torch)


def calling_jax(function, arrays):
    import jax
    import jax.numpy as jnp

    inputs = [jnp.asarray(array) for array in arrays]
    return _calling(jax.jit(function), inputs, np.asarray, jax.block_until_ready)


def _training(step, batches, now, read, wait):
    """Subject of a training step over ``batches``; ``now()`` gives the arrays that were trained."""

    def result():
        losses = [read(step(*batch)) for batch in batches[:CHECKED_STEPS]]
        return {"losses": np.array(losses, np.float32), **now()}

    def run(calls):
        count = len(batches)
        for i in range(calls):
            loss = step(*batches[i % count])
        wait(loss)

    return Subject(run, result)


def training_megjit(step, batches, now):
    import megengine as mge

    batches = [tuple(mge.tensor(array) for array in batch) for batch in batches]
    return _training(step, batches, now, lambda loss: loss.item(), lambda loss: loss.item())


def training_torch(step, batches, now, prepare=lambda tensor: tensor):
    def convert(array):
        tensor = torch_of(array)
        return tensor.long() if array.dtype == np.int32 else prepare(tensor)

    batches = [tuple(convert(array) for array in batch) for batch in batches]
    return _training(step, batches, now, lambda loss: float(loss.detach()), wait_for_torch)


def training_jax(step, batches, now):
    import jax.numpy as jnp

    batches = [tuple(jnp.asarray(array) for array in batch) for batch in batches]
    return _training(step, batches, now, float, lambda loss: loss.block_until_ready())


def cross_entropy_jax(logits, labels):
    import jax
    import jax.numpy as jnp

    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
    return -jnp.mean(picked)
