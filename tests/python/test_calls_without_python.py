"""Calls of trace(without_host=...) whose facts hold: the extension answers them, and nothing of ours runs in Python."""

import os
import sys

import pytest

import megengine as mge
from megengine import Tensor
from megengine.jit import trace
from megengine.utils.module_utils import tensors_in
from test_trace import t


def entered_by(call):
    """The functions of ours in Python that a call enters."""
    entered, package = [], os.path.dirname(mge.__file__)

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(package):
            entered.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


class Scaled(Tensor):
    pass


def with_a_name(value):
    tensor = t(value)
    tensor.scale = "a name"
    return tensor


# name: (body, what makes arguments, what makes those of a call that its facts do not take, or None)
SCALES = [2.0]
CALLS = {
    "tensors": (
        lambda x, y: x * y,
        lambda: ((t(1), t(2)), {}),
        lambda: ((Scaled([1.0]), t(2)), {}),
    ),
    "a list": (
        lambda xs: xs[0] + xs[1],
        lambda: (([t(1), t(2)],), {}),
        lambda: (([t(1), t(2), t(3)],), {}),
    ),
    "a dict in a tuple": (
        lambda pair: pair[0]["x"] + pair[1],
        lambda: ((({"x": t(1)}, t(2)),), {}),
        lambda: ((({"x": t(1), "y": t(3)}, t(2)),), {}),
    ),
    "a keyword": (
        lambda x, *, by: x * by,
        lambda: ((t(3),), {"by": 2}),
        lambda: ((t(3),), {"by": 4}),
    ),
    "a plain argument": (lambda x, by: x * by, lambda: ((t(3), 2), {}), lambda: ((t(3), 4), {})),
    "what a tensor carries": (lambda x: x * len(x.scale), lambda: ((with_a_name(3),), {}), None),
    "a global": (lambda x: x * SCALES[0], lambda: ((t(3),), {}), None),
    "several results": (lambda x: [x + 1, x * 2], lambda: ((t(3),), {}), None),
    "results in a dict": (
        lambda x: {"sum": x + 1, "product": (x * 2, x)},
        lambda: ((t(3),), {}),
        None,
    ),
}


@pytest.mark.parametrize("without_host", [True, "auto"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_finds_the_same_facts_enters_no_python(name, without_host):
    body, like, other = CALLS[name]
    traced = trace(body, without_host=without_host)

    def values(function, arguments):
        args, kwargs = arguments
        return [leaf.numpy().tolist() for leaf in tensors_in(function(*args, **kwargs))]

    for _ in range(4):
        assert values(traced, like()) == values(body, like())
    args, kwargs = like()
    known = {"_precisions"} | (
        {"<lambda>", "unflatten", "made_of", "<listcomp>"} if name == "results in a dict" else set()
    )
    assert set(entered_by(lambda: traced(*args, **kwargs))) <= known, traced.explain()
    for arguments in (other,) * 4 + (like,) * 3 if other else ():
        assert values(traced, arguments()) == values(body, arguments())


def test_a_subclass_that_steps_in_is_asked_in_each_call():
    class Counted(trace):
        calls = 0

        def trace_without_host(self, *args, **kwargs):
            Counted.calls += 1
            return super().trace_without_host(*args, **kwargs)

    double = Counted(lambda x: x * 2, without_host=True)
    assert [double(t(v)).item() for v in (1, 2, 3, 4)] == [2, 4, 6, 8]
    assert Counted.calls == 4


def test_a_call_is_a_part_of_what_is_around_it():
    double = trace(lambda x: x * 2, without_host=True)
    outer = trace(lambda x: double(x) + 1)
    for _ in range(3):
        assert double(t(3)).item() == 6
    for _ in range(3):
        assert outer(t(3)).item() == 7
    trace.enabled = False
    try:
        assert "_call_as_part" in entered_by(lambda: double(t(3)))
    finally:
        trace.enabled = True
    assert double(t(3)).item() == 6 and outer.explain().startswith("1 version\n")


@pytest.mark.parametrize("options", [{}, {"symbolic": True, "opt_level": 3}, {"profiling": True}, {"on_mismatch": "record"}], ids=str)
def test_a_walked_call_with_a_record_enters_no_python_but_the_body(options):
    ran = []
    traced = trace(lambda x, y: (ran.append(1), x * y + 1)[1], **options)
    traced(t(1), t(2))  # records
    traced(t(1), t(2))  # may compile
    traced(t(1), t(2))
    assert entered_by(lambda: traced(t(3), t(4))) == entered_by(lambda: (t(3), t(4)))
    assert traced(t(3), t(4)).item() == 13 and len(ran) == 5
    assert traced(Tensor([1.0, 2.0]), t(3)).tolist() == [4, 7]  # another shape
    assert traced(x=t(3), y=t(5)).item() == 16  # keywords are another recording
    traced(t(1), t(2))  # may compile
    assert entered_by(lambda: traced(t(3), t(4))) == entered_by(lambda: (t(3), t(4)))


@pytest.mark.parametrize("error", [KeyError("of the body"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_a_walked_body_that_raises_leaves_the_next_call_alone(error):
    raises, state = [None], mge.Parameter([0.0])

    def body(x):
        y = x * 2
        state[...] = state + y
        if raises[0]:
            raise raises[0]
        return y + 1

    traced = trace(body)
    for _ in range(3):
        traced(t(1))
    assert traced._function.walks_alone
    raises[0] = error
    with pytest.raises(type(error)) as found:
        traced(t(1))
    assert found.value is error and error.__traceback__.tb_next is not None and state.item() == 8
    raises[0] = None
    assert traced(t(3)).item() == 7 and state.item() == 14


def test_a_walked_call_that_leaves_its_record_says_why():
    factor = [2.0]
    traced = trace(lambda x: x * factor[0])
    for _ in range(3):
        traced(t(1))
    assert traced._function.walks_alone
    factor[0] = 3.0
    with pytest.raises(mge.jit.TraceError, match=r"a constant of op mul .*\n  fix: numbers and NumPy arrays are constants of the record"):
        traced(t(1))


def test_calls_that_need_more_than_the_body_are_not_walked_alone():
    class Names(trace):
        def flatten_inputs(self, *args, **kwargs):
            return super().flatten_inputs(*args, **kwargs)

    makers = {
        "imperative": lambda f: trace(f, imperative=True),
        "capture_as_const": lambda f: trace(f, capture_as_const=True, symbolic=True),
        "without_host": lambda f: trace(f, without_host=True),
        "a subclass": Names,
    }
    for name, make in makers.items():
        traced = make(lambda x: x * 2)
        assert [traced(t(v)).item() for v in (1, 2, 3, 4)] == [2, 4, 6, 8], name
        assert not traced._function.walks_alone, name
