"""Small networks for images, as their papers have them; `test_training.py` trains each."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm


def images(count=2, channels=3, size=16):
    return torch.randn(count, channels, size, size)


class Ghost(nn.Module):
    """Han et al. 2020: half of the channels are made cheaply of the others."""

    def __init__(self, channels, out):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, out // 2, 1, bias=False), nn.BatchNorm2d(out // 2), nn.ReLU())
        self.cheap = nn.Sequential(nn.Conv2d(out // 2, out // 2, 3, padding=1, groups=out // 2, bias=False), nn.BatchNorm2d(out // 2), nn.ReLU())

    def forward(self, x):
        x = self.first(x)
        return torch.cat([x, self.cheap(x)], 1)


class Squeeze(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x):
        return x * F.hardsigmoid(self.up(F.silu(self.down(F.adaptive_avg_pool2d(x, 1)))))


def ghost_net():
    return nn.Sequential(Ghost(3, 8), Squeeze(8), nn.Conv2d(8, 8, 3, 2, 1, groups=8), Ghost(8, 12), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5))


class Inverted(nn.Module):
    """Tan and Le 2019: MBConv with squeeze-and-excitation."""

    def __init__(self, channels, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.SiLU(inplace=True),
            nn.Conv2d(width, width, 5, padding=2, groups=width, bias=False), nn.BatchNorm2d(width), nn.SiLU(inplace=True),
            Squeeze(width), nn.Conv2d(width, channels, 1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x):
        return x + self.body(x)


def efficient_net():
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), Inverted(8, 16), Inverted(8, 24), nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(8, 5))


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(dim, dim, 7, padding=3, groups=dim), nn.LayerNorm(dim)
        self.up, self.down, self.scale = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim), nn.Parameter(torch.full((dim,), 0.1))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.blocks, self.norm, self.head = nn.Conv2d(3, 8, 4, 4), nn.Sequential(ConvNeXtBlock(8), ConvNeXtBlock(8)), nn.LayerNorm(8), nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.stem(x)).mean([-2, -1])))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.token, self.places = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.zeros(1, 1, 16)), nn.Parameter(torch.randn(1, 17, 16) * 0.02)
        self.layers, self.head = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True), 2, enable_nested_tensor=False), nn.Linear(16, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.layers(torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places)[:, 0])


class Swin(nn.Module):
    """Liu et al. 2021: windows, shifted by half of one, with a bias by relative place and a mask of what was apart."""

    def __init__(self, dim=16, heads=2, window=4, shift=2):
        super().__init__()
        self.window, self.shift, self.heads = window, shift, heads
        self.norm, self.qkv, self.out = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.bias = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.02)
        place = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = place[:, :, None] - place[:, None, :] + window - 1
        self.register_buffer("relative", apart[0] * (2 * window - 1) + apart[1])
        self.patches, self.merge, self.head = nn.Conv2d(3, dim, 2, 2), nn.Linear(4 * dim, dim), nn.Linear(dim, 5)

    def windows(self, x):
        b, h, w, c = x.shape
        x = x.view(b, h // self.window, self.window, w // self.window, self.window, c)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, self.window**2, c)

    def mask(self, h, w, device):
        region = torch.zeros(1, h, w, 1, device=device)
        slices = slice(0, -self.window), slice(-self.window, -self.shift), slice(-self.shift, None)
        for i, rows in enumerate(slices):
            for j, columns in enumerate(slices):
                region[:, rows, columns] = 3.0 * i + j
        parts = self.windows(region).squeeze(-1)
        return (parts[:, None] - parts[:, :, None]).ne(0) * -100.0

    def attend(self, x):
        b, h, w, c = x.shape
        shifted = self.windows(torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2)))
        q, k, v = self.qkv(shifted).view(-1, self.window**2, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT * (c // self.heads) ** -0.5 + self.bias[self.relative].permute(2, 0, 1)
        mask = self.mask(h, w, x.device)
        scores = (scores.view(b, -1, *scores.shape[1:]) + mask[None, :, None]).view_as(scores)
        y = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(shifted.shape))
        y = y.view(b, h // self.window, w // self.window, self.window, self.window, c).permute(0, 1, 3, 2, 4, 5).reshape(x.shape)
        return x + torch.roll(y, (self.shift, self.shift), (1, 2))

    def forward(self, x):
        x = self.attend(self.patches(x).permute(0, 2, 3, 1))
        x = self.merge(torch.cat([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], -1))
        return self.head(x.mean([1, 2]))


def doubled(channels, out):
    return nn.Sequential(nn.Conv2d(channels, out, 3, padding=1), nn.GroupNorm(2, out), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.middle = doubled(3, 8), doubled(8, 12), doubled(12, 16)
        self.up1, self.up2 = nn.ConvTranspose2d(16, 12, 2, 2), nn.ConvTranspose2d(12, 8, 4, 2, 1)
        self.back1, self.back2, self.out = doubled(24, 12), doubled(16, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        one = self.first(x)
        two = self.second(F.max_pool2d(one, 2))
        y = self.middle(F.max_pool2d(two, 2))
        y = self.back1(torch.cat([self.up1(y), two], 1))
        return self.out(self.back2(torch.cat([self.up2(y), one], 1)))


class DeepLab(nn.Module):
    """Chen et al. 2017: dilated convolutions beside each other, and the image's mean."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.branches = nn.ModuleList(nn.Conv2d(8, 4, 3, padding=d, dilation=d, bias=False) for d in (1, 2, 3))
        self.whole, self.join, self.out = nn.Conv2d(8, 4, 1), nn.Sequential(nn.Conv2d(16, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()), nn.Conv2d(8, 3, 1)

    def forward(self, x):
        y = self.stem(x)
        whole = F.interpolate(F.adaptive_avg_pool2d(y, 1) * 1, size=y.shape[-2:], mode="bilinear", align_corners=False)
        y = self.join(torch.cat([*(branch(y) for branch in self.branches), self.whole(whole)], 1))
        return F.interpolate(self.out(y), size=x.shape[-2:], mode="bilinear", align_corners=False)


class Pyramid(nn.Module):
    """Lin et al. 2017: lateral connections, the coarse map enlarged; heads whose maps are joined and sorted by score."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 12, 3, 2, 1), nn.Conv2d(12, 16, 3, 2, 1)])
        self.side, self.score = nn.ModuleList(nn.Conv2d(n, 8, 1) for n in (8, 12, 16)), nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x):
        maps = []
        for layer in self.down:
            maps.append(x := F.leaky_relu(layer(x), 0.1))
        y, found = None, []
        for side, each in reversed([*zip(self.side, maps, strict=True)]):
            y = side(each) if y is None else side(each) + F.interpolate(y, scale_factor=2, mode="nearest")
            found.append(self.score(y).flatten(2))
        scores = torch.cat(found, 2)
        best, places = scores.amax(1).topk(6, 1)
        return scores.gather(2, places[:, None].expand(-1, 3, -1)) * best[:, None]


class Shuffle(nn.Module):
    """Ma et al. 2018: half of the channels go past, then channels are mixed."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8, 5)
        self.body = nn.Sequential(nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False), nn.BatchNorm2d(4))

    def forward(self, x):
        past, y = self.stem(x).chunk(2, 1)
        y = torch.cat([past, self.body(y)], 1)
        b, c, h, w = y.shape
        return self.head(y.view(b, 2, c // 2, h, w).transpose(1, 2).flatten(1, 2).mean((2, 3)))


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.BatchNorm2d(3 + 4 * n), nn.ReLU(), nn.Conv2d(3 + 4 * n, 4, 3, padding=1, bias=False)) for n in range(3))
        self.pool, self.head = nn.AvgPool2d(2), nn.Linear(15, 5)

    def forward(self, x):
        found = [x]
        for layer in self.layers:
            found.append(layer(torch.cat(found, 1)))
        return self.head(self.pool(torch.cat(found, 1)).flatten(2).mean(2))


