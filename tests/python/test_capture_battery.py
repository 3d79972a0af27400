"""Programs whose facts at the time of capture change before a later call.

Each runs eagerly and under the four modes of trace. Every call gives what the eager call gives, or
raises an error that says what is wrong; nothing is silently wrong. A program is a generator: it
wraps its functions, calls them, changes something, and yields whatever could show a difference.
"""

import asyncio
import itertools
import math
import random
import re

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import TraceError, exclude_from_trace, trace

pytestmark = pytest.mark.filterwarnings("ignore:.* is recorded again in each call")

MODES = {
    "value": {},
    "symbolic": {"symbolic": True},
    "without_host": {"without_host": True},
    "without_host_symbolic": {"without_host": True, "symbolic": True},
}
PROGRAMS = {}
STATEFUL = set()  # after a refused call their state is no longer the eager one


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def stateful(function):
    STATEFUL.add(function.__name__)
    return program(function)


def t(*values):
    return mge.tensor(np.array(values, np.float32))


def ones(*shape):
    return mge.tensor(np.ones(shape, np.float32))


# ---- control flow on data


@program
def branch_on_item(wrap):
    @wrap
    def f(x):
        if x.sum().item() > 0:
            return x * 2
        return x - 1

    for v in (1, 2, -1, 3, -2):
        yield f(t(v))


@program
def branch_on_truth_of_a_tensor(wrap):
    f = wrap(lambda x: x * 2 if x.sum() > 0 else x / 2)
    for v in (1, 2, -1, 3):
        yield f(t(v))


@program
def branch_of_equal_ops_on_data(wrap):
    f = wrap(lambda x: x * (3.0 if x.mean().item() > 0 else 5.0))
    for v in (1, 2, -1, 3):
        yield f(t(v))


@program
def loop_counted_by_a_tensor(wrap):
    @wrap
    def f(x, n):
        for _ in range(int(n)):
            x = x * 2
        return x

    for n in (2, 2, 4, 0, 2):
        yield f(t(1), mge.tensor(n))


@program
def while_on_data(wrap):
    @wrap
    def f(x):
        while x.sum() < 10:
            x = x * 2
        return x

    for v in (3, 3, 9, 1, 20):
        yield f(t(v))


@program
def try_on_data(wrap):
    @wrap
    def f(x):
        try:
            return x * (1 / x.item())
        except ZeroDivisionError:
            return x + 7

    for v in (1, 1, 2, 0, 1):
        yield f(mge.tensor(float(v)))


@program
def read_that_the_body_catches(wrap):
    @wrap
    def f(x):
        try:
            factor = float(x.sum())
        except Exception:
            factor = -1.0
        return x * factor

    for v in (1, 1, 2):
        yield f(t(v, v))


@program
def read_in_a_branch_that_the_body_catches(wrap):
    def factor(x):
        try:
            return x * x.sum().item()
        except Exception:
            return x * 5.0

    f = wrap(lambda x: F.cond(x.sum() > 0, factor, lambda x: x - 1, x))
    for v in (1, 1, 2, -1):
        yield f(t(v))


@program
def branch_that_reads_and_is_caught(wrap):
    @wrap
    def f(x):
        try:
            return F.cond(x.sum() > 0, lambda x: x * x.sum().item(), lambda x: x - 1, x)
        except Exception:
            return x * 5.0

    for v in (1, 1, 2, -1):
        yield f(t(v))


@program
def value_of_an_input_in_an_operation(wrap):
    f = wrap(lambda x, k: x * k.item())
    for k in (2, 2, 3, 2):
        yield f(t(1, 2), mge.tensor(float(k)))


@program
def placeholder_that_is_printed(wrap):
    @wrap
    def f(x):
        y = x * 2
        repr(y)  # of a symbolic one without values
        return y + 1

    for v in (1, 2, 3):
        yield f(t(v))


@program
def assert_on_data(wrap):
    @wrap
    def f(x):
        assert (x.numpy() >= 0).all()
        return x * 2

    for v in (1, 2, -1, 3):
        yield f(t(v))


@program
def early_return_on_any(wrap):
    @wrap
    def f(x):
        if np.isnan(x.numpy()).any():
            return F.zeros_like(x)
        return x + 1

    for v in (1, 2, math.nan, 3):
        yield f(t(v))


@program
def filter_rows_by_value(wrap):
    @wrap
    def f(x):
        return [row * 2 for row in x if row.sum().item() > 0]

    for rows in ([[1], [2]], [[3], [4]], [[-1], [2]], [[1], [1]]):
        yield f(t(*rows))


@program
def sort_by_value(wrap):
    @wrap
    def f(a, b):
        a, b = sorted((a, b), key=lambda x: x.item())
        return a - b

    for a, b in ((1, 2), (2, 5), (5, 2), (1, 2)):
        yield f(t(a), t(b))


@program
def table_looked_up_by_value(wrap):
    table = {0: 1.5, 1: -2.0}
    f = wrap(lambda x, i: x * table[int(i)])
    for i in (0, 0, 1, 0):
        yield f(t(2), mge.tensor(i))


@program
def index_by_value(wrap):
    f = wrap(lambda x, i: x[int(i)] * 1)
    for i in (0, 0, 2, -1):
        yield f(t(5, 6, 7), mge.tensor(i))


@program
def slice_by_value(wrap):
    f = wrap(lambda x, n: x[: n.item()] * 2)
    for n in (2, 2, 1, 3, 0):
        yield f(t(5, 6, 7), mge.tensor(n))


@program
def slice_by_tensor(wrap):
    f = wrap(lambda x, n: x[:n] * 2)
    for n in (2, 2, 1, 3):
        yield f(t(5, 6, 7), mge.tensor(n))


@program
def index_by_tensor(wrap):
    f = wrap(lambda x, i: x[i] * 2)
    for i in (0, 0, 2, 1):
        yield f(t(5, 6, 7), mge.tensor(i))


@program
def float_of_a_tensor_as_factor(wrap):
    f = wrap(lambda x: x * float(x.sum()))
    for v in (1, 1, 2, 3):
        yield f(t(v))


@program
def host_round_trip(wrap):
    f = wrap(lambda x: mge.tensor(x.numpy() * 2) + x)
    for v in (1, 2, 3):
        yield f(t(v))


