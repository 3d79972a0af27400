"""Plans at the budgets of published results, for docs/memory_compared.md. Nothing is computed, but for --run.

    python benchmarks/memory_compared.py resnet50 --level 3
    python benchmarks/memory_compared.py resnet50 --run 4      # computes: the least limit at batch 4 beside no limit

Budgets and overheads are those that MONeT publishes (Shah et al. 2021, README of its repository), for forward and
backward in float32. A budget is theirs, in GiB; the part of it is that of what a call takes there where every value is kept.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.jit import trace

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/python"))

from zoo import FULL_SIZE

GIB = 2**30
# name: (shape of a batch, GiB that MONeT's keep-all takes, {GiB of a budget: overhead in percent})
PUBLISHED = {
    "resnet50": ((184, 3, 224, 224), 15.06, {10.01: 3.22, 8.01: 5.56, 6.99: 7.28, 6.00: 9.31, 4.99: 11.95}),
    "unet": ((11, 3, 416, 608), 14.32, {10.01: -4.10, 8.02: -0.09, 7.00: 1.39, 6.01: 4.95, 5.01: 11.51}),
    "vgg16": ((176, 3, 224, 224), 14.12, {9.71: -5.30, 7.88: -2.18, 6.82: 1.99, 5.51: 9.11}),
    "mobilenet_v2": ((272, 3, 224, 224), 14.46, {10.02: 2.40, 8.02: 4.77, 7.01: 5.53, 6.01: 7.55, 5.01: 8.72}),
}


def tracer(name, level, batch=None):
    """(a function from options of trace to a traced step, the step's arguments)."""
    net = FULL_SIZE[name][0]()
    gm = GradManager().attach(net.parameters())
    shape = (batch or PUBLISHED[name][0][0], *PUBLISHED[name][0][1:])
    x, y = mge.tensor(np.zeros(shape, np.float32)), mge.tensor(np.zeros(shape[0], np.int32))

    def step(x, y):
        with gm:
            loss = F.loss.cross_entropy(net(x), y)
            gm.backward(loss)
        gradients = [parameter.grad for parameter in net.parameters()]
        for parameter in net.parameters():
            parameter.grad = None  # else the next recording adds to it
        return loss, gradients

    return lambda **options: trace(step, symbolic=True, opt_level=level, **options), (x, y)


def planner(name, level):
    """A function from options of trace to the plan of a step."""
    traced, arguments = tracer(name, level)
    return lambda **options: traced(**options).plan(*arguments)


def overhead(plan):
    """Estimated seconds more than the cheapest plan takes, as a part."""
    chosen = next((point for point in plan.curve if point.is_chosen), None)
    return chosen.seconds / plan.curve[0].seconds - 1 if chosen else 0.0  # a limit that is kept without a plan


def kernels(plan):
    """How many of its steps are generated kernels, or oneDNN's with an epilogue."""
    return sum(" fused " in step or "epilogue" in step for step in plan.steps)


def run_at_least(name, level, batch, rounds=5):
    """Prints what the least limit costs when it runs: in turns with a step without a limit."""
    traced, arguments = tracer(name, level, batch)
    try:
        traced(memory_limit=1).plan(*arguments)
    except MemoryError as error:
        least = error.needed
    free, limited = steps = [traced(), traced(memory_limit=least)]
    times = {step: [] for step in steps}
    for _ in range(rounds + 1):
        for step in steps:
            begin = time.process_time()
            step(*arguments)[0].numpy()
            times[step].append(time.process_time() - begin)
    seconds = {step: min(each[1:]) for step, each in times.items()}  # the first call compiles
    plans = {step: step.memory_plan() for step in steps}
    base, plan = plans[free], plans[limited]
    planned = (1 + overhead(plan)) / (1 + overhead(base))
    print(f"{name}, batch {batch}, least limit {least} bytes ({plan.planned_bytes / base.planned_bytes:.2f} of a call without one)")
    print(f"  generated kernels {kernels(plan)}, without a limit {kernels(base)}; CPU time {seconds[limited] / seconds[free]:.2f} of it, planned {planned:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", choices=PUBLISHED)
    parser.add_argument("--level", type=int, default=3)
    parser.add_argument("--run", type=int, metavar="BATCH", help="compute steps of this batch at the least limit")
    given = parser.parse_args()
    if given.run:
        return run_at_least(given.name, given.level, given.run)
    plan, (_, theirs, budgets) = planner(given.name, given.level), PUBLISHED[given.name]
    keep_all = planner(given.name, 2)().planned_bytes  # level 3 recomputes what costs next to nothing
    print(f"{given.name}, level {given.level}: {plan().planned_bytes / GIB:.2f} GiB without a limit; every value kept {keep_all / GIB:.2f} (MONeT: {theirs})")
    for budget, published in budgets.items():
        begin = time.process_time()
        try:
            ours = f"{overhead(plan(memory_limit=int(budget * GIB))):+.1%}"
        except MemoryError:
            ours = "refused"
        print(f"  {budget:.2f} GiB ({budget / theirs:.2f}): published {published:+.1f} %, here {ours}, planned in {time.process_time() - begin:.1f} s of CPU time")
    try:
        plan(memory_limit=1)
    except MemoryError as error:
        print(f"  least {error.needed / keep_all:.3f}, no plan is below {error.bound / keep_all:.3f}")


if __name__ == "__main__":
    main()
