"""What can this machine do at most: memory bandwidth, multiply-adds, core to core, two threads?

The handoff tells whether the two cores share a cache. On a virtual machine that changes from minute to minute:
when they do not, bandwidth doubles and everything that two threads share becomes slower.
"""

import handmade
import numpy as np
from case import Case, Subject, Target

FLOATS = 16_000_000
FMA_LOOPS = 1_000_000
HANDOFFS = 1000


def stream(name, arrays):
    def build():
        kernel = handmade.kernel("limits.c", name, pointers=arrays)
        data = [np.ones(FLOATS, np.float32) for _ in range(arrays)]
        return Subject(lambda calls: kernel(*(a.ctypes.data for a in data), FLOATS, calls), dict)

    return build


def fma():
    kernel = handmade.kernel("limits.c", "fma_peak", pointers=0)
    return Subject(lambda calls: kernel(FMA_LOOPS, calls), dict)


def handoff():
    kernel = handmade.kernel("limits.c", "handoff", pointers=0)
    return Subject(lambda calls: kernel(HANDOFFS // 2, calls), dict)


def limit(name, builder, label, work):
    return Case(
        name=f"limit_{name}",
        builders={name: builder},
        targets=(Target(label, of=name),),
        reference=None,
        seconds=0.2,
        work=work,
    )


CASES = [
    limit("copy", stream("copy", 2), "limit: copy", {"bytes": 8.0 * FLOATS}),
    limit("triad", stream("triad", 3), "limit: triad", {"bytes": 12.0 * FLOATS}),
    # two threads, 12 accumulators of 16 floats, a multiply-add is two
    limit("fma", fma, "limit: multiply-adds", {"flops": 2.0 * 12 * 16 * 2 * FMA_LOOPS}),
    limit("handoff", handoff, "1,000 handoffs between the cores", {}),
]
