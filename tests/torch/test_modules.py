"""Each layer of the table gives torch's results and has torch's names of parameters."""

import pickle

import numpy as np
import pytest
import torch
from agree import assert_agree, check
from torch import nn

import megengine as mge
import megengine.module as M
from megengine import fx

IMAGE, LINE, VOLUME, ROWS = (2, 4, 7, 9), (2, 4, 9), (2, 4, 5, 7, 6), (3, 4)

# (layer, shape of the input, our class or None for one of torchlike.layers)
LAYERS = [
    (nn.Conv1d(4, 6, 3, 2, 1), LINE, M.Conv1d),
    (nn.Conv2d(4, 6, 3, 2, 1, groups=2, bias=False), IMAGE, M.Conv2d),
    (nn.Conv2d(4, 6, (3, 1), padding="same", dilation=2), IMAGE, M.Conv2d),
    (nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), IMAGE, M.Conv2d),
    (nn.Conv3d(4, 6, 3), VOLUME, M.Conv3d),
    (nn.ConvTranspose1d(4, 6, 3, 2, groups=2), LINE, M.ConvTranspose1d),
    (nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), IMAGE, M.ConvTranspose2d),
    (nn.ConvTranspose3d(4, 6, 2, 2), VOLUME, M.ConvTranspose3d),
    (nn.Linear(9, 5), IMAGE, M.Linear),
    (nn.Linear(9, 5, bias=False), LINE, M.Linear),
    (nn.BatchNorm1d(4), ROWS, M.BatchNorm1d),
    (nn.BatchNorm2d(4, eps=1e-3, affine=False), IMAGE, M.BatchNorm2d),
    (nn.BatchNorm2d(4, track_running_stats=False), IMAGE, M.BatchNorm2d),
    (nn.BatchNorm3d(4), VOLUME, M.BatchNorm3d),
    (nn.LayerNorm(9), IMAGE, M.LayerNorm),
    (nn.LayerNorm((7, 9), bias=False), IMAGE, None),
    (nn.GroupNorm(2, 4), IMAGE, M.GroupNorm),
    (nn.InstanceNorm2d(4, affine=True), IMAGE, M.InstanceNorm),
    (nn.InstanceNorm2d(4, track_running_stats=True), IMAGE, None),
    (nn.RMSNorm(9), LINE, M.RMSNorm),
    (nn.LocalResponseNorm(3), IMAGE, None),
    (nn.ReLU(), ROWS, M.ReLU), (nn.Sigmoid(), ROWS, M.Sigmoid), (nn.SiLU(), ROWS, M.SiLU), (nn.GELU(), ROWS, M.GELU),
    (nn.GELU("tanh"), ROWS, None), (nn.LeakyReLU(0.3), ROWS, None), (nn.PReLU(), IMAGE, None),
    (nn.PReLU(4), IMAGE, None), (nn.Softmax(dim=1), ROWS, M.Softmax), (nn.ReLU6(), ROWS, M.ReLU6),
    (nn.Tanh(), ROWS, M.Tanh), (nn.LogSigmoid(), ROWS, M.LogSigmoid), (nn.Hardswish(), ROWS, M.Hardswish), (nn.Hardsigmoid(), ROWS, M.Hardsigmoid),
    (nn.Mish(), ROWS, M.Mish), (nn.ELU(1.5), ROWS, M.ELU), (nn.CELU(2.0), ROWS, M.CELU), (nn.SELU(), ROWS, M.SELU),
    (nn.Softplus(2), ROWS, None), (nn.Softplus(), ROWS, M.Softplus), (nn.AdaptiveAvgPool1d(1), LINE, M.AdaptiveAvgPool1d), (nn.Unfold((3, 2), stride=2, padding=1), IMAGE, M.Unfold),
    (nn.Fold((4, 3), 2), (2, 12, 6), M.Fold), (nn.Softsign(), ROWS, None), (nn.Hardtanh(-0.2, 0.4), ROWS, None),
    (nn.Hardshrink(), ROWS, None), (nn.Softshrink(), ROWS, None), (nn.Tanhshrink(), ROWS, None),
    (nn.Threshold(0.1, 2.0), ROWS, None), (nn.GLU(1), ROWS, M.GLU), (nn.Softmin(1), ROWS, None),
    (nn.LogSoftmax(1), ROWS, M.LogSoftmax), (nn.Softmax2d(), IMAGE, None), (nn.Dropout(0.3), ROWS, M.Dropout),
    (nn.Dropout2d(0.3), IMAGE, M.Dropout2d), (nn.Identity(), ROWS, M.Identity), (nn.Flatten(), IMAGE, M.Flatten),
    (nn.Unflatten(1, (2, 2)), IMAGE, M.Unflatten),
    (nn.MaxPool1d(2), LINE, M.MaxPool1d), (nn.MaxPool2d(3, 2, 1), IMAGE, M.MaxPool2d),
    (nn.MaxPool2d(3, 2, ceil_mode=True), IMAGE, M.MaxPool2d), (nn.MaxPool2d(2, dilation=2), IMAGE, None),
    (nn.MaxPool3d(2), VOLUME, None), (nn.AvgPool1d(3, 2, 1), LINE, M.AvgPool1d), (nn.AvgPool2d(3, 2, 1), IMAGE, M.AvgPool2d),
    (nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE, M.AvgPool2d),
    (nn.AvgPool2d(3, 2, 1, ceil_mode=True), IMAGE, M.AvgPool2d), (nn.AvgPool3d(2), VOLUME, None),
    (nn.AdaptiveAvgPool1d(4), LINE, None), (nn.AdaptiveAvgPool2d((3, 4)), IMAGE, None), (nn.AdaptiveAvgPool2d(1), IMAGE, M.AdaptiveAvgPool2d),
    (nn.AdaptiveAvgPool2d((None, 1)), IMAGE, None), (nn.AdaptiveAvgPool3d(2), VOLUME, None),
    (nn.AdaptiveMaxPool2d(3), IMAGE, None), (nn.AdaptiveMaxPool2d(1), IMAGE, M.AdaptiveMaxPool2d),
    (nn.Upsample(scale_factor=2), IMAGE, None), (nn.Upsample((5, 12), mode="bilinear", align_corners=True), IMAGE, None),
    (nn.PixelShuffle(2), IMAGE, M.PixelShuffle), (nn.PixelUnshuffle(3), (1, 2, 6, 9), M.PixelUnshuffle),
    (nn.ChannelShuffle(2), IMAGE, None), (nn.ZeroPad2d((1, 2, 0, 1)), IMAGE, None), (nn.ConstantPad1d(2, 3.5), LINE, None),
    (nn.ReflectionPad2d(2), IMAGE, None), (nn.ReplicationPad3d(1), VOLUME, None), (nn.CircularPad2d(1), IMAGE, None),
    (nn.RNN(9, 5, 2), LINE, None), (nn.RNN(9, 5, nonlinearity="relu", bias=False), LINE, None),
    (nn.LSTM(9, 5, 2, batch_first=True, bidirectional=True), LINE, None), (nn.LSTM(9, 5, proj_size=3), LINE, None),
    (nn.GRU(9, 5, 2, bidirectional=True), LINE, None), (nn.GRU(4, 5), ROWS, None),
    (nn.GRU(9, 5, bias=False, batch_first=True), LINE, None), (nn.GRUCell(4, 5), ROWS, M.GRUCell),
    (nn.LSTMCell(4, 5), ROWS, M.LSTMCell), (nn.RNNCell(4, 5), ROWS, M.RNNCell),
    (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), (2, 5, 4), M.TransformerEncoderLayer),
    (nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, activation="gelu", norm_first=True), 2, nn.LayerNorm(4), enable_nested_tensor=False), (5, 2, 4), M.TransformerEncoder),
]  # fmt: skip


