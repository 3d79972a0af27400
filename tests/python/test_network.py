"""`megengine.utils.network`: loading, looking through, editing and dumping graphs, against NumPy and the traced function."""

import io
import warnings

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.jit import trace
from megengine.utils import comp_graph_tools as cgtools
from megengine.utils import network_node
from megengine.utils.comp_graph_tools import GraphInference
from megengine.utils.network import (
    Network,
    NodeFilter,
    NodeFilterCheckType,
    NodeFilterHasInput,
    NodeFilterName,
    NodeFilterNotType,
    NodeFilterType,
    as_oprnode,
    as_varnode,
    set_symbolic_shape,
)
from megengine.utils.network_node import (
    ConvolutionForward,
    Elemwise,
    Host2DeviceCopy,
    ImmutableTensor,
    MatrixMul,
    OpNode,
    PoolingForward,
    SharedDeviceTensor,
    VarNode,
    str_to_mge_class,
)

KEEP = {"keep_var_name": 2, "keep_opr_name": True, "keep_param_name": True}


def dumped(function, *arrays, **options) -> io.BytesIO:
    traced = trace(function, capture_as_const=True)
    traced(*map(mge.tensor, arrays))
    file = io.BytesIO()
    traced.dump(file, **{**KEEP, **options})
    file.seek(0)
    return file


def again(net: Network, **options) -> Network:
    file = io.BytesIO()
    net.dump(file, **{**KEEP, **options})
    file.seek(0)
    return Network.load(file)


def values(outputs) -> list[np.ndarray]:
    return list(outputs.values())


def x_and_y() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, 3)).astype("float32"), rng.normal(size=(2, 3)).astype("float32")


@pytest.fixture
def small() -> Network:
    """relu(a * 2 + b), called "out"."""
    return Network.load(
        dumped(
            lambda a, b: F.relu(a * 2 + b), *x_and_y(), arg_names=["a", "b"], output_names=["out"]
        )
    )


class MLP(M.Module):
    def __init__(self):
        super().__init__()
        self.first = M.Linear(6, 8)
        self.second = M.Linear(8, 3)

    def forward(self, x):
        return F.softmax(self.second(F.relu(self.first(F.flatten(x, 1)))), axis=1)


class ConvNet(M.Module):
    def __init__(self):
        super().__init__()
        self.conv = M.Conv2d(3, 4, 3, padding=1)
        self.bn = M.BatchNorm2d(4)
        self.fc = M.Linear(4 * 4 * 4, 5)
        self.bn.running_mean[...] = mge.tensor(np.linspace(-1, 1, 4, dtype="float32")).reshape(
            1, 4, 1, 1
        )

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 2)
        return self.fc(x.reshape(x.shape[0], -1))


def evaluated(module, *arrays):
    module.eval()
    return module(*map(mge.tensor, arrays)).numpy()


# ---- loading, running, dumping


def test_a_loaded_perceptron_computes_what_its_module_does():
    module, x = MLP(), np.random.default_rng(1).normal(size=(4, 2, 3)).astype("float32")
    net = Network.load(dumped(module, x, arg_names=["x"], output_names=["p"]))
    np.testing.assert_allclose(net.infer(x)["p"], evaluated(module, x), rtol=1e-6)
    np.testing.assert_allclose(
        again(net).infer(inp_dict={"x": x})["p"], evaluated(module, x), rtol=1e-6
    )


def test_a_loaded_convolutional_net_computes_what_its_module_does():
    module, x = ConvNet(), np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype("float32")
    module.eval()
    net = Network.load(dumped(module, x, output_names=["y"]))
    np.testing.assert_allclose(
        again(again(net)).infer(x)["y"], evaluated(module, x), rtol=1e-4, atol=1e-5
    )
    assert net.get_opr_by_type(ConvolutionForward).params["padding"] == (1, 1)


def test_what_network_dumps_runs_elsewhere(small):
    a, b = x_and_y()
    file = io.BytesIO()
    info = small.dump(file)
    assert (info.inputs, info.outputs) == (["a", "b"], ["out"])
    file.seek(0)
    np.testing.assert_allclose(
        GraphInference(file).run(a, b)["out"], np.maximum(a * 2 + b, 0), rtol=1e-6
    )


