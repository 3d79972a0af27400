"""Recurrent networks with the parameters of torch's: weight_ih_l0, weight_hh_l0, bias_ih_l0, ..., _reverse.

Formulas are those of `megengine.module.RNN`, `LSTM` and `GRU`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import functional as F
from ... import module as M
from ...functional._recurrent import recurrent_layer
from ...tensor import Tensor
from .._intercept import wrap

State = tuple[Tensor, ...]

# torch's mode -> that of `recurrent_layer`
MODES = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "tanh", "RNN_RELU": "relu"}


def run_direction(
    mode: str, x: Tensor, state: State, weights: Sequence[Any], backwards: bool
) -> tuple[Tensor, State]:
    """One layer in one direction over x [time, batch, features].

    weights: those of input and state, their biases or None, and the projection of h or None.
    Returns (outputs, last state).
    """
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    if w_hr is None:
        return recurrent_layer(MODES[mode], x, state, w_ih, w_hh, b_ih, b_hh, backwards)
    entering, (h, c) = F.linear(x, w_ih, b_ih), state  # an LSTM's; with a projection it is not one op
    outputs = []
    for time in range(x._tuple_shape[0])[:: -1 if backwards else 1]:
        i, f, g, o = F.split(entering[time] + F.linear(h, w_hh, b_hh), 4, axis=-1)
        c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
        h = F.linear(F.sigmoid(o) * F.tanh(c), w_hr)
        outputs.append(h)
    return F.stack(outputs[:: -1 if backwards else 1]), (h, c)


def run_layers(
    mode: str,
    x: Tensor,
    state: State,
    weights: Sequence[Sequence[Tensor | None]],
    bidirectional: bool,
    dropout: float,
) -> tuple[Tensor, State]:
    """All layers over x [time, batch, features].

    state: tensors [layers * directions, batch, size]. weights: those of each layer and direction in turn.
    """
    directions = 2 if bidirectional else 1
    last = []
    for first in range(0, len(weights), directions):
        outputs = []
        for index in range(first, first + directions):
            own = tuple(part[index] for part in state)
            output, own = run_direction(mode, x, own, weights[index], index > first)
            outputs.append(output)
            last.append(own)
        x = outputs[0] if directions == 1 else F.concat(outputs, -1)
        if dropout and first + directions < len(weights):
            x = F.dropout(x, dropout)
    return x, tuple(F.stack(parts) for parts in zip(*last, strict=True))


@wrap
def recurrent(
    mode: str, x: Tensor, state: Sequence[Tensor], parameters: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float, bidirectional: bool, batch_first: bool
) -> tuple[Tensor, ...]:  # fmt: skip
    """`run_layers` with all weights in one list, those of each layer and direction in turn. Returns (outputs, *last state)."""
    count = len(parameters) // (num_layers * (2 if bidirectional else 1))
    weights = []
    for first in range(0, len(parameters), count):
        w_ih, w_hh, *others = parameters[first : first + count]
        biases = [others.pop(0), others.pop(0)] if has_biases else [None, None]
        weights.append([w_ih, w_hh, *biases, others[0] if others else None])
    x = F.swapaxes(x, 0, 1) if batch_first else x
    y, state = run_layers(mode, x, tuple(state), weights, bidirectional, dropout)
    return F.swapaxes(y, 0, 1) if batch_first else y, *state


def _operator(mode: str) -> Callable[..., Any]:
    def run(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
        if not isinstance(params, (tuple, list)):
            raise ValueError("packed sequences")
        state = hx if isinstance(hx, (tuple, list)) else (hx,)
        settings = (has_biases, num_layers, dropout if train else 0, bidirectional, batch_first)
        return recurrent(mode, input, state, params, *settings)

    return run


OPERATORS = {mode.lower(): _operator(mode) for mode in MODES}


class Recurrent(M.Module):
    """Layers of a recurrent network; mode is LSTM, GRU, RNN_TANH or RNN_RELU.

    forward(input, hx): input [time, batch, features], [batch, time, features] with batch_first, or without batch.
    Returns (outputs, last state), the state a pair (h, c) for LSTM.
    """

    def __init__(
        self, mode: str, hidden_size: int, proj_size: int, num_layers: int, batch_first: bool, dropout: float, bidirectional: bool
    ) -> None:  # fmt: skip
        super().__init__()
        self.mode, self.hidden_size, self.proj_size = mode, hidden_size, proj_size
        self.num_layers, self.bidirectional = num_layers, bidirectional
        self.batch_first, self.dropout = batch_first, dropout

    def suffixes(self) -> list[str]:
        """Ends of the names of the weights of each layer and direction."""
        ends = ("", "_reverse") if self.bidirectional else ("",)
        return [f"_l{layer}{end}" for layer in range(self.num_layers) for end in ends]

    def forward(self, input: Tensor, hx: Tensor | Sequence[Tensor] | None = None) -> tuple[Tensor, Any]:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        weights = [
            [getattr(self, name + suffix, None) for name in names] for suffix in self.suffixes()
        ]
        batched = input.ndim == 3
        swap = batched and self.batch_first
        x = input if batched else F.expand_dims(input, 1)
        x = F.swapaxes(x, 0, 1) if swap else x
        state = self._state(x, hx, batched)
        y, state = run_layers(
            self.mode, x, state, weights, self.bidirectional, self.dropout if self.training else 0
        )
        if not batched:
            y, state = F.squeeze(y, 1), tuple(F.squeeze(part, 1) for part in state)
        y = F.swapaxes(y, 0, 1) if swap else y
        return y, state if self.mode == "LSTM" else state[0]

    def _state(self, x: Tensor, hx: Any, batched: bool) -> State:
        if hx is not None:
            hx = hx if isinstance(hx, (tuple, list)) else (hx,)
            return tuple(hx) if batched else tuple(F.expand_dims(part, 1) for part in hx)
        sizes = [self.proj_size or self.hidden_size]
        sizes += [self.hidden_size] if self.mode == "LSTM" else []
        count = len(self.suffixes())
        return tuple(
            F.zeros((count, x._tuple_shape[1], size), dtype=x.dtype.name) for size in sizes
        )

    def _module_info_string(self) -> str:
        return (
            f"{self.mode}, {self.hidden_size}, num_layers={self.num_layers}, batch_first={self.batch_first}, "
            f"dropout={self.dropout}, bidirectional={self.bidirectional}, proj_size={self.proj_size}"
        )
