"""How much faster is ResNet-18 on 8-bit integers than in float32, and how often does it judge otherwise?

The speed is that of one image of 224 x 224. The judgements are those of a net that is trained first, in about 15 seconds, on
1,280 of the 1,797 scanned digits that come with scikit-learn, at 32 x 32, about the other 517: the class that the integers
find against the class that the fake-quantized net finds, whose observers saw 256 of the images of the training.
"""

from functools import partial

import numpy as np
from case import Case, Subject, Target
from cases import _frameworks as on

# channels in, channels out, stride of each residual block
BLOCKS = (
    (64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1),
    (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1),
)  # fmt: skip
TRAINED, CALIBRATED, BATCH, EPOCHS = 1280, 256, 64, 10


def network(classes=1000):
    """In the fused layers that quantization knows."""
    import megengine.functional as F
    import megengine.module as M

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
            self.stem = M.ConvBnRelu2d(3, 64, 7, 2, 3, bias=False)
            self.blocks = M.Sequential(*(Block(*sizes) for sizes in BLOCKS))
            self.head = M.Linear(512, classes)

        def forward(self, x):
            x = self.blocks(F.max_pool2d(self.stem(self.quant(x)), 3, 2, 1))
            return self.dequant(self.head(F.flatten(F.adaptive_avg_pool2d(x, 1), 1)))

    return Net()


def calibrated(net, batches):
    """The fake-quantized net, whose observers have seen the batches."""
    from megengine import quantization as Q

    net = Q.quantize_qat(net)
    Q.disable_fake_quant(net)
    Q.enable_observer(net)
    for batch in batches:
        net(batch)
    Q.disable_observer(net)
    Q.enable_fake_quant(net)
    return net


def megjit(integers):
    on.setup_megjit()
    import megengine as mge
    from megengine.quantization import quantize

    image = np.random.RandomState(0).randn(1, 3, 224, 224).astype(np.float32)
    net = network()
    net.eval()
    if integers:
        net = quantize(calibrated(net, [mge.Tensor(image)]))
    return on.calling_megjit(lambda x: (net(x),), [image], without_host=True)


def digits():
    """(images [n, 3, 32, 32] in -1 to 1, labels), shuffled."""
    from sklearn.datasets import load_digits

    import megengine as mge
    import megengine.functional as F

    images, labels = load_digits(return_X_y=True)
    small = mge.Tensor((images / 8 - 1).astype(np.float32).reshape(-1, 1, 8, 8))
    images = np.repeat(F.vision.interpolate(small, (32, 32)).numpy(), 3, axis=1)
    order = np.random.RandomState(0).permutation(len(labels))
    return images[order], labels[order].astype(np.int32)


def train(net, images, labels):
    import megengine as mge
    import megengine.functional as F
    from megengine.autodiff import GradManager
    from megengine.jit import trace
    from megengine.optimizer import SGD

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
        order = np.random.RandomState(epoch).permutation(len(labels))
        for begin in range(0, len(labels), BATCH):
            chosen = order[begin : begin + BATCH]
            step(mge.Tensor(images[chosen]), mge.Tensor(labels[chosen]))


def judging(compared):
    """Subject that measures a part of the held-out images: those that the net judges otherwise than ``compared``."""

    def build():
        on.setup_megjit()
        import megengine as mge
        from megengine.quantization import quantize

        mge.random.seed(0)
        images, labels = digits()
        net = network(classes=10)
        train(net, images[:TRAINED], labels[:TRAINED])
        net.eval()
        seen = (mge.Tensor(images[i : i + BATCH]) for i in range(0, CALIBRATED, BATCH))
        fake = calibrated(net, seen)
        held_out = mge.Tensor(images[TRAINED:])
        found = {
            "label": labels[TRAINED:],
            "fake": fake(held_out).numpy().argmax(axis=1),
            "integers": quantize(fake)(held_out).numpy().argmax(axis=1),
        }
        part = float((found["integers"] != found[compared]).mean())
        return Subject(lambda calls: part, dict)

    return build


CASES = [
    Case(
        name="resnet18_int8",
        builders={"megjit": partial(megjit, True), "megjit_float32": partial(megjit, False)},
        targets=(
            Target("ResNet-18 on integers, batch 1", against=("megjit_float32",), at_most=1 / 1.8),
        ),
        reference=None,
        rounds=(7, 3),
        seconds=0.2,
    ),
    Case(
        name="resnet18_int8_judges",
        builders={"megjit": judging("fake"), "megjit_label": judging("label")},
        targets=(
            Target("judged otherwise than fake-quantized", at_most=0.02),
            Target("judged wrongly", of="megjit_label"),
        ),
        reference=None,
        unit="part",
        rounds=(1, 1),
    ),
]
