"""The product grows on purpose: tools/sizes.tsv has a row for each folder, which the commit that needs more lines changes."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / "tools/sizes.py"
SPEC = importlib.util.spec_from_file_location("sizes", PATH)
sizes = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(sizes)


def test_no_folder_has_outgrown_its_row():
    grown = sizes.grown()
    assert not grown, "\n".join([*grown, "if it is worth that, commit with it what this writes: python tools/sizes.py --write"])


def test_every_folder_has_a_row_and_every_row_a_folder():
    assert list(sizes.table()) == sizes.FOLDERS
    assert all((sizes.ROOT / folder).is_dir() for folder in sizes.FOLDERS)


def test_a_row_that_is_too_small_names_its_folder(monkeypatch):
    now = sizes.counted()
    monkeypatch.setattr(sizes, "table", lambda: now | {"memory": now["memory"] - sizes.SLACK - 1})
    (line,) = sizes.grown()
    assert line.startswith("memory: ")


@pytest.mark.parametrize(
    ("text", "lines"),
    [("int a; // b\n\n// c\n", 1), ("/* a\n b */ int c;\n", 1), ('f("// no comment");\n', 1), ("int a = 1'000'000; // b\n", 1), ("char c = '\"'; // d\n// e\n", 1), ('s = R"cuda(\n// code of a kernel\n)cuda";\n', 3)],
)  # fmt: skip
def test_lines_of_cpp_are_those_with_code(text, lines):
    assert sizes.lines_of_cpp(text) == lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [("x = 1  # y\n\n# z\n", 1), ('"""What\nit is."""\nx = 1\n', 1), ('def f():\n    """Says."""\n    return """a\nb"""\n', 3), ("f(\n    1,\n)\n", 3)],
)  # fmt: skip
def test_lines_of_python_are_those_with_code(text, lines):
    assert sizes.lines_of_python(text) == lines
