"""``python -m megengine``: what this installation has, its C library, its cache of kernels, what a script's kernels cost, its memory,
the graph of a saved module."""

import argparse
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy

import megengine
from megengine import _core, reports
from megengine.reports import models
from megengine.version import megjit_version


def info(_: argparse.Namespace) -> int:
    """Prints versions, kernel compilers, threads, NVIDIA's libraries and environment variables."""
    print(f"megjit {megjit_version}, megengine API {megengine.__version__}")
    print(f"python {platform.python_version()}, numpy {numpy.__version__}, {platform.machine()}")
    print(f"device {megengine.get_default_device()}, {_core.thread_count()} threads")
    bound = "" if _core.isa() == _core.machine_isa() else f", bounded by MEGJIT_ISA; the machine has {_core.machine_isa()}"
    print(f"instructions {_core.isa()}{bound}")
    print(f"kernel compilers: {', '.join(_core.backends()) or 'none'}")
    print("NVIDIA's libraries:")
    for name, _number, version, path, why_not in _core.nvidia_libraries():
        print(f"  {name:<12} {version + ', ' + path if path else 'none: ' + why_not}")
    print("environment variables:")
    for name, meaning in _core.switches().items():
        print(f"  {name:<20} {meaning}")
    return 0


FOLDER = Path(megengine.__file__).parent
# Option -> what it prints for builds of C and C++ programs.
FOR_BUILDS = {
    "cmake-dir": ("megjit_DIR of CMake's find_package(megjit)", str(FOLDER / "cmake")),
    "pkg-config-dir": ("a folder of PKG_CONFIG_PATH", str(FOLDER / "pkgconfig")),
    "include-dir": ("the folder of megjit/megjit.h and megjit/megjit.hpp", str(FOLDER / "include")),
    "lib-dir": ("the folder of libmegjit.so.1 and its plug-ins", str(FOLDER)),
    "cflags": ("options of a compiler", f"-I{FOLDER / 'include'}"),
    "libs": ("options of a linker", f"-L{FOLDER} -l:libmegjit.so.1 -Wl,-rpath,{FOLDER} -Wl,--allow-shlib-undefined"),
}


def config(arguments: argparse.Namespace) -> int:
    """Prints what a build of a C or C++ program asks for: one line for each option given, or all with their names."""
    wanted = [name for name in FOR_BUILDS if getattr(arguments, name.replace("-", "_"))]
    for name in wanted or FOR_BUILDS:
        print(FOR_BUILDS[name][1] if wanted else f"{name:<15} {FOR_BUILDS[name][1]}")
    return 0


def run_model() -> NoReturn:
    """The command ``megjit-run``: becomes the program of that name, which the package holds."""
    os.execv(FOLDER / "bin" / "megjit-run", ["megjit-run", *sys.argv[1:]])


def cache_info(_: argparse.Namespace) -> int:
    found = _core.cache_info()
    if found["refusal"]:
        print(f"no cache: {found['refusal']}")
        return 1
    print(f"{found['folder']}: {found['entries']} kernels, {_core.size_text(found['bytes'])}")
    for backend, count in found["by_backend"].items():
        print(f"  {backend:<8} {count}")
    return 0


def cache_clear(_: argparse.Namespace) -> int:
    print(f"{_core.cache_clear()} kernels removed")
    return 0


def cache_verify(_: argparse.Namespace) -> int:
    sound, broken = _core.cache_verify()
    print(f"{sound} kernels are sound, {broken} were not and are removed")
    return 1 if broken else 0


def cache_export(arguments: argparse.Namespace) -> int:
    print(f"{_core.cache_export(arguments.file)} kernels written to {arguments.file}")
    return 0


def cache_import(arguments: argparse.Namespace) -> int:
    print(f"{_core.cache_import(arguments.file)} kernels taken from {arguments.file}")
    return 0


def compile_kernel(arguments: argparse.Namespace) -> int:
    backend, source = _core.compile_kernel(Path(arguments.file).read_text(encoding="utf-8"))
    print(f"; compiled by {backend}\n{source}")
    return 0


def kernels(arguments: argparse.Namespace) -> int:
    return reports.kernels.run(arguments.script, arguments.arguments)


def tune(arguments: argparse.Namespace) -> int:
    return reports.kernels.tune(arguments.script, arguments.arguments)


