"""The site: the pages of this folder and their notebooks, the reference from docstrings and its sources, the examples. `make docs` builds it.

Nothing is fetched when the site is read. Warnings are errors there, so that every link inside of it holds.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests/python"), str(ROOT / "tools")]

import _docstrings  # noqa: E402
import _notebooks  # noqa: E402
import make_pictures  # noqa: E402

project = "megjit"
author = "the megjit developers"
copyright = "the megjit developers; Apache-2.0"
release = re.search(r'(?m)^megjit_version = "([^"]+)"', (ROOT / "python/megengine/version.py").read_text())[1]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx_copybutton"]
myst_heading_anchors = 3
highlight_language = "text"
default_role = "code"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"megjit {release}"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
copybutton_selector = ":not(.highlight-output) > div.highlight > pre"
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True


_PICTURE = re.compile(r'<picture><source [^>]*srcset="([^"]+)"><img src="([^"]+)"([^>]*)></picture>')
_TEXT = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PAGE = re.compile(r"^<!-- page: (\w+), (.*) -->$", re.MULTILINE)


def _drawing(block):
    """A block of text whose lines must stay whole, if it is one: site.css makes its letters as small as a phone wants them."""
    is_wide = "─" in block[1] and max(map(len, block[1].splitlines())) > 44
    return f"```{{code-block}} text\n:class: drawing\n\n{block[1]}```" if is_wide else block[0]


def _read(app, name, source):
    """What the site makes of a page. GitHub, which shows the same files, has no switch of themes and shows no page within a page; and blocks
    that only an environment with torch can run are text for the tests."""
    text = re.sub(r"^```text (?=python|output)", "```", _notebooks.link(HERE, name, source[0]), flags=re.MULTILINE)
    text = _TEXT.sub(_drawing, text)
    text = _PICTURE.sub(r'<img class="only-light" src="\2"\3><img class="only-dark" src="\1"\3>', text)
    source[0] = _PAGE.sub(r'<iframe class="page" src="_static/pages/\1.html" title="\2" loading="lazy"></iframe>\n<p><a href="_static/pages/\1.html">\2, by itself</a></p>', text)


def setup(app):
    app.connect("autodoc-process-docstring", _docstrings.process)
    app.connect("source-read", _read)
    _docstrings.write_reference(HERE / "reference")
    _notebooks.write(HERE, HERE / "notebooks")
    make_pictures.write_pages(HERE / "_static/pages")
