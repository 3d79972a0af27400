"""``python -m megengine package``: a dumped file with the compiled kernels and packed weights of its functions, for machines without a
compiler; or a function of it as C, for programs that link nothing of ours."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from megengine import _core
from megengine._files.disk import written_whole
from megengine.core._sizes import to_bytes
from megengine.jit.card_plan import architecture_of
from megengine.utils.comp_graph_tools import load_file

_ARM = ("neon", "dotprod", "i8mm", "bf16", "sve2")
_X86 = ("avx2", "avx512", "avx512_vnni", "amx")
LEVELS = _ARM if _core.machine_isa() in _ARM else _X86


def extend(file: str, opt_level: int, memory_limit: int) -> None:
    """Runs in a child process, at its instruction set and with an empty cache: compiles all
    functions and puts the kernels into the file.
    """
    model = load_file(file)
    model.set_options(opt_level, memory_limit)
    before = len(model.to_bytes())
    for name in model.functions:
        outputs = list(range(len(model.function(name).outputs)))
        model.add_package_of(model.program(name, outputs, -1))
    packed = len(model.to_bytes()) - before
    kernels = _add_kernels(model, file)
    states = len(model.states())
    changing = f", without the {states} states of its functions, which runs may change" if states else ""
    print(f"{_core.isa()}: {kernels} kernels, {packed / 1e6:.1f} MB of packed weights{changing}", flush=True)


def extend_for_gpu(file: str, arch: int) -> None:
    """Runs in a child process: compiles all functions for a GPU, which need not be there, and puts
    the kernels into the file.
    """
    model = load_file(file)
    try:
        for name in model.functions:
            model.compile_for_gpu(name, arch)
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    print(f"sm_{arch}: {_add_kernels(model, file)} kernels", flush=True)


def _add_kernels(model: _core.ModelFile, file: str) -> int:
    """Puts the kernels of the cache into the model and writes it; returns their number."""
    kernels = _core.cache_entries(os.environ["MEGJIT_CACHE_DIR"])
    model.add_kernels(kernels)
    with written_whole(file) as stream:
        stream.write(model.to_bytes())
    return len(kernels)


def run_static(file: str, folder: str, levels: list[str], function: str, name: str, keeps_states: bool) -> int:
    """Writes C of a function ("": the first) for one instruction set into ``folder``: sources, objects and a CMakeLists.txt; ``name`` begins all names.

    levels: one level of either architecture, which this machine need not have. keeps_states:
    whether states that the function only reads are memory of the caller's, too, not constants.
    """
    _refuse_unknown(levels, _X86 + _ARM)
    if len(levels) != 1:
        raise ValueError(f"package: --static is for one instruction set, not {', '.join(levels)}\n  fix: --isa {LEVELS[0]}")
    files = load_file(file).static_code(function, name, keeps_states, levels[0])
    Path(folder).mkdir(parents=True, exist_ok=True)
    for each, content in files.items():
        with written_whole(Path(folder) / each) as stream:
            stream.write(content)
    objects = sum(each.endswith(".o") for each in files)
    print(f"{folder}: {name}.h, {name}.c, {objects} kernels for {levels[0]}, {len(files[name + '.bin']) / 1e6:.1f} MB of constants")
    return 0


def _run_at(isa: str, words: str, **more: str) -> int:
    """Runs a call of this file in a process with an instruction set; returns its exit status."""
    environment = {**os.environ, "MEGJIT_ISA": isa, "MEGJIT_COMPILE": "sync", **more}
    return subprocess.run([sys.executable, "-c", f"from megengine.reports import package; package.{words}"], env=environment, check=False).returncode


def _refuse_unknown(levels: list[str], known: tuple[str, ...]) -> None:
    for isa in levels:
        if isa not in known:
            raise ValueError(f"package: there is no instruction set {isa!r}\n  fix: name some of {', '.join(known)}")


def run(file: str, output: str, levels: list[str], gpus: list[str], opt_level: int, memory_limit: str | None) -> int:
    """Compiles the functions of ``file`` in a process for each instruction set, and writes them with kernels and packed weights.

    Levels above this machine's must be compiled on a machine that has them. gpus: "sm_90", for
    which all kernels are compiled, too, without such a card. opt_level: 3, which the written
    functions then have; -1 leaves them theirs. memory_limit: of
    a call, such as "6GB", which they keep with the plan that was found for it; kernels for GPUs are those of a plan within it.
    """
    limit = to_bytes(memory_limit, "--memory-limit") if memory_limit else 0
    _refuse_unknown(levels, LEVELS)
    archs = [architecture_of(gpu) for gpu in gpus]
    here = LEVELS.index(_core.machine_isa())
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "packed.dump"
        work.write_bytes(Path(file).read_bytes())
        for isa in levels:
            if LEVELS.index(isa) > here:
                print(f"{isa}: this machine has {LEVELS[here]}; compiled and packed where the file is loaded")
                continue
            if _run_at(isa, f"extend({str(work)!r}, {opt_level}, {limit})", MEGJIT_CACHE_DIR=f"{folder}/{isa}"):
                raise RuntimeError(f"package: the functions of {file} were not compiled for {isa}; the error stands above")
        for arch in archs:
            if _run_at(levels[0], f"extend_for_gpu({str(work)!r}, {arch})", MEGJIT_CACHE_DIR=f"{folder}/sm_{arch}"):
                raise RuntimeError(f"package: the functions of {file} were not compiled for sm_{arch}; the error stands above")
        with written_whole(output) as stream:
            stream.write(work.read_bytes())
    return 0