class One(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)


class Two(One):
    def forward(self, x, y):
        return self.layer(x, y)


def filled(module):
    """In eval mode, with parameters and statistics unlike their initial values."""
    generator = torch.Generator().manual_seed(2)
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            tensor.data.uniform_(0.1, 0.6, generator=generator)
    return module.eval()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("layer, shape, cls", LAYERS, ids=[repr(layer).split("\n")[0] for layer, *_ in LAYERS])
def test_layers_give_torchs_results(layer, shape, cls):
    torch.manual_seed(0)
    module = filled(One(layer))
    converted = check(module, torch.randn(shape))
    ours = converted.layer
    assert type(ours) is cls if cls else type(ours).__module__.startswith("megengine.fx.torchlike")
    names = {name for name in module.state_dict() if "num_batches" not in name}
    assert set(converted.state_dict()) == names


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("layer, shape, cls", LAYERS, ids=[repr(layer).split("\n")[0] for layer, *_ in LAYERS])
def test_layers_stay_one_node_when_traced_again_and_come_back_from_files(layer, shape, cls, tmp_path):
    module = filled(One(layer))
    converted = fx.from_torch(module)
    again = fx.symbolic_trace(converted)
    assert [node.op for node in again.graph.nodes] == ["placeholder", "call_module", "output"]
    converted.save(tmp_path / "layer.mge")
    for copy in again, fx.load(tmp_path / "layer.mge"), pickle.loads(pickle.dumps(converted)):
        assert_agree(module, copy, torch.randn(shape))


