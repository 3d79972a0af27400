"""Code grows on purpose: lines of code of each folder of the product, against the table in sizes.tsv.

python tools/sizes.py           prints what has grown beyond its row, and fails if anything has
python tools/sizes.py --write   writes the table; commit it with the change that needs the lines

A line of code is one with more on it than comments; docstrings are comments. Tests, tools, stubs and web pages are not counted.
"""

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_name("sizes.tsv")
SLACK = 100  # lines that a folder may grow before the table has to change
# A file counts for the longest of these that it lies in.
FOLDERS = [
    "runtime", "memory", "codegen",
    "backends/cpu", "backends/cuda", "backends/halide", "backends/mlir", "backends/nvrtc", "backends/processes",
    "jit", "jit/api", "python/bindings", "python/megengine", "python/megengine/_compat",
]  # fmt: skip
_CPP = {".c", ".h", ".cpp", ".hpp", ".inl", ".cu"}
_STRING_OR_COMMENT = re.compile(
    r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\[^\'\n]+|[^\'\\\n])\'|//[^\n]*|/\*.*?\*/', re.DOTALL
)
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines_of_cpp(text):
    """Strings stay, for they may hold what looks like a comment; comments become the line ends within them."""
    bare = _STRING_OR_COMMENT.sub(lambda found: re.sub(r"[^\n]", "", found[0]) if found[0].startswith("/") else found[0], text)
    return sum(bool(line.strip()) for line in bare.splitlines())


def lines_of_python(text):
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None
        for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)
    }
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in _NO_CODE]
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - docstrings)


def counted():
    """Folder -> its lines of code now."""
    sizes = dict.fromkeys(FOLDERS, 0)
    for top in sorted({folder.split("/")[0] for folder in FOLDERS}):
        for path in (ROOT / top).rglob("*.*"):
            name = path.relative_to(ROOT).as_posix()
            folder = max((folder for folder in FOLDERS if name.startswith(f"{folder}/")), key=len, default="")
            count = lines_of_python if path.suffix == ".py" else lines_of_cpp if path.suffix in _CPP else None
            if folder and count:
                sizes[folder] += count(path.read_text(encoding="utf-8"))
    return sizes


def table():
    """Folder -> its lines of code when the table was last written."""
    rows = (line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines())
    return {folder: int(lines) for folder, lines in rows}


def grown():
    """A line for each folder that has outgrown its row."""
    written = table()
    return [
        f"{folder}: {lines:,} lines of code, {written.get(folder, 0):,} in tools/sizes.tsv"
        for folder, lines in counted().items()
        if lines > written.get(folder, 0) + SLACK
    ]


def main():
    if "--write" in sys.argv:
        TABLE.write_text("".join(f"{folder}\t{lines}\n" for folder, lines in counted().items()), encoding="utf-8")
    elif found := grown():
        sys.exit("\n".join([*found, "if it is worth that: python tools/sizes.py --write"]))


if __name__ == "__main__":
    main()
