"""utils.module_stats beyond what behaviour/cases_module_stats.py compares with the original."""

import numpy as np
import pytest

import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.utils import module_stats as S
from megengine.utils.bn_fusion import fuse_conv_bn_relu_module, fuse_linear_bn_relu_module


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.layers = M.Sequential(M.Conv2d(2, 2, 3, 2, 1), M.ReLU(), M.MaxPool2d(2, 2), M.Conv2d(2, 2, 3, dilation=2))

    def forward(self, x):
        return self.layers(x)


def flops_of(model, shape):
    return S.module_stats(model, input_shapes=[shape], logging_to_stdout=False)[1].flops


def test_receptive_fields_grow_by_window_stride_and_dilation():
    S.enable_receptive_field()
    try:
        rows = flops_of(Net(), (1, 2, 32, 32))
    finally:
        S.disable_receptive_field()
    assert [(row["receptive_field"], row["stride"]) for row in rows[:-1]] == [
        ((3, 3), (2, 2)), ((5, 5), (4, 4)), ((21, 21), (4, 4)),
    ]  # fmt: skip
    assert "receptive_field" not in flops_of(Net(), (1, 2, 32, 32))[0]


def test_a_field_behind_a_function_is_unknown():
    class Functions(Net):
        def forward(self, x):
            return self.layers(F.relu(x))

    S.enable_receptive_field()
    try:
        assert flops_of(Functions(), (1, 2, 32, 32))[0]["receptive_field"] == "?"
    finally:
        S.disable_receptive_field()


def test_a_class_of_the_users_can_be_counted(monkeypatch):
    class Twice(M.Module):
        def forward(self, x):
            return x * 2

    monkeypatch.setattr(S, "hook_modules", list(S.hook_modules))
    monkeypatch.setattr(S, "_flops", dict(S._flops))
    assert flops_of(Twice(), (2, 3)) == [{"name": "total", "flops": "0.000 OPs", "output_shapes": 0}]
    S.register_hook_module(Twice)
    S.register_flops(Twice)(lambda module, inputs, outputs: inputs[0].size)
    assert flops_of(Twice(), (2, 3))[0]["flops_num"] == 6


def test_the_run_leaves_modes_hooks_and_statistics(caplog):
    net = M.Sequential(M.BatchNorm2d(3), M.Dropout(0.5).eval())
    S.module_stats(net, input_shapes=[(2, 3, 4, 4)])
    assert [module.training for module in net.modules()] == [True, True, False]
    assert not net[0]._forward_hooks and net[0].running_mean.numpy().max() == 0


def test_tables_are_logged(caplog):
    S.logger.propagate = True
    try:
        S.module_stats(M.Linear(3, 4), input_shapes=[(2, 3)])
    finally:
        S.logger.propagate = False
    text = caplog.text
    assert all(word in text for word in ("param stats", "flops stats", "activations stats", "summary"))
    assert "total_flops       28.000 OPs" in text


def test_inputs_are_needed():
    with pytest.raises(ValueError, match="input_shapes"):
        S.module_stats(M.Linear(3, 4))


@pytest.mark.parametrize("layer", [M.Conv2d, M.ConvTranspose2d])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("relu", [None, M.ReLU()])
@pytest.mark.parametrize("bias", [True, False])
def test_a_fused_layer_computes_what_its_parts_do(layer, groups, relu, bias):
    conv, bn = layer(4, 6, 3, stride=2, groups=groups, bias=bias), M.BatchNorm2d(6)
    for value in (bn.running_mean, bn.running_var, bn.weight, bn.bias):
        value._reset(Tensor(np.random.default_rng(0).uniform(0.5, 2, value.shape).astype("float32")))
    conv.eval(), bn.eval()
    x = Tensor(np.random.default_rng(1).normal(size=(2, 4, 7, 7)).astype("float32"))
    y = bn(conv(x)) if relu is None else relu(bn(conv(x)))
    np.testing.assert_allclose(fuse_conv_bn_relu_module(conv, bn, relu)(x).numpy(), y.numpy(), atol=2e-5)


