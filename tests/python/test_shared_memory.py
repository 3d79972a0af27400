"""Memory that is shared with NumPy: tensors over arrays, arrays over tensors. (tests/torch has the same with PyTorch.)"""

import gc
import threading
import time
import weakref

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import _core
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.jit.replay import Replay
from megengine.optimizer import SGD
from megengine.utils.dlpack import from_dlpack

DTYPES = ["float32", "float16", "int32", "int16", "int8", "uint8", "uint16", "bool", "complex64"]


def borrow(array):
    return from_dlpack(array, copy=False)


@pytest.mark.parametrize("shape", [(), (3,), (1, 5), (70, 3, 2), (0, 4)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_borrowed_tensor_is_what_the_array_is(dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    x = borrow(array)
    assert x.dtype == array.dtype and x.numpy().shape == shape
    np.testing.assert_array_equal(x.numpy(), array)
    if array.size:
        array.flat[0] = 1
        np.testing.assert_array_equal(x.numpy(), array)


def test_without_copy_false_the_tensor_has_memory_of_its_own():
    array = np.zeros(100, "float32")
    for options in ({}, {"copy": True}, {"copy": None}):
        x = from_dlpack(array, **options)
        array[0] += 1
        assert x.numpy()[0] == array[0] - 1


def test_a_write_to_the_tensor_shows_nowhere_else():
    array = np.ones(100, "float32")
    x = borrow(array)
    x[0] = 5
    x += 1
    x *= 2
    assert x.numpy()[0] == 12 and (array == 1).all()


@pytest.mark.parametrize("level", [0, 2, 3])
def test_a_step_never_writes_to_borrowed_memory(level):
    arrays = {"weight": np.ones((40, 30), "float32"), "bias": np.ones(40, "float32")}
    net = M.Linear(30, 40)
    net.weight[...] = 1
    for name, array in arrays.items():
        getattr(net, name)._reset(borrow(array))
    gm, optimizer = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)

    @trace(symbolic=True, opt_level=level, without_host=True)
    def step(x):
        with gm:
            gm.backward(F.mean(F.square(net(x))))
        optimizer.step().clear_grad()

    for _ in range(4):
        step(mge.tensor(np.ones((8, 30), "float32")))
    assert all((array == 1).all() for array in arrays.values())
    assert (net.weight.numpy() != 1).all()


def test_packed_weights_follow_the_memory():
    array = np.ones((64, 96), "float32")
    w = borrow(array)
    step = trace(lambda x: F.relu(F.matmul(x, w)), symbolic=True, opt_level=3)
    x = np.random.default_rng(0).standard_normal((33, 64), "float32")
    for scale in (1, 2, -1, 0.5):
        array[:] = scale
        np.testing.assert_allclose(step(mge.tensor(x)).numpy(), np.maximum(x @ array, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("level", [2, 3])
def test_memory_may_lie_at_any_element(level):
    step = trace(lambda x, y: F.softmax(x * 2 + y, axis=1), symbolic=True, opt_level=level)
    want = F.softmax
    for offset in (1, 3, 7):
        memory = np.random.default_rng(offset).standard_normal(2 * 37 * 53 + offset, "float32")[offset:]
        x, y = memory.reshape(2, 37, 53)
        got = step(borrow(x), borrow(y)).numpy()
        np.testing.assert_allclose(got, want(mge.tensor(x * 2 + y), axis=1).numpy(), rtol=1e-5)


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (2, 3, 1, 5), (2, 3, 2, 4, 5)], ids=str)
def test_channels_last_memory_is_shared_as_it_lies(shape):
    array = np.random.default_rng(0).standard_normal((shape[0], *shape[2:], shape[1]), "float32")
    theirs = np.moveaxis(array, -1, 1)
    x = borrow(theirs)
    assert x.shape == shape and _core.address(x) == array.ctypes.data
    np.testing.assert_array_equal(x.numpy(), theirs)
    np.testing.assert_array_equal((x * 2)[:, 1].numpy(), theirs[:, 1] * 2)
    lent = np.from_dlpack(x, copy=False)
    assert lent.ctypes.data == array.ctypes.data and lent.strides == theirs.strides
    given = np.from_dlpack(_core.give_away(F.relu(x)))
    np.testing.assert_array_equal(given, np.maximum(theirs, 0))


def wait_until(happens):
    """Owners go when the main thread is back in Python: soon, at no given moment."""
    for _ in range(1000):
        gc.collect()
        if happens():
            return True
        time.sleep(0.01)
    return False


def test_the_owner_stays_as_long_as_its_memory_is_needed():
    array = np.arange(1000, dtype="float32")
    alive = weakref.ref(array)
    x = borrow(array)
    view = x.reshape(10, 100)
    del array, x
    gc.collect()
    assert alive() is not None and view.numpy()[9, 99] == 999
    del view
    assert wait_until(lambda: alive() is None)


def test_tensors_may_end_in_any_thread():
    arrays = [np.full(1000, i, "float32") for i in range(200)]
    alive = [weakref.ref(array) for array in arrays]
    tensors = [borrow(array) for array in arrays]
    del arrays
    threads = [threading.Thread(target=lambda part: [tensors.__setitem__(i, None) for i in part], args=(range(k, 200, 4),)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wait_until(lambda: all(ref() is None for ref in alive))


class OnAnotherDevice:
    def __dlpack__(self, **_):
        raise BufferError("not on the host")

    def __dlpack_device__(self):
        return (10, 0)  # of AMD


@pytest.mark.parametrize(
    "array, why",
    [
        (np.zeros(3, "uint64"), "64 bits"),
        (np.zeros(3, "complex128"), "128 bits"),
        (np.zeros((3, 4), "float32").T, "row-major"),
        (np.zeros((3, 4), "float32")[:, ::2], "row-major"),
        (np.frombuffer(bytearray(41), "uint8")[1:].view("float32"), "multiples of their size"),
        (OnAnotherDevice(), "neither an array"),
        ([1.0], "neither an array"),
        (None, "neither an array"),
    ],
    ids=["uint64", "complex128", "transposed", "strided", "misaligned", "device", "list", "none"],
)
def test_what_cannot_be_shared_is_refused(array, why):
    with pytest.raises(BufferError, match=f"(?s)cannot be shared: .*{why}.*copy=False"):
        borrow(array)


class OnAGPU(OnAnotherDevice):
    def __dlpack_device__(self):
        return (2, 0)


@pytest.mark.skipif(mge.is_cuda_available(), reason="there is a GPU")
def test_memory_of_a_gpu_that_is_not_there():
    with pytest.raises(RuntimeError, match="gpu0"):
        borrow(OnAGPU())


def test_a_lent_array_is_read_only_and_stays():
    x = mge.tensor(np.arange(1000, dtype="float32"))
    array = np.asarray(x, copy=False)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    address = array.ctypes.data
    assert np.from_dlpack(x, copy=False).ctypes.data == address
    x += 1
    del x
    gc.collect()
    mge.tensor(np.zeros(1000, "float32"))
    assert array.ctypes.data == address and (array == np.arange(1000)).all()


def test_a_step_does_not_write_to_what_was_lent():
    x = mge.tensor(np.ones(1000, "float32"))
    lent = np.asarray(x, copy=False)

    @trace(symbolic=True, without_host=True)
    def step():
        x._reset(x * 2)

    for _ in range(3):
        step()
    assert (lent == 1).all() and x.numpy()[0] == 8


def test_bfloat16_and_other_dtypes_need_a_copy():
    with pytest.raises(ValueError, match="bfloat16.*without a copy"):
        np.asarray(mge.tensor([1.0]).astype("bfloat16"), copy=False)
    with pytest.raises(ValueError, match="float32.*int32.*without a copy"):
        mge.tensor([1.0]).__array__("int32", copy=False)


def test_lent_values_are_not_evicted():
    mge.dtr.eviction_threshold = mge.get_allocated_memory() + (24 << 20)  # other tests may hold some
    mge.dtr.enable()
    try:
        x = mge.tensor(np.ones((1024, 1024), "float32"))
        y = x + 1
        lent = np.asarray(y, copy=False)
        more = [y * i for i in range(20)]
        assert (lent == 2).all() and more[3].numpy()[0, 0] == 6
    finally:
        mge.dtr.disable()


@pytest.mark.parametrize("level", [0, 2, 3])
def test_what_is_lent_to_be_written_is_updated_where_it_lies(level):
    """A fused update of two tensors once gave each the memory of the other."""
    arrays = [np.ones((30, 100), "float32"), np.zeros((30, 100), "float32")]
    p, velocity = (_core.borrow(array, writable=True) for array in arrays)

    def update(grad):
        new = velocity * 0.5 + (grad + p * 0.25)
        p._reset(p - new * 0.5)
        velocity._reset(new)
        return [grad.sum()]

    replay = Replay(update, opt_level=level)
    want = [array.copy() for array in arrays]
    for _ in range(3):
        replay([mge.Tensor(np.ones((30, 100), "float32"))])
        want[1] = want[1] * 0.5 + (1 + want[0] * 0.25)
        want[0] = want[0] - want[1] * 0.5
        for ours, array, right in zip((p, velocity), arrays, want, strict=True):
            np.testing.assert_allclose(array, right, rtol=1e-6)
            assert _core.address(ours) == array.ctypes.data


def test_only_a_value_that_nobody_else_has_is_given_away():
    x = mge.Tensor(np.ones(300, "float32"))
    also = mge.Tensor(x)
    assert _core.give_away(borrow(np.ones(300, "float32"))) is None
    y = F.exp(x)
    taken = np.from_dlpack(_core.give_away(y))
    address = _core.address(y)
    assert _core.give_away(y) is None  # it is taken
    del y
    taken[:] = 3
    assert taken.ctypes.data == address and taken.sum() == 900 and also.numpy().sum() == x.numpy().sum() == 300
