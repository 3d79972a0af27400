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
