"""What does a size that was never seen cost a traced import without its body: CPU time and memory?

    chrt -r 1 python benchmarks/new_sizes.py [--sizes 300] [mlp attention convolutions embedding]

The first hundred sizes come twice and are not counted: they make what all sizes of a class share.
"""

import argparse
import ctypes
import gc
import time
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import megengine as mge
import megengine.onnx
from megengine.jit import trace

RANDOM = np.random.RandomState(0)
KNOWN = 100
node = helper.make_node


def weights(name, *shape):
    return numpy_helper.from_array((RANDOM.randn(*shape) * 0.1).astype("float32"), name)


def model(nodes, given, result, held, dtype=TensorProto.FLOAT):
    inputs = [helper.make_tensor_value_info("x", dtype, given)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)]
    graph = helper.make_graph(nodes, "model", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def mlp():
    nodes = [node("Gemm", ["x", "a", "b"], ["h"]), node("Relu", ["h"], ["r"]), node("Gemm", ["r", "c", "d"], ["y"])]
    held = [weights("a", 64, 128), weights("b", 128), weights("c", 128, 32), weights("d", 32)]
    return model(nodes, ["n", 64], ["n", 32], held), lambda n: RANDOM.randn(n, 64)


def attention():
    nodes = [
        *(node("MatMul", ["x", f"w{name}"], [name]) for name in "qkv"),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"]),
        node("Softmax", ["scores"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["o"]),
        node("Add", ["o", "x"], ["y"]),
    ]
    return model(nodes, [1, "n", 64], [1, "n", 64], [weights(f"w{name}", 64, 64) for name in "qkv"]), lambda n: RANDOM.randn(1, n, 64)


def convolutions():
    nodes = [
        node("Conv", ["x", "a", "b"], ["h"], pads=[1] * 4),
        node("Relu", ["h"], ["r"]),
        node("Conv", ["r", "c", "d"], ["y"], pads=[1] * 4),
    ]
    held = [weights("a", 8, 3, 3, 3), weights("b", 8), weights("c", 8, 8, 3, 3), weights("d", 8)]
    return model(nodes, [1, 3, 16, "n"], [1, 8, 16, "n"], held), lambda n: RANDOM.randn(1, 3, 16, n)


def embedding():
    nodes = [node("Gather", ["t", "x"], ["e"]), node("Softmax", ["e"], ["y"], axis=-1)]
    return model(nodes, ["n"], ["n", 32], [weights("t", 100, 32)], TensorProto.INT64), lambda n: RANDOM.randint(0, 100, n)


def resident():
    """Bytes of the process in memory, without what it has freed."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def measure(name, count):
    proto, made = globals()[name]()
    net = megengine.onnx.load(proto)
    f = trace(lambda x: net(x), symbolic=True, without_host=True, opt_level=3)

    def called(n):
        x = mge.tensor(made(n).astype("int32" if name == "embedding" else "float32"))
        begin = time.thread_time()
        f(x)
        return time.thread_time() - begin

    sizes = np.random.RandomState(1).permutation(count + KNOWN) + 5
    for n in (*sizes[:KNOWN], *sizes[:KNOWN], count + KNOWN + 10):
        called(n)
    time.sleep(1)  # kernels are compiled
    for n in sizes[:KNOWN]:
        called(n)
    before = resident()
    times = [1e3 * called(n) for n in sizes[KNOWN:]]
    print(f"{name}: {np.median(times):.3f} ms a size, the last 100 {np.median(times[-100:]):.3f}; {count} sizes: {(resident() - before) / 1e6:.1f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, default=300)
    parser.add_argument("models", nargs="*", default=["mlp", "attention", "convolutions", "embedding"])
    options = parser.parse_args()
    for name in options.models:
        measure(name, options.sizes)
