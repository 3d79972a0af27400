"""Models for quantization-aware training: conversion, switches, calibration, EasyQuant, saving."""

import copy
import io
from functools import partial

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.module.qat as Q
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.core.tensor import dtype as dt
from megengine.quantization import (
    LSQ,
    FakeQuantize,
    MinMaxObserver,
    PassiveObserver,
    QConfig,
    apply_easy_quant,
    calibration_qconfig,
    disable_fake_quant,
    disable_observer,
    easyquant_qconfig,
    ema_fakequant_qconfig,
    ema_lowbit_fakequant_qconfig,
    enable_fake_quant,
    enable_observer,
    min_max_fakequant_qconfig,
    passive_qconfig,
    propagate_qconfig,
    quantize_qat,
    reset_qconfig,
    sync_ema_fakequant_qconfig,
    tqt_qconfig,
)
from megengine.quantization.quantize import hook_qat_module

RNG = np.random.default_rng(3)
X = mge.Tensor(RNG.normal(size=(4, 3, 6, 6)).astype(np.float32))
QCONFIGS = {
    "min_max": min_max_fakequant_qconfig, "ema": ema_fakequant_qconfig, "sync_ema": sync_ema_fakequant_qconfig,
    "lowbit": ema_lowbit_fakequant_qconfig, "calibration": calibration_qconfig, "tqt": tqt_qconfig,
}  # fmt: skip


class Net(M.Module):
    """Every kind of layer that has one for quantization-aware training, but batched products."""

    def __init__(self):
        super().__init__()
        self.quant = M.QuantStub()
        self.stem = M.ConvBnRelu2d(3, 8, 3, padding=1)
        self.blocks = [M.ConvRelu2d(8, 8, 1), M.Sequential(M.Conv2d(8, 8, 1), M.ReLU())]
        self.add = M.Elemwise("add")
        self.concat = M.Concat()
        self.up = M.ConvTransposeRelu2d(16, 4, 2, 2)
        self.hidden = M.LinearBnRelu1d(4, 8)
        self.head = M.Linear(8, 5)
        self.dequant = M.DequantStub()

    def forward(self, x):
        x = self.stem(self.quant(x))
        first, second = self.blocks[0](x), self.blocks[1](x)
        x = self.concat([self.add(first, second), x], 1)
        x = self.up(x).mean(axis=(2, 3))
        return self.dequant(self.head(self.hidden(x)))


def calibrated(qconfig=ema_fakequant_qconfig):
    qat = quantize_qat(Net(), qconfig=qconfig)
    qat(X)
    return qat


def test_float_layers_are_replaced_wherever_they_are():
    net = quantize_qat(Net())
    assert type(net.stem) is Q.ConvBnRelu2d and type(net.stem.conv) is M.Conv2d
    assert type(net.blocks[0]) is Q.ConvRelu2d and type(net.blocks[1][0]) is Q.Conv2d
    assert type(net.blocks[1][1]) is M.ReLU
    assert repr(net.head).startswith("QAT.Linear(\n  in_features=8, out_features=5, bias=True")


def test_parameters_stay_the_same_objects_and_copies_share_nothing():
    net = Net()
    weight = net.head.weight
    copied = quantize_qat(net, inplace=False)
    assert type(net.head) is M.Linear and copied.head.weight is not weight
    assert quantize_qat(net) is net and net.head.weight is weight


def test_a_float_layer_alone_is_replaced():
    layer = M.Linear(2, 3, name="head")
    layer.eval()
    qat = quantize_qat(layer)
    assert type(qat) is Q.Linear and qat.name == "head" and not qat.training


def test_disabled_layers_and_subclasses_stay():
    class Mine(M.Linear):
        pass

    net = M.Sequential(M.Linear(2, 2), Mine(2, 2), M.Linear(2, 2))
    net[2].disable_quantize()
    quantize_qat(net)
    assert [type(layer) for layer in net] == [Q.Linear, Mine, M.Linear]
    quantize_qat(net, mapping={Mine: Q.Linear})
    assert type(net[1]) is Q.Linear


