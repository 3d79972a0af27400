"""trace.dump and GraphInference: what is written, and what is refused."""

import io
import json
import os
import re

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.core import ops
from megengine.jit import TraceError, exclude_from_trace, trace
from megengine.utils.comp_graph_tools import GraphInference, load_model, metadata_of

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def recorded(body, *args, **options):
    f = trace(body, capture_as_const=True, **options)
    f(*(mge.tensor(a) for a in args))
    return f


def dumped(f, **options):
    file = io.BytesIO()
    info = f.dump(file, **options)
    return info, file.getvalue()


def run(data, *args, **named):
    return GraphInference(io.BytesIO(data)).run(*args, inp_dict=named or None)


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.fc = M.Conv2d(3, 4, 3), M.BatchNorm2d(4), M.Linear(4 * 36, 5)

    def forward(self, x):
        return self.fc(F.flatten(F.relu(self.bn(self.conv(x))), 1))


# ---- round trips


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("optimize", [False, True])
def test_a_dumped_network_computes_what_the_traced_one_does(symbolic, optimize):
    net = Net()
    net.eval()
    x = np.random.RandomState(0).rand(2, 3, 8, 8).astype(np.float32)
    f = recorded(lambda x: net(x), x, symbolic=symbolic)
    _, data = dumped(f, optimize_for_inference=optimize)
    (value,) = run(data, x).values()
    np.testing.assert_allclose(value, net(mge.tensor(x)).numpy(), rtol=1e-6)


def test_a_path_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "model.mge"
    info = recorded(lambda x: x + 1, X).dump(path)
    assert path.stat().st_size == info.tot_bytes
    assert [p.name for p in tmp_path.iterdir()] == ["model.mge"]
    (value,) = GraphInference(path).run(X).values()
    np.testing.assert_array_equal(value, X + 1)


def test_append_keeps_what_the_path_holds(tmp_path):
    path = tmp_path / "model.mge"
    recorded(lambda x: x + 1, X).dump(path)
    recorded(lambda x: x * 3, X).dump(path, append=True)
    with open(path, "rb") as stream:
        first, second = GraphInference(stream), GraphInference(stream)
    np.testing.assert_array_equal(*first.run(X).values(), X + 1)
    np.testing.assert_array_equal(*second.run(X).values(), X * 3)


def test_record_only_computes_nothing_and_can_be_dumped():
    f = trace(lambda x: F.exp(x), record_only=True)
    y = f(mge.tensor(X))
    assert y.shape == (2, 3)
    with pytest.raises((RuntimeError, ValueError)):
        y.numpy()
    with pytest.raises((RuntimeError, ValueError)):
        (y + 1).numpy()
    f(mge.tensor(X))
    _, data = dumped(f)
    np.testing.assert_allclose(*run(data, X).values(), np.exp(X), rtol=1e-6)


def test_a_result_that_is_an_argument_or_a_constant_is_kept():
    w = mge.tensor([1.0, 2.0])
    _, data = dumped(recorded(lambda x: (x, w, w * 2), X), output_names=["x", "w", "ww"])
    result = run(data, X)
    np.testing.assert_array_equal(result["x"], X)
    np.testing.assert_array_equal(result["w"], [1, 2])
    np.testing.assert_array_equal(result["ww"], [2, 4])


def test_an_unused_argument_stays_an_input():
    _, data = dumped(recorded(lambda x, y: x * 2, X, X), arg_names=["x", "y"])
    np.testing.assert_array_equal(*run(data, x=X, y=X).values(), X * 2)


def test_values_of_constants_read_inside_are_baked_in():
    w = mge.tensor(X)

    def body(x):
        with exclude_from_trace():
            pass
        return x * w.sum().item()

    f = recorded(body, X)
    _, data = dumped(f)
    np.testing.assert_array_equal(*run(data, X).values(), X * X.sum())


# ---- capture_as_const


def test_tensors_from_outside_are_constants_that_may_not_change():
    w = mge.tensor(X)
    f = recorded(lambda x: x * w, X)
    np.testing.assert_array_equal(f(mge.tensor(X + 1)).numpy(), (X + 1) * X)
    w += 1
    with pytest.raises(TraceError, match="constant"):
        f(mge.tensor(X))


