"""Tensor: construction, dtypes and promotion, methods, host protocols."""

import copy
import gc
import io
import operator
import pickle
import weakref

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import Parameter, Tensor
from megengine.utils.dlpack import from_dlpack, to_dlpack


@pytest.mark.parametrize(
    "data, dtype",
    [
        (1, "int32"),
        (1.5, "float32"),
        (True, "bool"),
        ([1, 2.5], "float32"),
        ([], "float32"),
        ([[1, 2], [3, 4]], "int32"),
        (np.zeros(2, np.int64), "int32"),
        (np.zeros(2, np.float64), "float32"),
        (np.zeros(2, np.uint8), "uint8"),
        (np.float16(1), "float16"),
        (np.zeros(2, np.complex64), "complex64"),
    ],
    ids=repr,
)
def test_the_dtype_follows_from_the_data(data, dtype):
    assert Tensor(data).dtype == dtype


@pytest.mark.parametrize("dtype", ["float32", "int32", "int16", "int8", "uint16", "uint8", "bool", "float16", "bfloat16", "complex64", "float64", "int64"])
@pytest.mark.parametrize(
    "lay",
    [
        np.ascontiguousarray,
        np.asfortranarray,
        lambda x: x[:, ::-2],
        lambda x: x[:0],
        lambda x: x[1, 2],
        lambda x: x[:1, :1].reshape(()),
        lambda x: np.broadcast_to(x[0], x.shape),
        lambda x: x.astype(x.dtype.newbyteorder(">")) if x.dtype.kind != "V" else x,
        lambda x: np.ma.masked_array(x),
    ],
    ids=["rows", "columns", "steps", "empty", "scalar", "no axes", "read-only", "big-endian", "masked"],
)
def test_an_array_lies_in_any_way(dtype, lay):
    array = lay((np.arange(12).reshape(3, 4) % 5 - 1).astype(np.dtype(mge.tensor([0], dtype=dtype).dtype)))
    x = Tensor(array)
    assert x.shape == array.shape and x.dtype == {"float64": "float32", "int64": "int32"}.get(dtype, x.dtype.name)
    np.testing.assert_array_equal(x.numpy(), np.asarray(array).astype(x.dtype))
    same = Tensor(array, dtype=dtype)
    assert same.dtype.name == dtype and np.array_equal(same.numpy(), np.asarray(array).astype(same.dtype))


def test_a_scalar_has_no_axes():
    x = Tensor(2.0)
    assert x.shape == () and x.ndim == 0 and x.size == 1 and x.numpy().shape == ()


def test_tensor_is_the_class_itself():
    assert mge.tensor is mge.Tensor and mge.tensor([1]).tolist() == [1]


def test_a_dtype_given_converts_the_data():
    assert Tensor([1.7], dtype="int32").tolist() == [1]
    assert Tensor([1], dtype=np.float16).dtype == np.float16


def test_a_tensor_given_another_dtype_is_refused():
    with pytest.raises(RuntimeError, match="astype"):
        Tensor(Tensor([1]), dtype="float32")


def test_a_parameter_computes_plain_tensors():
    p = Parameter([1.0, 2.0])
    assert isinstance(p, Tensor) and type(p + 1) is Tensor and type(p[0]) is Tensor


def test_the_name_is_settable_and_dropped_by_copies():
    x = Tensor([1.0], name="weight")
    assert x.name == "weight" and Tensor(x).name == ""
    x.name = "bias"
    assert x.name == "bias"


@pytest.mark.parametrize(
    "a, b, result",
    [
        ("int8", 1, "int8"),
        ("int32", 1.5, "float32"),
        ("float16", 1.5, "float16"),
        ("int8", True, "int8"),
        ("float16", "float32", "float32"),
        ("float16", "int8", "float32"),
        ("int8", "int32", "int32"),
        ("bool", "int32", "float32"),
        ("uint8", "uint16", "uint16"),
    ],
)
def test_promotion(a, b, result):
    other = F.ones((2,), dtype=b) if isinstance(b, str) else b
    assert (F.ones((2,), dtype=a) + other).dtype == result


def test_true_division_of_integers_is_float():
    assert (Tensor([1, 2]) / 2).dtype == np.float32


