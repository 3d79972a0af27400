"""How near to the peak of multiply-adds is each convolution of a training step, channels-last, batch 8?

Three numbers a shape: the result, the gradient of the data, the gradient of the weights. The shapes are those of ResNet-18, ResNet-50, MobileNet-v2,
EfficientNet-B0, ConvNeXt and ResNeXt-50 at 224 x 224 pixels.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from case import Case, Subject, Target
from cases import _frameworks as on

BATCH = 8
ROLES = ("forward", "data", "filter")


@dataclass(frozen=True)
class Shape:
    """A square kernel over square images."""

    channels: int
    out: int
    side: int
    kernel: int
    stride: int = 1
    groups: int = 1

    @property
    def name(self):
        step = f"s{self.stride}" if self.stride > 1 else ""
        groups = "_depthwise" if self.groups == self.channels else f"_{self.groups}_groups"
        return f"{self.kernel}x{self.kernel}{step}_{self.channels}_{self.out}{groups if self.groups > 1 else ''}_at_{self.side}"

    @property
    def padding(self):
        return self.kernel // 2

    @property
    def places(self):
        return (self.side + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def flops(self):
        return 2.0 * BATCH * self.out * self.places**2 * self.channels / self.groups * self.kernel**2

    def operands(self):
        rng = np.random.RandomState(0)
        shapes = (
            (BATCH, self.channels, self.side, self.side),
            (self.out, self.channels // self.groups, self.kernel, self.kernel),
            (BATCH, self.out, self.places, self.places),
        )
        return [rng.randn(*shape).astype(np.float32) for shape in shapes]


SHAPES = [
    Shape(3, 64, 224, 7, 2),
    Shape(64, 64, 56, 3),
    Shape(128, 128, 28, 3),
    Shape(256, 256, 14, 3),
    Shape(512, 512, 7, 3),
    Shape(128, 128, 56, 3, 2),
    Shape(256, 256, 28, 3, 2),
    Shape(512, 512, 14, 3, 2),
    Shape(64, 256, 56, 1),
    Shape(512, 128, 28, 1),
    Shape(1024, 256, 14, 1),
    Shape(2048, 512, 7, 1),
    Shape(256, 512, 56, 1, 2),
    Shape(1024, 2048, 14, 1, 2),
    Shape(16, 96, 112, 1),
    Shape(96, 96, 112, 3, 2, 96),
    Shape(192, 192, 28, 3, 1, 192),
    Shape(240, 240, 28, 5, 1, 240),
    Shape(96, 96, 56, 7, 1, 96),
    Shape(768, 768, 7, 7, 1, 768),
    Shape(128, 128, 56, 3, 1, 32),
    Shape(256, 256, 28, 3, 1, 32),
]


def megjit(shape, role):
    on.setup_megjit()
    import megengine as mge
    from megengine.core import ops

    x, w, dy = map(mge.tensor, shape.operands())
    x, dy = (ops.relayout(value, layout="channels_last") for value in (x, dy))
    window = {
        "stride": [shape.stride],
        "padding": [shape.padding],
        "dilation": [1],
        "groups": shape.groups,
    }
    compute = {
        "forward": lambda: ops.conv(x, w, **window),
        "data": lambda: ops.conv_backward_data(dy, w, input_shape=[shape.side], **window),
        "filter": lambda: ops.conv_backward_filter(x, dy, kernel=[shape.kernel], **window),
    }[role]

    def run(calls):
        for _ in range(calls):
            compute()
        mge.synchronize()

    return Subject(run, lambda: {"result": compute().numpy()})


def torch(shape, role):
    import torch

    on.setup_torch()
    x, w, dy = (on.torch_of(array).contiguous(memory_format=torch.channels_last) for array in shape.operands())
    window = [shape.stride] * 2, [shape.padding] * 2, [1, 1]

    def compute():
        if role == "forward":
            return torch.conv2d(x, w, None, *window, shape.groups)
        wanted = [role == "data", role == "filter", False]
        found = torch.ops.aten.convolution_backward(
            dy, x, w, None, *window, False, [0, 0], shape.groups, wanted
        )
        return found[ROLES.index(role) - 1]

    def run(calls):
        for _ in range(calls):
            compute()

    return Subject(run, lambda: {"result": compute().numpy()})


CASES = [
    Case(
        name=f"conv_{role}_{shape.name}",
        builders={"megjit": partial(megjit, shape, role), "torch": partial(torch, shape, role)},
        targets=(Target(f"{shape.name.replace('_', ' ')}, {role}", against=("torch",)),),
        rtol=1e-3,
        atol=1e-2,
        rounds=(5, 3),
        work={"flops": shape.flops},
    )
    for shape in SHAPES
    for role in ROLES
    if (role, shape.channels) != ("data", 3)
]
