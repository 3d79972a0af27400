"""Memory that is shared with PyTorch, in both directions."""

import gc
import time
import weakref

import numpy as np
import pytest
import torch

import megengine as mge
from megengine import _core
from megengine.jit.replay import Replay
from megengine.utils.dlpack import from_dlpack


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool])
def test_a_tensor_over_torchs_memory(dtype):
    theirs = torch.ones(300, 3, dtype=dtype)
    ours = from_dlpack(theirs, copy=False)
    theirs[0] = 0
    np.testing.assert_array_equal(ours.astype("float32").numpy(), theirs.float().numpy())


@pytest.mark.parametrize("theirs", [torch.ones(3, dtype=torch.complex128), torch.ones(3, 4).t(), torch.ones(2, device="meta")], ids=["complex128", "transposed", "meta"])
def test_what_cannot_be_shared_is_refused(theirs):
    with pytest.raises(BufferError, match="cannot be shared"):
        from_dlpack(theirs, copy=False)


def test_all_tensors_of_a_call_are_shared_by_torchs_c_functions():
    exchange = _core.Exchange(torch.Tensor)
    plain, last = torch.rand(4, 3), torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last)
    values = [plain, 7, last, torch.nn.Parameter(plain), torch.ones(3, dtype=torch.complex128), plain.t(), torch.rand(3, device="meta"), torch.tensor(2.0)]
    ours, left = exchange.ours(values)
    assert left == [4, 5, 6] and ours[1] == 7 and all(ours[place] is values[place] for place in left)
    for place in (0, 2, 3, 7):
        assert _core.address(ours[place]) == values[place].data_ptr()
        np.testing.assert_array_equal(ours[place].numpy(), values[place].detach().numpy())
    tall = mge.tensor(np.ones((300, 2), "float32"))
    made = [tall * 2, tall * 3, tall * 4, tall * 5]
    wanted = [_core.Wanted("float32", None), _core.Wanted("float32", [1, 300]), _core.Wanted(None, None), _core.Wanted("float32", [2, 1])]
    places = [_core.address(each) for each in made]
    also = mge.Tensor(made[3])
    theirs, left = exchange.theirs(made, wanted)
    del made
    assert left == [1, 2, 3] and theirs[1:] == [None] * 3  # other strides, another dtype, a value that somebody else has
    theirs[0] += 1
    assert theirs[0].data_ptr() == places[0] and theirs[0].sum() == 1800 and also.numpy().sum() == 3000


def test_a_recorded_call_takes_theirs_and_gives_theirs_or_nothing_happens():
    exchange, wanted = _core.Exchange(torch.Tensor), [_core.Wanted("float32", None)]
    replay = Replay(lambda x: [x * 2 + 1])
    x = torch.rand(4, 3)
    values = [x]
    assert exchange.replayed(replay.function, wanted, values) is None and values == [x]  # nothing is recorded
    replay(exchange.ours(values)[0])
    (first,), left = exchange.replayed(replay.function, wanted, values), list(values)
    assert torch.equal(first, x * 2 + 1) and not left
    x += 1
    (second,) = exchange.replayed(replay.function, wanted, [x])
    assert torch.equal(second, x * 2 + 1) and not torch.equal(first, second)
    for value, want in (torch.rand(3, 4).t(), wanted[0]), (torch.rand(5, 3), wanted[0]), (x, _core.Wanted("float32", [1, 4])):
        values = [value]
        assert exchange.replayed(replay.function, [want], values) is None and values[0] is value
    with pytest.raises(ValueError, match="1 values for 0 Wanted"):
        exchange.replayed(replay.function, [], [x])


def test_a_call_that_gives_more_than_it_computes_is_not_replayed():
    exchange, wanted = _core.Exchange(torch.Tensor), [_core.Wanted("float32", None)] * 2
    replay, x = Replay(lambda x: [x * 2, x]), torch.rand(3)
    replay(exchange.ours([x])[0])
    assert exchange.replayed(replay.function, wanted, [x]) is None


def test_a_replayed_call_lets_go_of_its_tensors():
    exchange, wanted = _core.Exchange(torch.Tensor), [_core.Wanted("float32", None)]
    replay, x = Replay(lambda x: [x * 2]), torch.rand(3)
    replay(exchange.ours([x])[0])
    exchange.replayed(replay.function, wanted, [x])
    gone = weakref.ref(x)
    del x
    assert gone() is None


class Lies:
    """Memory of a GPU, with more axes than strides."""

    __cuda_array_interface__ = {"shape": (2, 3), "typestr": "<f4", "data": (0, False), "strides": (4,), "version": 3}


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda e, t, w: e.theirs([t, t], [w]), ValueError),
        (lambda e, t, w: e.theirs([t], [w, w]), ValueError),
        (lambda e, t, w: e.theirs([], [w]), ValueError),
        (lambda e, t, w: e.theirs([t], [None]), TypeError),
        (lambda e, t, w: e.theirs([t], [t]), TypeError),
        (lambda e, t, w: e.theirs([7], [w]), TypeError),
        (lambda e, t, w: e.theirs([torch.rand(3)], [w]), TypeError),
        (lambda e, t, w: e.theirs((t,), [w]), TypeError),
        (lambda e, t, w: e.theirs([t], [_core.Wanted.__new__(_core.Wanted)]), TypeError),
        (lambda e, t, w: e.replayed(lambda values: (t,), [w], [torch.rand(3)]), TypeError),
        (lambda e, t, w: _core.Wanted("no dtype", None), (TypeError, ValueError)),
        (lambda e, t, w: _core.Wanted("float32", ["1"]), TypeError),
        (lambda e, t, w: _core.borrow_array(Lies.__cuda_array_interface__, t), BufferError),
        (lambda e, t, w: _core.borrow_array({}, t), KeyError),
    ],
)
def test_what_is_no_exchange_is_an_error_and_reads_nothing(call, error):
    tensor = mge.tensor(np.ones((300, 2), "float32")) * 2
    with pytest.raises(error) as found:
        call(_core.Exchange(torch.Tensor), tensor, _core.Wanted("float32", None))
    assert "bad_cast" not in str(found.value)
    values, left = _core.Exchange(torch.Tensor).theirs([tensor * 1], [_core.Wanted("float32", [1])])  # of another rank
    assert values == [None] and left == [0]


def test_a_class_without_such_functions_is_refused():
    with pytest.raises(AttributeError, match="__dlpack_c_exchange_api__"):
        _core.Exchange(np.ndarray)


def test_shared_memory_lives_as_long_as_the_tensor():
    exchange = _core.Exchange(torch.Tensor)
    theirs = torch.rand(1000)
    alive, want = weakref.ref(theirs), theirs.clone()
    (ours,), _ = exchange.ours([theirs])
    del theirs
    gc.collect()
    assert alive() is not None
    np.testing.assert_array_equal(ours.numpy(), want.numpy())
    del ours
    for _ in range(1000):
        if alive() is None:
            return
        time.sleep(0.01)
    raise AssertionError("the memory's owner was never let go")


def test_a_torch_tensor_over_our_memory():
    ours = mge.tensor(np.arange(1000, dtype="float32"))
    theirs = torch.from_dlpack(ours, copy=False)
    del ours
    assert theirs.sum().item() == 499500
