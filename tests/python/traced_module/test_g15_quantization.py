"""G15: modules of quantization-aware training in traced modules; fake quantizers with their own parameters."""

import copy
import pickle

import pytest
from nets import same, tensor

import megengine.module as M
import megengine.traced_module as tm
from megengine.quantization import QuantMode, create_qparams, ema_fakequant_qconfig, quantize_qat
from megengine.traced_module.fake_quant import FakeQuantize


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = M.QuantStub(), M.DequantStub()
        self.conv = M.ConvBn2d(3, 4, 1)

    def forward(self, x):
        return self.dequant(self.conv(self.quant(x)))


@pytest.mark.parametrize("copied", [lambda m: m, copy.copy, copy.deepcopy, tm.TracedModule.flatten,
                                    lambda m: pickle.loads(pickle.dumps(m))])  # fmt: skip
def test_observers_and_fake_quantizers_stay(copied):
    x = tensor(2, 3, 4, 4)
    net = quantize_qat(Net(), qconfig=ema_fakequant_qconfig)
    net(x)
    net.eval()
    traced = copied(tm.trace_module(net, x))
    same(traced(x), net(x))
    assert type(traced.conv) is type(net.conv)
    assert type(traced.conv.act_observer) is type(net.conv.act_observer)


def test_a_fake_quantizer_holds_its_parameters():
    fake = FakeQuantize("qint8")
    with pytest.raises(ValueError, match="set_qparams"):
        fake(tensor(3))
    fake.set_qparams(create_qparams(QuantMode.SYMMERTIC, fake.dtype, tensor(1) * 0 + 0.5))
    same(fake(tensor(3) * 0 + 0.6), tensor(3) * 0 + 0.5)