def test_a_shared_layer_stays_shared():
    layer = M.Linear(2, 2)
    net = M.Sequential(M.ReLU(), M.ReLU())
    net.pair = [layer, layer]
    quantize_qat(net)
    assert type(net.pair[0]) is Q.Linear and net.pair[0] is net.pair[1]


def test_every_exported_class_converts_by_from_float_module():
    layer = M.BatchMatMulActivation(2, 3, 4, nonlinear_mode="relu")
    qat = Q.BatchMatMulActivation.from_float_module(layer)
    x = mge.Tensor(RNG.normal(size=(2, 3, 5)).astype(np.float32))
    np.testing.assert_array_equal(qat(x).numpy(), layer(x).numpy())
    qat.set_qconfig(min_max_fakequant_qconfig)
    wanted = layer(x).numpy()
    np.testing.assert_allclose(qat(x).numpy(), wanted, rtol=0, atol=0.02 * wanted.max())


@pytest.mark.parametrize("name", QCONFIGS)
def test_ready_made_configurations_train_one_step(name):
    net = calibrated() if name == "tqt" else quantize_qat(Net())
    reset_qconfig(net, QCONFIGS[name])
    with GradManager().attach(net.parameters()) as gm:
        loss = net(X).sum()
        gm.backward(loss)
    assert all(np.isfinite(p.grad.numpy()).all() for p in net.parameters() if p.grad is not None)
    assert np.abs(net.stem.conv.weight.grad.numpy()).max() > 0
    if name != "tqt":
        assert net.head.get_weight_dtype() is not None


def test_eight_bits_are_close_to_float_and_every_result_is_on_its_grid():
    mge.random.seed(0)  # some weights are off by a little more
    net = Net()
    net.eval()
    float_result = net(X).numpy()
    net.train()
    qat = quantize_qat(net, inplace=False)
    disable_fake_quant(qat)
    qat.stem.bn.eval()  # the statistics stay those of the float model
    qat.hidden.bn.eval()
    qat(X)
    enable_fake_quant(qat)
    qat.eval()
    result = qat(X).numpy()
    np.testing.assert_allclose(result, float_result, rtol=0, atol=0.02 * np.abs(float_result).max())
    levels = result / qat.head.get_activation_qparams().scale.item()
    np.testing.assert_allclose(levels, np.round(levels), atol=1e-3)
    assert np.abs(levels).max() <= 128 and not np.array_equal(result, float_result)


def test_switches_reach_all_layers():
    net = calibrated()
    disable_observer(net)
    before = net.quant.act_observer.max_val.numpy()
    net(X * 10)
    np.testing.assert_array_equal(net.quant.act_observer.max_val.numpy(), before)
    enable_observer(net)
    net(X * 10)
    assert net.quant.act_observer.max_val.numpy() > before
    disable_fake_quant(net)
    assert not net.stem.weight_fake_quant.enabled and not net.head.act_fake_quant.enabled


def test_dtypes_of_layers_carry_the_scales():
    net = calibrated(min_max_fakequant_qconfig)
    assert dt.get_scale(net.head.get_weight_dtype()) == pytest.approx(
        np.abs(net.head.weight.numpy()).max() / 127, rel=1e-5
    )
    assert net.add.get_weight_dtype() is None and net.dequant.get_activation_dtype() is None


def test_reset_qconfig_keeps_what_was_found():
    net = calibrated()
    scale = net.head.get_activation_qparams().scale.item()
    other = reset_qconfig(net, passive_qconfig, inplace=False)
    assert isinstance(other.head.act_observer, PassiveObserver)
    assert other.head.act_observer.scale.item() == scale
    assert isinstance(net.head.act_fake_quant, FakeQuantize) and net.head.act_observer is not other
    lsq = partial(LSQ, dtype="qint8")
    reset_qconfig(net, QConfig(None, None, None, lsq))
    assert net.head.act_fake_quant.step_size.item() == pytest.approx(scale)