@program
def host_round_trip_of_an_intermediate(wrap):
    f = wrap(lambda x: mge.tensor(np.sort((x * -1).numpy())) * x)
    for v in ((1, 2), (3, 1), (5, 0)):
        yield f(t(*v))


@program
def host_number_of_an_intermediate(wrap):
    f = wrap(lambda x: x + math.sqrt((x * x).sum().item()))
    for v in (1, 1, 2, 3):
        yield f(t(v))


@program
def text_of_a_value(wrap):
    f = wrap(lambda x: x * len(str(x.item())))
    for v in (1, 1, 10, 100):
        yield f(mge.tensor(v))


@program
def value_returned_as_a_number(wrap):
    f = wrap(lambda x: (x * 2, x.sum().item()))
    for v in (1, 2, 3):
        yield f(t(v))


@program
def mask_of_another_count(wrap):
    f = wrap(lambda x: x[x > 0].sum() * 2)
    for v in ((1, 2), (-1, 2), (-1, -2), (3, 4)):
        yield f(t(*v))


@program
def excluded_branch(wrap):
    @wrap
    def f(x):
        y = x * 2
        with exclude_from_trace():
            if y.sum().item() > 2:
                y = y - 10
        return y + x

    for v in (1, 1, 2, 0):
        yield f(t(v))


# ---- shapes and types


@program
def branch_on_extent(wrap):
    f = wrap(lambda x: x * 2 if x.shape[0] > 2 else x * 3)
    for n in (2, 2, 3, 2, 4):
        yield f(ones(n))


@program
def loop_over_length(wrap):
    @wrap
    def f(x):
        total = 0
        for i in range(len(x)):
            total = total + x[i] * i
        return total

    for n in (2, 2, 4, 1, 2):
        yield f(ones(n, 2))


@program
def rows_of_a_tensor(wrap):
    f = wrap(lambda x: sum(row * row for row in x))
    for n in (2, 2, 3, 1):
        yield f(ones(n, 2))


@program
def extent_as_divisor(wrap):
    f = wrap(lambda x: x.sum(axis=0) / x.shape[0])
    for n in (2, 2, 4, 8, 2):
        yield f(mge.tensor(np.arange(2 * n, dtype=np.float32).reshape(n, 2)))


@program
def list_sized_by_shape(wrap):
    f = wrap(lambda x: x + mge.tensor(np.array([1.0] * int(x.shape[0]), np.float32)))
    for n in (2, 2, 3, 2):
        yield f(ones(n))


@program
def branch_on_rank(wrap):
    f = wrap(lambda x: x.sum(axis=0) if x.ndim > 1 else x * 5)
    for shape in ((2,), (2,), (2, 3), (), (2,)):
        yield f(ones(*shape))


@program
def element_count_as_factor(wrap):
    f = wrap(lambda x: x * x.size)
    for n in (2, 2, 3, 2):
        yield f(ones(n))


@program
def reshape_by_extent(wrap):
    f = wrap(lambda x: x.reshape(x.shape[0], -1) * 2)
    for n in (2, 2, 4, 1):
        yield f(ones(n, 2, 3))


@program
def fill_of_a_shape(wrap):
    f = wrap(lambda x: F.zeros(x.shape) + F.full(x.shape, 3.0) * x)
    for n in (2, 2, 3):
        yield f(ones(n, 2))


@program
def arange_of_an_extent(wrap):
    f = wrap(lambda x: x * F.arange(0, int(x.shape[0]), 1))
    for n in (2, 2, 4, 3):
        yield f(ones(n))


@program
def shapes_compared(wrap):
    f = wrap(lambda a, b: a + b if tuple(a.shape) == tuple(b.shape) else a.sum() - b.sum())
    for n, m in ((2, 2), (2, 2), (2, 3), (3, 2), (2, 2)):
        yield f(ones(n), ones(m))


@program
def empty_batch(wrap):
    f = wrap(lambda x: (x * 2).sum(axis=0) + 1)
    for n in (2, 0, 2, 0):
        yield f(ones(n, 3))


@program
def scalar_then_vector(wrap):
    f = wrap(lambda x: F.exp(x) * 2)
    for shape in ((), (), (3,), (1,), (2, 1)):
        yield f(ones(*shape))


@program
def broadcast_changes(wrap):
    f = wrap(lambda a, b: (a * b).sum())
    for a, b in (((3,), (3,)), ((3,), (3,)), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 1), (1, 3))):
        yield f(ones(*a), ones(*b) * 2)


@program
def branch_on_dtype(wrap):
    f = wrap(lambda x: x / 2 if x.dtype == np.float32 else x + 1)
    for dtype in ("float32", "float32", "int32", "float16", "float32"):
        yield f(mge.tensor(np.array([2, 4])).astype(dtype))


@program
def dtype_of_an_input(wrap):
    f = wrap(lambda x: x * 2 + 1)
    for dtype in ("float32", "int32", "float16", "uint8", "float32"):
        yield f(mge.tensor(np.array([2, 4])).astype(dtype))


@program
def device_of_an_input(wrap):
    f = wrap(lambda x: (x + 1, str(x.device)))
    for device in ("cpu0", "cpu0", "cpux", "xpux"):
        yield f(mge.tensor(np.ones(2, np.float32), device=device))


@program
def shape_read_on_the_host(wrap):
    f = wrap(lambda x: x * float(np.prod(tuple(int(n) for n in x.shape))))
    for n in (2, 2, 5):
        yield f(ones(n, 2))


# ---- arguments


@program
def number_argument(wrap):
    f = wrap(lambda x, k: x * k)
    for k in (2, 2, 3, 2.5, True):
        yield f(t(1), k)


@program
def keyword_flag(wrap):
    @wrap
    def f(x, *, negate=False):
        return -x if negate else x * 1

    yield f(t(1))
    yield f(t(2))
    yield f(t(2), negate=True)
    yield f(t(2), negate=False)


@program
def list_argument_grows(wrap):
    f = wrap(lambda xs: sum(x * 2 for x in xs))
    for n in (2, 2, 3, 1):
        yield f([t(i) for i in range(n)])


@program
def dict_argument_swaps_keys(wrap):
    f = wrap(lambda d: d["a"] - d["b"] * 2)
    yield f({"a": t(1), "b": t(2)})
    yield f({"a": t(3), "b": t(4)})
    yield f({"b": t(4), "a": t(3)})


