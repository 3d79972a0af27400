"""Runs the code blocks of a page of the documentation, and compares what they print with what the page shows.

    python documented.py PAGE.md          prints what differs; exits with 1 if anything does
    python documented.py PAGE.md --write  writes into the page what its blocks printed

Neither doctest nor Sybil serves: blocks here are plain Python that a reader can copy, what they print stands in a block of its
own, and a page can write files and run commands.

    ```python      runs in the page's namespace, as example.py; what it prints, and the error that ends it, must be shown
    ```output      right behind it: what that block printed; ``...`` stands for anything, white space counts once
                   ```output figures: numbers, and numbers of bytes, differ from machine to machine, within the bounds of `_figures`
    ```console     each line behind ``$ `` runs in the page's folder, and prints the lines that follow it; figures as above
    ```sh          what a test cannot run (it installs or builds); test_documents.py says which pages may have one
    ```text        a picture or a form

A python or cmake block that begins with ``# file: train.py``, or a c or cpp block with ``// file: op.cpp``, is written there instead of being run.
"""

import contextlib
import difflib
import doctest
import importlib.util
import io
import linecache
import os
import re
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^```(\S*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIGURE = re.compile(r"\d[\d,.]*(e[+-]?\d+)?%?( ([KMG]i?)?B\b)?")
SIZES = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
SECONDS = {"ms": 1e-3, "us": 1e-6, "s": 1, "seconds": 1}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
INERT = {"", "text", "sh", "json"}  # and directives, in braces


class Block(NamedTuple):
    kind: str
    words: str  # behind the kind
    body: str
    start: int  # of the fence, in the page
    end: int


def blocks_of(text):
    return [Block(found[1], found[2], found[3], found.start(), found.end()) for found in FENCE.finditer(text)]


def _figures(text):
    """(value, how many times larger and smaller it may be now) of each figure. Sizes are in bytes, times in seconds.

    Counts and sizes are those of the program. A time that a page shows is at most 15 times what is measured: other work on the machine makes
    that only longer, up to 1000 times. Rates, and what stands in a table below a unit, go either way.
    """
    head = re.search(r"^[^\d\n]*\b(ms|us|GB/s)\b[^\d\n]*$", text, re.MULTILINE)
    for found in FIGURE.finditer(text):
        number, size = re.fullmatch(r"([\d,.]*\d(?:e[+-]?\d+)?)[,.]*(.*)", found[0]).groups()
        unit = re.match(r" ?(ms|us|s|seconds)\b|()/s\b", text[found.end() :])
        value = 0.0 if number.count(".") > 1 else float(number.replace(",", ""))  # 0: a version
        if unit is None and (head is None or found.start() < head.end()):
            yield max(value * SIZES.get(size.strip(), 1), 4), 2, 2
        elif unit is None or not unit[1]:
            yield max(value, 1), 500, 500  # a loaded machine is a hundred times slower
        else:
            yield max(value * SECONDS[unit[1]], 1e-3), 1000, 15


def near(want, got):
    """Is each figure within the bounds of the one that is shown?"""
    pairs = zip(_figures(want), _figures(got), strict=True)
    return all(shown / smaller <= now <= shown * larger for (shown, larger, smaller), (now, _, _) in pairs)


def has_card():
    return Path(importlib.util.find_spec("megengine").origin).with_name("libmegjit_card.so").exists()


def as_shown(want, got, words=""):
    if "figures" in words:
        if "..." not in want and FIGURE.sub("0", want).split() == FIGURE.sub("0", got).split() and not near(want, got):
            return False
        want, got = FIGURE.sub("0", want), FIGURE.sub("0", got)
    return doctest.OutputChecker().check_output(want, got, FLAGS)


def run_python(code, names):
    """What the code printed on both streams; an error's last lines, too."""
    linecache.cache["example.py"] = (len(code), None, code.splitlines(keepends=True), "example.py")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            exec(compile(code, "example.py", "exec"), names)
        except (Exception, KeyboardInterrupt) as error:
            printed.write("".join(traceback.format_exception_only(error)))
    return printed.getvalue()


def run_commands(session, words):
    """The session with what its commands print now, where that differs from what it shows."""
    lines = []
    for part in re.split(r"^(?=\$ )", session, flags=re.MULTILINE)[1:]:
        command, _, want = part.partition("\n")
        done = subprocess.run(
            ["bash", "-c", command[2:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900
        )
        got = done.stdout.replace(f"{os.getcwd()}/", "")
        lines += [command, want.rstrip("\n") if as_shown(want, got, words) else got.rstrip("\n")]
    return "".join(line + "\n" for line in lines if line)


def page_as_it_runs(text):
    """The page with what its blocks print now."""
    names = {"__name__": "__main__", "__file__": "example.py"}
    parts, done = [], 0
    blocks = blocks_of(text)
    for i, block in enumerate(blocks):
        if block.start < done:
            continue  # an output that was dealt with
        parts.append(text[done : block.start])
        done = block.end
        shown = text[block.start : block.end]
        follower = blocks[i + 1] if i + 1 < len(blocks) else None
        if block.kind == "console":
            shown = f"```console{block.words}\n{run_commands(block.body, block.words)}```"
        elif block.kind in ("python", "cmake", "c", "cpp") and (file := re.match(r"(?:#|//) file: (\S+)\n", block.body)):
            Path(file[1]).write_text(block.body, encoding="utf-8")
        elif block.kind == "python":
            got, want, words = run_python(block.body, names), "", ""
            if follower and follower.kind == "output" and not text[block.end : follower.start].strip():
                want, words, done = follower.body, follower.words, follower.end
            if output := want if as_shown(want, got, words) else got:
                shown += f"\n\n```output{words}\n{output.rstrip()}\n```"
        elif block.kind not in INERT and not block.kind.startswith("{"):
            raise ValueError(f"a block of {block.kind!r} stands behind no python block, or is of no kind that there is")
        parts.append(shown)
    return "".join(parts) + text[done:]


def main():
    page = Path(sys.argv[1]).resolve()
    text = page.read_text(encoding="utf-8")
    if "MEGJIT_EMULATED_GPUS" in text and not has_card():
        sys.exit("the page runs on the emulated card, which is not beside the package: make card")
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    warnings.filterwarnings("ignore", ".*use of fork", DeprecationWarning)  # of Python 3.12, where a thread happens to live
    os.environ.setdefault("MEGJIT_COMPILE", "sync")
    os.environ.update(MEGJIT_ISA="avx2", OMP_NUM_THREADS="2")  # which each machine has: workspaces and last bits differ
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MEGJIT_CACHE_DIR"] = f"{folder}/cache"
        os.chdir(folder)
        os.symlink(EXAMPLES, "examples")
        sys.path.insert(0, folder)
        ran = page_as_it_runs(text)
        os.chdir("/")
    if "--write" in sys.argv:
        page.write_text(ran, encoding="utf-8")
    elif ran != text:
        sys.exit("".join(difflib.unified_diff(text.splitlines(True), ran.splitlines(True), page.name, "as it runs")))


if __name__ == "__main__":
    main()
