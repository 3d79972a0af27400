"""The frame of pages that show plans and graphs: one HTML file that needs no server and loads nothing."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import Any

# The policy forbids a page to load anything, whatever a text in it may say.
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 14px/1.5 system-ui, sans-serif; margin: 2em auto 9em; max-width: 1240px; padding: 0 1em; color: #222; }}
table {{ border-collapse: collapse; margin: 1em 0; }} td, th {{ padding: 2px 12px; text-align: right; }}
th {{ border-bottom: 1px solid #999; }} td:first-child, th:first-child {{ text-align: left; }}
#details {{ position: fixed; bottom: 0; left: 0; right: 0; margin: 0; padding: 8px 2em; background: #222; color: #eee;
  max-height: 8em; overflow-y: auto; font-size: 12px; }}
{style}
</style>
<body>
<h1>{title}</h1>
{body}
<pre id="details">{hint}</pre>
<script type="application/json" id="data">{data}</script>
<script>
const data = JSON.parse(document.getElementById("data").textContent);
const details = document.getElementById("details");
{script}
</script>
</body></html>
"""


def escaped(text: object) -> str:
    """``text`` as HTML shows it, also inside of an attribute."""
    return html.escape(str(text))


def rows_table(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    """A table; every cell is escaped."""
    lines = "".join(
        "<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    heads = "".join(f"<th>{escaped(cell)}</th>" for cell in head)
    return f"<table><tr>{heads}</tr>{lines}</table>"


def page(title: str, body: str, *, data: Any, script: str, style: str, hint: str) -> str:
    """A whole page. It must be complete without the script, which finds ``data`` and the box ``details``.

    title, hint: any text; the hint stands in the box until the script writes there. body: HTML.
    data: for JSON; no text in it can end the element that holds it.
    """
    text = _PAGE.format(
        title=escaped(title),
        body=body,
        data=json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        script=script,
        style=style,
        hint=escaped(hint),
    )
    # Half a surrogate pair is a str of Python, but no file of UTF-8 can hold it.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
