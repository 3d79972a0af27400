"""How a traced call says that it departs from its record: the first line of TraceError."""

import numpy as np

from megengine import Tensor
from megengine.jit import TraceError, trace

OUTSIDE = Tensor(np.float32([3, 4]))


def first_line(body):
    """The first line of the error of a second call, whose body does something else than in the first."""
    calls = []
    traced = trace(lambda x: body(x, len(calls)), symbolic=False)
    calls.append(1)
    traced(Tensor(np.float32([1, 2])))
    calls.append(2)
    try:
        traced(Tensor(np.float32([1, 2])))
    except TraceError as error:
        return str(error).splitlines()[0].strip()
    return None


def ask_another_operator():
    return first_line(lambda x, call: x + 1 if call == 1 else x * 1)


def ask_another_constant():
    return first_line(lambda x, call: x + call)


def ask_an_end_too_early():
    def body(x, call):
        y = x + 1
        if call == 1:
            x * 3
        return y

    return first_line(body)


def ask_one_operator_more():
    return first_line(lambda x, call: x + 1 if call == 1 else (x + 1) * 2)


def ask_internal_where_external_was():
    def body(x, call):
        y = x + 1
        return y * (OUTSIDE if call == 1 else y)

    return first_line(body)


def ask_external_where_internal_was():
    def body(x, call):
        y = x + 1
        return y * (y if call == 1 else OUTSIDE)

    return first_line(body)


def ask_another_intermediate():
    def body(x, call):
        y, z = x + 1, x + 2
        return (y if call == 1 else z) * 3

    return first_line(body)
