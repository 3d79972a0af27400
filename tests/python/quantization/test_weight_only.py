"""Linear layers whose weights are int8 and whose arithmetic is float."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.quantization as Q
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.module.quantized import WeightOnlyLinear
from megengine.utils.comp_graph_tools import GraphInference

RNG = np.random.default_rng(0)


def layer(features=48, outputs=20, bias=True):
    made = M.Linear(features, outputs, bias=bias)
    if bias:
        made.bias[:] = RNG.standard_normal(outputs).astype(np.float32)
    return made


def real(quantized):
    return quantized.weight.numpy().astype(np.float32) * quantized.scale.numpy()[:, None]


def test_weights_are_rounded_to_their_rows_scale():
    linear = layer()
    linear.weight[3] = 0  # a feature that nothing reaches
    quantized = Q.quantize_weights(linear, inplace=False)
    scale, weight = quantized.scale.numpy(), linear.weight.numpy()
    assert quantized.weight.dtype == np.int8 and type(quantized) is WeightOnlyLinear
    assert (np.abs(real(quantized) - weight) <= scale[:, None] * 0.5001).all() and (real(quantized)[3] == 0).all()
    np.testing.assert_allclose(scale[:3], np.abs(weight[:3]).max(axis=1) / 127, rtol=1e-6)


@pytest.mark.parametrize("rows", [(), (1,), (1, 1), (2, 3), (16,), (17,), (0,)])
@pytest.mark.parametrize("bias", [True, False])
def test_it_computes_what_a_linear_layer_of_those_weights_computes(rows, bias):
    linear = layer(bias=bias)
    quantized = Q.quantize_weights(linear, inplace=False)
    x = RNG.standard_normal((*rows, 48)).astype(np.float32)
    wanted = x.astype(np.float64) @ real(quantized).T + (linear.bias.numpy() if bias else 0)
    for level in (None, 0, 2, 3):
        call = quantized if level is None else trace(lambda x: quantized(x), symbolic=True, opt_level=level)  # noqa: B023
        result = call(mge.tensor(x))
        assert result.dtype == np.float32 and result.shape == wanted.shape
        np.testing.assert_allclose(result.numpy(), wanted, atol=1e-5)


@pytest.mark.host("on a GPU the library's product reads float weights")
def test_a_trace_keeps_no_float_weights():
    quantized = Q.quantize_weights(layer(1024, 1024))
    step = trace(lambda x: F.relu(quantized(x)), symbolic=True, opt_level=3)
    for _ in range(2):
        step(mge.tensor(np.ones((1, 1024), np.float32)))
    assert step.memory_plan().planned_bytes < 1.1 * 1024 * 1024
    assert [kernel.ops for kernel in step.kernels()] == [["cast", "matmul", "mul", "add", "relu"]]


def test_halves_stay_halves():
    quantized = Q.quantize_weights(layer(512, 8))
    x = RNG.standard_normal((2, 512)).astype(np.float16)
    result = quantized(mge.tensor(x))
    assert result.dtype == np.float16
    np.testing.assert_allclose(result.numpy(), x.astype(np.float32) @ real(quantized).T + quantized.bias.numpy(), atol=4e-3)


def test_gradients_reach_the_input_and_the_bias():
    quantized, x = Q.quantize_weights(layer()), mge.Parameter(RNG.standard_normal((5, 48)).astype(np.float32))
    parameters = [x, *quantized.parameters()]
    assert len(parameters) == 2
    with GradManager().attach(parameters) as gm:
        gm.backward(quantized(x).sum())
    np.testing.assert_allclose(x.grad.numpy(), np.tile(real(quantized).sum(axis=0), (5, 1)), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(quantized.bias.grad.numpy(), np.full(20, 5))


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = M.Linear(4, 4), M.LinearRelu(4, 4)
        self.layers = [M.Linear(4, 4), M.Linear(4, 4), self.first]
        self.layers[1].disable_quantize()

    def forward(self, x):
        for one in (self.first, *self.layers, self.last):
            x = one(x)
        return x


def test_it_replaces_linear_layers_and_no_others():
    with pytest.warns(UserWarning, match="keeps that name"):
        net = Net()
    copy = Q.quantize_weights(net, inplace=False)
    assert type(net.first) is M.Linear and net(F.ones((1, 4))).shape == (1, 4)
    assert copy.layers[2] is copy.first and type(copy.first) is WeightOnlyLinear
    assert [type(one) for one in (*copy.layers[:2], copy.last)] == [WeightOnlyLinear, M.Linear, M.LinearRelu]
    assert Q.quantize_weights(net) is net and type(net.first) is WeightOnlyLinear
    np.testing.assert_array_equal(net(F.ones((1, 4))).numpy(), copy(F.ones((1, 4))).numpy())


def test_name_mode_and_hooks_are_kept():
    linear, seen = layer().eval(), []
    linear.name = "head"
    linear.register_forward_hook(lambda module, inputs, result: seen.append(type(module)))
    quantized = Q.quantize_weights(linear)
    quantized(F.ones((1, 48)))
    assert quantized.name == "head" and not quantized.training and seen == [WeightOnlyLinear]
    assert [name for name, _ in quantized.named_tensors()] == ["bias", "scale", "weight"]


def test_state_is_kept_and_loaded(tmp_path):
    quantized = Q.quantize_weights(M.Sequential(layer(), M.ReLU()))
    mge.save(quantized.state_dict(), str(tmp_path / "state.pkl"))
    other = M.Sequential(WeightOnlyLinear(48, 20), M.ReLU())
    other.load_state_dict(mge.load(str(tmp_path / "state.pkl")))
    x = mge.tensor(RNG.standard_normal((3, 48)).astype(np.float32))
    np.testing.assert_array_equal(other(x).numpy(), quantized(x).numpy())
    assert "in_features=48, out_features=20, bias=True" in repr(other)


def test_a_dumped_network_keeps_them_in_8_bits(tmp_path):
    quantized = Q.quantize_weights(layer(256, 256))
    step = trace(lambda x: quantized(x), symbolic=True, capture_as_const=True)
    x = mge.tensor(RNG.standard_normal((1, 256)).astype(np.float32))
    wanted = step(x).numpy()
    step.dump(str(tmp_path / "net.mge"), arg_names=["x"])
    assert (tmp_path / "net.mge").stat().st_size < 256 * 256 * 1.2
    loaded = GraphInference(str(tmp_path / "net.mge"))
    np.testing.assert_allclose(next(iter(loaded.run(x.numpy()).values())), wanted, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(value):
    linear = layer()
    linear.weight[1, 2] = value
    with pytest.raises(ValueError, match="not finite"):
        Q.quantize_weights(linear)


def test_what_is_no_module_is_refused():
    with pytest.raises(TypeError, match="expected a Module, got a function"):
        Q.quantize_weights(lambda x: x)
