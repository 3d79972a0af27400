"""Module: attributes, listing, names, hooks, state dicts, modes, text, copies."""

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest
from models import MLP, SequenceClassifier, UNet, resnet18, tiny_resnet

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Inner(M.Module):
    def __init__(self, name=None):
        super().__init__(name=name)
        self.weight = Parameter(np.ones(2, np.float32))
        self.count = Tensor(np.zeros(1, np.float32))

    def forward(self, x):
        return x * self.weight


class Outer(M.Module):
    def __init__(self):
        super().__init__()
        self.z = Inner()
        self.listed = [Inner(), {"key": Inner()}]
        self.a = Parameter(np.zeros(3, np.float32))

    def forward(self, x):
        return self.z(x)


def names(pairs):
    return [name for name, _ in pairs]


# -- listing -------------------------------------------------------------------------------------


def test_parameters_come_in_order_of_attribute_names_with_containers_expanded():
    assert names(Outer().named_parameters()) == [
        "a",
        "listed.0.weight",
        "listed.1.key.weight",
        "z.weight",
    ]


def test_a_tensor_that_is_no_parameter_is_a_buffer():
    module = Inner()
    assert names(module.named_buffers()) == ["count"]
    assert names(module.named_tensors()) == ["count", "weight"]
    assert list(module.tensors())[0] is module.count


def test_not_recursive_lists_only_own_parameters():
    assert names(Outer().named_parameters(recursive=False)) == ["a"]


def test_named_modules_begin_with_the_module_itself():
    module = Outer()
    found = list(module.named_modules())
    assert found[0] == ("", module)
    assert names(found) == ["", "listed.0", "listed.1.key", "z"]
    assert names(module.named_modules(prefix="top")) == [
        "top",
        "top.listed.0",
        "top.listed.1.key",
        "top.z",
    ]


def test_named_children_are_those_held_directly():
    module = M.Sequential(M.Sequential(Inner()), Inner())
    assert names(module.named_children()) == ["0", "1"]
    assert list(module.children()) == [module[0], module[1]]


def test_a_shared_parameter_is_listed_once():
    module = Outer()
    module.z.weight = module.listed[0].weight
    assert names(module.named_parameters()) == ["a", "listed.0.weight", "listed.1.key.weight"]


def test_modules_appended_to_a_list_attribute_are_listed():
    module = Outer()
    module.listed.append(Inner())
    assert "listed.2.weight" in names(module.named_parameters())


def test_with_parent_tells_the_owner():
    module = Outer()
    owners = {name: owner for name, _, owner in module.named_parameters(with_parent=True)}
    assert owners["a"] is module and owners["z.weight"] is module.z


def test_an_unknown_keyword_is_a_type_error():
    with pytest.raises(TypeError, match="recursiv"):
        Outer().parameters(recursiv=True)


def test_apply_visits_every_module():
    seen = []
    Outer().apply(seen.append)
    assert [type(m).__name__ for m in seen] == ["Outer", "Inner", "Inner", "Inner"]


# -- attributes and names ------------------------------------------------------------------------


def test_assigning_a_module_before_init_is_an_attribute_error():
    class Late(M.Module):
        def __init__(self):
            self.inner = Inner()

        def forward(self, x):
            return x

    with pytest.raises(AttributeError, match=r"super\(\).__init__\(\)"):
        Late()


def test_a_dict_of_modules_needs_str_keys():
    module = Outer()
    with pytest.raises(AssertionError, match="str"):
        module.by_number = {1: Inner()}


@pytest.mark.parametrize("name", ["", "  ", 3])
def test_a_module_name_must_be_a_non_empty_string(name):
    with pytest.raises(AssertionError, match="name"):
        Inner(name=name)


def test_assigning_one_module_to_two_attributes_warns_and_keeps_the_first_name():
    module = Outer()
    with pytest.warns(UserWarning, match="first"):
        module.first = Inner()
        module.second = module.first
    assert module.second._short_name == "first"


