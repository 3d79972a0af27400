"""Dumps the function that `tools/test_arm.sh static` packages as C, and its results here."""

import numpy as np

import megengine as mge
import megengine.functional as F
from megengine.jit import trace

rows = np.linspace(-2, 2, 6 * 9, dtype="float32").reshape(6, 9)
weight = mge.tensor(np.cos(np.arange(9 * 5, dtype="float32")).reshape(9, 5))


def step(x):
    return F.softmax(F.gelu(F.matmul(x, weight)), axis=1)


predict = trace(step, symbolic=True, capture_as_const=True)
predict(mge.tensor(rows))
predict.dump("small.dump", arg_names=["x"], output_names=["y"])


def as_c(name, values):
    return f"static const float {name}[{values.size}] = {{{', '.join(float(value).hex() + 'f' for value in values.ravel())}}};\n"


with open("values.h", "w") as header:
    header.write(as_c("given", rows) + as_c("wanted", step(mge.tensor(rows)).numpy()))
