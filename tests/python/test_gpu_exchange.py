"""Memory of a GPU that is shared with other libraries, the order of streams, and batches that are copied ahead."""

import ctypes
import gc
from pathlib import Path

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import _core
from megengine.data import DataLoader, SequentialSampler
from megengine.data.dataset import ArrayDataset
from megengine.device import Event, Stream
from megengine.utils.dlpack import from_dlpack, to_dlpack

gpu = pytest.mark.gpu


def test_a_cpus_work_has_run():
    stream = Stream("cpu0")
    begin, end = stream.record_event(), stream.record_event()
    assert begin.query() and begin.elapsed_time(end) >= 0
    stream.wait_event(end), stream.wait_stream(Stream("cpu0")), stream.synchronize()
    assert stream.native == 0 and stream == Stream("cpu0") and isinstance(end, Event)


def test_events_of_two_streams_are_not_compared():
    with pytest.raises(ValueError, match="cpu0:0 and cpu0:1"):
        Stream("cpu0").record_event().elapsed_time(Stream("cpu0:1").record_event())


def test_what_is_no_stream_is_refused():
    stream = Stream("cpu0")
    for other in ("x", -1, None):
        with pytest.raises(TypeError, match="is no stream"):
            stream.let_wait(other)
        with pytest.raises(TypeError, match="is no stream"):
            stream.wait_stream(other)
    with pytest.raises(TypeError, match="a Stream is wanted, not None"):
        Event(None)


@pytest.mark.parametrize("thing", [None, [1.0], "x"])
def test_what_is_no_array_is_refused(thing):
    with pytest.raises(TypeError, match="has neither __dlpack__ nor"):
        from_dlpack(thing)


def test_a_value_of_the_host_has_no_cuda_array_interface():
    assert not hasattr(mge.Tensor([1.0], device="cpu0"), "__cuda_array_interface__")