def test_deleting_an_attribute_removes_the_module():
    module = Outer()
    del module.z
    assert "z.weight" not in names(module.named_parameters())
    with pytest.raises(AttributeError):
        del module.z


def test_a_module_without_forward_says_so_when_called():
    with pytest.raises(TypeError, match="forward"):
        M.Module()(1)


# -- hooks ---------------------------------------------------------------------------------------


def test_forward_hooks_see_and_replace_inputs_and_outputs():
    module = Inner()
    x = Tensor([1.0, 2.0])
    pre = module.register_forward_pre_hook(lambda m, inputs: (inputs[0] + 1,))
    post = module.register_forward_hook(lambda m, inputs, outputs: (inputs[0], outputs * 2))
    inputs, outputs = module(x)
    np.testing.assert_array_equal(inputs.numpy(), [2, 3])
    np.testing.assert_array_equal(outputs.numpy(), [4, 6])
    pre.remove()
    post.remove()
    np.testing.assert_array_equal(module(x).numpy(), [1, 2])


def test_a_hook_that_returns_none_changes_nothing():
    calls = []
    module = Inner()
    module.register_forward_pre_hook(lambda m, inputs: calls.append(inputs))
    module.register_forward_hook(lambda m, inputs, outputs: calls.append(outputs))
    x = Tensor([1.0, 2.0])
    y = module(x)
    assert calls[0] == (x,) and calls[1] is y


def test_keyword_arguments_reach_forward():
    assert M.Concat()([Tensor([[1.0]]), Tensor([[2.0]])], axis=1).shape == (1, 2)


# -- state ---------------------------------------------------------------------------------------


def test_state_dict_holds_arrays_by_dotted_path():
    state = Outer().state_dict()
    assert list(state) == [
        "a",
        "listed.0.count",
        "listed.0.weight",
        "listed.1.key.count",
        "listed.1.key.weight",
        "z.count",
        "z.weight",
    ]
    assert all(isinstance(value, np.ndarray) for value in state.values())
    assert list(Inner().state_dict(prefix="p.")) == ["p.count", "p.weight"]


def test_state_dict_with_keep_var_holds_the_tensors_themselves():
    module = Inner()
    assert module.state_dict(keep_var=True)["weight"] is module.weight


def test_normalization_is_flat_in_state_dicts_and_loads_either_shape():
    norm = M.BatchNorm2d(3)
    state = norm.state_dict()
    assert norm.weight.shape == (1, 3, 1, 1)
    assert {value.shape for value in state.values()} == {(3,)}
    state["running_mean"] = np.float32([1, 2, 3])
    state["weight"] = array(1, 3, 1, 1)
    norm.load_state_dict(state)
    assert norm.running_mean.shape == (1, 3, 1, 1)
    np.testing.assert_array_equal(norm.running_mean.numpy().ravel(), [1, 2, 3])
    assert M.LayerNorm((2, 3)).state_dict()["weight"].shape == (6,)


def test_loading_writes_in_place_and_takes_the_dtype_of_the_array():
    module = Inner()
    weight = module.weight
    state = {"weight": np.float16([3, 4]), "count": np.float32([5])}
    module.load_state_dict(state)
    assert module.weight is weight and isinstance(weight, Parameter)
    assert weight.dtype == np.float16
    np.testing.assert_array_equal(weight.numpy(), [3, 4])


def test_strict_loading_refuses_missing_and_unused_keys():
    module = Inner()
    state = module.state_dict()
    with pytest.raises(KeyError, match="missing.*count"):
        module.load_state_dict({"weight": state["weight"]})
    with pytest.raises(KeyError, match="unused.*extra"):
        module.load_state_dict({**state, "extra": state["weight"]})


def test_loading_what_fits_warns():
    module = Inner()
    with pytest.warns(UserWarning, match="missing"):
        module.load_state_dict({"weight": np.float32([7, 8])}, strict=False)
    np.testing.assert_array_equal(module.weight.numpy(), [7, 8])


