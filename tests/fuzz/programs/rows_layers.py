"""Rows of products, convolutions, norms, attention, control flow, random numbers and modules; and the states that they read."""

from .grammar import Row
from .rows_values import rows

# In this order, for a later one may be made of those before it. LAYERS and OPTIMIZER are drawn; PARAMS are all parameters that the program has.
STATES = {
    "p0": "mge.Parameter(numbers(70, 4, 4) * 0.5)",
    "p1": "mge.Parameter(numbers(71, 4))",
    "kernel": "mge.Parameter(numbers(72, 3, 1, 2, 2))",
    "p2": "mge.tensor(np.arange(5, dtype='int32'))",
    "p3": "mge.tensor(np.array([True, False, True]))",
    "low": "mge.tensor(numbers(73, 4).astype('float16'))",
    "tiny": "mge.tensor(np.array([127, -128, 0, 5], 'int8'))",
    "q0": "mge.tensor(numbers(74, 4, 4))",
    "count": "mge.tensor(np.int32(0))",
    "net": "M.Sequential(LAYERS)",
    # A bias before BatchNorm2d has a gradient that is rounding alone, of which Adam makes a whole step.
    "images": "M.Sequential(M.Conv2d(1, 3, 3, padding=1, bias=False), M.BatchNorm2d(3), M.ReLU(), M.Conv2d(3, 3, 1), M.AvgPool2d(2, 1))",
    "cell": "M.RNNCell(4, 4)",
    "lstm": "M.LSTM(4, 4)",
    "params": "PARAMS",
    "gm": "GradManager().attach(params)",
    "opt": "OPTIMIZER",
    "scaler": "amp.GradScaler(init_scale=8.0, growth_interval=2)",
    "scale": "2.0",
    "noted": "[]",
    "stops": "[False]",
}
LAYERS = rows(
    Row("M.Dropout(0.3)", unfit=("dump", "batch", "onnx", "torch")),
    Row("M.BatchNorm1d(4)", unfit=("dump", "batch", "onnx")),
    "M.Linear(4, 4)",
    "M.LayerNorm(4)",
    "M.ReLU()",
    "M.GELU()",
    "M.Sigmoid()",
    "M.Linear(4, 4, bias=False)",
    "M.PReLU()",
)
WITH_BIAS = ("M.BatchNorm1d(4)", "M.Linear(4, 4)", "M.LayerNorm(4)")
OPTIMIZERS = rows(
    "optim.SGD(params, lr=0.05)",
    "optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=1e-2)",
    "optim.SGD(params, lr=0.05, momentum=0.9, nesterov=True)",
    "optim.Adam(params, lr=0.01)",
    "optim.AdamW(params, lr=0.01, weight_decay=0.1)",
)

PRODUCTS = rows(
    ("F.matmul({rows}, p0)", "{rows} @ p0"),
    ("F.matmul({rows}, p0) + p1", "{rows} @ p0 + p1"),
    ("F.linear({rows}, p0, p1)", "{rows} @ p0.T + p1"),
    ("F.matmul({rows}, p0, transpose_b=True) * {single}", ""),
    ("F.relu(F.matmul({rows}.astype('float16'), p0.astype('float16')))", ""),
    ("F.gelu(F.matmul({rows}, F.where(p0 > 0, p0, p0 * 0.1), transpose_b=True))", ""),
    ("F.matmul({matrix}, F.transpose({matrix}, (*range({matrix}.ndim - 2), {matrix}.ndim - 1, {matrix}.ndim - 2)))", ""),
    ("{single}.reshape(-1) @ {single}.reshape(-1)", ""),
    ("F.conv2d({rows}.reshape(-1, 1, 2, 2), kernel, padding=1)", ""),
    ("F.conv2d({rows}.reshape(-1, 1, 2, 2), kernel)", ""),
    ("F.max_pool2d({rows}.reshape(-1, 1, 2, 2), 2)", ""),
    ("F.avg_pool2d({rows}.reshape(-1, 1, 2, 2), 2, 1)", ""),
    ("F.layer_norm({single}, ({single}.shape[-1],), False)", ""),
    ("F.layer_norm({rows}, (4,), True, p1, p1 * 0.5)", ""),
    ("F.loss.square_loss({single}, {single} * 0.5)", ""),
    ("F.loss.cross_entropy({rows}.reshape(-1, 4), F.argmax({rows}.reshape(-1, 4), axis=1))", ""),
    ("F.loss.l1_loss({single}, {single} * 0)", ""),
    # Six steps of three rows; labels and lengths are tensors.
    Row(
        "F.loss.ctc_loss(F.softmax(F.broadcast_to({rows}.reshape(-1, 1, 4)[:1], (6, 3, 4)), axis=-1), idx * 0 + 6, (idx % 3 + 1).reshape(3, 1), idx % 2 * 0 + 1)",
        weight=0.5,
        unfit=("onnx",),
    ),
)

