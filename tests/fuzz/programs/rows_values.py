"""Rows that make a value of values: arithmetic, casts, shapes, indices, reductions.

A row with a reference is judged in eager mode too: the NumPy expression is given the operands' values, floats as float64, and integers as they are.
"""

from dataclasses import fields, replace
from typing import Any

from .grammar import Row


def rows(*texts: str | tuple[str, str] | Row, **settings: Any) -> list[Row]:
    """A text, a text and its reference, or a row; settings are those that a row does not have itself."""
    made = []
    for given in texts:
        text, reference = (given, "") if isinstance(given, str) else given if isinstance(given, tuple) else ("", "")
        row = given if isinstance(given, Row) else Row(text, reference=reference)
        own = {f.name for f in fields(Row) if getattr(row, f.name) != f.default}
        made.append(replace(row, **{name: value for name, value in settings.items() if name not in own}))
    return made


FLOAT = rows(
    ("F.relu({float})", "np.maximum({float}, 0)"),
    ("F.exp(-F.abs({float}))", "np.exp(-np.abs({float}))"),
    ("F.tanh({float})", "np.tanh({float})"),
    ("F.sigmoid({float})", "np.where({float} > 0, 1 / (1 + np.exp(-np.abs({float}))), np.exp(-np.abs({float})) / (1 + np.exp(-np.abs({float}))))"),
    ("F.abs({float})", "np.abs({float})"),
    ("-{float}", "-{float}"),
    ("{float} ** 2", "{float} ** 2"),
    ("F.square({float})", "{float} ** 2"),
    ("F.floor({float})", "np.floor({float})"),
    ("F.ceil({float})", "np.ceil({float})"),
    ("F.sign({float})", "np.sign({float})"),
    ("F.round({float} * 2)", ""),
    ("F.clip({float}, -1.0, 2.0)", "np.clip({float}, -1.0, 2.0)"),
    ("{float} * {number}", ""),
    ("{number} - {float}", ""),
    ("{float} / 3.0", ""),
    ("{float} + {number}", ""),
    "{float} // 2",
    ("{float} % 3", "np.fmod({float}, 3)"),
    ("F.maximum({float}, 0.25)", "np.maximum({float}, 0.25)"),
    ("F.sqrt(F.abs({float}))", "np.sqrt(np.abs({float}))"),
    ("F.log1p(F.abs({float}))", "np.log1p(np.abs({float}))"),
    ("F.gelu({single})", ""),
    ("F.silu({float})", "{float} / (1 + np.exp(-{float}))"),
    ("F.softplus({float})", "np.logaddexp(0, {float})"),
    ("F.logsigmoid({float})", "-np.logaddexp(0, -{float})"),
    ("F.leaky_relu({float})", "np.where({float} > 0, {float}, 0.01 * {float})"),
    ("F.hswish({float})", "{float} * np.clip({float} + 3, 0, 6) / 6"),
    ("F.relu6({float})", "np.clip({float}, 0, 6)"),
    ("F.sin({single})", "np.sin({single})"),
    ("F.erf({single})", ""),
    ("F.atan({float})", "np.arctan({float})"),
    ("F.expm1(-F.abs({single}))", "np.expm1(-np.abs({single}))"),
    ("1.5 / (1 + {float} * {float})", ""),
    ("{float} + 0", "{float}"),
    ("{float} * 1", "{float}"),
    ("0.5 * {single} * (1 + F.tanh(0.7978845608 * ({single} + 0.044715 * {single} ** 3)))", ""),
)

WHOLE = rows(
    ("{whole} + {small}", "{whole} + {small}"),
    ("{whole} * {small}", "{whole} * {small}"),
    ("{whole} - 1", "{whole} - 1"),
    ("-{whole}", "-{whole}"),
    ("{whole} // 3", "{whole} // 3"),
    ("{whole} // -2", ""),
    ("{whole} % 5", "{whole} % 5"),
    ("{whole} << 2", "{whole} << 2"),
    ("{whole} >> 1", "{whole} >> 1"),
    ("{whole} & 6", "{whole} & 6"),
    ("{whole} | 1", "{whole} | 1"),
    ("{whole} ^ 5", "{whole} ^ 5"),
    ("F.bitwise_not({whole})", "~{whole}"),
    ("F.abs({whole})", "np.abs({whole})"),
    ("{whole} ** 2", ""),
    ("{whole} / 2", ""),
    ("{whole} + 0.5", ""),
    ("{whole} * {float}", ""),
    ("F.maximum({whole}, 2)", "np.maximum({whole}, 2)"),
    ("F.minimum({whole}, {small})", ""),
    ("F.clip({whole}, -3, 9)", ""),
    ("F.sign({whole})", "np.sign({whole}.astype('float64'))"),
    ("{whole} & {whole2}", ""),
    ("{whole} | {whole2}", ""),
    ("{whole} // {whole2}", ""),
    ("{whole} % (F.abs({whole2}) + 1)", ""),
    ("F.where({whole} > 0, {whole}, {whole2})", ""),
    ("F.relu({whole})", "np.maximum({whole}, 0)"),
    ("{flag} & {flag2}", "{flag} & {flag2}"),
    ("{flag} | ~{flag2}", "{flag} | ~{flag2}"),
    ("F.logical_xor({flag}, {flag2})", "{flag} ^ {flag2}"),
)

