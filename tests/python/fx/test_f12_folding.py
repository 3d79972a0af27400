"""F12: a batch normalization is folded into the convolution before it."""

import itertools

import numpy as np
import pytest
from small_modules import close, norms, tensor, warmed

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.fx.experimental.optimization import (
    fuse,
)
from megengine.utils.fusion import fuse_conv_bn_eval, fuse_conv_bn_weights

CONVS = {
    "1d": (lambda **kw: M.Conv1d(4, 6, 3, **kw), M.BatchNorm1d, (2, 4, 7)),
    "2d": (lambda **kw: M.Conv2d(4, 6, 3, **kw), M.BatchNorm2d, (2, 4, 7, 7)),
    "3d": (lambda **kw: M.Conv3d(4, 6, 3, **kw), M.BatchNorm3d, (2, 4, 5, 5, 5)),
    "3d in processes": (lambda **kw: M.Conv3d(4, 6, 3, **kw), M.SyncBatchNorm, (2, 4, 5, 5, 5)),
    "2d grouped": (lambda **kw: M.Conv2d(4, 6, 3, groups=2, **kw), M.BatchNorm2d, (2, 4, 7, 7)),
    "2d depthwise": (lambda **kw: M.Conv2d(4, 4, 3, groups=4, **kw), M.BatchNorm2d, (2, 4, 7, 7)),
}


@pytest.mark.parametrize(
    ("kind", "bias", "affine"), list(itertools.product(CONVS, (True, False), (True, False)))
)
def test_a_folded_convolution_computes_both(kind, bias, affine):
    make, norm, shape = CONVS[kind]
    conv = make(bias=bias)
    net = warmed(M.Sequential(conv, norm(conv.out_channels, affine=affine)), *shape)
    x = tensor(*shape)
    fused = fuse_conv_bn_eval(net[0], net[1])
    close(fused(x), net(x), rtol=1e-5)
    close(fuse(net)(x), net(x), rtol=1e-5)
    assert norms(fuse(net)) == 0 and fused.bias.shape == conv._infer_bias_shape()


def test_weights_may_be_given_without_bias_scale_and_shift():
    weight, mean, var = tensor(6, 4, 3, 3), tensor(6), F.abs(tensor(6))
    new_weight, new_bias = fuse_conv_bn_weights(weight, None, mean, var, 1e-5, None, None)
    factor = 1 / np.sqrt(var.numpy() + 1e-5)
    np.testing.assert_allclose(
        new_weight.numpy(), weight.numpy() * factor[:, None, None, None], rtol=1e-5
    )
    np.testing.assert_allclose(new_bias.numpy().ravel(), -mean.numpy() * factor, rtol=1e-5)
    assert new_bias.shape == (1, 6, 1, 1) and isinstance(new_bias, mge.Parameter)
