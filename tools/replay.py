"""Process replay: what a part of the tests has compiled, at two commits, kernel by kernel, plan by plan, dump by dump.

    tools/replay.py BEFORE [TEST ...]        BEFORE: a commit, which is built in build/replay, or a folder that --write has made
    tools/replay.py --write FOLDER [TEST ...]

The tests are those of this tree, both times; without any, PART. A commit that only moves code shows 0 changes, but where a plan follows
measured times (profiling=True). What differs is printed with the test that made it, and both texts stay in the folders.
"""

from __future__ import annotations

import argparse
import collections
import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("trace", "plan", "kernel", "file")
PART = (
    "test_trace.py", "test_without_host.py", "test_capture_battery.py", "test_subgraph.py", "test_sublinear.py", "test_optimizer.py", "test_module_training.py",
    "test_dump.py", "test_dump_state.py", "test_control_flow_in_graphs.py", "test_bound_weights.py",
)  # fmt: skip
_MOST_SHOWN = 20


class Plugin:
    """A plugin of pytest: gives each test the files that were written while it ran."""

    def __init__(self, folder: Path):
        self._folder = folder

    def pytest_sessionstart(self) -> None:
        import megengine  # reads the switch, which processes that tests start must not have: they would write over each other

        megengine._core.reload_debug()
        del os.environ["MEGJIT_DUMP"]

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        written = sorted(self._folder.glob("*-*.txt"), key=lambda path: int(path.name.split("-")[0]))
        target = self._folder / re.sub(r"[^\w.\[\]=-]+", "_", nodeid)[:200]
        for place, path in enumerate(written):
            target.mkdir(exist_ok=True)
            path.rename(target / f"{place:03}-{path.name.split('-')[1]}")
        for path in (*self._folder.glob("*.dot"), *self._folder.glob("*.html")):
            path.unlink()


def write(folder: Path, tests: list[str]) -> None:
    """Runs the tests, as the plugin of their pytest."""
    import pytest

    folder.mkdir(parents=True)
    os.environ |= {"MEGJIT_DUMP": f"{','.join(STAGES)}@{folder}", "MEGJIT_CACHE_DIR": "", "MEGJIT_TUNE": "off"}
    os.chdir(ROOT / "tests/python")
    sys.path.insert(0, os.getcwd())
    status = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *(tests or PART)], plugins=[Plugin(folder)])
    if status > 1:  # a test that fails has been replayed all the same
        raise SystemExit(status)


def texts(folder: Path) -> dict[tuple[str, str], collections.Counter[str]]:
    """(test, stage) -> what it made, without the program's lines, which move with the tests."""
    found: dict[tuple[str, str], collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for path in sorted(folder.glob("*/*.txt")):
        found[path.parent.name, path.stem.split("-")[1]][re.sub(r"  # .*", "", path.read_text())] += 1
    return found


def compare(before: Path, after: Path) -> int:
    """Prints what differs; how much that is."""
    old, new = texts(before), texts(after)
    changes = 0
    for key in sorted({*old, *new}):
        gone, come = [*(old[key] - new[key]).elements()], [*(new[key] - old[key]).elements()]
        for place in range(max(len(gone), len(come))):
            changes += 1
            if changes > _MOST_SHOWN:
                continue
            pair = [(each[place] if place < len(each) else "").splitlines() for each in (gone, come)]
            print(f"--- {key[0]}: {key[1]}", *list(difflib.unified_diff(*pair, lineterm="", n=1))[2:], sep="\n")
    counts = collections.Counter(stage for (_, stage), made in new.items() for _ in made.elements())
    print(f"replay: {', '.join(f'{counts[stage]} {stage}s' for stage in STAGES)}; {changes} changes")
    return changes


def run(package: Path | None, folder: Path, tests: list[str]) -> None:
    environment = dict(os.environ) | ({"PYTHONPATH": str(package)} if package else {})
    subprocess.run([sys.executable, __file__, "--write", str(folder), *tests], env=environment, check=True)


def built(commit: str) -> Path:
    """The folder of the package at a commit: of an environment's form, for its libraries lie three folders above the extension."""
    sha = subprocess.run(["git", "rev-parse", commit], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()[:12]
    tree, lib = ROOT / "build/replay" / sha, ROOT / "build/replay" / f"{sha}-env/lib"
    package = lib / "python/site-packages"
    if not tree.is_dir():
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), sha], cwd=ROOT, check=True)
    if not package.is_dir():
        install = ["pip", "install", "-q", "--disable-pip-version-check", "--no-build-isolation", "--no-deps", "--target", str(package), str(tree)]
        subprocess.run([sys.executable, "-m", *install], check=True)
    for library in Path(sys.prefix, "lib").glob("lib*.so*"):
        if not (lib / library.name).exists():
            (lib / library.name).symlink_to(library)
    return package


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    parser.add_argument("rest", nargs="*", metavar="BEFORE [TEST ...]")
    given = parser.parse_args()
    if given.write:
        return write(given.write.resolve(), given.rest)
    if not given.rest:
        parser.error("BEFORE is missing: a commit, or a folder that --write has made")
    before, tests = Path(given.rest[0]), given.rest[1:]
    after = ROOT / "build/replay" / f"{os.getpid()}-after"
    if not before.is_dir():
        package = built(given.rest[0])
        before = after.with_name(f"{os.getpid()}-before")
        run(package, before, tests)
    run(None, after, tests)
    raise SystemExit(compare(before, after) > 0)


if __name__ == "__main__":
    main()