PAIRS = rows(
    ("{any} + {any2}", ""),
    ("{any} - {any2}", ""),
    ("{any} * {any2}", ""),
    ("{float} + {float2}", "{float} + {float2}"),
    ("{float} * {float2}", "{float} * {float2}"),
    ("F.maximum({any}, {any2})", ""),
    ("F.maximum({float}, {float2})", "np.maximum({float}, {float2})"),
    ("F.minimum({any}, {any2})", ""),
    ("F.where({any} > {any2}, {any}, {any2})", ""),
    ("F.where({flag}, {any}, {any2})", ""),
    ("F.where({float} <= 0, {float2}, {float})", "np.where({float} <= 0, {float2}, {float})"),
    ("({any} > {any2}).astype('float32')", ""),
    ("({any} == {any2}).astype('int32') + 1", ""),
    ("{any} / (1 + F.abs({any2}))", ""),
    Row(
        "F.atan2({float}, {float2})",
        reference="np.arctan2({float}, {float2})",
        has_smooth_gradient=True,
    ),
    ("F.logaddexp({single}, {single2})", "np.logaddexp({single}, {single2})"),
    ("F.lerp({single}, {single2}, 0.3)", ""),
    ("{any} == {any2}", ""),
    ("{any} < {any2}", ""),
)

CASTS = rows(
    "{any}.astype('{float_dtype}')",
    "{any}.astype('float64')",
    Row("{any}.astype('{whole_dtype}')", unfit=("onnx",)),  # of a float that is out of range ONNX says nothing
    "F.clip({any}, -100, 100).astype('{whole_dtype}')",
    "({any} > 0)",
    "{float}.astype('float16').astype('float32')",
    "{single}.astype(qint8(0.05))",
    "F.abs({single}).astype(quint8(0.04, 3))",
    "{coded}.astype('float32')",
    "{coded}.reshape(-1)",
    "{coded}[..., ::-1]",
    "F.concat([{coded}, {coded}], axis=0)",
    Row("{coded} + {coded}", unfit=("onnx",)),  # ONNX rounds halves to even
    "F.relu({coded})",
)

# {any} of some axes. Leading extents are the batch's where nothing has moved them.
SHAPES = rows(
    ("{any}.reshape(-1)", "{any}.reshape(-1)"),
    ("{any}.reshape({any}.shape[0], -1)", ""),
    ("{any}.reshape(2, -1)", ""),
    ("{rows}.reshape(2, -1, 2)", ""),
    ("{any}[..., ::-1]", "{any}[..., ::-1]"),
    ("{any}[..., :2]", "{any}[..., :2]"),
    ("{any}[..., -1]", "{any}[..., -1]"),
    ("{any}[0]", "{any}[0]"),
    ("{any}[0:1]", "{any}[0:1]"),
    ("{any}[-1:]", "{any}[-1:]"),
    ("{any}[:2]", "{any}[:2]"),
    ("{any}[1:]", "{any}[1:]"),
    ("{any}[:0]", "{any}[:0]"),
    ("{any}[::-1]", "{any}[::-1]"),
    ("{any}[..., None]", "{any}[..., None]"),
    ("{any}[[0, -1, 0]]", "{any}[[0, -1, 0]]"),
    ("F.concat([{any}, {any}], axis=0)", "np.concatenate([{any}, {any}], axis=0)"),
    ("F.concat([{any}, {any2}], axis=0)", ""),
    "F.concat([{any}, F.zeros_like({any})], axis=0)",
    ("F.concat([{any}, {any} * 2], axis=-1)", ""),
    ("F.stack([{any}, {any} * 2], axis=0)", ""),
    ("F.stack([{any}, {any}], axis=1)", "np.stack([{any}, {any}], axis=1)"),
    ("F.expand_dims({any}, 0)", "{any}[None]"),
    ("F.transpose({any}, tuple(range({any}.ndim))[::-1])", "{any}.T"),
    ("F.broadcast_to({any}, (2, *{any}.shape))", "np.broadcast_to({any}, (2, *{any}.shape))"),
    ("F.broadcast_to({rows}[:1], {rows}.shape)", "np.broadcast_to({rows}[:1], {rows}.shape)"),
    ("F.repeat({any}, 2, axis=-1)", "np.repeat({any}, 2, axis=-1)"),
    ("F.repeat({any}, 2, axis=0)", "np.repeat({any}, 2, axis=0)"),
    ("F.tile({any}, (2,) * {any}.ndim)", "np.tile({any}, (2,) * {any}.ndim)"),
    ("F.flatten({any})", "{any}.reshape(-1)"),
    ("F.squeeze(F.expand_dims({any}, 0), 0)", "{any}"),
    ("F.roll({any}, 1, axis=0)", "np.roll({any}, 1, axis=0)"),
    ("F.pad({float}, ((1, 0),) * {float}.ndim)", "np.pad({float}, ((1, 0),) * {float}.ndim)"),
    ("F.concat(F.split({rows}, 2, axis=-1)[::-1], axis=-1)", ""),
    ("{any}[..., 1::2]", "{any}[..., 1::2]"),
    ("F.swapaxes({any}, 0, {any}.ndim - 1)", "np.swapaxes({any}, 0, {any}.ndim - 1)"),
    ("{any}[: {any}.shape[0] // 2]", "{any}[: {any}.shape[0] // 2]"),
    ("{single}.astype('float32') / {single}.shape[0]", "{single} / {single}.shape[0]"),
    ("F.sum({single}, axis=0) / len({single})", ""),
    ("{single} * F.arange({single}.shape[-1])", "{single} * np.arange({single}.shape[-1])"),
    ("{single} + F.ones({single}.shape)", "{single} + 1"),
    ("F.tril({matrix})", "np.tril({matrix})"),
)