def test_linear_layers_are_fused_and_others_refused():
    linear, bn = M.Linear(4, 6).eval(), M.BatchNorm1d(6).eval()
    x = Tensor(np.random.default_rng(1).normal(size=(5, 4)).astype("float32"))
    fused = fuse_linear_bn_relu_module(linear, bn, M.ReLU())
    np.testing.assert_allclose(fused(x).numpy(), F.relu(bn(linear(x))).numpy(), atol=2e-5)
    with pytest.raises(TypeError, match="ReLU"):
        fuse_conv_bn_relu_module(M.ReLU(), None, None)
    with pytest.raises(ValueError, match="statistics"):
        fuse_linear_bn_relu_module(linear, M.BatchNorm1d(6, track_running_stats=False).eval(), None)


def ran(layer, *shape):
    """The layer with the inputs and outputs of a call, as counters take them."""
    x = Tensor(np.random.default_rng(1).normal(size=shape).astype(np.float32))
    y = layer(x)
    return layer, [x], [y]


def test_counters_count_multiply_adds():
    """By hand: each output element of a convolution reads its window in the channels of its group; a bias adds one."""
    x = 2 * 6 * 3 * 3
    assert S.flops_convNd(*ran(M.Conv2d(4, 6, 3, groups=2), 2, 4, 5, 5)) == x * (2 * 9 + 1)
    assert S.flops_convNd(*ran(M.Conv2d(4, 6, 3, groups=2, bias=False), 2, 4, 5, 5)) == x * 2 * 9
    assert S.flops_convNdTranspose(*ran(M.ConvTranspose2d(4, 6, 3), 2, 4, 5, 5)) == 2 * 4 * 25 * 6 * 9 + 2 * 6 * 49
    assert S.flops_linear(*ran(M.Linear(3, 4), 5, 3)) == 5 * 4 * 3 + 4
    assert S.flops_linear(*ran(M.Linear(3, 4, bias=False), 5, 3)) == 5 * 4 * 3
    assert S.flops_batchmatmul(*ran(M.BatchMatMulActivation(2, 3, 4), 2, 3, 5)) == 2 * 4 * 5 * (3 + 1)
    assert S.flops_norm(*ran(M.BatchNorm2d(3), 2, 3, 4, 4)) == 7 * 2 * 3 * 16
    assert S.flops_pool(*ran(M.AvgPool2d((3, 2), 1), 2, 3, 5, 4)) == 2 * 3 * 3 * 3 * 6
    assert S.flops_adaptivePool(*ran(M.AdaptiveAvgPool2d((2, 3)), 2, 3, 6, 6)) == 2 * 3 * 2 * 3


def test_a_row_says_what_one_call_costs():
    layer, inputs, outputs = ran(M.Linear(3, 4), 5, 3)
    assert S.get_op_stats(layer, inputs, outputs) == {"input_shapes": [(5, 3)], "output_shapes": [(5, 4)], "flops_num": 64}
    assert S.get_op_stats(M.ReLU(), inputs, outputs) is None
    values = layer.weight.numpy().astype(np.float64)
    row = S.get_param_stats(layer.weight)
    assert (row["shape"], row["param_dim"], row["nbits"], row["size"]) == ((4, 3), 12, 32, 48)
    assert (row["mean"], row["std"]) == (f"{values.mean():.3g}", f"{values.std():.3g}")
    half = outputs[0].astype("float16")
    assert S.get_activation_stats(half) == {"dtype": np.float16, "shape": (5, 4), "act_dim": 20, "nbits": 16, "size": 40}
    seen = S.get_activation_stats(outputs[0], has_input=True)
    assert seen["mean"] == f"{outputs[0].numpy().astype(np.float64).mean():.3g}"


