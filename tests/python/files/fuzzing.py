"""Mutates files of models, pickles and files of tensors, reads them, and watches: an error of the
one class, or what is in them; no code.

As a program: fuzzing.py --runs N --seed S (make fuzz).
"""

import argparse
import ast
import builtins
import collections
import copy
import faulthandler
import io
import pickle
import random
import resource
import sys
import sysconfig
import time
import warnings
from unittest import mock

import numpy as np
from rewriting import headed, header_of, joined, opened, saved
from writing import DTYPES, gguf, halves, of_array, safetensors

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.quantization as Q
import megengine.traced_module as tm
from megengine import fx
from megengine._files import tensor_file
from megengine._files.container import ModelFileError
from megengine.serialization import TensorFile

SLOW = 60.0  # seconds of processor time: a file of some kilobytes takes as long on no machine


# -- seeds ---------------------------------------------------------------------------------------


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = M.Conv2d(2, 2, 1), M.BatchNorm2d(2)
        self.inner = M.Sequential(M.ReLU(), M.Linear(3, 2))
        self.scale = mge.Parameter(np.float32(0.5))

    def forward(self, x, y=None):
        z = self.inner(self.bn(self.conv(x)) * self.scale)
        z = F.concat([z, F.softplus(z)], axis=-1)[..., 1:].astype("float16")
        return {"z": z.reshape(z.shape[0], -1), "y": (F.dropout(z, 0.5), y)}


