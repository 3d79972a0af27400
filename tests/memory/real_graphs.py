"""Training steps of small networks, planned one after the other; MEGJIT_DUMP makes each a file.

The networks are slices of the literature's, at sizes that they have there: planning runs nothing.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

import zoo

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace


class Scores(M.Module):
    """A body on images, and a mean over them."""

    def __init__(self, *body, channels):
        super().__init__()
        self.body, self.head = M.Sequential(*body), M.Linear(channels, 10)

    def forward(self, x):
        return self.head(F.mean(self.body(x), axis=(2, 3)))


class Tokens(M.Module):
    def __init__(self, *blocks):
        super().__init__()
        self.blocks, self.head = M.Sequential(*blocks), M.Linear(256, 100)

    def forward(self, x):
        return F.flatten(self.head(self.blocks(x)), 0, 1)


class Attention(zoo.TransformerBlock):
    def forward(self, x):
        return self.attention(x)


class FeedForward(zoo.TransformerBlock):
    def forward(self, x):
        return self.feed_forward(x)


def mlp(*widths):
    layers = [layer for a, b in zip(widths, widths[1:], strict=False) for layer in (M.Linear(a, b), M.ReLU())]
    return M.Sequential(*layers[:-1])


def transformer(norm_first):
    return zoo.TransformerBlock(256, 4, norm_first, None)


def images(channels, side):
    return (16, channels, side, side)


TEXT = (8, 64, 256)

# name: (network, shape of its input)
GRAPHS = {
    "mlp_even": (lambda: mlp(256, 256, 256, 256, 10), (512, 256)),
    "mlp_wide_and_narrow": (lambda: mlp(64, 1024, 128, 1024, 10), (512, 64)),
    "mlp_narrowing": (lambda: mlp(1024, 512, 256, 128, 64, 10), (256, 1024)),
    "mlp_deep": (lambda: mlp(*[128] * 8, 10), (1024, 128)),
    "conv_bn_relu": (lambda: Scores(*(zoo.conv_bn(16, 16, 3) for _ in range(3)), channels=16), images(16, 32)),
    "conv_pyramid": (lambda: Scores(*(zoo.conv_bn(8 << i, 16 << i, 3, 2) for i in range(3)), channels=64), images(8, 64)),
    "conv_relu": (lambda: Scores(*(layer for _ in range(4) for layer in (M.Conv2d(16, 16, 3, 1, 1), M.ReLU())), channels=16), images(16, 32)),
    "vgg_stage": (lambda: Scores(M.Conv2d(3, 64, 3, 1, 1), M.ReLU(), M.Conv2d(64, 64, 3, 1, 1), M.ReLU(), M.MaxPool2d(2), channels=64), images(3, 64)),
    "basic_blocks": (lambda: Scores(*(zoo.ResidualBlock(32, 32, 1, 1) for _ in range(2)), channels=32), images(32, 16)),
    "basic_block_with_stride": (lambda: Scores(zoo.ResidualBlock(32, 64, 2, 1), channels=64), images(32, 32)),
    "bottleneck": (lambda: Scores(zoo.ResidualBlock(128, 32, 1, 4), channels=128), images(128, 16)),
    "bottleneck_with_stride": (lambda: Scores(zoo.ResidualBlock(64, 32, 2, 4), channels=128), images(64, 32)),
    "inverted_residuals": (lambda: Scores(*(zoo.InvertedResidual(24, 24, 1, 6) for _ in range(2)), channels=24), images(24, 28)),
    "dense_layers": (lambda: Scores(*(zoo.DenseLayer(32 + 16 * i, 16) for i in range(3)), channels=80), images(32, 16)),
    "unet": (lambda: zoo.UNet(16, 2, 10), images(3, 64)),
    "attention": (lambda: Tokens(Attention(256, 4, True, None)), TEXT),
    "feed_forward": (lambda: Tokens(*(FeedForward(256, 4, True, None) for _ in range(2))), TEXT),
    "transformer_norm_first": (lambda: Tokens(transformer(True)), TEXT),
    "transformer_norm_last": (lambda: Tokens(transformer(False)), TEXT),
    "lstm": (lambda: zoo.UnrolledLSTM(128, 256, 10), (64, 4, 128)),
}  # fmt: skip


def plan(build, shape):
    net = build()
    gm = GradManager().attach(net.parameters())
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    @trace
    def step(x, y):
        with gm:
            loss = F.loss.cross_entropy(net(x), y)
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    rows = shape[0] * shape[1] if shape == TEXT else shape[0]
    step.plan(mge.tensor(np.zeros(shape, np.float32)), mge.tensor(np.zeros(rows, np.int32)))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        plan(*GRAPHS[name])