def test_metadata_says_who_wrote_the_file(small):
    assert small.metadata["graph_modified"] is False
    with pytest.warns(UserWarning, match="enable_nchw88 has no effect"):
        written = again(small, user_info={"n": 1}, enable_nchw88=True).metadata
    assert written == {
        "user_info": {"n": 1},
        "graph_modified": True,
        "optimized_for_inference": True,
        "enable_fuse_grain": True,
        "enable_nchw88": True,
    }
    assert again(small, enable_metadata=False).metadata is None


def test_dump_ignores_names_of_arguments_with_a_warning(small):
    with pytest.warns(UserWarning, match="arg_names is ignored"):
        assert again(small, arg_names=["p", "q"]).input_vars[0].name == "a"


def test_renamed_variables_name_inputs_and_outputs(small):
    small.input_vars[0].name, small.output_vars[0].name = "left", "result"
    net = again(small, keep_var_name=1)
    assert [var.name for var in net.input_vars] == ["left", "b"]
    assert list(net.infer(*x_and_y())) == ["result"]


def test_outspec_chooses_other_outputs():
    file = dumped(lambda a, b: F.relu(a * 2 + b), *x_and_y(), arg_names=["a", "b"])
    net = Network.load(file, outspec=["MUL"])
    assert [var.name for var in net.input_vars] == ["a"]
    file.seek(0)
    with pytest.raises(KeyError, match="nothing"):
        Network.load(file, outspec=["nothing"])


def test_infer_compiles_once_between_edits(small):
    small.infer(*x_and_y())
    compiled = small._runner
    small.infer(*x_and_y())
    assert small._runner is compiled
    small.add_output(small.get_var_by_name("MUL"))
    assert len(small.infer(*x_and_y())) == 2


# ---- looking through


def test_operators_stand_in_order_with_their_inputs_before_them(small):
    assert [opr.type for opr in small.all_oprs] == [
        "Host2DeviceCopy", "ImmutableTensor", "Elemwise", "Host2DeviceCopy", "Elemwise", "Elemwise",
    ]  # fmt: skip
    seen = set()
    for opr in small.all_oprs:
        assert all(var.id in seen for var in opr.inputs)
        seen.update(var.id for var in opr.outputs)


def test_variables_and_operators_know_each_other(small):
    relu = small.output_vars[0].owner
    assert relu.params == {"mode": "RELU"} and relu.outputs[0] is small.output_vars[0]
    assert relu.inputs[0].users == [relu] and small.get_var_receive_oprs(relu.inputs[0]) == [relu]
    assert small.get_dep_oprs(small.output_vars[0]) == small.all_oprs
    assert small.output_vars[0].shape == (2, 3) and small.output_vars[0] in small.all_vars


def test_filters_chain_and_end(small):
    elementwise = small.opr_filter.type(Elemwise)
    assert elementwise.as_count() == len(elementwise.as_list()) == 3
    assert (
        small.opr_filter.not_type((Elemwise, ImmutableTensor))
        .check_type(Host2DeviceCopy)
        .as_count()
        == 2
    )
    assert (
        small.opr_filter.has_input(small.input_vars[1]).as_unique() is small.input_vars[1].users[0]
    )
    assert small.data_providers_filter.as_list() == [var.owner for var in small.input_vars]
    assert list(small.var_filter.name("OUT").as_dict()) == ["out"]
    assert small.var_filter.name("OUT", ignorecase=False).as_list() == []
    assert small.var_filter.type(Host2DeviceCopy).as_list() == small.input_vars


def test_filters_say_what_does_not_fit(small):
    with pytest.raises(ValueError, match="3 of these"):
        small.opr_filter.type(Elemwise).as_unique()
    with pytest.raises(TypeError, match="is not of class Elemwise"):
        small.opr_filter.check_type(Elemwise).as_list()
    with pytest.raises(AssertionError, match="0 nodes fit 'gone'"):
        small.get_var_by_name("gone")
    assert small.get_opr_by_name("gone", unique=False) == []


def test_parameters_are_found_and_given_other_values():
    module, x = MLP(), np.ones((1, 2, 3), "float32")
    net = Network.load(dumped(module, x))
    assert sorted(opr.name for opr in net.params_filter) == sorted(
        name for name, _ in module.named_parameters()
    )
    for opr in net.params_filter.check_type(SharedDeviceTensor):
        opr.set_value(np.zeros(opr.shape, "float32"))
    np.testing.assert_allclose(values(again(net).infer(x))[0], np.full((1, 3), 1 / 3), rtol=1e-6)


