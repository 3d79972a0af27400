"""How long do ResNet-18 and -50, optimized for inference or only traced, take for one image of 224 x 224 pixels?"""

from functools import partial

import numpy as np
from case import Case, Subject, Target
from cases import _frameworks as on
from cases import _resnet

# Multiply-adds of one image, times 2.
FLOPS = {_resnet.RESNET18: 2 * 1.81e9, _resnet.RESNET50: 2 * 4.09e9}


def model_of(net, nn, relu, mean, put):
    """The network of layers of ``nn``, in eval mode. put(parameter, array) sets a weight."""

    class ConvNorm(nn.Module):
        def __init__(self, shape, stride):
            super().__init__()
            out, channels, kernel, _ = shape
            self.conv = nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)
            self.bn = nn.BatchNorm2d(out)

        def forward(self, x):
            return self.bn(self.conv(x))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            for name, shape, stride in net.convolutions():
                setattr(self, name.replace(".", "_"), ConvNorm(shape, stride))
            self.pool = nn.MaxPool2d(3, 2, 1)
            self.fc = nn.Linear(net.features, 1000)

        def forward(self, x):
            def conv_bn(x, name):
                return getattr(self, name.replace(".", "_"))(x)

            return net.forward(x, conv_bn, relu, self.pool, lambda x: self.fc(mean(x)))

    model = Model()
    weights, _ = _resnet.data(net, 1, 8)
    for name, _, _ in net.convolutions():
        put(getattr(model, name.replace(".", "_")).conv.weight, weights[name])
    put(model.fc.weight, weights["fc.weight"])
    put(model.fc.bias, weights["fc.bias"])
    model.eval()
    return model


def image():
    return np.random.RandomState(1).randn(1, 3, 224, 224).astype(np.float32)


def subject(model, x, read):
    def run(calls):
        for _ in range(calls):
            model(x)

    def result():
        y = read(model(x))
        return {"output": y / np.abs(y).max()}  # in an untrained net it doubles with each block

    return Subject(run, result)


def megjit(net, is_traced=False):
    on.setup_megjit()
    import megengine as mge
    import megengine.functional as F
    import megengine.module as M
    from megengine.fx.experimental.optimization import optimize_for_inference
    from megengine.jit import trace

    def put(parameter, array):
        parameter[...] = mge.tensor(array)

    model = model_of(net, M, F.relu, lambda x: F.flatten(F.avg_pool2d(x, 7), 1), put)
    if is_traced:
        run = trace(lambda x: model(x), symbolic=True, opt_level=3)
        run(mge.tensor(image())), run.kernels()  # waits for them
    else:
        run = optimize_for_inference(model)
    return subject(run, mge.tensor(image()), lambda y: y.numpy())


def torch(net, how):
    """how: "fx" for its own optimize_for_inference, "compile", "freezing", "freezing channels-last"."""
    import torch

    on.setup_torch()
    torch.set_grad_enabled(False)

    def put(parameter, array):
        parameter.copy_(torch.from_numpy(array))

    model = model_of(net, torch.nn, torch.relu, lambda x: x.mean((2, 3)), put)
    x = torch.from_numpy(image())
    if how == "fx":
        from torch.fx.experimental.optimization import optimize_for_inference

        model = optimize_for_inference(model)
    else:
        import torch._inductor.config

        torch._inductor.config.freezing = how.startswith("freezing")
        if how.endswith("channels-last"):
            model = model.to(memory_format=torch.channels_last)
            x = x.to(memory_format=torch.channels_last)
        model = torch.compile(model)
    return subject(model, x, lambda y: y.numpy())


PEERS = {
    "torch_fx": "fx",
    "torch_compile": "compile",
    "torch_freezing": "freezing",
    "torch_freezing_channels_last": "freezing channels-last",
}


def case(name, label, net):
    return Case(
        name=name,
        builders={
            "megjit": partial(megjit, net),
            "megjit_traced": partial(megjit, net, True),
            **{peer: partial(torch, net, how) for peer, how in PEERS.items()},
        },
        targets=(
            Target(label, against=tuple(PEERS), at_most=0.85),
            Target(label.replace("optimized for inference", "only traced"), of="megjit_traced", against=tuple(PEERS), at_most=0.9),
        ),
        reference="torch_fx",
        rtol=1e-3,
        atol=1e-4,
        rounds=(9, 5),
        seconds=0.2,
        work={"flops": FLOPS[net]},
    )


CASES = [
    case("inference_resnet18", "ResNet-18 optimized for inference, batch 1", _resnet.RESNET18),
    case("inference_resnet50", "ResNet-50 optimized for inference, batch 1", _resnet.RESNET50),
]
