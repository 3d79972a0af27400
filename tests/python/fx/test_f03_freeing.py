"""F3: generated code lets go of each value after its last use."""

import weakref

import megengine.functional as F
import megengine.module as M
from megengine import device, fx


def test_code_frees_values_after_their_last_use():
    gm = fx.symbolic_trace(lambda x, y: (x * y).sum() + y)
    assert gm.code == (
        "def forward(self, x, y):\n"
        "    mul = x * y;  x = None\n"
        "    sum_1 = mul.sum();  mul = None\n"
        "    add = sum_1 + y;  sum_1 = y = None\n"
        "    return add\n"
    )


def test_values_are_forgotten_after_their_last_use():
    made = []

    class Value:
        pass

    def make(_):
        assert all(ref() is None for ref in made[:-1])
        value = Value()
        made.append(weakref.ref(value))
        return value

    graph = fx.Graph()
    node = graph.placeholder("x")
    for _ in range(4):
        node = graph.call_function(make, (node,))
    graph.output(node)
    gm = fx.GraphModule(M.Module(), graph)
    fx.Interpreter(gm).run(0)
    made.clear()
    gm(0)


def test_a_run_holds_no_more_than_what_is_still_needed():
    megabyte, ops = 1 << 18, 20  # elements

    def program(x):
        for _ in range(ops):
            x = F.exp(x)
        return x

    gm, x = fx.symbolic_trace(program), F.zeros(megabyte)
    gm(x)
    device.reset_max_memory_stats()
    before = device.get_allocated_memory()
    gm(x)
    assert device.get_max_allocated_memory() - before <= 2 * 4 * megabyte, "an operand and a result"
