"""Modules that older programs import, and programs that reach into the original; nothing of the
engine knows this folder.

`TABLE` says what each of their paths is now: a module, or a name in one. `megengine.core._older_names` asks for them, by a finder and
behind the names that modules have; a folder of theirs that has no module here is made of the table's rows.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

from ..core._older_names import ask_for_names

_PACKAGE = __name__.partition(".")[0]


def _each(old: str, new: str, names: str) -> dict[str, str]:
    """Returns rows of the table for names that are the same here."""
    return {f"{old}.{name}": f"{new}:{name}" for name in names.split()}


_COLLECTIVE = "all_gather all_reduce_max all_reduce_min all_reduce_sum all_to_all broadcast collective_comm gather reduce_scatter_sum reduce_sum remote_recv remote_send scatter"
_LAYERS = "batch_matmul_activation concat conv conv_bn conv_transpose_bn elemwise linear linear_bn module quant_dequant"
_EXTERN = "extern_opr_subgraph tensorrt_runtime_opr cambricon_runtime_opr atlas_runtime_opr magicmind_runtime_opr"
_PAIRS = "_single _pair _triple _quadruple _single_nonzero _pair_nonzero _triple_nonzero _quadruple_nonzero get_ndtuple"

TABLE = {
    "_full_sync": "_core:synchronize",
    "cgtools": "_compat.comp_graph_tools",
    **_each("core._imperative_rt", "device", "CompNode DeviceType"),
    **_each("core._imperative_rt", "_compat.interpreter", "make_h2d"),
    "core._imperative_rt.Tensor": "_core:Tensor",
    "core._imperative_rt.VarNode": "_compat.network_node:VarNode",
    "core._imperative_rt.apply": "core.op_objects:apply",
    "core._imperative_rt.common": "device",
    **_each("core._imperative_rt.core2", "_compat.interpreter", "config_async_level pop_scope push_scope"),
    **_each("core._imperative_rt.core2", "core", "Tensor get_option set_option"),
    **_each("core._imperative_rt.core2", "_compat.complex_numbers", "create_complex get_imag get_real"),
    **_each("core._imperative_rt.core2", "_compat.operands", "dtype_promotion get_device"),
    "core._imperative_rt.core2.apply": "core.op_objects:apply",
    **{f"core._imperative_rt.core2.{name}": "_core:synchronize" for name in ("close", "full_sync")},
    "core._imperative_rt.ops": "_compat.builtin",
    **_each("core._imperative_rt.utils", "_compat.interpreter", "Logger _set_defrag"),
    **_each("core._trace_option", "core.tensor.shapes", "set_symbolic_shape use_symbolic_shape"),
    "core.autodiff.grad": "_compat.grad",
    "core.ops.builtin": "_compat.builtin",
    "core.tensor.array_method._elwise": "core.tensor.elemwise_modes:elwise",
    "core.tensor.megbrain_graph": "_compat.megbrain_graph",
    "core.tensor.utils": "_compat.operands",
    "distributed.helper.TensorFuture": "_compat.future:TensorFuture",
    "distributed.util.get_free_ports": "distributed.helper:get_free_ports",
    "experimental.get_scaled_model": "_compat.weight_scaler:get_scaled_model",
    "experimental.weight_scaler": "_compat.weight_scaler",
    **_each("functional.distributed", "distributed.functional", _COLLECTIVE),
    "functional.elemwise.Elemwise": "_compat.builtin:Elemwise",
    "functional.elemwise._elwise": "core.tensor.elemwise_modes:elwise",
    **_each("functional.external", "_compat.external", _EXTERN),
    "functional.inplace.InplaceAdd": "_compat.builtin:InplaceAdd",
    "functional.inplace._inplace_add_": "_compat.functions:_inplace_add_",
    "functional.inplace.apply": "core.op_objects:apply",
    **_each("functional.tensor_cache", "_compat.functions", "get_scalar_zero get_scalar_zero_point_five get_scalar_one get_scalar_two"),
    "functional.utils._assert_equal": "_compat.functions:_assert_equal",
    "functional.utils.topk_accuracy": "functional.metric:topk_accuracy",
    **_each("jit", "_compat.partial_trace", "partial_trace xla_trace"),
    "jit.tracing.set_symbolic_shape": "core.tensor.shapes:set_symbolic_shape",
    "module.external": "_compat.external",
    **{f"module.{name}": "module.elemwise" for name in ("concat", "identity")},
    **{f"module.{package}.{name}": f"module.{package}" for package in ("qat", "quantized") for name in _LAYERS.split()},
    "module.module._access_structure": "_compat.structure:_access_structure",
    "module.quantized.weight_only": "module.weight_only",
    "quantization.internal_fake_quant.Function": "autodiff:Function",
    **_each("quantization.internal_fake_quant", "quantization", "MinMaxObserver QConfig QParams"),
    "quantization.quantize._get_quantable_module_names": "_compat.structure:_get_quantable_module_names",
    "utils.comp_graph_tools": "_compat.comp_graph_tools",
    **_each("utils.deprecation", "_compat.deprecation", "deprecated_func deprecated_kwargs_default"),
    "utils.future.Future": "_compat.future:Future",
    "utils.module_utils": "module._reach",
    "utils.naming.AutoNaming": "_compat.naming:AutoNaming",
    "utils.network": "_compat.network",
    "utils.network_node": "_compat.network_node",
    "utils.persistent_cache": "_compat.persistent_cache",
    "utils.tensor_sanity_check.TensorSanityCheck": "_compat.tensor_sanity_check:TensorSanityCheck",
    **_each("utils.tuple_function", "_compat.tuple_function", _PAIRS),
}  # fmt: skip


def _below(path: str) -> Iterator[str]:
    """Returns the entries of the table in the folder of that path."""
    return (row[len(path) + 1 :] for row in TABLE if row.startswith(f"{path}."))


def _is_module(path: str) -> bool:
    return ":" not in TABLE.get(path, ":") or any(_below(path))


def paths() -> set[str]:
    """The paths of all modules: those of the table, and the folders of its rows."""
    parts = [row.split(".") for row in TABLE]
    return {path for row in parts for n in range(1, len(row) + 1) if _is_module(path := ".".join(row[:n]))}


def _inside(name: str) -> str:
    return name.removeprefix(f"{_PACKAGE}.")


def knows(name: str) -> bool:
    """Whether that full name is in the table, or a folder of its rows."""
    path = _inside(name)
    return path in TABLE or _is_module(path)


def find(name: str) -> Any:
    """The object with that full name."""
    return importlib.import_module(name) if _is_module(_inside(name)) else _object(TABLE[_inside(name)])


def _object(new: str) -> Any:
    module, _, name = new.partition(":")
    found = importlib.import_module(f"{_PACKAGE}.{module}")
    return getattr(found, name) if name else found


def find_spec(name: str) -> ModuleSpec | None:
    """Returns the spec by which the finder makes a module of the table."""
    path = _inside(name)
    if not _is_module(path):
        return None
    loader: Any = _Loader(path)
    if path not in TABLE:
        return ModuleSpec(name, loader, is_package=True)
    new = importlib.util.find_spec(f"{_PACKAGE}.{TABLE[path]}")
    return ModuleSpec(name, loader, origin=new.origin if new else None)


class _Loader:
    """The loader of one path: gives the module that the table names, or makes a module of the rows below it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        if self._path not in TABLE:
            return None
        found: ModuleType = _object(TABLE[self._path])
        self._spec = found.__spec__
        return found

    def get_code(self, name: str) -> CodeType | None:
        """Returns the code that ``python -m`` runs."""
        new: Any = importlib.util.find_spec(f"{_PACKAGE}.{TABLE[self._path]}")
        return new.loader.get_code(new.name)

    def exec_module(self, module: ModuleType) -> None:
        if self._spec is not None:
            module.__spec__ = self._spec  # the import has changed it
            return
        rows = [row for row in _below(self._path) if "." not in row and not _is_module(f"{self._path}.{row}")]
        vars(module).update({row: _object(TABLE[f"{self._path}.{row}"]) for row in rows})
        ask_for_names(module)
