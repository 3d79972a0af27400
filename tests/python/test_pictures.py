"""The pictures of README and of the site: they are those of today's plans, in both themes, and each is shown."""

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest
from documented import as_shown

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs/_static/pictures"
TOOL = runpy.run_path(str(ROOT / "tools/make_pictures.py"))
SHOWN = "\n".join(page.read_text("utf-8") for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/examples").glob("*.md")])


def words_in(picture):
    return "\n".join(element.text or "" for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("}text"))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    pytest.importorskip("sklearn")  # whose images an example plans with
    return TOOL["drawn_by_plans"](tmp_path_factory.mktemp("drawn"))


@pytest.mark.parametrize("name", ["limit", *TOOL["PLANS"]])
def test_a_picture_is_that_of_todays_plan(drawn, name):
    """The words and, within bounds, the figures; and about as many buffers."""
    for theme, picture in drawn[name].items():
        kept = (PICTURES / f"{name}_{theme}.svg").read_text("utf-8")
        assert as_shown(words_in(kept), words_in(picture), "figures"), "make pictures draws it anew"
        assert 0.5 < picture.count("<rect") / kept.count("<rect") < 2, "make pictures draws it anew"


def test_the_plan_of_the_readme_keeps_its_limit(drawn):
    """The second plan ends below the dashed line, the first above it; what stands there is what the blocks show."""
    free, limited = (float(size) for size in re.findall(r": (\d+) MiB", words_in(drawn["limit"]["light"])))
    limit = float(re.search(r"the limit, (\d+) MiB", words_in(drawn["limit"]["light"]))[1])
    assert limited <= limit < free


@pytest.mark.parametrize("name", TOOL["BLOCKS"])
def test_a_block_in_a_picture_is_that_of_its_page(name):
    for theme, picture in TOOL["drawn_by_blocks"]()[name].items():
        assert as_shown(words_in((PICTURES / f"{name}_{theme}.svg").read_text("utf-8")), words_in(picture), "figures"), "make pictures draws it anew"


@pytest.mark.parametrize("picture", sorted(PICTURES.iterdir()), ids=lambda path: path.name)
def test_a_picture_is_shown(picture):
    assert f"_static/pictures/{picture.name}" in SHOWN
    if picture.suffix == ".svg":
        ElementTree.fromstring(picture.read_text("utf-8"))
