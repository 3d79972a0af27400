"""Functions of a batch, for the tests of other batches: tables of bodies that take a matrix [batch, 6], or images [batch, 3, 4, 4]."""

import io

import numpy as np

import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor
from megengine.jit import trace

RECORDED, WANTED = (1, 2, 3), (1, 4, 7)
W = Parameter(np.arange(24, dtype="float32").reshape(6, 4) / 10)
ROW = Tensor(np.arange(6, dtype="float32"))
SQUARE = Tensor(np.arange(36, dtype="float32").reshape(1, 6, 6) / 36)
TABLE = Tensor(np.arange(12, dtype="float32").reshape(2, 6))


def layer(made):
    return made.eval()


def written(x, index):
    y = x * 1
    y[index] = 5.0
    return y


NORM, CONV = layer(M.BatchNorm2d(3)), layer(M.Conv2d(3, 4, 3, padding=1, stride=2))
GROUP, DEPTHWISE = layer(M.GroupNorm(3, 3)), layer(M.Conv2d(3, 3, 3, groups=3))
ATTENTION = layer(M.MultiHeadAttention(6, 2))
RNN = layer(M.LSTM(6, 4, batch_first=True))

# ---- of a [batch, 6] matrix
def assigned(x, value):
    y = x * 1
    y[...] = value
    return F.concat([x, y], axis=1)


def assigned_to(y, value):
    y = y * 1
    y[...] = value
    return y


def caught(call, x):
    """What a body does that catches the error of a call."""
    try:
        return F.flatten(call(x))[:2]
    except (ValueError, IndexError, TypeError):
        return F.flatten(x * 3)[:2]