def test_constants_have_values_and_other_variables_say_why_not(small):
    assert (small.make_const([1.0, 2.0]) + 1).numpy().tolist() == [2.0, 3.0]
    with pytest.raises(RuntimeError, match="variable 'out' f32.2, 3. has no value"):
        small.output_vars[0].numpy()
    with pytest.raises(TypeError):
        float(small.output_vars[0])


# ---- edits


def test_replacing_a_variable_puts_a_function_behind_it(small):
    a, b = x_and_y()
    var = small.input_vars[0]
    small.replace_vars({var: F.exp(var)})
    np.testing.assert_allclose(
        values(again(small).infer(a, b))[0], np.maximum(np.exp(a) * 2 + b, 0), rtol=1e-6
    )


def test_replaced_outputs_are_outputs(small):
    a, b = x_and_y()
    out = small.output_vars[0]
    small.replace_vars({out: F.concat([out, -out], axis=1)})
    expected = np.maximum(a * 2 + b, 0)
    np.testing.assert_allclose(
        values(again(small).infer(a, b))[0], np.concatenate([expected, -expected], 1), rtol=1e-6
    )


def test_two_variables_change_places(small):
    a, b = x_and_y()
    first, second = small.input_vars
    small.replace_vars({first: second, second: first})
    np.testing.assert_allclose(values(small.infer(a, b))[0], np.maximum(b * 2 + a, 0), rtol=1e-6)


def test_replacing_an_operator(small):
    a, b = x_and_y()
    relu = small.output_vars[0].owner
    small.replace_oprs({relu: F.sigmoid(relu.inputs[0]).owner})
    np.testing.assert_allclose(
        values(again(small).infer(a, b))[0], 1 / (1 + np.exp(-(a * 2 + b))), rtol=1e-5
    )


def test_an_operand_is_written(small):
    a, b = x_and_y()
    relu = small.output_vars[0].owner
    relu.inputs[0] = small.input_vars[1]
    assert [var.name for var in small.input_vars] == ["b"]
    np.testing.assert_allclose(values(small.infer(b))[0], np.maximum(b, 0))


def test_an_input_becomes_a_constant(small):
    a, b = x_and_y()
    small.replace_vars({small.input_vars[1]: small.make_const(b)})
    np.testing.assert_allclose(
        values(again(small).infer(a))[0], np.maximum(a * 2 + b, 0), rtol=1e-6
    )


def test_an_input_of_another_shape_changes_all_types_behind_it(small):
    wide = small.make_input_node((5, 2, 3), "float32", name="wide")
    out = small.output_vars[0]
    small.replace_vars({small.input_vars[0]: wide})
    assert out.shape == (5, 2, 3)
    a, b = np.ones((5, 2, 3), "float32"), x_and_y()[1]
    result = again(small).infer(inp_dict={"wide": a, "b": b})["out"]
    np.testing.assert_allclose(result, np.maximum(a * 2 + b, 0), rtol=1e-6)


def test_a_net_is_cut_in_the_middle():
    module, x = ConvNet(), np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype("float32")
    module.eval()
    net = Network.load(dumped(module, x))
    pooled = net.get_opr_by_type(PoolingForward).outputs[0]
    front, back = again(net), again(net)
    cut = front.get_opr_by_type(PoolingForward).outputs[0]
    front.add_output(cut)
    front.remove_output(front.output_vars[0])
    middle = values(front.infer(x))[0]
    assert middle.shape == pooled.shape
    entry = back.make_input_node(pooled.shape, "float32", name="entry")
    back.replace_vars({back.get_opr_by_type(PoolingForward).outputs[0]: entry})
    assert back.opr_filter.type(ConvolutionForward).as_count() == 0
    np.testing.assert_allclose(
        values(again(back).infer(middle))[0], evaluated(module, x), rtol=1e-4, atol=1e-5
    )


