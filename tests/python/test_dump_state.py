"""Dumped functions that keep state: training steps, draws, several functions of one file."""

import io

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import Parameter, Tensor
from megengine.autodiff import Function, GradManager
from megengine.jit import dump_functions, trace
from megengine.utils.comp_graph_tools import GraphInference, load_model
from megengine.utils.network import Network

RNG = np.random.RandomState(0)
IMAGES = RNG.rand(5, 8, 1, 6, 6).astype(np.float32)
LABELS = RNG.randint(0, 3, (5, 8)).astype(np.int32)


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.fc = M.Conv2d(1, 4, 3), M.BatchNorm2d(4), M.Linear(64, 3)

    def forward(self, x):
        x = F.flatten(F.relu(self.bn(self.conv(x))), 1)
        return self.fc(F.dropout(x, 0.3, training=self.training))


def step(image, label, *, net, opt, gm):
    with gm:
        loss = F.loss.cross_entropy(net(image), label)
        gm.backward(loss)
    opt.step().clear_grad()
    return loss


def training(optimizer=optim.SGD, **options):
    mge.random.seed(3)
    net = Net()
    opt = optimizer(net.parameters(), **(options or {"lr": 0.1, "momentum": 0.9}))
    return {"net": net, "opt": opt, "gm": GradManager().attach(net.parameters())}


def call(fn, i, objects):
    return fn(Tensor(IMAGES[i]), Tensor(LABELS[i]), **objects).item()


def opened(write, *args, function="", **options):
    file = io.BytesIO()
    write(file, *args, **options)
    return GraphInference(io.BytesIO(file.getvalue()), function=function)


def value(result):
    (array,) = result.values()
    return array


# ---- training steps


@pytest.mark.parametrize("options", [{}, {"opt_level": 3, "numerics": "exact"}])
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("optimizer, rates", [(optim.SGD, {"lr": 0.1, "momentum": 0.9}), (optim.Adam, {"lr": 0.01}), (optim.AdamW8bit, {"lr": 0.01, "block_size": 16, "min_size": 0})])
def test_a_step_from_a_file_gives_the_bits_of_the_traced_one(optimizer, rates, symbolic, options):
    objects = training(optimizer, **rates)
    fn = trace(step, symbolic=symbolic, capture_as_const=True, **options)
    call(fn, 0, objects)
    model = opened(fn.dump, arg_names=["image", "label"], output_names=["loss"])
    for i in range(1, 5):
        if i == 3:  # as a schedule would
            objects["opt"].param_groups[0]["lr"] /= 2
            model.load_state_dict({"lr": objects["opt"].param_groups[0]["lr"]})
        assert model.run(IMAGES[i], LABELS[i])["loss"].item() == call(fn, i, objects)
    state = model.state_dict()
    for name, tensor in objects["net"].named_tensors():
        if name in state:
            np.testing.assert_array_equal(state[name], tensor.numpy())
    assert {"conv.weight", "bn.running_mean", "fc.bias", "lr", "weight_decay", "random"} <= set(state)
    held = "fc.weight.momentum_buffer" if optimizer is optim.SGD else "fc.weight.exp_avg_sq"
    assert state[held].any()


def test_a_file_has_the_values_of_the_moment_when_it_is_written():
    objects = training()
    fn = trace(step, symbolic=True, capture_as_const=True)
    for i in range(3):
        call(fn, i, objects)
    model = opened(fn.dump)
    np.testing.assert_array_equal(model.state_dict()["fc.weight"], objects["net"].fc.weight.numpy())
    assert value(model.run(IMAGES[3], LABELS[3])).item() == call(fn, 3, objects)


def test_record_only_leaves_a_state_that_follows_from_itself_alone():
    """Its new value is computed while recording."""
    total = Parameter([1.0])

    @trace(record_only=True)
    def count(x):
        total[...] = total + 1
        return x * total

    count(Tensor([1.0]))
    np.testing.assert_array_equal(total, [1])
    file = io.BytesIO()
    dump_functions(file, {"count": count})
    file.seek(0)
    model = GraphInference(file)
    assert [model.run(np.float32([1])).popitem()[1].item() for _ in range(2)] == [2, 3]


