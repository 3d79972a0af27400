"""python -m megengine package: dumped files with compiled kernels, for machines without a compiler."""

import io
import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest
from emulated import CARD, gpus

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import _core
from megengine.jit import dump_functions, trace
from megengine.utils.comp_graph_tools import GraphInference

X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)
RUN = """
import sys, numpy as np
from megengine.utils.comp_graph_tools import GraphInference
model = GraphInference(sys.argv[1], trusts_kernels=sys.argv[2] == "trusts")
x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)
for name in model.functions:
    (y,) = model.function(name).run(x).values()
    print(y.tobytes().hex())
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A dump, the same packaged for AVX2, and what its functions give."""
    folder = tmp_path_factory.mktemp("package")
    functions = {
        "soft": trace(lambda x: F.softmax(F.exp(x) * 2 + 1, axis=1), record_only=True),
        "gate": trace(lambda x: x * F.sigmoid(x) - F.tanh(x), record_only=True),
    }
    for fn in functions.values():
        fn(mge.tensor(X))
    dump_functions(folder / "net.dump", functions)
    done = package(folder / "net.dump", "-o", folder / "packed.dump")
    assert done.returncode == 0 and re.fullmatch(r"avx2: [23] kernels, 0.0 MB of packed weights\n", done.stdout), done.stderr
    model = GraphInference(folder / "net.dump", optimize_for_inference=True)
    wanted = [next(iter(model.function(name).run(X).values())).tobytes().hex() for name in functions]
    return folder / "net.dump", folder / "packed.dump", wanted


def package(*words):
    return subprocess.run([sys.executable, "-m", "megengine", "package", *map(str, words)], capture_output=True, text=True)


def run_without_compilers(tmp_path, file, trust):
    environment = {**os.environ, "MEGJIT_PLUGIN_DIR": str(tmp_path), "MEGJIT_CACHE_DIR": "", "MEGJIT_COMPILE": "sync"}
    done = subprocess.run([sys.executable, "-c", RUN, str(file), trust], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), "no kernel compiler is installed" in done.stderr


def test_a_packaged_file_needs_neither_compiler_nor_disk(files, tmp_path):
    _, packed, wanted = files
    assert run_without_compilers(tmp_path, packed, "trusts") == (wanted, False)


@pytest.mark.parametrize("level", [2, 3])
def test_a_plan_is_stored_whatever_it_is_a_plan_of(level):
    """At level 2 it orders ops, at level 3 the kernels that they have become; a file that has it is loaded without a search."""

    def crossing(x):
        kept = []
        for i in range(6):
            kept.append(F.softmax(F.tanh(x) * (i + 1.5), axis=1))
            x = F.matmul(kept[-1], F.transpose(kept[-1], (1, 0))) * 0.1
        for each in reversed(kept):
            x = F.matmul(x, each) * F.exp(each)
        return x.sum(axis=1)

    x = mge.tensor(np.random.RandomState(0).rand(256, 256).astype(np.float32))
    function = trace(crossing, symbolic=True, capture_as_const=True)
    function(x)
    dumped = io.BytesIO()
    function.dump(dumped, arg_names=["x"], output_names=["y"])

    def loaded(data, limit=None):
        file = _core.load_model(data, "a file")[0]
        if limit is not None:
            file.set_options(level, limit)
        before, begin = len(file.to_bytes()), time.process_time()
        program = file.program(file.functions[0], [0], level)
        seconds = time.process_time() - begin
        file.add_package_of(program)
        return file.to_bytes(), len(file.to_bytes()) - before, seconds, program.run([x])[0].numpy()

    with pytest.raises(MemoryError) as refused:
        loaded(dumped.getvalue(), 1000)
    packed, order_bytes, searching, y = loaded(dumped.getvalue(), refused.value.needed)
    assert order_bytes >= 4 * 20
    again, _, loading, same = loaded(packed)
    assert again == packed and same.tobytes() == y.tobytes()
    assert loading < searching / 4


def test_kernels_of_a_file_are_not_run_unless_they_are_trusted(files, tmp_path):
    _, packed, wanted = files
    results, is_missing = run_without_compilers(tmp_path, packed, "does not trust")
    assert is_missing and len(results) == 2


