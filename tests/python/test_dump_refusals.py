"""What a dumped model could not do in each run is refused by dump, with the line, instead of standing still."""

import collections
import io
import itertools
import queue

import numpy as np
import pytest

import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager
from megengine.jit import dump_functions, exclude_from_trace, trace
from megengine.utils.comp_graph_tools import GraphInference

BOXES = Tensor(np.array([[0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]], np.float32))


def dumped(fn, *args, symbolic=False, **options):
    traced = trace(fn, symbolic=symbolic, capture_as_const=True)
    traced(*args)
    file = io.BytesIO()
    traced.dump(file, **options)
    return GraphInference(io.BytesIO(file.getvalue()))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    "select",
    [
        lambda a: a[a > 1],
        lambda a: F.cond_take(a > 1, a)[0] * 2,
        lambda a: F.cond_take(a > 1, a)[1],
        lambda a: F.non_zero(a > 1),
        lambda a: F.vision.nms(BOXES, a, iou_thresh=0.5),
        lambda a: BOXES[F.vision.nms(BOXES, a, iou_thresh=0.5)],
    ],
)
def test_shapes_that_follow_from_the_data(select, symbolic):
    model = dumped(select, Tensor([1.0, 2.0, 3.0]), symbolic=symbolic)
    for x in ([3.0, 0.5, 2.0], [0.0, 0.0, 0.0]):
        np.testing.assert_array_equal(next(iter(model.run(np.float32(x)).values())), select(Tensor(x)).numpy())


def test_what_is_computed_of_a_selection_as_a_whole():
    with pytest.raises(RuntimeError, match=r"dump: the function computes reduce_sum at .*test_dump_refusals.py:\d+"):
        dumped(lambda a: a[a > 1].sum(), Tensor([1.0, 2.0, 3.0]))


def test_a_selection_by_what_is_always_the_same_is_dumped():
    mask = Tensor(np.array([True, False, True]))
    model = dumped(lambda a: a * F.cond_take(mask, Tensor([1.0, 2.0, 3.0]))[0].sum(), Tensor([1.0, 2.0]))
    np.testing.assert_array_equal(next(iter(model.run(Tensor([5.0, 6.0])).values())), [20, 24])


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    "call",
    [
        lambda a: F.matmul(F.cond_take(a > 1, a)[0], Tensor(np.ones((3, 2), np.float32))),
        lambda a: a[a > 1].reshape(3, 1),
        lambda a: Tensor([1.0, 2.0, 3.0]) + a[a > 1],
    ],
)
def test_an_error_that_is_caught_follows_from_what_is_selected(call, symbolic):
    def fn(a):
        try:
            return call(a)
        except ValueError:
            return a * 2

    with pytest.raises(RuntimeError, match=r"takes, at .*test_dump_refusals.py:\d+, how much it has selected for a number"):
        dumped(fn, Tensor([1.0, 2.0, 3.0]), symbolic=symbolic)


def test_an_error_that_is_caught_follows_from_places():
    rows = Tensor([1.0, 2.0, 3.0])

    def fn(places):
        try:
            return rows[places] * 1
        except IndexError:
            return rows * 2

    with pytest.raises(RuntimeError, match="dump: "):
        dumped(fn, Tensor(np.int32([1, 7])))


def test_a_selection_that_no_result_reads_is_no_matter():
    def fn(a):
        a[a > 1]
        return a * 2

    model = dumped(fn, Tensor([1.0, 2.0]))
    np.testing.assert_array_equal(next(iter(model.run(Tensor([5.0, 6.0])).values())), [10, 12])


