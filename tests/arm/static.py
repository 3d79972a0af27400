"""Dumps the function that `tools/test_arm.sh static` packages as C, and its results here."""

import numpy as np

import megengine as mge
import megengine.functional as F
from megengine.jit import trace


def waves(*shape, scale=1.0):
    return mge.tensor(scale * np.cos(np.arange(np.prod(shape), dtype="float32")).reshape(shape))


images = waves(2, 3, 8, 8)
filters, bias, weight = waves(4, 3, 3, 3, scale=0.3), waves(1, 4, 1, 1), waves(64, 5)


def step(x):
    x = F.max_pool2d(F.relu(F.conv2d(x, filters, bias, padding=1)), 2)
    x = F.matmul(F.layer_norm(x.reshape(2, 64), (64,), affine=False), weight)
    return F.softmax(F.gelu(x), axis=1) + (1e10 * x).astype("int32").astype("float32") * 1e-12


predict = trace(step, symbolic=True, capture_as_const=True)
predict(images)
predict.dump("small.dump", arg_names=["x"], output_names=["y"])


def as_c(name, values):
    return f"static const float {name}[{values.size}] = {{{', '.join(float(value).hex() + 'f' for value in values.ravel())}}};\n"


with open("values.h", "w") as header:
    header.write(as_c("given", images.numpy()) + as_c("wanted", step(images).numpy()))