class Quantizable(M.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.conv, self.dequant = M.QuantStub(), M.ConvRelu2d(2, 2, 1), M.DequantStub()

    def forward(self, x):
        return self.dequant(self.conv(self.quant(x)))


def models():
    """(load function, module)."""
    x = mge.tensor(np.ones((1, 2, 3, 3), np.float32))
    net = Net()
    net.eval()
    aware = Q.quantize_qat(Quantizable(), qconfig=Q.ema_fakequant_qconfig)
    aware(x)
    aware.eval()
    yield fx.load, fx.symbolic_trace(net)
    yield fx.load, fx.symbolic_trace(lambda x, n=2: x.T[n] + getattr(x, "ndim") * mge.random.uniform(size=(2,)))
    yield tm.load, tm.trace_module(net, x)
    yield tm.load, tm.trace_module(net, x, y=x).flatten()
    yield tm.load, tm.trace_module(aware, x)
    yield tm.load, tm.trace_module(Q.quantize(aware, inplace=False), x)


class Pages:
    """Stands in for a mapped file: nothing has to be opened while the audit hook watches."""

    def __init__(self, file):
        self._bytes = np.frombuffer(file.getvalue(), np.uint8)

    def part(self, begin, end):
        assert end <= len(self._bytes)
        return self._bytes[begin:end]


def mapped_tensors(file):
    """Maps a file of tensors, and reads all of them."""
    with mock.patch.object(tensor_file, "MappedFile", Pages):
        return tensors(file, mmap=True)


def tensors(file, mmap=False):
    """Reads a file of tensors, all values of blocks included."""
    found = mge.load(file, mmap=mmap)  # bytes that were changed may begin like a pickle
    if not isinstance(found, TensorFile):
        return found
    return {name: np.array(each) for name, each in found.items()}


def files_of_tensors():
    """(kind, content)."""
    arrays = {f"w.{i}": of_array(np.ones((2, i), each)) for i, each in enumerate(DTYPES.values())}
    yield "safetensors", safetensors(arrays, __metadata__={"format": "pt"})
    blocks = {
        "plain": ("F32", (2, 3), bytes(24)), "half": ("F16", (3,), halves(1, 2, 3)),
        "q4": ("Q4_0", (2, 32), (halves(1) + bytes(range(16))) * 2),
        "q8": ("Q8_0", (32,), halves(2) + bytes(range(32))),
        "q6": ("Q6_K", (1, 256), bytes(range(208)) + halves(1)),
    }  # fmt: skip
    metadata = {"name": "llama", "n": 3, "words": ["a", "b"], "numbers": [1.0, 2.0]}
    yield "gguf", gguf(blocks, metadata)


def seeds():
    """(load function, content)."""
    found = []
    for load, module in models():
        found.append((load, saved(module)))
        found.append((mge.load, pickle.dumps(module, 2 + len(found) % 4)))
    checkpoint = collections.OrderedDict(
        epoch=np.int64(3), kind=np.dtype("f4"), state={"w": np.ones(3, "f4")}, t=mge.tensor([1.0]), s={1}, r=range(3)
    )
    return found + [(mge.load, pickle.dumps(checkpoint, protocol)) for protocol in (2, 3, 4, 5)]


# -- mutations -----------------------------------------------------------------------------------

INTERESTING = [
    0, -1, 1, 2, 255, 2**31, 2**32, 2**62, 2**63, 2**64, -(2**63), 1e308, 10**400, True, None, "", "a", "x" * 5000, [],
    {}, [[]], {"tuple": []}, {"node": 0}, {"node": 10**6}, {"module": 0}, {"module": -1}, {"tensor": "constants.0"},
    {"global": "os.system"}, {"global": "builtins.eval"}, {"global": "builtins.getattr"}, {"global": "numpy.ndarray"},
    {"global": "megengine.functional.zeros"}, {"float": "nan"}, {"bytes": "AAAA"}, {"slice": [0, {"node": 0}, None]},
    {"dict": [[{"dict": []}, 1]]}, {"object": ["megengine.quantization.utils.QParams", {"__class__": 1}]},
    {"enum": ["megengine.quantization.utils.QuantMode", "mro"]}, {"partial": ["builtins.getattr", [], {}]},
    {"range": [0, 2**62, 1]}, {"set": [{"tuple": [1]}]}, {"scalar": ["float32", "1"]}, {"device": "gpu7"},
    "__class__", "__init__.__globals__", "tofile", "numpy", "__reduce__", "self", "x; import os", "import", "None",
    "os.system", "builtins.exec", "operator.methodcaller", "megengine.serialization.load", "numpy.load", "output",
    "placeholder", "get_attr", "call_function", "call_method", "call_module", "bfloat16", "F4", "I64", "BOOL",
    "\ud800", "\u202e", "**kwargs", "*", "0.weight", "conv.__dict__", "forward", "gpu0", "../../etc/passwd",
]  # fmt: skip


def places(tree, path=()):
    """Paths of everything in a JSON value."""
    yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def at(tree, path):
    for key in path:
        tree = tree[key]
    return tree


def mutate_json(tree, rng):
    """One change somewhere in ``tree``, which is changed."""
    paths = list(places(tree))[1:]
    if not paths:
        return
    *path, key = rng.choice(paths)
    holder = at(tree, path)
    choice = rng.randrange(8)
    if choice <= 2:
        holder[key] = copy.deepcopy(rng.choice(INTERESTING))
    elif choice == 3:
        holder[key] = copy.deepcopy(at(tree, rng.choice(paths)))
    elif choice == 4:
        del holder[key]
    elif choice == 5 and type(holder[key]) is int:
        holder[key] += rng.choice((-1, 1, 1000))
    elif choice == 5 and isinstance(holder[key], list):
        holder[key] = holder[key] * rng.randrange(3)
    elif choice == 6 and isinstance(holder, dict):
        holder[str(rng.choice(INTERESTING))] = holder.pop(key)
    elif choice == 7:
        for _ in range(rng.choice((1, 30, 60))):
            holder[key] = rng.choice(([holder[key]], {"tuple": [holder[key]]}))
    if rng.random() < 0.05 and isinstance(holder, list):
        rng.shuffle(holder)


def mutate_model(content, rng):
    """A model file with changes in its JSON, and all lengths right."""
    header, model, data = opened(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        mutate_json(model if rng.random() < 0.85 else header, rng)
    return joined(header, model, data)


def mutate_header(content, rng):
    """A safetensors file with changes in its header, and the header's length right."""
    header, data = header_of(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        mutate_json(header, rng)
    return headed(header, data)


def mutate_bytes(content, others, rng):
    """Flips, cuts, insertions, pieces of other files."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        place = rng.randrange(len(data) or 1)
        choice = rng.randrange(6)
        if choice == 0 and data:
            data[place] ^= 1 << rng.randrange(8)
        elif choice == 1 and data:
            data[place] = rng.randrange(256)
        elif choice == 2:
            del data[place : place + rng.choice((1, 4, 100))]
        elif choice == 3:
            data[place:place] = rng.randbytes(rng.choice((1, 8)))
        elif choice == 4:
            other = rng.choice(others)
            start = rng.randrange(len(other))
            data[place : place + rng.randrange(64)] = other[start : start + rng.randrange(64)]
        elif rng.random() < 0.3:
            del data[place:]
    return bytes(data)


# -- judging -------------------------------------------------------------------------------------

_seen: list[str] = []  # what the audit hook found
_watching = False
_HARMLESS = ("object.__", "sys._getframe", "gc.", "marshal", "array.", "builtins.id", "time.")


def _audit(event, args):
    if not _watching or event.startswith(_HARMLESS):
        return
    if event in ("compile", "exec"):
        name = args[1] if event == "compile" else getattr(args[0], "co_filename", "")
        if isinstance(name, str) and name.startswith("<fx generated"):
            return
    _seen.append(f"{event} {str(args)[:200]}")


def install_audit_hook():
    """Let an audit hook, which Python never takes out again, note what runs while `judge` reads."""
    sys.addaudithook(_audit)


_STATEMENTS = (
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Import, ast.alias, ast.Assign, ast.Return, ast.Name, ast.Load,
    ast.Store, ast.Constant, ast.Call, ast.keyword, ast.Attribute, ast.Tuple, ast.List, ast.Dict, ast.Subscript,
    ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop, ast.Starred, ast.Pass,
)  # fmt: skip


def check_code(module):
    """AssertionError unless generated code is what code of graphs is made of, and every name in it is known."""
    tree = ast.parse(module.code)
    code = module.graph.python_code("self")
    known = {"self", "slice", "float", *code.globals, *dir(builtins)}
    for node in ast.walk(tree):
        assert isinstance(node, _STATEMENTS), ast.dump(node)[:200]
        if isinstance(node, ast.Import):
            assert {alias.name for alias in node.names} <= {"math", "megengine", "operator"}
            known |= {alias.name for alias in node.names}
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert names <= known, names - known
    assert not names & {"eval", "exec", "open", "compile", "__import__", "globals", "vars", "setattr"}, names
    steps = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not any(step.startswith("__") and step not in dir(mge.Tensor) for step in steps), steps


def judge(load, content):
    """Read one file. "loaded" or "refused"; AssertionError for anything else."""
    global _watching
    _seen.clear()
    outcome, error = "loaded", None
    started = time.process_time()
    _watching = True
    try:
        module = load(io.BytesIO(content))
    except ModelFileError as refused:
        outcome, error = "refused", refused
    except RuntimeError as refused:
        assert load in (mge.load, tensors, mapped_tensors), repr(refused)
        outcome, error = "refused", refused
    finally:
        _watching = False
    assert not _seen, _seen
    assert time.process_time() - started < SLOW
    assert "MemoryError" not in str(error), error
    assert error is None or load is mge.load or "fix: " in str(error), error
    if outcome == "loaded" and isinstance(module, fx.GraphModule) and "_code" in vars(module):
        check_code(module)
    return outcome


def fuzz(runs, seed, report=lambda done, counts: None):
    """Counts of outcomes by (kind of file, kind of mutation, outcome). AssertionError names the seed of the case."""
    warnings.simplefilter("ignore")
    rng = random.Random(seed)
    corpus = seeds()
    for codec in ("raw_unicode_escape", "latin1", "ascii"):  # the standard library imports them when they are used
        "".encode(codec)
    sysconfig.get_paths()  # so does this, of its tables
    for load, content in corpus:
        load(io.BytesIO(content))  # this package imports parts of itself when they are used first
        assert judge(load, content) == "loaded"
    models = [("model", *seed, mutate_model) for seed in corpus if seed[0] is not mge.load]
    pickles = [("pickle", *seed, None) for seed in corpus if seed[0] is mge.load]
    changers = {"safetensors": mutate_header, "gguf": None}
    of_tensors = [
        (kind, load, content, changers[kind])
        for kind, content in files_of_tensors()
        for load in (tensors, mapped_tensors)
    ]
    assert all(judge(load, content) == "loaded" for _, load, content, _ in of_tensors)
    contents = [content for _, _, content, _ in (*models, *pickles, *of_tensors)]
    counts = collections.Counter()
    for done in range(runs):
        (drawn,) = rng.choices((models, pickles, of_tensors), (6, 2, 2))
        kind, load, content, change = rng.choice(drawn)
        structured = change is not None and rng.random() < (0.9 if kind == "model" else 0.6)
        changed = change(content, rng) if structured else mutate_bytes(content, contents, rng)
        try:
            outcome = judge(load, changed)
        except BaseException as error:
            with open("fuzz_failure.bin", "wb") as file:
                file.write(changed)
            raise AssertionError(f"seed {seed}, run {done}, {load.__module__}: fuzz_failure.bin has the file") from error
        counts[kind, "json" if structured else "bytes", outcome] += 1
        if done % 20_000 == 19_999:
            report(done + 1, counts)
    return counts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    faulthandler.enable()
    install_audit_hook()
    corpus = seeds()  # models are made before memory is limited
    del corpus
    (used,) = (int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmSize"))
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), resource.RLIM_INFINITY))
    counts = fuzz(arguments.runs, arguments.seed, lambda done, counts: print(done, dict(counts), flush=True))
    for kind, count in sorted(counts.items()):
        print(*kind, count)


if __name__ == "__main__":
    main()