@gpu
class TestOnAGPU:
    @pytest.fixture(autouse=True)
    def device(self):
        before = mge.get_default_device()
        mge.set_default_device("gpu0")
        yield
        mge.set_default_device(before)

    @pytest.mark.parametrize("copy", [None, False, True])
    @pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "bool"])
    def test_values_cross_where_they_lie(self, copy, dtype):
        values = np.arange(12).reshape(3, 4).astype(dtype)
        x = mge.Tensor(values)
        there = from_dlpack(x, copy=copy)
        assert there.device == "gpu0" and there.dtype == dtype
        assert (_core.address(there) == _core.address(x)) is False  # __dlpack__ gives a copy, if nobody forbids it
        np.testing.assert_array_equal(there.numpy(), values)

    def test_memory_is_shared_if_both_say_so(self):
        x = mge.Tensor(np.arange(6, dtype="float32")) * 2
        there = _core.borrow(x.__dlpack__(stream=Stream("gpu0").native, copy=False))
        assert _core.address(there) == _core.address(x)
        there += 1  # a value of its own
        np.testing.assert_array_equal(x.numpy(), np.arange(6) * 2)

    def test_shared_memory_stays_until_queued_work_has_run(self):
        before = mge.device.get_allocated_memory("gpu0")
        results = []
        for i in range(20):
            x = F.full((1 << 16,), float(i))
            there = _core.borrow(x.__dlpack__(stream=-1, copy=False))
            del x
            results.append(F.sum(there * 2) if i % 2 else F.mean(there))
            del there
        for i, result in enumerate(results):
            assert result.item() == (2.0 * i * (1 << 16) if i % 2 else i)
        del result, results
        mge.synchronize(), gc.collect()
        _core.borrow(np.zeros(1, "float32"))  # releases what has run
        assert mge.device.get_allocated_memory("gpu0") - before < 1 << 16

    def test_to_the_host(self):
        x = mge.Tensor([1.0, 2.0])
        assert x.__dlpack_device__() == (2, 0)
        np.testing.assert_array_equal(np.from_dlpack(OnHost(x)), [1, 2])
        with pytest.raises(BufferError, match="as a copy"):
            x.__dlpack__(dl_device=(1, 0), copy=False)
        with pytest.raises(BufferError, match=r"not on \(2, 7\)"):
            x.__dlpack__(dl_device=(2, 7))
        with pytest.raises(ValueError, match="ambiguous"):
            x.__dlpack__(stream=0)

    def test_a_capsule(self):
        there = from_dlpack(to_dlpack(mge.Tensor([3.0, 4.0])))
        assert there.device == "gpu0"
        np.testing.assert_array_equal(there.numpy(), [3, 4])

    def test_cuda_array_interface(self):
        x = mge.Tensor(np.arange(12, dtype="float32").reshape(3, 4))
        described = x.__cuda_array_interface__
        assert described["shape"] == (3, 4) and described["typestr"] == "<f4" and described["version"] == 3
        assert described["stream"] == Stream("gpu0").native
        holder = Described({**described, "shape": (4, 3), "strides": (4, 16)})
        with pytest.raises(BufferError, match="row-major"):
            from_dlpack(holder)
        there = from_dlpack(Described(described), copy=False)
        x += 1  # its old value stays for whoever reads it by the interface
        np.testing.assert_array_equal(there.numpy(), np.arange(12).reshape(3, 4))
        assert not hasattr(mge.Tensor([1.0], dtype="bfloat16"), "__cuda_array_interface__")
        with pytest.raises(BufferError, match="an entry of another type"):
            from_dlpack(Described({**described, "data": None}))
        with pytest.raises(BufferError, match="no elements of type <u4"):
            from_dlpack(Described({**described, "typestr": "<u4"}))
        with pytest.raises(BufferError, match="no GPU of this process"):
            from_dlpack(Described({**described, "data": (64, True)}))

    def test_order_with_streams_of_another_library(self, driver):
        theirs = ctypes.c_void_p()
        assert driver.cuStreamCreate(ctypes.byref(theirs), 1) == 0
        memory = ctypes.c_uint64()
        assert driver.cuMemAlloc_v2(ctypes.byref(memory), 4 << 20) == 0
        ours = Stream("gpu0")
        for i in range(10):
            x = F.full((1 << 20,), float(i)) + 1
            address, bytes_ = ctypes.c_uint64(_core.address(x)), ctypes.c_size_t(4 << 20)
            ours.let_wait(theirs.value)
            assert driver.cuMemcpyDtoDAsync_v2(memory, address, bytes_, theirs) == 0
            there = from_dlpack(
                Described(
                    {"shape": (1 << 20,), "typestr": "<f4", "data": (memory.value, False), "version": 3, "stream": theirs.value}
                )
            )
            assert (there.numpy() == i + 1).all()
        ours.wait_stream(1)
        driver.cuStreamSynchronize(theirs)
        driver.cuStreamDestroy_v2(theirs), driver.cuMemFree_v2(memory)

    @pytest.fixture
    def driver(self):
        mge.Tensor([1.0]).numpy()
        maps = Path("/proc/self/maps").read_text().splitlines()
        library = next(line.split()[-1] for line in maps if "libmegjit_card.so" in line or "libcuda.so" in line)
        driver = ctypes.CDLL(library)
        context = ctypes.c_void_p()
        assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert driver.cuCtxSetCurrent(context) == 0
        yield driver
        driver.cuCtxSetCurrent(None)
        driver.cuDevicePrimaryCtxRelease_v2(0)

    def test_events_measure(self):
        x = mge.Tensor(np.ones((64, 64), "float32"))
        stream = Stream()
        begin = stream.record_event()
        for _ in range(5):
            x = F.matmul(x, x) * 0.01
        end = stream.record_event()
        stream.wait_event(end)
        assert begin.elapsed_time(end) > 0 and end.query()

    def test_batches_are_there_two_steps_ahead(self):
        data = np.arange(64 * 1000, dtype="float32").reshape(64, 1000)
        loader = DataLoader(ArrayDataset(data, np.arange(64)), SequentialSampler(range(64), 8), preload=True)
        rows = iter(loader)
        first, labels = next(rows)
        assert first.device == "gpu0" and labels.dtype == "int32" and len(rows.pre_load_device_cache) == 2
        seen = [first, *(batch for batch, _ in rows)]
        np.testing.assert_array_equal(np.concatenate([x.numpy() for x in seen]), data)

    def test_a_pass_that_is_left_leaves_memory_in_order(self):
        data = np.ones((64, 5000), "float32")
        for _ in range(5):
            loader = DataLoader(ArrayDataset(data), SequentialSampler(range(64), 8), preload=True)
            (first,) = next(iter(loader))
            assert F.sum(first + F.full((8, 5000), 1.0)).item() == 2 * 8 * 5000


class OnHost:
    """What NumPy asks for ``device="cpu"``."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(dl_device=(1, 0))


class Described:
    def __init__(self, interface):
        self.__cuda_array_interface__ = interface