def test_a_wrong_shape_is_a_value_error_and_changes_nothing():
    module = Inner()
    with pytest.raises(ValueError, match=r"^param `weight` shape mismatch, should be \(2,\)"):
        module.load_state_dict({"count": np.float32([5]), "weight": np.zeros(3, np.float32)})
    assert module.count.numpy() == 0


def test_loading_by_function_skips_none():
    module = Inner()
    module.load_state_dict(
        lambda key, var: None if key == "count" else np.full(var.shape, 9, np.float32)
    )
    np.testing.assert_array_equal(module.weight.numpy(), [9, 9])


# -- modes, text, copies -------------------------------------------------------------------------


def test_train_and_eval_reach_all_modules():
    module = Outer()
    module.eval()
    assert not any(child.training for child in module.modules())
    module.train(True, recursive=False)
    assert module.training and not module.z.training


def test_disable_quantize_reaches_all_modules():
    module = Outer()
    module.disable_quantize()
    assert all(child.quantize_disabled for child in module.modules())


def test_repr_shows_key_facts_and_indents_children():
    net = M.Sequential(M.Conv2d(3, 4, 3, padding=1), M.Sequential(M.ReLU()))
    assert repr(net) == (
        "Sequential(\n"
        "  (0): Conv2d(3, 4, kernel_size=(3, 3), padding=(1, 1))\n"
        "  (1): Sequential(\n"
        "    (0): ReLU()\n"
        "  )\n"
        ")"
    )
    assert "Linear(in_features=8, out_features=16, bias=True)" in repr(MLP())


@pytest.mark.parametrize(
    ("make", "shape", "dtype"),
    [(MLP, (2, 8), "float32"), (tiny_resnet, (2, 3, 8, 8), "float32"), (UNet, (1, 1, 8, 8), "float32"),
     (SequenceClassifier, (2, 5), "int32")],
)  # fmt: skip
def test_a_pickled_model_computes_the_same(make, shape, dtype):
    model = make()
    model.eval()
    x = Tensor(np.abs(array(*shape) * 3).astype(dtype))
    twin = pickle.loads(pickle.dumps(model))
    assert names(twin.named_parameters()) == names(model.named_parameters())
    np.testing.assert_array_equal(twin(x).numpy(), model(x).numpy())


def test_a_deep_copy_shares_nothing():
    model = Inner()
    twin = copy.deepcopy(model)
    twin.weight[...] = 5
    assert isinstance(twin.weight, Parameter)
    np.testing.assert_array_equal(model.weight.numpy(), [1, 1])


def test_resnet18_has_the_known_number_of_parameters():
    assert sum(int(np.prod(p._tuple_shape)) for p in resnet18().parameters()) == 11_689_512


# -- containers ----------------------------------------------------------------------------------


def test_sequential_indexes_slices_sets_and_deletes():
    layers = [M.Identity() for _ in range(4)]
    net = M.Sequential(*layers)
    assert len(net) == 4 and net[-1] is layers[3] and list(net) == layers
    part = net[1:3]
    assert isinstance(part, M.Sequential) and list(part) == layers[1:3]
    net[0] = M.ReLU()
    assert isinstance(net.layer_values[0], M.ReLU)
    del net[1]
    assert len(net) == 3 and list(net)[1] is layers[2]
    with pytest.raises(IndexError):
        net[5]


def test_sequential_takes_names_and_keeps_order():
    net = M.Sequential(OrderedDict([("b", M.Linear(2, 3)), ("a", M.ReLU())]))
    assert net.layer_keys == ["b", "a"]
    assert names(net.named_parameters()) == ["b.bias", "b.weight"]
    x = Tensor(array(4, 2))
    np.testing.assert_array_equal(net(x).numpy(), F.nn.relu(net.b(x)).numpy())


