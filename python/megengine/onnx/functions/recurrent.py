"""RNN, GRU and LSTM: one op for each direction if ours computes the same, else one step after the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import functional as F
from ...core import ops
from ...functional._recurrent import recurrent_layer
from ...fx import wrap
from ...tensor import Tensor
from ._table import counterpart, ints
from .quantized import dequantize_linear, dynamic_quantize_linear

_ACTIVATIONS: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "Relu": lambda x, a, b: F.relu(x),
    "Tanh": lambda x, a, b: F.tanh(x),
    "Sigmoid": lambda x, a, b: F.sigmoid(x),
    "Affine": lambda x, a, b: x * a + b,
    "LeakyRelu": lambda x, a, b: F.nn.leaky_relu(x, a),
    "ThresholdedRelu": lambda x, a, b: F.where(x >= a, x, F.zeros_like(x)),
    "ScaledTanh": lambda x, a, b: F.tanh(x * b) * a,
    "HardSigmoid": lambda x, a, b: F.clip(x * a + b, 0, 1),
    "Elu": lambda x, a, b: ops.elu(x, alpha=a),
    "Softsign": lambda x, a, b: x / (1 + F.abs(x)),
    "Softplus": lambda x, a, b: F.nn.softplus(x),
}
_DEFAULTS = {"LeakyRelu": (0.01, 0.0), "ThresholdedRelu": (1.0, 0.0), "HardSigmoid": (0.2, 0.5), "Elu": (1.0, 0.0)}

# Op -> the usual functions of a direction, and the places of `recurrent_layer`'s gates in ONNX's order.
_USUAL = {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}
_ORDER = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}

Step = Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]
# arguments of `recurrent_layer`: mode, weights and biases
Whole = tuple[str, tuple[Any, Any, Any, Any]]


def _activations(names: Any, alphas: Any, betas: Any, clip: float | None) -> list[Callable[[Tensor], Tensor]]:
    """Returns the functions of these names; alpha and beta go to those that take them, in order."""
    found, alphas, betas = [], list(alphas or ()), list(betas or ())
    for name in names:
        key = next((known for known in _ACTIVATIONS if known.lower() == name.lower()), name)
        if key not in _ACTIVATIONS:
            raise ValueError(f"there is no activation {name}")
        alpha, beta = _DEFAULTS.get(key, (1.0, 1.0))
        has_alpha = key in _DEFAULTS or key in ("Affine", "ScaledTanh")
        alpha = alphas.pop(0) if alphas and has_alpha else alpha
        beta = betas.pop(0) if betas and key in ("Affine", "ScaledTanh", "HardSigmoid") else beta
        found.append(_limited(_ACTIVATIONS[key], alpha, beta, clip))
    return found


def _limited(function: Callable[..., Any], alpha: float, beta: float, clip: float | None) -> Callable[[Tensor], Tensor]:
    return lambda x: function(x if clip is None else F.clip(x, -clip, clip), alpha, beta)


def _directed(direction: str) -> list[bool]:
    """Returns for each direction whether it runs backwards."""
    return {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]


def _run(x: Tensor, state: tuple[Tensor, ...], limits: Any, backward: bool, step: Step) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Returns the hidden states of all steps, [t, n, hidden], and the last state; sequences may end
    early. x: [t, n, size].
    """
    times = int(x.shape[0])
    results: list[Tensor] = [x] * times
    for time in reversed(range(times)) if backward else range(times):
        fresh = step(x[time], state)
        if limits is not None and (limits <= time).any():
            runs = Tensor((limits > time).reshape(-1, 1))
            wide = [F.broadcast_to(runs, part._tuple_shape) for part in fresh]
            state = tuple(F.where(w, new, old) for w, new, old in zip(wide, fresh, state, strict=True))
            results[time] = F.where(wide[0], fresh[0], F.zeros_like(fresh[0]))
        else:
            state = fresh
            results[time] = fresh[0]
    return F.stack(results, axis=0), state