def test_the_level_of_the_traced_functions_can_be_kept(files, tmp_path):
    assert "avx2: 0 kernels" in package(files[0], "-o", tmp_path / "same.dump", "--level", "-1").stdout
    assert not run_without_compilers(tmp_path, tmp_path / "same.dump", "trusts")[1]  # none is wanted at opt_level 2


def test_a_saved_model_keeps_its_kernels(files, tmp_path):
    GraphInference(files[1]).save(tmp_path / "saved.dump")
    assert (tmp_path / "saved.dump").read_bytes() == files[1].read_bytes()


def test_kernels_that_are_damaged_are_as_if_they_were_not_there(files, tmp_path):
    wanted = files[2]
    model = mge.utils.comp_graph_tools.load_file(files[0])
    model.set_options(3, 0)
    model.add_kernels([(b"MLIR\nmegjit for x86-64\n\nno kernel", b"\x7fELF"), (b"", b"")])
    (tmp_path / "damaged.dump").write_bytes(model.to_bytes())
    results, is_missing = run_without_compilers(tmp_path, tmp_path / "damaged.dump", "trusts")
    assert is_missing and len(results) == len(wanted)


def test_weights_are_packed_for_each_level_and_a_level_above_the_machines_is_left_out(tmp_path):
    conv, norm = M.Conv2d(16, 32, 3, padding=1), M.BatchNorm2d(32)
    net = M.Sequential(conv, norm, M.ReLU(), M.Conv2d(32, 64, 1, stride=2)).eval()
    fn = trace(lambda x: net(x), symbolic=True, capture_as_const=True)
    x = np.linspace(-1, 1, 2 * 16 * 8 * 8, dtype=np.float32).reshape(2, 16, 8, 8)
    y = fn(mge.tensor(x)).numpy()
    fn.dump(tmp_path / "net.dump", arg_names=["x"])
    done = package(tmp_path / "net.dump", "-o", tmp_path / "packed.dump", "--isa", "avx2,amx")
    assert done.returncode == 0, done.stderr
    dense = os.path.getsize(tmp_path / "net.dump")
    assert os.path.getsize(tmp_path / "packed.dump") > dense + 4 * 16 * 32 * 9
    if _core.machine_isa() != "amx":
        assert "amx: this machine has " in done.stdout
    (again,) = GraphInference(tmp_path / "packed.dump").run(x).values()
    np.testing.assert_allclose(again, y, rtol=1e-4, atol=1e-5)


def test_a_limit_is_kept_with_its_plan(files, tmp_path):
    done = package(files[0], "-o", tmp_path / "packed.dump", "--memory-limit", "1MB")
    assert done.returncode == 0, done.stderr
    results, _ = run_without_compilers(tmp_path, tmp_path / "packed.dump", "trusts")
    assert results == files[2]


