"""One layer of a recurrent network in one direction: a product over all steps, then one op."""

from .._core import note_extent_read
from ..core import ops
from ..core.tensor.amp import to_high as _to_high
from ..tensor import Tensor
from ._conv import linear


def recurrent_layer(
    mode: str,
    x: Tensor,
    state: tuple[Tensor, ...] | None,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None,
    bias_hh: Tensor | None,
    backwards: bool,
    rounded: bool = False,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Returns the outputs [time, batch, hidden] and the last state, (h, c) of "lstm", (h,) of "gru", "gru_reset_first",
    whose reset scales states before their product, "tanh" and "relu".

    x: [time, batch, features]. state: the first state, None for zeros. weights: those of `RNNCell`,
    `LSTMCell` and `GRUCell`, with both biases or none. backwards: whether to go from the last step
    to the first. rounded: whether an LSTM multiplies weight_hh by states that are rounded to 8 bits.
    Autocasting leaves the steps in the high precision.
    """
    bias = bias_ih
    is_gru = mode in ("gru", "gru_reset_first")
    if not is_gru and bias_ih is not None and bias_hh is not None:
        bias = ops.add(bias_ih, bias_hh)
    gates, weight_hh = _to_high(linear(x, weight_ih, bias)), _to_high(weight_hh)
    shape = (gates._tuple_shape[1], weight_hh._tuple_shape[1])

    def zeros(*shape: int) -> Tensor:
        note_extent_read(gates, 1)
        return ops.full(shape=shape, value=0.0, dtype=gates.dtype.name, device=gates)

    if state is None:
        state = (zeros(*shape),) * (2 if mode == "lstm" else 1)
    first = [
        part if part._tuple_shape == shape else ops.broadcast_to(part, shape=shape)
        for part in map(_to_high, state)
    ]
    if mode == "lstm":
        steps = ops.lstm(gates, weight_hh, *first, reverse=int(backwards), rounded=int(rounded))[:2]
    elif is_gru:
        bias_hh = zeros(weight_hh._tuple_shape[0]) if bias_hh is None else _to_high(bias_hh)
        given = gates, weight_hh, first[0], bias_hh
        is_usual = mode == "gru"
        steps = ops.gru(*given, reverse=int(backwards))[:1] if is_usual else (ops.gru_reset_first(*given, reverse=int(backwards)),)
    else:
        y = ops.rnn(gates, weight_hh, *first, nonlinearity=mode, reverse=int(backwards))
        steps = (y,)
    end = 0 if backwards else gates._tuple_shape[0] - 1
    return steps[0], tuple(part[end] for part in steps)
