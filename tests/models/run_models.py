"""Runs the ONNX models that packages of the registry carry, by onnxruntime and here, and prints a table.

    python run_models.py FOLDER [WORD ...]    FOLDER has the wheels of requirements.txt; words: of the models that are run

models.tsv names each model, how its file's SHA-256 begins, and inputs for one call or two: NAME:EXTENTxEXTENT, of numbers between 0 and 1; ``=N``
behind it: all N; ``<N``: whole numbers below N. Exits with 1 where a result differs or a refusal is not one of KNOWN.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import statistics
import sys
import time
import warnings
import zipfile
from pathlib import Path

os.environ.setdefault("MEGJIT_COMPILE", "sync")

import numpy as np
import onnxruntime

import megengine as mge
import megengine.onnx
from megengine.fx.experimental.optimization import optimize_for_inference
from megengine.jit import trace
from megengine.utils.comp_graph_tools import GraphInference

HERE = Path(__file__).parent
WAYS = ("eager", "value", "symbolic", "skipped", "optimized", "file")
# Refusals that are right: a part of the model's name and the way -> words of the error.
KNOWN = {
    # Its states are rounded to 8 bits in each step: onnxruntime's own results move by 0.2 where inputs move by a millionth.
    **{("ddddocr/common_old", way): "off by 0." for way in WAYS},
    # An input chooses between branches of which one cannot take the call's shapes, so that a trace leaves its graph for them.
    ("silero_vad/data/silero_vad.onnx", "file"): "exclude_from_trace",
    ("silero_vad/data/silero_vad.onnx", "skipped"): "the body reads tensor values",
}
CALLS = 30
DTYPES = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(bool)": "bool"}


def models(folder):
    """(package, name, bytes, inputs of each call) of the rows."""
    for line in (HERE / "models.tsv").read_text().splitlines()[1:]:
        package, name, digest, inputs = line.split("\t")
        (wheel,) = folder.glob(f"{package}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(name)
        if not hashlib.sha256(data).hexdigest().startswith(digest):
            raise SystemExit(f"{name} of {wheel.name} is another file than models.tsv says")
        yield f"{package}: {name}", data, inputs.split(" | ")


def arrays_of(text, session, seed):
    random, dtypes = np.random.RandomState(seed), {given.name: DTYPES[given.type] for given in session.get_inputs()}
    found = {}
    for part in text.split():
        name, _, words = part.rpartition(":")
        kind = next((sign for sign in "=<" if sign in words), "")
        extents, _, number = words.partition(kind) if kind else (words, "", "")
        shape = [int(extent) for extent in extents.split("x") if extent]
        drawn = np.full(shape, int(number)) if kind == "=" else random.randint(0, int(number), shape) if kind else random.uniform(0, 1, shape)
        found[name] = np.asarray(drawn).astype(dtypes[name])
    return {given.name: found[given.name] for given in session.get_inputs()}


def called(way, module):
    """A function of tensors."""
    if way == "eager":
        return module
    if way == "optimized":
        return optimize_for_inference(module)
    options = {"opt_level": 3, "symbolic": way != "value"}
    if way != "file":
        return trace(lambda *given: module(*given), without_host=way == "skipped", **options)

    def by_file(*given):
        recorded = trace(lambda *tensors: module(*tensors), capture_as_const=True, **options)
        recorded(*given)
        file = io.BytesIO()
        recorded.dump(file, arg_names=[f"input{place}" for place in range(len(given))])
        file.seek(0)
        return [mge.tensor(value) for value in GraphInference(file, optimize_for_inference=True).run(*(tensor.numpy() for tensor in given)).values()]

    return by_file


def results_of(function, tensors):
    found = function(*tensors)
    return [tensor.numpy() for tensor in (found if isinstance(found, (tuple, list)) else [found])]


def difference(found, wanted):
    """Returns how the results differ; nothing where all are near."""
    for have, want in zip(found, wanted, strict=True):
        if have.shape != want.shape:
            return f"shape {have.shape} for {want.shape}"
        if not np.allclose(have, want, rtol=2e-3, atol=1e-6 + 2e-3 * float(np.abs(want).max(initial=0))):
            return f"off by {np.abs(have.astype(np.float64) - want).max():.2g} of {np.abs(want).max():.2g}"
    return ""


def seconds_of(call):
    call()
    taken = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def judged(name, data, texts):
    """Returns what is wrong, by way, and the seconds that a call takes by onnxruntime and here."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = mge.get_num_threads()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    feeds = [arrays_of(text, session, seed) for seed, text in enumerate(texts)]
    wanted = [session.run(None, feed) for feed in feeds]
    tensors = [[mge.tensor(array.astype("int32") if array.dtype == np.int64 else array) for array in feed.values()] for feed in feeds]
    try:
        module = megengine.onnx.load(data).eval()
    except megengine.onnx.OnnxError as error:
        return {"load": str(error)}, None
    wrong = {}
    for way in WAYS:
        try:
            function = called(way, module)
            told = [text for each, want in zip(tensors, wanted, strict=True) if (text := difference(results_of(function, each), want))]
            wrong |= {way: "WRONG " + "; ".join(told)} if told else {}
        except Exception as error:
            wrong[way] = f"{type(error).__name__}: {error}"
    ours = called("skipped" if "skipped" not in wrong else "symbolic" if "symbolic" not in wrong else "eager", module)
    return wrong, (seconds_of(lambda: session.run(None, feeds[0])), seconds_of(lambda: results_of(ours, tensors[0])))


def is_known(name, way, why):
    return any(part in name.replace(": ", "/") and way == at and words in why for (part, at), words in KNOWN.items())


def main():
    warnings.simplefilter("ignore")
    onnxruntime.set_default_logger_severity(4)
    folder, words = Path(sys.argv[1]), sys.argv[2:]
    bad, ratios, right = 0, [], 0
    print(f"{'model':<70} {'onnxruntime':>12} {'here':>12} {'ratio':>6}")
    for name, data, texts in models(folder):
        if words and not any(word in name for word in words):
            continue
        wrong, times = judged(name, data, texts)
        shown = f"{1e3 * times[0]:9.3f} ms {1e3 * times[1]:9.3f} ms {times[1] / times[0]:6.2f}" if times else ""
        print(f"{name[-70:]:<70} {shown}", flush=True)
        for way, why in wrong.items():
            known = is_known(name, way, why)
            bad += not known
            print(f"    {way}{' (refused, as it should be)' if known else ''}: {' | '.join(why.splitlines()[:2])[:200]}", flush=True)
        right += not wrong
        ratios += [times] if times else []
    print(f"{right} right in all ways ({', '.join(WAYS)})")
    for text, part in (("above 1 ms", [t for t in ratios if t[0] > 1e-3]), ("below", [t for t in ratios if t[0] <= 1e-3])):
        if part:
            mean = math.exp(statistics.fmean(math.log(ours / theirs) for theirs, ours in part))
            print(f"time / onnxruntime's, geometric mean of {len(part)} models {text}: {mean:.2f}")
    sys.exit(int(bad > 0))


if __name__ == "__main__":
    main()
