"""Tables of the documentation that the code knows: between ``<!-- table: NAME -->`` and ``<!-- end -->`` of a page.

python documented_tables.py writes them; test_documents.py compares.
"""

import ast
import re
from pathlib import Path

from megengine import _core
from megengine.core import _config
from megengine.core._telling import DEPRECATED
from megengine.jit import dump

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PLACE = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def rows_as_text(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def settings():
    """Every option of the interpreter, and what becomes of it."""
    rows = []
    for name, row in _config.OPTIONS.items():
        acts = "acts" if row.reader else "holds in any case" if row.holds else "has no effect"
        rows.append([f"`{name}`", f"`{row.variable}`" if row.variable else "", acts, row.holds or row.ignored])
    return rows_as_text(["option", "variable", "here", "why"], rows)


def without_effect():
    """The parameters that functions take and do nothing with: each call of no_effect that names them and says why."""
    rows = []
    for file in (ROOT / "python/megengine").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "no_effect"):
                continue
            where, why = node.args
            names = [keyword.arg for keyword in node.keywords if keyword.arg]
            if isinstance(where, ast.Constant) and isinstance(why, ast.Constant) and names:
                rows.append([f"`{where.value}`", ", ".join(f"`{name}`" for name in names), why.value])
    layouts = ", ".join(f"`{name}`" for name in sorted(dump.LAYOUT_OPTIONS))
    rows.append(["`dump`", layouts, "programs choose layouts when they are loaded"])
    return rows_as_text(["function", "parameters", "why they change nothing"], sorted(rows))


def switches():
    """Environment variables."""
    rows = [[f"`{name}`", meaning.replace("|", "\\|")] for name, meaning in _core.switches().items()]
    return rows_as_text(["variable", "meaning"], rows)


def deprecated():
    """What goes away, when, and what to write instead."""
    return rows_as_text(["name", "until", "instead"], [[f"`{name}`", *row] for name, row in DEPRECATED.items()])


TABLES = {table.__name__: table for table in (settings, without_effect, switches, deprecated)}


def with_tables(text):
    """The page with its tables as the code has them now."""
    return PLACE.sub(lambda found: found[1] + "\n" + TABLES[found[2]]() + "\n" + found[4], text)


if __name__ == "__main__":
    for page in DOCS.rglob("*.md"):
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
