"""The node tests of ONNX: small models with inputs and outputs, made by ``onnx.backend.test``."""

import importlib
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx.backend.test.case import node as cases

import megengine as mge
from megengine.fx.experimental.optimization import optimize_for_inference
from megengine.jit import trace
from megengine.onnx import OnnxError, load

HELD_AS = {  # dtypes of values here
    "uint64": "int64", "uint32": "int64", "int4": "int8", "int2": "int8", "uint4": "uint8", "uint2": "uint8",
    "float8_e4m3fn": "float32", "float8_e4m3fnuz": "float32", "float8_e5m2": "float32", "float8_e5m2fnuz": "float32",
    "float8_e8m0fnu": "float32", "float4_e2m1fn": "float32",
}  # fmt: skip

# What is known to differ, and why.
KNOWN = {
    "test_scan_sum": "of opset 8, which has an axis for batches",
    **dict.fromkeys(
        (
            *("test_training_dropout", "test_training_dropout_mask", "test_training_dropout_default", "test_training_dropout_default_mask"),
            *(f"test_bernoulli{kind}{form}" for kind in ("", "_double", "_seed") for form in ("", "_expanded")),
        ),
        "other random numbers",
    ),
}


def of_modules(*names):
    """The tests in modules of onnx.backend.test.case.node; those of all ops without names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not names:
            return list(cases.collect_testcases())
        found = []
        for name in names:
            module = importlib.import_module(f"onnx.backend.test.case.node.{name}")
            kinds = {kind for kind in vars(module) if isinstance(getattr(module, kind), type)}
            found += [case for case in cases._NodeTestCases if _belongs(case, kinds)]
        return found


@dataclass
class Stored:
    """A model that lies in the package with its data."""

    name: str
    model: onnx.ModelProto
    data_sets: list
    rtol: float = 1e-3
    atol: float = 1e-5


def stored(pattern="*"):
    """The small models of the package: what older exporters made of layers and operators, sequences, and others."""
    for path in sorted((Path(onnx.__file__).parent / "backend/test/data").glob(f"*/{pattern}/model.onnx")):
        model = onnx.load(path)
        own = {tensor.name for tensor in model.graph.initializer}
        infos = [[info for info in model.graph.input if info.name not in own], model.graph.output]
        data = [
            [[_read(folder / f"{kind}_{place}.pb", info.type) for place, info in enumerate(part)] for kind, part in zip(("input", "output"), infos, strict=True)]
            for folder in sorted(path.parent.glob("test_data_set_*"))
        ]
        yield Stored(path.parent.name, model, data)


def _read(path, kind):
    data = path.read_bytes()
    return onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(data)) if kind.HasField("sequence_type") else onnx.TensorProto.FromString(data)


def _belongs(case, kinds):
    return any(node.op_type in kinds for node in case.model.graph.node)


def _array(value):
    return np.asarray(onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value)


def _tensors_in(values):
    for value in values:
        if isinstance(value, list):
            yield from _tensors_in(value)
        elif value is not None:
            yield value


def _has_our_types(case):
    """Are inputs and outputs tensors of dtypes that there are here?"""
    for given, wanted in case.data_sets:
        for value in _tensors_in([*given, *wanted]):
            name = _array(value).dtype.name
            if HELD_AS.get(name, name) not in ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint16", "uint8", "bool"):
                return False
    return True


def _eager(module):
    return module, optimize_for_inference(module.eval())


def _traced(module):
    return [trace(lambda *given: module(*given), **options) for options in ({}, {"symbolic": True}, {"symbolic": True, "opt_level": 3})]


def outcome(case, traced=False):
    """("passed", ""), ("types", ""), ("refused", why) or ("failed", why). traced: in traces, which may refuse to read values of placeholders."""
    if not _has_our_types(case):
        return "types", ""
    try:
        module = load(case.model)
    except OnnxError as error:
        why = str(error)
        return ("types" if "there are no tensors of" in why else "refused"), why
    try:
        for given, wanted in case.data_sets:
            for run in (_traced if traced else _eager)(module):
                try:
                    results = run(*map(_given, given))
                except ValueError as error:
                    if traced and "traced with symbolic=True" in str(error):
                        continue
                    raise
                results = results if isinstance(results, tuple) else (results,)
                _compare_all(results, wanted, case)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    return "passed", ""


def _tensor(array):
    dtype = HELD_AS.get(array.dtype.name, array.dtype.name)
    return mge.Tensor(array.astype(dtype) if dtype != array.dtype.name else array, dtype=dtype)


def _given(value):
    if isinstance(value, list):
        return [_given(one) for one in value]
    return None if value is None else _tensor(_array(value))


def _compare_all(results, wanted, case):
    for result, value in zip(results, wanted, strict=True):
        if isinstance(value, list):
            _compare_all(result, value, case)
        elif value is None:
            assert result is None
        else:
            _compare(result.numpy(), _array(value), case)


def _compare(found, expected, case):
    assert found.dtype.name == HELD_AS.get(expected.dtype.name, expected.dtype.name), (found.dtype, expected.dtype)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    relative = {"float16": 2e-3, "bfloat16": 2.0**-6}.get(expected.dtype.name, case.rtol)  # two units in the last place
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=relative, atol=max(case.atol, 1e-6))