def test_record_only_leaves_the_state_as_it_is():
    objects = training()
    before = objects["net"].fc.weight.numpy()
    fn = trace(step, record_only=True)
    fn(Tensor(IMAGES[0]), Tensor(LABELS[0]), **objects)
    np.testing.assert_array_equal(objects["net"].fc.weight.numpy(), before)
    np.testing.assert_array_equal(opened(fn.dump).state_dict()["fc.weight"], before)


def test_a_step_that_fails_leaves_the_state():
    objects = training()
    fn = trace(step, symbolic=True, capture_as_const=True)
    call(fn, 0, objects)
    model = opened(fn.dump)
    before = model.state_dict()
    with pytest.raises((ValueError, IndexError)):
        value(model.run(IMAGES[1], LABELS[1] + 7))
    draws = before.pop("random")  # on a GPU the failure is found when they are drawn
    for name, array in before.items():
        np.testing.assert_array_equal(array, model.state_dict()[name], err_msg=name)
    model.load_state_dict({"random": draws})
    assert value(model.run(IMAGES[1], LABELS[1])).item() == call(fn, 1, objects)


def test_gradients_that_add_up_are_state():
    p = Parameter([1.0, 2.0])
    gm = GradManager().attach([p])

    def accumulate(x):
        with gm:
            gm.backward(F.sum(p * x))
        return p.grad + 0

    p.grad = Tensor([0.0, 0.0])
    fn = trace(accumulate, symbolic=True, capture_as_const=True)
    fn(Tensor([1.0, 1.0]))
    model = opened(fn.dump)
    np.testing.assert_array_equal(model.state_dict()["p.grad"], [1, 1])
    np.testing.assert_array_equal(value(model.run([1, 3])), [2, 4])


# ---- buffers and draws


def test_counters_and_what_is_only_written_are_state():
    count, last = Tensor([0.0]), Tensor([0.0, 0.0])

    def fn(x):
        count[...] = count + 1
        last[...] = x

    traced = trace(fn, symbolic=True, capture_as_const=True)
    traced(Tensor([1.0, 1.0]))
    model = opened(traced.dump)
    assert model.run([5, 6]) == {}
    assert {name: array.tolist() for name, array in model.state_dict().items()} == {"count": [2], "last": [5, 6]}
    traced(Tensor([5.0, 6.0]))
    assert count.item() == 2 and last.tolist() == [5, 6]


def test_draws_go_on_where_the_generator_stands():
    mge.random.seed(5)
    fn = trace(lambda x: x + mge.random.normal(size=(3,)) * F.dropout(x, 0.5), symbolic=True, capture_as_const=True)
    x = Tensor([1.0, 2.0, 3.0])
    fn(x)
    model = opened(fn.dump)
    first = value(model.run(x.numpy()))
    np.testing.assert_array_equal(first, fn(x).numpy())
    again = model.state_dict()["random"]
    second = value(model.run(x.numpy()))
    assert (first != second).any()
    np.testing.assert_array_equal(second, fn(x).numpy())
    model.load_state_dict({"random": again})
    np.testing.assert_array_equal(value(model.run(x.numpy())), second)
    model.load_state_dict({"random": np.array([5, 0, 0, 0], np.int32)})  # as random.seed(5)
    mge.random.seed(5)
    np.testing.assert_array_equal(value(model.run(x.numpy())), fn(x).numpy())


def test_a_generator_of_its_own_is_a_state_of_its_own():
    rng = mge.random.RNG(seed=7)
    fn = trace(lambda x: rng.uniform(size=(2,)) + x * mge.random.uniform(size=(2,)), symbolic=True, capture_as_const=True)
    fn(Tensor([1.0, 1.0]))
    model = opened(fn.dump)
    assert sorted(model.state_dict()) == ["random", "random[1]"]
    np.testing.assert_array_equal(value(model.run([1, 1])), fn(Tensor([1.0, 1.0])).numpy())