def test_integer_division_rounds_down_and_the_remainder_follows_the_divisor():
    assert (Tensor([-7, 7]) // 2).tolist() == [-4, 3]
    assert (Tensor([-7, 7]) % 3).tolist() == [2, 1]


def test_the_float_remainder_follows_the_dividend():
    assert (Tensor([-7.0, 7.0]) % 3).tolist() == [-1, 1]


def test_none_is_no_operand():
    with pytest.raises(TypeError):
        Tensor([1.0]) + None


def test_operators_of_bits_are_logic_of_bools():
    x, y = Tensor([True, True, False]), Tensor([True, False, False])
    assert [op.tolist() for op in (x & y, x | y, x ^ y, ~x)] == [[True, False, False], [True, True, False], [False, True, False], [False, False, True]]
    with pytest.raises(TypeError, match="astype"):
        Tensor([1.0]) & Tensor([1.0])
    with pytest.raises(TypeError, match="integer"):
        Tensor([1]) & Tensor([1.0])


def test_operators_of_bits_are_numpys_of_integers():
    a, b = np.array([12, 7, -3], np.int16), np.array([True, False, True])
    for op in (operator.and_, operator.or_, operator.xor):
        for x, y in ((a, a[::-1].copy()), (a, b), (b, a), (a, 6), (6, a)):
            got = op(*(Tensor(each) if isinstance(each, np.ndarray) else each for each in (x, y))).numpy()
            assert got.dtype == np.int16 and got.tolist() == op(x, y).tolist()
    assert (~Tensor(a)).numpy().tolist() == (~a).tolist()
    x = Tensor(a)
    x |= 1
    assert x.tolist() == (a | 1).tolist()


def test_an_array_on_the_left_gives_a_tensor():
    assert type(np.ones(2, np.float32) + Tensor([1.0, 2.0])) is Tensor
    assert type(np.float32(2) * Tensor([1.0])) is Tensor


def test_numpy_functions_give_tensors():
    y = np.exp(Tensor([0.0]))
    assert type(y) is Tensor and y.tolist() == [1]


def test_matrix_product_operators():
    x = Tensor([[1.0, 2.0]])
    assert (x @ x.T).tolist() == [[5]]
    assert (np.ones((1, 2), np.float32) @ Tensor([[1.0], [2.0]])).tolist() == [[3]]
    x @= Tensor([[1.0], [1.0]])
    assert x.tolist() == [[3]]


def test_in_place_operators_change_this_handle_only():
    x = Tensor([1.0, 2.0])
    same, copy_ = x, Tensor(x)
    x += 1
    assert same.tolist() == [2, 3] and copy_.tolist() == [1, 2]


def test_comparison_is_elementwise_and_hash_is_identity():
    x = Tensor([1, 2])
    assert (x == 2).tolist() == [False, True]
    assert {x: "value"}[x] == "value" and hash(x) != hash(Tensor(x))


def test_host_numbers():
    x = Tensor([3])
    assert int(x) == 3 and float(x) == 3.0 and bool(x) and complex(x) == 3 and [0, 1, 2, 9][x] == 9


def test_item_needs_exactly_one_element():
    with pytest.raises(ValueError, match="one element"):
        Tensor([1, 2]).item()


def test_len_and_iteration_go_over_the_first_axis():
    assert len(Tensor([[1], [2]])) == 2 and [r.tolist() for r in Tensor([[1], [2]])] == [[1], [2]]
    with pytest.raises(TypeError):
        len(Tensor(1))


@pytest.mark.parametrize("shape", [(2, -1), [3, 2], Tensor([3, 2]), (Tensor(3), 2), 6], ids=repr)
def test_reshape_takes_ints_and_tensors(shape):
    assert Tensor(np.arange(6)).reshape(shape).size == 6


def test_reshape_and_transpose_take_loose_arguments():
    x = Tensor(np.arange(6)).reshape(2, 3)
    assert x.shape == (2, 3) and x.transpose(1, 0).shape == (3, 2) and x.T.shape == (3, 2)
    assert x.transpose().tolist() == x.numpy().T.tolist()
    assert x.transpose(1, "x", 0).shape == (3, 1, 2)


@pytest.mark.parametrize("shape", [(-1, -1), (-2, 3), (4, 2), (4, -1)])
def test_shapes_that_cannot_be_are_value_errors(shape):
    with pytest.raises(ValueError, match=r"reshape: cannot reshape \[6\] to"):
        Tensor(np.arange(6)).reshape(shape)


def test_reductions_without_axis_take_no_keepdims():
    x = Tensor([[1.0, 2.0]])
    assert x.sum().shape == () and x.mean(axis=1, keepdims=True).shape == (1, 1)
    with pytest.raises(AssertionError):
        x.max(keepdims=True)


def test_bool_sums_as_int_and_keeps_bool_in_max():
    x = Tensor([True, True, False])
    assert x.sum().item() == 2 and x.sum().dtype == np.int32 and x.max().dtype == np.bool_


def test_the_mean_is_float32():
    assert Tensor([1, 2]).mean().item() == 1.5
    assert F.ones((2,), dtype="float16").mean().dtype == np.float32


def test_rounding_is_half_away_from_zero():
    assert round(Tensor([0.5, -1.5, 2.4])).tolist() == [1, -2, 2]


def test_detach_keeps_the_value():
    assert Tensor([1.0]).detach().tolist() == [1]


def test_requires_grad_says_what_to_do():
    with pytest.raises(AttributeError, match="GradManager"):
        Tensor([1.0]).requires_grad
    assert Tensor([1.0]).grad is None


def test_set_value_and_reset_zero_write_in_place():
    x = Tensor([1.0, 2.0])
    with pytest.warns(DeprecationWarning, match="Tensor.set_value"):
        x.set_value([3, 4])
    assert x.tolist() == [3, 4] and x.dtype == np.float32
    with pytest.warns(DeprecationWarning, match="Tensor.reset_zero"):
        x.reset_zero()
    assert x.tolist() == [0, 0]


def test_repr_shows_the_class_the_dtype_and_the_device():
    assert repr(Tensor([1.25, 2])) == "Tensor([1.25 2.  ], device=xpux:0)"
    assert repr(Parameter(3)) == "Parameter(3, dtype=int32, device=xpux:0)"


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "int8", "uint16", "bool", "complex64"]
)
def test_pickles_keep_class_dtype_and_values(dtype):
    x = Parameter(np.array([[0, 1]]), dtype=dtype)
    y = pickle.loads(pickle.dumps(x))
    assert type(y) is Parameter and y.dtype == x.dtype and (y.numpy() == x.numpy()).all()