def test_outputs_come_and_go(small):
    doubled = small.output_vars[0] * 2
    assert doubled not in small.all_vars
    small.add_output(doubled)
    assert small.output_vars[1] is doubled
    with pytest.warns(UserWarning, match="is an output already"):
        small.add_output(doubled)
    small.remove_output(doubled)
    with pytest.warns(UserWarning, match="is not an output"):
        small.remove_output(doubled)
    assert doubled not in small.all_vars


def test_dependencies_belong_to_the_graph_when_an_output_needs_them(small):
    extra = F.tanh(small.input_vars[0])
    assert small.add_dep_oprs(extra) == [extra] and extra.owner not in small.all_oprs
    small.add_output(extra * 2)
    assert extra.owner in small.all_oprs
    with pytest.raises(ValueError, match="another network"):
        small.add_dep_oprs(Network().make_const(1.0))


def test_operators_are_renamed(small):
    small.modify_opr_names("net")
    assert all(opr.name.startswith("net.") for opr in small.all_oprs)
    small.modify_opr_names(str.upper)
    assert again(small).opr_filter.name("NET.RELU", ignorecase=False).as_count() == 1


@pytest.mark.parametrize("batch", [1, 4, 7])
def test_a_new_batch_size_reaches_reshapes_and_slices(batch):
    module = ConvNet()
    module.eval()

    def step(x):
        y = module(x)
        return y, y[:, 1:3], F.flatten(x)

    rng = np.random.default_rng(2)
    net = Network.load(dumped(step, rng.normal(size=(3, 3, 8, 8)).astype("float32")))
    net.reset_batch_size(batch)
    x = rng.normal(size=(batch, 3, 8, 8)).astype("float32")
    y = evaluated(module, x)
    results = values(again(net).infer(x))
    for result, expected in zip(results, [y, y[:, 1:3], x.reshape(-1)]):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_a_batch_of_one_becomes_many():
    module = MLP()
    net = Network.load(dumped(module, np.ones((1, 2, 3), "float32")))
    net.reset_batch_size(5)
    x = np.random.default_rng(2).normal(size=(5, 2, 3)).astype("float32")
    np.testing.assert_allclose(values(again(net).infer(x))[0], evaluated(module, x), rtol=1e-5)


def test_inputs_on_the_blacklist_keep_their_extents():
    net = Network.load(
        dumped(
            lambda x, w: F.matmul(x, w),
            np.ones((2, 3), "float32"),
            np.ones((3, 4), "float32"),
            arg_names=["x", "w"],
        )
    )
    with pytest.raises(AssertionError, match="one batch size"):
        net.reset_batch_size(5)
    net.reset_batch_size(5, blacklist=["w"])
    assert net.output_vars[0].shape == (5, 4)


def test_networks_are_written_by_hand():
    net = Network()
    x = net.make_input_node((2, 3), np.float32, name="x")
    net.add_output(
        F.softmax(
            F.matmul(x, net.make_const(np.eye(3, dtype="float32")))
            @ mge.tensor(np.ones((3, 2), "float32")),
            axis=1,
        )
    )
    assert net.opr_filter.type(MatrixMul).as_count() == 2
    np.testing.assert_allclose(
        values(again(net).infer(np.ones((2, 3), "float32")))[0], np.full((2, 2), 0.5)
    )


def test_operators_on_variables_are_those_of_tensors(small):
    a, b = small.input_vars
    total = (a + b - 1) / 2 ** F.abs(b)
    total += a[0]
    small.add_output(total, total.T, total.sum(axis=1), total.astype("int32"))
    x, y = x_and_y()
    expected = (x + y - 1) / 2 ** np.abs(y) + x[0]
    results = values(again(small).infer(x, y))[1:]
    for result, wanted in zip(
        results, [expected, expected.T, expected.sum(1), expected.astype("int32")]
    ):
        np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_writing_into_a_variable_makes_it_another_one(small):
    a = small.input_vars[0]
    var = a * 1
    var[0] = 0.0
    small.add_output(var)
    x, y = x_and_y()
    assert values(small.infer(x, y))[1].tolist()[0] == [0, 0, 0]
    assert small.input_vars[0] is a


def test_an_input_that_is_written_is_another_variable_and_the_input_stays(small):
    a = small.input_vars[0]
    a += 1
    assert a.owner.type == "Elemwise" and small.input_vars[0] is not a
    assert [var.name for var in small.input_vars] == ["a", "b"] and unchanged(small)