def test_sums_add_shares_bars_and_totals():
    rows = [{"name": "a", "flops_num": 300, "output_shapes": [(1, 5)]}, {"name": "b", "flops_num": 100, "output_shapes": [(1, 2)]}]
    total, rows = S.sum_op_stats(rows, bar_length_max=6)
    assert total == 400 and [row["bar"] for row in rows[:2]] == ["######", "##"]
    assert [row["percentage"] for row in rows[:2]] == ["75.00%", "25.00%"] and rows[1]["flops_cum"] == "400.000 OPs"
    assert rows[2] == {"name": "total", "flops": "400.000 OPs", "output_shapes": 7}
    for sum_of, name in ((S.sum_param_stats, "param_dim"), (S.sum_activations_stats, "act_dim")):
        dims, size, rows = sum_of([{"name": "a", name: 6, "size": 1536}, {"name": "b", name: 2, "size": 512}], bar_length_max=3)
        assert (dims, size) == (8, 2048) and [row["size_bar"] for row in rows[:2]] == ["###", "#"]
        assert rows[-1] == {"name": "total", name: 8, "size": "2.000 KiB"} and rows[0]["percentage"] == "75.00%"


def test_tables_are_logged_with_their_columns(monkeypatch):
    lines = []
    monkeypatch.setattr(S.logger, "info", lambda text, *values: lines.append(text % values))
    flops = S.sum_op_stats([{"name": "fc", "flops_num": 3000, "output_shapes": [(1, 10)]}])[1]
    S.print_op_stats(flops)
    S.print_param_stats(S.sum_param_stats([{"name": "fc-w", "param_dim": 256, "size": 1024}])[2])
    activations = S.sum_activations_stats([{"name": "fc", "act_dim": 256, "size": 1024, "mean": "0.25"}])[2]
    S.print_activations_stats(activations)
    S.print_activations_stats(activations, has_input=True)
    S.print_summary(total_flops="3 OPs", batch=2)
    assert lines[0].startswith("flops stats") and "3.000 KOPs" in lines[0] and "receptive_field" not in lines[0]
    assert lines[1].startswith("param stats") and "fc-w" in lines[1] and "1.000 KiB" in lines[1]
    assert "mean" not in lines[2] and "mean" in lines[3] and "0.25" in lines[3]
    assert lines[4].startswith("summary") and [line.split() for line in lines[4].splitlines()[3:5]] == [["total_flops", "3", "OPs"], ["batch", "2"]]


def test_results_are_named_tuples():
    total, details = S.module_stats(M.Linear(3, 4), input_shapes=[(2, 3)], logging_to_stdout=False)
    assert isinstance(total, S.total_stats) and isinstance(details, S.stats)
    assert total == S.total_stats(param_size=64, param_dims=16, flops=28, act_size=32, act_dims=8)


def test_a_field_of_ones_own_reaches_the_layers_behind():
    class Shift(M.Module):
        """Looks one pixel further to each side."""

        def forward(self, x):
            return x * 1

    @S.register_flops(Shift)
    def flops_of_shift(module, inputs, outputs):
        return 0

    @S.register_receptive_field(Shift)
    def field_of_shift(module, inputs, outputs):
        before = S.receptive_field_of(inputs[0])
        assert before == S.preprocess_receptive_field(module, inputs, outputs)
        return tuple(size + 2 * stride for size, stride in zip(*before)), before[1]

    S.register_hook_module(Shift)
    S.enable_receptive_field()
    try:
        rows = flops_of(M.Sequential(M.Conv2d(2, 2, 3, 2), Shift(), M.Conv2d(2, 2, 3)), (1, 2, 32, 32))
    finally:
        S.disable_receptive_field()
        S.hook_modules.remove(Shift)
    assert [row["receptive_field"] for row in rows[:-1]] == [(3, 3), (7, 7), (11, 11)]
    assert S.receptive_field_of(Tensor(1.0)) is None