_SCORES = "F.matmul({rows}.reshape(1, 1, -1, 4), {rows}.reshape(1, 1, -1, 4), transpose_b=True) * 0.5"
_HIDE = "F.expand_dims({rows}.reshape(-1, 4)[:, 0] > 0.3, 0)"  # some keys
_WHOLE_ROWS = "F.expand_dims({rows}.reshape(-1, 4)[:, 1] > 0.3, 1)"  # some queries
_VALUES = "{rows}.reshape(1, 1, -1, 4)"
ATTENTION = rows(
    f"F.matmul(F.softmax({_SCORES}, axis=-1), {_VALUES})",
    f"F.matmul(F.softmax({_SCORES} + F.where({_HIDE}, float('-inf'), 0.0), axis=-1), {_VALUES})",
    f"F.matmul(F.softmax(F.where({_HIDE}, {{hidden}}, {_SCORES}), axis=-1), {_VALUES})",
    f"F.matmul(F.softmax(F.where({_WHOLE_ROWS}, {{hidden}}, {_SCORES}), axis=-1), {_VALUES})",
    f"F.matmul(F.softmax({_SCORES} + F.where({_WHOLE_ROWS}, {{hidden}}, 0.0), axis=-1), {_VALUES})",
    f"F.matmul(F.softmax({_SCORES} * 1e6, axis=-1), {_VALUES})",
    f"F.scaled_dot_product_attention({_VALUES}, {_VALUES}, {_VALUES}, is_causal=True)",
    Row(f"F.matmul(F.dropout(F.softmax({_SCORES}, axis=-1), 0.3), {_VALUES})", unfit=("dump", "batch", "onnx", "torch")),
)

FLOW = rows(
    "F.cond(F.sum({float}) > 0.37, lambda: {float} * 2, lambda: {float} + {float})",
    "F.cond(F.sum({single}) > 1, lambda q: F.relu(q) + p0[0, 0], lambda q: q * p0[0, 1], {single})",
    "F.cond(F.sum({single}) > 0.37, lambda: F.sum({single}) * p1, lambda: p0[0] * 2)",
    Row("F.cond(F.sum({whole}) > 0, lambda q: q + 1152921504606846983, lambda q: q * 9007199254740993, {whole}.astype('int64'))", unfit=("torch",)),
    "F.scan(lambda c, row: (c + 1152921504606846983, F.maximum(c, row)), {whole}[0].astype('int64'), {whole})[1]",
    "F.scan(lambda c, row: (c * 0.5 + row, F.tanh(c)), {float}[0] * 0, {float})[1]",
    "F.scan(lambda c, row: (F.maximum(c, row), c - row), {any}[0], {any}, reverse=True)[0]",
    "F.scan(lambda c, row: (c + F.sum(row * p0[0, 0]), c), F.zeros(()), {single})[1]",
    "F.scan(lambda c, row: ((c[0] + row, c[1] + 1), None), ({any}[0] * 0, 0), {any})[0][0]",
    "F.scan(lambda c, row: (cell(row, c), c), F.zeros((1, 4)), {rows}.reshape(-1, 1, 4))[1]",
    "F.scan(lambda c, row: (cell(row, c), cell(row, c)), F.zeros((1, 4)), {rows}.reshape(-1, 1, 4))[1]",
    Row("F.while_loop(lambda s: F.abs(s).sum() > 1, lambda s: s * 0.5, F.clip({single}, -9, 9))", trains=False),
    Row("F.cond(F.sum({single}) > 0.37, lambda q: q, lambda q: q.reshape({coded}.shape), {coded}).astype('float32')", unfit=("onnx",)),
    Row("F.scan(lambda c, row: ((c.astype('float32') * 0.5).astype(c.dtype), c), {coded}, {single})[0].astype('float32')", unfit=("onnx",)),
    Row("F.while_loop(lambda v: v[0] < 2, lambda v: (v[0] + 1, (v[1].astype('float32') * 0.5).astype(v[1].dtype)), (0, {coded}))[1]", unfit=("onnx",)),
    "F.while_loop(lambda s: s.sum() < 30, lambda s: F.abs(s) + 1, {single}, max_trips=3)",
    rounds=True,
)

RANDOM = rows(
    "F.dropout({single}, 0.3)",
    "{single} + 0 * F.dropout({single}, 0.5)",
    "F.where(F.dropout({single}, 0.5) > 0, {single}, {single} * 0.1)",
    "{single} + mge.random.normal(size=(4,))",
    "{single} * mge.random.uniform(size=(1,))",
    unfit=("dump", "batch", "onnx", "torch"),  # a file has a generator of its own
)

MODULES = rows(
    "net({rows}.reshape(-1, 4))",
    "net({rows}.reshape(-1, 4)) + p1",
    Row("images({rows}.reshape(-1, 1, 2, 2))", unfit=("dump", "batch", "onnx")),
    Row("lstm({rows}.reshape(-1, 1, 4))[0]", weight=0.4),
    "cell({rows}.reshape(-1, 4), {rows}.reshape(-1, 4) * 0)",
    "jit.recompute(lambda t: F.sin(t) * t)({single})",
    "jit.keep(F.tanh({single}))",
)
