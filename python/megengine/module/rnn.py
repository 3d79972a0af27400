"""Recurrent layers.

RNN: h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu. LSTM: Hochreiter & Schmidhuber 1997 with forget gates
(Gers et al. 2000): i, f, o = sigmoid(...), g = tanh(...), c' = f c + i g, h' = o tanh(c'); gates are stored in the
order input, forget, cell, output. GRU: Cho et al. 2014 with the reset gate behind the product (Appleyard et al.
2016): r, z = sigmoid(...), n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = (1 - z) n + z h; gates are stored in the
order reset, update, new. All parameters start uniform within 1 / sqrt(hidden_size).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from .. import functional as F
from ..autodiff import Function
from ..functional._recurrent import recurrent_layer
from ..tensor import Parameter, Tensor
from . import init
from ._weighted import check_extents
from .module import Module

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell"]

Hidden: TypeAlias = Any  # a state: a Tensor; of an LSTM the pair (h, c)


class RNNCellBase(Module):
    """Base of cells, with weight_ih (chunks * hidden, input), weight_hh (chunks * hidden, hidden)
    and biases (chunks * hidden,).
    """

    _repr_facts = "{0.input_size}, {0.hidden_size}, bias={0.bias}"

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int) -> None:
        super().__init__()
        check_extents(self, input_size=input_size, hidden_size=hidden_size)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        self.gate_hidden_size = num_chunks * hidden_size
        rows = self.gate_hidden_size
        self.weight_ih = Parameter(np.zeros((rows, input_size), np.float32))
        self.weight_hh = Parameter(np.zeros((rows, self._state_size()), np.float32))
        self.bias_ih = Parameter(np.zeros(rows, np.float32)) if bias else None
        self.bias_hh = Parameter(np.zeros(rows, np.float32)) if bias else None
        self.reset_parameters()

    def _state_size(self) -> int:
        return self.hidden_size

    def reset_parameters(self) -> None:
        """Draws new initial values, uniform within 1 / sqrt(hidden_size) of 0."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _gates_of(self, x: Tensor) -> Tensor:
        """Computes the input's part of the gates: (..., input) to (..., chunks * hidden)."""
        return F.nn.linear(x, self.weight_ih, self.bias_ih)

    def _weights(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def _held(self, h: Tensor) -> Tensor:
        """Computes the state's part of the gates."""
        return F.nn.linear(h, self.weight_hh, self.bias_hh)

    def _gates(self, from_input: Tensor, h: Tensor | None) -> Tensor:
        """Computes the gates; h None stands for zeros."""
        if h is not None:
            return from_input + self._held(h)
        return from_input if self.bias_hh is None else from_input + self.bias_hh

    def _advance(self, from_input: Tensor, state: Hidden | None) -> Hidden:
        """Returns the next state."""
        raise TypeError(f"{type(self).__name__} does not define _advance(from_input, state)")

    def forward(self, input: Tensor, hx: Hidden | None = None) -> Hidden:
        """Returns the next state.

        Parameters
        ----------
        input : Tensor
            Input of the step, (N, input_size).
        hx : Tensor, (Tensor, Tensor) or None
            State before the step, (N, hidden_size), for an LSTM the pair (h, c); None is zeros.

        Returns
        -------
        Tensor or (Tensor, Tensor)
            State after the step, of the same form.
        """
        return self._advance(self._gates_of(input), hx)


class RNNCell(RNNCellBase):
    """One step of a plain recurrent network: ``h' = tanh(W_ih x + b_ih + W_hh h + b_hh)``.

    Parameters
    ----------
    input_size, hidden_size : int
        Number of features of the input and of the state.
    bias : bool
        Whether to add the learned bias_ih and bias_hh.
    nonlinearity : str
        The activation: "tanh" or "relu".

    Raises
    ------
    ValueError
        For another nonlinearity.

    Notes
    -----
    weight_ih (hidden, input), weight_hh (hidden, hidden), bias_ih and bias_hh (hidden,) start
    uniform within 1 / sqrt(hidden_size) of 0.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> cell, h = M.RNNCell(4, 8), None
    >>> for x in mge.functional.ones((5, 2, 4)):  # 5 steps of a batch of 2
    ...     h = cell(x, h)
    >>> h.shape
    (2, 8)
    """

    if TYPE_CHECKING:

        def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor: ...

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh"
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"nonlinearity {nonlinearity!r} is neither 'tanh' nor 'relu'")
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, num_chunks=1)

    def _advance(self, from_input: Tensor, state: Tensor | None) -> Tensor:
        gates = self._gates(from_input, state)
        return F.tanh(gates) if self.nonlinearity == "tanh" else F.nn.relu(gates)

    def _module_info_string(self) -> str:
        return super()._module_info_string() + f", nonlinearity={self.nonlinearity}"


