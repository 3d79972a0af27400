"""Rows of what a body does beside computing: writes by index, states, host data, reads on the host, exceptions; and what a caller does between calls."""

from typing import Any

from .grammar import Row, Training
from .rows_values import rows


def statements(*texts: str | Row, **settings: Any) -> list[Row]:
    return rows(*texts, is_expression=False, **settings)


_WRITTEN = "{v} = {any} * 1\n"
WRITES = statements(
    _WRITTEN + "{v}[idx] = 7",
    _WRITTEN + "{v}[idx] += 1",
    _WRITTEN + "{v}[..., 0] = {any2}.reshape(-1)[0]",
    _WRITTEN + "{v}[0] = {v}[0] * 2",
    "{v} = {array} * 1\n{v}[{v} > 1] = 0",
    _WRITTEN + "{v}[..., ::2] *= 3",
    _WRITTEN + "{v}[idx] = {v}[idx] + {v}[0]",
    _WRITTEN + "{v}[1:] = {v}[:-1]",
    _WRITTEN + "{v}[2:] = {any2}.reshape(-1)[0]",
    _WRITTEN + "{v}[idx, 0] = 5",
    _WRITTEN + "{v}[-1] = 1",
    _WRITTEN + "{v}[:0] = 1",
    _WRITTEN + "{v} += {any2}",
    _WRITTEN + "{v}[F.argmax({v}.reshape(-1)) % {v}.shape[0]] = 1",
    _WRITTEN + "{v}[...] = {any2}",
    "{v} = {any}\n{v} = {v} * 2",
    "{v} = {scalar} * 1\n{v}[{v} > 1] = 0",
)

_MEAN = "F.mean({float}).astype('float32').reshape(())"
_BLIND = {"trains": False, "unfit": ("batch", "onnx")}  # of states under a tape, and of files that are constants
STATE = statements(
    f"p1[0] = {_MEAN}",
    f"p1 += {_MEAN} * 0.1",
    "p0[idx % 4] = p0[0] * 0.5",
    "p0 -= 0.01 * p0",
    "p1[...] = p1 * 0.9 + 0.1",
    "p0[0] = p0[1] * 0.5",
    f"p0 -= 0.1 * (p0 * F.tanh({_MEAN}))",
    **_BLIND,
) + statements(
    "p2[idx % 5] += 1",
    "p2[...] = (p2 + 1) % 11",
    f"p3[idx % 3] = {_MEAN} > 0.37",  # the mean of normalized numbers is 0 but for rounding
    "p2 += cnt",
    "count += 1",
    "low[...] = low * 0.5",
    "low[...] = low * 0.5 + {float}.reshape(-1)[0]",  # which may be of another dtype
    "tiny += 1",
    "q0[1:] = q0[:-1]",
    "q0 *= 0.9",
    f"q0[idx % 4] = F.tanh({_MEAN})",
    "q0[:, 1] = p0[:, 2]",
    "q0 += count",
    "{v} = q0\nq0 -= 0.5",
    "{v} = count * 1\ncount += 1",
    unfit=("batch", "onnx"),
)
SWAPS = statements(
    "{v} = q0 + 0\nq0[...] = p0\np0[...] = {v}",
    "{v} = q0 * 2\nq0[...] = p0",
    "{v} = q0 + 0\nq0[...] = {rows}.reshape(-1)[:4]",
    "p0[...] = q0\nq0[...] = q0 * 0.5",
    "q0[...] = p0\np1[...] = q0[0]",
    "q0._reset(p0)\np0[...] = p0 * 2",
    # A name is bound anew: the refused call of a limit has done it, too.
    Row("{v} = q0\nq0 = p0 + q0\np0[...] = {v} * 2", unfit=("batch", "onnx", "limit")),
    **_BLIND,
)

# What a body makes of host data, and puts into a state or returns.
RESETS = statements(
    "q0[...] = np.float32([1, 2, 3, 4])",
    "q0[...] = np.zeros(4, 'float32')\nq0 += 0.5\n{v} = q0 * 2",
    "q0[:] = [4.0, 3.0, 2.0, 1.0]\n{v} = q0 + {rows}",
    "q0._reset(mge.tensor(np.full((4, 4), 5, 'float32')))\n{v} = q0 * 2\nq0[...] = np.ones(4, 'float32')",
    "M.init.fill_(p1, 0.5)\n{v} = p1 * 3",
    "M.init.zeros_(p1)",
    "p2[...] = np.arange(5, dtype='int32')\np2 += 1",
    "count[...] = 3\ncount += 1",
    "{argument}[...] = 1",
    "{v} = mge.tensor(np.float32([1, 2, 3, 4]))",
    "{v} = F.ones((2, 4))",
    "{v} = mge.Parameter(np.float32([1, 2]))",
    trains=False,
    unfit=(*_BLIND["unfit"], "torch"),
)
# What a body reads of an argument besides its value.
FACTS = statements(
    "{v} = {single} * (2.0 if isinstance({argument}, mge.Parameter) else 3.0)",
    "{v} = {single} * (2.0 if {argument}.name == 'told' else 3.0)",
    "{v} = {single} * getattr({argument}, '_scale', 1.5)",
    "{v} = {single} * getattr({argument}, 'mask', 1.5)",
    "{v} = {single} * (2.0 if {argument}.grad is None else 3.0)",
    "if {argument}.grad is not None:\n    {argument} -= {argument}.grad",
    "{v} = {single} * (2.0 if any({argument} is each for each in (p0, q0, count)) else 3.0)",
    unfit=("dump", "batch", "onnx", "torch"),
    may=("numbers",),
)

