"""Writes the stubs of the extension: _core.pyi, by nanobind, and core/ops/__init__.pyi, from the op registry.

In: the installed megengine. With a folder as argument, writes there instead of python/megengine.
"""

import inspect
import re
import sys
import textwrap
from pathlib import Path

from nanobind.stubgen import StubGen

from megengine import _core

TARGET = Path(__file__).resolve().parents[1] / "python/megengine"
HEADER = "# Made by tools/make_stubs.py (`make stubs`) from the installed extension; not to be edited.\n"
IMPORTS = """from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

import numpy

from megengine.core import ops as ops
from megengine.tensor import Tensor as _Tensor  # what every result is

_Variable = TypeVar("_Variable", bound=Tensor)
"""
KINDS = {"int": "int", "float": "float", "ints": "int | Sequence[int]", "str": "str"}
# Ops with more than one result; the registry learns their number only from infer().
SEVERAL = {
    "attention", "attention_grad", "attention_grad_of_parts", "attention_of_parts", "lstm", "lstm_grad", "gru", "gru_grad",
    "batch_norm", "batch_norm_grad", "batch_norm_grad_sums", "batch_norm_stats", "layer_norm", "layer_norm_grad", "mask_select", "sort", "svd", "topk", "eigh", "qr", "slogdet", "lu",
    "all_gather", "all_reduce_max", "all_reduce_min", "all_reduce_prod", "all_reduce_sum", "all_to_all", "broadcast_from_root", "receive_from",
    "reduce_scatter_sum", "scatter_from_root",
}  # fmt: skip

# What instances have, by class; nanobind leaves out what Python's C functions make.
ERROR_MEMBERS = {"OutOfMemoryError": {"limit": "int | None", "needed": "int | None", "bound": "int | None", "proof": "str | None"}}

# nanobind knows neither what lists hold nor what a handle is; a row's dict has values of several types.
ROWS = "list[dict[str, Any]]"
EXACT = {
    "on_failure: Callable,": "on_failure: Callable[[str], str],",
    "_tuple_shape(self) -> tuple:": "_tuple_shape(self) -> tuple[int, ...]:",
    "_item(self) -> object:": "_item(self) -> Any:",
    "borrow(array: object | None, writable: bool = False) -> object:": "borrow(array: object | None, writable: bool = False) -> _Tensor:",
    "lend(tensor: Tensor) -> object:": "lend(tensor: Tensor) -> Any:",
    "give_away(tensor: Tensor) -> object:": "give_away(tensor: Tensor) -> Any:",
    "promote_dtype(arg0: object, arg1: object, /) -> object:": "promote_dtype(arg0: object, arg1: object, /) -> numpy.dtype:",
    "operands: list, index: int, attributes: dict)": "operands: list[Any], index: int, attributes: dict[str, Any])",
    "stop_call_log() -> list:": "stop_call_log() -> list[tuple[str, str, int, int, int, int, str]]:",
    "load_library_ops(path: str) -> list:": "load_library_ops(path: str) -> list[tuple[str, Callable[..., Any], dict[str, str]]]:",
    "op_table() -> list:": f"op_table() -> {ROWS}:",
    "groups: Sequence[str]) -> list:": "groups: Sequence[str]) -> list[_Tensor | None]:",
    "arguments: list, wants_values: bool": "arguments: list[Any], wants_values: bool",
    "open_group(arg: list, /)": "open_group(arg: list[Tape], /)",
    "backward: Callable) -> list:": "backward: Callable[[list[_Tensor | None]], Sequence[_Tensor | None]]) -> list[_Tensor]:",
    "key(self, device: object | None = None) -> object:": "key(self, device: str | None = None) -> _Tensor:",
    "params(self) -> list:": "params(self) -> list[str]:",
    "input_types(self) -> list:": "input_types(self) -> list[list[Any]]:",
    "nodes(self) -> list:": f"nodes(self) -> {ROWS}:",
    "value_types(self) -> list:": "value_types(self) -> list[list[Any]]:",
    "output_values(self) -> tuple:": "output_values(self) -> tuple[int, ...]:",
    "op_types(self) -> object:": "op_types(self) -> set[str]:",
    "dtypes(self) -> object:": "dtypes(self) -> set[str]:",
    "functions(self) -> list:": "functions(self) -> list[str]:",
    "add_kernels(self, kernels: list)": "add_kernels(self, kernels: list[tuple[bytes, bytes]])",
    "cache_entries(folder: str) -> list:": "cache_entries(folder: str) -> list[tuple[bytes, bytes]]:",
    "states(self) -> dict:": "states(self) -> dict[str, _Tensor]:",
    "of(functions: list, states: FileStates | None = None) -> ModelFile:": "of(functions: list[Model], states: FileStates | None = None) -> ModelFile:",
    "run(self, inputs: list) -> list:": "run(self, inputs: list[Any]) -> list[_Tensor]:",
    "offset: int = 0) -> tuple:": "offset: int = 0) -> tuple[ModelFile, int]:",
    "note_results(results: list, is_kept: bool)": "note_results(results: list[Any], is_kept: bool)",
    "other_result(results: list)": "other_result(results: list[Any])",
    "attrs(self, node: int) -> dict:": "attrs(self, node: int) -> dict[str, Any]:",
    "variable(self, value: int, type: type) -> object:": "variable(self, value: int, type: type[_Variable]) -> _Variable:",
    "constant_value(self, value: int) -> object:": "constant_value(self, value: int) -> _Tensor:",
    "(self, arguments: list)": "(self, arguments: list[Any])",
    "arguments: list, results: list, guards: int, were_there: Sequence[bool] = [], may_read: bool = False) -> object:": "arguments: list[Any], results: list[Any], guards: int, were_there: Sequence[bool] = [], may_read: bool = False) -> str | None:",
    "arguments: list, guards: int) -> object:": "arguments: list[Any], guards: int) -> list[Any] | None:",
    "plans(self) -> list:": f"plans(self) -> {ROWS}:", "plans_on(self, arch: int) -> list:": f"plans_on(self, arch: int) -> {ROWS}:",
    "kernels(self) -> list:": f"kernels(self) -> {ROWS}:",
    "html: bool = False) -> list:": "html: bool = False) -> list[str]:",
    "of_all_versions: bool = False) -> list:": f"of_all_versions: bool = False) -> {ROWS}:",
    "end_recompute(results: list)": "end_recompute(results: list[Any])",
    "__exit__(self, *args)": "__exit__(self, *args: object)",
    "cache_info() -> dict:": "cache_info() -> dict[str, Any]:",
    "nvidia_libraries() -> list:": "nvidia_libraries() -> list[tuple[str, int, str, str, str]]:",
    "__init__(self, **kwargs) -> None:": "__init__(self, **kwargs: Any) -> None:",
    "memory_stats(device: str = '') -> dict:": "memory_stats(device: str = '') -> dict[str, Any]:",
    "devices() -> dict:": "devices() -> dict[str, DeviceInfo]:",
    "dtr_stats() -> dict:": "dtr_stats() -> dict[str, Any]:",
    "backends() -> list:": "backends() -> list[str]:",
    "switches() -> dict:": "switches() -> dict[str, str]:",
}  # fmt: skip