def test_optimized_values_take_the_place_of_the_graph():
    net = Network.load(
        dumped(lambda x: (x * 1 + 0) * 2, np.ones(3, "float32"), no_change_graph=True)
    )
    before = len(net.all_oprs)
    old = net.output_vars
    with pytest.warns(UserWarning, match="enable_nchw88 has no effect"):
        optimized = net.optimize_for_inference(old, enable_nchw88=True)
    net.replace_vars(dict(zip(old, optimized)))
    assert len(net.all_oprs) < before
    assert values(net.infer(np.float32([1, 2, 3])))[0].tolist() == [2, 4, 6]


# ---- hostile use: nothing is changed by an edit that fails


def unchanged(net: Network) -> bool:
    a, b = x_and_y()
    return np.allclose(values(net.infer(a, b))[0], np.maximum(a * 2 + b, 0))


def test_a_loop_is_refused_by_name(small):
    relu = small.output_vars[0].owner
    with pytest.raises(
        ValueError, match=r"node 'ADD' \(add\) would read its own result, through 'RELU'"
    ):
        relu.inputs[0].owner.inputs[0] = relu.outputs[0]
    first, second = small.input_vars
    with pytest.raises(ValueError, match="would read its own result"):
        small.replace_vars({first: F.exp(second), second: F.exp(first)})
    assert unchanged(small)


def test_shapes_that_do_not_fit_are_refused_by_name(small):
    bad = small.make_input_node((7, 9), "float32")
    with pytest.raises(ValueError, match=r"network: node '\w+' \(\w+\): .*(7, 9|\[7, 9\])"):
        small.replace_vars({small.input_vars[1]: bad})
    assert unchanged(small) and small.input_vars[1].shape == (2, 3)


def test_what_depends_on_the_old_extents_is_refused_by_name():
    net = Network.load(dumped(lambda x: (x[1:], x.reshape(6)), np.ones((2, 3), "float32"), **KEEP))
    with pytest.raises(
        ValueError, match=r"takes the batch of 2 as a number, at .*test_network.py:\d+.*, by slice"
    ):
        net.reset_batch_size(4)
    net.remove_output(net.output_vars[0])
    with pytest.raises(ValueError, match=r"node 'Reshape' \(reshape\)"):
        net.replace_vars({net.input_vars[0]: net.make_input_node((2, 4), "float32")})
    assert net.input_vars[0].shape == (2, 3)


def test_variables_of_other_networks_are_refused(small):
    other = Network()
    foreign = other.make_input_node((2, 3), "float32")
    for refused in (
        lambda: small.remove_output(foreign),
        lambda: small.replace_vars({foreign: small.input_vars[0]}),
        lambda: small.input_vars[0] + foreign,
        lambda: small.get_dep_oprs(foreign),
    ):
        with pytest.raises(ValueError, match="another network"):
            refused()
    with pytest.raises(TypeError, match="use make_const"):
        small.replace_vars({small.input_vars[0]: mge.tensor([1.0])})
    assert unchanged(small)


def test_variables_of_another_network_are_copied_with_what_they_are_made_of(small):
    other = Network()
    given = other.make_input_node((2, 3), "float32", name="given")
    doubled, tripled = given * 2, given * 3
    small.add_output(doubled, tripled)
    assert [var.name for var in small.input_vars].count("given") == 1 and len(other.all_oprs) == 0
    a, b = x_and_y()
    results = values(again(small).infer(a, b, np.ones((2, 3), np.float32)))
    assert results[-2].tolist() == [[2] * 3] * 2 and results[-1].tolist() == [[3] * 3] * 2