@program
def one_tensor_twice_then_two(wrap):
    f = wrap(lambda x, y: (x - y, x * y))
    x = t(3)
    yield f(x, x)
    yield f(x, x)
    yield f(t(5), t(2))
    yield f(x, x)


@program
def argument_changed_in_place(wrap):
    @wrap
    def f(x, y):
        x += 1
        return x * y

    x, y = t(3), t(4)
    for _ in range(2):
        yield f(x, y), x
    yield f(y, y), y


@program
def aliased_argument_and_global(wrap):
    shared = t(2)

    @wrap
    def f(x):
        shared[...] = shared * 2
        return x + shared

    yield f(t(1)), shared
    yield f(t(1)), shared
    yield f(shared), shared


@program
def default_argument_replaced(wrap):
    def body(x, k=2.0):
        return x * k

    f = wrap(body)
    yield f(t(1))
    yield f(t(1))
    body.__defaults__ = (7.0,)
    yield f(t(1))


@program
def keyword_default_replaced(wrap):
    def body(x, *, k=2.0):
        return x * k

    f = wrap(body)
    yield f(t(1))
    yield f(t(1))
    body.__kwdefaults__["k"] = 7.0
    yield f(t(1))


@program
def number_array_argument_by_keyword(wrap):
    f = wrap(lambda x, *, a: x * a)
    a = np.array([1, 2], np.float32)
    yield f(ones(2), a=a)
    yield f(ones(2), a=a)
    a[0] = 9
    yield f(ones(2), a=a)


# ---- Python state

FACTOR = 2.0
TENSOR = None
ARRAY = None
TABLE = {}
ACTIVATION = None


class Switches:
    on = False


@program
def global_number_changed(wrap):
    global FACTOR
    FACTOR = 2.0
    f = wrap(lambda x: x * FACTOR)
    yield f(t(1))
    yield f(t(1))
    FACTOR = 5.0
    yield f(t(1))
    FACTOR = 2.0
    yield f(t(1))


@program
def global_read_in_a_comprehension(wrap):
    global FACTOR
    FACTOR = 2.0
    f = wrap(lambda xs: [x * FACTOR for x in xs])
    yield f([t(1), t(2)])
    yield f([t(1), t(2)])
    FACTOR = 5.0
    yield f([t(1), t(2)])


@program
def global_read_in_an_inner_function(wrap):
    global FACTOR
    FACTOR = 2.0

    @wrap
    def f(x):
        def scaled(y):
            return y * FACTOR

        return scaled(x)

    yield f(t(1))
    yield f(t(1))
    FACTOR = 5.0
    yield f(t(1))


def helper_of_a_helper(x):
    return x * FACTOR


def helper(x):
    return helper_of_a_helper(x) + 1


@program
def global_read_by_a_helper(wrap):
    global FACTOR
    FACTOR = 2.0
    f = wrap(lambda x: helper(x))
    yield f(t(1))
    yield f(t(1))
    FACTOR = 5.0
    yield f(t(1))


@program
def global_tensor_replaced(wrap):
    global TENSOR
    TENSOR = t(2)
    f = wrap(lambda x: x * TENSOR)
    yield f(t(1))
    yield f(t(1))
    TENSOR = t(3)
    yield f(t(1))
    TENSOR = t(4, 5)
    yield f(t(1))


@program
def global_tensor_written(wrap):
    global TENSOR
    TENSOR = t(2)
    f = wrap(lambda x: x * TENSOR)
    yield f(t(1))
    yield f(t(1))
    TENSOR[...] = t(3)
    yield f(t(1))
    TENSOR += 1
    yield f(t(1))


@program
def global_key_added(wrap):
    TABLE.clear()
    TABLE["a"] = 1.0
    f = wrap(lambda x: x + sum(TABLE.values()))
    yield f(t(1))
    yield f(t(1))
    TABLE["b"] = 10.0
    yield f(t(1))


@program
def global_appears(wrap):
    globals().pop("LATER", None)
    f = wrap(lambda x: x * globals().get("LATER", 2.0))
    yield f(t(1))
    yield f(t(1))
    globals()["LATER"] = 9.0
    yield f(t(1))
    del globals()["LATER"]


@program
def list_of_the_closure_changed(wrap):
    state = [2.0]
    f = wrap(lambda x: x * state[0])
    yield f(t(1))
    yield f(t(1))
    state[0] = 5.0
    yield f(t(1))


@program
def list_of_the_closure_grows(wrap):
    factors = [2.0, 3.0]

    @wrap
    def f(x):
        for factor in factors:
            x = x * factor
        return x

    yield f(t(1))
    yield f(t(1))
    factors.append(5.0)
    yield f(t(1))


@program
def deeply_nested_number_changed(wrap):
    state = {"a": [{"b": [[[2.0]]]}]}
    f = wrap(lambda x: x * state["a"][0]["b"][0][0][0])
    yield f(t(1))
    yield f(t(1))
    state["a"][0]["b"][0][0][0] = 5.0
    yield f(t(1))


@program
def set_of_the_closure_changed(wrap):
    names = {"twice"}
    f = wrap(lambda x: x * 2 if "twice" in names else x * 3)
    yield f(t(1))
    yield f(t(1))
    names.clear()
    yield f(t(1))


@program
def class_flag_changed(wrap):
    Switches.on = False
    f = wrap(lambda x: x * 2 if Switches.on else x * 3)
    yield f(t(1))
    yield f(t(1))
    Switches.on = True
    yield f(t(1))
    Switches.on = False


class Plain:
    def __init__(self, k=2.0):
        self.k = k
        self.parts = []

    def scaled(self, x):
        for part in self.parts:
            x = part.scaled(x)
        return x * self.k

    @property
    def doubled(self):
        return self.k * 2

    def __call__(self, x):
        return x * self.k


@program
def attribute_of_an_object_changed(wrap):
    state = Plain()
    f = wrap(lambda x: x * state.k)
    yield f(t(1))
    yield f(t(1))
    state.k = 5.0
    yield f(t(1))


@program
def attribute_read_in_a_method(wrap):
    state = Plain()
    f = wrap(lambda x: state.scaled(x))
    yield f(t(1))
    yield f(t(1))
    state.k = 5.0
    yield f(t(1))


@program
def attribute_of_a_part_changed(wrap):
    state = Plain()
    state.parts.append(Plain(3.0))
    f = wrap(lambda x: state.scaled(x))
    yield f(t(1))
    yield f(t(1))
    state.parts[0].k = 5.0
    yield f(t(1))