# How many elements a function has selected, as a number.
COUNTS = {
    "shape[0]": lambda v: v.shape[0],
    "int": lambda v: int(v.shape[0]),
    "float": lambda v: float(v.shape[0]),
    "len": len,
    "size": lambda v: v.size,
    "a tuple": lambda v: tuple(v.shape)[0],
    "a range": lambda v: len(range(v.shape[0])),
    "an array": lambda v: float(np.asarray(v.shape).sum()),
    "its array's": lambda v: v.numpy().shape[0],
    "a list": lambda v: len(v.tolist()),
    "its rows": lambda v: sum(1 for _ in v),
    "a tensor": lambda v: Tensor(v.shape[0]),
    "ones": lambda v: F.ones(v.shape[0]).sum(),
    "ones by an int": lambda v: F.ones(int(v.shape[0])).sum(),
    "arange": lambda v: F.arange(v.shape[0]).sum(),
    "of another shape": lambda v: v.reshape(-1, 1).shape[0],
    "of what follows": lambda v: int((v + 1).shape[0]),
}
SELECTIONS = {"cond_take": lambda a: F.cond_take(a > 0, a)[0], "a mask": lambda a: a[a > 0], "non_zero": lambda a: F.non_zero(a > 0)[:, 0], "unique": F.unique}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("select", SELECTIONS)
@pytest.mark.parametrize("count", COUNTS)
def test_how_many_are_selected_is_never_what_it_was_in_the_recording(count, select, symbolic):
    def fn(a):
        return a * COUNTS[count](SELECTIONS[select](a))

    other = np.float32([-1, -1, 2, -1])
    try:
        model = dumped(fn, Tensor([1.0, -1.0, 2.0, 3.0]), symbolic=symbolic)
    except RuntimeError as error:
        assert str(error).startswith("dump: the function ") and "test_dump_refusals.py:" in str(error)
        return
    np.testing.assert_array_equal(next(iter(model.run(other).values())), fn(Tensor(other)).numpy())


def test_one_tensor_as_two_arguments():
    x = Tensor([1.0])
    with pytest.raises(RuntimeError, match="recorded with one tensor as arg_0 and arg_1"):
        dumped(lambda a, b: a - b, x, x)


def test_dropout_in_eval_mode_is_dumped():
    layer = M.Dropout(0.5).eval()
    model = dumped(lambda a: layer(a) + 1, Tensor([1.0]))
    np.testing.assert_array_equal(next(iter(model.run(Tensor([5.0])).values())), [6])


def test_tensors_of_the_body_may_be_written():
    def fn(a):
        made = F.zeros(3)
        made[1:] = a
        made += 1
        return made

    model = dumped(fn, Tensor([1.0, 2.0]))
    np.testing.assert_array_equal(next(iter(model.run(Tensor([5.0, 6.0])).values())), [1, 6, 7])


# ---- states that a file cannot keep


class Holder:
    def __init__(self):
        self.h = Tensor([1.0, 2.0])
        self.parts = {"h": Tensor([1.0, 2.0])}


low, bound, held = Tensor([1.0, 2.0], dtype="float16"), Tensor([1.0, 2.0]), Holder()
weight = Parameter(np.float32([[0.5, 1.5], [2.5, -1]]))
gm, opt = GradManager().attach([weight]), optim.SGD([weight], lr=0.5)


def write_wider(a):
    low[...] = low * 0.5 + a
    return a * 1


def bind_a_name(a):
    global bound
    bound = bound * 0.5 + a
    return bound * 2


def bind_an_attribute(a):
    held.h = held.h * 0.5 + a
    return held.h * 2


def bind_an_entry(a):
    held.parts["h"] = held.parts["h"] * 0.5 + a
    return a * 1


def return_an_attribute(a):
    held.h = held.h * 0.5 + a
    return held.h


def return_an_entry(a):
    held.parts["h"] = held.parts["h"] * 0.5 + a
    return {"h": held.parts["h"]}


def write_whole_and_bind_a_name(a):
    global bound
    bound[...] = a
    bound = a * 2
    return a * 1


def write_whole_and_bind_an_attribute(a):
    held.h[...] = a
    held.h = held.h * 0.5
    return a * 1


def write_whole_and_bind_an_entry(a):
    held.parts["h"][...] = a
    held.parts["h"] = held.parts["h"] * 0.5
    return a * 1


def learn_of_a_mean(a):
    with gm:
        gm.backward(F.mean(weight[a > 1] * 2))
    opt.step().clear_grad()
    return a * 1


def learn_of_its_own_selection(a):
    with gm:
        gm.backward(F.sum(weight[weight > 1] * 2))
    opt.step().clear_grad()
    return a * 1


STATES = {
    write_wider: "makes a f32\\[2\\] tensor of its state, a f16\\[2\\], at .*:LINE",
    bind_a_name: "reads and binds anew bound, at .*:LINE",
    bind_an_attribute: "reads and binds anew held.h, at .*:LINE",
    bind_an_entry: "reads and binds anew held.parts\\['h'\\], at .*:LINE",
    return_an_attribute: "reads and binds anew held.h, at .*:LINE",
    return_an_entry: "reads and binds anew held.parts\\['h'\\], at .*:LINE",
    write_whole_and_bind_a_name: "reads and binds anew bound, at .*:LINE",
    write_whole_and_bind_an_attribute: "reads and binds anew held.h, at .*:LINE",
    write_whole_and_bind_an_entry: "reads and binds anew held.parts\\['h'\\], at .*:LINE",
    learn_of_a_mean: "takes, at .*:LINE in learn_of_a_mean, how much it has selected for a number",
    learn_of_its_own_selection: "computes mask_select at .*:LINE",
}


