"""Writes dumped models for graph_file_fuzz to begin with: dump_seeds.py FOLDER."""

import shutil
import sys
from pathlib import Path

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import dump_functions, trace
from megengine.utils.comp_graph_tools import GraphInference

FOLDER = Path(sys.argv[1])
net = M.Sequential(M.Conv2d(1, 2, 2), M.BatchNorm2d(2), M.ReLU(), M.MaxPool2d(2, 2))
net.eval()

PROGRAMS = {
    "add": (lambda x: x + 1, (2,)),
    "matmul": (lambda x: F.softmax(F.matmul(x, x.T)), (2, 3)),
    "reduce": (lambda x: F.sum(F.exp(x), axis=1, keepdims=True) - F.mean(x), (2, 3)),
    "index": (lambda x: F.concat([x[:, 1:], F.flatten(x)[:2].reshape(2, 1)], axis=1), (2, 3)),
    "net": (lambda x: net(x), (1, 1, 5, 5)),
    "sort": (lambda x: F.topk(x, 2)[0] * F.argmax(x, axis=1, keepdims=True), (2, 3)),
    "shape": (lambda x: F.transpose(F.expand_dims(x, 0), (0, 2, 1)).astype("int32"), (2, 3)),
    "where": (lambda x: F.where(x > 0, F.softmax(F.relu(x)), F.clip(x, 0, 1)), (2, 3)),
}

for name, (program, shape) in PROGRAMS.items():
    function = trace(program, capture_as_const=True)
    function(mge.tensor(np.ones(shape, np.float32)))
    function.dump(FOLDER / name)

weight = mge.Parameter(np.ones((2, 3), np.float32))
managers = {"gm": GradManager().attach([weight]), "opt": optim.SGD([weight], lr=0.5, momentum=0.9)}


def step(x):
    with managers["gm"]:
        loss = F.sum(F.dropout(weight * x, 0.5))
        managers["gm"].backward(loss)
    managers["opt"].step().clear_grad()
    return loss


functions = {"step": trace(step, record_only=True), "predict": trace(lambda x: weight + x, record_only=True)}
for function in functions.values():
    function(mge.tensor(np.ones((2, 3), np.float32)))
dump_functions(FOLDER / "functions", functions)
selection = trace(lambda x: x[x > 0] * 2, symbolic=True, capture_as_const=True)
selection(mge.tensor(np.ones((2, 3), np.float32)))
selection.dump(FOLDER / "rows")
program = GraphInference(FOLDER / "net", optimize_for_inference=True)
packed = program._file
packed.add_package_of(program._program)
packed.add_kernels([(b"MLIR\nx86-64\n1\nkernel", b"\x7fELF object")])
(FOLDER / "packed").write_bytes(packed.to_bytes())
for name in ("schema1.mge", "schema2.mge", "schema3.mge"):
    shutil.copy(Path(__file__).parents[2] / "python" / "files" / name, FOLDER)
