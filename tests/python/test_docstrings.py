"""Every example that the documentation shows runs and gives what it says: docstrings, and the tour of README.md."""

import doctest
import importlib
import importlib.util
import inspect
import operator
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from docstring_parts import empty_entries, faults, methods, parameters, untold_errors
from numpydoc.docscrape import NumpyDocString
from test_names_in_tests import public

import megengine

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(megengine.__file__).parent
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


def wrappers(module):
    """What doctest takes for another module's: functions that a decorator made, and errors with a public name."""
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
    text = ["Like *args and x_, see `keep` and ``a * b``.", "", "* one", "* two", "  lines"]
    parameters = ["Parameters", "----------", "x, *rest : Tensor", "    Of shape y_.", "k_ : int", "    How many."]
    neighbours = ["See Also", "--------", "g : Like f.", "module.G_ : The layer_."]
    assert docstrings.as_markup([*text, "", *parameters, "", *neighbours, "", "Examples", "--------", ">>> f(2)", "4"]) == [
        "Like \\*args and x\\_, see `keep` and ``a * b``.", "",
        "* one", "* two", "  lines", "",
        ".. rubric:: Parameters", "",
        "**x, \\*rest** : Tensor", "   Of shape y\\_.", "",
        "**k\\_** : int", "   How many.", "",
        ".. rubric:: See Also", "",
        "* :py:obj:`g <g>`: Like f.", "* :py:obj:`module.G_ <megengine.module.G_>`: The layer\\_.", "",
        ".. rubric:: Examples", "",
        ".. code-block:: pycon", "", "   >>> f(2)", "   4", "",
    ]  # fmt: skip
    assert all(docstrings.public_names(importlib.import_module(name)) for name in docstrings.MODULES)


# An exception of C++, named tuples, and what module_stats imports.
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


def _told():
    """(name, function or class, whether its page is in the reference) of all that is published.

    A method without arguments may say all in its summary; one without a docstring has that of what it overrides.
    """
    pages, seen = tuple(_writer_of_the_reference().MODULES), set()
    for name, found in public():
        if not str(found.__module__).startswith("megengine"):
            continue
        yield name, found, name.rpartition(".")[0] in pages and name.rpartition(".")[2] not in WITHOUT_EXAMPLE
        for method, function in methods(found) if inspect.isclass(found) else ():
            if id(function) not in seen and parameters(function) and (function.__doc__ or not inspect.getdoc(getattr(found, method))):
                seen.add(id(function))
                yield f"{name}.{method}", function, False


def test_docstrings_have_the_form_of_numpydoc():
    found = {name: faults(each, with_example) for name, each, with_example in _told()}
    wrong = {name: problems for name, problems in found.items() if problems}
    assert len(found) > 900 and not wrong, "\n".join(f"{name}: {'; '.join(problems)}" for name, problems in wrong.items())


def test_docstrings_tell_the_errors_that_a_body_raises():
    untold = {name: errors for name, each, _ in _told() if (errors := untold_errors(each))}
    assert not untold


def test_every_parameter_is_described_where_help_shows_it():
    empty = {name: entries for name, each, _ in _told() if (entries := empty_entries(each))}
    assert not empty, "\n".join(f"{name}: {'; '.join(entries)}" for name, entries in empty.items())


@pytest.mark.parametrize(
    ("entry", "is_empty"),
    [
        ("As in `Conv2d`.", True),
        ("See `Module`.", True),
        ("Learning rate.", True),
        ("Kernel extent in pixels, as in `Conv2d`.", False),
        ("Number of channels, C.", False),
    ],
)
def test_an_entry_that_says_nothing_is_found(entry, is_empty):
    def convolve(size):
        pass

    convolve.__doc__ = f"Convolves.\n\nParameters\n----------\nsize : int\n    {entry}\n"
    assert bool(empty_entries(convolve)) is is_empty


def _names_in_see_also():
    """(name of the published object, name under its See Also) of all."""
    for name, found, _ in _told():
        for names, _ in NumpyDocString(inspect.getdoc(found) or "")["See Also"]:
            yield from ((name, neighbour) for neighbour, _ in names)


def test_what_see_also_names_is_there():
    """A name with dots begins below megengine, another one stands in the same module, as docs/_docstrings.py links them."""
    found = list(_names_in_see_also())
    sources = {name: sys.modules[name.rpartition(".")[0]] for name, _ in found if name.rpartition(".")[0] in sys.modules}
    for name, neighbour in found:
        start = megengine if "." in neighbour else sources[name]
        assert callable(operator.attrgetter(neighbour.removeprefix("megengine."))(start)), f"{name}: {neighbour}"
    assert len({name for name, _ in found}) >= 60


@pytest.mark.parametrize("module", [megengine.functional.loss, megengine.functional.vision])
def test_helpers_of_losses_and_of_images_are_hidden(module):
    visible = {name for name in vars(module) if not name.startswith("_")}
    assert visible <= {*module.__all__, "np", "Iterable", "Tensor"}


def test_what_a_docstring_lacks_is_found():
    def measure(x, *rest, _hidden=0):
        """Measures.

        Parameters
        ----------
        x : Tensor
            Any shape.
        y : int
            No such parameter.
        """
        if x:
            raise ValueError(x)
        raise KeyError

    class Like:
        """Measures later.

        Parameters
        ----------
        unit : str
            Of the length.
        """

        def __new__(cls, *args, **kwargs):
            return super().__new__(cls)

        def __init__(self, unit):
            self.unit = unit

    assert [each.partition(" ")[0] for each in faults(measure)] == ["PR01", "PR02", "EX01"]
    assert untold_errors(measure) == ["KeyError", "ValueError"]
    assert not faults(Like, with_example=False)


def test_the_readme_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    limited, tour, graphs = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    state = {"__name__": "limited"}
    exec(compile(limited, "README.md", "exec"), state)
    assert 40 * 2**20 < state["step"].memory_plan().planned_bytes <= 60 * 2**20
    with pytest.raises(MemoryError):
        exec(compile(limited.replace("60MB", "30MB"), "README.md", "exec"), {"__name__": "limited"})
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