class SuperResolution(nn.Module):
    """Shi et al. 2016, over the image enlarged by cubic interpolation."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(weight_norm(nn.Conv2d(3, 8, 3, padding=1)), nn.PReLU(8), nn.Conv2d(8, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x):
        return self.body(x) + F.interpolate(x, scale_factor=2, mode="bicubic")


class Discriminator(nn.Module):
    """Miyato et al. 2018: spectral norms, with its statistics in training; minibatch deviation as in Karras et al. 2018."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = spectral_norm(nn.Conv2d(3, 8, 4, 2, 1)), spectral_norm(nn.Conv2d(8, 8, 4, 2, 1)), spectral_norm(nn.Linear(9 * 16, 1))

    def forward(self, x):
        x = F.leaky_relu(self.second(F.leaky_relu(self.first(x), 0.2)), 0.2)
        deviation = (x.var(0, unbiased=False) + 1e-8).sqrt().mean().expand(x.shape[0], 1, *x.shape[2:])
        return F.softplus(-self.last(torch.cat([x, deviation], 1).flatten(1)))


class Modulated(nn.Module):
    """Karras et al. 2020: each image has a kernel of its own, by one grouped convolution."""

    def __init__(self):
        super().__init__()
        self.start, self.style = nn.Parameter(torch.randn(1, 8, 4, 4)), nn.Linear(16, 8)
        self.weight, self.noise, self.image = nn.Parameter(torch.randn(6, 8, 3, 3)), nn.Parameter(torch.zeros(1) + 0.1), nn.Conv2d(6, 3, 1)
        self.register_buffer("plane", torch.randn(1, 1, 8, 8))

    def forward(self, z):
        z = z * (z.square().mean(1, keepdim=True) + 1e-8).rsqrt()
        weight = self.weight[None] * (self.style(z) + 1)[:, None, :, None, None]
        weight = weight * (weight.square().sum((2, 3, 4), keepdim=True) + 1e-8).rsqrt()
        x = F.interpolate(self.start.expand(z.shape[0], -1, -1, -1), scale_factor=2, mode="bilinear")
        x = F.conv2d(x.reshape(1, -1, 8, 8), weight.flatten(0, 1), padding=1, groups=z.shape[0]).view(-1, 6, 8, 8)
        return torch.tanh(self.image(F.leaky_relu(x + self.plane * self.noise, 0.2)))


