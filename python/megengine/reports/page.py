"""The frame of pages that show plans and graphs: one HTML file that needs no server and loads nothing."""

from __future__ import annotations

import functools
import json
import string
from collections.abc import Sequence


def escaped(text: object) -> str:
    """``text`` as HTML shows it, also inside of an attribute."""
    from html import escape  # slow to import

    return escape(str(text))


def rows_table(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    """A table; every cell is escaped."""
    lines = "".join(
        "<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    heads = "".join(f"<th>{escaped(cell)}</th>" for cell in head)
    return f"<table><tr>{heads}</tr>{lines}</table>"


@functools.cache
def search_field(words: str) -> str:
    """Returns the search field of a page. words: the hint in the empty field."""
    return f'<input type="search" id="search" aria-label="search" placeholder="{escaped(words)}"> <span id="found"></span>'


def _part(name: str) -> str:
    """Reads a file of ``reports/pages``, which has the frame, and styles and scripts of each kind
    of page.
    """
    from importlib.resources import files  # slow to import

    return files("megengine").joinpath("reports", "pages", name).read_text("utf-8")


def page(title: str, body: str, *, kind: str, data: object, hint: str) -> str:
    """A whole page. It must be complete without the script, which finds ``data`` and the box ``details``.

    title, hint: any text; the hint stands in the box until the script writes there. body: HTML. kind: whose style and
    script it gets. data: for JSON; no text in it can end the element that holds it.
    """
    # The frame's policy forbids a page to load anything, whatever a text in it may say.
    text = string.Template(_part("frame.html")).substitute(
        title=escaped(title),
        body=body,
        data=json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        script=_part(f"{kind}.js"),
        style=_part(f"{kind}.css"),
        hint=escaped(hint),
    )
    # Half a surrogate pair is a str of Python, but no file of UTF-8 can hold it.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
