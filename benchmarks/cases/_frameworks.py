"""What all cases share about the frameworks: threads, devices, training loops that end in a wait."""

import numpy as np
from case import Subject

CHECKED_STEPS = 3


def setup_megjit():
    import megengine as mge

    mge.set_default_device("cpux")


def setup_torch():
    import logging

    import torch

    torch.set_num_threads(2)
    logging.disable(logging.WARNING)


def _training(step, batches, now, read, wait):
    """Subject of a training step over ``batches``; ``now()`` gives the arrays that were trained."""

    def result():
        losses = [read(step(*batches[i])) for i in range(CHECKED_STEPS)]
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