def test_arguments_may_change():
    f = recorded(lambda x, y: x - y, X, X)
    np.testing.assert_array_equal(f(mge.tensor(X), mge.tensor(X * 0)).numpy(), X)


# ---- names


def test_inputs_are_named_by_arg_names_own_names_keywords_or_numbers():
    f = trace(lambda x, y, *, mask: x + y + mask, capture_as_const=True)
    f(mge.tensor(X, name="image"), mge.tensor(X), mask=mge.tensor(X))
    assert dumped(f)[0].inputs == ["image", "arg_1", "mask"]
    assert dumped(f, arg_names=["a", "b"])[0].inputs == ["a", "b", "mask"]


def test_outputs_are_named_by_keys_or_by_what_makes_them():
    assert dumped(recorded(lambda x: {"b": x + 1, "a": x * 2}, X))[0].outputs == ["a", "b"]
    assert dumped(recorded(lambda x: (F.relu(x), x + 1, x + 2), X))[0].outputs == [
        "RELU",
        "ADD[0]",
        "ADD[1]",
    ]


def test_a_name_that_the_program_gave_is_kept():
    def body(x):
        y = x + 1
        y.name = "shifted"
        return y

    assert dumped(recorded(body, X))[0].outputs == ["shifted"]


def test_operators_and_parameters_have_the_path_of_their_module():
    class Outer(M.Module):
        def __init__(self):
            super().__init__(name="outer")
            self.fc = M.Linear(3, 2)

        def forward(self, x):
            return self.fc(x)

    net = Outer()
    info, data = dumped(recorded(lambda x: net(x), X), keep_opr_name=True, keep_param_name=True)
    assert info.outputs == ["outer.fc.ADD"]
    assert info.params == ["outer.fc.weight", "outer.fc.bias"]
    assert "outer.fc.MatrixMul" in load_model(io.BytesIO(data)).node_names


def test_tensors_that_no_module_of_their_own_reads_have_their_path():
    class Tied(M.Module):
        def __init__(self):
            super().__init__()
            self.table = M.Embedding(5, 3)  # is never called
            self.scales = [M.Linear(2, 3), {"last": M.Linear(2, 3, bias=False)}]

        def forward(self, x):
            return F.matmul(x, self.table.weight, transpose_b=True), F.matmul(x, self.scales[0].weight), F.matmul(x, self.scales[1]["last"].weight)

    net = Tied()
    paths = ["table.weight", "scales.0.weight", "scales.1.last.weight"]
    assert dumped(recorded(net, X))[0].params == paths
    net.name = "net"
    assert dumped(recorded(lambda x: net(x), X))[0].params == [f"net.{path}" for path in paths]


def test_names_but_those_of_parameters_are_left_out_when_not_asked_for():
    net = M.Linear(3, 2)
    info, data = dumped(recorded(lambda x: net(x), X), keep_var_name=0)
    model = load_model(io.BytesIO(data))
    assert info.outputs == ["output_0"] and info.params == ["weight", "bias"]
    assert not any("MatrixMul" in name for name in model.node_names)


# ---- options


def test_the_report_tells_sizes_and_a_hash_of_the_content():
    w = mge.tensor(X)
    f = recorded(lambda x: x * w, X)
    (info, data), (again, _) = dumped(f), dumped(f)
    assert info._fields == (
        "nr_opr",
        "tot_bytes",
        "tensor_value_bytes",
        "content_hash",
        "inputs",
        "outputs",
        "params",
    )
    assert info.tot_bytes == len(data) and info.tensor_value_bytes == X.nbytes and info.nr_opr == 3
    assert info.content_hash == again.content_hash


def test_metadata_holds_user_info_and_options():
    _, data = dumped(
        recorded(lambda x: x + 1, X), user_info={"classes": ["a"]}, enable_io16xc32=True
    )
    assert metadata_of(load_model(io.BytesIO(data))) == {
        "user_info": {"classes": ["a"]},
        "graph_modified": False,
        "optimized_for_inference": True,
        "enable_fuse_grain": True,
        "enable_io16xc32": True,
    }
    _, data = dumped(recorded(lambda x: x + 1, X), enable_metadata=False)
    assert metadata_of(load_model(io.BytesIO(data))) is None


