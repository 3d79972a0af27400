"""The node tests of ONNX: small models with inputs and outputs, made by ``onnx.backend.test``."""

import importlib
import warnings

import numpy as np
import onnx
from onnx.backend.test.case import node as cases

import megengine as mge
from megengine.fx.experimental.optimization import optimize_for_inference
from megengine.onnx import OnnxError, load

HELD_AS = {"uint64": "int64", "uint32": "int64", "float64": "float32"}  # dtypes of values here

# What is known to differ, and why.
KNOWN = {
    "test_bitshift_right_int32_negative_shift": "counts are taken modulo 32",
    "test_bitshift_left_int32_negative_shift": "counts are taken modulo 32",
    "test_scan_sum": "of opset 8, which has an axis for batches",
    **dict.fromkeys(
        (
            *("test_training_dropout", "test_training_dropout_mask", "test_training_dropout_default", "test_training_dropout_default_mask"),
            *(f"test_bernoulli{kind}{form}" for kind in ("", "_double", "_seed") for form in ("", "_expanded")),
        ),
        "other random numbers",
    ),
    **dict.fromkeys(
        (
            f"test_attention_{name}_bf16{form}"
            for name in ("3d_causal", "4d_attn_mask_causal", "4d_causal", "4d_causal_padded_kv", "4d_padded_kv")
            for form in ("", "_expanded")
        ),
        "rounded to bfloat16 in other places",
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


def _belongs(case, kinds):
    return any(node.op_type in kinds for node in case.model.graph.node)


def _array(value):
    return np.asarray(onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value)


def _has_our_types(case):
    """Are inputs and outputs tensors of dtypes that there are here?"""
    for given, wanted in case.data_sets:
        for value in [*given, *wanted]:
            if isinstance(value, (list, dict)) or value is None:
                return False
            name = _array(value).dtype.name
            if HELD_AS.get(name, name) not in ("float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint16", "uint8", "bool"):
                return False
    return True


def outcome(case):
    """("passed", ""), ("types", ""), ("refused", why) or ("failed", why)."""
    if not _has_our_types(case):
        return "types", ""
    try:
        module = load(case.model)
    except OnnxError as error:
        why = str(error)
        return ("types" if "there are no tensors of" in why else "refused"), why
    try:
        for given, wanted in case.data_sets:
            for run in (module, optimize_for_inference(module.eval())):
                results = run(*(_tensor(_array(value)) for value in given))
                results = results if isinstance(results, tuple) else (results,)
                for result, value in zip(results, wanted, strict=True):
                    _compare(result.numpy(), _array(value), case)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    return "passed", ""


def _tensor(array):
    dtype = HELD_AS.get(array.dtype.name, array.dtype.name)
    return mge.Tensor(array.astype(dtype) if dtype != array.dtype.name else array, dtype=dtype)


def _compare(found, expected, case):
    assert found.dtype.name == HELD_AS.get(expected.dtype.name, expected.dtype.name), (found.dtype, expected.dtype)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    relative = 2e-3 if expected.dtype.name == "float16" else case.rtol
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=relative, atol=max(case.atol, 1e-6))
