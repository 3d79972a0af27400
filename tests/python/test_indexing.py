"""x[...] and x[...] = v follow NumPy, for every form of index."""

import numpy as np
import pytest

from megengine import Tensor, autodiff

A = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
MASK = A % 3 == 0
I = np.array([1, 0, 1])
J = np.array([[2, 0, 1]])

INDICES = {
    "int": 1,
    "negative int": -1,
    "slice": np.s_[1:],
    "two axes": np.s_[0, 1:3],
    "step": np.s_[:, ::2],
    "negative step": np.s_[:, ::-1, -1:0:-2],
    "empty slice": np.s_[:, 2:1],
    "ellipsis": np.s_[..., 1],
    "ellipsis in the middle": np.s_[0, ..., 1:],
    "new axis": np.s_[:, None, 1],
    "new axes": np.s_[None, ..., None],
    "scalar": np.s_[1, 2, 3],
    "list": [1, 0, 1],
    "array": I,
    "empty list": np.zeros(0, np.int64),
    "2-d array": np.s_[:, J],
    "array on the last axis": np.s_[..., I],
    "two arrays together": np.s_[I, [0, 2, 1]],
    "two arrays apart": np.s_[I, :, [0, 2, 3]],
    "arrays that broadcast": np.s_[:, J.T, [0, 3]],
    "array and int": np.s_[0, I],
    "int, slice, array": np.s_[0, :, I],
    "array and slice": np.s_[1:, I, ::2],
    "array and new axis": np.s_[I, None, 1:],
    "arrays around a new axis": np.s_[I, None, [0, 2, 1]],
    "arrays around an empty ellipsis": np.s_[:, J, ..., [0, 3, 1]],
    "array, empty ellipsis, int": np.s_[:, [1, 0], ..., 2],
    "negative entries": np.s_[:, [-1, -3]],
    "mask": MASK,
    "mask of one axis": np.array([True, False]),
    "mask of two axes": MASK[..., 0],
    "mask and slice": np.s_[:, MASK[0, :, 0], 1:],
    "mask and int": np.s_[1, MASK[0, :, 0]],
    "mask and array": np.s_[:, np.array([True, False, True]), [0, 1]],
    "True": True,
    "False": False,
    "True and slice": np.s_[True, 1:],
    "none selected": np.zeros(A.shape, bool),
}
every_index = pytest.mark.parametrize("index", INDICES.values(), ids=INDICES.keys())


def as_tensors(index):
    """The same index with arrays as Tensors."""
    if isinstance(index, tuple):
        return tuple(as_tensors(i) for i in index)
    return Tensor(index) if isinstance(index, np.ndarray) else index


@every_index
def test_reading_selects_what_numpy_selects(index):
    np.testing.assert_array_equal(Tensor(A)[index].numpy(), A[index])


@every_index
def test_indices_may_be_tensors(index):
    np.testing.assert_array_equal(Tensor(A)[as_tensors(index)].numpy(), A[index])


@every_index
def test_writing_a_number_changes_what_numpy_changes(index):
    x, want = Tensor(A), A.copy()
    x[index] = -1
    want[index] = -1
    np.testing.assert_array_equal(x.numpy(), want)


@every_index
def test_writing_values_puts_them_where_numpy_does(index):
    x, want = Tensor(A), A.copy()
    value = 100 + np.arange(want[index].size, dtype=np.float32).reshape(want[index].shape)
    x[as_tensors(index)] = Tensor(value)
    want[index] = value
    np.testing.assert_array_equal(x.numpy(), want)


@every_index
def test_a_write_of_a_row_broadcasts(index):
    x, want = Tensor(A), A.copy()
    value = np.arange(want[index].shape[-1] if want[index].ndim else 1, dtype=np.float32)
    value = value if want[index].ndim else value[0]
    x[index] = value
    want[index] = value
    np.testing.assert_array_equal(x.numpy(), want)


def test_a_write_leaves_other_handles_alone():
    x = Tensor(A)
    whole, part = Tensor(x), x[0]
    x[0] = 7
    np.testing.assert_array_equal(whole.numpy(), A)
    np.testing.assert_array_equal(part.numpy(), A[0])


@pytest.mark.parametrize("value", [2.0, Tensor(2.0), [2.0, 3.0, 4.0], np.float32([[1], [2]])])
def test_an_ellipsis_broadcasts_what_fits(value):
    # A number used to make the tensor 0-d.
    x, want = Tensor(np.zeros((2, 3), np.float32)), np.zeros((2, 3), np.float32)
    x[...] = value
    want[...] = value.numpy() if isinstance(value, Tensor) else value
    np.testing.assert_array_equal(x.numpy(), want)


def test_an_ellipsis_takes_the_whole_value_and_its_shape_where_it_does_not_fit():
    x = Tensor([1, 2, 3])
    x[...] = [[4.7]]
    assert x.shape == (1, 1) and x.dtype == np.int32 and x.item() == 4


def test_a_written_value_takes_the_dtype_of_its_destination():
    x = Tensor([1, 2, 3])
    x[1] = Tensor(2.9)
    assert x.dtype == np.int32 and x.tolist() == [1, 2, 3]


def test_the_last_of_duplicate_writes_wins():
    x = Tensor(np.zeros(3, np.float32))
    x[[1, 1]] = Tensor([5.0, 6.0])
    assert x.tolist() == [0, 6, 0]


def test_slice_bounds_may_be_tensors():
    np.testing.assert_array_equal(Tensor(A)[:, Tensor(1) : Tensor(3)].numpy(), A[:, 1:3])


def test_a_list_with_slices_is_a_tuple_of_indices():
    np.testing.assert_array_equal(Tensor(A)[[0, slice(1, 3)]].numpy(), A[0, 1:3])


def test_gradients_of_duplicate_reads_add_up():
    x = Tensor([1.0, 2.0, 3.0])
    gm = autodiff.GradManager().attach(x)
    with gm:
        gm.backward(x[[0, 0, 2]].sum())
    assert x.grad.tolist() == [2, 0, 1]


def test_gradients_pass_a_write_except_where_it_wrote():
    x, v = Tensor([1.0, 2.0, 3.0]), Tensor(5.0)
    gm = autodiff.GradManager().attach([x, v])
    with gm:
        y = x * 2
        y[1] = v * 3
        gm.backward(y.sum())
    assert x.grad.tolist() == [2, 0, 2] and v.grad.item() == 3


@pytest.mark.parametrize(
    "index",
    [2, -3, np.s_[0, 0, 0, 0], np.s_[..., ...], [0, 5], np.zeros((2, 9), bool), 1.5, Tensor([1.0])],
    ids=repr,
)
def test_indices_that_cannot_be_are_index_errors(index):
    with pytest.raises(IndexError, match="^index: |^only one ellipsis is allowed"):
        Tensor(A)[index]


def test_a_list_of_floats_is_a_value_error():
    with pytest.raises(ValueError, match="not integers"):
        Tensor(A)[[0.5, 1.0]]


def test_a_value_that_does_not_broadcast_is_a_value_error():
    with pytest.raises(ValueError, match=r"^cannot copy tensor with shape \(5,\) to subtensor with shape \(3, 4\)"):
        Tensor(A)[0] = np.zeros(5)


@pytest.mark.parametrize("mask", [[True, False], [True], [True, False, True, True]])
def test_a_mask_of_another_length_is_an_index_error(mask):
    x = Tensor(np.arange(6.0).reshape(3, 2))
    for form in (mask, np.array(mask), Tensor(np.array(mask))):
        with pytest.raises(IndexError, match="does not fit the axes"):
            x[form]
