"""How long does it take to trace ResNet-50 as a graph of modules, by fx and by traced_module, and to replace 5,000 patterns in
10,000 nodes?"""

import operator
import sys
import time
from pathlib import Path

from case import Case, Subject, Target
from cases import _frameworks as on

NODES = 10_000


def resnet50():
    """The net, and images of one call."""
    on.setup_megjit()
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests/python"))
    import numpy as np
    from zoo import FULL_SIZE

    import megengine as mge

    net = FULL_SIZE["resnet50"][0]()
    net.eval()
    images = np.random.RandomState(0).randn(1, 3, 224, 224).astype(np.float32)
    return net, mge.tensor(images)


def tracing_by_fx():
    net, _ = resnet50()
    from megengine import fx

    def run(calls):
        for _ in range(calls):
            fx.symbolic_trace(net)

    return Subject(run, dict)


def tracing_by_traced_module():
    """The net is run twice: recorded, and compared with what the graph computes."""
    net, images = resnet50()
    from megengine import traced_module

    def run(calls):
        for _ in range(calls):
            traced_module.trace_module(net, images)

    return Subject(run, dict)


def replacing():
    """A chain of relu(-x), built anew for each call; building does not count."""
    on.setup_megjit()
    import megengine.functional as F
    import megengine.module as M
    from megengine import fx

    def run(calls):
        seconds = 0.0
        for _ in range(calls):
            graph = fx.Graph()
            node = graph.placeholder("x")
            for _ in range(NODES // 2):
                node = graph.call_function(operator.neg, (node,))
                node = graph.call_function(F.relu, (node,))
            graph.output(node)
            gm = fx.GraphModule(M.Module(), graph)
            start = time.perf_counter()
            found = fx.replace_pattern(gm, lambda x: F.relu(-x), lambda x: F.maximum(x, x))
            seconds += time.perf_counter() - start
            assert len(found) == NODES // 2
        return seconds

    return Subject(run, dict)


CASES = [
    Case(
        name="trace_fx_resnet50",
        builders={"megjit": tracing_by_fx},
        targets=(Target("ResNet-50 traced by fx", at_most=0.15),),
        reference=None,
        rounds=(5, 2),
    ),
    Case(
        name="trace_module_resnet50",
        builders={"megjit": tracing_by_traced_module},
        targets=(Target("ResNet-50 traced by traced_module, 224 x 224", at_most=0.15),),
        reference=None,
        rounds=(5, 2),
    ),
    Case(
        name="replace_pattern_10000",
        builders={"megjit": replacing},
        targets=(Target("replace_pattern, 10,000 nodes", at_most=1.0),),
        reference=None,
        rounds=(3, 1),
        seconds=0.1,
    ),
]