def plan(arguments: argparse.Namespace) -> int:
    # Options may follow the script's name; arguments after -- belong to the script.
    own, script_only = arguments.arguments, []
    if "--" in own:
        at = own.index("--")
        own, script_only = own[:at], own[at + 1 :]
    options = argparse.ArgumentParser(prog="python -m megengine plan", add_help=False, allow_abbrev=False)
    add_plan_options(options)
    plain = options.parse_args([])
    options.set_defaults(**{name: vars(arguments)[name] for name in vars(plain)})
    found, rest = options.parse_known_args(own)
    if reports.tensors.is_told(arguments.script):
        if found != plain or rest or script_only:
            raise ValueError(
                f"plan: {arguments.script} is a file of tensors, and options are for scripts\n"
                "  fix: leave them out"
            )
        return reports.tensors.run(arguments.script)
    if found.world is not None:
        if found.bandwidth is None or found.limit or found.html or found.device:
            raise ValueError("--world needs a --bandwidth, and neither --limit, --html nor --device go with it")
        return reports.world.run(
            arguments.script, rest + script_only, found.world, found.bandwidth, found.latency, found.json, found.repeats
        )
    return reports.plans.run(arguments.script, rest + script_only, found.limit, found.html, found.repeats, found.device)


def graph(arguments: argparse.Namespace) -> int:
    return reports.graphs.run(arguments.file, arguments.html, arguments.before, arguments.input)


def package(arguments: argparse.Namespace) -> int:
    if (arguments.output is None) == (arguments.static is None):
        raise ValueError("package writes a file (-o FILE) or C (--static DIR)\n  fix: give one of them")
    if arguments.states and arguments.static is None:
        raise ValueError("package: --states is for --static DIR; a file has its state anyway\n  fix: leave it out")
    levels = arguments.isa.split(",") if arguments.isa else list(reports.package.LEVELS[:1])
    if arguments.static is not None:
        if arguments.gpu:
            raise ValueError("package: static code is for CPUs, and --gpu for files\n  fix: leave one of them out")
        if arguments.memory_limit:
            raise ValueError("package: --memory-limit is for files; the arena of static code is told in its header\n  fix: leave it out")
        return reports.package.run_static(arguments.file, arguments.static, levels, arguments.function, arguments.name, arguments.states)
    gpus = arguments.gpu.split(",") if arguments.gpu else []
    return reports.package.run(arguments.file, arguments.output, levels, gpus, arguments.level, arguments.memory_limit)


