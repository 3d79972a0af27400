"""Writes sample.mge in an environment with the original (README.md): what its programs keep in state files."""

from pathlib import Path

import numpy as np

import megengine as mge
import megengine.module as M
import megengine.optimizer as optim
import megengine.quantization as Q
from megengine import Parameter, Tensor


def numbers(*shape):
    return np.arange(np.prod(shape), dtype="float32").reshape(shape) / 8


net = M.Sequential(M.Conv2d(2, 3, 2), M.BatchNorm2d(3), M.ReLU())
for parameter in net.parameters():
    parameter[...] = Tensor(numbers(*parameter.shape))
quantized = Q.quantize_qat(M.Sequential(M.QuantStub(), M.Linear(3, 2), M.DequantStub()), qconfig=Q.ema_fakequant_qconfig)
quantized(Tensor(numbers(1, 3)))
quantized.eval()
mge.save(
    {
        "tensors": [
            Tensor(numbers(2, 3)), Parameter([1.0, 2.0]), Tensor([1, 2]), Tensor([1.5], dtype="float16"), Tensor([True]),
            Tensor([1], dtype="uint8"), Tensor(3.0), Tensor([1.0], device="cpu1"), Tensor(numbers(1, 2, 2, 2), format="nhwc"),
        ],
        "state": net.state_dict(),
        "tensors of the state": net.state_dict(keep_var=True),
        "module": net,
        "optimizer": optim.SGD(net.parameters(), lr=0.5, momentum=0.9).state_dict(),
        "quantized": Q.quantize(quantized).state_dict(),
        "epoch": 3,
    },
    str(Path(__file__).with_name("sample.mge")),
)
