"""What do training steps take while another process keeps one of the two cores busy?"""

import contextlib
import subprocess
import sys
import time

from case import Case, Subject, Target
from cases import digits_step, mlp_step


@contextlib.contextmanager
def neighbour():
    """A process that never sleeps, on the cores of this one."""
    program = "print(flush=True)\nwhile True: pass"
    busy = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        busy.stdout.readline()
        yield
    finally:
        busy.kill()
        busy.communicate()


def beside(builder):
    """The subject of ``builder``, timed beside the neighbour."""

    def build():
        subject = builder()

        def run(calls):
            with neighbour():
                start = time.perf_counter()
                subject.run(calls)
                return time.perf_counter() - start

        return Subject(run, subject.result)

    return build


def loaded(case, label):
    """``case`` beside a neighbour, and ours without one in the same rounds."""
    builders = {name: beside(case.builders[name]) for name in ("megjit", *TORCH, "jax")}
    checked = {name: case.checked[name] for name in builders if name in case.checked}
    quiet = case.builders["megjit"]
    return Case(
        name=f"loaded_{case.name}",
        builders={**builders, "megjit_quiet": quiet},
        checked={**checked, "megjit_quiet": checked["megjit"]} if checked else {},
        targets=(
            Target(f"{label} beside a busy process", against=("jax",), at_most=1.3),
            Target(f"{label} beside a busy process", against=TORCH),
            Target(f"{label}, busy against quiet", against=("megjit_quiet",), at_most=3),
        ),
        rtol=case.rtol,
        atol=case.atol,
        beside_others=True,
        rounds=(5, 1),
        seconds=10,
    )


TORCH = ("torch", "torch_compile")
CASES = [loaded(mlp_step.CASES[0], "MLP step"), loaded(digits_step.CASES[0], "digits step")]
