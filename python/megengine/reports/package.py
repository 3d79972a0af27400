"""``python -m megengine package``: a dumped file with the compiled kernels of its functions, for machines without a compiler."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from megengine import _core
from megengine._files.disk import written_whole
from megengine.utils.comp_graph_tools import GraphInference, load_file


def compile_functions(file: str, level: int) -> None:
    """What a child process does: compiles all functions, so that their kernels are in its cache."""
    first = GraphInference(file, optimize_for_inference=level == 3)
    for name in first.functions[1:]:
        first.function(name)


def run(file: str, output: str, levels: list[str], opt_level: int) -> int:
    """Compiles the functions of ``file`` in a process for each instruction set, and writes them with the kernels of all.

    opt_level: 3, which the written functions then have; -1 leaves them theirs.
    """
    model = load_file(file)
    kernels: dict[bytes, bytes] = {}
    for isa in levels:
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "MEGJIT_ISA": isa, "MEGJIT_CACHE_DIR": f"{folder}/kernels", "MEGJIT_COMPILE": "sync"}
            words = f"from megengine.reports import package; package.compile_functions({str(Path(file).resolve())!r}, {opt_level})"
            if subprocess.run([sys.executable, "-c", words], env=environment, check=False).returncode:
                raise RuntimeError(f"package: the functions of {file} were not compiled for {isa}; the error stands above")
            found = _core.cache_entries(f"{folder}/kernels")
        print(f"{isa}: {len(found)} kernels")
        kernels.update(found)
    model.set_kernels(list(kernels.items()), opt_level)
    with written_whole(output) as stream:
        stream.write(model.to_bytes())
    return 0