@program
def attribute_behind_a_property(wrap):
    state = Plain()
    f = wrap(lambda x: x * state.doubled)
    yield f(t(1))
    yield f(t(1))
    state.k = 5.0
    yield f(t(1))


@program
def callable_object_changed(wrap):
    state = Plain()
    f = wrap(lambda x: state(x))
    yield f(t(1))
    yield f(t(1))
    state.k = 5.0
    yield f(t(1))


@program
def callable_object_is_traced(wrap):
    state = Plain()
    f = wrap(state)
    yield f(t(1))
    yield f(t(1))
    state.k = 5.0
    yield f(t(1))


@program
def attribute_of_an_argument_changed(wrap):
    state = Plain()
    f = wrap(lambda x, *, s: x * s.k)
    yield f(t(1), s=state)
    yield f(t(1), s=state)
    state.k = 5.0
    yield f(t(1), s=state)
    yield f(t(1), s=Plain(7.0))


@program
def attribute_by_getattr(wrap):
    state = Plain()
    f = wrap(lambda x: x * getattr(state, "k"))
    yield f(t(1))
    yield f(t(1))
    state.k = 5.0
    yield f(t(1))


@program
def tensor_in_an_object_replaced(wrap):
    state = Plain(t(2))
    f = wrap(lambda x: x * state.k)
    yield f(t(1))
    yield f(t(1))
    state.k = t(5)
    yield f(t(1))
    state.k[...] = t(6)
    yield f(t(1))


@program
def tensor_in_a_list_replaced(wrap):
    state = [t(2)]
    f = wrap(lambda x: x * state[0])
    yield f(t(1))
    yield f(t(1))
    state[0] = t(5)
    yield f(t(1))


def times(k):
    return lambda x: x * k


@program
def global_function_replaced(wrap):
    global ACTIVATION
    ACTIVATION = times(2.0)
    f = wrap(lambda x: ACTIVATION(x))
    yield f(t(1))
    yield f(t(1))
    ACTIVATION = None
    ACTIVATION = times(5.0)
    yield f(t(1))


@program
def second_function_of_one_factory(wrap):
    cells = [[2.0], [3.0]]
    first, second = (lambda x, c=c: x * c[0] for c in cells)
    f = wrap(lambda x: first(x) + second(x))
    yield f(t(1))
    yield f(t(1))
    cells[1][0] = 50.0
    yield f(t(1))


@program
def functions_in_a_list_replaced(wrap):
    functions = [times(2.0), times(3.0)]

    @wrap
    def f(x):
        for function in functions:
            x = function(x)
        return x

    yield f(t(1))
    yield f(t(1))
    functions[1] = None
    functions[1] = times(7.0)
    yield f(t(1))


@program
def numpy_global_written(wrap):
    global ARRAY
    ARRAY = np.array([2, 3], np.float32)
    f = wrap(lambda x: x * ARRAY)
    yield f(t(1, 1))
    yield f(t(1, 1))
    ARRAY[0] = 9
    yield f(t(1, 1))


@program
def numpy_global_wrapped_in_a_tensor(wrap):
    global ARRAY
    ARRAY = np.array([2, 3], np.float32)
    f = wrap(lambda x: x * mge.tensor(ARRAY))
    yield f(t(1, 1))
    yield f(t(1, 1))
    ARRAY[0] = 9
    yield f(t(1, 1))


@stateful
def counter_advanced_by_the_body(wrap):
    state = [0]

    @wrap
    def f(x):
        state[0] += 1
        return x * state[0]

    for _ in range(3):
        yield f(t(1))


@stateful
def nonlocal_advanced_by_the_body(wrap):
    count = 0

    @wrap
    def f(x):
        nonlocal count
        count += 1
        return x + count

    for _ in range(3):
        yield f(t(1))


@stateful
def iterator_advanced_by_the_body(wrap):
    numbers = itertools.count(1)
    f = wrap(lambda x: x * next(numbers))
    for _ in range(3):
        yield f(t(1))


@stateful
def host_random_number(wrap):
    rng = np.random.default_rng(0)
    f = wrap(lambda x: x * float(rng.uniform()))
    for _ in range(3):
        yield f(t(1))


@stateful
def random_of_the_standard_library(wrap):
    random.seed(1)
    f = wrap(lambda x: x * random.random())
    for _ in range(3):
        yield f(t(1))


@stateful
def numpy_random_of_a_shape(wrap):
    np.random.seed(1)
    f = wrap(lambda x: x * mge.tensor(np.random.rand(2).astype(np.float32)))
    for _ in range(3):
        yield f(t(1, 2))


@stateful
def result_kept_by_the_body(wrap):
    kept = []

    @wrap
    def f(x):
        y = x * 2
        kept.append(y)
        return y + 1

    for v in (1, 2, 3):
        yield f(t(v)), kept[-1]


@stateful
def state_in_a_list_replaced_by_the_body(wrap):
    state = [t(1)]

    @wrap
    def f(x):
        state[0] = state[0] * 2 + x
        return state[0] * 1

    for v in (1, 2, 3):
        yield f(t(v)), state[0]


@stateful
def state_in_a_dict_written_by_the_body(wrap):
    state = {"h": t(1)}

    @wrap
    def f(x):
        state["h"][...] = state["h"] * 2 + x
        return state["h"] * 1

    for v in (1, 2, 3):
        yield f(t(v)), state["h"]
    state["h"] = t(100)
    yield f(t(1)), state["h"]


@stateful
def global_tensor_replaced_by_the_body(wrap):
    global TENSOR
    TENSOR = t(1)

    @wrap
    def f(x):
        global TENSOR
        TENSOR = TENSOR + x
        return TENSOR * 2

    for v in (1, 2, 3):
        yield f(t(v)), TENSOR


# ---- modules


class Scaled(M.Module):
    def __init__(self, k=2.0):
        super().__init__()
        self.k = k
        self.table = {"k": 2.0}
        self.factors = [1.0, 2.0]
        self.plain = Plain(1.0)
        self.weight = mge.Parameter(np.ones(2, np.float32))

    def forward(self, x):
        y = x * self.weight * self.k * self.table["k"] * self.plain.k
        for factor in self.factors:
            y = y * factor
        return y * FACTOR