def test_sequential_refuses_lists():
    with pytest.raises(TypeError, match=r"\*layers"):
        M.Sequential([M.ReLU()])


def test_stubs_are_identities_in_float_models():
    x = Tensor([1.0])
    assert M.QuantStub()(x) is x and M.DequantStub()(x) is x and M.Identity()(x) is x


def test_zero_grad_zeroes():
    module = Inner()
    module.weight.grad = Tensor([1.0, 2.0])
    with pytest.warns(DeprecationWarning, match="Module.zero_grad"):
        module.zero_grad()
    np.testing.assert_array_equal(module.weight.grad.numpy(), [0, 0])


def test_replace_param_puts_new_parameters_in_place():
    module = Outer()
    new = [Parameter(np.full(n, 2, np.float32)) for n in (1, 3, 2, 2, 2)]
    with pytest.warns(DeprecationWarning, match="Module.replace_param"):
        assert module.replace_param(new, 1) == 4
    assert module.a is new[1] and module.z.weight is new[4]


def test_seed_repeats_initial_weights():
    mge.random.seed(3)
    first = M.Linear(4, 5).weight.numpy()
    mge.random.seed(3)
    np.testing.assert_array_equal(M.Linear(4, 5).weight.numpy(), first)


def test_with_parent_lists_pairs_without_names():
    inner = M.Linear(2, 2)
    outer = M.Sequential(inner, M.BatchNorm1d(2))
    assert [(value is inner.weight, parent is inner) for value, parent in inner.parameters(with_parent=True)][-1] == (True, True)
    assert {id(parent) for _, parent in outer.parameters(with_parent=True)} == {id(outer[0]), id(outer[1])}
    assert {id(parent) for _, parent in outer.buffers(with_parent=True)} == {id(outer[1])}
    assert [parent for _, parent in outer.children(with_parent=True)] == [outer, outer]
    assert [(module, parent) for module, parent in outer.modules(with_parent=True)][:2] == [(outer, None), (outer[0], outer)]


class Tied(M.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = M.Embedding(4, 3), M.Linear(3, 4, bias=False)
        self.head.weight = self.embed.weight


def test_a_tied_weight_is_loaded_under_any_of_its_names():
    net, value = Tied(), np.arange(12, dtype=np.float32).reshape(4, 3)
    assert list(net.state_dict()) == ["embed.weight"]
    for names in (["embed.weight", "head.weight"], ["head.weight"], ["embed.weight"]):
        net.embed.weight[...] = 0
        net.load_state_dict(dict.fromkeys(names, value))
        np.testing.assert_array_equal(net.head.weight.numpy(), value)
        assert net.head.weight is net.embed.weight
    with pytest.raises(ValueError, match=r"embed.weight and head.weight are one tensor"):
        net.load_state_dict({"embed.weight": value, "head.weight": value + 1})
    with pytest.raises(KeyError, match="unused in the state dict: other"):
        net.load_state_dict({"embed.weight": value, "other": value})


class Buffered(M.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", Tensor([1.0, 2.0]), persistent=False)
        self.register_buffer("mean", Tensor([3.0]))


def test_a_buffer_that_is_not_persistent_stays_out_of_the_state_dict():
    net = M.Sequential(Buffered(), Buffered())
    assert list(net.state_dict()) == ["0.mean", "1.mean"]
    assert [name for name, _ in net.named_buffers()] == ["0.mean", "0.table", "1.mean", "1.table"]
    net.load_state_dict({"0.mean": np.ones(1, "f4"), "1.mean": np.ones(1, "f4")})
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert list(copied.state_dict()) == ["0.mean", "1.mean"] and copied[1].table.tolist() == [1.0, 2.0]
    net[0].register_buffer("table", Tensor([5.0]))
    assert "0.table" in net.state_dict()
    with pytest.raises(TypeError, match="must be a Tensor that is not a Parameter"):
        net.register_buffer("weight", mge.Parameter([1.0]))