def add_plan_options(to: argparse.ArgumentParser) -> None:
    to.add_argument("--limit", help="bytes of a call, such as 6GB, for every traced function")
    to.add_argument("--html", metavar="FILE", help="write the plan as a page; a second plan goes to FILE-2, and so on")
    words = "a GPU that need not be there, such as sm_90: also launches, bytes and a modelled time of a call there"
    to.add_argument("--device", metavar="CARD", default="", help=words)
    words = "end the script after so many calls that bring no new plan, or are measured (10)"
    to.add_argument("--repeats", type=int, default=10, help=words)
    words = "run the script's training steps here, and tell what they would take in a world of so many processes"
    to.add_argument("--world", type=int, metavar="PROCESSES", help=words)
    to.add_argument("--bandwidth", type=float, metavar="BYTES", help="of --world: bytes a second of a process's link, such as 25e9")
    words = "of --world: seconds of a message beside its bytes (10e-6)"
    to.add_argument("--latency", type=float, metavar="SECONDS", default=10e-6, help=words)
    to.add_argument("--json", action="store_true", help="of --world: print JSON")


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(prog="python -m megengine", description=__doc__)
    commands = main.add_subparsers(required=True, metavar="COMMAND")

    def add(to: Any, name: str, run: Callable[[argparse.Namespace], int], words: str) -> argparse.ArgumentParser:
        made = to.add_parser(name, help=words, description=words)
        made.set_defaults(run=run)
        return made

    add(commands, "info", info, "versions, kernel compilers, environment variables")
    words = "where libmegjit, its headers and CMake files lie, for the build of a C or C++ program; one line for each option, else all"
    ours = add(commands, "config", config, words)
    for name, (meaning, _) in FOR_BUILDS.items():
        ours.add_argument(f"--{name}", action="store_true", help=meaning)
    cache = commands.add_parser("cache", help="the compiled kernels on disk").add_subparsers(required=True, metavar="ACTION")
    add(cache, "info", cache_info, "where the cache is, and what it holds")
    add(cache, "clear", cache_clear, "remove all kernels")
    add(cache, "verify", cache_verify, "check every kernel, remove broken ones; status 1 when there was one")
    words = "write all kernels to one file, for a machine that cannot compile them"
    add(cache, "export", cache_export, words).add_argument("file")
    words = "take the kernels of such a file; they are code that will run, so trust where it comes from"
    add(cache, "import", cache_import, words).add_argument("file")
    script = add(commands, "kernels", kernels, "run a script and print what each kernel of its traced functions cost")
    script.add_argument("script")
    script.add_argument("arguments", nargs=argparse.REMAINDER)
    words = "run a script and measure its products: from then on the faster of the library and a generated kernel computes each"
    script = add(commands, "tune", tune, words)
    script.add_argument("script")
    script.add_argument("arguments", nargs=argparse.REMAINDER)
    words = "plan the memory of a script's traced functions, whose calls then compute nothing; or, with --world, the time of its "
    words += "training steps in a world of many processes; its arguments stand behind its name. "
    words += "Of a file of tensors (safetensors, an index of such files, GGUF, what a module's "
    words += "save() wrote): list them and what they take, without reading them"
    script = add(commands, "plan", plan, words)
    add_plan_options(script)
    script.add_argument("script")
    script.add_argument("arguments", nargs=argparse.REMAINDER)
    words = "print the graphs of a module that its save() wrote, or write a page on which its modules fold"
    file = add(commands, "graph", graph, words)
    file.add_argument("file")
    file.add_argument("--html", metavar="PAGE", help="write the page here")
    file.add_argument("--before", metavar="FILE", help="show this module's graph beside it, and what differs")
    words = "run it on zeros of this shape, such as 1,3,224,224 or 8,16:int32, and show times; once for each input"
    file.add_argument("--input", metavar="SHAPE", action="append", default=[], help=words)
    words = "run a model file (.onnx, .pt2, what trace.dump or save wrote) and print results, times and memory"
    file = add(commands, "run", models.run, words)
    file.add_argument("file")
    words = "of one input: a shape such as x=1x3x224x224 or ids=2x16:int32, of which numbers are drawn, or an .npy file; without a name, of the next"
    file.add_argument("--input", metavar="NAME=WHAT", action="append", default=[], help=words)
    file.add_argument("--size", metavar="NAME=N", action="append", default=[], help="an extent that the file leaves open, such as batch=2")
    words = "compare with onnxruntime (.onnx), torch (.pt2), or the arrays of an .npz file"
    file.add_argument("--check", metavar="WITH", default="", help=words)
    file.add_argument("--tolerance", type=float, default=1e-3, help="the largest difference, as a part of the largest number of a result (1e-3)")
    file.add_argument("--repeat", type=int, default=20, metavar="N", help="calls that are timed (20)")
    file.add_argument("--profile", action="store_true", help="print the slowest steps")
    file.add_argument("--threads", type=int, default=0, metavar="N")
    file.add_argument("--memory-limit", metavar="BYTES", help="of a call, such as 100MB")
    file.add_argument("--package", metavar="DIR", help="write C that computes the same, as package --static does")
    file.add_argument("--seed", type=int, default=0, help="of the numbers that are drawn (0)")
    words = "write a dumped file with the compiled kernels of its functions, for machines without a compiler; who runs it trusts its code"
    file = add(commands, "package", package, words)
    file.add_argument("file")
    file.add_argument("-o", "--output", metavar="FILE")
    words = "write C instead: a header, a source, objects of generated kernels and a CMakeLists.txt, which need libc and libm alone"
    file.add_argument("--static", metavar="DIR", help=words)
    file.add_argument("--function", default="", metavar="NAME", help="the function that --static is for (the first)")
    file.add_argument("--name", default="net", help="what its names begin with (net)")
    words = "memory of the caller's for the state that a --static function only reads, as for what it changes; else it is constant"
    file.add_argument("--states", action="store_true", help=words)
    words = "instruction sets to compile for, up to this machine's, such as avx2,avx512 (the lowest of this architecture); with --static any one"
    file.add_argument("--isa", default="", metavar="LEVELS", help=words)
    words = "GPUs to compile for, such as sm_80,sm_90: none of them has to be here"
    file.add_argument("--gpu", metavar="ARCHITECTURES", help=words)
    words = "bytes of a call, such as 6GB: what the written functions take, by a plan that is kept with them"
    file.add_argument("--memory-limit", metavar="BYTES", help=words)
    words = "opt_level of the written functions; -1: as they were traced (3)"
    file.add_argument("--level", type=int, choices=(-1, 3), default=3, help=words)
    words = "compile one kernel from its text (MEGJIT_DUMP=kernel, or what a warning names) and print its code"
    add(commands, "compile", compile_kernel, words).add_argument("file")
    return main


def main() -> int:
    arguments = parser().parse_args()
    try:
        status = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader has seen enough, as in `info | head`
        # Python's last flush goes there
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        print(error, *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
