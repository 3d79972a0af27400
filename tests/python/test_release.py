"""What publishes a release: the changelog's form, CITATION.cff, workflows, and the script that makes the tag."""

import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]  # of Keep a Changelog


def refusals_of(changelog):
    """What is not as Keep a Changelog has it."""
    title, *releases = re.split(r"^## ", changelog, flags=re.MULTILINE)
    found = [] if title.startswith("# Changelog\n") else ["no title"]
    dates = []
    for i, release in enumerate(releases):
        head, *sections = re.split(r"^### ", release, flags=re.MULTILINE)
        name = head.partition("\n")[0]
        if name == "[Unreleased]":
            found += ["[Unreleased] is not the first"] if i else []
        elif dated := re.fullmatch(r"\[\d+\.\d+\.\d+\] - (\d{4}-\d\d-\d\d)", name):
            dates.append(date.fromisoformat(dated[1]))
        else:
            found.append(f"release {name!r}")
        found += [f"lines of no kind in {name}"] if re.search(r"^- ", head, re.MULTILINE) else []
        found += [f"kind {kind!r}" for section in sections if (kind := section.partition("\n")[0]) not in KINDS]
    return found + (["the newest is not the first"] if dates != sorted(dates, reverse=True) else [])


def test_the_changelog_has_the_usual_form():
    assert refusals_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("changelog", "refusal"),
    [
        ("# News\n", "no title"), ("# Changelog\n## 0.1.0, unreleased\n", "release '0.1.0, unreleased'"),
        ("# Changelog\n## [Unreleased]\n- x\n", "lines of no kind in [Unreleased]"), ("# Changelog\n## [Unreleased]\n### New\n", "kind 'New'"),
        ("# Changelog\n## [0.1.0] - 2026-01-01\n## [Unreleased]\n", "[Unreleased] is not the first"),
        ("# Changelog\n## [0.1.0] - 2026-01-01\n## [0.2.0] - 2026-02-01\n", "the newest is not the first"),
    ],
)  # fmt: skip
def test_another_form_is_seen(changelog, refusal):
    assert refusals_of(changelog) == [refusal]


@pytest.mark.parametrize(("file", "schema"), [*((path, "github-workflows") for path in WORKFLOWS), (ROOT / "CITATION.cff", "citation-file-format")], ids=lambda x: getattr(x, "name", x))
def test_github_reads_it(file, schema):
    pytest.importorskip("check_jsonschema")
    done = subprocess.run([sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_what_there_is(workflow):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = re.findall(r"- run: (make|tools/[\w.]+)(?: ([\w-]+))?", workflow.read_text(encoding="utf-8"))
    for command, argument in called:
        assert argument in targets if command == "make" else (ROOT / command).stat().st_mode & 0o100
    for other in re.findall(r"uses: \./(\S+)", workflow.read_text(encoding="utf-8")):
        assert (ROOT / other).exists()


def test_there_are_workflows():
    assert {path.stem for path in WORKFLOWS} == {"tests", "wheels", "site", "release"}


def test_the_package_says_where_its_library_lies():
    def config(*options):
        return subprocess.run([sys.executable, "-m", "megengine", "config", *options], capture_output=True, text=True, check=True).stdout.splitlines()

    folders = {"--cmake-dir": "megjitConfig.cmake", "--pkg-config-dir": "megjit.pc", "--include-dir": "megjit/megjit.hpp", "--lib-dir": "libmegjit.so.1"}
    for option, file in folders.items():
        (folder,) = config(option)
        assert (Path(folder) / file).exists()
    assert len(config(*folders)) == 4 and [line.split()[0] for line in config()][:4] == [option[2:] for option in folders]


@pytest.fixture
def release(tmp_path):
    """A repository of version 1.2.3 that may be released, and what release.sh says of it."""
    for path, text in {
        "tools/release.sh": (ROOT / "tools/release.sh").read_text(), "python/megengine/version.py": 'megjit_version = "1.2.3"\n',
        "CITATION.cff": "version: 1.2.3\ndate-released: 2026-05-04\n", "CHANGELOG.md": "# Changelog\n\n## [1.2.3] - 2026-05-04\n\n### Added\n\n- x\n",
    }.items():  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    shutil.copymode(ROOT / "tools/release.sh", tmp_path / "tools/release.sh")

    def git(*words):
        return subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("config", "user.name", "a")
    git("config", "user.email", "a@example.org")

    def run(*words, change=None, commit=True):
        if change:
            path, old, new = change
            text = (tmp_path / path).read_text()
            assert old in text
            (tmp_path / path).write_text(text.replace(old, new))
        if commit:
            git("add", ".")
            git("commit", "-q", "--allow-empty", "-m", "x")
        done = subprocess.run(["tools/release.sh", *words], cwd=tmp_path, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr, git("tag").split()

    return run


def test_a_release_is_a_tag(release):
    assert release("--check", "1.2.3") == (0, "release: this commit is megjit 1.2.3\n", [])
    assert release("1.2.3") == (0, "release: made the tag v1.2.3; publish it: git push origin v1.2.3\n", ["v1.2.3"])
    assert release("1.2.3") == (1, "release: the tag v1.2.3 is there already\n", ["v1.2.3"])


@pytest.mark.parametrize(
    ("version", "change", "refusal"),
    [
        ("", None, "give the version"), ("v1.2.3", None, "not 'v1.2.3'"), ("1.2.4", None, 'version.py says megjit_version = "1.2.3", not 1.2.4'),
        ("1.2.3", ("CITATION.cff", "1.2.3", "1.2.2"), "CITATION.cff says version: 1.2.2"),
        ("1.2.3", ("CITATION.cff", "05-04", "05-05"), 'CITATION.cff needs "date-released: 2026-05-04"'),
        ("1.2.3", ("CHANGELOG.md", "[1.2.3] - 2026-05-04", "[Unreleased]"), "CHANGELOG.md has no section"),
        ("1.2.3", ("CHANGELOG.md", "## [1.2.3]", "## [Unreleased]\n\n### Fixed\n\n- y\n\n## [1.2.3]"), "lines under [Unreleased]"),
    ],
)  # fmt: skip
def test_what_is_not_that_release_gets_no_tag(release, version, change, refusal):
    status, said, tags = release(version, change=change)
    assert status == 1 and refusal in said and tags == []


@pytest.mark.parametrize(("path", "known"), [("CHANGELOG.md", True), ("new.txt", False)])
def test_a_changed_tree_gets_no_tag(release, tmp_path, path, known):
    release("--check", "1.2.3")
    with (tmp_path / path).open("a") as file:
        file.write("- z\n")
    status, said, tags = release("1.2.3", commit=False)
    assert status == 1 and "not committed" in said and path in said and tags == []
