"""core.tensor.megbrain_graph: graphs that a program builds, compiles and feeds by hand."""

import io

import numpy as np
import pytest

import megengine.functional as F
from megengine import Tensor
from megengine.core.tensor import megbrain_graph as G
from megengine.jit import trace
from megengine.utils.comp_graph_tools import GraphInference, get_dep_vars, replace_vars

X = np.float32([[-1, 2], [3, -4]])


@pytest.fixture
def file():
    double = trace(lambda x: (F.relu(x) * 2, x.sum()), capture_as_const=True)
    double(Tensor(X))
    file = io.BytesIO()
    double.dump(file, arg_names=["x"], output_names=["y", "s"])
    file.seek(0)
    return file


def test_a_loaded_graph_is_fed_and_read(file):
    loaded = G.load_graph(file)
    assert list(loaded.output_vars_dict) == ["y", "s"] and loaded.output_vars_list[0].name == "y"
    y, s = (kind(var) for kind, var in zip((G.OutputNode, G.ValueOutputNode), loaded.output_vars_list))
    run = loaded.graph.compile(*y.outputs, *s.outputs)
    with pytest.raises(RuntimeError, match="has not run"):
        y.get_value()
    run.execute(X).wait()
    assert isinstance(y.get_value(), Tensor) and y.get_value().tolist() == [[0, 4], [6, 0]]
    assert np.asarray(s.get_value()).item() == 0


def test_inputs_are_set_before_each_run():
    graph = G.Graph()
    x = G.InputNode(dtype="float32", shape=(2, 2), graph=graph)
    seen = []
    shifted = x.outputs[0] + graph.make_const([10.0, 20.0], dtype="float32")
    (var,) = G.output_callback(lambda value: seen.append(value.tolist()), shifted)
    attr = G.AttrOutputNode(shifted)
    run = graph.compile(var)
    for value in (Tensor(X), -X):
        x.set_value(value)
        run()
    assert seen == [[[9, 22], [13, 16]], [[11, 18], [7, 24]]]
    assert attr.get_value().shape == (2, 2) and attr.get_value().dtype == np.float32
    with pytest.raises(RuntimeError, match="set_value"):
        run.execute()
    for known in ({"dtype": "float32"}, {"shape": (2, 2)}):
        with pytest.raises(ValueError, match="shape and dtype"):
            G.InputNode(**known, graph=graph)


def test_an_input_is_made_for_the_graph_of_a_variable(file):
    (data,) = get_dep_vars(G.load_graph(file).output_vars_list, "Host2DeviceCopy")
    image = G.InputNode(dtype="float32", shape=(1, 2), graph=data.graph)
    y = G.OutputNode(image.outputs[0] * 2)
    run = image.graph.compile(*y.outputs)
    image.set_value(Tensor(X[:1])._dev_tensor())
    run.execute().wait()
    assert y.get_value().tolist() == [[-2, 4]] and image.graph is G.Graph.of(data)


def test_values_come_from_a_callback():
    values = iter([X, 2 * X])
    (x,) = G.input_callback(lambda: next(values), dtype="float32", shape=X.shape)
    y = G.OutputNode(F.abs(x))
    run = G.Graph.of(x).compile(y.outputs)
    assert [run.execute() and y.get_value().tolist() for _ in range(2)] == [abs(X).tolist(), abs(2 * X).tolist()]


def test_variables_are_dumped(file):
    loaded = G.load_graph(file)
    data, info = G.dump_graph({"out": F.exp(loaded.output_vars_dict["y"])}, metadata={"author": "me"})
    assert info.outputs == ["out"] and info.tot_bytes == len(data)
    np.testing.assert_allclose(GraphInference(io.BytesIO(data)).run(X)["out"], np.exp(np.maximum(X, 0) * 2), rtol=1e-5)
    assert G.load_graph(io.BytesIO(data)).metadata["user_info"] == {"author": "me"}
    assert [var.name for var in loaded.graph.network.output_vars] == ["y", "s"]


def test_a_graph_with_other_inputs_is_compiled_by_its_variables(file):
    outputs = G.load_graph(file).output_vars_list
    (data,) = get_dep_vars(outputs, "Host2DeviceCopy")
    image = G.InputNode(dtype=data.dtype, shape=data.shape, graph=data.graph)
    nodes = [G.OutputNode(var) for var in replace_vars(outputs, {data: image.outputs[0]})]
    run = nodes[0].outputs[0].graph.compile([node.outputs[0] for node in nodes])
    image.set_value(Tensor(X + 1)._dev_tensor())
    run.execute().wait()
    assert nodes[0].get_value().tolist() == [[0, 6], [8, 0]] and nodes[1].get_value().item() == 4
