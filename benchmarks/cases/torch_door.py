"""What does torch.compile(model, backend="megjit") cost PyTorch's users, and does it keep its limits?

Ten networks (`_torch_door.py`), one training step each; a time is the geometric mean of the ten, a part the worst of them.
"""

import math
import os
import statistics
import sys

from case import Case, Subject, Target
from cases import _torch_door as door

PARTS = (1.0, 0.8, 0.6)


def told(name, text):
    """Prints a line about one network; the harness keeps it with `--log`."""
    print(f"{name}: {text}", file=sys.stderr, flush=True)


def mean_of_steps(steps):
    """Subject whose seconds are the geometric mean of a step's, over the networks."""

    def run(calls):
        seconds = {name: door.seconds_of(step, calls) for name, step in steps.items()}
        told("steps", seconds)
        return math.exp(statistics.fmean(map(math.log, seconds.values())))

    for step in steps.values():
        for _ in range(door.WARM_STEPS):
            step()
    return Subject(run, dict)


# -- without a limit


def training(how):
    def build():
        door.setup()
        return mean_of_steps({name: door.step_of(make(), how) for name, make in door.NETWORKS.items()})

    return build


# -- with one


def kept():
    """Subject that measures the largest growth of a process ÷ limit."""

    def run(calls):
        worst = 0.0
        for name in door.NETWORKS:
            peak = door.measured_apart(name, "door")
            for part in PARTS:
                limit = int(part * peak)
                found = door.measured_apart(name, "door", limit) / limit
                told(name, f"limit of {part:.0%} of {peak / 2**20:.0f} MiB: {found:.3f}")
                worst = max(worst, found)
        return worst

    return Subject(run, dict)


def limited(how):
    """Steps under 60 % of the peak: by the limit, or by the fewest blocks that PyTorch's checkpointing has to compute again."""

    def build():
        door.setup()
        steps = {}
        for name, make in door.NETWORKS.items():
            limit = int(0.6 * door.measured_apart(name, "door"))
            if how == "door":
                steps[name] = door.step_of(make(), how, limit)
                continue
            every = len(make().blocks)
            fits = (count for count in range(every + 1) if door.measured_apart(name, how, blocks=count) <= limit)
            if (count := next(fits, None)) is None:
                told(name, f"{how}: no checkpointing keeps {limit} bytes; all blocks are computed again")
            steps[name] = door.step_of(door.checkpointed(make(), every if count is None else count), how)
        return mean_of_steps(steps)

    return build


# -- before the first step


def own_first_step(how):
    """Subject whose seconds are the first step's, less those of dynamo and AOTAutograd."""

    def build():
        os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
        door.setup()
        import torch
        from torch import nn

        def first(net, backend):
            torch._dynamo.reset()
            run = torch.compile(net.model, backend=backend)
            return door.seconds_of(lambda: net.loss(run).backward())

        if how == "door":
            from megengine.torch_backend import backend
        else:
            backend = how
        first(door.Net(nn.Linear(4, 4), {"input": torch.rand(4, 4)}, []), backend)  # imports

        def run(calls):
            seconds = []
            for name, make in door.NETWORKS.items():
                net = make()
                first(net, "aot_eager")
                seconds.append(first(net, backend) - first(net, "aot_eager"))
                told(name, seconds[-1])
            return sum(seconds)

        return Subject(run, dict)

    return build


# -- a small graph


def small(how):
    def build():
        door.setup()
        import torch

        x = torch.rand(4)
        call = door.compiled(lambda x: x * 2 + 1, how)
        return Subject(lambda calls: door.seconds_of(lambda: call(x), calls), lambda: {"result": call(x).numpy()})

    return build


# -- whether it trains


def wrong_gradients(family):
    """Subject that measures the part of a family's networks whose gradients are wrong, or that do not train at all."""

    def build():
        door.setup()
        from cases import _torch_networks

        return Subject(lambda calls: _torch_networks.part_that_fails(family, told), dict)

    return build


CASES = [
    Case(
        name="torch_door_step",
        builders={how: training(how) for how in ("door", "eager", "inductor")},
        targets=(
            Target("PyTorch's step, ten networks", of="door", against=("inductor",), at_most=0.9),
            Target("the same, eager", of="door", against=("eager",)),
        ),
        reference=None,
        seconds=0.0,
        rounds=(7, 3),
    ),
    Case(
        name="torch_door_kept",
        builders={"door": kept},
        targets=(Target("growth ÷ limit, 100, 80, 60 % of the peak", of="door", at_most=1.02),),
        reference=None,
        rounds=(1, 1),
        unit="part",
        beside_others=True,
    ),
    Case(
        name="torch_door_limited",
        builders={how: limited(how) for how in ("door", "eager", "inductor")},
        targets=(Target("step at 60 % of the peak, checkpointing", of="door", against=("eager", "inductor"), at_most=0.8),),
        reference=None,
        seconds=0.0,
        rounds=(7, 3),
    ),
    Case(
        name="torch_door_first",
        builders={how: own_first_step(how) for how in ("door", "inductor")},
        targets=(Target("first step, behind AOTAutograd", of="door", against=("inductor",), at_most=0.15),),
        reference=None,
        fresh=True,
        cache="cold",
        rounds=(2, 1),
    ),
    Case(
        name="torch_door_call",
        builders={how: small(how) for how in ("door", "eager", "inductor")},
        targets=(Target("call of a graph of 4 elements", of="door", against=("inductor",), at_most=1.1),),
        reference="eager",
    ),
    *(
        Case(
            name=f"torch_door_trains_{family}",
            builders={"door": wrong_gradients(family)},
            targets=(Target(f"wrong gradients, networks of {family}", of="door", at_most=0.0),),
            reference=None,
            rounds=(1, 1),
            unit="part",
            beside_others=True,
        )
        for family in ("transformers", "timm", "torchvision")
    ),
]
