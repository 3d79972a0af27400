"""How long does a process take to plan its first training step, at batch 8, recording it included?

The networks are those of the tests (tests/python/zoo.py). Plain plans have a target; the search for what to
recompute (its quick form) informs.
"""

import sys
from functools import partial
from pathlib import Path

from case import Case, Subject, Target
from cases import _frameworks as on

NAMES = (
    "resnet18", "resnet50", "resnet152", "vgg16", "densenet121", "mobilenet_v2", "unet", "bert_base", "gpt2_small", "lstm200", "resnet1000",
)  # fmt: skip
BATCH = 8


def planning(name, is_sublinear):
    on.setup_megjit()
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests/python"))
    from test_memory_figures import plan, training_step

    from megengine.jit import SublinearMemoryConfig

    training_step(name)  # builds the network, which does not count
    config = SublinearMemoryConfig(thresh_nr_try=0, num_worker=2) if is_sublinear else None

    def run(calls):
        for _ in range(calls):
            plan(name, BATCH, sublinear_memory_config=config)

    return Subject(run, dict)


def planning_case(name):
    return Case(
        name=f"plan_{name}",
        builders={
            "megjit": partial(planning, name, False),
            "megjit_sublinear": partial(planning, name, True),
        },
        targets=(
            Target(f"plan of {name}", at_most=1.0),
            Target(f"{name}, what to recompute", of="megjit_sublinear"),
        ),
        reference=None,
        fresh=True,
        cache="cold",
        rounds=(3, 1),
    )


CASES = [planning_case(name) for name in NAMES]