def op_stub(row: dict) -> str:
    """One function: tensors by position, attributes by name."""
    parameters = []
    for parameter in inspect.signature(getattr(_core.ops, row["name"])).parameters.values():
        kind = KINDS[row["attrs"][parameter.name]] if parameter.name in row["attrs"] else "object"
        if parameter.name == "dtype":
            kind = "object"  # whatever numpy.dtype takes
        if parameter.name == "device" and parameter.name not in row["attrs"]:
            kind = "str | _core.Tensor | None"  # a place, or what lies there
        parameters.append(parameter.replace(annotation=_Verbatim(kind)))
    result = "tuple[_Tensor, ...]" if row["name"] in SEVERAL else "_Tensor"
    signature = inspect.Signature(parameters)
    doc = textwrap.indent(f'"""{row["doc"]}"""', " " * 4)
    return f"def {row['name']}{signature} -> {result}:\n{doc}\n"


class _Verbatim:
    """An annotation that prints as its text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def typed_operators(text: str) -> str:
    """CPython's slots have no types: every operator gives a plain Tensor, the in-place ones the operand."""
    text = text.replace("def __hash__(self, /):", "def __hash__(self, /) -> int:")
    text = re.sub(r"def (__\w+__)\(self, /\):", r"def \1(self, /) -> _Tensor:", text)
    operands = r"\(self, value(?:, mod=None)?, /\):"
    text = re.sub(rf"def (__i(?!nvert)\w+__){operands}", r"def \1(self, value: object, /) -> Self:", text)
    text = re.sub(rf"def (__\w+__){operands}", r"def \1(self, value: object, /) -> _Tensor:", text)
    return re.sub(r"(def __(?:eq|ne)__.*)", r"\1  # type: ignore[override]", text)


def exact_types(text: str) -> str:
    for found, wanted in EXACT.items():
        if found not in text:
            raise SystemExit(f"make_stubs: nanobind's stub has no {found!r} any more")
        text = text.replace(found, wanted)
    return text


def core_stub() -> str:
    generator = StubGen(_core, include_private=True, quiet=True)
    generator.put(_core)
    text = generator.get().replace("-> Tensor:", "-> _Tensor:").replace("list[Tensor]", "list[_Tensor]")
    classes = text[text.index("class Tensor:") :].strip()
    errors = ""  # for which nanobind names the module that exports them
    for error in (_core.OperandError, _core.OutOfMemoryError, _core.TraceError):
        members = "".join(f"    {name}: {kind}\n" for name, kind in ERROR_MEMBERS.get(error.__name__, {}).items())
        errors += f"class {error.__name__}({', '.join(base.__name__ for base in error.__bases__)}):{chr(10) + members if members else ' ...' + chr(10)}"
    for function in (_core.over_limit, _core.out_of_memory):  # nanobind lists them in front of the classes
        errors += function.__nb_signature__[0][0].replace("-> object", "-> OutOfMemoryError") + ": ...\n"
    return f"{HEADER}{IMPORTS}\n\n{errors}\n{exact_types(typed_operators(classes))}\n"


def ops_stub() -> str:
    imports = "from collections.abc import Sequence\n\nfrom megengine import _core\nfrom megengine.tensor import Tensor as _Tensor\n"
    ops = "\n".join(op_stub(row) for row in sorted(_core.op_table(), key=lambda row: row["name"]))
    return f'{HEADER}"""{_core.ops.__doc__}"""\n\n{imports}\n{ops}'


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    for name, text in {"_core.pyi": core_stub(), "core/ops/__init__.pyi": ops_stub()}.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text, encoding="utf-8")