@pytest.mark.parametrize("function", STATES, ids=lambda function: function.__name__)
def test_a_state_that_a_file_cannot_keep(function, monkeypatch):
    monkeypatch.setattr(held, "h", Tensor([1.0, 2.0]))  # what one body binds is of its recording
    monkeypatch.setitem(held.parts, "h", Tensor([1.0, 2.0]))
    monkeypatch.setitem(globals(), "bound", Tensor([1.0, 2.0]))
    traced = trace(function, record_only=True)
    traced(Tensor([[1.0, 2.0], [3.0, 0.0]]) if function is learn_of_a_mean else Tensor([1.0, 2.0]))
    line = function.__code__.co_firstlineno
    words = STATES[function].replace("LINE", f"({'|'.join(str(line + i) for i in range(4))})\\b")
    with pytest.raises(RuntimeError, match=f"dump: the function {words}"):
        dump_functions(io.BytesIO(), {"f": traced})


class Places:
    """Where a program may keep tensors."""

    def __init__(self):
        self.h, self.fixed = Tensor([1.0, 2.0]), Tensor([7.0, 8.0])
        self.entries = {"a": Tensor([1.0, 2.0]), "b": Tensor([3.0, 4.0])}
        self.items = [Tensor([1.0, 2.0]), Tensor([3.0, 4.0])]
        self.line = collections.deque(self.items)
        self.queue = queue.SimpleQueue()
        self.queue.put(Tensor([1.0, 2.0]))
        self.features = []

    def take(self):
        return self.items.pop(0)


def bound_attribute(p, new):
    old, p.h = p.h, new
    return old


def bound_entry(p, new):
    old = p.entries.pop("a")
    p.entries["a"] = new
    return old


def rotated(p, new):
    p.line.rotate()
    return p.line[0]


def swapped(p, new):
    p.entries["a"], p.entries["b"] = p.entries["b"], p.entries["a"]
    return p.entries["a"]


# What a body finds is another tensor in the next call; the place is named where a walk from the function comes by it.
FOUND_ANEW = {
    "an attribute": (bound_attribute, r"places\.h"),
    "an entry": (bound_entry, r"places\.entries\['a'\]"),
    "a popped item": (lambda p, new: (p.items.append(new), p.items.pop(0))[1], r"places\.items\[0\]"),
    "a popped item, and no other": (lambda p, new: p.items.pop(0), r"places\.items\[0\]"),
    "by a method": (lambda p, new: (p.items.append(new), p.take())[1], r"places\.items\[0\]"),
    "an item of a slice": (lambda p, new: (p.items.__setitem__(slice(None), [new, p.items[0]]), p.items[1])[1], r"places\.items\[0\]"),
    "a rotated container": (rotated, r"places\.line\[1\]"),
    "two that swap": (swapped, r"places\.entries\['b'\]"),
    "a queue, which cannot be looked into": (lambda p, new: (p.queue.put(new), p.queue.get())[1], "a tensor from outside"),
}
NEW = {"what it computes": lambda a: a * 2, "an argument": lambda a: a, "host data": lambda a: Tensor([9.0, 9.0])}
GIVEN = {
    "as it is": lambda old, a: old,
    "twice": lambda old, a: (old, old),
    "in a dict": lambda old, a: {"old": old},
    "beside another": lambda old, a: (a * 3, old),
    "computed with": lambda old, a: old * a,
    "written into a state": lambda old, a: total.__setitem__(..., old * a),
}
total = Tensor([0.0, 0.0])


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("new", NEW)
@pytest.mark.parametrize("found", FOUND_ANEW)
@pytest.mark.parametrize("symbolic", [False, True])
def test_what_a_body_finds_and_the_next_call_does_not(symbolic, found, new, given):
    take, name = FOUND_ANEW[found]
    places = Places()

    def fn(a):
        return GIVEN[given](take(places, NEW[new](a)), a)

    traced = trace(fn, symbolic=symbolic, capture_as_const=True)
    traced(Tensor([1.0, 2.0]))
    with pytest.raises(RuntimeError, match=f"dump: the function reads and binds anew {name}, (at|in) .*test_dump_refusals.py:[0-9]+"):
        dump_functions(io.BytesIO(), {"f": traced})


