"""Networks of the literature at any size, for tests of memory planning and recomputation.

Sizes are arguments, so that one text serves plans at full size, which run nothing, and training at small size.
"""

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M


def conv_bn(cin, cout, size, stride=1, groups=1, activation=M.ReLU):
    conv = M.Conv2d(cin, cout, size, stride, size // 2, groups=groups, bias=False)
    return M.Sequential(conv, M.BatchNorm2d(cout), *([activation()] if activation else []))


class ResidualBlock(M.Module):
    """Basic (He et al. 2016, figure 5, left) or, with ``expansion`` 4, bottleneck (right)."""

    def __init__(self, cin, width, stride, expansion):
        super().__init__()
        cout = width * expansion
        if expansion == 1:
            self.body = M.Sequential(conv_bn(cin, width, 3, stride), conv_bn(width, cout, 3, activation=None))
        else:
            self.body = M.Sequential(
                conv_bn(cin, width, 1), conv_bn(width, width, 3, stride), conv_bn(width, cout, 1, activation=None)
            )
        same = stride == 1 and cin == cout
        self.short = M.Identity() if same else conv_bn(cin, cout, 1, stride, activation=None)

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


class ResNet(M.Module):
    def __init__(self, depths, expansion, width=64, classes=1000):
        super().__init__()
        self.stem = M.Sequential(conv_bn(3, width, 7, 2), M.MaxPool2d(3, 2, 1))
        blocks, cin = [], width
        for stage, depth in enumerate(depths):
            for i in range(depth):
                blocks.append(ResidualBlock(cin, width << stage, 2 if stage and not i else 1, expansion))
                cin = (width << stage) * expansion
        self.blocks = M.Sequential(*blocks)
        self.head = M.Linear(cin, classes)

    def forward(self, x):
        return self.head(F.mean(self.blocks(self.stem(x)), axis=(2, 3)))


class VGG(M.Module):
    """Simonyan and Zisserman 2015, configuration D."""

    def __init__(self, width=64, hidden=4096, classes=1000, side=224):
        super().__init__()
        layers, cin = [], 3
        for times, count in ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3)):
            for _ in range(count):
                layers += [M.Conv2d(cin, width * times, 3, padding=1), M.ReLU()]
                cin = width * times
            layers.append(M.MaxPool2d(2))
        self.features = M.Sequential(*layers)
        self.classifier = M.Sequential(
            M.Linear(cin * (side // 32) ** 2, hidden), M.ReLU(), M.Dropout(0.5),
            M.Linear(hidden, hidden), M.ReLU(), M.Dropout(0.5), M.Linear(hidden, classes),
        )  # fmt: skip

    def forward(self, x):
        return self.classifier(F.flatten(self.features(x), 1))


class DenseLayer(M.Module):
    def __init__(self, cin, growth):
        super().__init__()
        self.bn1, self.conv1 = M.BatchNorm2d(cin), M.Conv2d(cin, 4 * growth, 1, bias=False)
        self.bn2, self.conv2 = M.BatchNorm2d(4 * growth), M.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x):
        y = self.conv2(F.relu(self.bn2(self.conv1(F.relu(self.bn1(x))))))
        return F.concat([x, y], axis=1)


class DenseNet(M.Module):
    """Huang et al. 2017, with bottlenecks and compression."""

    def __init__(self, depths=(6, 12, 24, 16), growth=32, classes=1000):
        super().__init__()
        layers, cin = [conv_bn(3, 2 * growth, 7, 2), M.MaxPool2d(3, 2, 1)], 2 * growth
        for stage, depth in enumerate(depths):
            if stage:
                layers += [M.BatchNorm2d(cin), M.ReLU(), M.Conv2d(cin, cin // 2, 1, bias=False), M.AvgPool2d(2)]
                cin //= 2
            for _ in range(depth):
                layers.append(DenseLayer(cin, growth))
                cin += growth
        self.layers = M.Sequential(*layers, M.BatchNorm2d(cin), M.ReLU())
        self.head = M.Linear(cin, classes)

    def forward(self, x):
        return self.head(F.mean(self.layers(x), axis=(2, 3)))


class ReLU6(M.Module):
    def forward(self, x):
        return F.nn.relu6(x)


class InvertedResidual(M.Module):
    def __init__(self, cin, cout, stride, expand):
        super().__init__()
        self.is_residual = stride == 1 and cin == cout
        hidden = cin * expand
        widen = [conv_bn(cin, hidden, 1, activation=ReLU6)] if expand > 1 else []
        depthwise = conv_bn(hidden, hidden, 3, stride, groups=hidden, activation=ReLU6)
        self.body = M.Sequential(*widen, depthwise, conv_bn(hidden, cout, 1, activation=None))

    def forward(self, x):
        return x + self.body(x) if self.is_residual else self.body(x)


class MobileNetV2(M.Module):
    """Sandler et al. 2018, table 2; ``scale`` divides every width."""

    def __init__(self, scale=1, classes=1000):
        super().__init__()
        layers, cin = [conv_bn(3, 32 // scale, 3, 2, activation=ReLU6)], 32 // scale
        table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
        for expand, width, count, stride in table:
            for i in range(count):
                layers.append(InvertedResidual(cin, width // scale, 1 if i else stride, expand))
                cin = width // scale
        self.layers = M.Sequential(*layers, conv_bn(cin, 1280 // scale, 1, activation=ReLU6), M.Dropout(0.2))
        self.head = M.Linear(1280 // scale, classes)

    def forward(self, x):
        return self.head(F.mean(self.layers(x), axis=(2, 3)))


class UNet(M.Module):
    """Ronneberger et al. 2015, with batch norm; one score for each class and pixel."""

    def __init__(self, width=64, depth=4, classes=2):
        super().__init__()
        sizes = [width << i for i in range(depth + 1)]
        self.down = [self._block(a, b) for a, b in zip([3, *sizes], sizes, strict=False)]
        self.up = [M.ConvTranspose2d(b, a, 2, 2) for a, b in zip(sizes, sizes[1:], strict=False)]
        self.merge = [self._block(2 * a, a) for a in sizes[:-1]]
        self.head = M.Conv2d(width, classes, 1)

    @staticmethod
    def _block(cin, cout):
        return M.Sequential(conv_bn(cin, cout, 3), conv_bn(cout, cout, 3))

    def forward(self, x):
        skips = []
        for block in self.down[:-1]:
            skips.append(block(x))
            x = F.max_pool2d(skips[-1], 2)
        x = self.down[-1](x)
        for up, merge, skip in zip(self.up[::-1], self.merge[::-1], skips[::-1], strict=True):
            x = merge(F.concat([up(x), skip], axis=1))
        return F.mean(self.head(x), axis=(2, 3))


class TransformerBlock(M.Module):
    """Vaswani et al. 2017; the norm before each part (GPT-2) or behind it (BERT)."""

    def __init__(self, width, heads, norm_first, mask):
        super().__init__()
        self.heads, self.norm_first, self.mask = heads, norm_first, mask
        self.qkv, self.out = M.Linear(width, 3 * width), M.Linear(width, width)
        self.wide, self.narrow = M.Linear(width, 4 * width), M.Linear(4 * width, width)
        self.norm1, self.norm2, self.dropout = M.LayerNorm(width), M.LayerNorm(width), M.Dropout(0.1)

    def attention(self, x):
        n, t, width = x.shape
        parts = F.split(self.qkv(x), 3, axis=2)
        q, k, v = (p.reshape(n, t, self.heads, width // self.heads).transpose(0, 2, 1, 3) for p in parts)
        scores = F.matmul(q, k, transpose_b=True) * (width // self.heads) ** -0.5
        if self.mask is not None:
            scores = scores + self.mask
        mixed = F.matmul(self.dropout(F.softmax(scores, axis=-1)), v)
        return self.dropout(self.out(mixed.transpose(0, 2, 1, 3).reshape(n, t, width)))

    def feed_forward(self, x):
        return self.dropout(self.narrow(F.gelu(self.wide(x))))

    def forward(self, x):
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self.feed_forward(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.feed_forward(x))


class Transformer(M.Module):
    """Token ids (N, T) to scores (N * T, vocabulary)."""

    def __init__(self, vocabulary, length, width, heads, layers, is_causal):
        super().__init__()
        self.tokens, self.places = M.Embedding(vocabulary, width), M.Embedding(length, width)
        mask = mge.tensor(np.triu(np.full((length, length), -1e9, np.float32), 1)) if is_causal else None
        blocks = (TransformerBlock(width, heads, is_causal, mask) for _ in range(layers))
        self.blocks = M.Sequential(*blocks)
        self.norm, self.dropout = M.LayerNorm(width), M.Dropout(0.1)
        self.head = M.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.dropout(self.tokens(ids) + self.places(F.arange(ids.shape[1]).astype("int32")))
        return F.flatten(self.head(self.norm(self.blocks(x))), 0, 1)


class UnrolledLSTM(M.Module):
    """(N, T, size) to class scores, one cell after the other."""

    def __init__(self, size=256, hidden=512, classes=1000):
        super().__init__()
        self.hidden = hidden
        self.cell, self.head = M.LSTMCell(size, hidden), M.Linear(hidden, classes)

    def forward(self, x):
        h = c = F.zeros((x.shape[0], self.hidden))
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
        return self.head(h)


class MLP(M.Module):
    def __init__(self, width=32, layers=40, classes=10):
        super().__init__()
        body = [layer for _ in range(layers) for layer in (M.Linear(width, width), M.ReLU())]
        self.layers = M.Sequential(*body, M.Dropout(0.3), M.Linear(width, classes))

    def forward(self, x):
        return self.layers(x)


def images(side):
    return lambda batch: ((batch, 3, side, side), 1000)


# name: (network, shape of a batch's inputs and number of classes; token ids when the shape has two sizes)
FULL_SIZE = {
    "resnet18": (lambda: ResNet((2, 2, 2, 2), 1), images(224)),
    "resnet50": (lambda: ResNet((3, 4, 6, 3), 4), images(224)),
    "resnet152": (lambda: ResNet((3, 8, 36, 3), 4), images(224)),
    "vgg16": (VGG, images(224)),
    "densenet121": (DenseNet, images(224)),
    "mobilenet_v2": (MobileNetV2, images(224)),
    "unet": (UNet, lambda batch: ((batch, 3, 256, 256), 2)),
    "bert_base": (lambda: Transformer(30522, 128, 768, 12, 12, False), lambda batch: ((batch, 128), 30522)),
    "gpt2_small": (lambda: Transformer(50257, 128, 768, 12, 12, True), lambda batch: ((batch, 128), 50257)),
    "lstm200": (UnrolledLSTM, lambda batch: ((batch, 200, 256), 1000)),
    # 333 bottlenecks of 3 layers each.
    "resnet1000": (lambda: ResNet((160, 160, 7, 6), 4), images(224)),
}

# The same texts, and some more, small enough to train in a test.
SMALL = {
    "resnet_basic": (lambda: ResNet((2, 2), 1, 8, 10), lambda batch: ((batch, 3, 16, 16), 10)),
    "resnet_bottleneck": (lambda: ResNet((2, 2), 4, 4, 10), lambda batch: ((batch, 3, 16, 16), 10)),
    "vgg": (lambda: VGG(4, 32, 10, 32), lambda batch: ((batch, 3, 32, 32), 10)),
    "densenet": (lambda: DenseNet((3, 3), 4, 10), lambda batch: ((batch, 3, 16, 16), 10)),
    "mobilenet": (lambda: MobileNetV2(8, 10), lambda batch: ((batch, 3, 32, 32), 10)),
    "unet": (lambda: UNet(4, 2, 2), lambda batch: ((batch, 3, 16, 16), 2)),
    "bert": (lambda: Transformer(50, 12, 16, 2, 2, False), lambda batch: ((batch, 12), 50)),
    "gpt2": (lambda: Transformer(50, 12, 16, 2, 2, True), lambda batch: ((batch, 12), 50)),
    "lstm": (lambda: UnrolledLSTM(8, 12, 10), lambda batch: ((batch, 10, 8), 10)),
    "mlp": (lambda: MLP(16, 12), lambda batch: ((batch, 16), 10)),
    "wide_mlp": (lambda: MLP(64, 4), lambda batch: ((batch, 64), 10)),
    "deep_residual": (lambda: ResNet((8,), 1, 4, 10), lambda batch: ((batch, 3, 16, 16), 10)),
}
