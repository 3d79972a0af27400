"""Recurrent layers and attention against NumPy."""

import numpy as np
import pytest
import reference_layers as R
from drawn import follows
from scipy import stats

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.autodiff import GradManager


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(got, want):
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)


def parts(cell):
    return [
        p.numpy().astype(np.float64)
        for p in (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
    ]


def run_lstm(net, x):
    """Reference: output (time, batch, ...), h and c of all layers and directions."""
    hs, cs = [], []
    for layer in net.cells:
        outputs = []
        for direction, cell in enumerate(layer):
            weights = parts(cell)
            h = c = np.zeros((x.shape[1], cell.hidden_size))
            steps = []
            for step in x[:: 1 - 2 * direction]:
                h, c = R.lstm_cell(step, h, c, *weights)
                steps.append(h)
            outputs.append(np.stack(steps[:: 1 - 2 * direction]))
            hs.append(h)
            cs.append(c)
        x = np.concatenate(outputs, -1)
    return x, np.stack(hs), np.stack(cs)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_rnn_cell(nonlinearity):
    cell, x, h = M.RNNCell(4, 3, nonlinearity=nonlinearity), array(2, 4), array(2, 3, seed=1)
    w_ih, w_hh, b_ih, b_hh = parts(cell)
    act = np.tanh if nonlinearity == "tanh" else lambda v: np.maximum(v, 0)
    close(cell(Tensor(x), Tensor(h)), act(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh))
    close(cell(Tensor(x)), act(x @ w_ih.T + b_ih + b_hh))


def test_lstm_cell():
    cell, x = M.LSTMCell(4, 3), array(2, 4)
    h, c = array(2, 3, seed=1), array(2, 3, seed=2)
    got = cell(Tensor(x), (Tensor(h), Tensor(c)))
    for ours, want in zip(got, R.lstm_cell(x, h, c, *parts(cell)), strict=True):
        close(ours, want)
    zeros = np.zeros((2, 3))
    close(cell(Tensor(x))[1], R.lstm_cell(x, zeros, zeros, *parts(cell))[1])


def test_gru_cell():
    cell, x, h = M.GRUCell(4, 3), array(2, 4), array(2, 3, seed=1)
    w_ih, w_hh, b_ih, b_hh = parts(cell)
    for state, first in ((Tensor(h), h), (None, 0 * h)):
        close(cell(Tensor(x), state), R.gru((x @ w_ih.T + b_ih)[None], w_hh, first, b_hh)[0][0])


@pytest.mark.parametrize("bidirectional", [False, True])
def test_gru(bidirectional):
    net, x = M.GRU(4, 3, num_layers=2, bidirectional=bidirectional), array(5, 2, 4)
    output, last = net(Tensor(x))
    lasts = []
    for layer in net.cells:
        outputs = []
        for backwards, cell in enumerate(layer):
            w_ih, w_hh, b_ih, b_hh = parts(cell)
            outputs.append(R.gru(x @ w_ih.T + b_ih, w_hh, np.zeros((2, 3)), b_hh, backwards)[0])
            lasts.append(outputs[-1][0 if backwards else -1])
        x = np.concatenate(outputs, -1)
    close(output, x)
    close(last, np.stack(lasts))
    close(net(Tensor(array(5, 2, 4)), net.init_hidden(2))[0], x)


def test_parameters_start_within_one_over_root_of_hidden_size():
    mge.random.seed(6)
    everything = np.concatenate([parameter.numpy().ravel() for parameter in M.LSTM(10, 16, num_layers=2).parameters()])
    assert np.abs(everything).max() <= 0.25 and follows(everything, stats.uniform(-0.25, 0.5))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_lstm(layers, bidirectional):
    net = M.LSTM(4, 3, num_layers=layers, bidirectional=bidirectional)
    x = array(5, 2, 4)
    output, (h, c) = net(Tensor(x))
    for ours, want in zip((output, h, c), run_lstm(net, x), strict=True):
        close(ours, want)
        assert ours.shape == want.shape


def test_batch_first_swaps_the_first_axes_of_input_and_output():
    net, x = M.LSTM(4, 3, batch_first=True), array(2, 5, 4)
    output, _ = net(Tensor(x))
    close(output, run_lstm(net, x.transpose(1, 0, 2))[0].transpose(1, 0, 2))


def test_states_can_be_handed_on():
    net, x = M.LSTM(4, 3, num_layers=2), array(6, 2, 4)
    whole, (h, c) = net(Tensor(x))
    first, state = net(Tensor(x[:4]))
    second, (h2, c2) = net(Tensor(x[4:]), state)
    close(F.concat([first, second], 0), whole.numpy())
    close(h2, h.numpy())
    close(c2, c.numpy())
    zeros = net.init_hidden(2)
    close(net(Tensor(x), zeros)[0], whole.numpy())


def test_rnn_without_bias():
    net, x = M.RNN(4, 3, bias=False, nonlinearity="relu"), array(3, 2, 4)
    cell = net.cells[0][0]
    w_ih, w_hh = cell.weight_ih.numpy(), cell.weight_hh.numpy()
    h, outputs = np.zeros((2, 3)), []
    for step in x:
        h = np.maximum(step @ w_ih.T + h @ w_hh.T, 0)
        outputs.append(h)
    output, last = net(Tensor(x))
    close(output, np.stack(outputs))
    close(last, h[None])
    assert len(list(net.parameters())) == 2


def test_a_projection_makes_the_state_smaller():
    net, x = M.LSTM(4, 6, proj_size=2, num_layers=2), Tensor(array(3, 5, 4))
    output, (h, c) = net(x)
    assert output.shape == (3, 5, 2) and h.shape == (2, 5, 2) and c.shape == (2, 5, 6)
    cell = net.cells[0][0]
    zeros = np.zeros((5, 2)), np.zeros((5, 6))
    want, _ = R.lstm_cell(x.numpy()[0], *zeros, *parts(cell))
    close(cell(x[0])[0], want @ cell.weight_hr.numpy().T)
    for other in (M.RNN, M.GRU):
        with pytest.raises(ValueError, match=f"{other.__name__}: proj_size"):
            other(4, 6, proj_size=2)


@pytest.mark.parametrize("make", [M.LSTM, M.GRU])
def test_gradients_agree_with_finite_differences(make):
    net, x = make(3, 4), Tensor(array(4, 2, 3))
    weight = net.cells[0][0].weight_hh
    with GradManager().attach([x, weight]) as gm:
        gm.backward((net(x)[0] ** 2).sum())
    for tensor, pick in ((x, (1, 0, 2)), (weight, (5, 1))):
        start, slopes = tensor.numpy(), []
        for step in (2e-2, 4e-2):
            values = []
            for sign in (1, -1):
                moved = start.copy()
                moved[pick] += sign * step
                tensor[...] = moved
                values.append(float((net(x)[0] ** 2).sum().numpy()))
            slopes.append((values[0] - values[1]) / (2 * step))
        tensor[...] = start
        want = (4 * slopes[0] - slopes[1]) / 3  # without the term of the step squared
        assert tensor.grad.numpy()[pick] == pytest.approx(want, rel=5e-4, abs=5e-5)


def test_dropout_between_layers_acts_in_training_only():
    net, x = M.LSTM(4, 8, num_layers=2, dropout=0.5), Tensor(array(3, 2, 4))
    assert (net(x)[0].numpy() != net(x)[0].numpy()).any()
    net.eval()
    np.testing.assert_array_equal(net(x)[0].numpy(), net(x)[0].numpy())


def test_an_input_that_is_not_three_dimensional_is_a_value_error():
    with pytest.raises(ValueError, match=r"\(2, 4\)"):
        M.LSTM(4, 3)(Tensor(array(2, 4)))


def test_multi_head_attention():
    layer = M.MultiHeadAttention(8, 2, kdim=6, vdim=5)
    layer.io_weight_bias[...] = array(layer.weight_bias_len) * 0.3
    q, k, v = array(2, 3, 8), array(2, 4, 6, seed=1), array(2, 4, 5, seed=2)
    out, weights = layer(Tensor(q), Tensor(k), Tensor(v), need_weights=True)
    want, scores = R.attention(q, k, v, 2, layer.io_weight_bias.numpy())
    close(out, want)
    close(weights, scores)


def test_attention_masks_and_unbatched_inputs():
    layer, x = M.MultiHeadAttention(8, 2, bias=False), array(1, 4, 8)
    hide = np.triu(np.ones((4, 4), bool), 1)
    want, _ = R.attention(x, x, x, 2, layer.io_weight_bias.numpy(), hide)
    t = Tensor(x)
    close(layer(t, t, t, attn_mask=Tensor(hide))[0], want)
    close(layer(t, t, t, is_causal=True)[0], want)
    flat = Tensor(x[0])
    close(layer(flat, flat, flat, is_causal=True)[0], want[0])
    assert layer(t, t, t)[1] is None


def test_attention_with_extra_keys_runs_and_differentiates():
    layer, x = (
        M.MultiHeadAttention(8, 2, add_bias_kv=True, add_zero_attn=True),
        Tensor(array(2, 4, 8)),
    )
    with GradManager().attach(layer.parameters()) as gm:
        gm.backward((layer(x, x, x)[0] ** 2).sum())
    for name, parameter in layer.named_parameters():
        assert np.abs(parameter.grad.numpy()).max() > 0, name


def test_heads_must_divide_the_size():
    with pytest.raises(ValueError, match="num_heads=3"):
        M.MultiHeadAttention(8, 3)