def test_keys_of_all_trips_of_a_loop():
    def body(carry, x):
        y = F.dropout(x + carry, 0.5)
        return y, y

    fn = trace(lambda xs: F.scan(body, F.zeros((3,)), xs)[1], symbolic=True, capture_as_const=True)
    xs = Tensor(np.ones((4, 3), np.float32))
    fn(xs)
    model = opened(fn.dump)
    for _ in range(2):
        np.testing.assert_array_equal(value(model.run(xs.numpy())), fn(xs).numpy())


# ---- several functions


def two_functions(**options):
    objects = training()
    train = trace(step, symbolic=True, capture_as_const=True, **options)
    net = objects["net"]
    net.eval()
    predict = trace(lambda image: net(image), capture_as_const=True)
    predict(Tensor(IMAGES[0]))
    net.train()
    call(train, 0, objects)
    return objects, {"step": train, "predict": predict}


def test_functions_of_a_file_see_the_same_state(tmp_path):
    objects, functions = two_functions()
    info = dump_functions(tmp_path / "net.dump", functions)
    assert info["step"].inputs == ["image", "label"] and info["predict"].inputs == ["image"]
    model = GraphInference(tmp_path / "net.dump", function="step")
    predict = model.function("predict")
    assert model.functions == ["step", "predict"]
    before = value(predict.run(IMAGES[1]))
    for i in range(1, 4):
        assert value(model.run(IMAGES[i], LABELS[i])).item() == call(functions["step"], i, objects)
    objects["net"].eval()
    expected = objects["net"](Tensor(IMAGES[1])).numpy()
    np.testing.assert_allclose(value(predict.run(IMAGES[1])), expected, rtol=1e-5, atol=1e-6)
    assert np.abs(before - expected).max() > 1e-3

    model.save(tmp_path / "later.dump")
    later = GraphInference(tmp_path / "later.dump", function="predict")
    np.testing.assert_array_equal(value(later.run(IMAGES[1])), value(predict.run(IMAGES[1])))
    loss = value(later.function("step").run(IMAGES[4], LABELS[4]))
    assert loss == value(model.run(IMAGES[4], LABELS[4]))


class Same(Function):
    def forward(self, x):
        return x

    def backward(self, dy):
        return dy


def gradient(x, dy):
    x = x * 1
    with GradManager().attach([x]) as gm:
        gm.backward(x * 3, dy)
    return x.grad


