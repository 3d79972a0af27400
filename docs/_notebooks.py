"""Notebooks: each page of the guide that has code, as cells for Jupyter.

In: the pages. Out: docs/notebooks/*.ipynb, which conf.py writes before each build; each page links to its own. A page is the one
definition of both; what its blocks mean stands in tests/python/documented.py. tests/python/test_notebooks.py executes them.
"""

import json
import re
from pathlib import Path

from documented import blocks_of

RUNS = {"python", "output", "console", "text"}  # pages with other blocks are for other languages
_ENDS_IN_ERROR = re.compile(r"^([\w.]+\.)?\w*(Error|Exception|Interrupt)\b", re.MULTILINE)
_INSIDE = re.compile(r"\[([^\]]*)\]\((?!https?:)[^)]*\)")  # a link to another page of the site, where a notebook is not


def pages(docs):
    """Those that have a notebook, in the order in which index.md lists them under "Begin" and "Guide"."""
    begin, guide = re.findall(r"```{toctree}\n:caption: (?:Begin|Guide)\n:hidden:\n(.*?)```", (docs / "index.md").read_text("utf-8"), re.DOTALL)
    listed = [docs / f"{name}.md" for name in (begin + guide).split()]
    return [page for page in listed if "python" in (kinds := {block.kind for block in blocks_of(page.read_text("utf-8"))}) and kinds <= RUNS]


def _cell(kind, source, **more):
    return {"cell_type": kind, "metadata": {}, "source": source, **more}


def _code(source, shown=""):
    """A cell with what it printed; one whose output ends in an error may raise it."""
    outputs = [{"output_type": "stream", "name": "stdout", "text": shown}] if shown else []
    cell = _cell("code", source, execution_count=None, outputs=outputs)
    if _ENDS_IN_ERROR.search(shown):
        cell["metadata"]["tags"] = ["raises-exception"]
    return cell


def _cell_of(block, shown):
    if block.kind == "console":
        commands = re.findall(r"^\$ (.*)$", block.body, re.MULTILINE)
        return _code("\n".join(f"!{command}" for command in commands))
    if file := re.match(r"# file: (\S+)\n", block.body):
        return _code(f"%%writefile {file[1]}\n{block.body}".rstrip())
    return _code(block.body.rstrip(), shown)


def notebook_of(text):
    """The notebook of a page, as the dict that a file holds as JSON."""
    cells, done = [], 0

    def tell(words):
        if words.strip():
            cells.append(_cell("markdown", _INSIDE.sub(r"\1", words.strip())))

    blocks = [block for block in blocks_of(text) if block.kind in ("python", "console", "output")]
    for block, follower in zip(blocks, [*blocks[1:], None], strict=True):
        tell(text[done : block.start])
        done = block.end
        if block.kind != "output":
            shown = follower.body if follower and follower.kind == "output" else ""
            cells.append(_cell_of(block, shown))
    tell(text[done:])
    for i, cell in enumerate(cells):
        cell["id"] = f"cell-{i}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def write(docs, folder):
    """Writes the notebook of each page, and nothing else stays in the folder."""
    folder.mkdir(exist_ok=True)
    found = pages(docs)
    for old in folder.glob("*.ipynb"):
        if old.stem not in {page.stem for page in found}:
            old.unlink()
    for page in found:
        text = json.dumps(notebook_of(page.read_text("utf-8")), indent=1, ensure_ascii=False)
        Path(folder / f"{page.stem}.ipynb").write_text(text + "\n", encoding="utf-8")


def link(docs, name, source):
    """The source of a page with the link to its notebook."""
    has_one = (docs / "notebooks" / f"{name}.ipynb").exists()
    return f"{source}\n\n{{download}}`This page as a notebook <notebooks/{name}.ipynb>`\n" if has_one else source
