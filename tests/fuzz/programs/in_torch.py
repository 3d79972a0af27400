"""The grammar's rows as torch's programs have them: names by a table, a few texts of their own; what is neither cannot be written in torch."""

from __future__ import annotations

import logging
import re
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import torch
import torch.nn.functional

from .grammar import PLAIN_OUTSIDE, Row
from .languages import Language
from .rows_values import rows

_HEAD = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.checkpoint import checkpoint
"""
_CALL = """
def call(f, *args):
    try:
        with torch.no_grad():
            return f(*args)
    except Exception as error:
        restore()
        return error
"""
_RESTORE = """
@torch.no_grad()
def restore():
    globals().update(start_names)
    for tensor, value in start_values:
        tensor.copy_(value)
        tensor.grad = None
"""

torch._logging.set_logs(all=logging.CRITICAL)  # what it says of errors that the judge sees
torch._dynamo.guards.profile_guard_manager = lambda *_: 0.0  # it empties the processor's caches to time the guards of each graph, for logs alone

# What is written in other words, before names are looked up. {...} are holes.
_PHRASES = (
    (r"\.astype\('(\{?\w+\}?)'\)", r".to(torch.\1)"),
    (r"\baxis=", "dim="),
    (r"\bkeepdims=", "keepdim="),
    (r"\bmge\.tensor\(", "torch.tensor("),
    (r"\bF\.mean\((.*?)\)\.to\(torch\.float32\)\.reshape\(\(\)\)", r"F.mean(\1).to(torch.float32).reshape(()).detach()"),  # in a state no history stays
    (r"F\.matmul\(({rows}\.reshape\(1, 1, -1, 4\)), \1, transpose_b=True\)", r"(\1 @ \1.transpose(-1, -2))"),
    (r"F\.expand_dims\(({rows}[^)]*\)[^)]*|{any}), (\d)\)", r"(\1).unsqueeze(\2)"),
    (r"F\.(max|min)\(({\w+}), dim=", r"F.a\1(\2, dim="),
    (r"F\.roll\(({\w+}), 1, dim=0\)", r"F.roll(\1, 1, dims=0)"),
    (r"F\.loss\.square_loss", "F.mse_loss"),
    (r"F\.loss\.(cross_entropy|l1_loss)", r"F.\1"),
    (r"jit\.recompute\((.*)\)\(({\w+})\)", r"checkpoint(\1, \2, use_reentrant=False)"),
    (r"jit\.keep\((.*)\)$", r"\1"),
    (r"(F\.(?:maximum|minimum)\({\w+}, )([\d.]+)\)", r"\1torch.tensor(\2))"),
    (r"\bM\.", "nn."),
)
_NAMES = {
    "concat": "torch.cat", "hswish": "F.hardswish", "logsoftmax": "torch.log_softmax", "non_zero": "torch.nonzero", "repeat": "torch.repeat_interleave",
    "transpose": "torch.permute", "max_pool2d": "F.max_pool2d", "embedding": "F.embedding", "dropout": "F.dropout",
}  # fmt: skip
# Rows whose torch reads differently; "" where torch has no such statement.
_TEXTS = {
    "{any}[..., ::-1]": "{any}.flip(-1)",
    "{any}[::-1]": "{any}.flip(0)",
    "F.repeat({any}, 2, axis=0)": "{any}.repeat_interleave(2, 0)",
    "F.pad({float}, ((1, 0),) * {float}.ndim)": "F.pad({float}, (1, 0) * {float}.ndim)",
    "F.concat(F.split({rows}, 2, axis=-1)[::-1], axis=-1)": "torch.cat({rows}.split(2, -1)[::-1], -1)",
    "F.transpose({any}, tuple(range({any}.ndim))[::-1])": "{any}.permute(tuple(range({any}.ndim))[::-1])",
    "F.layer_norm({single}, ({single}.shape[-1],), False)": "F.layer_norm({single}, ({single}.shape[-1],))",
    "F.layer_norm({rows}, (4,), True, p1, p1 * 0.5)": "F.layer_norm({rows}, (4,), p1, p1 * 0.5)",
    "F.matmul({rows}, p0, transpose_b=True) * {single}": "{rows} @ p0.T * {single}",
    "F.gelu(F.matmul({rows}, F.where(p0 > 0, p0, p0 * 0.1), transpose_b=True))": "F.gelu({rows} @ torch.where(p0 > 0, p0, p0 * 0.1).T)",
    "F.matmul({matrix}, F.transpose({matrix}, (*range({matrix}.ndim - 2), {matrix}.ndim - 1, {matrix}.ndim - 2)))": "{matrix} @ {matrix}.transpose(-1, -2)",
    "F.gather({single}, 0, {single}.astype('int32') * 0)": "torch.gather({single}, 0, {single}.clamp(-9, 9).long() * 0)",
    "F.scatter({single} * 1, 0, {single}.astype('int32') * 0, {single} * 2)": "",  # writes one place several times
    "F.one_hot(idx, 7)": "F.one_hot(idx.long(), 7)",
    "F.one_hot(F.abs({whole}) % 5, 5)": "F.one_hot({whole}.long() % 5, 5)",
    "F.loss.cross_entropy({rows}.reshape(-1, 4), F.argmax({rows}.reshape(-1, 4), axis=1))": "F.cross_entropy({rows}.reshape(-1, 4), {rows}.reshape(-1, 4).argmax(1))",
    "F.cond_take({any} > 0, {any})[0]": "torch.masked_select({any}, {any} > 0)",
    "F.any({any} > 0).astype('int32')": "torch.any({any} > 0).to(torch.int32)",
    "{any}.astype('{whole_dtype}')": "",  # of a float that is out of range torch says nothing
    "({any} > {any2}).astype('float32')": "({any} > {any2}).float()",
    "{v} = {any} * 1\n{v}[1:] = {v}[:-1]": "{v} = {any} * 1\n{v}[1:] = {v}[:-1].clone()",
    "q0[1:] = q0[:-1]": "q0[1:] = q0[:-1].clone()",
    "q0[:, 1] = p0[:, 2]": "q0[:, 1] = p0[:, 2].detach()",
    "low[...] = low * 0.5 + {float}.reshape(-1)[0]": "low[...] = low * 0.5 + {float}.reshape(-1)[0].detach()",
    "{v} = {single} * mge.tensor({any}.shape)[0]": "{v} = {single} * torch.tensor({any}.shape)[0]",
    "{v} = {rows} * mge.Tensor(F.eye(4))[0]": "{v} = {rows} * torch.eye(4)[0]",
    "{v} = {single} * mge.Tensor({any}.shape[0])": "{v} = {single} * torch.tensor({any}.shape[0])",
    "{v} = {rows} + mge.tensor(F.arange(0, 4))": "{v} = {rows} + torch.arange(0, 4)",
    "{v} = {single} * mge.tensor(F.ones(1) * 0.5)": "{v} = {single} * (torch.ones(1) * 0.5)",
    "F.clip({any}, -100, 100).astype('{whole_dtype}')": "{any}.clamp(0, 100).to(torch.{whole_dtype})",
    "F.argsort({float}.reshape(1, -1))[0]": "torch.argsort({float}.reshape(1, -1), stable=True)",
    "F.topk({float}.reshape(1, -1), 1)[0]": "torch.topk({float}.reshape(1, -1), 1)[0].detach()",  # among equals it takes any, which gets the gradient
    "F.cond(F.sum({float}) > 0.37, lambda: {float} * 2, lambda: {float} + {float})": "torch.cond({float}.sum() > 0.37, lambda q: q * 2, lambda q: q + q, ({float},))",
    "F.cond(F.sum({single}) > 1, lambda q: F.relu(q) + p0[0, 0], lambda q: q * p0[0, 1], {single})": (
        "torch.cond({single}.sum() > 1, lambda q: torch.relu(q) + p0[0, 0], lambda q: q * p0[0, 1], ({single},))"
    ),
    "F.while_loop(lambda s: F.abs(s).sum() > 1, lambda s: s * 0.5, F.clip({single}, -9, 9))": "",  # which eager mode of torch compiles
    "F.while_loop(lambda s: s.sum() < 30, lambda s: F.abs(s) + 1, {single}, max_trips=3)": "",
    "F.minimum({whole}, {small})": "{whole}.clamp(max={small})",
    "{whole} // {whole2}": "{whole} // torch.where({whole2} == 0, 1, {whole2})",  # eager mode raises for 0
    "{whole} % (F.abs({whole2}) + 1)": "{whole} % (torch.where({whole2} == 255, 1, torch.abs({whole2})) + 1)",  # of bytes the sum is 0, too
    "F.mean({whole})": "{whole}.double().mean()",
    "F.var({whole})": "{whole}.double().var()",
    "{v} = {single} + [[0.5]]": "",
    "{v} = {single} * np.array([1.0, 2.0, 3.0, 4.0], 'float32')[:1]": "{v} = {single} * torch.from_numpy(np.array([1.0, 2.0, 3.0, 4.0], 'float32')[:1])",
    "if isinstance(r, tuple) and isinstance(r[0], mge.Tensor):\n    r[0][...] = 1": "if isinstance(r, tuple) and isinstance(r[0], torch.Tensor):\n    r[0][...] = 1",
    "if isinstance(r, list):\n    r[0] *= 2": "if isinstance(r, list) and r[0].dtype != torch.bool:\n    r[0] *= 2",
    "{v} = {any}.reshape(F.concat([mge.tensor([1]), mge.tensor({any}.shape)]))": "",  # whose shapes are numbers
    "a['x'] = np.array(a['x'])": "",
    "q0._reset(p0)\np0[...] = p0 * 2": "",
}


def _written(text: str) -> str:
    """In torch's words; "" where one of them is none of torch's."""
    if text in _TEXTS:
        return _TEXTS[text]
    for pattern, words in _PHRASES:
        text = re.sub(pattern, words, text)

    def named(found: re.Match[str]) -> str:
        name = found[1]
        if name in _NAMES:
            return _NAMES[name]
        if hasattr(torch, name):
            return f"torch.{name}"
        return f"F.{name}" if hasattr(torch.nn.functional, name) else "mge."

    text = re.sub(r"\bF\.(\w+)", named, text)
    return "" if re.search(r"\b(mge|jit|amp|gm|scaler|qint8|quint8)\b|\.astype|transpose_b", text) else text

# What torch's programs have beside it: views, writes in place, sizes that are numbers, layers that have no counterpart here, operations that are left to torch.
OWN = rows(
    "torch.cat([p1.expand({deep}.shape[0], 1, 4), {deep}], 1).tanh()",
    "{deep} + F.embedding(torch.arange({deep}.shape[1]) * 3 % 4, p0)",
    "{deep} * {deep}.shape[1] / ({deep}.numel() - {deep}.shape[0] + 1)",
    "{deep}[:, : {deep}.shape[1] // 2 * 2].unflatten(1, (-1, 2)).permute(0, 1, 3, 2).flatten(2)[..., ::2].contiguous()",
    "F.pad({deep}[:, 1:] * {deep}[:, :-1], (0, 0, 1, 0))",
    "{deep} + {deep}.reshape(-1, 4)[: {deep}.shape[0]].unsqueeze(1).sin()",
    "{deep}.masked_fill(torch.arange({deep}.shape[1])[None, :, None] >= {deep}.shape[1] - 1, 0.5)",
    "{deep} - {deep}.topk(min(2, {deep}.shape[1]), 1)[0].mean(1, keepdim=True)",
    "{deep}.cumsum(1) / {deep}.shape[1]",
    "{deep} / ({deep}.var((0, 1), keepdim=True) + 1).sqrt()",
    "{deep}.repeat_interleave(2, 1)[:, 1::2]",
    "F.group_norm({deep}.transpose(1, 2), 2, p1, p1 * 0.5).transpose(1, 2)",
    "F.instance_norm({deep}.transpose(1, 2))",
    "F.batch_norm({deep}.transpose(1, 2), None, None, p1, training=True)",
    "F.scaled_dot_product_attention(*({deep} @ torch.cat([p0, p0.T, p0 * 2], 1)).unflatten(-1, (3, 2, 2)).permute(2, 0, 3, 1, 4))",
    "F.scaled_dot_product_attention({deep}, {deep}, {deep}, is_causal=True)",
    "torch.einsum('bti,bsi->bts', {deep}, {deep})",
    "torch.bmm({deep}, {deep}.transpose(1, 2))",
    "checkpoint(lambda t: torch.tanh(t @ p0) * t, {rows}, use_reentrant=False)",
    "checkpoint(lambda t: torch.tanh(t @ p0) * t, {rows}, use_reentrant=True)",
    "torch.special.erfcx({single}) + {single}.cummax(0).values",
    "torch.cat({rows}.chunk(2, -1)[::-1], -1)",
    "torch.einsum('...i,ij->...j', {rows}, p0)",
    "torch.cdist({rows}.reshape(-1, 4), p0)",
    "{any}[torch.arange({any}.shape[0] - 1, -1, -1)]",
    "{any}.expand(2, *{any}.shape)",
    "{any}.unsqueeze(0).squeeze()",
    "{any}.sum((0, -1))",
    "{any}.unbind(0)[-1]",
    "{any}.new_zeros(3, 4)",
    "torch.full_like({any}, 2)",
    "{matrix}.transpose(-1, -2).contiguous().view(-1)",
    "{single}.detach() * {single}",
    "{single}.double().cumsum(0).float()",
    "torch.where({single}.isnan(), {single2}, {single})",
    "torch.addcmul({single}, {single2}, {single2}, value=0.5)",
    "torch.hypot({single}, {single2}.abs() + 1)",
    "{float}.clamp(min=-1).clamp_max(2)",
    "F.one_hot(idx.long(), 8).to({single}.dtype) * 2",
    "{whole}.long() * 3000000000",
    "torch.div({float}, 3, rounding_mode='trunc')",
    "torch.div({whole}, 3, rounding_mode='floor')",
    "torch.remainder({float}, {number})",
    "torch.bucketize({single}, torch.tensor([-1.0, 0.0, 1.0]))",
    "torch.outer({single}.flatten()[:4], {single2}.flatten()[:4])",
) + rows(
    "{v} = {single} * 1\n{v}.add_({single2}).mul_(2)",
    "{v} = {any}.clone()\n{v}[0].fill_(2)",
    "{v} = {single} * 1\n{v}.view(-1)[::2] = 3",
    "{v} = {rows} * 1\n{v}.T[0] = 1",
    "{v} = {single} * 1\n{v}.clamp_(-1, 1)",
    "{v} = {any} * 1\nother = {v}[..., :1]\nother += 1",
    "{v} = {rows}.new_zeros(5, 4)\n{v}.index_add_(0, idx.long() % 5, {rows}.reshape(-1, 4)[:1].expand(3, 4))",
    "{v} = {single} * 1\n{v}.masked_fill_({v} > 0, 0.25)",
    "with torch.no_grad():\n    {v} = {single} * 2 + p1.sum()",
    "torch._dynamo.graph_break()\n{v} = {single} * 2",
    "{v} = torch.empty(3, 4)\n{v}.copy_({single}.flatten()[:1])",
    is_expression=False,
) + rows(
    "p2.add_(1)",
    "q0.mul_(0.5).add_(0.1)",
    "q0.T[0] = 1",
    "q0[0].copy_(q0[1])",
    "q0.view(-1)[::3] += 1",
    "count.add_(1)",
    "low.copy_(q0[0])",
    is_expression=False,
)  # fmt: skip


@cache
def row(given: Any) -> Any:
    if not isinstance(given, Row) or given in OWN:
        return given
    text = _written(given.text)
    return replace(given, text=text, may=(*given.may, *(["sizes"] if "torch.cond" in text else []))) if text else None


@cache
def caller(given: Row) -> Row | None:
    found: Row | None = row(given)
    return found and replace(found, text="with torch.no_grad():\n" + "\n".join("    " + line for line in found.text.split("\n")))


def state(made: str) -> str:
    made = re.sub(r"^mge\.Parameter\((.*)\)$", r"nn.Parameter(torch.tensor(\1))", made)
    made = re.sub(r"^mge\.tensor\(", "torch.tensor(", made)
    made = re.sub(r"\bM\.", "nn.", made)
    return "" if re.search(r"\b(GradManager|amp)\b", made) else made


def kind(value: Any) -> tuple[str, tuple[int, ...]] | None:
    return (str(value.dtype).removeprefix("torch."), tuple(value.shape)) if isinstance(value, torch.Tensor) else None


def array(value: Any) -> np.ndarray:
    """A copy. None, a gradient that there is not, is an array without elements."""
    if not isinstance(value, torch.Tensor):
        return np.zeros((0,), bool) if value is None else np.array(value)
    value = value.detach()
    if value.dtype == torch.bfloat16:
        return np.array(value.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.array(value.numpy())


def given(values: dict[str, np.ndarray], trains: bool) -> dict[str, Any]:
    made = {name: torch.tensor(value) for name, value in values.items()}
    return {name: t.requires_grad_() if trains and name in ("x", "y", "half") else t for name, t in made.items()}


def mode(trains: bool) -> AbstractContextManager[Any]:
    return torch.set_grad_enabled(trains)


def scale(tensor: Any, factors: np.ndarray) -> None:
    if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
        tensor.data.mul_(torch.tensor(factors))


TRAININGS = (
    PLAIN_OUTSIDE,
    replace(PLAIN_OUTSIDE, then=("with torch.no_grad():", "    for p in params:", "        if p.grad is not None:", "            p -= 0.1 * p.grad")),
    replace(PLAIN_OUTSIDE, then=("nn.utils.clip_grad_norm_(params, 0.5)", "opt.step()")),
    replace(PLAIN_OUTSIDE, backward="loss.backward()"),  # gradients add up
    replace(PLAIN_OUTSIDE, opens="with torch.autocast('cpu', torch.bfloat16):"),
)
TORCH = Language(
    head=_HEAD, call=_CALL, restore=_RESTORE, forget="    opt.state.clear()\n", copy="t.detach().clone()", seed="torch.manual_seed({})", tensor="torch.tensor(value)",
    kind=kind, array=array, given=given, mode=mode, scale=scale, row=row, caller=caller, state=state, trainings=TRAININGS, own=OWN,
)  # fmt: skip