mge.random.seed(1)  # some weights hardly let a state through
STATE, CELL, LSTM = Tensor(RNG.rand(3, 3).astype(np.float32)), M.RNNCell(3, 3), M.LSTM(3, 3)
# Ways to read a tensor from outside; some call no operation of Python's with it.
WAYS = {
    "an operand": lambda x: STATE * x,
    "a list": lambda x: F.concat([STATE, STATE]),
    "an index": lambda x: STATE[1],
    "detach": lambda x: STATE.detach() * 2,
    "Tensor": lambda x: Tensor(STATE),
    "Parameter": lambda x: Parameter(STATE) * 2,
    "tensor": lambda x: mge.tensor(STATE) * 2,
    "copy": lambda x: F.copy(STATE),
    "to_mkldnn": lambda x: STATE.reshape(1, 1, 3, 3).to_mkldnn() * 1,
    "layouts": lambda x: STATE.to_dense() * 1,
    "itself": lambda x: STATE,
    "a Function": lambda x: Same()(STATE),
    "a gradient": lambda x: gradient(x, STATE),
    "a cell": lambda x: CELL(STATE, STATE),
    "lstm": lambda x: LSTM(F.expand_dims(STATE, 1))[0],
    "attention": lambda x: F.scaled_dot_product_attention(STATE, STATE, STATE),
    "scan: the carry": lambda x: F.scan(lambda c, _: (c * 2 + 1, None), STATE, length=2)[0],
    "scan: rows": lambda x: F.scan(lambda c, row: (c + row, None), F.zeros(3), STATE)[0],
    "scan: read by the body": lambda x: F.scan(lambda c, _: (c + STATE, None), x, length=2)[0],
    "scan: the next carry": lambda x: F.scan(lambda c, _: (STATE, None), x, length=2)[0],
    "scan: y": lambda x: F.scan(lambda c, _: (c, STATE), x, length=2)[1],
    "while_loop": lambda x: F.while_loop(lambda v: v.sum() < 30, lambda v: v * 2 + 1, STATE),
    "while_loop: bounded": lambda x: F.while_loop(lambda v: v.sum() < 30, lambda v: v * 2 + 1, STATE, max_trips=3),
    "while_loop: what the body returns": lambda x: F.while_loop(lambda v: (v != STATE).any(), lambda v: STATE, x),
    "cond: an operand": lambda x: F.cond(x.sum() > 1, lambda v: v * 2, lambda v: v, STATE),
    "cond: a result": lambda x: F.cond(x.sum() > 1, lambda: STATE, lambda: x),
    "cond: the other result": lambda x: F.cond(x.sum() < 1, lambda: x, lambda: STATE),
    "cond: the predicate": lambda x: F.cond((STATE > 4).all().astype("float32").reshape(()), lambda: x, lambda: x * 2),
    "written into another one": lambda x: (lambda v: (v.__setitem__(..., STATE), v)[1])(F.zeros((3, 3)) * x),
    "written into a part": lambda x: (lambda v: (v.__setitem__(0, STATE[1]), v)[1])(x * 1),
    "_reset": lambda x: (lambda v: (v._reset(STATE), v)[1])(x * 1),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_function_sees_what_another_one_writes_however_it_reads(way):
    def write(x):
        STATE[...] = x
        return x * 1

    before, x, new = STATE.numpy(), Tensor(RNG.rand(3, 3).astype(np.float32) + 1), Tensor(RNG.rand(3, 3).astype(np.float32) + 5)
    want = []
    for state in (before, new):
        STATE[...] = state
        want.append(WAYS[way](x).numpy())
    STATE[...] = before
    functions = {"read": trace(WAYS[way], record_only=True), "write": trace(write, record_only=True)}
    for each in functions.values():
        each(x)
    file = io.BytesIO()
    inputs = dump_functions(file, functions)["read"].inputs
    read = GraphInference(io.BytesIO(file.getvalue()), function="read")
    found = [value(read.run(*[x.numpy()] * len(inputs)))]
    read.function("write").run(new.numpy())
    found.append(value(read.run(*[x.numpy()] * len(inputs))))
    for ours, theirs in zip(found, want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert np.abs(found[0] - found[1]).max() > 0.1


def test_weights_are_in_a_file_once():
    w = Parameter(np.ones((64, 64), np.float32))

    def first(x):
        w[...] = w + x
        return w.sum()

    functions = {"first": trace(first, record_only=True), "second": trace(lambda x: w @ x, record_only=True)}
    for fn in functions.values():
        fn(Tensor(np.ones((64, 64), np.float32)))
    file = io.BytesIO()
    info = dump_functions(file, functions)
    assert info["first"].tot_bytes == len(file.getvalue()) < 1.5 * w.numpy().nbytes
    model = GraphInference(io.BytesIO(file.getvalue()))
    model.run(np.ones((64, 64), np.float32))
    assert value(model.function("second").run(np.eye(64, dtype=np.float32))).mean() == 2


def test_what_no_function_updates_stays_a_constant():
    scale = Tensor([3.0])
    fn = trace(lambda x: x * scale, capture_as_const=True)
    fn(Tensor([1.0]))
    file = io.BytesIO()
    info = dump_functions(file, {"scaled": fn}, user_info={"note": "text"})
    model = GraphInference(io.BytesIO(file.getvalue()))
    assert info["scaled"].params == ["scale"] and model.state_dict() == {}
    assert value(model.run([2])) == 6


def test_a_network_edits_a_function_without_state_of_its_own():
    _, functions = two_functions()
    file = io.BytesIO()
    dump_functions(file, {"predict": functions["predict"], "step": functions["step"]})
    model = GraphInference(io.BytesIO(file.getvalue()))
    net = Network.load(io.BytesIO(file.getvalue()))
    np.testing.assert_allclose(value(net.infer(IMAGES[0])), value(model.run(IMAGES[0])), rtol=1e-5)
    assert "fc.weight" in load_model(io.BytesIO(file.getvalue())).params
    with pytest.raises(RuntimeError, match="replaces the state conv.weight"):
        Network.load(io.BytesIO(_bytes(functions["step"].dump)))


def _bytes(write):
    file = io.BytesIO()
    write(file)
    return file.getvalue()


# ---- refusals


def test_an_argument_that_is_updated_in_place_is_refused():
    def fn(x):
        x += 1
        return x * 2

    traced = trace(fn, capture_as_const=True)
    argument = Tensor([1.0])
    traced(argument)
    with pytest.raises(RuntimeError, match=r"updates its argument, a f32\[1\] tensor, in place at .*test_dump_state.py:\d+"):
        traced.dump(io.BytesIO())


def test_two_states_of_one_value_are_refused():
    a, b = Parameter([1.0]), Parameter([1.0])
    b._reset(a)

    def fn(x):
        a[...] = a + x
        b[...] = b - x

    traced = trace(fn, symbolic=True, capture_as_const=True)
    traced(Tensor([1.0]))
    with pytest.raises(ValueError, match="update a or another one, which were one value"):
        traced.dump(io.BytesIO())


def test_an_argument_that_is_a_state_by_chance_is_refused():
    last = Tensor([1.0])

    def fn(x):
        y = x - last
        last[...] = x * 1
        return y

    x = Tensor([1.0])
    last._reset(x)
    traced = trace(fn, symbolic=True, capture_as_const=True)
    traced(x)
    with pytest.raises(RuntimeError, match="one value as an argument and as a state"):
        traced.dump(io.BytesIO())


def test_batch_statistics_without_gradients_are_refused():
    net = Net()
    fn = trace(lambda x: net(x), capture_as_const=True)
    fn(Tensor(IMAGES[0]))
    with pytest.raises(RuntimeError, match="statistics of each batch.*\n.*\n  fix: call eval"):
        fn.dump(io.BytesIO())


def test_states_are_checked():
    model = opened(two_functions()[1]["step"].dump)
    with pytest.raises(KeyError, match="no state 'rate'; it has .*lr"):
        model.load_state_dict({"rate": 1})
    with pytest.raises(ValueError, match=r"shape \(2,\) was given for the state lr"):
        model.load_state_dict({"fc.bias": np.zeros(3), "lr": [1, 2]})
    assert model.state_dict()["fc.bias"].any()
    with pytest.raises(KeyError, match="no function 'train'"):
        model.function("train")


def test_a_state_that_has_another_shape_now_is_refused():
    w = Parameter([1.0, 2.0])

    def fn(x):
        w[...] = w + x

    traced = trace(fn, symbolic=True, capture_as_const=True)
    traced(Tensor([1.0, 1.0]))
    w._reset(Tensor([1.0]))
    with pytest.raises(ValueError, match=r"the state w is f32\[1\] now, .* f32\[2\]"):
        traced.dump(io.BytesIO())


def test_functions_are_checked():
    fn = trace(lambda x: x, capture_as_const=True)
    with pytest.raises(ValueError, match="has not been called"):
        dump_functions(io.BytesIO(), {"f": fn})
    fn(Tensor([1.0]))
    with pytest.raises(ValueError, match="no function"):
        dump_functions(io.BytesIO(), {})
    with pytest.raises(TypeError, match="'g' is a function"):
        dump_functions(io.BytesIO(), {"g": lambda x: x})
    with pytest.raises(ValueError, match="arg_names names g, the functions are f"):
        dump_functions(io.BytesIO(), {"f": fn}, arg_names={"g": ["x"]})
    assert dump_functions(io.BytesIO(), {"f": fn}, arg_names={"f": ["a"]}, output_names={"f": ["b"]})["f"].outputs == ["b"]
