"""What does AdamW8bit cost in time, and what does it save in bytes, beside AdamW?

20 million parameters: 19 layers of 1,024 x 1,024. Steps of both run in turns; a ratio is the median of those of the turns.

    python benchmarks/eight_bit_averages.py
"""

import argparse
import time

import numpy as np

import megengine as mge
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace

WIDTH, LAYERS = 1024, 19


def subjects(cls, batch):
    """The traced step, the traced update alone and the update in eager mode, and the plan of the step."""
    mge.random.seed(0)
    net = M.Sequential(*[M.Sequential(M.Linear(WIDTH, WIDTH), M.ReLU()) for _ in range(LAYERS)])
    params = list(net.parameters())
    gm, opt = GradManager().attach(params), cls(params, lr=1e-4)
    random = np.random.RandomState(0)
    grads = [mge.tensor(random.randn(*p.shape).astype("float32")) for p in params]
    x = mge.tensor(random.randn(batch, WIDTH).astype("float32"))

    @trace(symbolic=True, opt_level=3)
    def step(x):
        with gm:
            loss = (net(x) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    def update(*grads):
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad
        opt.step().clear_grad()

    traced = trace(update, symbolic=True, opt_level=3)
    calls = {"step": lambda: step(x), "update alone": lambda: traced(*grads), "update in eager mode": lambda: update(*grads)}

    def timed(what):
        begin = time.perf_counter()
        calls[what]()
        params[-1].numpy()  # waits
        return time.perf_counter() - begin

    return timed, step.plan(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--turns", type=int, default=15)
    options = parser.parse_args()
    (timed, plan), (timed8, plan8) = (subjects(cls, options.batch) for cls in (optim.AdamW, optim.AdamW8bit))
    for name, each in (("AdamW", plan), ("AdamW8bit", plan8)):
        kinds = each.by_kind()
        print(f"{name}: {each.planned_bytes / 1e6:.1f} MB planned, {(kinds['states'] + kinds['results']) / kinds['parameters'] * 4:.3f} bytes of state for each parameter")
    for what in ("step", "update alone", "update in eager mode"):
        for each in (timed, timed8):
            for _ in range(2):
                each(what)
        times = np.array([(timed(what), timed8(what)) for _ in range(options.turns)])
        usual, ours = np.median(times, axis=0) * 1e3
        print(f"{what}: AdamW {usual:.2f} ms, AdamW8bit {ours:.2f} ms, ratio {np.median(times[:, 1] / times[:, 0]):.2f}")


if __name__ == "__main__":
    main()