def changed_module(change):
    def run(wrap):
        global FACTOR
        FACTOR = 2.0
        net = M.Sequential(Scaled(), Scaled(0.5))
        f = wrap(lambda x: net(x))
        yield f(t(1, 2))
        yield f(t(3, 4))
        change(net)
        yield f(t(3, 4))
        yield f(t(5, 6))
        FACTOR = 2.0

    return run


def changes_global(net):
    global FACTOR
    FACTOR = 3.0


for name, change in {
    "number": lambda net: setattr(net[1], "k", 9.0),
    "table": lambda net: net[1].table.update(k=9.0),
    "list": lambda net: net[0].factors.append(9.0),
    "object": lambda net: setattr(net[0].plain, "k", 9.0),
    "parameter_written": lambda net: net[0].weight.__setitem__(Ellipsis, t(7, 8)),
    "parameter_replaced": lambda net: setattr(net[0], "weight", mge.Parameter(t(7, 8))),
    "parameter_reset": lambda net: net[0].weight._reset(t(7, 8)),
    "state_loaded": lambda net: net.load_state_dict(
        {"0.weight": np.array([3, 4], np.float32), "1.weight": np.array([5, 6], np.float32)}
    ),
    "child_replaced": lambda net: setattr(net, "1", Scaled(4.0)),
    "forward_replaced": lambda net: setattr(net[0], "forward", lambda x: x + 100),
    "global_of_forward": changes_global,
    "pre_hook": lambda net: net[0].register_forward_pre_hook(lambda m, args: (args[0] + 100,)),
    "hook": lambda net: net[1].register_forward_hook(lambda m, args, out: out + 100),
    "class_forward": lambda net: setattr(net[0], "__class__", type("Other", (Scaled,), {"forward": lambda s, x: x + 50})),
}.items():
    PROGRAMS[f"module_{name}_changed"] = changed_module(change)


@program
def hook_removed(wrap):
    net = Scaled()
    handle = net.register_forward_hook(lambda m, args, out: out + 100)
    f = wrap(lambda x: net(x))
    yield f(t(1, 2))
    yield f(t(1, 2))
    handle.remove()
    yield f(t(1, 2))


@program
def hook_reads_changed_state(wrap):
    net, state = Scaled(), [100.0]
    net.register_forward_hook(lambda m, args, out: out + state[0])
    f = wrap(lambda x: net(x))
    yield f(t(1, 2))
    yield f(t(1, 2))
    state[0] = 7.0
    yield f(t(1, 2))


@stateful
def training_flag_of_dropout(wrap):
    mge.random.seed(4)
    net = M.Sequential(M.Dropout(0.5), M.Identity())
    f = wrap(lambda x: net(x))
    for train in (True, True, False, True):
        net.train(train)
        yield f(ones(64))


@stateful
def training_flag_of_batch_norm(wrap):
    net = M.BatchNorm2d(2)
    f = wrap(lambda x: net(x))
    for i, train in enumerate((True, True, False, False, True)):
        net.train(train)
        x = np.random.RandomState(i).randn(3, 2, 2, 2).astype(np.float32)
        yield f(mge.tensor(x)), net.running_mean, net.running_var


@program
def dropout_rate_changed(wrap):
    mge.random.seed(4)
    net = M.Dropout(0.5)
    f = wrap(lambda x: net(x))
    for rate in (0.5, 0.5, 0.9, 0.0):
        net.drop_prob = rate
        yield f(ones(64))


@stateful
def hidden_state_of_a_module_replaced(wrap):
    class Memory(M.Module):
        def __init__(self):
            super().__init__()
            self.hidden = t(1)

        def forward(self, x):
            self.hidden = self.hidden * 0.5 + x
            return self.hidden * 2

    net = Memory()
    f = wrap(lambda x: net(x))
    for v in (1, 2, 3):
        yield f(t(v)), net.hidden


@stateful
def calls_counted_by_a_module(wrap):
    class Counted(M.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    net = Counted()
    f = wrap(lambda x: net(x))
    for v in (1, 2, 3):
        yield f(t(v)), net.calls


@program
def another_module_is_passed(wrap):
    f = wrap(lambda x, *, net: net(x))
    first, second = Scaled(2.0), Scaled(5.0)
    second.weight[...] = t(3, 4)
    yield f(t(1, 2), net=first)
    yield f(t(1, 2), net=first)
    yield f(t(1, 2), net=second)


@stateful
def two_parameters_with_one_value(wrap):
    first, second, shared = M.Linear(2, 2), M.Linear(2, 2), ones(2, 2)
    first.weight[...] = shared
    second.weight[...] = shared
    first.bias[...] = second.bias[...] = t(1, 2)
    f = wrap(lambda x: first(x) + second(x))
    yield f(ones(1, 2))
    yield f(ones(1, 2))
    second.weight[...] = shared * 5
    yield f(ones(1, 2))


@program
def argument_that_is_a_captured_tensor(wrap):
    shared = t(2)
    f = wrap(lambda x: x * 10 + shared)
    yield f(shared)
    yield f(shared)
    yield f(t(5))
    yield f(shared)


# ---- training


class Trainer:
    """One linear model with a fixed start; `step` gives the loss, the weights and the gradients."""

    def __init__(self, make=None):
        self.net = M.Linear(3, 2)
        for i, p in enumerate(self.net.parameters()):
            p[...] = mge.tensor(np.linspace(-1, 1 + i, p.size, dtype=np.float32).reshape(p.shape))
        make = make or (lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9))
        self.opt = make(list(self.net.parameters()))
        self.gm = GradManager().attach(self.net.parameters())
        self.calls = 0

    def body(self, clear=True):
        net, opt, gm = self.net, self.opt, self.gm

        def step(x):
            with gm:
                loss = (net(x) ** 2).mean()
                gm.backward(loss)
            opt.step()
            if clear:
                opt.clear_grad()
            return loss

        return step

    def run(self, f):
        self.calls += 1
        x = np.random.RandomState(self.calls).randn(4, 3).astype(np.float32)
        return f(mge.tensor(x)), *self.net.parameters(), *(p.grad for p in self.net.parameters())


def changed_training(change, make=None):
    def run(wrap):
        trainer = Trainer(make)
        f = wrap(trainer.body())
        for i in range(7):
            if i == 3:
                change(trainer)
            yield trainer.run(f)

    return run


