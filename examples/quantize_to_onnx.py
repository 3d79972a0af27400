"""Trains a small network with rounding to 8 bits, makes it compute on integers, exports it to ONNX, and has onnxruntime judge it.

    pip install 'megjit[onnx]' onnxruntime scikit-learn
    python examples/quantize_to_onnx.py --out digits.onnx
"""

import argparse

import numpy as np
import onnxruntime
from sklearn.datasets import load_digits

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.onnx
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.quantization import disable_observer, ema_fakequant_qconfig, quantize, quantize_qat


class Net(M.Module):
    """Layers that can be joined are written as one: ConvBnRelu2d is a single integer operation later."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = M.QuantStub(), M.DequantStub()
        self.conv1 = M.ConvBnRelu2d(1, 16, 3, padding=1)
        self.conv2 = M.ConvBnRelu2d(16, 32, 3, stride=2, padding=1)
        self.out = M.Linear(32 * 4 * 4, 10)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = self.conv2(self.conv1(self.quant(x)))
        return self.dequant(self.out(F.flatten(x, 1)))


def train(net: M.Module, images: np.ndarray, labels: np.ndarray, epochs: int, lr: float) -> None:
    gm, optimizer = GradManager().attach(net.parameters()), optim.Adam(net.parameters(), lr=lr)

    @trace(symbolic=True, opt_level=3)
    def step(image: mge.Tensor, label: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.loss.cross_entropy(net(image), label)
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    net.train()
    rng = np.random.RandomState(0)
    for _ in range(epochs):
        order = rng.permutation(len(images))
        for i in range(0, len(order) - 63, 64):
            batch = order[i : i + 64]
            step(mge.tensor(images[batch]), mge.tensor(labels[batch]))
    net.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", default="digits.onnx")
    args = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 16).astype("float32").reshape(-1, 1, 8, 8), labels.astype("int32")
    test, test_labels = images[:360], labels[:360]
    images, labels = images[360:], labels[360:]

    def accuracy(results: np.ndarray) -> float:
        return float((np.argmax(results, axis=1) == test_labels).mean())

    mge.random.seed(0)
    net = Net()
    train(net, images, labels, args.epochs, lr=3e-3)
    print(f"float32             {accuracy(net(mge.tensor(test)).numpy()):.1%}")

    # Observers watch ranges while training goes on; then the ranges are fixed, and weights become integers.
    rounding = quantize_qat(net, qconfig=ema_fakequant_qconfig)
    train(rounding, images, labels, 2, lr=1e-3)
    disable_observer(rounding)
    quantized = quantize(rounding)
    ours = quantized(mge.tensor(test)).numpy()
    weight = dict(quantized.named_tensors())["conv2.weight"]
    print(f"8 bits              {accuracy(ours):.1%}, weights are {weight.dtype}")

    megengine.onnx.export(quantized, mge.tensor(test[:1]), args.out, input_names=["image"], dynamic_axes={"image": {0: "batch"}})
    session = onnxruntime.InferenceSession(args.out, providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, {"image": test})
    same = float((np.argmax(theirs, axis=1) == np.argmax(ours, axis=1)).mean())
    print(f"8 bits, onnxruntime {accuracy(theirs):.1%}, the same digit for {same:.1%}")


if __name__ == "__main__":
    main()