def test_modules_compute_on_variables(small):
    layer = M.Linear(3, 4)
    small.add_output(layer(small.input_vars[0]))
    a, b = x_and_y()
    np.testing.assert_allclose(
        values(again(small).infer(a, b))[1], evaluated(layer, a), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("batch", [0, -3])
def test_a_batch_has_at_least_one_sample(small, batch):
    with pytest.raises(ValueError, match="a batch of"):
        small.reset_batch_size(batch)
    assert unchanged(small)


def test_a_variable_is_no_constant(small):
    with pytest.raises(ValueError, match="a constant .* has no value"):
        small.make_const([1.0]).owner.set_value(small.input_vars[0])
    with pytest.raises(RuntimeError, match="has no value"):
        small.make_const(small.input_vars[0])


def test_values_with_shapes_of_their_own_are_refused(small):
    with pytest.raises(ValueError, match="shape of mask_select's result depends on values"):
        F.cond_take(small.input_vars[0] > 0, small.input_vars[0])


def test_a_network_without_outputs_says_so():
    net = Network()
    net.make_input_node((1,), "float32")
    with pytest.raises(ValueError, match="has no output"):
        net.infer()
    assert net.all_oprs == []


def test_equal_names_of_inputs_are_refused_at_dump(small):
    small.input_vars[0].name = "b"
    with pytest.raises(ValueError, match="two inputs have one name: b, b"):
        small.dump(io.BytesIO())


def test_variables_are_not_pickled_or_made_by_hand(small):
    import copy

    with pytest.raises(TypeError, match="Network.dump"):
        copy.deepcopy(small.output_vars[0])
    with pytest.raises(TypeError, match="not a variable"):
        VarNode(mge.tensor(1.0))
    with pytest.raises(TypeError, match="make_input_node"):
        Host2DeviceCopy((1,), "float32")
    assert VarNode(small.output_vars[0]) is small.output_vars[0]


def test_variables_outlive_what_the_user_keeps_of_the_network():
    def variable():
        return Network().make_input_node((2,), "float32")

    assert (variable() + 1).shape == (2,)


def test_a_damaged_file_is_refused():
    with pytest.raises(RuntimeError, match="cannot read the model"):
        Network.load(io.BytesIO(b"MEGJITGF" + bytes(50)))


# ---- small tools


def test_nodes_convert_to_each_other(small):
    var = small.output_vars[0]
    assert as_oprnode(var) is var.owner and as_varnode(var.owner) is var and as_varnode(var) is var
    with pytest.raises(TypeError):
        as_varnode(1)
    assert str_to_mge_class("Elemwise") is Elemwise
    with pytest.raises(ValueError, match="no class 'np'"):
        str_to_mge_class("np")


def test_shapes_are_variables_on_demand(small):
    old = set_symbolic_shape(True)
    try:
        assert small.output_vars[0].shape.numpy().tolist() == [2, 3]
    finally:
        assert set_symbolic_shape(old) is True


def test_graph_tools_look_a_network_through(small):
    out = small.output_vars[0]
    assert cgtools.get_owner_opr_type(out) == "Elemwise" == cgtools.get_opr_type(out.owner)
    assert cgtools.get_owner_opr_inputs(out) == out.owner.inputs
    assert cgtools.get_dep_vars(out, "Host2DeviceCopy") == small.input_vars
    assert cgtools.get_dep_vars([out]) == small.all_vars
    kept = cgtools.get_oprs_seq(out)
    assert all(not isinstance(opr, ImmutableTensor) for opr in kept) and kept[-1] is out.owner
    oprs, variables, readers, receivers, by_degree, degrees = cgtools.graph_traversal(out)
    assert list(oprs.values()) == small.all_oprs and list(variables.values()) == small.all_vars
    ((name, index),) = readers[small.input_vars[0].id]
    assert (
        oprs[name].inputs[index] is small.input_vars[0]
        and name in receivers[small.input_vars[0].owner.id]
    )
    assert small.input_vars[0].owner.id in by_degree[0] and degrees[out.owner.id] == 1


def test_graph_tools_replace_in_a_copy(small):
    a, b = x_and_y()
    out, var = small.output_vars[0], small.input_vars[0]
    (copied,) = cgtools.replace_vars(out, {var: var * 10})
    small.add_output(copied, *cgtools.replace_oprs([out], {out.owner: (out + 1).owner}))
    old, new, further = values(small.infer(a, b))
    np.testing.assert_allclose(old, np.maximum(a * 2 + b, 0), rtol=1e-6)
    np.testing.assert_allclose(new, np.maximum(a * 20 + b, 0), rtol=1e-6)
    np.testing.assert_allclose(further, old + 1)


def test_no_warning_is_given_for_usual_use(small):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again(small)
        assert isinstance(small.all_oprs[0], OpNode)


# ------------------------------------------------------------------------------------ classes of operators


def conv_net():
    x = np.arange(2 * 3 * 6 * 6, dtype="float32").reshape(2, 3, 6, 6) / 50
    w = np.arange(4 * 3 * 3 * 3, dtype="float32").reshape(4, 3, 3, 3) / 50
    return x, w, Network.load(dumped(lambda x: F.relu(F.conv2d(x, Tensor(w))), x))


def test_attributes_are_changed_by_compile():
    x, w, net = conv_net()
    (conv,) = net.opr_filter.type(network_node.ConvolutionForward).as_list()
    name = conv.name
    conv.params["stride"] = (2, 2)
    assert conv.params["stride"] == (2, 2)
    assert net.output_vars[0].shape == (2, 4, 4, 4)
    conv.compile()
    assert net.output_vars[0].shape == (2, 4, 2, 2)
    (found,) = net.opr_filter.type(network_node.ConvolutionForward).as_list()
    assert found is conv and conv.name == name and tuple(conv.params["stride"]) == (2, 2)
    (y,) = net.infer(x).values()
    np.testing.assert_allclose(y, F.relu(F.conv2d(Tensor(x), Tensor(w), stride=2)).numpy(), rtol=1e-5)


def test_a_change_that_does_not_fit_changes_nothing():
    _, _, net = conv_net()
    (conv,) = net.opr_filter.type(network_node.ConvolutionForward).as_list()
    with pytest.raises(KeyError, match="colour"):
        conv.params["colour"] = 1
    conv.params["groups"] = 2
    with pytest.raises(ValueError):
        conv.compile()
    assert conv.params["groups"] == 1 and net.output_vars[0].shape == (2, 4, 4, 4)


def test_operations_and_windows_of_operators_are_counted():
    _, _, net = conv_net()
    (conv,) = net.opr_filter.type(network_node.ConvolutionForward).as_list()
    (relu,) = net.opr_filter.type(network_node.Elemwise).as_list()
    assert network_node.flops_conv(conv, conv.inputs, conv.outputs) == 2 * 4 * 16 * 27
    assert network_node.flops_elemwise(relu, relu.inputs, relu.outputs) == 2 * 4 * 16
    assert network_node.receptive_field(conv, conv.inputs, conv.outputs) == ((3, 3), (1, 1))
    product = Network.load(dumped(lambda a: F.matmul(a, a, transpose_a=True), np.ones((5, 3), "float32")))
    (opr,) = product.opr_filter.type(network_node.MatrixMul).as_list()
    assert network_node.flops_matmul(opr, opr.inputs, opr.outputs) == 3 * 3 * 5


def test_nodes_are_loaded_and_copied_into_other_networks():
    _, _, net = conv_net()
    x = net.input_vars[0]
    assert network_node.VarNode.load(x) is x and network_node.Host2DeviceCopy.load(x) is x.owner
    with pytest.raises(TypeError, match="another class"):
        network_node.Elemwise.load(x)
    other = Network()
    other.add_output(F.abs(x.owner.compile(other)))
    assert other.input_vars[0].shape == x.shape and other.input_vars[0].name == x.name
    assert x.shapeof(1).numpy().tolist() == [3] and x.shapeof().numpy().tolist() == [2, 3, 6, 6]


def test_an_opdef_makes_an_operator_again():
    _, _, net = conv_net()
    (conv,) = net.opr_filter.type(network_node.ConvolutionForward).as_list()
    twin = conv.opdef("conv", **conv.params)(*conv.inputs)
    assert twin.owner is not conv and twin.owner.params == conv.params


@pytest.mark.parametrize("batched", [False, True])
def test_grids_of_places_are_read_and_written(batched):
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    if batched:
        indices = np.array([[0, 2], [1, 1]]), np.array([[3], [0]])
        places = np.arange(2)[:, None, None], indices[0][:, :, None], indices[1][:, None, :]
    else:
        indices = np.array([1, 0]), np.array([2, 0, 2])
        places = np.ix_(*indices)
    prefix = "Batched" if batched else ""
    read, write, add = (getattr(network_node, f"{prefix}{name}MeshIndexing").opdef for name in ("", "Set", "Incr"))
    tensors = [Tensor(i.astype("int32")) for i in indices]
    np.testing.assert_array_equal(read(Tensor(x), *tensors).numpy(), x[places])
    value = -np.ones_like(x[places])
    expected, added = x.copy(), x.copy()
    expected[places] = value
    np.add.at(added, places, value)
    np.testing.assert_array_equal(write(Tensor(x), Tensor(value), *tensors).numpy(), expected)
    np.testing.assert_array_equal(add(Tensor(x), Tensor(value), *tensors).numpy(), added)


def test_values_are_compared_by_the_operator_of_that_name():
    check = network_node.AssertEqual.opdef
    x = Tensor([1.0, 2.0])
    assert check(x, x + 1e-6) is not x
    with pytest.raises(RuntimeError, match="differ by"):
        check(x, x + 1)
    with pytest.raises(RuntimeError, match="nan"):
        check(x, x * float("nan"))


def test_a_tensor_with_a_value_has_no_graph(small):
    assert not hasattr(Tensor([1.0]), "graph") and small.input_vars[0].graph is small.graph


def test_filters_select_what_their_methods_select(small):
    """The classes by themselves, and the methods that make them."""
    oprs, x = list(small.all_oprs), small.input_vars[0]
    everything = NodeFilter(oprs)
    assert everything.as_list() == oprs and everything.as_count() == len(oprs)
    inputs = [opr for opr in oprs if isinstance(opr, network_node.Host2DeviceCopy)]
    assert 0 < len(inputs) < len(oprs)
    assert NodeFilterType(oprs, network_node.Host2DeviceCopy).as_list() == inputs == everything.data_provider().as_list()
    rest = NodeFilterNotType(oprs, network_node.Host2DeviceCopy).as_list()
    assert rest == [opr for opr in oprs if opr not in inputs]
    assert NodeFilterCheckType(inputs, network_node.Host2DeviceCopy).as_list() == inputs
    with pytest.raises(TypeError, match="is not of class Host2DeviceCopy"):
        NodeFilterCheckType(oprs, network_node.Host2DeviceCopy).as_list()
    with pytest.raises(TypeError, match="is not a class of network_node"):
        NodeFilterType(oprs, int)
    readers = NodeFilterHasInput(oprs, x).as_list()
    assert readers == [opr for opr in oprs if any(var.id == x.id for var in opr.inputs)] and readers
    with pytest.raises(TypeError, match="is not an operator"):
        NodeFilterHasInput([x], x).as_list()
    name = rest[0].name
    assert rest[0] in NodeFilterName(oprs, name.lower(), ignorecase=True).as_list()
    assert not [opr for opr in NodeFilterName(oprs, "no such name*", ignorecase=True)]
    assert NodeFilterName(oprs, name.swapcase(), ignorecase=False).as_count() == 0


@pytest.mark.parametrize(
    "dtype,new,result",
    [
        ("int32", "float32", "float32"),
        ("int32", "float16", "float32"),
        ("int32", "int8", "int32"),
        ("float32", "int32", "float32"),
        ("float32", "float16", "float32"),
        ("float32", "uint8", "float32"),
    ],
)
def test_readers_of_a_variable_of_another_dtype_promote_anew(dtype, new, result):
    net = Network.load(dumped(lambda a, b: (a + b) * 2, np.array([1, 2], dtype), np.array([3, 4], dtype)))
    net.replace_vars({net.input_vars[1]: net.make_const(np.array([5, 6], new))})
    assert net.output_vars[0].dtype == result
    (y,) = values(again(net).infer(np.array([1, 2], dtype)))
    assert y.dtype == result
    np.testing.assert_array_equal(y, [12, 16])


def test_dtypes_without_a_common_one_are_refused_by_name():
    net = Network.load(dumped(lambda a, b: a + b, np.int32([1, 2]), np.int32([3, 4])))
    with pytest.raises(TypeError, match=r"node 'ADD' \(add\): no common dtype for int32 and uint8"):
        net.replace_vars({net.input_vars[1]: net.make_const(np.array([5, 6], np.uint8))})
    (y,) = values(net.infer(np.int32([1, 2]), np.int32([3, 4])))
    np.testing.assert_array_equal(y, [4, 6])


def test_a_variable_can_be_written_whole():
    net = Network()
    x = net.make_input_node((2,), "float32")
    y = x + 1
    y[...] = np.float32([7, 8])
    net.add_output(y * 1)
    np.testing.assert_array_equal(*net.infer(np.float32([1, 2])).values(), [7, 8])
