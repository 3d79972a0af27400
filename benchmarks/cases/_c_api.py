"""Files and libraries of the cases in c_api.py: made once, under build/bench, by a process of their own.

    .venv/bin/python benchmarks/cases/_c_api.py FOLDER    writes the models there
"""

import ctypes
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "bench"


def write_models(folder):
    """net.dump, packed.dump, net.onnx (ResNet-18 with the weights of inference.py) and one.dump, which has one operation."""
    from functools import partial

    sys.path.insert(0, str(ROOT / "benchmarks"))
    import numpy as np
    from cases import _resnet, inference

    import megengine as mge
    import megengine.functional as F
    import megengine.module as M
    import megengine.onnx
    from megengine.jit import trace

    def put(parameter, array):
        parameter[...] = mge.tensor(array)

    recorded = partial(trace, symbolic=True, capture_as_const=True, opt_level=3)
    net = inference.model_of(_resnet.RESNET18, M, F.relu, lambda x: F.flatten(F.avg_pool2d(x, 7), 1), put)
    for name, fn, x in (("net", lambda x: net(x), inference.image()), ("one", F.relu, np.zeros(4, np.float32))):
        fn = recorded(fn)
        fn(mge.tensor(x))
        fn.dump(folder / f"{name}.dump", arg_names=["x"], output_names=["y"])
    megengine.onnx.export(net, [mge.tensor(inference.image())], str(folder / "net.onnx"))
    subprocess.run(
        [sys.executable, "-m", "megengine", "package", folder / "net.dump", "-o", folder / "packed.dump", "--isa", "avx2,avx512,avx512_vnni"],
        check=True,
    )


def model(name):
    """The path of one of these files, made by the package that is installed."""
    path = FOLDER / name
    (core,) = (ROOT / ".venv").glob("lib/python3*/site-packages/megengine/_core*.so")
    if not path.exists() or path.stat().st_mtime < core.stat().st_mtime:
        FOLDER.mkdir(parents=True, exist_ok=True)
        subprocess.run([ROOT / ".venv/bin/python", __file__, FOLDER], check=True, stdout=sys.stderr)
        subprocess.run(["sync", *FOLDER.glob("*.dump")], check=True)  # pages of a file that is not written yet count as dirty
    return path


def library():
    """c/model.c and libmegjit.so, which is built where it is missing or old."""
    (build,) = (ROOT / "build").glob("cp3*")
    subprocess.run(["cmake", "--build", build, "--target", "megjit_library"], check=True, stdout=sys.stderr)
    made, api = FOLDER / "libmodel.so", build / "jit" / "api"
    FOLDER.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-O2", "-shared", "-fPIC", ROOT / "benchmarks/c/model.c", "-I", ROOT / "jit/api", "-L", api, "-lmegjit"]
    subprocess.run([*command, f"-Wl,-rpath,{api}", "-Wl,--allow-shlib-undefined", "-o", made], check=True)
    loaded = ctypes.CDLL(str(made))
    loaded.load.restype = ctypes.c_void_p
    loaded.load.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
    loaded.run.restype, loaded.run.argtypes = None, [ctypes.c_void_p, ctypes.c_long]
    loaded.planned_bytes.restype = ctypes.c_long
    loaded.planned_bytes.argtypes = [ctypes.c_void_p]
    loaded.start()
    return loaded


if __name__ == "__main__":
    write_models(Path(sys.argv[1]))
