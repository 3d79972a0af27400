"""What a dumped model could not do in each run is refused by dump, with the line, instead of standing still."""

import io

import numpy as np
import pytest

import megengine.functional as F
import megengine.module as M
from megengine import Tensor
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


def test_a_selection_that_no_result_reads_is_no_matter():
    def fn(a):
        a[a > 1]
        return a * 2

    model = dumped(fn, Tensor([1.0, 2.0]))
    np.testing.assert_array_equal(next(iter(model.run(Tensor([5.0, 6.0])).values())), [10, 12])


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
def test_a_constant_that_the_host_reads_is_no_matter(symbolic):
    scale = Tensor([2.0, 3.0])
    model = dumped(
        lambda a: a * scale.numpy()[1] + (scale * 2).sum().item() * a.shape[0], Tensor([1.0, 2.0]), symbolic=symbolic
    )
    np.testing.assert_array_equal(next(iter(model.run(np.float32([5, 6])).values())), [35, 38])
