"""A small ResNet-18, trained on scanned digits: on integers it judges as when fake-quantized.

The whole ResNet-18 is measured by benchmarks/cases/resnet18_int8.py.
"""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import SGD
from megengine.quantization import (
    disable_fake_quant,
    disable_observer,
    enable_fake_quant,
    enable_observer,
    quantize,
    quantize_qat,
)

WIDTH, TRAINED, BATCH, EPOCHS = 8, 1280, 64, 8
# channels in, channels out (times the width), stride
BLOCKS = ((1, 1, 1), (1, 1, 1), (1, 2, 2), (2, 2, 1), (2, 4, 2), (4, 4, 1), (4, 8, 2), (8, 8, 1))


class Block(M.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.first = M.ConvBnRelu2d(cin, cout, 3, stride, 1, bias=False)
        self.second = M.ConvBn2d(cout, cout, 3, 1, 1, bias=False)
        self.add = M.Elemwise("fuse_add_relu")
        changes = stride > 1 or cin != cout
        self.skip = M.ConvBn2d(cin, cout, 1, stride, bias=False) if changes else M.Identity()

    def forward(self, x):
        return self.add(self.second(self.first(x)), self.skip(x))


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = M.QuantStub(), M.DequantStub()
        self.stem = M.ConvBnRelu2d(1, WIDTH, 3, 1, 1, bias=False)
        self.blocks = M.Sequential(*(Block(a * WIDTH, b * WIDTH, s) for a, b, s in BLOCKS))
        self.head = M.Linear(8 * WIDTH, 10)

    def forward(self, x):
        x = self.blocks(self.stem(self.quant(x)))
        return self.dequant(self.head(F.flatten(F.adaptive_avg_pool2d(x, 1), 1)))


@pytest.fixture(scope="module")
def digits():
    """(images, labels), shuffled; those from TRAINED on are held out."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 8 - 1).astype(np.float32).reshape(-1, 1, 8, 8)
    order = np.random.RandomState(0).permutation(len(labels))
    return images[order], labels[order].astype(np.int32)


@pytest.fixture(scope="module")
def trained(digits):
    mge.random.seed(0)
    images, labels = digits
    net = Net()
    optimizer = SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    manager = GradManager().attach(net.parameters())

    @trace(symbolic=True)
    def step(image, label):
        with manager:
            manager.backward(F.loss.cross_entropy(net(image), label))
        optimizer.step().clear_grad()

    for epoch in range(EPOCHS):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * (1 - epoch / EPOCHS)
        order = np.random.RandomState(epoch).permutation(TRAINED)
        for begin in range(0, TRAINED, BATCH):
            chosen = order[begin : begin + BATCH]
            step(mge.Tensor(images[chosen]), mge.Tensor(labels[chosen]))
    net.eval()
    return net


def calibrated(net, images):
    qat = quantize_qat(net, inplace=False)
    disable_fake_quant(qat)
    enable_observer(qat)
    for begin in range(0, len(images), BATCH):
        qat(mge.Tensor(images[begin : begin + BATCH]))
    disable_observer(qat)
    enable_fake_quant(qat)
    return qat


def judged(net, images):
    return net(mge.Tensor(images)).numpy().argmax(axis=1)


def test_integers_judge_held_out_digits_as_the_fake_quantized_net_does(trained, digits):
    images, labels = digits[0][TRAINED:], digits[1][TRAINED:]
    fake = calibrated(trained, digits[0][:256])
    integers = quantize(fake, inplace=False)
    exact, simulated, computed = (judged(net, images) for net in (trained, fake, integers))
    assert (exact == labels).mean() >= 0.95  # it has learned something that could be lost
    assert (simulated == labels).mean() >= 0.94
    assert (computed == simulated).mean() >= 0.98


def test_ranges_from_no_images_at_all_would_be_noticed(trained, digits):
    images = digits[0][TRAINED:]
    fake = calibrated(trained, digits[0][:64] * 0.02)  # ranges fifty times too small
    assert (judged(quantize(fake), images) == judged(trained, images)).mean() < 0.9