def test_embeddings_and_what_reads_their_weight():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(10, 4, padding_idx=0)
            self.head = nn.Linear(4, 10, bias=False)
            self.head.weight = self.table.weight

        def forward(self, tokens):
            return self.head(self.table(tokens)) + self.table.weight.sum()

    module = Tied().eval()
    converted = check(module, torch.tensor([[1, 2, 9], [0, 3, 3]]))
    assert converted.head.weight is converted.table.weight  # one parameter in torch, one here


class Attention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, **options)

    def forward(self, query, key, mask=None, padding=None):
        return self.attention(query, key, value=key, attn_mask=mask, key_padding_mask=padding)


@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"bias": False}], ids=str)
def test_attention_gives_torchs_results_and_weights(options):
    module = filled(Attention(**options))
    q, k = torch.randn(3, 2, 8), torch.randn(5, 2, 8)
    if options.get("batch_first"):
        q, k = q.transpose(0, 1), k.transpose(0, 1)
    converted = check(module, q, k)
    hidden = torch.rand(3, 5) > 0.7
    assert_agree(module, converted, q, k, hidden)
    assert_agree(module, converted, q, k, torch.randn(4, 3, 5))
    assert_agree(module, converted, q, k, None, torch.tensor([[False] * 4 + [True], [False] * 5]))


def test_attention_between_tensors_of_other_sizes():
    module = filled(Attention(kdim=6, vdim=6, batch_first=True))
    check(module, torch.randn(2, 3, 8), torch.randn(2, 5, 6))


def test_decoder_layers_give_torchs_results():
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
            self.decoder = nn.TransformerDecoder(layer, 2)
            self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(3))

        def forward(self, x, memory):
            return self.decoder(x, memory, tgt_mask=self.mask)

    torch.manual_seed(0)
    check(Decoder().eval(), torch.randn(2, 3, 8), torch.randn(2, 5, 8))


def test_a_transformer_gives_torchs_results():
    torch.manual_seed(0)
    check(Two(nn.Transformer(8, 2, 1, 1, 16, batch_first=True)).eval(), torch.randn(2, 5, 8), torch.randn(2, 4, 8))


RECURRENT = [
    nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True), nn.LSTM(4, 5, bias=False), nn.LSTM(4, 5, proj_size=2),
    nn.GRU(4, 5, 2, bidirectional=True), nn.RNN(4, 5), nn.RNN(4, 5, nonlinearity="relu"),
]  # fmt: skip


@pytest.mark.parametrize("layer", RECURRENT, ids=repr)
def test_exported_recurrent_layers_give_torchs_results(layer):
    x = torch.randn(3, 6, 4)
    program = torch.export.export(One(layer).eval(), (x,))
    for exported in program, program.run_decompositions():
        assert_agree(layer, fx.from_torch(exported), x)


def test_recurrent_layers_take_and_return_states():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 5)

        def forward(self, x, h, c):
            return self.lstm(x, (h, c))

    check(Net().eval(), torch.randn(6, 2, 4), torch.randn(1, 2, 5), torch.randn(1, 2, 5))


def test_channel_dropout_drops_whole_channels_in_training():
    converted = fx.from_torch(One(nn.Dropout2d(0.5)))
    assert converted.layer.training
    out = converted(mge.functional.ones((8, 32, 3, 3))).numpy().reshape(256, 9)
    assert set(np.unique(out)) == {0, 2} and (out == out[:, :1]).all()


def test_batch_normalization_trains_as_in_torch():
    module = One(nn.BatchNorm2d(4, momentum=0.3))
    converted = fx.from_torch(module)
    x = torch.randn(3, 4, 5, 5)
    assert_agree(module, converted, x)
    np.testing.assert_allclose(converted.state_dict()["layer.running_var"], module.layer.running_var, rtol=1e-5)
    np.testing.assert_allclose(converted.state_dict()["layer.running_mean"], module.layer.running_mean, rtol=1e-4, atol=1e-6)
