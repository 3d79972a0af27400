"""F5: graphs as tables."""

import megengine.functional as F
import megengine.module as M
from megengine import fx


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.linear = M.Linear(4, 4)
        self.spare = M.ReLU()

    def forward(self, x):
        return F.topk(F.sum(F.relu(self.linear(x + self.linear.weight)), axis=-1), 3)


def test_the_table():
    graph = fx.symbolic_trace(Net()).graph
    assert graph.tabular().splitlines() == [
        "opcode         name           target                     args                kwargs",
        "-------------  -------------  -------------------------  ------------------  ------------",
        "placeholder    x              x                          ()                  {}",
        "get_attr       linear_weight  linear.weight              ()                  {}",
        "call_function  add            <built-in function add>    (x, linear_weight)  {}",
        "call_module    linear         linear                     (add,)              {}",
        "call_function  relu           megengine.functional.relu  (linear,)           {}",
        "call_function  sum_1          megengine.functional.sum   (relu,)             {'axis': -1}",
        "call_function  topk           megengine.functional.topk  (sum_1, 3)          {}",
        "output         output         output                     (topk,)             {}",
    ]
    assert {node.op for node in graph.nodes} <= set(fx.node.OPCODES)


def test_the_table_is_printed(capsys):
    graph = fx.symbolic_trace(Net()).graph
    graph.print_tabular()
    assert capsys.readouterr().out == graph.tabular() + "\n"
