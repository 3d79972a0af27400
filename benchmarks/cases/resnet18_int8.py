"""How much faster is ResNet-18 on 8-bit integers than in float32, for one image of 224 x 224?"""

from functools import partial

import numpy as np
from case import Case, Target
from cases import _frameworks as on

# channels in, channels out, stride of each residual block
BLOCKS = (
    (64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1),
    (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1),
)  # fmt: skip


def network():
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
            self.head = M.Linear(512, 1000)

        def forward(self, x):
            x = self.blocks(F.max_pool2d(self.stem(self.quant(x)), 3, 2, 1))
            return self.dequant(self.head(F.flatten(F.avg_pool2d(x, 7), 1)))

    return Net()


def megjit(integers):
    on.setup_megjit()
    import megengine as mge
    from megengine import quantization as Q

    image = np.random.RandomState(0).randn(1, 3, 224, 224).astype(np.float32)
    net = network()
    net.eval()
    if integers:
        net = Q.quantize_qat(net)
        Q.disable_fake_quant(net)
        Q.enable_observer(net)
        net(mge.Tensor(image))
        net = Q.quantize(net)
    return on.calling_megjit(lambda x: (net(x),), [image], without_host=True)


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
    )
]
