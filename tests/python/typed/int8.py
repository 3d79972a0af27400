"""Quantization: observe, round while training, compute on integers."""

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.quantization import (
    QConfig,
    disable_observer,
    ema_fakequant_qconfig,
    quantize,
    quantize_qat,
)


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = M.QuantStub(), M.DequantStub()
        self.features = M.Sequential(M.ConvBnRelu2d(1, 8, 3, padding=1), M.ConvRelu2d(8, 8, 3, padding=1))
        self.head = M.Linear(8, 2)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = self.features(self.quant(x))
        return self.dequant(self.head(F.mean(x, axis=(2, 3))))


def train(net: Net, images: np.ndarray, labels: np.ndarray, steps: int) -> float:
    gm, optimizer = GradManager().attach(net.parameters()), optim.SGD(net.parameters(), lr=0.05)

    @trace(symbolic=True)
    def step(image: mge.Tensor, label: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.loss.cross_entropy(net(image), label)
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    net.train()
    return min(step(mge.tensor(images), mge.tensor(labels)).item() for _ in range(steps))


rng = np.random.RandomState(0)
images, labels = rng.rand(16, 1, 8, 8).astype("float32"), rng.randint(0, 2, 16).astype("int32")
qconfig: QConfig = ema_fakequant_qconfig
net = Net()
print(train(net, images, labels, 3))
rounding = quantize_qat(net, inplace=False, qconfig=qconfig)
print(train(rounding, images, labels, 3))
rounding.eval()
disable_observer(rounding)
integer = quantize(rounding, inplace=False)
scores = integer(mge.tensor(images))
print(scores.shape, F.argmax(scores, axis=1).numpy()[:3])
