import numpy as np

import megengine.module as M
import megengine.quantization as Q
from megengine import Tensor
from megengine.quantization import observer as O

BATCHES = [(np.sin(np.arange(60) * (i + 1)) * (i + 1) + 0.3).astype("float32").reshape(3, 20) for i in range(4)]


def observed(make, **kw):
    observer = make(**kw)
    for batch in BATCHES:
        observer(Tensor(batch))
    p = observer.get_qparams()
    return [getattr(observer, "min_val", 0), getattr(observer, "max_val", 0), p.scale, p.zero_point]


def ask_min_max():
    return observed(O.MinMaxObserver, dtype="qint8"), observed(O.MinMaxObserver, mode=Q.QuantMode.ASYMMERTIC, dtype="quint8")


def ask_moving_average():
    return observed(O.ExponentialMovingAverageObserver, momentum=0.9, dtype="qint8"), observed(O.ExponentialMovingAverageObserver, momentum=0.5, mode=Q.QuantMode.ASYMMERTIC, dtype="quint8")


def ask_sync_observers():
    return observed(O.SyncMinMaxObserver, dtype="qint8"), observed(O.SyncExponentialMovingAverageObserver, dtype="qint8")


def ask_histogram():
    return observed(O.HistogramObserver, dtype="qint8")


def ask_histogram_with_few_bins():
    return observed(O.HistogramObserver, bins=64, upsample_rate=4, dtype="qint8")


def ask_histogram_asymmetric():
    return observed(O.HistogramObserver, bins=256, upsample_rate=16, mode=Q.QuantMode.ASYMMERTIC, dtype="quint8")


def layers():
    net = M.Sequential(M.Conv2d(3, 4, 3), M.ConvRelu2d(4, 4, 3), M.ConvBn2d(4, 4, 3), M.ConvBnRelu2d(4, 4, 1), M.QuantStub(), M.DequantStub())
    lines = M.Sequential(M.Linear(3, 4), M.LinearRelu(4, 4), M.LinearBn1d(4, 4), M.Elemwise("add"))
    return M.Sequential(net, lines)


def ask_repr_of_float_layers():
    return repr(layers()).split("\n")


def ask_repr_of_qat_layers():
    net = Q.quantize_qat(layers(), qconfig=Q.ema_fakequant_qconfig)
    return [line for line in repr(net).split("\n") if "Observer" not in line and "FakeQuant" not in line]


def ask_repr_of_quantized_layers():
    net = Q.quantize_qat(M.Sequential(M.QuantStub(), M.Conv2d(3, 4, 3), M.ConvRelu2d(4, 4, 3, stride=2), M.ConvBnRelu2d(4, 4, 1), M.DequantStub()), qconfig=Q.ema_fakequant_qconfig)
    net(Tensor(np.sin(np.arange(2 * 3 * 64)).astype("float32").reshape(2, 3, 8, 8)))
    net.eval()
    net(Tensor(np.sin(np.arange(2 * 3 * 64)).astype("float32").reshape(2, 3, 8, 8)))
    return repr(Q.quantize(net)).split("\n")


def ask_folded_weights():
    conv = Q.quantize_qat(M.Sequential(M.ConvBn2d(3, 4, 3)), qconfig=Q.ema_fakequant_qconfig)[0]
    conv.conv.weight[...] = Tensor(np.sin(np.arange(108)).astype("float32").reshape(4, 3, 3, 3))
    mean, var = Tensor(np.arange(4, dtype="float32").reshape(1, 4, 1, 1)), Tensor(1 + np.arange(4, dtype="float32").reshape(1, 4, 1, 1))
    return [t for t in conv.fold_weight_bias(mean, var)]


def ask_folded_weights_of_a_linear_layer():
    line = Q.quantize_qat(M.Sequential(M.LinearBn1d(3, 4)), qconfig=Q.ema_fakequant_qconfig)[0]
    line.linear.weight[...] = Tensor(np.sin(np.arange(12)).astype("float32").reshape(4, 3))
    return [t for t in line.fold_weight_bias(Tensor(np.arange(4, dtype="float32")), Tensor(1 + np.arange(4, dtype="float32")))]


def ask_fake_quantization():
    p = Q.create_qparams(Q.QuantMode.SYMMERTIC, "qint8", Tensor(0.1))
    return Q.fake_quant_tensor(Tensor(np.linspace(-20, 20, 9, dtype="float32")), p)


def ask_tqt():
    t = Q.TQT("qint8")
    t.set_qparams(Q.create_qparams(Q.QuantMode.SYMMERTIC, "qint8", Tensor(0.3)))
    return t(Tensor(np.linspace(-50, 50, 9, dtype="float32"))), t.get_qparams().scale


CONFIGS = "min_max_fakequant", "ema_fakequant", "sync_ema_fakequant", "ema_lowbit_fakequant", "calibration", "tqt", "passive", "easyquant"


def ask_texts_of_what_observes_and_rounds():
    made = [factory for name in CONFIGS for factory in getattr(Q, f"{name}_qconfig") if factory is not None]
    return [repr(make()) for make in made]


LAYERS = {
    "Conv2d": (1, 2, 1), "ConvBn2d": (1, 2, 1), "ConvRelu2d": (1, 2, 1), "ConvTranspose2d": (1, 2, 1), "ConvTransposeBn2d": (1, 2, 1),
    "Linear": (2, 3), "LinearBn1d": (2, 3), "LinearRelu": (2, 3), "Elemwise": ("add",), "Concat": (), "BatchMatMulActivation": (2, 3, 4), "QuantStub": (), "DequantStub": (),
}  # fmt: skip


def ask_texts_of_layers_for_training():
    layers = M.Sequential(*(getattr(M, name)(*args) for name, args in LAYERS.items()))
    layers = Q.quantize_qat(layers, qconfig=Q.ema_fakequant_qconfig)
    return [(repr(layer), [name for name, _ in layer.named_children()], layer.with_weight, layer.with_act) for layer in layers]


def ask_a_text_of_quantized_layers():
    return repr(M.quantized.Elemwise("add"))


def ask_names_in_a_transposed_convolution_and_norm():
    return sorted(M.ConvTransposeBn2d(1, 2, 1).state_dict())