def test_io16xc32_makes_outputs_float16():
    _, data = dumped(recorded(lambda x: F.exp(x) + 1, X), enable_io16xc32=True)
    (value,) = run(data, X).values()
    assert value.dtype == np.float16
    np.testing.assert_allclose(value, np.exp(X) + 1, rtol=2e-3)


def test_scalar_inputs_are_stored_as_vectors_of_one():
    _, data = dumped(recorded(lambda x: x * 2, np.float32(3)))
    (value,) = run(data, np.float32([4])).values()
    assert value.shape == (1,) and value[0] == 8


def test_strip_info_lists_operators_and_dtypes(tmp_path):
    path = tmp_path / "strip.json"
    f = recorded(lambda x: F.relu(x), X)
    dumped(f, strip_info_file=str(path))
    assert json.loads(path.read_text())["opr_types"] == ["RELU"]
    dumped(f, strip_info_file=str(path), append_json=True)
    assert [row["dtypes"] for row in json.loads(path.read_text())] == [["float32"], ["float32"]]


def test_input_data_embeds_cases_with_their_results(tmp_path):
    from megengine.jit.cases import read_cases

    np.save(tmp_path / "x.npy", X)
    _, data = dumped(
        recorded(lambda x: x + 1, X),
        input_data=[str(tmp_path / "x.npy"), "#rand(0, 1)"],
        silent=True,
    )
    cases = read_cases(load_model(io.BytesIO(data)))
    np.testing.assert_array_equal(cases["case0.expect.ADD"], X + 1)
    assert cases["case1.input.arg_0"].max() <= 1
    with pytest.raises(ValueError, match="#rand"):
        dumped(recorded(lambda x: x + 1, X), input_data="#rand(a)")


@pytest.mark.filterwarnings("ignore:dump. dump_format")
@pytest.mark.parametrize("dump_format", [None, "FBS", "FBS_V2"])
def test_every_format_round_trips(dump_format):
    _, data = dumped(recorded(lambda x: x + 1, X), dump_format=dump_format)
    np.testing.assert_array_equal(*run(data, X).values(), X + 1)


# ---- refusals


def test_dump_needs_a_record_with_constants():
    f = trace(lambda x: x + 1)
    f(mge.tensor(X))
    with pytest.raises(ValueError, match="capture_as_const"):
        dumped(f)
    with pytest.raises(ValueError, match="has not been called"):
        dumped(trace(lambda x: x + 1, capture_as_const=True))


@pytest.mark.parametrize(
    "body, options, error, words",
    [
        (lambda x: None, {}, ValueError, "without return values cannot be dumped"),
        (lambda x: [x, [x]], {}, TypeError, "flat sequence"),
        (lambda x: x + 1, {"arg_names": ["a", "b"]}, ValueError, "wrong number of arg_names, should be 1 values"),
        (lambda x: x + 1, {"output_names": ["a", "b"]}, ValueError, "wrong number of output_names, should be 1 values"),
        (lambda x: {"y": x + 1}, {"output_names": ["a"]}, TypeError, "mapping"),
        (lambda x: x + 1, {"enable_magic": True}, ValueError, "enable_magic"),
        (lambda x: x + 1, {"dump_format": "ONNX"}, ValueError, "FBS_V2"),
    ],
)
def test_what_cannot_be_dumped_is_said(body, options, error, words):
    with pytest.raises(error, match=words):
        dumped(recorded(body, X), **options)


def test_positional_arguments_must_be_tensors():
    with pytest.raises(AssertionError):
        trace(lambda x, n: x + n, capture_as_const=True)(mge.tensor(X), 1)


