"""The reference: a page for each public module, and docstrings as reStructuredText.

In: the installed package. Out: docs/reference/*.rst, which conf.py writes before each build. Docstrings are plain text with `names`
and examples, so that help() shows them well; what reStructuredText would take for markup in them is escaped here.
"""

import importlib
import inspect
import re
import types

MODULES = {
    "megengine": "Tensors and devices",
    "megengine.functional": "Functions of tensors",
    "megengine.functional.fft": "Fourier transforms",
    "megengine.functional.linalg": "Linear algebra",
    "megengine.functional.loss": "Losses",
    "megengine.functional.vision": "Functions of images",
    "megengine.module": "Layers",
    "megengine.module.init": "Initial weights",
    "megengine.optimizer": "Optimizers and schedules",
    "megengine.autodiff": "Gradients",
    "megengine.jit": "Traced functions",
    "megengine.jit.report": "What traced functions tell",
    "megengine.fx": "Module graphs",
    "megengine.fx.experimental.optimization": "Module graphs for inference",
    "megengine.traced_module": "Traced modules",
    "megengine.quantization": "Quantization",
    "megengine.data": "Data loading",
    "megengine.data.dataset": "Datasets",
    "megengine.data.transform": "Transforms of images",
    "megengine.distributed": "Many processes",
    "megengine.distributed.functional": "Collective operations",
    "megengine.amp": "Mixed precision",
    "megengine.device": "Devices",
    "megengine.random": "Random numbers",
    "megengine.distributions": "Distributions",
    "megengine.dtr": "Eager recomputation",
    "megengine.onnx": "ONNX",
    "megengine.serialization": "Files",
    "megengine.hub": "Published models",
    "megengine.utils.module_stats": "Sizes and costs of modules",
    "megengine.utils.network": "Graphs of dumped models",
}

ITEMIZED = ("Parameters", "Returns", "Yields", "Raises", "Warns")


def public_names(module):
    """What the module publishes: its __all__, or what it names that is the package's own."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed)
    return sorted(
        name
        for name, found in vars(module).items()
        if not name.startswith("_")
        and not isinstance(found, types.ModuleType)
        and str(getattr(found, "__module__", "")).startswith("megengine")
    )


def write_reference(folder):
    """Writes a page for each of MODULES. An object stands on the first page that publishes it, on that of megengine only if on no other."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.rst"):  # of modules that are no longer listed
        if old.stem not in (*MODULES, "index"):
            old.unlink()
    seen = set()
    for name, title in sorted(MODULES.items(), key=lambda module: module[0] == "megengine"):
        module = importlib.import_module(name)
        heading = f"{title}: ``{name}``"
        lines = [heading, "=" * len(heading), "", f".. currentmodule:: {name}", "", *as_markup((module.__doc__ or "").splitlines()), ""]
        described = {}
        for each in public_names(module):
            found = getattr(module, each)
            if id(found) in seen or isinstance(found, types.ModuleType) or not callable(found):
                continue
            seen.add(id(found))
            described[each] = found
        lines += _summary(name, described)
        for each, found in described.items():
            if inspect.isclass(found):
                lines += [f".. autoclass:: {name}.{each}", "   :members:", ""]
            else:
                lines += [f".. autofunction:: {name}.{each}", ""]
        _write(folder / f"{name}.rst", "\n".join(lines))
    pages = "".join(f"   {name}\n" for name in MODULES)
    _write(folder / "index.rst", f"Reference\n=========\n\nFrom the docstrings of the package.\n\n.. toctree::\n   :maxdepth: 1\n\n{pages}")


def _write(page, text):
    """Writes a page that differs, so that a second build reads only what has changed."""
    if not page.exists() or page.read_text("utf-8") != text:
        page.write_text(text, encoding="utf-8")