REDUCTIONS = rows(
    ("F.sum({any})", ""),
    ("F.sum({whole})", "{whole}.sum(dtype={whole}.dtype)"),
    ("F.mean({any})", ""),
    Row("F.mean({whole})", reference="{whole}.astype('float64').mean()"),
    ("F.max({any})", ""),
    ("F.min({any})", ""),
    ("F.sum({any}, axis=0)", ""),
    "F.sum({float}, axis=-1, keepdims=True)",
    ("F.mean({float}, axis=-1)", "{float}.mean(axis=-1)"),
    ("F.max({array}, axis=0, keepdims=True)", "{array}.max(axis=0, keepdims=True)"),
    ("F.min({array}, axis=-1)", "{array}.min(axis=-1)"),
    ("F.cumsum({any}, axis=-1)", ""),
    Row("F.prod({any}, axis=0)", unfit=("onnx",)),  # onnxruntime does not wrap
    ("F.prod(F.tanh({float}), axis=-1)", ""),
    ("F.argmax({array}, axis=-1)", "np.argmax({array}, axis=-1)"),
    ("F.argmin({array}, axis=0)", "np.argmin({array}, axis=0)"),
    Row("F.softmax({float}, axis=-1)", has_smooth_gradient=True),
    ("F.softmax({float}, axis=0)", ""),
    Row("F.logsoftmax({single}, axis=-1)", has_smooth_gradient=True),
    Row("F.logsumexp({single}, axis=-1, keepdims=True)", has_smooth_gradient=True),
    ("F.var({float}, axis=-1)", "{float}.var(axis=-1)"),
    Row("F.var({whole})", reference="{whole}.astype('float64').var()"),
    Row("F.std({single} + 1.0)", has_smooth_gradient=True),
    Row("F.norm({single}.reshape(-1))", reference="np.sqrt(({single} ** 2).sum())", has_smooth_gradient=True),
    Row("F.norm({single}, axis=-1) ** 2", has_smooth_gradient=True),
    Row("F.norm({float}.reshape(-1))", reference="np.sqrt(({float} ** 2).sum())"),
    Row("F.normalize({single}, axis=-1)", has_smooth_gradient=True),
    ("F.sort({any}.reshape(1, -1))[0]", "np.sort({any}.reshape(1, -1))"),
    ("F.argsort({float}.reshape(1, -1))[0]", ""),
    ("F.topk({float}.reshape(1, -1), 1)[0]", ""),
    ("F.any({any} > 0).astype('int32')", ""),
    ("F.all({flag}, axis=0)", ""),
    ("F.one_hot(idx, 7)", ""),
    ("F.one_hot(F.abs({whole}) % 5, 5)", ""),
)

INDEXED = rows(
    "{any}[idx]",
    "{any}[idx - {any}.shape[0]]",
    "{any}[idx % {any}.shape[0]]",
    "{any}[{any}.shape[0] - 1 - idx % {any}.shape[0]]",
    "{any}[idx % {any}.shape[0], ..., 0]",
    "F.gather({single}, 0, {single}.astype('int32') * 0)",
    "F.embedding(idx % 4, p0)",
    "{any}[F.argmax({any}.reshape(-1)) % {any}.shape[0]]",
    "F.where(mask, {rows}, 0.0)",
    "F.scatter({single} * 1, 0, {single}.astype('int32') * 0, {single} * 2)",
) + rows(
    "{array}[{array} > 1]",
    Row("{array}[{array} > 1].sum()", unfit=("dump",)),
    "{scalar}[{scalar} > 1]",
    "F.non_zero({any} > 0)",
    "F.cond_take({any} > 0, {any})[0]",
    Row("F.unique({any}.reshape(-1))", weight=0.5),
    may=("selects",),
)
