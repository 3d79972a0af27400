"""The documentation is true: every code block runs and prints what it shows, tables are those of the code, links lead somewhere."""

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from documented import as_shown, blocks_of, has_card
from documented_tables import PLACE, with_tables

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# docs/reference is written by `make docs`; what the docstrings show runs in test_docstrings.py.
PAGES = sorted(page for page in DOCS.rglob("*.md") if "reference" not in page.relative_to(DOCS).parts)
BESIDE = [ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
TEXT = {page: page.read_text(encoding="utf-8") for page in [*PAGES, *BESIDE, ROOT / "README.md"]}
# Commands that install or build: no test can run them. What they name is checked.
WITH_COMMANDS = {DOCS / "memory_compared.md", DOCS / "install.md", DOCS / "cpp.md", DOCS / "devices.md", ROOT / "CONTRIBUTING.md"}


def named(page):
    return page.relative_to(ROOT).as_posix()


# Arrays have other words elsewhere.
AS_SHOWN = np.__version__ >= "2" and all(map(importlib.util.find_spec, ("halide", "cv2", "onnx")))


@pytest.mark.skipif(not AS_SHOWN, reason="pages show what is printed with NumPy 2 and all extras")
@pytest.mark.parametrize("page", [page for page in PAGES if any(b.kind in ("python", "console") for b in blocks_of(TEXT[page]))], ids=named)
def test_a_page_shows_what_its_code_prints(page):
    if "MEGJIT_EMULATED_GPUS" in TEXT[page] and not has_card():
        pytest.skip("the emulated card is not beside the package: make card")
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("documented.py"), page], capture_output=True, text=True, timeout=3000
    )
    assert done.returncode == 0, f"{done.stderr}\nif that is right: python documented.py {page} --write"


@pytest.mark.parametrize(
    ("shown", "now", "agrees"),
    [
        ("eager 1.3 ms", "eager 1.2 ms", True), ("eager 28 ms", "eager 1.3 ms", False), ("eager 28 ms", "eager 900 ms", True),
        ("eager 0.02 ms", "eager 1900 ms", False), ("9.7 MB planned", "10.0 MB planned", True), ("9.7 MB planned", "9.7 KB planned", False),
        ("9,512 bytes", "4,095 bytes", False), ("1 version", "3 versions", False), ("3 versions", "4 versions", True),
        ("  time us/call\n 93% 1118.6", "  time us/call\n 12% 555.3", True), ("1.6 GB/s", "10.9 GB/s", True), ("1.6 GB/s", "990 GB/s", False),
        ("numpy 2.4.6", "numpy 2.5.1", True), ("in 4.3 s", "in 0.2 s", False), ("accuracy 89.17%", "accuracy 12.5%", False),
    ],
)  # fmt: skip
def test_figures_have_bounds(shown, now, agrees):
    assert as_shown(shown, now, "figures") is agrees
    assert as_shown(shown, now) is False


def test_the_pages_are_there():
    assert len(PAGES) > 30 and sum(len(blocks_of(text)) for text in TEXT.values()) > 250


@pytest.mark.parametrize("page", TEXT, ids=named)
def test_only_known_pages_have_blocks_that_no_test_runs(page):
    kinds = {block.kind for block in blocks_of(TEXT[page])}
    if page.parent == ROOT:  # README.md: test_docstrings.py, and tests/torch/test_page.py
        kinds -= {"python", "py"}
    assert kinds <= {"python", "output", "console", "text", "{toctree}", "{include}", "{literalinclude}", "cpp", "c", "cmake", *(["sh"] if page in WITH_COMMANDS else [])}


def test_code_stands_in_fences_but_on_known_pages():
    """Blocks that are only indented run nowhere: diagrams."""
    indented = {page.name for page, text in TEXT.items() if re.search(r"^(?! |\* |- )[^\n]*\n\n {4,}\S", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)}
    assert indented <= {"architecture.md", "README.md"}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_tables_are_those_of_the_code(page):
    assert with_tables(TEXT[page]) == TEXT[page], "python documented_tables.py writes them"


def test_there_are_such_tables():
    assert sum(len(PLACE.findall(text)) for text in TEXT.values()) >= 3


def test_the_readme_begins_with_a_limit_kept_in_two_ways():
    """What a reader sees first: a plan in both themes, and complete programs for PyTorch and for `trace`."""
    lines = TEXT[ROOT / "README.md"].splitlines()
    first = "\n".join(lines[:40])
    assert len(lines) <= 150
    assert 'options={"memory_limit": ' in first and "@jit.trace(memory_limit=" in first
    assert first.count("```\n</td>") == 2 and "limit_light.svg" in first and "limit_dark.svg" in first


