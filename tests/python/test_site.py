"""The site that `make docs` writes, in a real browser: pages fit phones and screens, search finds, themes switch, nothing is fetched."""

import re
import shutil
from pathlib import Path

import pytest
from pages import browse

SITE = Path(__file__).resolve().parents[2] / "build/site"
WIDTHS = (390, 1400)  # pixels: a phone, a screen
# What the page says of itself once it is drawn. The theme is switched by the button that a reader would press.
PROBE = """<script>addEventListener("load", () => {
  const say = document.body.dataset, button = [...document.querySelectorAll("button.theme-toggle")].find(b => b.offsetParent);
  say.width = innerWidth;
  say.overflow = document.documentElement.scrollWidth - innerWidth;
  say.themes = "";
  for (let i = 0; i < 3; i++) { button.click(); say.themes += document.body.dataset.theme + getComputedStyle(document.body).backgroundColor + ";"; }
})</script></body>"""


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


def dom_of(page, width, query=""):
    return browse(page, f"--window-size={width},900", "--virtual-time-budget=5000", "--dump-dom", page.as_uri() + query)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["index", "tracing", "errors", "coming_from_megengine", "reference/megengine.functional", "examples/gpt"])
def test_a_page_fits_and_switches_its_theme(site, name, width):
    dom = dom_of(site / f"{name}.html", width)
    assert f'data-width="{width}"' in dom
    assert int(re.search(r'data-overflow="(-?\d+)"', dom)[1]) <= 0
    themes = re.search(r'data-themes="(.*?)"', dom)[1]
    assert {"light", "dark"} <= set(re.findall(r"[a-z]+(?=rgb)", themes))
    assert len(set(re.findall(r"rgb\(.*?\)", themes))) >= 2  # and one sees it


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("query", "page"), [("sublinear", "memory.html"), ("cross_entropy", "megengine.functional.loss.html")])
def test_search_finds(site, query, page, width):
    dom = dom_of(site / "search.html", width, f"?q={query}")
    found = dom.partition('id="search-results"')[2]
    assert re.search(rf'href="[^"]*{re.escape(page)}', found)


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