def group_added(trainer):
    extra = mge.Parameter(np.ones(2, np.float32))
    extra.grad = t(1, 2)
    trainer.opt.add_param_group({"params": extra, "lr": 0.5})


def sets(**options):
    return lambda trainer: trainer.opt.param_groups[0].update(options)


def frozen_weight(trainer):
    trainer.gm = GradManager().attach([trainer.net.bias])


for name, change, make in [
    ("learning_rate_changed", sets(lr=0.01), None),
    ("learning_rate_zero", sets(lr=0.0), None),
    ("momentum_off", sets(momentum=0.0), None),
    ("momentum_on", sets(momentum=0.9), lambda ps: optim.SGD(ps, lr=0.1)),
    ("weight_decay_on", sets(weight_decay=0.1), None),
    ("nesterov_on", sets(nesterov=True), None),
    ("adam_betas_changed", sets(betas=(0.5, 0.6)), lambda ps: optim.Adam(ps, lr=0.1)),
    ("adam_eps_changed", sets(eps=0.5), lambda ps: optim.Adam(ps, lr=0.1)),
    ("adam_weight_decay_on", sets(weight_decay=0.1), lambda ps: optim.Adam(ps, lr=0.1)),
    ("parameter_group_added", group_added, None),
    ("optimizer_state_loaded", lambda tr: tr.opt.load_state_dict(Trainer().opt.state_dict()), None),
    ("gradient_callback_attached", lambda tr: tr.gm.attach(tr.net.parameters(), callbacks=lambda p, g: g * 0.5), None),
    ("weights_written", lambda tr: tr.net.weight.__setitem__(Ellipsis, ones(2, 3)), None),
    ("another_tensor_attached", lambda tr: tr.gm.attach([mge.Parameter(np.ones(2, np.float32))]), None),
]:
    PROGRAMS[f"training_{name}"] = changed_training(change, make)
    STATEFUL.add(f"training_{name}")


@stateful
def training_by_a_schedule(wrap):
    trainer = Trainer()
    scheduler = optim.MultiStepLR(trainer.opt, [2, 4])
    f = wrap(trainer.body())
    for _ in range(6):
        yield trainer.run(f)
        scheduler.step()


@stateful
def training_keeps_gradients(wrap):
    trainer = Trainer()
    f = wrap(trainer.body(clear=False))
    for _ in range(4):
        yield trainer.run(f)
    trainer.opt.clear_grad()
    for _ in range(3):
        yield trainer.run(f)


@stateful
def training_callback_reads_changed_state(wrap):
    trainer, factor = Trainer(), [1.0]
    trainer.gm.attach(trainer.net.parameters(), callbacks=lambda p, g: g * factor[0])
    f = wrap(trainer.body())
    for i in range(5):
        if i == 3:
            factor[0] = 0.0
        yield trainer.run(f)


@stateful
def training_clips_by_a_changed_norm(wrap):
    trainer, limit = Trainer(), [100.0]

    def body(x):
        with trainer.gm:
            loss = (trainer.net(x) ** 2).mean()
            trainer.gm.backward(loss)
        optim.clip_grad_norm(trainer.net.parameters(), limit[0])
        trainer.opt.step().clear_grad()
        return loss

    f = wrap(body)
    for i in range(5):
        if i == 3:
            limit[0] = 0.01
        yield trainer.run(f)


@stateful
def training_interleaved_with_eager_steps(wrap):
    trainer = Trainer()
    body = trainer.body()
    f = wrap(body)
    for i in range(6):
        yield trainer.run(body if i % 3 == 1 else f)


@stateful
def gradients_of_a_changed_parameter_list(wrap):
    x, y = mge.Parameter(t(1, 2)), mge.Parameter(t(3, 4))
    wanted = [x]

    @wrap
    def f(z):
        gm = GradManager().attach(wanted)
        with gm:
            gm.backward((x * y * z).sum())
        return [p.grad * 1 for p in wanted]

    for i in range(4):
        if i == 2:
            wanted[0] = y
        x.grad = y.grad = None
        yield f(t(i + 1, 2))


# ---- what is returned


@program
def one_result_twice(wrap):
    @wrap
    def f(x):
        y = x * 2
        return y, [y, {"y": y}], x

    for v in (1, 2, 3):
        x = t(v)
        y, (again, table), given = f(x)
        yield y, y is again is table["y"], given is x


@program
def one_list_twice(wrap):
    @wrap
    def f(x):
        rows = [x * 2]
        return rows, rows

    for v in (1, 2, 3):
        one, other = f(t(v))
        yield one, one is other


@stateful
def written_objects_returned(wrap):
    w = mge.Parameter(t(1, 2))

    @wrap
    def f(x):
        global_w = w
        global_w += x
        x += 1
        return global_w, x, w

    for v in (1, 2, 3):
        x = t(v, v)
        given, moved, again = f(x)
        yield given, moved, given is w is again, moved is x


@program
def object_made_and_written_in_the_body(wrap):
    @wrap
    def f(x):
        y = mge.tensor(np.zeros(2, np.float32))
        y += x
        return y

    results = [f(t(v, v)) for v in (1, 2, 3)]
    yield results
    yield len({id(y) for y in results})


@program
def sum_that_begins_with_an_array(wrap):
    @wrap
    def f(x):
        total = mge.tensor(np.zeros(2, np.float32))
        for factor in (1, 2):
            total += x * factor
        return total * 2, {"total": [total]}

    kept = [f(t(v, 1)) for v in (1, 2, 3)]
    yield [[a, table["total"][0]] for a, table in kept]


@program
def function_that_holds_the_argument(wrap):
    f = wrap(lambda x: lambda: x * 2)
    for v in (1, 2, 3):
        yield f(t(v))()


@program
def object_that_holds_the_argument(wrap):
    class Box:
        def __init__(self, x):
            self.x = x

    f = wrap(lambda x: (Box(x), x + 1))
    for v in (1, 2, 3):
        box, y = f(t(v))
        yield box.x * 1, y


def used_up(kind):
    def run(wrap):
        f = wrap(kind)
        for v in (1, 2, 3):
            values = f(t(v))
            yield values if isinstance(values, Failed) else list(values)

    return run


def generator_function(x):
    for i in range(3):
        yield x * i