class LSTMCell(RNNCellBase):
    """One step of a long short-term memory; its state is the pair (h, c).

    ``i, f, o = sigmoid(...)``, ``g = tanh(...)``, each of ``W_ih x + b_ih + W_hh h + b_hh``; then
    ``c' = f * c + i * g`` and ``h' = o * tanh(c')``.

    Parameters
    ----------
    input_size, hidden_size : int
        Number of features of the input and of the state.
    bias : bool
        Whether to add the learned bias_ih and bias_hh.

    Notes
    -----
    weight_ih (4 * hidden, input), weight_hh (4 * hidden, hidden), bias_ih and bias_hh (4 * hidden,)
    hold the gates in the order i, f, g, o and start uniform within 1 / sqrt(hidden_size) of 0.

    References
    ----------
    Hochreiter and Schmidhuber, 1997, "Long Short-Term Memory"; forget gates: Gers et al., 2000.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> h, c = M.LSTMCell(4, 8)(mge.functional.ones((2, 4)))
    >>> h.shape, c.shape
    ((2, 8), (2, 8))
    """

    if TYPE_CHECKING:

        def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]: ...

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=4)

    def _advance(
        self, from_input: Tensor, state: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        h, c = state or (None, None)
        i, f, g, o = F.split(self._gates(from_input, h), 4, axis=-1)
        entering = F.nn.sigmoid(i) * F.tanh(g)
        c = entering if c is None else F.nn.sigmoid(f) * c + entering
        return F.nn.sigmoid(o) * F.tanh(c), c


class GRUCell(RNNCellBase):
    """One step of gated recurrent units, as torch and cuDNN compute them.

    ``r, z = sigmoid(...)``, each of ``W_ih x + b_ih + W_hh h + b_hh``;
    ``n = tanh(W_in x + b_in + r * (W_hn h + b_hn))``; then ``h' = (1 - z) * n + z * h``.

    Parameters
    ----------
    input_size, hidden_size : int
        Number of features of the input and of the state.
    bias : bool
        Whether to add the learned bias_ih and bias_hh.

    Notes
    -----
    weight_ih (3 * hidden, input), weight_hh (3 * hidden, hidden), bias_ih and bias_hh (3 * hidden,)
    hold the gates in the order r, z, n and start uniform within 1 / sqrt(hidden_size) of 0.

    References
    ----------
    Cho et al., 2014, "Learning Phrase Representations using RNN Encoder-Decoder".

    Appleyard et al., 2016, "Optimizing Performance of Recurrent Neural Networks on GPUs" (r behind
    the product).

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.GRUCell(4, 8)(mge.functional.ones((2, 4))).shape
    (2, 8)
    """

    if TYPE_CHECKING:

        def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor: ...

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=3)

    def _advance(self, from_input: Tensor, state: Tensor | None) -> Tensor:
        if state is None:
            shape = (from_input._tuple_shape[0], self.hidden_size)
            state = F.zeros(shape, dtype=self.weight_hh.dtype.name)
        given, held = F.split(from_input, 3, axis=-1), F.split(self._held(state), 3, axis=-1)
        r, z = F.nn.sigmoid(given[0] + held[0]), F.nn.sigmoid(given[1] + held[1])
        n = F.tanh(given[2] + r * held[2])
        return n + z * (state - n)


