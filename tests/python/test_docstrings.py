"""Every example that the documentation shows runs and gives what it says: docstrings, and the tour of README.md."""

import doctest
import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from docstring_parts import methods, missing_parts

import megengine

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(megengine.__file__).parent
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


def wrappers(module):
    """What doctest takes for another module's: functions that a decorator made, or `unary` of an op, and errors with a public name."""
    return {
        name: found
        for name, found in vars(module).items()
        if inspect.isfunction(found)
        and found.__module__ == module.__name__
        and found.__globals__ is not vars(module)
        or inspect.isclass(found)
        and issubclass(found, Exception)
        and found.__module__ != module.__name__
        and found.__module__.startswith("megengine.")
        and f"class {name}(" in inspect.getsource(module)
    }


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_run(name):
    module = importlib.import_module(f"megengine.{name}")
    assert not doctest.testmod(module).failed
    for function, found in wrappers(module).items():
        for examples in doctest.DocTestFinder().find(found, function, module=False, globs={}):
            assert not doctest.DocTestRunner().run(examples).failed


def test_wrappers_have_examples_that_run():
    assert ">>> " in wrappers(megengine.functional.elemwise)["div"].__doc__
    assert ">>> " in wrappers(importlib.import_module("megengine.functional.tensor"))["reshape"].__doc__


def test_there_are_examples():
    assert len(WITH_EXAMPLES) >= 20


def test_one_example_is_skipped_because_it_downloads():
    assert [path.name for path in (ROOT / "python").rglob("*.py") if "doctest: +SKIP" in path.read_text(encoding="utf-8")] == ["hub.py"]


def _writer_of_the_reference():
    specification = importlib.util.spec_from_file_location("_docstrings", ROOT / "docs/_docstrings.py")
    docstrings = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(docstrings)
    return docstrings


def test_docstrings_become_markup_that_means_the_same():
    """docs/_docstrings.py writes the reference; what looks like markup in a docstring is text."""
    docstrings = _writer_of_the_reference()
    text = ["Like *args and x_, see `keep` and ``a * b``.", "x: a tensor.", ">>> f(2)", "4", "", "* one", "* two", "  lines"]
    assert docstrings.as_markup(text, ["x"]) == [
        "Like \\*args and x\\_, see `keep` and ``a * b``.", "**x**: a tensor.", "",
        ".. code-block:: pycon", "", "   >>> f(2)", "   4", "",
        "* one", "* two", "  lines", "",
    ]  # fmt: skip
    assert all(docstrings.public_names(importlib.import_module(name)) for name in docstrings.MODULES)


# An exception of C++, named tuples, whose docstrings are made, and what module_stats imports.
WITHOUT_EXAMPLE = {"TraceError", "stats", "total_stats", "enters", "set_module_mode_safe"}


def test_every_public_name_says_what_it_does_and_shows_it():
    docstrings = _writer_of_the_reference()
    for name in docstrings.MODULES:
        module = importlib.import_module(name)
        for each in docstrings.public_names(module):
            found = getattr(module, each)
            if not callable(found) or each in WITHOUT_EXAMPLE:
                continue
            text = inspect.getdoc(found) or ""
            first = text.split("\n\n")[0]
            assert first.rstrip().endswith((".", ":", ";")) and ">>> " in text, f"{name}.{each}"


def test_every_public_name_tells_arguments_results_and_errors():
    docstrings = _writer_of_the_reference()
    modules = map(importlib.import_module, docstrings.MODULES)
    published = [(each, getattr(module, each)) for module in modules for each in docstrings.public_names(module)]
    public, missing = dict(published), {}
    for each, found in published:
        if not callable(found) or not str(found.__module__).startswith("megengine"):
            continue
        missing[f"{found.__module__}.{each}"] = missing_parts(found, public)
        for name, method in methods(found) if inspect.isclass(found) else ():
            missing[f"{found.__module__}.{each}.{name}"] = missing_parts(method, public, found)
    told_badly = [f"{name}: {', '.join(parts)}" for name, parts in missing.items() if parts]
    assert len(missing) > 500 and not told_badly, "\n".join(told_badly)


def test_what_a_docstring_lacks_is_found():
    def measure(x, unit) -> tuple[float, str]:
        """Measures `x`, as `Other` does."""

    class Other:
        """Arguments are those of `Base`."""

    class Base:
        """unit: of the length."""

    def raises(x):
        """Takes `x`."""
        if x:
            raise ValueError(x)
        raise KeyError

    assert missing_parts(measure, {}) == ["argument unit", "the result, tuple"]
    assert missing_parts(measure, {"Other": Other, "Base": Base}) == ["argument unit", "the result, tuple"]
    Other.measure = measure
    assert missing_parts(measure, {"Other": Other, "Base": Base}, Other) == ["the result, tuple"]
    def in_prose(a, mode, axis, k):
        """Returns a value in any mode, along axis=0 or the first (n, k)."""

    assert missing_parts(raises, {}) == ["error KeyError", "error ValueError"]
    assert missing_parts(in_prose, {}) == ["argument a", "argument mode"]


def test_the_readme_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tour, graphs = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    state = {"__name__": "tour"}
    exec(compile(tour, "README.md", "exec"), state)
    assert 0 < state["loss"] < 10
    report = [str(getattr(state["train_step"], name)()) for name in ("memory_plan", "kernels", "explain")]
    printed = capsys.readouterr().out
    assert all(text and text in printed for text in report)
    exec(compile(graphs, "README.md", "exec"), state)
    loaded = megengine.fx.load("model.mge")
    np.testing.assert_allclose(
        loaded(state["image"]).numpy(), state["net"](state["image"]).numpy(), rtol=1e-4, atol=1e-5
    )
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("model.onnx", "graph.html"))
