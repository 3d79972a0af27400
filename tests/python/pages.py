"""Reading pages in tests: whether the HTML is sound, and what a real browser makes of it."""

import os
import shutil
import subprocess
from html.parser import HTMLParser

import pytest


class Balance(HTMLParser):
    """Ends that have no beginning, beginnings without end, and what a page would load."""

    def __init__(self, page):
        super().__init__()
        self.open, self.loads, self.scripts = [], [], 0
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        self.loads += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        pass  # <line .../>


def browse(page, *options):
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("needs chromium: make test-browser")
    profile = page.with_name("profile")
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1280,1750", f"--user-data-dir={profile}", *options],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "HOME": str(page.parent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