PROGRAMS["generator_function"] = used_up(generator_function)
PROGRAMS["generator_expression"] = used_up(lambda x: (x * i for i in range(3)))
PROGRAMS["map_object"] = used_up(lambda x: map(lambda i: x * i, range(3)))
PROGRAMS["iterator_of_a_list"] = used_up(lambda x: iter([x * 2]))


@program
def coroutine_function(wrap):
    @wrap
    async def f(x):
        return x * 2

    for v in (1, 2, 3):
        waiting = f(t(v))
        yield waiting if isinstance(waiting, Failed) else asyncio.run(waiting)


# ---- indices of a scalar


def scalar_index(write):
    def run(wrap):
        @wrap
        def f(v):
            v = v * 1
            return write(v)

        for value in (2, 1, 0, 3, 3):
            yield f(mge.tensor(float(value)))

    return run


def masked(v):
    v[v > 1] = 0
    return v


def masked_by_a_tuple(v):
    v[v > 1, ...] = 7
    return v


def masked_by_a_tensor(v):
    v[v > 1] = v * 7
    return v


def rows_masked_by_a_scalar(v):
    rows = F.ones((2, 3))
    rows[v > 1] = F.arange(3) * v
    return rows


def whole(v):
    v[...] = v + 1
    v[()] = v * 2
    return v[None], v[...], v[()]


for write in (masked, masked_by_a_tuple, masked_by_a_tensor, rows_masked_by_a_scalar, whole):
    PROGRAMS[f"scalar_{write.__name__}"] = scalar_index(write)
PROGRAMS["scalar_selected"] = scalar_index(lambda v: v[v > 1] * 2)
PROGRAMS["rows_selected_by_a_scalar"] = scalar_index(lambda v: F.ones((2, 3))[v > 1] * v)


@program
def rows_selected_by_a_mask(wrap):
    f = wrap(lambda x, m: x[m > 1] * 2)
    for m in ([0, 2], [2, 2], [0, 0], [2, 0]):
        yield f(ones(2, 3), mge.tensor(m))


# ---- lengths


@program
def ctc_with_other_lengths(wrap):
    p = F.softmax(mge.tensor(np.random.default_rng(0).normal(size=(6, 2, 4)).astype("float32")), axis=2)
    f = wrap(lambda frames, labels, counts: F.loss.ctc_loss(p, frames, labels, counts, reduction="none"))
    for frames, labels, counts in (((6, 6), (1, 2, 3, 1), (2, 2)), ((6, 4), (1, 2, 3, 1), (3, 1)), ((2, 6), (3, 3, 3, 1), (0, 4))):
        yield f(mge.tensor(frames), mge.tensor(labels), mge.tensor(counts))
        yield f(mge.tensor(frames), mge.tensor(np.reshape(labels * 2, (2, 4))), mge.tensor(counts))


# ---- random numbers


@stateful
def seed_in_the_body(wrap):
    @wrap
    def f(x):
        mge.random.seed(7)
        return x + mge.random.uniform(0, 1, (4,))

    for _ in range(3):
        yield f(ones(4))


@stateful
def seed_from_outside(wrap):
    f = wrap(lambda x: x + mge.random.normal(0, 1, (4,)))
    for seed in (1, 1, 2, None, 1):
        if seed:
            mge.random.seed(seed)
        yield f(ones(4))


@stateful
def generator_of_ones_own(wrap):
    rng = [mge.random.RNG(seed=3)]
    f = wrap(lambda x: x + rng[0].uniform(0, 1, (4,)))
    yield f(ones(4))
    yield f(ones(4))
    rng[0] = mge.random.RNG(seed=9)
    yield f(ones(4))


@stateful
def generator_made_in_the_body(wrap):
    f = wrap(lambda x: x + mge.random.RNG(seed=3).uniform(0, 1, (4,)))
    for _ in range(3):
        yield f(ones(4))


@stateful
def random_count_by_shape(wrap):
    f = wrap(lambda x: F.dropout(x, 0.5))
    for n in (8, 8, 16, 8):
        yield f(ones(n))


@stateful
def distribution_parameters_changed(wrap):
    state = {"low": 0.0}
    f = wrap(lambda x: x * mge.random.uniform(state["low"], 1, (4,)))
    yield f(ones(4))
    yield f(ones(4))
    state["low"] = -5.0
    yield f(ones(4))


# ---- the judge


class Failed:
    """An exception that a call raised."""

    def __init__(self, error):
        self.error = error

    def __repr__(self):
        return f"{type(self.error).__name__}: {self.error}"


class Call:
    """Catches what a call raises, so that the program goes on."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *args, **kwargs):
        try:
            return self.function(*args, **kwargs)
        except Exception as error:
            return Failed(error)


def frozen(value):
    """What a call gave, as host values that do not change any more."""
    if isinstance(value, Failed) or value is None:
        return value
    if isinstance(value, mge.Tensor):
        try:
            return value.numpy().copy()
        except Exception as error:
            return Failed(error)
    if isinstance(value, (list, tuple)):
        return [frozen(item) for item in value]
    return value


def run(name, wrap):
    mge.random.seed(11)
    return [frozen(value) for value in PROGRAMS[name](lambda f: Call(wrap(f)))]


def same(a, b):
    if isinstance(a, list) or isinstance(b, list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Failed) or isinstance(b, Failed):
        return isinstance(a, Failed) and isinstance(b, Failed) and type(a.error) is type(b.error)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    return type(a) is type(b) and a == b


def failure(value):
    """The first refusal in what one call gave."""
    if isinstance(value, list):
        return next((f for f in map(failure, value) if f), None)
    return value if isinstance(value, Failed) else None


def is_clear(failed):
    """A trace's own refusal: a documented class, a few lines, and the user's line."""
    text = str(failed.error)
    return (
        isinstance(failed.error, (TraceError, RuntimeError, ValueError, AssertionError))
        and "trace" in text
        and "test_capture_battery.py:" in text
        and len(text.splitlines()) <= 6
    )


def judge(name, mode):
    """'right', 'refused', or a description of what is wrong."""
    expected, got = run(name, lambda f: f), run(name, lambda f: trace(f, **MODES[mode]))
    verdict = "right"
    for call, (want, have) in enumerate(zip(expected, got, strict=True), 1):
        if same(have, want):
            continue
        failed = failure(have)
        if failed is None:
            return f"call {call} is silently wrong: {have!r}, eager gives {want!r}"
        if not is_clear(failed):
            return f"call {call} fails without a clear error: {failed!r}"
        verdict = "refused"
        if name in STATEFUL:
            break
    return verdict


# What is refused where: values on the host in both modes that skip the body, and any change of the program where the body is compared with
# the record. The rest is right, and not because it runs without a record.
ON_VALUES = set("""
    branch_on_item branch_on_truth_of_a_tensor branch_of_equal_ops_on_data loop_counted_by_a_tensor while_on_data try_on_data
    assert_on_data early_return_on_any filter_rows_by_value sort_by_value table_looked_up_by_value index_by_value slice_by_value
    slice_by_tensor float_of_a_tensor_as_factor host_round_trip host_round_trip_of_an_intermediate host_number_of_an_intermediate
    text_of_a_value value_returned_as_a_number mask_of_another_count excluded_branch read_that_the_body_catches
    value_of_an_input_in_an_operation generator_function generator_expression map_object iterator_of_a_list coroutine_function
    scalar_selected rows_selected_by_a_scalar rows_selected_by_a_mask