@pytest.mark.parametrize(
    "words, said",
    [
        (("none.dump", "-o", "packed.dump"), "none.dump"),
        (("net.dump", "-o", "no/such/folder/packed.dump"), "no such folder"),
        (("net.dump", "-o", "packed.dump", "--isa", "avx9"), "no instruction set 'avx9'\n  fix: name some of avx2, avx512"),
        (("net.dump", "-o", "packed.dump", "--memory-limit", "10"), "at least"),
        (("net.dump", "-o", "packed.dump", "--memory-limit", "much"), "--memory-limit"),
        (("net.dump",), "give one of them"),
    ],
)
def test_what_cannot_be_packaged_is_said(files, tmp_path, words, said):
    (tmp_path / "net.dump").write_bytes(files[0].read_bytes())
    done = subprocess.run([sys.executable, "-m", "megengine", "package", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0 and said in done.stderr
    assert not (tmp_path / "packed.dump").exists()


GPU_RUN = """
import sys, numpy as np
import megengine as mge
from megengine.utils.comp_graph_tools import GraphInference
mge.set_default_device("gpu0")
x = np.linspace(-2, 2, 2 * 5 * 24, dtype=np.float32).reshape(2, 5, 24)
ids = np.array([[0, 3, 2, -1, 1], [4, 4, 0, 2, 3]], "int32")
model = GraphInference(sys.argv[1], trusts_kernels=True)
results = model.run(x, ids)
print(*(y.tobytes().hex() for y in results.values()))
"""


class OnCard(M.Module):
    """Generated kernels, and ones written by hand: lookups, attention, sorting, pooling."""

    def __init__(self):
        super().__init__()
        self.table, self.norm, self.last = M.Embedding(5, 24), M.LayerNorm(24), M.Linear(24, 6)

    def forward(self, x, ids):
        y = F.gelu(self.norm(x + self.table(ids)))
        heads = F.transpose(F.reshape(y, (2, 5, 2, 12)), (0, 2, 1, 3))
        y = F.reshape(F.transpose(F.scaled_dot_product_attention(heads, heads, heads, is_causal=True), (0, 2, 1, 3)), (2, 5, 24))
        values, places = F.sort(F.reshape(y, (2, -1)))
        return F.softmax(self.last(y)), values, places, F.max_pool2d(F.reshape(x, (2, 5, 4, 6)), 2)


def test_kernels_for_a_gpu_that_is_not_there(tmp_path):
    environment = {**os.environ, **gpus(), "MEGJIT_COMPILE": "sync"}
    net = OnCard().eval()
    fn = trace(lambda x, ids: net(x, ids), symbolic=True, capture_as_const=True)
    fn(mge.tensor(np.zeros((2, 5, 24), "float32")), mge.tensor(np.zeros((2, 5), "int32")))
    fn.dump(tmp_path / "net.dump", arg_names=["x", "ids"])
    # The emulated card takes PTX, for which its number is set; who packages has no card: its library lies elsewhere.
    planning = [CARD.with_name(f"libmegjit_card_{name}.so") for name in ("cublaslt", "cudnn")]
    for folder, library in (("no_card", CARD.with_name("libmegjit_mlir.so")), ("card_alone", CARD)):
        (tmp_path / folder).mkdir()
        for each in (library, *planning):
            (tmp_path / folder / each.name).symlink_to(each)
    packing = {**environment, "MEGJIT_PLUGIN_DIR": str(tmp_path / "no_card")}
    words = [sys.executable, "-m", "megengine", "package", str(tmp_path / "net.dump"), "-o", str(tmp_path / "packed.dump"), "--gpu", "sm_80,sm_90", "--memory-limit", "1MB"]
    done = subprocess.run(words, env=packing, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"sm_80: \d+ kernels\nsm_90: \d+ kernels\n", done.stdout), done.stdout

    def run(file, **more):
        return subprocess.run([sys.executable, "-c", GPU_RUN, str(file)], env={**environment, **more}, capture_output=True, text=True)

    wanted = run(tmp_path / "net.dump", MEGJIT_CACHE_DIR=str(tmp_path / "cache"))
    assert wanted.returncode == 0, wanted.stderr
    alone = {"MEGJIT_PLUGIN_DIR": str(tmp_path / "card_alone"), "MEGJIT_NVRTC": str(tmp_path / "none"), "MEGJIT_CACHE_DIR": ""}
    for arch in ("90", "80"):
        done = run(tmp_path / "packed.dump", **alone, MEGJIT_CARD_ARCH=arch)
        assert done.returncode == 0 and "compiler" not in done.stderr, done.stderr
        assert arch == "80" or done.stdout == wanted.stdout
    other = run(tmp_path / "packed.dump", **alone, MEGJIT_CARD_ARCH="100")
    assert "this GPU is sm_100, packaged models have code for sm_80, sm_90" in other.stderr
    assert "NVRTC" in run(tmp_path / "net.dump", **alone).stderr  # of a file that brings nothing


@pytest.mark.parametrize("words, said", [(("--gpu", "sm_1"), "no GPU 'sm_1'"), (("--gpu", "sm_99"), "there are sm_80, sm_86, sm_89, sm_90, sm_100"), (("--gpu", "90"), "name an architecture")])
def test_gpus_that_are_not_known(files, tmp_path, words, said):
    done = package(files[0], "-o", tmp_path / "packed.dump", *words)
    assert done.returncode != 0 and said in done.stderr and not (tmp_path / "packed.dump").exists()