def test_old_pickles_that_only_call_new_are_whole():
    x = Tensor.__new__(Parameter, *Parameter([1.0]).__getnewargs__())
    assert type(x) is Parameter and x.tolist() == [1]


def _saved_and_loaded(x):
    file = io.BytesIO()
    mge.save({"x": x}, file)
    return mge.load(io.BytesIO(file.getvalue()))["x"]


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), _saved_and_loaded])
def test_copies_keep_the_name(clone):
    assert clone(Parameter([1.0], name="scale")).name == "scale" and clone(Tensor([1.0])).name == ""


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy])
def test_copies_are_independent_handles(clone):
    x = Tensor([1.0, 2.0])
    y = clone(x)
    y[0] = 5
    assert x.tolist() == [1, 2] and y.tolist() == [5, 2]


def test_the_device_equals_every_name_of_its_place():
    device = Tensor([1.0]).device
    assert device == "xpux" and device == str(device) and device != "gpu7" and device != "no device"


def test_moving_to_a_malformed_device_is_a_value_error():
    with pytest.raises(ValueError, match="'gpu-1' is not a device name"):
        Tensor([1.0]).to("gpu-1")


def test_the_format_is_a_tag():
    x = F.ones((1, 2, 3, 3))
    x.format = "nhwc"
    assert x.format == "nhwc" and x.shape == (1, 2, 3, 3) and F.ones((1,)).format == "default"
    with pytest.raises(ValueError, match="nchw"):
        x.format = "chwn"


def test_astype_converts():
    assert Tensor([1.9]).astype("int32").tolist() == [1]
    assert Tensor([1]).astype(np.float64).dtype == np.float64
    assert Tensor([1]).astype(np.uint32).dtype == np.int32


def test_an_unsupported_dtype_lists_the_supported_ones():
    with pytest.raises(TypeError, match="float16"):
        Tensor([1.0]).astype("datetime64[s]")


def test_numpy_gives_a_copy():
    x = Tensor([1.0])
    x.numpy()[0] = 7
    assert x.item() == 1


def test_dlpack_exchanges_values():
    x = Tensor([[1.0, 2.0]])
    assert np.from_dlpack(x).tolist() == [[1, 2]]
    assert from_dlpack(to_dlpack(x)).tolist() == [[1, 2]]
    assert from_dlpack(np.arange(3, dtype=np.int32)).tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="ndarray"):
        to_dlpack(np.zeros(1))


def test_a_tensor_without_axes_is_formatted_as_its_number():
    mean, vector = mge.tensor(2.0) / 3, mge.tensor([1.0])
    assert f"{mean:.2f} {mge.tensor(7):3d}" == "0.67   7"
    assert f"{vector}" == str(vector)
    with pytest.raises(TypeError, match="format"):
        f"{vector:.2f}"


# ---- results take over the objects of tensors that nobody holds any more


def test_a_result_has_no_attributes_and_no_weak_references_of_a_dead_one():
    x = Tensor([1.0])
    for _ in range(3):
        y = x + 1
        assert not hasattr(y, "note")
        assert weakref.getweakrefcount(y) == 0
        y.note = "mine"
        link = weakref.ref(y)
        del y
        assert link() is None


def test_a_result_in_a_cycle_is_collected():
    y = Tensor([1.0]) + 1
    y.itself, link = y, weakref.ref(y)
    del y
    gc.collect()
    assert link() is None


def test_many_results_live_and_die_in_turn():
    x = Tensor(0)
    results = [x + i for i in range(300)]
    del results[::2]
    results += [x + i for i in range(0, 300, 2)]
    assert sorted(result.item() for result in results) == list(range(300))
