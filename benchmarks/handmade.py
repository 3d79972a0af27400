"""Compiles the C files in c/ when they are needed; the kernels of limits and of fusion by hand."""

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

# The flags of the hand-fused target; with `fast` the compiler may use its vector math library too.
PLAIN = ["-O3", "-march=" + os.environ.get("HANDMADE_ARCH", "native")]
FAST = [*PLAIN, "-ffast-math", "-mprefer-vector-width=512"]


def kernel(source: str, name: str, pointers: int, fast: bool = True) -> Callable[..., None]:
    """Function ``name`` of c/``source``: takes addresses, then a size, then how often to repeat."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "handmade.so"
        path = Path(__file__).parent / "c" / source
        command = ["gcc", *(FAST if fast else PLAIN), "-fopenmp", "-shared", "-fPIC"]
        subprocess.run([*command, str(path), "-o", str(library), "-lm"], check=True)
        function = getattr(ctypes.CDLL(str(library)), name)
    function.restype = None
    function.argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_ssize_t] * 2
    return function
