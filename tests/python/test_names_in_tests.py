"""Every public callable is named by a test: what no test names can break without a word.

A name counts where the code of a test leads to the object itself: `F.relu` with F imported from megengine does, `np.relu`, a string and a
comment do not.
"""

import ast
import functools
import importlib
import importlib.util
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Public modules that have no page in the reference.
BESIDE = """
    config logger functional.debug_param functional.external functional.inplace functional.quantized module.external module.qat
    module.quantized optimizer.clip_grad experimental.weight_scaler quantization.internal_fake_quant quantization.utils
    traced_module.fake_quant utils.bn_fusion utils.comp_graph_tools utils.deprecation utils.dlpack utils.fusion utils.future utils.hook
    utils.max_recursion_limit utils.mkldnn utils.naming _compat.network_filter utils.persistent_cache utils.profile_analyzer utils.profiler
    utils.tensor_sanity_check utils.tuple_function
""".split()


def reference():
    specification = importlib.util.spec_from_file_location("_docstrings", ROOT / "docs/_docstrings.py")
    docstrings = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(docstrings)
    return docstrings


def public():
    """(name with its module, callable) of everything published, each object once."""
    docstrings, seen = reference(), set()
    for name in [*docstrings.MODULES, *(f"megengine.{each}" for each in BESIDE)]:
        module = importlib.import_module(name)
        gathers = hasattr(module, "__all__") or hasattr(module, "__path__")
        for each in docstrings.public_names(module):
            found = getattr(module, each)
            is_ours = gathers or getattr(found, "__module__", "") == name
            if callable(found) and is_ours and id(found) not in seen:
                seen.add(id(found))
                yield f"{name}.{each}", found


class _Uses(ast.NodeVisitor):
    """The objects of the package that a file's names lead to."""

    def __init__(self):
        self.bound, self.found = {}, []

    def visit_Import(self, node):
        for each in node.names:
            if each.name.partition(".")[0] == "megengine":
                module = importlib.import_module(each.name)
                self.bound[each.asname or "megengine"] = module if each.asname else importlib.import_module("megengine")

    def visit_ImportFrom(self, node):
        if (node.module or "").partition(".")[0] != "megengine":
            return
        module = importlib.import_module(node.module)
        for each in node.names:
            if each.name == "*":
                self.bound.update(vars(module))
                continue
            if not hasattr(module, each.name) and importlib.util.find_spec(f"{node.module}.{each.name}"):
                importlib.import_module(f"{node.module}.{each.name}")
            self.bound[each.asname or each.name] = getattr(module, each.name, None)

    def visit_Assign(self, node):
        self.generic_visit(node)
        for target in node.targets:
            left = target.elts if isinstance(target, ast.Tuple) else [target]
            right = node.value.elts if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) else [node.value]
            for name, value in zip(left, right):
                if isinstance(name, ast.Name) and isinstance(found := self.resolve(value), types.ModuleType):
                    self.bound[name.id] = found

    def resolve(self, node):
        if isinstance(node, ast.Name):
            return self.bound.get(node.id)
        if isinstance(node, ast.Attribute) and isinstance(owner := self.resolve(node.value), (types.ModuleType, type)):
            return getattr(owner, node.attr, None)
        return None

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Load):
            self.found.append(self.resolve(node))

    def visit_Attribute(self, node):
        self.found.append(self.resolve(node))
        self.generic_visit(node)


def used_in(source):
    uses = _Uses()
    uses.visit(ast.parse(source))
    return [each for each in uses.found if callable(each)]


@functools.cache
def sources():
    return [path.read_text(encoding="utf-8") for path in (ROOT / "tests/python").rglob("*.py")]


def test_every_public_callable_is_named_by_a_test():
    used = {id(found) for source in sources() for found in used_in(source)}
    callables = list(public())
    assert len(callables) > 600
    assert not [name for name, found in callables if id(found) not in used]


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("import megengine.functional as F\nF.relu(1)", True),
        ("import megengine\nf = megengine.functional\nf.relu", True),
        ("from megengine.functional import relu as r\nr(1)", True),
        ("from megengine.functional import relu", False),
        ("import numpy as F\nF.relu(1)", False),
        ("import megengine.functional as F\n'F.relu'  # F.relu\ngetattr(F, 'relu')", False),
    ],
)
def test_only_code_that_leads_to_an_object_names_it(source, wanted):
    assert (importlib.import_module("megengine.functional").relu in used_in(source)) is wanted
