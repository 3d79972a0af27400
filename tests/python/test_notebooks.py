"""The notebooks of the guide's pages run in a kernel of Jupyter, and print there what the pages show."""

import os
import sys
from pathlib import Path

import kernels
import nbformat
import pytest
from documented import as_shown, blocks_of, has_card
from test_documents import AS_SHOWN

DOCS = Path(__file__).resolve().parents[2] / "docs"
sys.path.insert(0, str(DOCS))

import _notebooks  # noqa: E402

PAGES = _notebooks.pages(DOCS)


@pytest.fixture
def execute(tmp_path, monkeypatch):
    """Runs a notebook in an empty folder, as documented.py runs a page: ``execute(notebook)``."""
    monkeypatch.setenv("MEGJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name, value in {"MEGJIT_COMPILE": "sync", "MEGJIT_ISA": "avx2", "OMP_NUM_THREADS": "2", "PYTHONWARNINGS": "ignore::DeprecationWarning"}.items():
        monkeypatch.setenv(name, value)

    def execute(notebook):
        (tmp_path / "examples").symlink_to(DOCS.parent / "examples")
        return kernels.execute(notebook, tmp_path)

    return execute


def notebook_of(page):
    notebook = nbformat.from_dict(_notebooks.notebook_of(page.read_text(encoding="utf-8")))
    nbformat.validate(notebook)
    return notebook


def printed(cell):
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def what_a_kernel_prints(notebook):
    """For each cell that the page shows an output of: what it shows, and None for what depends on where the code stands, or on an error's form."""
    shown = [printed(cell) if cell.cell_type == "code" else "" for cell in notebook.cells]
    return [None if "example.py" in text or "raises-exception" in cell.metadata.get("tags", []) else text for text, cell in zip(shown, notebook.cells, strict=True)]


@pytest.mark.skipif(not AS_SHOWN, reason="pages show what is printed with NumPy 2 and all extras")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_prints_what_its_page_shows(page, execute):
    if "MEGJIT_EMULATED_GPUS" in page.read_text(encoding="utf-8") and not has_card():
        pytest.skip("the emulated card is not beside the package: make card")
    notebook = notebook_of(page)
    wanted = what_a_kernel_prints(notebook)
    outputs = [block for block in blocks_of(page.read_text(encoding="utf-8")) if block.kind == "output"]
    words = iter(block.words for block in outputs)
    words_of = [next(words) if cell.get("outputs") else "" for cell in notebook.cells]
    ran = execute(notebook)
    for cell, want, how in zip(ran.cells, wanted, words_of, strict=True):
        if want:
            assert as_shown(want, printed(cell), how), f"{cell.source}\n-- shown\n{want}\n-- printed\n{printed(cell)}"


def test_most_pages_of_the_guide_have_a_notebook():
    assert len(PAGES) > 20 and {"ten_minutes", "tracing", "memory", "data"} <= {page.stem for page in PAGES}
    assert sum(bool(text) for page in PAGES for text in what_a_kernel_prints(notebook_of(page))) > 60


def test_cells_of_each_kind():
    page = """# Title

Read [that](data.md#x) and [this](https://example.org).

```python
# file: a.py
print(1)
```

```console
$ python a.py
1
```

```python
1 / 0
```

```output
ZeroDivisionError: division by zero
```
"""
    words, file, command, error = _notebooks.notebook_of(page)["cells"]
    assert words["source"] == "# Title\n\nRead that and [this](https://example.org)."
    assert file["source"] == "%%writefile a.py\n# file: a.py\nprint(1)"
    assert command["source"] == "!python a.py"
    assert error["metadata"] == {"tags": ["raises-exception"]} and error["outputs"][0]["text"] == "ZeroDivisionError: division by zero\n"
