"""Small models on the public API, for tests of modules, traces and optimizers."""

import megengine.functional as F
import megengine.module as M


class MLP(M.Module):
    """(N, sizes[0]) to (N, sizes[-1]) with ReLU between."""

    def __init__(self, sizes=(8, 16, 4)):
        super().__init__()
        self.layers = [M.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)]

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.nn.relu(layer(x))
        return self.layers[-1](x)


class BasicBlock(M.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = M.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = M.BatchNorm2d(cout)
        self.conv2 = M.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = M.BatchNorm2d(cout)
        self.relu = M.ReLU()
        if stride == 1 and cin == cout:
            self.downsample = M.Identity()
        else:
            self.downsample = M.Sequential(
                M.Conv2d(cin, cout, 1, stride, bias=False), M.BatchNorm2d(cout)
            )

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class ResNet(M.Module):
    """ResNet of basic blocks: He et al. 2016. ``width`` channels in the first stage."""

    def __init__(self, depths=(2, 2, 2, 2), width=64, num_classes=1000, stem=7):
        super().__init__()
        self.conv1 = M.Conv2d(3, width, stem, 2 if stem == 7 else 1, stem // 2, bias=False)
        self.bn1 = M.BatchNorm2d(width)
        self.relu = M.ReLU()
        self.maxpool = M.MaxPool2d(3, 2, 1) if stem == 7 else M.Identity()
        stages, cin = [], width
        for i, depth in enumerate(depths):
            cout = width * 2**i
            for j in range(depth):
                stages.append(BasicBlock(cin, cout, 2 if i and not j else 1))
                cin = cout
        self.stages = M.Sequential(*stages)
        self.pool = M.AdaptiveAvgPool2d(1)
        self.fc = M.Linear(cin, num_classes)

    def forward(self, x):
        x = self.stages(self.maxpool(self.relu(self.bn1(self.conv1(x)))))
        return self.fc(F.flatten(self.pool(x), 1))


def resnet18(num_classes=1000):
    return ResNet(num_classes=num_classes)


def tiny_resnet(num_classes=10):
    """Two stages of 4 and 8 channels, for images from 8 x 8."""
    return ResNet((1, 1), width=4, num_classes=num_classes, stem=3)


class SequenceClassifier(M.Module):
    """Token ids (N, T) to class scores by an LSTM."""

    def __init__(self, vocabulary=20, size=8, hidden=12, classes=3):
        super().__init__()
        self.embedding = M.Embedding(vocabulary, size)
        self.lstm = M.LSTM(size, hidden, batch_first=True)
        self.head = M.Linear(hidden, classes)

    def forward(self, tokens):
        _, (h, _) = self.lstm(self.embedding(tokens))
        return self.head(h[-1])


class UNet(M.Module):
    """Encoder and decoder with skip connections: Ronneberger et al. 2015. Sides must divide by 2 ** depth."""

    def __init__(self, cin=1, cout=2, width=4, depth=2):
        super().__init__()
        sizes = [width * 2**i for i in range(depth + 1)]
        self.down = [self._block(a, b) for a, b in zip([cin, *sizes], sizes, strict=False)]
        self.up = [M.ConvTranspose2d(b, a, 2, 2) for a, b in zip(sizes, sizes[1:], strict=False)]
        self.merge = [self._block(2 * a, a) for a in sizes[:-1]]
        self.pool = M.MaxPool2d(2)
        self.head = M.Conv2d(width, cout, 1)

    @staticmethod
    def _block(cin, cout):
        return M.Sequential(
            M.Conv2d(cin, cout, 3, padding=1), M.GroupNorm(2, cout), M.LeakyReLU(0.1)
        )

    def forward(self, x):
        skips = []
        for block in self.down[:-1]:
            x = block(x)
            skips.append(x)
            x = self.pool(x)
        x = self.down[-1](x)
        for up, merge, skip in zip(self.up[::-1], self.merge[::-1], skips[::-1], strict=True):
            x = merge(F.concat([up(x), skip], 1))
        return self.head(x)