class _ProjectedLSTMCell(LSTMCell):
    """LSTM cell whose h is weight_hr (proj_size, hidden) times the usual one: Sak et al. 2014."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool, proj_size: int) -> None:
        self.proj_size = proj_size
        super().__init__(input_size, hidden_size, bias)
        self.weight_hr = Parameter(np.zeros((proj_size, hidden_size), np.float32))
        self.reset_parameters()

    def _state_size(self) -> int:
        return self.proj_size

    def _advance(
        self, from_input: Tensor, state: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        h, c = super()._advance(from_input, state)
        return F.nn.linear(h, self.weight_hr), c


class _Unstack(Function):
    """Cuts a tensor along axis 0. Its gradient is one stack; that of n slices would be n sums of
    whole arrays.
    """

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        parts = tuple(x[index] for index in range(x._tuple_shape[0]))
        self.like = parts[0]
        return parts

    def backward(self, *output_grads: Tensor | None) -> Tensor:
        if any(grad is None for grad in output_grads):
            zero = F.zeros_like(self.like)
            output_grads = tuple(zero if grad is None else grad for grad in output_grads)
        return F.stack(cast(tuple[Tensor, ...], output_grads), 0)


class RNNBase(Module):
    """Layers of cells over a sequence.

    forward(input, hx): input (time, batch, input_size), or (batch, time, input_size) with batch_first. hx: the
    first states, (num_layers * directions, batch, hidden_size), zeros by default. Returns (output, last states);
    output (time, batch, directions * hidden_size) or batch first. dropout: on the output of all layers but the
    last. cells[layer][direction] are the cells. ValueError for an input that is not 3-D.
    """

    _projects = True  # whether it takes proj_size

    _repr_facts = (
        "{0.input_size}, {0.hidden_size}, num_layers={0.num_layers}, bias={0.bias}, "
        "batch_first={0.batch_first}, dropout={0.dropout}, bidirectional={0.bidirectional}, proj_size={0.proj_size}"
    )

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0,
        bidirectional: bool = False,
        proj_size: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not 0 <= dropout < 1 or proj_size < 0 or num_layers < 1:
            raise ValueError(
                f"{type(self).__name__}: needs num_layers >= 1, 0 <= dropout < 1, proj_size >= 0; "
                f"got {num_layers}, {dropout}, {proj_size}"
            )
        if proj_size and not self._projects:
            raise ValueError(f"{type(self).__name__}: proj_size is for LSTM only, leave it at 0")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.num_directions = 2 if bidirectional else 1
        self.proj_size = proj_size
        self.cells = [
            [self.create_cell(layer) for _ in range(self.num_directions)]
            for layer in range(num_layers)
        ]

    _packed_entry = "_flatten_weights"

    def _parts_of(self, packed: Any) -> dict[str, np.ndarray]:
        """Returns the cells' entries of a state dict from MegEngine's single array, which holds the
        parameters of cell after cell.
        """
        values = np.reshape(packed.numpy() if isinstance(packed, Tensor) else packed, -1)
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        own = {
            f"cells.{layer}.{direction}.{name}": parameter._tuple_shape
            for layer, cells in enumerate(self.cells)
            for direction, cell in enumerate(cells)
            for name, parameter in zip(names, cell._weights(), strict=True)
            if parameter is not None
        }
        sizes = [math.prod(shape) for shape in own.values()]
        if sum(sizes) != values.size:
            raise ValueError(
                f"load_state_dict: _flatten_weights has {values.size} elements, the cells of this {type(self).__name__} have {sum(sizes)}"
            )
        parts = np.split(values, np.cumsum(sizes)[:-1])
        return {name: part.reshape(shape) for (name, shape), part in zip(own.items(), parts, strict=True)}

    def _layer_input(self, layer: int) -> int:
        if layer == 0:
            return self.input_size
        return self.num_directions * (self.proj_size or self.hidden_size)

    def reset_parameters(self) -> None:
        """Draws new initial values for all cells."""
        for cell in self.children():
            cast(RNNCellBase, cell).reset_parameters()

    def create_cell(self, layer: int) -> RNNCellBase:
        """Returns a new cell for this layer, counted from 0."""
        raise TypeError(f"{type(self).__name__} does not define create_cell(layer)")

    def init_hidden(self, batch_size: int = 1) -> Hidden:
        """Returns states of zeros for all layers and directions.

        Parameters
        ----------
        batch_size : int
            The number of sequences, N.

        Returns
        -------
        Tensor or (Tensor, Tensor)
            States (num_layers * directions, N, hidden_size), for an LSTM a pair of them.
        """
        return F.zeros(self._state_shape(batch_size, self.proj_size or self.hidden_size))

    def _state_shape(self, batch_size: int, size: int) -> tuple[int, ...]:
        return (self.num_layers * self.num_directions, batch_size, size)

    def get_output_from_hidden(self, hx: Hidden) -> Tensor:
        """Returns the part of a state that is the output.

        Parameters
        ----------
        hx : Tensor or (Tensor, Tensor)
            The state, for an LSTM the pair (h, c).

        Returns
        -------
        Tensor
            The state itself, for an LSTM its h.
        """
        return hx

    def apply_op(self, input: Tensor, hx: Hidden | None) -> tuple[Tensor, Hidden]:
        """Returns (output, last states) for an input whose first axis is time.

        Parameters
        ----------
        input : Tensor
            Sequences of shape (L, N, input_size).
        hx : Tensor, (Tensor, Tensor) or None
            First states, as for `forward`.

        Returns
        -------
        output : Tensor
            Tensor of shape (L, N, directions * hidden_size).
        states : Tensor or (Tensor, Tensor)
            Last states, in the form of ``hx``.
        """
        last = []
        for layer, cells in enumerate(self.cells):
            outputs = []
            for direction, cell in enumerate(cells):
                state = self._pick(hx, layer * self.num_directions + direction)
                output, state = self._run(cell, input, state, backwards=bool(direction))
                outputs.append(output)
                last.append(state)
            input = outputs[0] if len(outputs) == 1 else F.concat(outputs, -1)
            if self.dropout and self.training and layer + 1 < self.num_layers:
                input = F.nn.dropout(input, self.dropout, training=True)
        return input, self._join(last)

    def _run(
        self, cell: RNNCellBase, input: Tensor, state: Hidden | None, backwards: bool
    ) -> tuple[Tensor, Hidden]:
        """Runs all steps of one cell; returns (outputs, last state)."""
        mode = _mode_of(cell)
        if mode is not None:
            first = state if state is None or isinstance(state, tuple) else (state,)
            outputs, last = recurrent_layer(
                mode, input, first, *cell._weights(), backwards=backwards
            )
            return outputs, last if len(last) > 1 else last[0]
        output, order = [], -1 if backwards else 1
        for step in _Unstack()(cell._gates_of(input))[::order]:
            state = cell._advance(step, state)
            output.append(self.get_output_from_hidden(state))
        return F.stack(output[::order], 0), state

    def _pick(self, hx: Hidden | None, index: int) -> Hidden | None:
        return None if hx is None else hx[index]

    def _join(self, states: list[Any]) -> Hidden:
        return F.stack(states, 0)

    def forward(self, input: Tensor, hx: Hidden | None = None) -> tuple[Tensor, Hidden]:
        """Returns (output, last states).

        Parameters
        ----------
        input : Tensor
            Sequences of shape (L, N, input_size), or (N, L, input_size) with batch_first.
        hx : Tensor, (Tensor, Tensor) or None
            First states, (num_layers * directions, N, hidden_size), for an LSTM a pair of them;
            None is zeros.

        Returns
        -------
        output : Tensor
            Tensor of shape (L, N, directions * hidden_size), or (N, L, ...) with batch_first.
        states : Tensor or (Tensor, Tensor)
            Last states, in the form of ``hx``.

        Raises
        ------
        ValueError
            Unless the input has three axes, L and N are above 0, and the last axis is input_size.
        """
        if input.ndim != 3 or 0 in input._tuple_shape[:2]:
            raise ValueError(
                f"{type(self).__name__}: the input must be (time, batch, features) with time and batch "
                f"above 0, or batch first; got shape {input._tuple_shape}\n"
                "  fix: F.expand_dims(x, 1) makes a batch of one"
            )
        if input._tuple_shape[2] != self.input_size:
            raise ValueError(
                f"{type(self).__name__}: input_size is {self.input_size}, and the input has shape {input._tuple_shape}\n"
                f"  fix: its last axis must have {self.input_size} features, or build the layer with input_size={input._tuple_shape[2]}"
            )
        if self.batch_first:
            input = F.transpose(input, (1, 0, 2))
        output, hx = self.apply_op(input, hx)
        return (F.transpose(output, (1, 0, 2)) if self.batch_first else output), hx


def _mode_of(cell: RNNCellBase) -> str | None:
    """Returns the name of this cell for `recurrent_layer`; None for a cell that runs step by step:
    one with a projection, or of a class of the program.
    """
    if type(cell) is RNNCell:
        return cell.nonlinearity
    return {LSTMCell: "lstm", GRUCell: "gru"}.get(type(cell))


class RNN(RNNBase):
    """Runs plain recurrent layers over sequences; `RNNCell` has the formula.

    ``cells[layer][direction]`` are the cells.

    Parameters
    ----------
    *args : object
        Sizes of input and states, input_size and hidden_size; then the options by position.
    **kwargs : object
        Options: num_layers, layers above one another, 1 by default, each reading the output of the
        one below; bias, whether the cells have biases; batch_first, input and output are (N, L,
        ...) instead of (L, N, ...); dropout, the probability on the output of all layers but the
        last, in training, 0 by default; bidirectional, each layer also runs backwards, and outputs
        are joined; nonlinearity, "tanh" (default) or "relu". proj_size is for `LSTM` only.

    Raises
    ------
    ValueError
        For options outside their range.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> rnn = M.RNN(4, 8, num_layers=2, bidirectional=True, batch_first=True)
    >>> output, last = rnn(mge.functional.ones((3, 5, 4)))
    >>> output.shape, last.shape
    ((3, 5, 16), (4, 3, 8))
    """

    if TYPE_CHECKING:

        def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]: ...


    _projects = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.nonlinearity = kwargs.pop("nonlinearity", "tanh")
        super().__init__(*args, **kwargs)

    def create_cell(self, layer: int) -> RNNCell:
        """Returns a new `RNNCell` for this layer, counted from 0.

        Parameters
        ----------
        layer : int
            Number of the layer, counted from 0.

        Returns
        -------
        RNNCell
            The cell.
        """
        return RNNCell(self._layer_input(layer), self.hidden_size, self.bias, self.nonlinearity)

    def init_hidden(self, batch_size: int) -> Tensor:  # type: ignore[override]  # no default here
        """Returns states of zeros, (num_layers * directions, batch_size, hidden_size).

        Parameters
        ----------
        batch_size : int
            The number of sequences, N.

        Returns
        -------
        Tensor
            (num_layers * directions, N, hidden_size), zeros.
        """
        return super().init_hidden(batch_size)


class GRU(RNNBase):
    """Runs gated recurrent units over sequences; `GRUCell` has the formula.

    States and outputs are those of `RNN`.

    Parameters
    ----------
    input_size, hidden_size, num_layers : int
        Number of features of the input, number of features of a state, and number of layers above
        one another (default 1).
    bias, batch_first : bool
        Whether the cells have biases, and whether input and output are (N, L, ...) instead of (L,
        N, ...).
    dropout : float
        Probability of dropping an element of the output of each layer but the last, in training;
        default 0.
    bidirectional : bool
        Whether each layer also runs backwards, and both outputs are joined.
    proj_size : int
        Must be 0: a GRU has no projection.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        For options outside their range, and a proj_size.

    See Also
    --------
    LSTM : Has a state more.
    GRUCell : Computes a single step.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> output, last = M.GRU(4, 8, bidirectional=True)(mge.functional.ones((5, 3, 4)))
    >>> output.shape, last.shape
    ((5, 3, 16), (2, 3, 8))
    """

    if TYPE_CHECKING:

        def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]: ...


    _projects = False

    def create_cell(self, layer: int) -> GRUCell:
        """Returns a new `GRUCell` for this layer, counted from 0.

        Parameters
        ----------
        layer : int
            Number of the layer, counted from 0.

        Returns
        -------
        GRUCell
            The cell.
        """
        return GRUCell(self._layer_input(layer), self.hidden_size, self.bias)


class LSTM(RNNBase):
    """Runs long short-term memory layers over sequences; `LSTMCell` has the formula.

    States are pairs (h, c).

    Parameters
    ----------
    *args : object
        Sizes of input and states, input_size and hidden_size; then the options by position.
    **kwargs : object
        Options: num_layers, bias, batch_first, dropout and bidirectional, as for `RNN`; and
        proj_size: above 0, h is projected to that size, and is (num_layers * directions, N,
        proj_size).

    See Also
    --------
    GRU : Has one state and three gates.
    LSTMCell : Computes a single step.

    References
    ----------
    Sak et al., 2014, "Long Short-Term Memory Based Recurrent Neural Network Architectures"
    (proj_size).

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> output, (h, c) = M.LSTM(4, 8)(mge.functional.ones((5, 3, 4)))
    >>> output.shape, h.shape, c.shape
    ((5, 3, 8), (1, 3, 8), (1, 3, 8))
    """

    if TYPE_CHECKING:

        def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def create_cell(self, layer: int) -> LSTMCell:
        """Returns a new `LSTMCell` for this layer, counted from 0.

        Parameters
        ----------
        layer : int
            Number of the layer, counted from 0.

        Returns
        -------
        LSTMCell
            The cell.
        """
        if self.proj_size:
            return _ProjectedLSTMCell(
                self._layer_input(layer), self.hidden_size, self.bias, self.proj_size
            )
        return LSTMCell(self._layer_input(layer), self.hidden_size, self.bias)

    def init_hidden(  # type: ignore[override]  # no default here
        self, batch_size: int
    ) -> tuple[Tensor, Tensor]:
        """Returns states (h, c) of zeros, each (num_layers * directions, batch_size, its size).

        Parameters
        ----------
        batch_size : int
            The number of sequences, N.

        Returns
        -------
        (Tensor, Tensor)
            (num_layers * directions, N, size of h) and (num_layers * directions, N, hidden_size),
            zeros.
        """
        return super().init_hidden(batch_size), F.zeros(
            self._state_shape(batch_size, self.hidden_size)
        )

    def get_output_from_hidden(self, hx: tuple[Tensor, Tensor]) -> Tensor:
        """Returns the output that belongs to the state ``hx``: its h.

        Parameters
        ----------
        hx : (Tensor, Tensor)
            The pair (h, c).

        Returns
        -------
        Tensor
            The tensor h.
        """
        return hx[0]

    def _pick(self, hx: tuple[Tensor, Tensor] | None, index: int) -> tuple[Tensor, Tensor] | None:
        return None if hx is None else (hx[0][index], hx[1][index])

    def _join(self, states: list[Any]) -> tuple[Tensor, Tensor]:
        return F.stack([h for h, _ in states], 0), F.stack([c for _, c in states], 0)
