"""python -m megengine package --static: functions as C that needs libc and libm alone, compiled and run here."""

import shutil
import struct
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
/* Threads are not needed to see whether parts are put together right. */
static void backwards(void* calls, int count, void (*body)(void* data, int i), void* data) {
    ++*(int*)calls;
    while (count--) body(data, count);
}
int main(void) {
    static char* room; /* stays reachable */
    int calls = 0;
    const net_threads threads = {3, backwards, &calls};
    room = (char*)aligned_alloc(net_arena_align, (net_arena_bytes + 127) / 64 * 64);
    net_inputs in = {IN};
    net_outputs out = {OUT};
    if (net_run(&in, &out, 0) != 2 || net_run(&in, &out, room + 4) != 2) return 8;
    READ
    memset(room, 0xff, net_arena_bytes);
    memset(room + net_arena_bytes, 0x55, 8);
    int status = net_run(&in, &out, room);
    if (status) return status;
    KEEP
    status = net_run_on(&in, &out, room, &threads);
    if (status) return status;
    SAME
    if (calls < CALLS) return 5;
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


def run_c(tmp_path, function, *inputs, sanitize=False, given=None, shared=0):
    """What the function's C gives for the inputs (or for others), as the traced function's results are.

    shared: so many launches, or more, are shared by threads.
    """
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
    keep = "".join(f"static char first_{name}[{max(a.nbytes, 1)}]; memcpy(first_{name}, {name}, {a.nbytes});\n" for name, a in arrays[len(inputs) :])
    same = "".join(f"if (memcmp(first_{name}, {name}, {a.nbytes})) return 6;\n" for name, a in arrays[len(inputs) :])
    for word, text in (("READ", read), ("WRITE", write), ("KEEP", keep), ("SAME", same), ("CALLS", str(shared))):
        main = main.replace(word, text)
    (tmp_path / "main.c").write_text(main)
    objects = [str(path) for path in sorted((tmp_path / "c").glob("*.o"))]
    folder = tmp_path / "c"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{folder}", f"-Wa,-I{folder}"]
    flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover"] if sanitize else []
    subprocess.run([CC, *flags, str(tmp_path / "main.c"), str(folder / "net.c"), *objects, "-lm", "-o", str(tmp_path / "main")], check=True)
    libraries = subprocess.run(["ldd", str(tmp_path / "main")], capture_output=True, text=True, check=True).stdout
    assert sanitize or not any(name in libraries for name in ("dnnl", "stdc++", "megjit", "tbb"))
    sent = b"".join(x.tobytes() for x in given or [x.numpy() for x in tensors])
    done = subprocess.run([str(tmp_path / "main")], input=sent, capture_output=True, check=False)
    if given:
        return done.returncode, wanted
    assert done.returncode == 0, done.stderr.decode()
    out, got = done.stdout, []
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
        assert (folder / "c" / "net.c").read_text().count("run_launch(threads, all)") == 1


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


def of_eval(net):
    net.eval()
    return lambda *inputs: net(*inputs)


class LeNet(M.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = M.Conv2d(1, 6, 5, padding=2), M.Conv2d(6, 16, 5)
        self.fc1, self.fc2 = M.Linear(16 * 5 * 5, 84), M.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        return F.softmax(self.fc2(F.relu(self.fc1(F.flatten(x, 1)))))


class Block(M.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1, self.bn1 = M.Conv2d(inside, outside, 3, stride, 1, bias=False), M.BatchNorm2d(outside)
        self.conv2, self.bn2 = M.Conv2d(outside, outside, 3, 1, 1), M.BatchNorm2d(outside)
        self.short = M.Conv2d(inside, outside, 1, stride, bias=False) if stride > 1 else M.Identity()

    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.short(x))


class SmallResNet(M.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = M.Conv2d(3, 16, 7, 2, 3, bias=False), M.BatchNorm2d(16)
        self.blocks = M.Sequential(Block(16, 16, 1), Block(16, 32, 2), Block(32, 40, 2))
        self.head = M.Linear(40, 10)
        for each in self.modules():  # statistics as training leaves them
            if isinstance(each, M.BatchNorm2d):
                each.running_mean[...] = mge.tensor(normal(*each.running_mean.shape, seed=1))
                each.running_var[...] = mge.tensor(np.abs(normal(*each.running_var.shape, seed=2)) + 0.5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        return self.head(F.flatten(F.adaptive_avg_pool2d(self.blocks(x), 1), 1))


class Sentence(M.Module):
    """Words and places looked up, then attention over them."""

    def __init__(self):
        super().__init__()
        self.words, self.places, self.attention = M.Embedding(50, 48), M.Embedding(40, 48), Attention()

    def forward(self, ids):
        places = mge.tensor(np.arange(ids.shape[1], dtype="int32"))
        return self.attention(self.words(ids) + self.places(places)).mean(axis=1)


@pytest.mark.parametrize("sanitize", [False, True])
def test_small_networks(tmp_path, sanitize):
    for net, shape in ((LeNet(), (2, 1, 28, 28)), (SmallResNet(), (1, 3, 64, 64))):
        folder = tmp_path / type(net).__name__
        folder.mkdir()
        got, wanted = run_c(folder, of_eval(net), normal(*shape), sanitize=sanitize, shared=2)
        np.testing.assert_allclose(got[0], wanted[0], atol=2e-5, rtol=2e-5)
    weights = sum(x.numpy().size for x in net.parameters() if x.ndim == 4)
    assert (folder / "c" / "net.bin").stat().st_size < 4 * weights + 8192  # norms are folded: nothing is held twice


@pytest.mark.parametrize("sanitize", [False, True])
def test_lookups(tmp_path, sanitize):
    ids = np.random.default_rng(0).integers(-50, 50, (3, 17)).astype("int32")
    got, wanted = run_c(tmp_path, of_eval(Sentence()), ids, sanitize=sanitize)
    np.testing.assert_allclose(got[0], wanted[0], atol=5e-6)

    def body(x, a, b):
        grid = x[a, :, b], x[:, a, b], x[a], F.gather(F.reshape(x, (5, -1)), 0, F.reshape(a, (1, -1)))
        return *grid, F.nn.cross_entropy(x[:, :, 0], b + 1)

    folder = tmp_path / "b"
    folder.mkdir()
    a, b = np.array([1, -5, 4, 0, 2], "int32"), np.array([0, 2, 2, -1, 1], "int32")
    got, wanted = run_c(folder, body, normal(5, 6, 3), a, b, sanitize=sanitize)
    for mine, its in zip(got, wanted, strict=True):
        np.testing.assert_allclose(mine, its, atol=1e-6)


def test_an_index_out_of_range(tmp_path):
    table = mge.tensor(normal(7, 4))
    for bad in (7, -8):
        folder = tmp_path / str(bad)
        folder.mkdir()
        status, _ = run_c(folder, lambda i: F.embedding(i, table), np.zeros(3, "int32"), sanitize=True, given=[np.array([0, bad, 1], "int32")])
        assert status == 3


@pytest.mark.parametrize("kind, size, options", [
    (M.Conv1d, 1, {"kernel_size": 4, "stride": 3, "padding": 2, "dilation": 2}),
    (M.Conv2d, 2, {"kernel_size": (3, 2), "stride": (1, 2), "padding": (2, 1), "dilation": (2, 1), "groups": 2}),
    (M.Conv2d, 2, {"kernel_size": 3, "padding": 1, "groups": 6}),
    (M.Conv2d, 2, {"kernel_size": 3, "stride": 2, "groups": 6}),
    (M.Conv2d, 2, {"kernel_size": 1}),
    (M.Conv2d, 2, {"kernel_size": 1, "stride": 2, "groups": 3}),
    (M.Conv3d, 3, {"kernel_size": 3, "padding": 1, "groups": 6}),
    (M.Conv3d, 3, {"kernel_size": (2, 3, 1), "stride": 2, "dilation": 2, "groups": 2}),
    (M.ConvTranspose2d, 2, {"kernel_size": (3, 4), "stride": (2, 3), "padding": 1, "groups": 2}),
])  # fmt: skip
def test_convolutions(tmp_path, kind, size, options):
    got, wanted = run_c(tmp_path, of_eval(kind(6, 18, **options)), normal(2, 6, *(11, 10, 9)[:size]), sanitize=True)
    np.testing.assert_allclose(got[0], wanted[0], atol=5e-6, rtol=1e-5)


def test_pooling(tmp_path):
    def body(x):
        pools = [F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, (2, 3), 1), F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2)]
        pools += [F.avg_pool2d(x, 3, 2, 1, mode="average"), F.adaptive_avg_pool2d(x, 3), F.adaptive_max_pool2d(x, (2, 3))]
        return *pools, F.adaptive_avg_pool2d(x, (4, 5)), F.adaptive_max_pool2d(x, (7, 2)), x.mean(axis=(2, 3)), F.max_pool2d(x.astype("float16"), 2)

    x = normal(2, 3, 12, 9) - 3  # where zeros of the padding would win
    x[0, 0, 4, 4] = np.nan
    got, wanted = run_c(tmp_path, body, x, sanitize=True)
    for mine, its in zip(got, wanted, strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-5, atol=1e-5)


def test_parts_are_written(tmp_path):
    def body(x, y):
        x[1:3, ::2] = y
        z = F.zeros((3, 4, 5))
        z[:, 1:3] = x[0, 0]
        return x, z, F.nn.pad(y, ((1, 0), (2, 3)), constant_value=7)

    got, wanted = run_c(tmp_path, body, normal(4, 5), normal(2, 3, seed=3), sanitize=True)
    for mine, its in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(mine, its)


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    file = tmp_path_factory.mktemp("dump") / "net.dump"
    traced = trace(lambda x: F.sort(F.relu(x))[0], symbolic=True, capture_as_const=True)
    traced(mge.tensor(normal(3, 8)))
    traced.dump(str(file))
    return file


@pytest.mark.parametrize("isa, machine, asks", [
    ("avx2", 62, '__builtin_cpu_supports("avx2")'), ("avx512", 62, '__builtin_cpu_supports("avx512bw")'), ("amx", 62, '__builtin_cpu_supports("avx512bw")'),
    ("neon", 183, "getauxval(AT_HWCAP) & 0UL"), ("i8mm", 183, "getauxval(AT_HWCAP2) & 8192UL"),
])  # fmt: skip
def test_code_for_a_processor_that_is_not_here(tmp_path, isa, machine, asks):
    traced = trace(lambda x: F.softmax(F.matmul(x, x.T), axis=1), symbolic=True, capture_as_const=True)
    traced(mge.tensor(normal(8, 8)))
    traced.dump(str(tmp_path / "net.dump"))
    done = packaged(tmp_path / "c", tmp_path / "net.dump", "--isa", isa)
    assert done.returncode == 0 and f"kernels for {isa}" in done.stdout, done.stderr
    objects = list((tmp_path / "c").glob("k*.o"))
    assert objects and all(struct.unpack_from("<H", each.read_bytes(), 18) == (machine,) for each in objects)  # ELF's e_machine
    assert asks in (tmp_path / "c" / "net.c").read_text()


@pytest.mark.parametrize("options, why", [
    ([], "no generated kernel computes sort"),
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
