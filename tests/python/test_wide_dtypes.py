"""float64 and int64: every op computes them in 64 bits, eagerly and by each compiler, or refuses them with a way out."""

import re
from contextlib import contextmanager

import numpy as np
import pytest
from test_ops_battery import ALL, ELEMENTWISE, as_tuple, same_bits

import megengine as mge
import megengine.functional as F
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.core import OperandError, ops
from megengine.jit import trace
from megengine.utils.comp_graph_tools import GraphInference
from megengine.utils.dlpack import from_dlpack

BACKENDS = pytest.mark.parametrize("backend", ["MLIR", "HALIDE", "NVRTC"])
REFUSES = r"(float64|int64|f64|i64)[\s\S]*fix:"
BIG = 2**53 + 1  # which no double holds
# What moves, counts or orders elements is exact in 64 bits; these may not refuse.
COMPUTE = {
    "reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_mean", "argmax", "argmin", "sort", "topk", "cumsum", "index_get", "index_set", "index_add",
    "gather", "scatter", "scatter_add", "scatter_reduce", "concat", "slice", "slice_set", "pad", "pad_grad", "transpose", "reshape", "broadcast_to", "mask_select", "relayout",
    "identity", "matmul", "conv", "conv_backward_data", "conv_backward_filter",
} | {row.op for row in ELEMENTWISE}  # fmt: skip


TYPED = {"scan", "while_loop", "cond"}  # their graphs are written for float32


def on_gpu():
    return mge.tensor(0)._device_name.startswith("gpu")


@pytest.fixture(autouse=True)
def _backend(request, monkeypatch):
    backend = request.node.callspec.params.get("backend") if hasattr(request.node, "callspec") else None
    if backend == "NVRTC" and not on_gpu():
        pytest.skip("NVRTC compiles for GPUs")
    if backend:
        monkeypatch.setenv("MGB_JIT_BACKEND", backend)


def wide(row):
    """The row's floats as float64, or where it has none its int32 as int64; None where it has neither."""
    if row.op in TYPED:
        return None
    for narrow, dtype in ((np.float32, "float64"), (np.int32, "int64")):
        if any(x.dtype == narrow for x in row.inputs):
            return [Tensor(x, dtype=dtype) if x.dtype == narrow else Tensor(x) for x in row.inputs]
    return None


ROWS = pytest.mark.parametrize("row", [r for r in ALL if r.reference and wide(r)], ids=repr)


@contextmanager
def refusing(allowed):
    """Skips where an op refuses 64 bits, as it may."""
    try:
        yield
    except (TypeError, OperandError) as error:
        assert allowed and re.search(REFUSES, str(error)), error
        pytest.skip(str(error).partition("\n")[0])


def call(row, inputs):
    with refusing(on_gpu() or row.op not in COMPUTE):
        return as_tuple(row.call(*inputs))