FOUND_AGAIN = {
    "a constant": lambda p, a: p.fixed,
    "a constant, and a new attribute": lambda p, a: (setattr(p, "last", a * 2), p.fixed)[1],
    "an argument": lambda p, a: (setattr(p, "last", a * 2), a)[1],
    "a container": lambda p, a: (setattr(p, "last", a * 2), p.entries)[1],
    "an attribute that nothing reads": lambda p, a: (setattr(p, "h", a * 2), a * p.fixed)[1],
    "a list that is filled anew": lambda p, a: (p.features.clear(), p.features.append(a * p.fixed), p.features[0] + 1)[2],
    "what is written into": lambda p, a: (p.h.__setitem__(..., a * 2), p.h)[1],
}


@pytest.mark.parametrize("found", FOUND_AGAIN)
def test_what_the_next_call_finds_too(found):
    places, wanted = Places(), Places()
    traced = trace(lambda a: FOUND_AGAIN[found](places, a), capture_as_const=True)
    file, x, y = io.BytesIO(), Tensor([1.0, 2.0]), Tensor([5.0, 6.0])
    traced(x)
    FOUND_AGAIN[found](wanted, x)
    dump_functions(file, {"f": traced})
    results = GraphInference(io.BytesIO(file.getvalue())).run(y.numpy())
    again = FOUND_AGAIN[found](wanted, y)
    for ours, theirs in zip(results.values(), again.values() if isinstance(again, dict) else [again], strict=True):
        np.testing.assert_array_equal(ours, theirs.numpy())


def test_steps_that_another_function_counts_apart():
    """Once each has run, recordings count as the optimizer does now."""
    p, q = Parameter(np.float32([0.5])), Parameter(np.float32([1.5]))
    learn, adam = GradManager().attach([p, q]), optim.Adam([p, q], lr=0.1)

    def step(loss):
        def body(x):
            with learn:
                learn.backward(loss(x))
            adam.step().clear_grad()
            return x * 1

        return body

    bodies = {"both": step(lambda x: F.sum(p * q * x)), "one": step(lambda x: F.sum(F.tanh(p) * x)), "read": lambda: (p * 1, q * 1)}
    traced = {name: trace(body, record_only=True) for name, body in bodies.items()}
    for name, function in traced.items():
        function(*[Tensor([2.0])] * (name != "read"))
    with pytest.raises(RuntimeError, match="counts the steps of parameters together"):
        dump_functions(io.BytesIO(), traced)
    for name in ("both", "one"):
        bodies[name](Tensor([2.0]))
    for name, function in traced.items():
        function(*[Tensor([2.0])] * (name != "read"))
    file = io.BytesIO()
    dump_functions(file, traced)
    model = GraphInference(io.BytesIO(file.getvalue()), function="both")
    for name in ("both", "one", "both", "one", "both"):
        model.function(name).run(np.float32([2.0]))
        bodies[name](Tensor([2.0]))
    for found, wanted in zip(model.function("read").run().values(), (p, q), strict=True):
        np.testing.assert_array_equal(found, wanted.numpy())


# ---- numbers that the host reads

K = Tensor(1.0)
counted = Tensor(0.0)


def count(a, k):
    counted.__iadd__(1)
    return a * counted.item()


READS = {
    "item": lambda a, k: a * k.item(),
    "numpy": lambda a, k: a * k.numpy(),
    "int": lambda a, k: a * int(k),
    "float": lambda a, k: a + float(k),
    "if": lambda a, k: a * 2 if k > 1.5 else a * 3,
    "while": lambda a, k: a if k <= 0 else a + 1,
    "tolist": lambda a, k: a + k.tolist(),
    "array": lambda a, k: a * np.asarray(k),
    "NumPy function": lambda a, k: a * np.exp(k.numpy()),
    "derived": lambda a, k: a * (k + 1).item(),
    "of a result": lambda a, k: a / a.sum().item(),
    "index": lambda a, k: a[: int(k)] * 2,
    "place": lambda a, k: a[int(k)],
    "range": lambda a, k: sum([a] * int(k), a),
    "format": lambda a, k: a * float(f"{k.item():.3f}"),
    "shape": lambda a, k: F.ones((int(k), 2)) + a,
    "reshape": lambda a, k: a.reshape(int(k), -1),
    "repeat": lambda a, k: F.repeat(a, int(k)),
    "made anew": lambda a, k: a * Tensor(k.numpy() * 2),
    "bool": lambda a, k: a * bool(k),
    "in": lambda a, k: a * 2 if 1.0 in a else a,
    "all": lambda a, k: a * 2 if (a > 0).all() else a,
    "dlpack": lambda a, k: a * Tensor(np.from_dlpack(k.reshape(1)).copy()),
    "no use of it": lambda a, k: (print(k, end=""), a * k)[1],
    "keyword": None,
    "excluded": None,
    "excluded tensor": None,
    "state": count,
}