class Recognizer(nn.Module):
    """Shi et al. 2015: columns of an image are read by an LSTM, CTC aligns them."""

    def __init__(self):
        super().__init__()
        self.body, self.lstm, self.head = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 1))), nn.LSTM(32, 8, bidirectional=True), nn.Linear(16, 6)

    def forward(self, x, words):
        y = self.body(x).permute(3, 0, 1, 2).flatten(2)
        scores = self.head(self.lstm(y)[0]).log_softmax(-1)
        lengths = torch.full((x.shape[0],), scores.shape[0]), torch.full((x.shape[0],), words.shape[1])
        return F.ctc_loss(scores, words, *lengths, zero_infinity=True)


class PixelCNN(nn.Module):
    """van den Oord et al. 2016: kernels that see only what was before."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 8, 5, padding=2), nn.Conv2d(8, 4, 1)
        mask = torch.ones(5, 5)
        mask[2, 2:], mask[3:] = 0, 0
        self.register_buffer("mask", mask)

    def forward(self, x):
        return self.last(F.elu(F.conv2d(x, self.first.weight * self.mask, self.first.bias, padding=2))).log_softmax(1)


class SpatialTransformer(nn.Module):
    """Jaderberg et al. 2015."""

    def __init__(self):
        super().__init__()
        self.find, self.head = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(48, 6)), nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.Flatten(), nn.Linear(196, 5))

    def forward(self, x):
        turn = self.find(x).view(-1, 2, 3) * 0.1 + torch.eye(2, 3)
        return self.head(F.grid_sample(x, F.affine_grid(turn, x.shape, align_corners=False), padding_mode="border", align_corners=False))


class Involution(nn.Module):
    """Li et al. 2021: each place makes the kernel of its window."""

    def __init__(self):
        super().__init__()
        self.stem, self.make, self.head = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 2 * 9, 1), nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        b, c, h, w = x.shape
        windows = F.unfold(x, 3, padding=1).view(b, 2, c // 2, 9, h, w)
        return self.head((windows * self.make(x).view(b, 2, 1, 9, h, w)).sum(3).view(b, c, h, w).mean((2, 3)))


class Standardized(nn.Module):
    """Qiao et al. 2019: weights are standardized; local response, maxout, spatial pyramid pooling behind them."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(4 * (1 + 4 + 9), 5)

    def forward(self, x):
        weight = self.conv.weight
        deviation, mean = torch.std_mean(weight, (1, 2, 3), keepdim=True)
        y = F.local_response_norm(F.conv2d(x, (weight - mean) / (deviation + 1e-5), self.conv.bias, padding=1), 3)
        y = y.view(y.shape[0], 4, 2, *y.shape[2:]).max(2)[0]
        return self.head(torch.cat([F.adaptive_max_pool2d(y, n).flatten(1) for n in (1, 2, 3)], 1))


