"""Trains a small ResNet, rewrites its graph, and makes it compute on 8-bit integers, with the accuracy of each.

    pip install scikit-learn
    python examples/resnet_to_int8.py [--epochs 30] [--width 16]

The network is written as one writes it, without a thought of integers. Training ends early when the held-out images are
recognized no better for some epochs. Then the batch norms go into the convolutions, ``fx`` joins each convolution, or sum, with the ReLU behind
it, and says where integers begin and end; a few batches show the ranges of all values, and the rest is `quantize`.
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import fx
from megengine.autodiff import GradManager
from megengine.fx.experimental.optimization import fuse
from megengine.jit import trace
from megengine.quantization import (
    calibration_qconfig,
    disable_fake_quant,
    disable_observer,
    enable_fake_quant,
    enable_observer,
    quantize,
    quantize_qat,
)


class Block(M.Module):
    """Two convolutions, and a way around them (He et al. 2016)."""

    def __init__(self, narrow: int, wide: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = M.Conv2d(narrow, wide, 3, stride, padding=1), M.BatchNorm2d(wide)
        self.conv2, self.bn2 = M.Conv2d(wide, wide, 3, padding=1), M.BatchNorm2d(wide)
        self.around, self.bn3 = M.Conv2d(narrow, wide, 1, stride), M.BatchNorm2d(wide)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.bn3(self.around(x)))


class ResNet(M.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.bn = M.Conv2d(1, width, 3, padding=1), M.BatchNorm2d(width)
        self.block1, self.block2 = Block(width, width, 1), Block(width, 2 * width, 2)
        self.out = M.Linear(2 * width, 10)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = self.block2(self.block1(F.relu(self.bn(self.conv(x)))))
        return self.out(F.mean(x, axis=(2, 3)))


class Data:
    """Digits to learn from, to stop by (``held``), and to judge by (``test``)."""

    def __init__(self) -> None:
        images, labels = load_digits(return_X_y=True)
        images = (images / 16).astype("float32").reshape(-1, 1, 8, 8)
        self.images, self.labels = images[600:], labels.astype("int32")[600:]
        self.held, self.held_labels = images[300:600], labels[300:600]
        self.test, self.test_labels = images[:300], labels[:300]


def accuracy(net: M.Module, images: np.ndarray, labels: np.ndarray) -> float:
    return float((F.argmax(net(mge.tensor(images)), axis=1).numpy() == labels).mean())


def train(net: M.Module, data: Data, epochs: int, patience: int) -> int:
    """Train until ``patience`` epochs have brought nothing, and keep the best weights. Gives the number of epochs."""
    gm, optimizer = GradManager().attach(net.parameters()), optim.AdamW(net.parameters(), lr=5e-3)
    schedule = optim.ReduceLROnPlateau(optimizer, mode="max", factor=0.3, patience=1)

    @trace(symbolic=True)
    def step(image: mge.Tensor, label: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.loss.cross_entropy(net(image), label)
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    rng, best, weights, since = np.random.RandomState(0), -1.0, net.state_dict(), 0
    for epoch in range(1, epochs + 1):
        net.train()
        order = rng.permutation(len(data.images))
        for i in range(0, len(order) - 63, 64):
            step(mge.tensor(data.images[order[i : i + 64]]), mge.tensor(data.labels[order[i : i + 64]]))
        net.eval()
        reached = accuracy(net, data.held, data.held_labels)
        schedule.step(reached)
        since = 0 if reached > best else since + 1
        if since == 0:
            best, weights = reached, net.state_dict()
        if since == patience:
            break
    net.load_state_dict(weights)
    return epoch


def for_integers(net: M.Module) -> fx.GraphModule:
    """The same network in layers of which each is one integer operation later."""
    gm = fx.symbolic_trace(fuse(net))
    gm.quant, gm.dequant = M.QuantStub(), M.DequantStub()
    for number, node in enumerate(list(gm.graph.nodes)):
        if node.op == "placeholder":
            with gm.graph.inserting_after(node):
                begin = gm.graph.call_module("quant", (node,))
            node.replace_all_uses_with(begin)
            begin.args = (node,)
        elif node.op == "call_function" and node.target is F.mean:
            with gm.graph.inserting_before(node):
                node.replace_input_with(node.args[0], gm.graph.call_module("dequant", (node.args[0],)))
        elif node.op == "call_function" and node.target is F.relu:
            before = node.args[0]
            name = f"joined{number}"
            if before.op == "call_module":
                gm.add_submodule(name, with_relu(fx.graph.attribute_at(gm, before.target)))
            else:
                gm.add_submodule(name, M.Elemwise("fuse_add_relu"))
            with gm.graph.inserting_before(node):
                node.replace_all_uses_with(gm.graph.call_module(name, before.args))
            gm.graph.erase_node(node)
            gm.graph.erase_node(before)
    gm.delete_all_unused_submodules()
    gm.graph.lint()
    gm.recompile()
    return gm


def with_relu(conv: M.Conv2d) -> M.ConvRelu2d:
    """The convolution with a ReLU behind it, as one layer."""
    made = M.ConvRelu2d(conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding)
    made.load_state_dict(conv.state_dict())
    return made


def integers(net: M.Module, images: np.ndarray) -> M.Module:
    """The network in integers, with the ranges that values have for these images."""
    watched = quantize_qat(net, inplace=False, qconfig=calibration_qconfig)
    watched.eval()
    enable_observer(watched)
    disable_fake_quant(watched)
    for i in range(0, len(images), 64):
        watched(mge.tensor(images[i : i + 64]))
    disable_observer(watched)
    enable_fake_quant(watched)
    return quantize(watched)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--patience", type=int, default=5, help="epochs without a better result, after which training ends")
    parser.add_argument("--width", type=int, default=16)
    args = parser.parse_args()

    mge.random.seed(0)
    data, net = Data(), ResNet(args.width)
    epochs = train(net, data, args.epochs, args.patience)
    print(f"as trained  {accuracy(net, data.test, data.test_labels):.1%}, after {epochs} of at most {args.epochs} epochs")
    rewritten = for_integers(net)
    print(f"rewritten   {accuracy(rewritten, data.test, data.test_labels):.1%}, {len(list(net.modules()))} modules are {len(list(rewritten.modules()))}")
    small = integers(rewritten, data.images[:512])
    sizes = [sum(np.asarray(array).nbytes for array in each.state_dict().values()) for each in (net, small)]
    print(f"in integers {accuracy(small, data.test, data.test_labels):.1%}, {sizes[0]:,} bytes of weights are {sizes[1]:,}")


if __name__ == "__main__":
    main()