HOST = statements(
    "{v} = {single} * np.array([1.0, 2.0, 3.0, 4.0], 'float32')[:1]",
    "{v} = {single} * np.float32(1.5)",
    "{v} = {single} + [[0.5]]",
    "{v} = {single} + mge.tensor([[0.5]])",
    "{v} = {any} * mge.tensor(np.int32(2))",
    "{v} = {single} * scale",
    "{v} = sum([{single}] * 3)",
    "host = np.arange(4, dtype='float32')\nhost[0] = 9\n{v} = {rows} + mge.tensor(host)",
    "{v} = {rows} + mge.tensor(F.arange(0, 4))",
    "{v} = {rows} * mge.Tensor(F.eye(4))[0]",
    "{v} = {rows} * F.linspace(0, 1, 4).detach()",
    "{v} = {single} * mge.tensor({any}.shape)[0]",
    "{v} = {single} * mge.Tensor({any}.shape[0])",
    "{v} = {any}.reshape(F.concat([mge.tensor([1]), mge.tensor({any}.shape)]))",
    "{v} = {single} * float((mge.tensor([1.0, 2.0]) * 2).sum())",
    "{v} = {single} * 2 if (F.arange(0, 3) + mge.tensor([1, 2, 3])).max() > 4 else {single}",
    "{v} = {single}.astype('float32') * {any}.shape[0]",  # in a trace a half would become float32, as in MegEngine
    "{v} = {single} + F.full({single}.shape, 2.0)",
    "{v} = {single} * mge.tensor(F.ones(1) * 0.5)",
)
READS = statements(
    "{v} = {single} * {argument}.sum().item()",
    "{v} = {single} * int(cnt)",
    "{v} = {single} * {any}.numpy().reshape(-1)[0]",
    "{v} = {single} * np.asarray(y)[0]",
    "{v} = {single} + y.tolist()[0]",
    "{v} = {any}[: int(cnt)] * 2",
    "{v} = {single} * 2\nif {single2}.sum() > 0.37:\n    {v} = {v} * 3",
    "{v} = {single}\nfor _ in range(int(cnt)):\n    {v} = {v} * 2",
    "try:\n    {v} = {single} * {single2}.sum().item()\nexcept ValueError:\n    {v} = {single} * 7",
    may=("reads",),
    unfit=("onnx",),
)
RAISES = statements(
    Row("if stops[0]:\n    raise ValueError('the program stops')", weight=2, unfit=("dump", "batch", "onnx")),
    "try:\n    {v} = F.matmul({any}, p0.reshape(2, 8))\nexcept Exception:\n    {v} = {any} * 2",
    "try:\n    raise KeyError('swallowed')\nexcept KeyError:\n    {v} = {any} * 3",
    Row("noted.append(len(noted))", unfit=("dump", "batch", "onnx")),
    Row("noted.append({any} * 2)", unfit=("dump", "batch", "onnx", "limit")),
)

# Between two calls. `a` are the arguments of the last call, `r` what it returned: results or an error.
CALLER = statements(
    Row("net.eval()", weight=2, may=("modes",)),
    Row("net.train()", may=("modes",)),
    Row("images.eval()", may=("modes",)),
    "a['x'][0] = 7.0",
    "a['x'] *= 2",
    Row("a['x'] = np.array(a['x'])", may=("arrays",), unfit=("dump", "batch", "onnx", "limit")),  # what is made of arrays alone is computed as the body runs
    "a['whole'][...] = 3",
    "p2[...] = p2 + 1",
    "p0[0] = 0.5",
    "p1 *= 0.5",
    "count += 5",
    "q0[...] = p0 * 2",
    "if isinstance(r, tuple) and isinstance(r[0], mge.Tensor):\n    r[0][...] = 1",
    "if isinstance(r, list):\n    r[0] *= 2",
    Row("stops[0] = not stops[0]", weight=3),
    Row("scale = scale + 1", may=("numbers",)),
    "opt.param_groups[0]['lr'] *= 0.5",
    "noted.clear()",
    Row("a['x'] = mge.Parameter(a['x'])", may=("numbers",), unfit=("torch",)),
    Row("a['x'] = mge.tensor(a['x'])\na['x'].name = 'told'", may=("numbers",), unfit=("torch",)),
    Row("a['x'] = mge.tensor(a['x'])\na['x']._scale = 2.5", may=("numbers",), unfit=("torch",)),
    Row("a['x'] = mge.tensor(a['x'])\na['x'].mask = mge.tensor(2.5)", may=("numbers",), unfit=("torch",)),
    Row("a['x'] = mge.tensor(a['x'])\na['x'].grad = a['x'] * 0.5", may=("numbers",), unfit=("torch",)),
    unfit=("dump", "batch", "onnx"),
)

TRAININGS = (
    Training(),
    Training(),
    Training(then=("for p in params:", "    if p.grad is not None:", "        p -= 0.1 * p.grad", "        p.grad = None")),
    Training(then=("optim.clip_grad_norm(params, 0.5)", "opt.step().clear_grad()")),
    Training(opens="opt.clear_grad()\nwith gm:", then=("opt.step()",)),
    Training(backward="scaler.backward(gm, loss)"),
    Training(opens="with gm, amp.autocast(low_prec_dtype='bfloat16'):"),
)
# Beside its own values a function returns arguments, and states as they are.
RETURNED = rows("x", "y", "p0", "q0", "p2")
CONTAINERS = rows(Row("{},", weight=3), "[{}]", "dict({})", Row("({},), 1.5", unfit=("dump", "batch", "onnx")))
