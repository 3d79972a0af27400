"""F2: a graph is written as Python code, which does what the graph does and nothing else."""

import operator

import numpy as np
import pytest
from small_modules import same, tensor

import megengine.functional as F
import megengine.module as M
from megengine import fx


@fx.wrap
def opaque(x):
    return F.relu(x) + 1


def test_inputs_keep_their_names():
    gm = fx.symbolic_trace(lambda input, class_=2: input * class_)
    assert "def forward(self, input, class_ = 2):\n    input_1 = input;  input = None" in gm.code
    assert gm(input=3, class_=4) == 12


@pytest.mark.parametrize(
    "value", [1.5, -2, float("inf"), "a'b", None, (1,), [1, {"k": 2}], slice(1, None), Ellipsis, np.float32, F.relu]
)  # fmt: skip
def test_constants_of_all_kinds_are_written(value):
    graph = fx.Graph()
    graph.output(graph.call_function(fx.map_arg, (value, str)))
    assert repr(fx.GraphModule(M.Module(), graph)()) == repr(value)


def test_operators_keep_their_meaning():
    program = lambda x: (-x) ** 2 @ x - (x < 3) + (-1) ** x + ~(x > 1) + abs(x)[0]  # noqa: E731

    class Number(int):
        def __matmul__(self, other):
            return Number(self + other)

        def __getitem__(self, index):
            return self

        __pow__ = lambda self, other: Number(int(self) ** other)  # noqa: E731
        __neg__ = lambda self: Number(-int(self))  # noqa: E731
        __abs__ = lambda self: self  # noqa: E731

    assert fx.symbolic_trace(program)(Number(3)) == program(Number(3))


def test_text_in_a_graph_is_never_run_as_code():
    graph = fx.Graph()
    hostile = 'a"), print("run"), ("'
    x = graph.placeholder(hostile)
    graph.get_attr(hostile)
    graph.call_method(f"sum(); {hostile}", (x,))
    graph.output(graph.call_function(operator.add, (x, x), {hostile: 1, "class": 2}))
    code = compile(graph.python_code("self").src, "test", "exec")
    assert "print" not in {
        *code.co_names,
        *next(c for c in code.co_consts if hasattr(c, "co_names")).co_names,
    }
    x.name = "y; print()"
    with pytest.raises(fx.GraphError, match="not a name of a variable"):
        graph.python_code()


def test_the_readable_form(capsys):
    gm = fx.symbolic_trace(lambda x: x + 1)
    text = gm.print_readable()
    assert (
        "    def forward(self, x):\n        add = x + 1" in text and text in capsys.readouterr().out
    )


def test_tracebacks_show_the_generated_line():
    import traceback

    gm = fx.symbolic_trace(lambda x: F.reshape(x, (7, 7)))
    with pytest.raises(Exception) as caught:  # noqa: PT011 (whatever reshape raises)
        gm(tensor(3))
    shown = "".join(traceback.format_exception(caught.value))
    assert "reshape = megengine.functional.reshape(x, (7, 7))" in shown


def test_the_code_runs_by_itself():
    gm, x = fx.symbolic_trace(lambda x: F.relu(-x) - x[..., 0:2].sum()), tensor(2, 4)
    namespace = {}
    exec(gm.code, namespace)
    same(namespace["forward"](gm, x), gm(x))


@pytest.mark.parametrize(
    "inputs, why",
    [
        (["x", "**rest", "y"], "wrong parameter order"),
        (["*x", "*y"], "stands once"),
        (["x=1", "y"], "non-default"),
        (["*x=1"], "no default"),
    ],
)
def test_inputs_that_are_no_parameters_are_an_error_of_the_graph(inputs, why):
    graph = fx.Graph()
    for name in inputs:
        name, _, default = name.partition("=")
        graph.placeholder(name, **({"default_value": 1} if default else {}))
    with pytest.raises(fx.GraphError, match=why):
        graph.python_code()


def test_a_default_is_a_constant():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.placeholder("y", default_value=(1, x))
    with pytest.raises(fx.GraphError, match="default of the input 'y'.* is not a constant"):
        graph.python_code()


def test_names_that_python_reads_as_others_are_quoted():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_method("\uff54ofile", (x,), {"__debug__": 1}))  # a wide t, which Python reads as t
    assert ".tofile" not in graph.python_code().src and "getattr(x, '\uff54ofile')" in graph.python_code().src


def test_code_comes_with_what_its_names_stand_for():
    code = fx.symbolic_trace(lambda x: opaque(x) * 2).graph.python_code()
    assert isinstance(code, fx.PythonCode) and opaque in code.globals.values()
    names = dict(code.globals)
    exec(code.src, names)
    assert names["forward"](None, tensor(3)).tolist() == (2 * opaque(tensor(3))).tolist()
