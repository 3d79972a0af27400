"""``python -m megengine package``: a dumped file with the compiled kernels and packed weights of its functions, for machines without a
compiler."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from megengine import _core
from megengine._files.disk import written_whole
from megengine.core._sizes import to_bytes
from megengine.utils.comp_graph_tools import load_file

LEVELS = ("avx2", "avx512", "avx512_vnni", "amx")


def extend(file: str, opt_level: int, memory_limit: int) -> None:
    """What a child process does, at its instruction set and with an empty cache: compiles all functions, and puts what that gave into the file."""
    model = load_file(file)
    model.set_options(opt_level, memory_limit)
    before = len(model.to_bytes())
    for name in model.functions:
        outputs = list(range(len(model.function(name).outputs)))
        model.add_package_of(model.program(name, outputs, -1))
    packed = len(model.to_bytes()) - before
    kernels = _core.cache_entries(os.environ["MEGJIT_CACHE_DIR"])
    model.add_kernels(kernels)
    with written_whole(file) as stream:
        stream.write(model.to_bytes())
    print(f"{_core.isa()}: {len(kernels)} kernels, {packed / 1e6:.1f} MB of packed weights", flush=True)


def run(file: str, output: str, levels: list[str], opt_level: int, memory_limit: str | None) -> int:
    """Compiles the functions of ``file`` in a process for each instruction set, and writes them with kernels and packed weights.

    A level above this machine's is left to the machine that has it. opt_level: 3, which the written functions then have; -1 leaves them theirs. memory_limit: of
    a call, such as "6GB", which they keep with the plan that was found for it.
    """
    limit = to_bytes(memory_limit, "--memory-limit") if memory_limit else 0
    for isa in levels:
        if isa not in LEVELS:
            raise ValueError(f"package: there is no instruction set {isa!r}\n  fix: name some of {', '.join(LEVELS)}")
    here = LEVELS.index(_core.machine_isa())
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "packed.dump"
        work.write_bytes(Path(file).read_bytes())
        for isa in levels:
            if LEVELS.index(isa) > here:
                print(f"{isa}: this machine has {LEVELS[here]}; compiled and packed where the file is loaded")
                continue
            environment = {**os.environ, "MEGJIT_ISA": isa, "MEGJIT_CACHE_DIR": f"{folder}/{isa}", "MEGJIT_COMPILE": "sync"}
            words = f"from megengine.reports import package; package.extend({str(work)!r}, {opt_level}, {limit})"
            if subprocess.run([sys.executable, "-c", words], env=environment, check=False).returncode:
                raise RuntimeError(f"package: the functions of {file} were not compiled for {isa}; the error stands above")
        with written_whole(output) as stream:
            stream.write(work.read_bytes())
    return 0