def _summary(module, described):
    """Tables of a page's classes and functions, with the first sentence of each."""
    lines = []
    for words, wanted in (("Classes", True), ("Functions", False)):
        names = [each for each, found in described.items() if inspect.isclass(found) is wanted]
        if names:
            lines += [f".. rubric:: {words}", "", ".. list-table::", "   :class: summary", ""]
        for each in names:
            first = (inspect.getdoc(described[each]) or "").partition("\n\n")[0].replace("\n", " ")
            lines += [f"   * - :py:obj:`{each} <{module}.{each}>`", f"     - {_escaped(first)}"]
        lines += [""]
    return lines


def _escaped(text):
    """Plain text with `names` and ``code``, which may go on in the next line, as reStructuredText."""
    pieces = re.split(r"(``.+?``|`[^`\s](?:[^`]*[^`\s])?`)", text, flags=re.DOTALL)
    for i in range(0, len(pieces), 2):
        pieces[i] = re.sub(r"([*|\\`]|_(?=\W|$))", r"\\\1", pieces[i])
    for i in range(1, len(pieces), 2):  # what stands right beside a literal
        if pieces[i + 1][:1] not in " \n.,;:)!?-'\"]}/" and pieces[i + 1]:
            pieces[i] += "\\ "
        if pieces[i - 1] and pieces[i - 1][-1] not in " \n(-'\"[{/<":
            pieces[i] = "\\ " + pieces[i]
    return "".join(pieces)


def _paragraphs(lines):
    """Lists of lines; an example is a paragraph of its own."""
    made, inside = [[]], False
    for line in lines:
        begins = line.lstrip().startswith(">>>")
        if not line.strip() or (begins and not inside):
            made.append([])
        inside = begins or (inside and bool(line.strip()))
        if line.strip():
            made[-1].append(line.rstrip())
    return [paragraph for paragraph in made if paragraph]


def _text(lines):
    made = []
    for paragraph in _paragraphs(lines):
        indent = min(len(line) - len(line.lstrip()) for line in paragraph)
        paragraph = [line[indent:] for line in paragraph]
        if paragraph[0].startswith(">>>"):
            made += [".. code-block:: pycon", "", *("   " + line for line in paragraph)]
        elif paragraph[0].startswith(("* ", "- ")):
            made += [line[:2] + _escaped(line[2:]) if line[:2] in ("* ", "- ") else "  " + _escaped(line.lstrip()) for line in paragraph]
        elif any(line.startswith(" ") for line in paragraph):
            made += ["::", "", *("   " + line for line in paragraph)]
        else:
            made += _escaped("\n".join(paragraph)).split("\n")
        made.append("")
    return made


def _items(lines):
    """A definition list of what numpydoc writes as ``name : type`` over an indented text."""
    made, i = [], 0
    while i < len(lines):
        names, colon, kind = lines[i].partition(" : ")
        end = next((k for k in range(i + 1, len(lines)) if lines[k][:1].strip()), len(lines))
        if lines[i].strip():
            made += [f"**{_escaped(names)}**{colon}{_escaped(kind)}", *("   " + line if line else "" for line in _text(lines[i + 1 : end]))]
        i = end
    return made


def _neighbours(lines):
    """A list of links, of what numpydoc writes as ``name : text``. A name with dots begins below megengine, another one stands in the same module."""
    made = []
    for line in filter(str.strip, lines):
        name, _, text = line.strip().partition(" : ")
        target = f"megengine.{name.removeprefix('megengine.')}" if "." in name else name
        made.append(f"* :py:obj:`{name} <{target}>`: {_escaped(text)}")
    return [*made, ""]


def as_markup(lines):
    """reStructuredText for a docstring in numpydoc's form."""
    begins = [i for i in range(len(lines) - 1) if lines[i].strip() and lines[i + 1] == "-" * len(lines[i])]
    made = _text(lines[: begins[0]] if begins else lines)
    for i, end in zip(begins, [*begins[1:], len(lines)]):
        write = _neighbours if lines[i] == "See Also" else _items if lines[i] in ITEMIZED else _text
        made += [f".. rubric:: {lines[i]}", "", *write(lines[i + 2 : end])]
    return made


def process(app, what, name, obj, options, lines):
    """For autodoc-process-docstring."""
    lines[:] = as_markup(lines)