class Capsules(nn.Module):
    """Sabour et al. 2017: capsules agree in three rounds."""

    def __init__(self):
        super().__init__()
        self.stem, self.votes = nn.Conv2d(3, 16, 5, 4), nn.Parameter(torch.randn(36, 5, 6, 4) * 0.3)

    def forward(self, x):
        u = self.stem(x).view(x.shape[0], 4, 4, -1).permute(0, 1, 3, 2).reshape(x.shape[0], -1, 4)
        votes = torch.einsum("bic,ijdc->bijd", u, self.votes[: u.shape[1]])
        logits = torch.zeros(votes.shape[:3])
        for _ in range(3):
            s = (logits.softmax(2)[..., None] * votes).sum(1)
            size = s.square().sum(-1, keepdim=True)
            v = size / (1 + size) * s / (size + 1e-8).sqrt()
            logits = logits + (votes * v[:, None]).sum(-1)
        return v.norm(dim=-1)


class Volumes(nn.Module):
    """Tran et al. 2015, as V-Net: convolutions of three axes, down and up."""

    def __init__(self):
        super().__init__()
        self.down, self.up, self.out = nn.Sequential(nn.Conv3d(2, 4, 3, 2, 1), nn.InstanceNorm3d(4, affine=True), nn.PReLU()), nn.ConvTranspose3d(4, 4, 2, 2), nn.Conv3d(6, 2, 1)

    def forward(self, x):
        scores = self.out(torch.cat([self.up(F.max_pool3d(self.down(x), 1)), x], 1)).softmax(1)
        return 1 - 2 * (scores * x).sum((2, 3, 4)) / (scores.square().sum((2, 3, 4)) + x.square().sum((2, 3, 4)))


NETWORKS = {
    "GhostNet": lambda: (ghost_net(), images()),
    "EfficientNet": lambda: (efficient_net(), images()),
    "ConvNeXt": lambda: (ConvNeXt(), images()),
    "ViT": lambda: (ViT(), images()),
    "Swin": lambda: (Swin(), images()),
    "U-Net": lambda: (UNet(), images()),
    "DeepLab": lambda: (DeepLab(), images()),
    "feature pyramid": lambda: (Pyramid(), images()),
    "ShuffleNet": lambda: (Shuffle(), images()),
    "DenseNet": lambda: (Dense(), images()),
    "super resolution": lambda: (SuperResolution(), images(size=6)),
    "spectral norm": lambda: (Discriminator(), images()),
    "StyleGAN": lambda: (Modulated(), torch.randn(3, 16)),
    "CRNN": lambda: (Recognizer(), torch.randn(2, 1, 16, 12), torch.randint(1, 6, (2, 4))),
    "PixelCNN": lambda: (PixelCNN(), images(channels=1, size=8)),
    "spatial transformer": lambda: (SpatialTransformer(), images()),
    "involution": lambda: (Involution(), images(size=6)),
    "weight standardization": lambda: (Standardized(), images(size=12)),
    "capsules": lambda: (Capsules(), images()),
    "volumes": lambda: (Volumes(), torch.randn(2, 2, 4, 6, 6)),
}
