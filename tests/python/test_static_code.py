"""python -m megengine package --static: functions as C that needs libc and libm alone, compiled and run here."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.jit import trace

CC = shutil.which("cc") or shutil.which("gcc")
MAIN = r"""
#include "net.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
@
int main(void) {
    char* room = (char*)aligned_alloc(net_arena_align, (net_arena_bytes + 127) / 64 * 64);
    net_inputs in = {IN};
    net_outputs out = {OUT};
    if (net_run(&in, &out, 0) != 2 || net_run(&in, &out, room + 4) != 2) return 8;
    READ
    memset(room, 0xff, net_arena_bytes);
    memset(room + net_arena_bytes, 0x55, 8);
    for (int again = 0; again < 2; ++again) {
        const int status = net_run(&in, &out, room);
        if (status) return status;
    }
    for (int i = 0; i < 8; ++i) if (room[net_arena_bytes + i] != 0x55) return 7;
    WRITE
    return 0;
}
"""


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def packaged(folder, dump, *options):
    command = [sys.executable, "-m", "megengine", "package", str(dump), "--static", str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run_c(tmp_path, function, *inputs):
    """What the function's C gives for the inputs, as the traced function's results are."""
    tensors = [mge.tensor(value) for value in inputs]
    traced = trace(function, symbolic=True, capture_as_const=True)
    wanted = traced(*tensors)
    wanted = [x.numpy() for x in (wanted if isinstance(wanted, (tuple, list)) else [wanted])]
    names = [f"x{i}" for i in range(len(inputs))], [f"y{i}" for i in range(len(wanted))]
    traced.dump(str(tmp_path / "net.dump"), arg_names=names[0], output_names=names[1])
    done = packaged(tmp_path / "c", tmp_path / "net.dump")
    assert done.returncode == 0, done.stderr

    arrays = [*zip(names[0], (x.numpy() for x in tensors)), *zip(names[1], wanted)]
    main = MAIN.replace("@", "\n".join(f"static _Alignas(64) char {name}[{max(a.nbytes, 1)}];" for name, a in arrays))
    main = main.replace("IN", ", ".join(f"(void*){name}" for name in names[0])).replace("OUT", ", ".join(f"(void*){name}" for name in names[1]))
    read = "".join(f"if (fread({name}, 1, {a.nbytes}, stdin) != {a.nbytes}) return 9;\n" for name, a in arrays[: len(inputs)])
    write = "".join(f"fwrite({name}, 1, {a.nbytes}, stdout);\n" for name, a in arrays[len(inputs) :])
    (tmp_path / "main.c").write_text(main.replace("READ", read).replace("WRITE", write))
    objects = [str(path) for path in sorted((tmp_path / "c").glob("*.o"))]
    folder = tmp_path / "c"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{folder}", f"-Wa,-I{folder}"]
    subprocess.run([CC, *flags, str(tmp_path / "main.c"), str(folder / "net.c"), *objects, "-lm", "-o", str(tmp_path / "main")], check=True)
    libraries = subprocess.run(["ldd", str(tmp_path / "main")], capture_output=True, text=True, check=True).stdout
    assert not any(name in libraries for name in ("dnnl", "stdc++", "megjit", "tbb"))
    out = subprocess.run([str(tmp_path / "main")], input=b"".join(x.numpy().tobytes() for x in tensors), capture_output=True, check=True).stdout
    got = []
    for each in wanted:
        got.append(np.frombuffer(out[: each.nbytes], each.dtype).reshape(each.shape))
        out = out[each.nbytes :]
    assert not out
    return got, wanted


class Classifier(M.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = M.Linear(20, 70), M.LayerNorm(70), M.Linear(70, 10)

    def forward(self, x):
        return F.softmax(self.last(F.gelu(self.norm(self.first(x)))))


class Attention(M.Module):
    """Heads cut from one product, and attention over them."""

    def __init__(self, width=48, heads=4):
        super().__init__()
        self.heads, self.all, self.out = heads, M.Linear(width, 3 * width), M.Linear(width, width)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = F.split(self.all(x), 3, axis=2)
        parts = [F.transpose(F.reshape(each, (n, length, self.heads, -1)), (0, 2, 1, 3)) for each in (q, k, v)]
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        return x + self.out(F.reshape(F.transpose(y, (0, 2, 1, 3)), (n, length, width)))


@pytest.mark.parametrize("rows", [1, 5, 130])
def test_a_classifier(tmp_path, rows):
    net = Classifier()
    net.eval()
    got, wanted = run_c(tmp_path, lambda x: net(x), normal(rows, 20))
    np.testing.assert_allclose(got[0], wanted[0], atol=2e-6)


def test_attention(tmp_path):
    net = Attention()
    got, wanted = run_c(tmp_path, lambda x: net(x), normal(2, 33, 48))
    np.testing.assert_allclose(got[0], wanted[0], atol=5e-6)


def test_moves_and_several_results(tmp_path):
    def body(x, places):
        joined = F.concat([x[:, ::-1], F.maximum(x, 0), x[:, 1::2].sum(axis=1, keepdims=True)], axis=1)
        return joined, x, F.sum(places), F.argmax(x, axis=1), F.concat([places, places + 1]), x.astype("float16"), F.ones((3,)) * 2

    got, wanted = run_c(tmp_path, body, normal(4, 6), np.arange(7, dtype="int32"))
    for mine, its in zip(got, wanted, strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-6, atol=1e-6)


def test_small_weights_are_read_as_they_are(tmp_path):
    weight = (normal(65, 40) * 40).astype("int8")
    for rows in (3, 70):
        folder = tmp_path / str(rows)
        folder.mkdir()
        body = lambda x, w: F.tanh(F.matmul(x, w.astype("float32") * 0.02, transpose_b=True))  # noqa: E731
        got, wanted = run_c(folder, body, normal(rows, 40), weight)
        np.testing.assert_allclose(got[0], wanted[0], atol=5e-6)
        assert (folder / "c" / "net.c").read_text().count("(in, out") == 1


def test_names_become_members(tmp_path):
    traced = trace(lambda a, b, c: a + b * c, symbolic=True, capture_as_const=True)
    traced(*(mge.tensor(normal(3)) for _ in "abc"))
    traced.dump(str(tmp_path / "net.dump"), arg_names=["new", "a:0", "a_0"], output_names=["1st result"])
    done = packaged(tmp_path / "c", tmp_path / "net.dump", "--name", "sum_of")
    assert done.returncode == 0, done.stderr
    header = (tmp_path / "c" / "sum_of.h").read_text()
    assert all(f"const float* {name}; /* f32[3] */" in header for name in ("new_", "a_0", "a_0_")) and "float* _1st_result;" in header
    (tmp_path / "main.cpp").write_text('#include "sum_of.h"\nint main() { return sum_of_arena_align - 64; }\n')
    subprocess.run([CC, "-x", "c++", "-fsyntax-only", "-Wall", "-Werror", f"-I{tmp_path / 'c'}", str(tmp_path / "main.cpp")], check=True)


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    file = tmp_path_factory.mktemp("dump") / "net.dump"
    conv = M.Conv2d(3, 4, 3)
    traced = trace(lambda x: conv(x), symbolic=True, capture_as_const=True)
    traced(mge.tensor(normal(1, 3, 8, 8)))
    traced.dump(str(file))
    return file


@pytest.mark.parametrize("options, why", [
    ([], "no generated kernel computes conv"),
    (["--name", "a b"], "'a b' is no name in C"),
    (["--isa", "avx2,avx512"], "one instruction set"),
    (["--isa", "sse"], "no instruction set 'sse'"),
    (["--function", "other"], "other"),
    (["-o", "file"], "give one of them"),
    (["--memory-limit", "1MB"], "arena of static code"),
])  # fmt: skip
def test_what_cannot_be_said_so(tmp_path, dump, options, why):
    done = packaged(tmp_path / "c", dump, *options)
    assert done.returncode != 0 and why in done.stderr
    assert not (tmp_path / "c" / "net.h").exists()
