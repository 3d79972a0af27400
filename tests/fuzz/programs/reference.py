"""Eager mode against NumPy in float64, statement by statement: of each, the operands that eager mode gave, so that no error grows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import megengine as mge
from megengine.autodiff import GradManager

from .draw import Stage
from .grammar import FLOATS, Program, Statement

TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


def as_reference(value: Any) -> Any:
    """Floats in float64; integers in their own dtype, to wrap as they do."""
    if not isinstance(value, mge.Tensor):
        return value
    found = value.numpy()
    return found.astype(np.float64) if value.dtype.name in FLOATS else found


def judge_statements(program: Program) -> Iterator[tuple[str, str]]:
    """Each statement of the first function, with the arguments of each call."""
    for call in program.calls:
        stage = Stage(program.states)
        stage.scope.update({n: mge.tensor(v) for n, v in stage.scope["arguments"](call.rows, call.seed).items()})
        for statement in program.functions[0].statements:
            before = dict(stage.scope)
            try:
                exec("\n".join(statement.lines()), stage.scope)
            except Exception:
                break
            yield from judge_statement(statement, before, stage.scope.get(statement.name))


def judge_statement(statement: Statement, scope: dict[str, Any], value: Any) -> Iterator[tuple[str, str]]:
    row = statement.row
    operands = {n: scope[n] for hole, n in statement.fills if n in scope and not hole.endswith("_dtype")}
    if not isinstance(value, mge.Tensor):
        return
    if row.reference:
        yield from judge_value(statement, {n: as_reference(v) for n, v in {**scope, **operands}.items() if n in statement.words()}, value, scope)
    if row.is_expression and row.has_smooth_gradient:
        yield from judge_gradient(statement, scope, value)


def judge_value(statement: Statement, operands: dict[str, Any], value: mge.Tensor, scope: dict[str, Any]) -> Iterator[tuple[str, str]]:
    text = statement.row.reference.format(**dict(statement.fills))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            want = np.asarray(eval(text, {"np": np, **operands}))
        except (ValueError, TypeError, IndexError, OverflowError):  # NumPy takes no such operands
            return
    have = value.numpy()
    if have.shape != want.shape:
        yield "reference shape", f"{statement.lines()[0]}: {have.shape}, NumPy gives {want.shape}"
    elif not close(have, want, value.dtype.name):
        yield "reference value", f"{statement.lines()[0]}: {have.ravel()[:8].tolist()}, NumPy gives {want.ravel()[:8].tolist()} of {told(operands)}"


def close(have: np.ndarray, want: np.ndarray, dtype: str) -> bool:
    if have.dtype.kind in "biu":
        return np.array_equal(have, want)
    bound = TOLERANCE.get(dtype, 1e-5)
    large = float(np.float32(3e38)) if dtype != "float16" else 65504.0
    with np.errstate(all="ignore"):
        x, y = have.astype(np.float64), want.astype(np.float64)
        y = np.where(np.abs(y) > large * (1 - bound), np.sign(y) * np.inf, y)
        x = np.where(np.abs(x) > large * (1 - bound), np.sign(x) * np.inf, x)
        return np.allclose(x, y, rtol=bound, atol=bound * max(1.0, float(np.abs(y[np.isfinite(y)]).max(initial=0))), equal_nan=True)


def judge_gradient(statement: Statement, scope: dict[str, Any], value: mge.Tensor) -> Iterator[tuple[str, str]]:
    """Where operands and result are finite, so is the gradient."""
    names = [n for _, n in statement.fills if isinstance(scope.get(n), mge.Tensor) and scope[n].dtype.name == "float32"]
    if value.dtype.name != "float32" or not names or not np.isfinite(value.numpy()).all():
        return
    trial = {**scope, **{n: mge.Tensor(scope[n].numpy()) for n in names}}
    if not all(np.isfinite(trial[n].numpy()).all() for n in names):
        return
    gm = GradManager().attach([trial[n] for n in dict.fromkeys(names)])
    with warnings.catch_warnings(), gm:
        warnings.simplefilter("ignore")
        exec("\n".join(statement.lines()), trial)
        gm.backward(trial[statement.name].sum())
    for n in names:
        gradient = trial[n].grad
        if gradient is not None and not np.isfinite(gradient.numpy()).all():
            yield "gradient", f"{statement.lines()[0]}: the gradient of {n} is {gradient.numpy().ravel()[:8].tolist()} at {told({n: scope[n].numpy()})}"


def told(operands: dict[str, Any]) -> str:
    return ", ".join(f"{n} = {np.asarray(v).ravel()[:8].tolist()}" for n, v in operands.items() if isinstance(v, np.ndarray))