def _all_directions(
    x: Tensor, direction: str, lengths: Any, initial: list[Tensor | None], hidden: int, layout: int,
    step_for: Any, whole_for: Callable[[int], Whole | None], rounded: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns Y and the last of each part of the state. whole_for: None for a direction that must
    run step by step. rounded: whether products read states that are rounded to 8 bits.
    """
    if layout:
        x = F.transpose(x, (1, 0, 2))
        initial = [part if part is None else F.transpose(part, (1, 0, 2)) for part in initial]
    limits = None if lengths is None else np.asarray(ints(lengths))
    if limits is not None and (limits >= x.shape[0]).all():
        limits = None
    lines, ends = [], []
    for number, backward in enumerate(_directed(direction)):
        state = tuple(F.zeros((x.shape[1], hidden), dtype=x.dtype) if part is None else part[number] for part in initial)
        whole = whole_for(number) if limits is None else None
        if whole is not None:
            line, end = recurrent_layer(whole[0], x, state, *whole[1], backwards=backward, rounded=rounded)
        else:
            line, end = _run(x, state, limits, backward, step_for(number))
        lines.append(line)
        ends.append(end)
    y = F.stack(lines, axis=1)  # [t, directions, n, hidden]
    last = [F.stack(list(parts), axis=0) for parts in zip(*ends, strict=True)]
    if layout:
        y = F.transpose(y, (2, 0, 1, 3))
        last = [F.transpose(part, (1, 0, 2)) for part in last]
    return (y, *last)


def _biases(b: Tensor | None, number: int, gates: int, hidden: int) -> tuple[Any, Any]:
    if b is None:
        return 0.0, 0.0
    return b[number][: gates * hidden], b[number][gates * hidden :]


def mode_of(
    op: str, number: int, *, activations: Any = None, clip: float | None = None, linear_before_reset: int = 0, input_forget: int = 0,
    **_: Any,
) -> str | None:  # fmt: skip
    """Returns the mode of `recurrent_layer` that computes a direction of a node with such attributes, None if none does."""
    count = len(_USUAL[op])
    names = [name.lower() for name in (activations or _USUAL[op] * (number + 1))[number * count : (number + 1) * count]]
    if op == "RNN" and names == ["relu"]:
        names, mode = _USUAL[op], "relu"
    elif op == "GRU" and not linear_before_reset:
        mode = "gru_reset_first"
    else:
        mode = "tanh" if op == "RNN" else op.lower()
    fits = names == _USUAL[op] and clip is None and not input_forget
    return mode if fits else None


def laid_out(op: str, number: int, w: Any, r: Any, b: Any, concat: Callable[[list[Any]], Any]) -> tuple[Any, Any, Any, Any]:
    """Returns weights and biases of a direction as `recurrent_layer` takes them. concat: joins Tensors, or arrays."""
    order, size = _ORDER[op], r.shape[-1]

    def sorted_gates(rows: Any) -> Any:
        return concat([rows[k * size : (k + 1) * size] for k in order]) if len(order) > 1 else rows

    ih, hh = (None, None) if b is None else map(sorted_gates, _biases(b, number, len(order), size))
    return sorted_gates(w[number]), sorted_gates(r[number]), ih, hh


@wrap
def layers(
    x: Tensor, initial: Sequence[Tensor | None], weights: Sequence[Sequence[Tensor | None]], *, modes: Sequence[str], direction: str = "forward",
    layout: int = 0, rounded: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Computes RNN, GRU or LSTM. weights, modes: for each direction, as `recurrent_layer` takes
    them. rounded: whether products read x and states that are rounded to 8 bits.
    """
    wholes: list[Any] = list(zip(modes, weights, strict=True))
    hidden: Any = weights[0][1]._tuple_shape[-1]  # type: ignore[union-attr]
    x = _rounded(x) if rounded else x
    return _all_directions(x, direction, None, list(initial), hidden, layout, None, wholes.__getitem__, rounded)


@wrap
def layers_of_bytes(
    x: Tensor, initial: Sequence[Tensor | None], weights: Sequence[Sequence[Tensor]], *, direction: str = "forward"
) -> tuple[Tensor, ...]:  # fmt: skip
    """Computes LSTMs whose products read 8 bits: x as a whole and each step's hidden states are
    rounded as by DynamicQuantizeLinear. weights: for each direction, as `bytes_laid_out` gives them.
    """
    levels, step, zero = dynamic_quantize_linear(x)
    rows = F.expand_dims(F.flatten(levels, 0, 1), -1)
    lines, ends = [], []
    for number, backward in enumerate(_directed(direction)):
        w, columns, w_scale, r, r_scale, bias = weights[number]
        h, c = (F.zeros((x.shape[1], r.shape[1])) if part is None else part[number] for part in initial)
        scale = w_scale * step
        gates = ops.quantized_conv(rows, w, scale, bias - zero.astype("float32") * columns * scale, dtype="float32")
        gates = F.reshape(gates, (-1, x._tuple_shape[1], w._tuple_shape[0]))
        line, cells = ops.lstm_of_bytes(gates, r, h, c, r_scale, reverse=int(backward))
        lines.append(line)
        end = 0 if backward else x._tuple_shape[0] - 1
        ends.append((line[end], cells[end]))
    return (F.stack(lines, axis=1), *(F.stack(list(parts), axis=0) for parts in zip(*ends, strict=True)))


def bytes_laid_out(number: int, w: np.ndarray, w_scale: np.ndarray, r: np.ndarray, r_scale: np.ndarray, b: np.ndarray | None) -> list[np.ndarray]:
    """Returns a direction's weights of int8, [directions, size, 4 * hidden], as `layers_of_bytes` takes them: those of x
    with the sums of their columns and scales, those of states with their scales, and the bias.
    """
    hidden = r.shape[1]

    def sorted_gates(rows: np.ndarray) -> np.ndarray:
        return np.concatenate([rows[k * hidden : (k + 1) * hidden] for k in _ORDER["LSTM"]])

    ours = sorted_gates(w[number].T)
    scales = [sorted_gates(np.broadcast_to(scale.reshape(len(w), -1)[number], 4 * hidden)) for scale in (w_scale, r_scale)]
    bias = np.zeros(4 * hidden, np.float32) if b is None else sorted_gates(b[number][: 4 * hidden] + b[number][4 * hidden :])
    return [ours[..., None], ours.sum(1, dtype=np.float32), scales[0], sorted_gates(r[number].T), scales[1], bias]


@counterpart("RNN")
def rnn(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None, h: Tensor | None = None, *,
    activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None, activations: Sequence[str] | None = None, clip: float | None = None,
    direction: str = "forward", hidden_size: int = 0, layout: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    hidden: Any = r.shape[-1]
    functions = _activations(activations or ["Tanh"] * len(_directed(direction)), activation_alpha, activation_beta, clip)

    def step_for(number: int) -> Step:
        bw, br = _biases(b, number, 1, hidden)
        return lambda xt, state: (functions[number](F.nn.linear(xt, w[number]) + F.nn.linear(state[0], r[number]) + bw + br),)

    def whole_for(number: int) -> Whole | None:
        mode = mode_of("RNN", number, activations=activations, clip=clip)
        return None if mode is None else (mode, laid_out("RNN", number, w, r, b, F.concat))

    return _all_directions(x, direction, lengths, [h], hidden, layout, step_for, whole_for)


@counterpart("GRU")
def gru(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None, h: Tensor | None = None, *,
    activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None, activations: Sequence[str] | None = None, clip: float | None = None,
    direction: str = "forward", hidden_size: int = 0, layout: int = 0, linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    hidden: Any = r.shape[-1]
    two = 2 * hidden
    names = activations or ["Sigmoid", "Tanh"] * len(_directed(direction))
    functions = _activations(names, activation_alpha, activation_beta, clip)

    def step_for(number: int) -> Step:
        gate, update = functions[2 * number : 2 * number + 2]
        bw, br = _biases(b, number, 3, hidden)
        wd, rd = w[number], r[number]

        def step(xt: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            (old,) = state
            given = F.nn.linear(xt, wd) + bw
            held = F.nn.linear(old, rd[:two]) + (br if b is None else br[:two])
            z, reset = gate(given[:, :hidden] + held[:, :hidden]), gate(given[:, hidden:two] + held[:, hidden:])
            bias = br if b is None else br[two:]
            if linear_before_reset:
                inner = reset * (F.nn.linear(old, rd[two:]) + bias)
            else:
                inner = F.nn.linear(reset * old, rd[two:]) + bias
            return ((1 - z) * update(given[:, two:] + inner) + z * old,)

        return step

    def whole_for(number: int) -> Whole | None:
        mode = mode_of("GRU", number, activations=activations, clip=clip, linear_before_reset=linear_before_reset)
        return None if mode is None else (mode, laid_out("GRU", number, w, r, b, F.concat))

    return _all_directions(x, direction, lengths, [h], hidden, layout, step_for, whole_for)


@counterpart("LSTM")
def lstm(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None, h: Tensor | None = None,
    c: Tensor | None = None, p: Tensor | None = None, *, activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None, clip: float | None = None, direction: str = "forward", hidden_size: int = 0,
    input_forget: int = 0, layout: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Computes an LSTM. Gates are in the order input, output, forget, cell; p holds peephole
    weights of the first three.
    """
    names = activations or ["Sigmoid", "Tanh", "Tanh"] * len(_directed(direction))
    functions = _activations(names, activation_alpha, activation_beta, clip)
    step_for = _lstm_steps(w, r, b, p, functions, input_forget, lambda state: state)

    def whole_for(number: int) -> Whole | None:
        mode = mode_of("LSTM", number, activations=activations, clip=clip, input_forget=input_forget) if p is None else None
        return None if mode is None else (mode, laid_out("LSTM", number, w, r, b, F.concat))

    hidden: Any = r.shape[-1]
    return _all_directions(x, direction, lengths, [h, c], hidden, layout, step_for, whole_for)


def _lstm_steps(
    w: Tensor, r: Tensor, b: Tensor | None, p: Tensor | None, functions: Sequence[Callable[[Tensor], Tensor]],
    input_forget: int, multiplied: Callable[[Tensor], Tensor],
) -> Callable[[int], Step]:  # fmt: skip
    """Returns what gives the step of a direction. multiplied: turns the hidden state into the
    factor of r.
    """
    hidden: Any = r.shape[-1]

    def step_for(number: int) -> Step:
        gate, update, squash = functions[3 * number : 3 * number + 3]
        bw, br = _biases(b, number, 4, hidden)
        peep = [0.0] * 3 if p is None else [p[number][k * hidden : (k + 1) * hidden] for k in range(3)]

        def step(xt: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            old, cell = state
            joint = F.nn.linear(xt, w[number]) + F.nn.linear(multiplied(old), r[number]) + bw + br
            i, o, f, g = (joint[:, k * hidden : (k + 1) * hidden] for k in range(4))
            i = gate(i + cell * peep[0])
            f = 1 - i if input_forget else gate(f + cell * peep[2])
            cell = f * cell + i * update(g)
            return gate(o + cell * peep[1]) * squash(cell), cell

        return step

    return step_for


def real_weights(weights: Any, scale: Any, zero: Any) -> Any:
    """Turns integers [directions, size, 4 * hidden], Tensors or arrays, into the real weights of an
    LSTM. scale, zero: one for each direction, or for each column.
    """
    shape = (weights.shape[0], 1, -1)
    centred = weights.astype("float32") - zero.reshape(shape).astype("float32")
    return (centred * scale.reshape(shape)).transpose(0, 2, 1)


def _rounded(values: Tensor) -> Tensor:
    """Returns the values as they are after DynamicQuantizeLinear."""
    return dequantize_linear(*dynamic_quantize_linear(values))


@wrap
def lstm_of_rounded(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None, lengths: Tensor | None, h: Tensor | None, c: Tensor | None, p: Tensor | None,
    *, activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None, clip: float | None = None, direction: str = "forward", hidden_size: int = 0,
    input_forget: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Computes an LSTM of real weights. x as a whole, and each step's hidden state, are first
    rounded as by DynamicQuantizeLinear.
    """
    names = activations or ["Sigmoid", "Tanh", "Tanh"] * len(_directed(direction))
    functions = _activations(names, activation_alpha, activation_beta, clip)
    step_for = _lstm_steps(w, r, b, p, functions, input_forget, _rounded)

    def whole_for(number: int) -> Whole | None:
        mode = mode_of("LSTM", number, activations=activations, clip=clip, input_forget=input_forget) if p is None else None
        return None if mode is None else (mode, laid_out("LSTM", number, w, r, b, F.concat))

    hidden: Any = r.shape[-1]
    return _all_directions(_rounded(x), direction, lengths, [h, c], hidden, 0, step_for, whole_for, rounded=True)


@counterpart("com.microsoft.DynamicQuantizeLSTM")
def dynamic_quantize_lstm(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None, lengths: Tensor | None, h: Tensor | None, c: Tensor | None, p: Tensor | None,
    w_scale: Tensor, w_zero: Tensor, r_scale: Tensor, r_zero: Tensor, **attrs: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Computes onnxruntime's LSTM of 8 bits."""
    real = real_weights(w, w_scale, w_zero), real_weights(r, r_scale, r_zero)
    return lstm_of_rounded(x, *real, b, lengths, h, c, p, **attrs)
