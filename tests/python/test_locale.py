"""A program may set a locale whose decimals stand behind a comma: graphs, kernels, files and messages hold the numbers that they hold without it."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import io, locale, sys
import megengine.functional as F
from megengine import Tensor
from megengine.jit import trace
from megengine.utils.comp_graph_tools import GraphInference

if sys.argv[1:]:
    locale.setlocale(locale.LC_ALL, sys.argv[1])
    assert locale.str(1.5) == "1,5"

def net(x):
    y = F.softplus(x * 0.3 + 0.7)
    y = F.cond(y.sum() > 0.5, lambda a: a * 1.5 + 0.25, lambda a: a - 0.125, y)
    sums, rows = F.scan(lambda c, r: (c * 0.5 + r * 0.1, c), y.sum(), y)
    return sums, rows, F.clip(F.leaky_relu(y - 1.1, 0.0123), -0.1, 0.7), F.linspace(0.5, 1.5, 3)

x = Tensor([0.25, 1.5, -0.75])
print([t.tolist() for t in net(x)])
for options in ({}, {"opt_level": 3}, {"capture_as_const": True}):
    f = trace(net, symbolic=True, **options)
    for _ in range(2):
        print([t.tolist() for t in f(x)])
file = io.BytesIO()
f.dump(file, arg_names=["x"])
file.seek(0)
print([value.tolist() for value in GraphInference(file).run(inp_dict={"x": x.numpy()}).values()])
try:
    trace(lambda x: F.sin(x) * 2.5, memory_limit=1500)(F.zeros(1000))
except MemoryError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def german(tmp_path_factory):
    """The folder of a locale with a comma."""
    folder = tmp_path_factory.mktemp("locales")
    made = subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", str(folder / "de_DE.UTF-8")], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("no sources of locales (Debian's package locales)")
    return folder


@pytest.mark.parametrize("backend", ["MLIR", "HALIDE"])
def test_numbers_are_those_without_a_locale(german, backend, tmp_path):
    environment = {**os.environ, "LOCPATH": str(german), "MGB_JIT_BACKEND": backend, "MEGJIT_COMPILE": "sync"}

    def told(*arguments):
        here = {**environment, "MEGJIT_CACHE_DIR": str(tmp_path / "-".join(arguments))}
        return subprocess.run([sys.executable, "-c", PROGRAM, *arguments], env=here, capture_output=True, text=True, check=True).stdout

    assert told("de_DE.UTF-8") == told()
