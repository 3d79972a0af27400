"""Custom ops in C++: sources go to the user's compiler, and the library that it makes brings its ops to `megengine.core.ops.custom`.

In: C++17 sources that include ``megbrain/custom/custom.h``. Out: the library's path. A library is
kept under a key of all that the compiler sees: nothing is built twice, and a change in any header
is.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence

from .._files.disk import cache_dir, replaced
from ..core._telling import no_effect
from ..core.ops.custom import load
from ..logger import get_logger

__all__ = ["IS_LINUX", "IS_MACOS", "IS_WINDOWS", "MGE_INC_PATH", "MGE_PATH", "build", "build_and_load", "load", "system"]

system = sys.platform
IS_WINDOWS = system == "win32"
IS_LINUX = system == "linux"
IS_MACOS = system == "darwin"
MGE_PATH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MGE_INC_PATH = os.path.join(MGE_PATH, "core", "include")

_FLAGS = ["-std=c++17", "-O2", "-fPIC", "-shared"]


def _words(flags: str | Sequence[str]) -> list[str]:
    return shlex.split(flags) if isinstance(flags, str) else list(flags)


def _compiler() -> list[str]:
    """The C++ compiler's command: CXX, else c++."""
    command = shlex.split(os.environ.get("CXX", "")) or ["c++"]
    if shutil.which(command[0]) is None:
        raise RuntimeError(
            f"there is no C++ compiler {command[0]!r}\n"
            "  fix: install one (g++ 9 or newer: `apt install g++`, `dnf install gcc-c++`), or name yours in the variable CXX"
        )
    return command


def _run(command: list[str], name: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        said = "\n".join((done.stderr or done.stdout).splitlines()[:60])
        raise RuntimeError(f"custom op {name}: {command[0]} failed\n{said}\n  at: {shlex.join(command)}")
    return done.stdout


def _sources(name: str, sources: str | Sequence[str], with_cuda: bool | None) -> list[str]:
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise ValueError(f"custom op: {name!r} names a file: letters, digits, _ . + and - only")
    paths = [sources] if isinstance(sources, str) else list(sources)
    if not paths:
        raise ValueError(f"custom op {name}: no sources")
    for path in paths:
        if not os.path.isfile(path):
            raise FileNotFoundError(f"custom op {name}: there is no file {path}")
    if with_cuda or any(path.endswith((".cu", ".cuh")) for path in paths):
        raise ValueError(
            f"custom op {name}: custom ops compute on the host, sources in CUDA are not built\n"
            '  fix: give the C++ sources alone, with set_compute("x86", ...); what is made of megengine.functional runs on GPUs'
        )
    return [os.path.abspath(path) for path in paths]


def build(
    name: str,
    sources: str | Sequence[str],
    extra_cflags: str | Sequence[str] = [],
    extra_cuda_cflags: str | Sequence[str] = [],
    extra_ldflags: str | Sequence[str] = [],
    extra_include_paths: str | Sequence[str] = [],
    with_cuda: bool | None = None,
    build_dir: str | None = None,
    verbose: bool = False,
    abi_tag: int | None = None,
) -> str:
    """Builds a library of custom ops, if it is not there yet; its path.

    name: the name of the library; sources: one or more C++ files. The compiler is ``c++``, or what
    the variable CXX says; extra_cflags and
    extra_ldflags are lists or a line of options, extra_include_paths folders. build_dir: where the library lies; else a folder of that
    name in MGE_CUSTOM_OP_DIR, or in the user's cache. verbose: logs the compiler's command. abi_tag: ``_GLIBCXX_USE_CXX11_ABI``, for
    libraries that are linked in. with_cuda and sources in CUDA are refused; extra_cuda_cflags warns.
    RuntimeError, with what the compiler said, where there is none or it fails.

    >>> build("cube", [])
    Traceback (most recent call last):
    ValueError: custom op cube: no sources
    """
    no_effect("build", "no sources in CUDA are compiled", extra_cuda_cflags=extra_cuda_cflags or None)
    paths = _sources(name, sources, with_cuda)
    compiler = _compiler()
    folders = [MGE_INC_PATH, *([extra_include_paths] if isinstance(extra_include_paths, str) else extra_include_paths)]
    flags = [*_FLAGS, *_words(extra_cflags), *(f"-I{folder}" for folder in folders)]
    if abi_tag is not None:
        flags.append(f"-D_GLIBCXX_USE_CXX11_ABI={int(abi_tag)}")
    link = _words(extra_ldflags)
    seen = [_run([*compiler, "--version"], name), _run([*compiler, *flags, "-E", *paths], name), shlex.join([*flags, *link])]
    key = hashlib.sha256("\0".join(seen).encode()).hexdigest()[:16]
    folder = build_dir or os.path.join(os.environ.get("MGE_CUSTOM_OP_DIR") or cache_dir("custom_ops"), name)
    path = os.path.join(os.path.abspath(folder), f"{name}-{key}.so")
    if not os.path.isfile(path):
        os.makedirs(folder, exist_ok=True)
        with replaced(path) as partial:
            command = [*compiler, *flags, *paths, *link, "-o", partial]
            if verbose:
                get_logger(__name__).info(shlex.join(command))
            _run(command, name)
    return path


def build_and_load(
    name: str,
    sources: str | Sequence[str],
    extra_cflags: str | Sequence[str] = [],
    extra_cuda_cflags: str | Sequence[str] = [],
    extra_ldflags: str | Sequence[str] = [],
    extra_include_paths: str | Sequence[str] = [],
    with_cuda: bool | None = None,
    build_dir: str | None = None,
    verbose: bool = False,
    abi_tag: int | None = None,
) -> str:
    """Builds a library and loads its ops as ``megengine.core.ops.custom.NAME``; returns its path.

    >>> build_and_load("cube", "cube.cpp")
    Traceback (most recent call last):
    FileNotFoundError: custom op cube: there is no file cube.cpp
    """
    path = build(
        name, sources, extra_cflags, extra_cuda_cflags, extra_ldflags, extra_include_paths, with_cuda, build_dir, verbose, abi_tag
    )
    load(path)
    return path