FOLLOW = {
    "relu": lambda x: F.relu(x) * 2 + 1,
    "linear": lambda x: F.matmul(x, W),
    "row": lambda x: x + ROW,
    "flatten": lambda x: F.flatten(x.reshape(-1, 2, 3), 1),
    "reshape -1 first": lambda x: x.reshape(-1, 3, 2),
    "reshape of shape": lambda x: x.reshape(x.shape[0], 2, 3),
    "reshape of shape, -1": lambda x: x.reshape(x.shape[0], -1, 3),
    "reshape like": lambda x: (x * 2).reshape(x.shape),
    "columns": lambda x: x[:, 1:3],
    "columns from the end": lambda x: x[:, -2:] * x[:, :2],
    "one column": lambda x: x[:, 0],
    "ellipsis": lambda x: x[..., ::2],
    "new axis behind": lambda x: x[:, None] + x[:, :, None],
    "expand behind": lambda x: F.expand_dims(x, 1) * F.expand_dims(x, 2),
    "times the batch": lambda x: x * x.shape[0],
    "a mean by hand": lambda x: F.sum(x, axis=0) / x.shape[0],
    "means": lambda x: F.mean(x, axis=0) + x.mean() + F.var(x, axis=1, keepdims=True),
    "softmax": lambda x: F.softmax(x, axis=0) + F.softmax(x, axis=1),
    "argmax": lambda x: F.argmax(x, axis=0) + F.argmax(x, axis=1, keepdims=True),
    "one_hot": lambda x: F.one_hot(F.argmax(x, axis=1), 6),
    "topk": lambda x: F.topk(x, 2)[0],
    "sort": lambda x: F.sort(x)[0],
    "cumsum": lambda x: F.cumsum(x, axis=0),
    "gram": lambda x: F.matmul(x, x.transpose(1, 0)),
    "columns of the transpose": lambda x: x.transpose(1, 0)[1:3],
    "concat of columns": lambda x: F.concat([x, x * 2], axis=1),
    "stack behind": lambda x: F.stack([x, x + 1], axis=1),
    "split of columns": lambda x: F.concat(F.split(x, 2, axis=1)[::-1], axis=1),
    "reversed": lambda x: x[::-1],
    "every second row": lambda x: x[::1],
    "broadcast of itself": lambda x: F.broadcast_to(x.sum(axis=1, keepdims=True), x.shape) + x,
    "where": lambda x: F.where(x > 3, x, -x),
    "gather": lambda x: F.gather(x, 1, F.argmax(x, axis=1, keepdims=True)),
    "embedding": lambda x: F.embedding(F.argmax(x, axis=1), Parameter(np.eye(6, dtype="float32"))),
    "norms": lambda x: F.norm(x, axis=0) + F.norm(x, axis=1, keepdims=True) + F.normalize(x, axis=1),
    "layer_norm": lambda x: F.layer_norm(x, (6,), False),
    "a loss": lambda x: F.loss.square_loss(x, x * 0.5) + F.loss.l1_loss(x, x * 2),
    "cross entropy": lambda x: F.loss.cross_entropy(x, F.argmax(x, axis=1)),
    "repeat of columns": lambda x: F.repeat(x, 2, axis=1),
    "squeeze": lambda x: F.squeeze(F.expand_dims(x, 1), 1),
    "units and gates": lambda x: F.glu(F.elu(x) + F.celu(x, 0.5) + F.selu(x) + F.mish(x)),
    "rms_norm": lambda x: F.rms_norm(x, 6) + layer(M.RMSNorm(6))(x),
    "cosines": lambda x: F.cosine_similarity(x, ROW[None]) + F.pairwise_distance(x, ROW) + F.bilinear(x, x, SQUARE)[:, 0],
    "bags": lambda x: F.embedding_bag(F.argsort(x)[:, :3], W) + F.embedding_bag(F.argsort(x)[:, :2], W, mode="sum", padding_idx=1),
    "lines": lambda x: F.max_pool1d(x.reshape(-1, 1, 6), 2) + F.avg_pool1d(x.reshape(-1, 1, 6), 2) + F.adaptive_avg_pool1d(x.reshape(-1, 1, 6), 3),
    "layers of shapes": lambda x: M.Flatten()(M.Unflatten(1, (2, -1))(x)),
    "attend": lambda x: ATTENTION(*[F.expand_dims(x, 1)] * 3)[0],
}
# May be resized where the meaning is known, else refused.
OTHERS = {
    "assign a row to all": lambda x: assigned(x, F.ones((6,))),
    "assign one row to all": lambda x: assigned(x, F.ones((1, 6))),
    "assign a number to all": lambda x: assigned(x, 2.0),
    "assign rows to all": lambda x: assigned(x, x * 2),
    "assign to all of another": lambda x: assigned_to(F.ones((4, 6)), x),
    "assign to all of one": lambda x: assigned_to(F.ones((1, 6)), x),
    "assign to all of a row": lambda x: assigned_to(F.ones((6,)), x),
    "assign by a condition of all": lambda x: F.where(F.ones_like(x[:, :1]) > 0, x, assigned(x, F.ones((6,)))[:, :6]),
    "caught row": lambda x: caught(lambda x: x[3], x),
    "caught rows": lambda x: caught(lambda x: x[3:4].reshape(6), x),
    "caught reshape": lambda x: caught(lambda x: x.reshape(4, 6), x),
    "caught product": lambda x: caught(lambda x: F.matmul(F.ones((2, 4)), x), x),
    "caught sum": lambda x: caught(lambda x: x + F.ones((4, 6)), x),
    "caught concat": lambda x: caught(lambda x: F.concat([x, F.ones((4, 2))], axis=1), x),
    "caught split": lambda x: caught(lambda x: F.split(x, 4)[0], x),
    "caught broadcast": lambda x: caught(lambda x: F.broadcast_to(x, (4, 6)), x),
    "caught write": lambda x: caught(lambda x: written(F.ones((4, 6)), slice(None)) + x, x),
    "caught choice": lambda x: caught(lambda x: F.where(F.ones((4, 6)) > 0, x, x), x),
    "caught loss": lambda x: caught(lambda x: F.nn.cross_entropy(x, F.zeros((4,), dtype="int32")), x),
    "caught mask": lambda x: caught(lambda x: x[F.ones((4, 6)) > 0], x),
    "caught below": lambda x: caught(lambda x: caught(lambda x: x.reshape(7, 6), x.reshape(4, 6)), x),
    "rows": lambda x: x[:2] * 2,
    "a row": lambda x: x[0:1] + x,
    "the first": lambda x: x[0] + x,
    "the last row": lambda x: x[-1:] + 0 * x,
    "all but the last": lambda x: x[:-1],
    "all but the first": lambda x: x[1:],
    "rows by number": lambda x: x[[0, 0]],
    "rows with a new axis": lambda x: x[None, :2],
    "rows with an array": lambda x: x[:2, [0, 2]],
    "even rows": lambda x: x[::2],
    "new axis in front": lambda x: x[None] * 2,
    "expand in front": lambda x: F.expand_dims(x, 0),
    "expand both": lambda x: F.expand_dims(x, (0, 2)),
    "pattern": lambda x: x.transpose("x", 0, 1),
    "stack in front": lambda x: F.stack([x, x], axis=0),
    "stack and join": lambda x: F.stack([x, x], axis=0).reshape(-1, 6),
    "squeeze all": lambda x: F.squeeze(x),
    "squeeze all behind": lambda x: F.squeeze(F.expand_dims(x, 1)),
    "reshape 2": lambda x: x.reshape(2, -1),
    "reshape 1": lambda x: x.reshape(1, -1),
    "reshape 3": lambda x: x.reshape(3, -1),
    "reshape 2, -1, 3": lambda x: x.reshape(2, -1, 3),
    "reshape -1": lambda x: x.reshape(-1),
    "reshape -1, 1": lambda x: x.reshape(-1, 1),
    "reshape -1, 2": lambda x: x.reshape(-1, 2),
    "reshape behind": lambda x: x.reshape(6, -1),
    "reshape numbers": lambda x: x.reshape(6, x.shape[0]),
    "reshape to one": lambda x: x.reshape(1, 6 * x.shape[0]),
    "reshape plus": lambda x: x.reshape(x.shape[0] + 1, -1),
    "reshape of two": lambda x: x.reshape(x.shape[0] * 2, -1),
    "reshape twice": lambda x: x.reshape(x.shape[0] * 2, 3).reshape(2, -1, 3),
    "flatten all": lambda x: F.flatten(x),
    "flatten front": lambda x: F.flatten(x.reshape(-1, 2, 3), 0, 1),
    "swap": lambda x: x.transpose(1, 0).reshape(2, -1),
    "swap rows": lambda x: x.transpose(1, 0)[:, :2],
    "swap len": lambda x: x * len(x.transpose(1, 0)),
    "swap shape": lambda x: x * int(x.transpose(1, 0).shape[1]),
    "join": lambda x: x.reshape(x.shape[0], 2, 3).transpose(1, 0, 2).reshape(2 * x.shape[0], 3),
    "join -1": lambda x: x.reshape(-1, 2, 3).transpose(1, 0, 2).reshape(-1, 3),
    "write behind the first": lambda x: written(x, slice(1, None)),
    "write behind the second, a column": lambda x: written(x, (slice(2, None), 0)),
    "write before the last": lambda x: written(x, slice(None, -1)),
    "write none": lambda x: written(x, slice(3, 3)),
    "roll": lambda x: F.roll(x, 1, axis=0),
    "roll all": lambda x: F.roll(x, 1),
    "roll columns": lambda x: F.roll(x, 1, axis=1),
    "flip": lambda x: F.flip(x, axis=0) if hasattr(F, "flip") else x,
    "repeat": lambda x: F.repeat(x, 2, axis=0),
    "repeat flat": lambda x: F.repeat(x, 2),
    "tile": lambda x: F.tile(x, (2, 1)),
    "tile more": lambda x: F.tile(x, (2, 1, 1)),
    "tile columns": lambda x: F.tile(x, (1, 2)),
    "split": lambda x: F.concat(F.split(x, x.shape[0], axis=0)[::-1], axis=0),
    "split 1": lambda x: F.split(x, 1, axis=0)[0],
    "concat": lambda x: F.concat([x, x], axis=0),
    "concat zeros": lambda x: F.concat([x, F.zeros_like(x)], axis=0),
    "concat ones behind": lambda x: F.concat([F.ones_like(x), x], axis=1),
    "full_like": lambda x: F.concat([F.full_like(x[:, :1], 3.0), x], axis=1),
    "plus zeros": lambda x: F.sum(F.zeros_like(x) + 1) + x,
    "concat a table": lambda x: F.concat([x, TABLE], axis=0),
    "plus a table": lambda x: F.concat([x, x], axis=0)[:2] + TABLE,
    "ones": lambda x: F.ones(x.shape).sum() + x,
    "ones 2": lambda x: F.concat([x, F.ones((2, 6))], axis=0),
    "eye": lambda x: F.matmul(F.eye(x.shape[0]), x),
    "arange": lambda x: x * F.arange(x.shape[0]).reshape(-1, 1),
    "linspace": lambda x: x + F.linspace(0, 1, x.shape[0]).reshape(-1, 1),
    "triangle": lambda x: F.tril(F.matmul(x, x.transpose(1, 0))),
    "diag": lambda x: F.diag(F.matmul(x, x.transpose(1, 0))),
    "spread": lambda x: F.broadcast_to(W[:1, :1], x.shape) + x,
    "spread rows": lambda x: F.concat([F.broadcast_to(W[:1, :1], (x.shape[0], 1)), x], axis=1),
    "spread a mean": lambda x: F.broadcast_to(x.mean(axis=0, keepdims=True), x.shape),
    "spread 4": lambda x: F.broadcast_to(x.mean(axis=0, keepdims=True), (4, 6)),
    "spread in front": lambda x: F.broadcast_to(x, (2, x.shape[0], 6)),
    "spread None": lambda x: F.broadcast_to(F.expand_dims(x, 1), (None, 2, None)),
    "len": lambda x: F.sum(x, axis=0) / len(x),
    "int": lambda x: F.sum(x, axis=0) / int(x.shape[0]),
    "size": lambda x: x.sum() / x.size,
    "loop": lambda x: sum(row for row in x),
    "branch": lambda x: x * 2 if x.shape[0] > 2 else x,
    "even": lambda x: x[: x.shape[0] // 2 + 1],
    "written": lambda x: F.concat([x, x], axis=0).sum() + written(x, 0),
    "written rows": lambda x: written(x, slice(0, 2)),
    "written columns": lambda x: written(x, (slice(None), 1)),
    "written all": lambda x: written(x, slice(None)),
    "written with an array": lambda x: written(x, (slice(0, 2), [0, 1])),
    "written by a mask": lambda x: written(x, x > 3),
    "pad": lambda x: F.nn.pad(x, ((1, 0), (0, 0))),
    "pad columns": lambda x: F.nn.pad(x, ((0, 0), (1, 2)), mode="reflect"),
    "sort rows": lambda x: F.sort(x.transpose(1, 0))[0],
    "argsort rows": lambda x: F.argsort(x.transpose(1, 0)),
    "topk rows": lambda x: F.topk(x.transpose(1, 0), 1)[0],
    "bags by offsets": lambda x: F.embedding_bag(F.argmax(x, axis=1), W, Tensor([0, 1])) + 0 * x.sum(),
    "offsets": lambda x: F.embedding_bag(F.arange(7, dtype="int32") % 5, W, F.argmax(x, axis=1) * 0),
    "channels": lambda x: F.dropout2d(x, 0.5, training=False),
    "scan": lambda x: F.scan(lambda c, r: (c + r, c), x[0] * 0, x)[1],
    "scan columns": lambda x: F.scan(lambda c, r: (c + r, c), x[:, 0] * 0, x.transpose(1, 0))[1],
    "cond": lambda x: F.cond(x.sum() > 3, lambda v: v * 2, lambda v: v, x),
    "meshgrid": lambda x: F.meshgrid(x[:, 0], ROW)[0],
    "cov": lambda x: F.matmul(x.transpose(1, 0), x) / (len(x) + 1),
    "interpolate": lambda x: F.nn.interpolate(x.reshape(-1, 1, 2, 3), scale_factor=2),
    "batched": lambda x: F.matmul(x.reshape(-1, 2, 3), x.reshape(-1, 3, 2)),
    "outer": lambda x: F.matmul(x[:, :, None], x[:, None]),
    "cross": lambda x: F.cross(x.reshape(-1, 2, 3), x.reshape(-1, 2, 3) + 1, axis=2) if hasattr(F, "cross") else x,
    "std": lambda x: F.std(x, axis=0) + F.var(x),
    "bincount": lambda x: F.scatter_add(F.zeros((6,)), 0, F.argmax(x, axis=1), x[:, 0]) if hasattr(F, "scatter_add") else x,
    "complex": lambda x: F.abs(F.fft.rfft(x)) if hasattr(F, "fft") else x,
    "searchsorted": lambda x: F.searchsorted(ROW, x) if hasattr(F, "searchsorted") else x,
    "nll of all": lambda x: F.loss.cross_entropy(x, F.argmax(x, axis=1), label_smooth=0.1),
    "binary": lambda x: F.loss.binary_cross_entropy(x, F.sigmoid(x)),
    "sum of the loss": lambda x: F.loss.square_loss(x, x * 2, reduction="sum") + F.loss.square_loss(x, x, reduction="none"),
    "frobenius": lambda x: F.norm(F.matmul(x, W), ord=1),
    "lstm": lambda x: RNN(F.expand_dims(x, 1))[0],
    "gather rows": lambda x: F.gather(x, 0, F.argmax(x, axis=0, keepdims=True)),
    "einsum": lambda x: F.einsum("ij,jk->ik", x, W),
    "index rows": lambda x: F.embedding(F.argmax(x, axis=1) % 2, x),
}
# ---- of [batch, 3, 4, 4] images
IMAGES_FOLLOW = {
    "conv": lambda x: F.relu(CONV(x)),
    "norm": lambda x: NORM(x) + x,
    "group norm": lambda x: GROUP(x),
    "depthwise": lambda x: DEPTHWISE(x),
    "pools": lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2) + F.adaptive_avg_pool2d(x, 2),
    "global pool": lambda x: F.flatten(F.mean(x, axis=(2, 3), keepdims=True), 1),
    "head": lambda x: F.matmul(F.flatten(CONV(x), 1), Parameter(np.ones((16, 2), "float32"))),
    "shuffle": lambda x: F.pixel_shuffle(F.concat([x, x, x, x], axis=1), 2),
    "columns": lambda x: F.unfold(x, 2, padding=1, stride=2),
    "unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "upsample": lambda x: M.Upsample(scale_factor=2)(x),
    "transposed": lambda x: F.conv_transpose1d(F.flatten(x, 2), Parameter(np.ones((3, 2, 3), "float32")), stride=2),
    "resize": lambda x: F.nn.interpolate(x, size=(6, 6), mode="bilinear"),
    "swap": lambda x: x.transpose(0, 2, 3, 1).reshape(x.shape[0], -1, 3),
    "l2": lambda x: F.normalize(F.flatten(x, 1), axis=1),
    "channels": lambda x: F.concat(F.split(x, 3, axis=1)[::-1], axis=1),
}
IMAGES = {
    "columns and back": lambda x: F.fold(F.unfold(x, 2), 4, 2),
    "tokens": lambda x: F.concat([F.broadcast_to(ROW[:4].reshape(1, 1, 4), (x.shape[0], 1, 4)), x[:, :, 0]], axis=1),
    "windows": lambda x: x.reshape(x.shape[0], 3, 2, 2, 2, 2).transpose(0, 2, 4, 1, 3, 5).reshape(-1, 12),
    "windows of 4": lambda x: x.reshape(-1, 3, 2, 2, 2, 2).transpose(0, 2, 4, 1, 3, 5).reshape(x.shape[0] * 4, 12),
    "batch in the middle": lambda x: x.transpose(1, 0, 2, 3).reshape(3, -1, 16),
    "batch in the middle, summed": lambda x: x.transpose(1, 0, 2, 3).reshape(3, -1).sum(axis=1),
    "norm of training": lambda x: F.batch_norm(x, Tensor(np.zeros((1, 3, 1, 1), "float32")), Tensor(np.ones((1, 3, 1, 1), "float32")), training=True)[0],
    "unfold": lambda x: F.sliding_window(x, 2) if hasattr(F, "sliding_window") else x,
    "warp": lambda x: F.vision.warp_perspective(x, F.broadcast_to(F.eye(3).reshape(1, 3, 3), (x.shape[0], 3, 3)), (2, 2)),
    "squeezed pool": lambda x: F.squeeze(F.mean(x, axis=(2, 3), keepdims=True)),
    "squeezed pool of axes": lambda x: F.squeeze(F.mean(x, axis=(2, 3), keepdims=True), (2, 3)),
    "attention": lambda x: ATTENTION(*[F.concat([x, x[..., :2]], axis=3).reshape(-1, 12, 6)] * 3)[0],
    "attention of rows": lambda x: ATTENTION(*[F.concat([x, x[..., :2]], axis=3)[:, 0]] * 3)[0],
    "l2 of the batch": lambda x: F.normalize(F.flatten(x, 1), axis=0),
    "mixed": lambda x: 0.5 * x + 0.5 * x[::-1],
    "ranks": lambda x: F.expand_dims(x[:, 0, 0, 0], 1) + F.expand_dims(x[:, 0, 0, 0], 0),
}


def values(batch, images):
    shape = (batch, 3, 4, 4) if images else (batch, 6)
    return (np.arange(int(np.prod(shape))) * 5 % 13).astype("float32").reshape(shape) / 2


BODIES = [(name, body, False) for name, body in (FOLLOW | OTHERS).items()]
BODIES += [(name, body, True) for name, body in (IMAGES_FOLLOW | IMAGES).items()]


def dumped(function, x, **options):
    traced = trace(function, symbolic=True, capture_as_const=True, **options)
    traced(*map(Tensor, x if isinstance(x, tuple) else (x,)))
    file = io.BytesIO()
    traced.dump(file)
    file.seek(0)
    return file
