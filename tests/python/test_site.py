"""The site that `make docs` writes, in a real browser: pages fit phones and screens, search finds, themes switch, nothing is fetched."""

import html
import json
import re
import shutil
from pathlib import Path

import pytest
from pages import browse

SITE = Path(__file__).resolve().parents[2] / "build/site"
WIDTHS = (390, 1400)  # pixels: a phone, a screen
# In each page: what it says of itself once it is drawn. The theme is switched by the button that a reader would press.
PROBE = """<script>addEventListener("load", () => setTimeout(() => {
  const button = [...document.querySelectorAll("button.theme-toggle")].find(b => b.offsetParent), themes = [];
  for (let i = 0; i < 3; i++) {
    button.click();
    themes.push([document.body.dataset.theme, getComputedStyle(document.body).backgroundColor]);
  }
  const links = [...document.querySelectorAll("#search-results a")].map(a => a.href);
  parent.postMessage({width: innerWidth, overflow: document.documentElement.scrollWidth - innerWidth, themes, links}, "*");
}, 2000))</script></body>"""
# Around it: a frame of a phone's width, since windows of Chromium cannot be that narrow.
FRAME = """<!doctype html><title>frame</title><body><iframe src="{page}" style="width:{width}px;height:900px;border:0"></iframe>
<pre id="said"></pre><script>addEventListener("message", e => said.textContent = JSON.stringify(e.data))</script></body>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A copy whose pages tell of themselves."""
    if not (SITE / "index.html").exists():
        pytest.skip("needs the site: make docs")
    if shutil.which("chromium") is None and shutil.which("chromium-browser") is None:
        pytest.skip("needs chromium: make test-browser")
    copy = tmp_path_factory.mktemp("site") / "site"
    shutil.copytree(SITE, copy)
    for page in copy.rglob("*.html"):
        page.write_text(page.read_text(encoding="utf-8").replace("</body>", PROBE), encoding="utf-8")
    return copy


def said_by(site, page, width):
    frame = site / "frame.html"
    frame.write_text(FRAME.format(page=page, width=width), encoding="utf-8")
    dom = browse(frame, f"--window-size={width + 100},1000", "--virtual-time-budget=10000", "--dump-dom", frame.as_uri())
    return json.loads(html.unescape(re.search(r'<pre id="said">(.*?)</pre>', dom, re.DOTALL)[1]))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["index", "tracing", "errors", "coming_from_megengine", "reference/megengine.functional", "examples/gpt"])
def test_a_page_fits_and_switches_its_theme(site, name, width):
    said = said_by(site, f"{name}.html", width)
    assert said["width"] == width and said["overflow"] <= 0
    colours = dict(said["themes"])
    assert set(colours) == {"auto", "light", "dark"} and colours["light"] != colours["dark"]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("query", "page"), [("sublinear", "memory.html"), ("cross_entropy", "megengine.functional.loss.html")])
def test_search_finds(site, query, page, width):
    assert any(page in link for link in said_by(site, f"search.html?q={query}", width)["links"])


def test_the_site_fetches_nothing():
    """Neither scripts nor styles, fonts or pictures come from elsewhere."""
    if not (SITE / "index.html").exists():
        pytest.skip("needs the site: make docs")
    for page in SITE.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'<(script|img|iframe)[^>]*\ssrc="(https?:)?//', text), page
        assert not re.search(r'<link[^>]*rel="(stylesheet|preload)"[^>]*href="(https?:)?//', text), page
    for style in SITE.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text(encoding="utf-8")), style