def excluded(a, k):
    with exclude_from_trace():
        number = (k + 1).item()
    return a * number


def excluded_tensor(a, k):
    with exclude_from_trace():
        doubled = Tensor(k.numpy() * 2)
    return a * doubled


READS |= {"excluded": excluded, "excluded tensor": excluded_tensor, "keyword": lambda a, *, k: a * k.item()}


@pytest.mark.parametrize("symbolic", [True, False])
@pytest.mark.parametrize("name", READS)
def test_a_value_that_the_host_reads(name, symbolic):
    function = READS[name]
    traced = trace(function, symbolic=symbolic, capture_as_const=True)
    try:
        traced(Tensor([1.0, 2.0]), **({"k": K} if name == "keyword" else {}), **{}) if name == "keyword" else traced(
            Tensor([1.0, 2.0]), Tensor(1.0)
        )
    except ValueError as error:
        assert symbolic and "is read inside a function traced with symbolic=True" in str(error)
        return
    line = function.__code__.co_firstlineno
    for write in (traced.dump, lambda file: dump_functions(file, {"f": traced})):
        file = io.BytesIO()
        with pytest.raises(
            RuntimeError, match=rf"dump: the function (reads|takes), at .*test_dump_refusals.py:({'|'.join(str(line + i) for i in range(4))})\b"
        ):
            write(file)
        assert not file.getvalue()


@pytest.mark.parametrize("symbolic", [True, False])
@pytest.mark.parametrize("name", sorted(READS.keys() - {"keyword", "of a result", "in", "all", "state"}))
def test_a_state_of_another_function_that_the_host_reads(name, symbolic):
    k = Tensor(1.0)

    def updates(a):
        k[...] = k + 1
        return a

    traced = {"updates": updates, "reads": lambda a: READS[name](a, k)}
    traced = {each: trace(function, symbolic=symbolic, record_only=True) for each, function in traced.items()}
    for function in traced.values():
        function(Tensor([1.0, 2.0]))
    file = io.BytesIO()
    with pytest.raises(RuntimeError, match=r"dump: the function (reads|takes), at .*test_dump_refusals.py:\d+"):
        dump_functions(file, traced)
    assert not file.getvalue()


@pytest.mark.parametrize("symbolic", [True, False])
def test_a_constant_that_the_host_reads_is_no_matter(symbolic):
    scale = Tensor([2.0, 3.0])
    model = dumped(
        lambda a: a * scale.numpy()[1] + (scale * 2).sum().item() * a.shape[0], Tensor([1.0, 2.0]), symbolic=symbolic
    )
    np.testing.assert_array_equal(next(iter(model.run(np.float32([5, 6])).values())), [35, 38])


def _of_a_cycle(a, b):
    tensors = itertools.cycle([a, b])
    return lambda x: next(tensors)


def _of_a_count(a, b):
    calls = itertools.count()
    return lambda x: (x * 2, (a, b)[next(calls) % 2])


def _of_intermediate_values(a, b):
    calls = itertools.count()
    return lambda x: (x * 2, x + 1)[:: (1, -1)[next(calls) % 2]]


def _of_other_length(a, b):
    calls = itertools.count()
    return lambda x: (x * 2, x + 1)[next(calls) % 2 :]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("body", [_of_a_cycle, _of_a_count, _of_intermediate_values, _of_other_length])
def test_other_results_in_later_calls_are_refused(body, symbolic):
    traced = trace(body(Tensor([1.0]), Tensor([2.0])), symbolic=symbolic, capture_as_const=True)
    x = Tensor([3.0])
    traced(x)
    traced.dump(io.BytesIO())
    traced(x)
    with pytest.raises(RuntimeError, match="returned another value as result [01] than when it was recorded"):
        traced.dump(io.BytesIO())


@pytest.mark.parametrize("symbolic", [False, True])
def test_results_that_stay_are_dumped(symbolic):
    weight, count = Parameter([1.0]), itertools.count()
    traced = trace(lambda x: (weight, x, x * (next(count) * 0 + 1)), symbolic=symbolic, capture_as_const=True)
    for number in range(3):
        traced(Tensor([float(number)]))
    traced.dump(io.BytesIO())
