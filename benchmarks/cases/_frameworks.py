"""What all cases share about the frameworks: threads, devices, training loops that end in a wait."""

import numpy as np
from case import Subject

CHECKED_STEPS = 3


def by_backend(backend, builder):
    """The builder, in a process whose kernels are compiled by that back-end (MLIR, HALIDE)."""

    def build():
        import os

        os.environ["MGB_JIT_BACKEND"] = backend
        return builder()

    return build


def setup_megjit():
    import megengine as mge

    mge.set_default_device("cpux")


def setup_torch():
    import logging

    import torch

    torch.set_num_threads(2)
    logging.disable(logging.WARNING)


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
    return _calling(traced, inputs, lambda y: y.numpy(), lambda outputs: outputs[0].shape)


def calling_torch(function, arrays, compiled=False):
    import torch

    function = torch.compile(function) if compiled else function
    inputs = [torch.from_numpy(array) for array in arrays]
    return _calling(function, inputs, lambda y: y.detach().numpy(), lambda outputs: None)


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
    import torch

    def convert(array):
        tensor = torch.from_numpy(array)
        return tensor.long() if array.dtype == np.int32 else prepare(tensor)

    batches = [tuple(convert(array) for array in batch) for batch in batches]
    return _training(step, batches, now, lambda loss: float(loss.detach()), lambda loss: None)


def training_jax(step, batches, now):
    import jax.numpy as jnp

    batches = [tuple(jnp.asarray(array) for array in batch) for batch in batches]
    return _training(step, batches, now, float, lambda loss: loss.block_until_ready())


def cross_entropy_jax(logits, labels):
    import jax
    import jax.numpy as jnp

    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
    return -jnp.mean(picked)
