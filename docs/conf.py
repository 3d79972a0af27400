"""The site: the pages of this folder and their notebooks, the reference from docstrings, the examples. `make docs` builds it.

Nothing is fetched when the site is read. Warnings are errors there, so that every link inside of it holds.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests/python")]

import _docstrings  # noqa: E402
import _notebooks  # noqa: E402

project = "megjit"
author = "the megjit developers"
copyright = "the megjit developers; Apache-2.0"
release = re.search(r'(?m)^megjit_version = "([^"]+)"', (ROOT / "python/megengine/version.py").read_text())[1]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
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
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True


def _link_notebook(app, name, source):
    source[0] = _notebooks.link(HERE, name, source[0])


def setup(app):
    app.connect("autodoc-process-docstring", _docstrings.process)
    app.connect("source-read", _link_notebook)
    _docstrings.write_reference(HERE / "reference")
    _notebooks.write(HERE, HERE / "notebooks")