""".split())
# Refused by any recording: what the body of a branch does is recorded before there are values, whoever catches the error.
IN_A_BRANCH = {"read_in_a_branch_that_the_body_catches", "branch_that_reads_and_is_caught"}
AGAINST_THE_RECORD = set("""
    branch_on_item branch_on_truth_of_a_tensor branch_of_equal_ops_on_data loop_counted_by_a_tensor while_on_data try_on_data
    early_return_on_any filter_rows_by_value table_looked_up_by_value index_by_value slice_by_value slice_by_tensor
    float_of_a_tensor_as_factor host_number_of_an_intermediate text_of_a_value number_argument keyword_flag aliased_argument_and_global
    default_argument_replaced keyword_default_replaced number_array_argument_by_keyword global_number_changed
    global_read_in_a_comprehension global_read_in_an_inner_function global_read_by_a_helper global_key_added global_appears
    list_of_the_closure_changed list_of_the_closure_grows deeply_nested_number_changed set_of_the_closure_changed class_flag_changed
    attribute_of_an_object_changed attribute_read_in_a_method attribute_of_a_part_changed attribute_behind_a_property
    callable_object_changed callable_object_is_traced attribute_of_an_argument_changed attribute_by_getattr global_function_replaced
    second_function_of_one_factory functions_in_a_list_replaced numpy_global_written counter_advanced_by_the_body
    nonlocal_advanced_by_the_body iterator_advanced_by_the_body host_random_number random_of_the_standard_library module_number_changed
    module_table_changed module_list_changed module_object_changed module_child_replaced_changed module_forward_replaced_changed
    module_global_of_forward_changed module_pre_hook_changed module_hook_changed module_class_forward_changed hook_removed
    hook_reads_changed_state training_flag_of_dropout training_flag_of_batch_norm dropout_rate_changed calls_counted_by_a_module
    another_module_is_passed training_momentum_off training_momentum_on training_parameter_group_added
    training_gradient_callback_attached training_keeps_gradients training_callback_reads_changed_state
    gradients_of_a_changed_parameter_list distribution_parameters_changed read_that_the_body_catches value_of_an_input_in_an_operation
""".split())
REFUSED = {
    "value": AGAINST_THE_RECORD | IN_A_BRANCH,
    "symbolic": AGAINST_THE_RECORD | IN_A_BRANCH | {"host_round_trip_of_an_intermediate", "value_returned_as_a_number"},
    "without_host": ON_VALUES | IN_A_BRANCH | {"placeholder_that_is_printed"},  # of a value it prints the value
    "without_host_symbolic": ON_VALUES | IN_A_BRANCH,
}
# Programs with a call like an earlier one, to which nothing has changed since: it runs without its body. In the others each call differs.
SKIPPED = set("""
    scalar_then_vector broadcast_changes branch_on_dtype dtype_of_an_input shape_read_on_the_host branch_on_extent loop_over_length
    list_argument_grows rows_of_a_tensor one_tensor_twice_then_two argument_changed_in_place extent_as_divisor list_sized_by_shape branch_on_rank
    element_count_as_factor reshape_by_extent fill_of_a_shape arange_of_an_extent shapes_compared empty_batch random_count_by_shape
    index_by_tensor device_of_an_input global_tensor_written tensor_in_an_object_replaced module_number_changed module_table_changed
    module_list_changed module_object_changed module_parameter_written_changed module_parameter_replaced_changed
    module_parameter_reset_changed module_state_loaded_changed module_child_replaced_changed module_forward_replaced_changed
    module_global_of_forward_changed module_pre_hook_changed module_hook_changed module_class_forward_changed
    training_keeps_gradients gradients_of_a_changed_parameter_list
    two_parameters_with_one_value training_learning_rate_changed training_learning_rate_zero training_momentum_off training_momentum_on
    training_weight_decay_on training_nesterov_on training_adam_betas_changed training_adam_eps_changed training_adam_weight_decay_on
    training_parameter_group_added training_optimizer_state_loaded training_gradient_callback_attached training_weights_written
    training_another_tensor_attached training_by_a_schedule training_callback_reads_changed_state training_interleaved_with_eager_steps
    seed_from_outside placeholder_that_is_printed one_result_twice one_list_twice written_objects_returned
    object_made_and_written_in_the_body sum_that_begins_with_an_array scalar_masked scalar_masked_by_a_tuple scalar_masked_by_a_tensor
    scalar_rows_masked_by_a_scalar scalar_whole ctc_with_other_lengths
""".split())


def replays(name, mode):
    """How many calls ran the record."""
    traced = []

    def wrap(function):
        traced.append(trace(function, **MODES[mode]))
        return traced[-1]

    run(name, wrap)
    return sum(int(count) for each in traced for count in re.findall(r"(\d+) replay", each.explain()))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_call_is_right_or_refused(name, mode):
    assert judge(name, mode) == ("refused" if name in REFUSED[mode] else "right")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_right_is_captured(name, mode):
    if name not in REFUSED[mode] and name != "device_of_an_input":  # it moves to another device of this machine
        assert bool(replays(name, mode)) == ("without_host" not in mode or name in SKIPPED)


def test_the_tables_name_programs():
    assert ON_VALUES | AGAINST_THE_RECORD | SKIPPED <= set(PROGRAMS) and not ON_VALUES & SKIPPED


def test_the_battery_is_large():
    assert len(PROGRAMS) >= 100