def test_the_status_is_a_page_and_decisions_are_short():
    """Reasons and figures stand in docs/decisions, one decision a page, all in its index."""
    assert len(TEXT[DOCS / "status.md"].splitlines()) <= 150
    index = DOCS / "decisions/README.md"
    decisions = [page for page in PAGES if page.parent == index.parent and page != index]
    for number, page in enumerate(decisions, 1):
        assert page.name.startswith(f"{number:04}-") and f"| {number} | [" in TEXT[index] and f"]({page.name}) |" in TEXT[index]
        assert TEXT[page].startswith(f"# {number}. ") and len(TEXT[page].splitlines()) <= 55, page.name


def anchors_of(text):
    """As GitHub and MyST make them of headings."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", TEXT, ids=named)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", TEXT[page], flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_is_on_the_site(page):
    lists = "\n".join(block.body for text in TEXT.values() for block in blocks_of(text) if block.kind == "{toctree}").splitlines()
    assert page.stem in ("index", *lists) or f"{page.parent.name}/{page.stem}" in lists


@pytest.mark.parametrize("page", TEXT, ids=named)
def test_commands_name_what_there_is(page):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for target in re.findall(r"`make ([\w-]+)|^make ([\w-]+)", TEXT[page], re.MULTILINE):
        assert (target[0] or target[1]) in targets
    for extra in re.findall(r"megjit\[([\w,]+)\]", TEXT[page]):
        assert set(extra.split(",")) <= set(described["optional-dependencies"])


def test_what_make_test_fast_leaves_out_is_there():
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", "")
    files = re.search(r"^SLOW_FILES = (.*)", makefile, re.MULTILINE)[1].split()
    assert len(files) > 20 and all((ROOT / "tests/python" / name).is_file() for name in files)
    assert re.search(r"^SLOW_TESTS = (.*)", makefile, re.MULTILINE)[1] in test_a_page_shows_what_its_code_prints.__name__


def test_every_example_has_a_page_that_runs_it():
    pages = "\n".join(text for page, text in TEXT.items() if page.parent == DOCS / "examples")
    for script in (ROOT / "examples").glob("*.py"):
        assert f"$ python examples/{script.name}" in pages and f"{{literalinclude}} ../../examples/{script.name}" in pages
        assert ast.get_docstring(ast.parse(script.read_text(encoding="utf-8")))


def test_the_page_of_an_example_names_what_it_needs_beside_the_package():
    brings = {"sklearn": "scikit-learn", "cv2": "megjit[vision]", "megengine.onnx": "megjit[onnx]"}  # others have the names of their packages
    for page, text in TEXT.items():
        for script in re.findall(r"^In the repository: `(examples/\w+\.py)`", text, re.MULTILINE):
            imports = [node for node in ast.walk(ast.parse((ROOT / script).read_text(encoding="utf-8"))) if isinstance(node, (ast.Import, ast.ImportFrom))]
            modules = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports}
            for module in modules:
                top = module.partition(".")[0]
                if module in brings or top not in {*sys.stdlib_module_names, "megengine", "numpy", "tqdm"}:
                    assert brings.get(module, brings.get(top, top)) in text, f"{page.name}: {module}"


def table_of_support():
    rows = re.findall(r"^\| ([\w ]+?) \| (.*?) \|$", TEXT[DOCS / "install.md"], re.MULTILINE)
    return dict(rows)


def test_the_table_of_support_is_that_of_the_project():
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    support = table_of_support()
    pythons = re.findall(r"3\.(\d+)", support["Python"])
    least, beyond = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", described["requires-python"]).groups()
    assert pythons == [str(minor) for minor in range(int(least), int(beyond))]
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in pythons} <= set(described["classifiers"])
    (numpy,) = (text for text in described["dependencies"] if text.startswith("numpy"))
    assert numpy == f"numpy>={support['NumPy'].split()[0]}"
    assert "Operating System :: POSIX :: Linux" in described["classifiers"] and "Linux" in support["system"]
    levels = re.search(r'"MEGJIT_ISA",\s*"highest level of instructions that is used: ([\w, ]+) or (\w+);', (ROOT / "runtime/host/debug.cpp").read_text())
    for level in f"{levels[1]}, {levels[2]}".replace("_", "-").split(", "):
        assert level.split("-")[-1].upper().replace("AVX512", "AVX-512") in support["CPU"]
    (nvrtc,) = (text for text in described["optional-dependencies"]["cuda13"] if "nvrtc" in text)
    assert "CUDA " + re.search(r">=(\d+)", nvrtc)[1] in support["GPU"]


def test_the_version_is_one():
    version = re.search(r'^megjit_version = "(.*)"', (ROOT / "python/megengine/version.py").read_text(), re.MULTILINE)[1]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    newest = re.search(r"^## (.*)", TEXT[ROOT / "CHANGELOG.md"], re.MULTILINE)[1]
    assert newest.startswith(f"[{version}] - ") or newest == "[Unreleased]"
