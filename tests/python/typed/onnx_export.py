"""Export to ONNX with an open batch, and the way back."""

import os
import tempfile

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.onnx
from megengine.jit import trace


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = M.Sequential(M.Conv2d(3, 8, 3), M.BatchNorm2d(8), M.ReLU())
        self.head = M.Linear(8, 4)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return F.softmax(self.head(F.mean(self.body(x), (2, 3))), axis=1)


def export(net: Net, folder: str) -> str:
    path = os.path.join(folder, "net.onnx")
    image = mge.tensor(np.ones((2, 3, 8, 8), "float32"))
    megengine.onnx.export(net, image, path, input_names=["image"], output_names=["score"], dynamic_axes={"image": {0: "batch"}})
    return path


@trace(symbolic=True, capture_as_const=True)
def score(image: mge.Tensor, *, net: Net) -> mge.Tensor:
    return net(image)


with tempfile.TemporaryDirectory() as folder:
    net = Net()
    net.eval()
    graph = megengine.onnx.load(export(net, folder))
    image = mge.tensor(np.random.rand(5, 3, 8, 8).astype("float32"))
    theirs: mge.Tensor = graph(image)
    ours = score(image, net=net)
    print(F.abs(theirs - ours).max().item() < 1e-5, ours.shape[0])
    told = score.dump(os.path.join(folder, "net.mge"), arg_names=["image"], output_names=["score"])
    print(told.inputs, told.nr_opr > 0)
