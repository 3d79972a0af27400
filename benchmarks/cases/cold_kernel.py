"""How long is the wait for one more kernel, compiled or from disk, in a process that has run others?"""

from case import Case, Subject, Target
from cases import _frameworks as on


def megjit():
    """The first call of a traced function that is one kernel, after that of another one."""
    import os
    import time

    os.environ["MEGJIT_COMPILE"] = "sync"  # a program's first call would not wait for its kernels
    on.setup_megjit()

    import megengine as mge
    import megengine.functional as F
    from megengine.jit import trace

    x = mge.tensor([0.5] * 4096)
    options = {"symbolic": True, "opt_level": 3}
    trace(lambda x: F.sqrt(x * x + 1.0), **options)(x)
    kernel = trace(lambda x: F.tanh(x * 1.5 + 0.5) * F.sigmoid(x) - x, **options)

    def run(calls):
        start = time.perf_counter()
        kernel(x)
        return time.perf_counter() - start

    return Subject(run, lambda: {"y": kernel(x).numpy()})


def case(name, cache, words, limits):
    builders = {
        "megjit": on.by_backend("MLIR", megjit),
        "megjit_halide": on.by_backend("HALIDE", megjit),
    }
    return Case(
        name=name,
        builders=builders,
        targets=tuple(
            Target(f"one kernel {words}, {label}", of=of, at_most=limit)
            for of, label, limit in zip(builders, ("MLIR", "Halide"), limits, strict=True)
        ),
        reference="megjit",
        fresh=True,
        cache=cache,
        rounds=(5, 2),
    )


CASES = [
    case("cold_kernel", "cold", "compiled", (0.012, 0.060)),
    case("disk_kernel", "warm", "from disk", (None, None)),
]