@pytest.mark.parametrize("cut", [0, 10, 40, -1])
def test_a_damaged_file_is_an_error_with_its_name(tmp_path, cut):
    path = tmp_path / "model.mge"
    recorded(lambda x: x + 1, X).dump(path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(RuntimeError, match="model.mge"):
        GraphInference(path)


@pytest.mark.parametrize("user_info", [{"a": (1, 2), 3: [b"x", {4}]}, [1.5, None, {"b": True}], float("inf")])
def test_user_info_comes_back(user_info):
    _, data = dumped(recorded(lambda x: x + 1, X), user_info=user_info)
    model = load_model(io.BytesIO(data))
    assert json.loads(model.metadata)["graph_modified"] is False
    assert metadata_of(model)["user_info"] == user_info


def test_user_info_may_hold_arrays_but_no_code():
    _, data = dumped(recorded(lambda x: x + 1, X), user_info={"mean": X})
    np.testing.assert_array_equal(metadata_of(load_model(io.BytesIO(data)))["user_info"]["mean"], X)
    with pytest.raises(TypeError, match="user_info cannot be written"):
        dumped(recorded(lambda x: x + 1, X), user_info=M.Linear(1, 1))


def test_a_file_of_schema_1_is_read():
    path = os.path.join(os.path.dirname(__file__), "files", "schema1.mge")
    model = load_model(path)
    assert metadata_of(model)["user_info"] == {"classes": ["a", "b"], "pair": (1, 2)} and model.params == ["w", "b"]
    np.testing.assert_array_equal(GraphInference(path).run(np.ones((2, 3)))["y"], [[7, 0], [7, 0]])


def test_a_file_of_schema_2_is_read():
    path = os.path.join(os.path.dirname(__file__), "files", "schema2.mge")
    np.testing.assert_array_equal(GraphInference(path).run(np.float32([-1, 2, -3, 4]))["y"], [0, 2, 0, 4])


def test_a_file_of_schema_3_is_read():
    path = os.path.join(os.path.dirname(__file__), "files", "schema3.mge")
    step = GraphInference(path, function="step")
    assert step.run(np.ones(4, "float32")).popitem()[1] == 10
    np.testing.assert_array_equal(step.function("predict").run(np.ones(4, "float32")).popitem()[1], [0.5, 1.5, 2.5, 3.5])


def test_a_file_of_a_later_schema_tells_to_update():
    _, data = dumped(recorded(lambda x: x + 1, X))
    with pytest.raises(RuntimeError, match="schema 9, this version reads those up to 5\n  fix: update megjit"):
        GraphInference(io.BytesIO(data[:8] + b"\x09" + data[9:]))


@pytest.mark.parametrize("text", [b"{", b"[1]", b'{"user_info_values": {"global": "os.system"}}', b'{"user_info_values": {"tensor": "x"}}'])
def test_damaged_metadata_is_refused(text):
    model = load_model(io.BytesIO(dumped(recorded(lambda x: x + 1, X))[1]))
    model.metadata = text
    with pytest.raises(RuntimeError):
        metadata_of(model)


def test_metadata_that_names_code_is_refused():
    import os
    import pickle

    model = load_model(io.BytesIO(dumped(recorded(lambda x: x + 1, X))[1]))
    model.metadata = pickle.dumps(os.system)
    with pytest.raises(RuntimeError):
        metadata_of(model)


@pytest.mark.parametrize(
    "args, named", [((), {}), ((X, X), {}), ((X,), {"z": X}), ((X,), {"arg_0": X})]
)
def test_inputs_must_be_exactly_those_of_the_model(args, named):
    _, data = dumped(recorded(lambda x: x + 1, X))
    with pytest.raises(AssertionError, match="arg_0"):
        run(data, *args, **named)


def test_another_shape_or_output_is_refused():
    _, data = dumped(recorded(lambda x: x + 1, X))
    with pytest.raises(ValueError, match="shape"):
        run(data, X[:1])
    with pytest.raises(KeyError, match="ADD"):
        GraphInference(io.BytesIO(data), outputs=["other"])


def test_some_outputs_can_be_asked_for():
    _, data = dumped(recorded(lambda x: {"a": x + 1, "b": x * 2}, X))
    assert list(GraphInference(io.BytesIO(data), outputs=["b"]).run(X)) == ["b"]


def test_a_file_may_have_any_bytes_in_its_name(tmp_path):
    path = os.path.join(tmp_path, "caf\udce9.mge")
    recorded(lambda x: x * 2, X).dump(path)
    np.testing.assert_array_equal(*GraphInference(path).run(X).values(), X * 2)
    with open(path, "r+b") as file:
        file.truncate(40)
    with pytest.raises(RuntimeError, match=re.escape("caf\\udce9.mge")):
        GraphInference(path)


def test_an_attribute_whose_name_is_no_text_is_unknown():
    with pytest.raises(TypeError, match="reshape: unknown attribute"):
        ops.reshape(mge.tensor(X), shape=(-1,), **{"caf\udce9": 1})