@ROWS
def test_the_value_is_numpys_or_refused(row):
    inputs = wide(row)
    got = call(row, inputs)
    wanted = as_tuple(row.reference(*(x.numpy() for x in inputs)))
    for value, want in zip(got, wanted):
        if want is not None:
            tolerance = 1e-12 if value.dtype == np.float64 else row.tolerance
            np.testing.assert_allclose(value.numpy(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("row", [r for r in ALL if r.reference and r.grad and wide(r)], ids=repr)
def test_the_gradient_is_that_of_differences(row):
    inputs, rng = wide(row), np.random.default_rng(3)
    weights = Tensor(rng.normal(size=call(row, inputs)[0]._tuple_shape), dtype="float64")
    with refusing(on_gpu()), GradManager().attach([inputs[i] for i in row.grad]) as gm:
        gm.backward(as_tuple(row.call(*inputs))[0], weights)
    exact = [x.numpy() for x in inputs]
    for i in row.grad:
        direction = rng.normal(size=exact[i].shape)
        moved = [[x + s * 1e-6 * direction if k == i else x for k, x in enumerate(exact)] for s in (1, -1)]
        up, down = ((weights.numpy() * as_tuple(row.reference(*at))[0]).sum() for at in moved)
        assert inputs[i].grad.dtype == np.float64
        np.testing.assert_allclose((inputs[i].grad.numpy() * direction).sum(), (up - down) / 2e-6, rtol=1e-6, atol=1e-6)


@BACKENDS
@ROWS
def test_generated_kernels_have_the_eager_bits(row, backend):
    inputs = wide(row)
    call(row, inputs)

    def chain(*xs):
        y = as_tuple(row.call(*xs))[0]
        return y if y.dtype == np.bool_ else ops.identity(y * 3 + 1)

    want = chain(*inputs).numpy()
    traced = trace(chain, symbolic=True, opt_level=3)
    for _ in range(2):
        got = traced(*inputs).numpy()
        if row.op in ("reduce_sum", "reduce_mean", "reduce_prod"):  # long rows are cut by the eager kernel
            np.testing.assert_allclose(got, want, rtol=1e-14)
        else:
            assert same_bits(got, want)


SPECIAL = np.array([0, -0.0, 1, -1, 0.5, 1e300, -1e300, 5e-324, np.inf, -np.inf, np.nan, 2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 2.0**53 + 2])
INTEGERS = np.array([0, 1, -1, 2, -2, 7, -7, BIG, -BIG, 2**31, -(2**31), 2**63 - 1, -(2**63), 2**62, 3 * 2**40, 255])


@BACKENDS
def test_special_values_by_every_way(backend):
    def reals(x, y):
        return [x + y, x * y, x / y, x - y, F.maximum(x, y), F.minimum(x, y), F.floor(x), F.round(x), abs(x), -x, x < y, x == y, x.astype("int64"), x.astype("int32"), x.astype("float32"), x % y]

    def integers(a, b):
        return [a + b, a * b, a - b, a // b, a % b, F.maximum(a, b), ops.bit_and(a, b), ops.bit_or(a, b), ops.bit_xor(a, b), ops.bit_not(a), a << b, a >> b, abs(a), -a, a < b, a == b, a.astype("int32"), a.astype("float64"), a.astype("float32")]

    for function, values, dtype in ((reals, SPECIAL, "float64"), (integers, INTEGERS, "int64")):
        a, b = (Tensor(x.reshape(-1).copy(), dtype=dtype) for x in np.meshgrid(values, values))
        wanted = [x.numpy() for x in function(a, b)]
        for got, want in zip(trace(function, symbolic=True, opt_level=3)(a, b), wanted, strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got.numpy(), want)


def test_integers_are_numpys():
    a, b = (x.reshape(-1) for x in np.meshgrid(INTEGERS, INTEGERS))
    x, y = Tensor(a, dtype="int64"), Tensor(b, dtype="int64")
    with np.errstate(all="ignore"):
        for got, want in ((x + y, a + b), (x * y, a * b), (x - y, a - b), (ops.bit_xor(x, y), a ^ b), (F.maximum(x, y), np.maximum(a, b)), (x < y, a < b)):
            np.testing.assert_array_equal(got.numpy(), want)
        some = (b != 0) & (b != -1)  # NumPy has no quotient of the least number
        np.testing.assert_array_equal((x // y).numpy()[some], a[some] // b[some])
        np.testing.assert_array_equal((x % y).numpy()[some], a[some] % b[some])
        np.testing.assert_array_equal((x // y).numpy()[b == 0], 0)
        np.testing.assert_array_equal((x // y).numpy()[b == -1], -a[b == -1])
        np.testing.assert_array_equal(x.astype("int32").numpy(), a.astype("int32"))


def test_integers_add_up_at_places():
    x, values, places = np.zeros(3, np.int64), INTEGERS[:8], np.array([0, 1, 2, 0, 0, 1, 2, 2])
    np.add.at(x, places, values)
    if on_gpu():
        with pytest.raises(TypeError, match=REFUSES):
            ops.scatter_add(Tensor([0], dtype="int64"), Tensor([0]), Tensor([1], dtype="int64"), axis=0)
        return
    zero, index, value = Tensor(np.zeros(3), dtype="int64"), Tensor(places, dtype="int64"), Tensor(values, dtype="int64")
    np.testing.assert_array_equal(ops.scatter_add(zero, index, value, axis=0).numpy(), x)
    np.testing.assert_array_equal(ops.index_add(zero, value, index, axes=(0,)).numpy(), x)


@BACKENDS
@pytest.mark.parametrize(("a", "b"), [((5, 7), (7, 3)), ((2, 1, 4, 6), (3, 6, 40)), ((1, 9), (9, 1)), ((3, 0), (0, 2))])
def test_products_of_integers_wrap(backend, a, b):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-(2**63), 2**63 - 1, shape) for shape in (a, b))
    if on_gpu():
        with pytest.raises(TypeError, match=REFUSES):
            ops.matmul(Tensor(x, dtype="int64"), Tensor(y, dtype="int64")).numpy()
        return
    for turned in ((0, 0), (1, 0), (0, 1), (1, 1)):
        given = [Tensor(np.ascontiguousarray(each.swapaxes(-1, -2)) if turn else each, dtype="int64") for each, turn in zip((x, y), turned)]

        def product(x, y, turned=turned):
            return ops.matmul(x, y, transpose_a=turned[0], transpose_b=turned[1]) + 1

        for function in (product, trace(product, symbolic=True, opt_level=3)):
            np.testing.assert_array_equal(function(*given).numpy(), x @ y + 1)


def test_where_64_bits_come_from():
    assert mge.tensor([1, 2]).dtype == np.int32 and mge.tensor(np.zeros(2)).dtype == np.float32  # as ever
    assert mge.tensor([BIG, 1], dtype="int64").tolist() == [BIG, 1]
    assert mge.tensor(BIG, dtype="int64").item() == BIG and (mge.tensor([0], dtype="int64") + BIG).item() == BIG
    assert F.zeros(2, dtype="float64").dtype == np.float64 and F.full(2, BIG, dtype="int64").tolist() == [BIG, BIG]
    assert from_dlpack(np.array([BIG])).tolist() == [BIG] and from_dlpack(np.array([0.1]), copy=False).item() == 0.1
    assert mge.tensor([0.1], dtype="float64").item() == 0.1
    with pytest.raises(OverflowError, match="does not fit int64"):
        mge.tensor([2**63], dtype="int64")
    with pytest.raises(OverflowError, match="does not fit int64"):
        mge.tensor(np.array([1e19]), dtype="int64")


@pytest.mark.parametrize("a, b, wanted", [("int64", "int32", "int64"), ("float64", "float32", "float64"), ("float64", "int64", "float64"), ("int64", "float32", "float32"), ("float64", "float16", "float64"), ("float64", "bool", "float64")])
def test_promotion(a, b, wanted):
    for x, y in ((a, b), (b, a)):
        assert (Tensor([1], dtype=x) + Tensor([1], dtype=y)).dtype.name == wanted
    assert (Tensor([1], dtype="int64") + 2).dtype == np.int64 and (Tensor([1], dtype="float64") * 0.5).dtype == np.float64


def test_places_of_int64():
    x = Tensor(np.arange(12.0).reshape(3, 4))
    place = Tensor([2, 0], dtype="int64")
    np.testing.assert_array_equal(x[place].numpy(), x.numpy()[[2, 0]])
    np.testing.assert_array_equal(F.nn.embedding(place, x).numpy(), x.numpy()[[2, 0]])
    loss = F.nn.cross_entropy(x, Tensor([1, 0, 3], dtype="int64"))
    np.testing.assert_array_equal(loss.numpy(), F.nn.cross_entropy(x, Tensor([1, 0, 3])).numpy())
    with pytest.raises(IndexError):
        x[Tensor([2**32], dtype="int64")].numpy()  # not row 0


IN_A_GRAPH = {  # by where the number stands
    "the graph": lambda x: (x + BIG) * 2 - BIG,
    "a branch": lambda x: F.cond(x.sum() > 0, lambda y: (y + BIG) * 2 - BIG, lambda y: y, x),
    "a trip": lambda x: F.scan(lambda sums, _: (sums + BIG, None), x, F.arange(1))[0],
    "the end of a loop": lambda x: F.while_loop(lambda y: y.sum() < BIG, lambda y: y + BIG, x),
}


@pytest.mark.parametrize("function", IN_A_GRAPH.values(), ids=IN_A_GRAPH)
@pytest.mark.parametrize("options", [{"opt_level": 3}, {"capture_as_const": True}], ids=str)
def test_a_constant_that_no_double_holds(function, options, tmp_path):
    x = Tensor([1, 2, 3], dtype="int64")
    wanted = function(x).tolist()
    f = trace(function, symbolic=True, **options)
    for _ in range(3):
        assert f(x).tolist() == wanted
    if "capture_as_const" in options:
        f.dump(str(tmp_path / "net"), arg_names=["x"])
        (got,) = GraphInference(str(tmp_path / "net")).run(inp_dict={"x": x.numpy()}).values()
        assert got.tolist() == wanted


def test_a_dump_keeps_them(tmp_path):
    @trace(symbolic=True, capture_as_const=True)
    def f(x, y):
        return x * BIG + 1, y / 3 + 0.1

    x, y = Tensor([3, 2], dtype="int64"), Tensor([0.1, 5.0], dtype="float64")
    wanted = f(x, y)
    f.dump(str(tmp_path / "net"), arg_names=["x", "y"])
    got = list(GraphInference(str(tmp_path / "net")).run(inp_dict={"x": x.numpy(), "y": y.numpy()}).values())
    for a, b in zip(got, wanted, strict=True):
        assert same_bits(np.asarray(a), b.numpy())


@pytest.mark.parametrize("function", [F.softmax, lambda x: F.nn.max_pool2d(x[None, None], 2), lambda x: F.nn.layer_norm(x, (2,), False)])
def test_what_is_not_computed_is_refused(function):
    with pytest.raises(TypeError, match=REFUSES):
        function(Tensor(np.eye(2), dtype="float64"))