def test_easy_quant_finds_scales_at_least_as_good():
    mge.random.seed(0)  # of 60 seeds 4 give weights for which the scales before were almost as good
    net = quantize_qat(M.Sequential(M.Conv2d(3, 8, 3), M.Conv2d(8, 4, 3)))
    net.eval()
    enable_observer(net)
    disable_fake_quant(net)
    wanted = net(X).numpy()
    reset_qconfig(net, easyquant_qconfig)
    net[0].act_observer.scale = 4 * net[0].act_observer.scale
    net[0].act_observer.orig_scale = mge.Tensor(net[0].act_observer.scale.numpy())

    def distance():
        return np.linalg.norm(net(X).numpy() - wanted)

    before = distance()
    assert apply_easy_quant(net, X, 0.2, 1.2, 11) is net
    assert distance() < 0.6 * before
    assert net[0].weight_fake_quant.enabled and not net[0]._forward_hooks


def test_hooks_are_called_for_each_layer_and_removed():
    net, names = calibrated(), []
    handles = hook_qat_module(net, lambda layer, inputs, outputs: names.append(type(layer)))
    net(X)
    assert names[0] is Q.QuantStub and names.count(Q.Linear) == 1 and len(names) == 10
    for handle in handles:
        handle.remove()
    net(X)
    assert len(names) == 10


def test_a_quantized_model_learns():
    mge.random.seed(0)
    net = quantize_qat(M.Sequential(M.QuantStub(), M.LinearRelu(2, 16), M.Linear(16, 2)))
    x = RNG.normal(size=(64, 2)).astype(np.float32)
    label = mge.Tensor((x[:, 0] > x[:, 1]).astype(np.int32))
    opt, gm = optim.SGD(net.parameters(), 0.2), GradManager().attach(net.parameters())
    losses = []
    for _ in range(60):
        with gm:
            loss = F.nn.cross_entropy(net(mge.Tensor(x)), label)
            gm.backward(loss)
        opt.step().clear_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_models_survive_state_dicts_copies_and_files():
    net = calibrated()
    net.eval()
    wanted = net(X).numpy()
    twin = quantize_qat(Net())
    twin.load_state_dict(net.state_dict())
    twin.eval()
    np.testing.assert_array_equal(twin(X).numpy(), wanted)
    np.testing.assert_array_equal(copy.deepcopy(net)(X).numpy(), wanted)
    file = io.BytesIO()
    mge.save(net.head, file)
    file.seek(0)
    loaded = mge.load(file)
    np.testing.assert_array_equal(loaded.weight.numpy(), net.head.weight.numpy())
    assert loaded.get_activation_dtype() == net.head.get_activation_dtype()


def test_errors():
    with pytest.raises(ValueError, match="act_observer is an instance"):
        QConfig(MinMaxObserver, MinMaxObserver(), None, None)
    with pytest.raises(TypeError, match="expected a Module, got a int"):
        quantize_qat(3)


def test_a_new_qconfig_reaches_every_layer_and_forgets_what_was_found():
    model = quantize_qat(M.Sequential(M.Linear(4, 3), M.Linear(3, 2)))
    model(mge.Tensor(np.ones((2, 4), np.float32)))
    assert model[0].act_observer.max_val.item() != model[0].act_observer.min_val.item()
    propagate_qconfig(model, tqt_qconfig)
    assert [type(layer.weight_fake_quant).__name__ for layer in model] == ["TQT", "TQT"]
    propagate_qconfig(model, min_max_fakequant_qconfig)
    fresh = MinMaxObserver()
    assert model[0].act_observer.max_val.item() == fresh.max_val.item()  # nothing seen yet


def test_layers_for_training_have_what_they_quantize():
    for layer, has_weight, has_act in ((Q.Linear(4, 2), True, True), (Q.Concat(), True, True), (Q.QuantStub(), False, True), (Q.DequantStub(), False, False)):
        assert isinstance(layer, Q.QATModule) and layer.weight_observer is layer.act_fake_quant is None
        layer.set_qconfig(min_max_fakequant_qconfig)
        assert (layer.weight_fake_quant is not None, layer.act_fake_quant is not None) == (has_weight, has_act)
