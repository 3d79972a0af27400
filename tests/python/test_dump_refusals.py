"""What a dumped model could not do in each run is refused by dump, with the line, instead of standing still."""

import io

import numpy as np
import pytest

import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.jit import trace
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
