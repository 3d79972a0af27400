"""Writes python/megengine/_core.pyi: nanobind's stub of the extension, then `ops`, made from the op registry.

In: the installed megengine. With a path as argument, writes there instead.
"""

import inspect
import re
import sys
import textwrap
from pathlib import Path

from nanobind.stubgen import StubGen

from megengine import _core

TARGET = Path(__file__).resolve().parents[1] / "python/megengine/_core.pyi"
HEADER = "# Made by tools/make_stubs.py (`make stubs`) from the installed extension; not to be edited.\n"
KINDS = {"int": "int", "float": "float", "ints": "int | Sequence[int]", "str": "str"}
# Ops with more than one result; the registry learns their number only from infer().
SEVERAL = {
    "batch_norm", "batch_norm_grad", "batch_norm_grad_sums", "batch_norm_stats", "layer_norm", "layer_norm_grad", "mask_select", "sort", "svd", "topk"
}  # fmt: skip


def op_stub(row: dict) -> str:
    """One static method: tensors by position, attributes by name."""
    parameters = []
    for parameter in inspect.signature(getattr(_core.ops, row["name"])).parameters.values():
        kind = KINDS[row["attrs"][parameter.name]] if parameter.name in row["attrs"] else "object"
        if parameter.name == "dtype":
            kind = "object"  # whatever numpy.dtype takes
        parameters.append(parameter.replace(annotation=_Verbatim(kind)))
    result = "tuple[_Tensor, ...]" if row["name"] in SEVERAL else "_Tensor"
    signature = inspect.Signature(parameters)
    doc = textwrap.indent(f'"""{row["doc"]}"""', " " * 8)
    return f"    @staticmethod\n    def {row['name']}{signature} -> {result}:\n{doc}\n"


class _Verbatim:
    """An annotation that prints as its text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def typed_operators(text: str) -> str:
    """CPython's slots have no types: every operator of a Tensor gives a Tensor of the same class."""
    text = text.replace("def __hash__(self, /):", "def __hash__(self, /) -> int:")
    text = re.sub(r"def (__\w+__)\(self, /\):", r"def \1(self, /) -> Self:", text)
    text = re.sub(r"def (__\w+__)\(self, value(?:, mod=None)?, /\):", r"def \1(self, value: object, /) -> Self:", text)
    return re.sub(r"(def __(?:eq|ne)__.*)", r"\1  # type: ignore[override]", text)


def stub() -> str:
    generator = StubGen(_core, include_private=True, quiet=True)
    generator.put(_core)
    text = typed_operators(generator.get())
    # Type checkers take the class below for the submodule: nothing but its functions is ever used.
    own = "from megengine._core import ops as ops\n"
    if own not in text:
        raise SystemExit(f"make_stubs: nanobind's stub has no line {own!r} any more")
    text = text.replace(own, "").replace("-> Tensor:", "-> _Tensor:")
    text = text.replace("list[Tensor]", "list[_Tensor]")
    text = re.sub(r"from collections.abc import .*\n+", "", text)
    imports = "from collections.abc import Callable, Sequence\nfrom typing import Self\n"
    results = "from megengine.tensor import Tensor as _Tensor  # what every result is\n"
    text = text.replace("\n\nclass ", f"{results}\n\nclass ", 1)
    ops = "\n".join(op_stub(row) for row in sorted(_core.op_table(), key=lambda row: row["name"]))
    return f'{HEADER}{imports}\n{text.strip()}\n\nclass ops:\n    """{_core.ops.__doc__}"""\n\n{ops}'


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    target.write_text(stub(), encoding="utf-8")
