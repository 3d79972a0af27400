"""Attention of parts of tensors: on a GPU the bits are those of whole tensors, and programs at level 3 copy no heads there."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.core import ops
from megengine.jit import keep, trace

# n, heads, heads of keys, queries, keys, width, width of values: whole tiles, more than one, odd ones, wider than a block.
SIZES = [(2, 2, 2, 64, 64, 16, 16), (2, 4, 2, 70, 130, 8, 8), (1, 3, 1, 33, 21, 5, 7), (2, 1, 1, 17, 17, 144, 144), (1, 2, 2, 65, 65, 64, 32)]
HAS_GPU = "gpu" in Tensor(0).device.physical_name


def strides_of(extents, order):
    """Those of a row-major tensor of the axes in that order; 0 along an extent of 1."""
    strides, step = [0] * len(extents), 1
    for axis in reversed(order):
        if extents[axis] > 1:
            strides[axis] = step
        step *= extents[axis]
    return strides


class Part:
    """A part [n, heads, length, width] of a tensor of so many elements, which others share."""

    def __init__(self, extents, offset, strides, count):
        self.extents, self.offset, self.strides, self.count = extents, offset, [*strides[:3], 1], count
        for axis in range(3):
            if extents[axis] == 1:
                self.strides[axis] = 0

    @property
    def view(self):
        return (self.offset, *self.strides[:3])

    def of(self, flat):
        bytes_ = [stride * flat.itemsize for stride in self.strides]
        return np.lib.stride_tricks.as_strided(flat[self.offset :], self.extents, bytes_)


def apart(*extents):
    """Each in a tensor of its own, [n, length, heads, width]."""
    return [[Part(e, 0, strides_of(e, (0, 2, 1, 3)), int(np.prod(e)))] for e in extents]


def whole(*extents):
    return [[Part(e, 0, strides_of(e, (0, 1, 2, 3)), int(np.prod(e)))] for e in extents]


def beside(*extents):
    """[n, length, heads of the first, of the second, ..., width]: those of one n, length and width."""
    groups = {}
    for e in extents:
        groups.setdefault((e[0], e[2], e[3]), []).append(e)
    made = {}
    for (n, length, width), members in groups.items():
        row, first = sum(e[1] for e in members) * width, 0
        made[n, length, width] = []
        for e in members:
            made[n, length, width].append(Part(e, first, (length * row, width, row), n * length * row))
            first += e[1] * width
    return list(made.values())


def inward(*extents):
    """[n, length, heads, parts, width]: those of one shape."""
    groups = {}
    for e in extents:
        groups.setdefault(e, []).append(e)
    return [
        [Part(e, i * e[3], (e[2] * e[1] * len(g) * e[3], len(g) * e[3], e[1] * len(g) * e[3]), int(np.prod(e)) * len(g)) for i in range(len(g))]
        for e, g in groups.items()
    ]


def above(*extents):
    """[parts, length, n, heads, width]: those of one shape."""
    groups = {}
    for e in extents:
        groups.setdefault(e, []).append(e)
    return [
        [Part(e, i * int(np.prod(e)), strides_of(e, (2, 0, 1, 3)), int(np.prod(e)) * len(g)) for i in range(len(g))] for e, g in groups.items()
    ]


LAYOUTS = [apart, beside, inward, above]


def laid_out(layout, *extents):
    """The part of each, and the number of the tensor that it is in; tensors are numbered as they come."""
    tensors = layout(*extents)
    found, numbers = [], {}
    taken = [0] * len(tensors)
    for e in extents:
        at = next(i for i, parts in enumerate(tensors) if taken[i] < len(parts) and parts[taken[i]].extents == e)
        found.append((tensors[at][taken[at]], numbers.setdefault(at, len(numbers))))
        taken[at] += 1
    return found


def masks_of(kind, size, own):
    n, heads, _, queries, keys, _, _ = size
    if kind == "mask":
        mask = own.normal(size=(n, 1, queries, keys)).astype(np.float32)
        return [Tensor(mask), Tensor(np.where(np.arange(keys) % 5 == 1, -np.inf, 0).astype(np.float32).reshape(1, 1, 1, keys))], {"masked": 2}
    if kind == "selection":
        return [Tensor(np.arange(keys).reshape(1, 1, 1, -1) % 3 < 2), Tensor(np.full((1, 1, 1, 1), -7, np.float32))], {"hides": 1, "zeros": 1}
    if kind == "dropout":
        return [Tensor(np.array([3, 0, 11, 0], np.int32))], {"drop_prob": 0.3}
    return [], {"causal": int(kind == "causal"), "zeros": 1}


def bits(x):
    return np.ascontiguousarray(x).view({2: np.uint16, 4: np.uint32}[x.itemsize])


def placed(parts, arrays):
    """The tensors that hold the arrays, one for each part, and elsewhere ones."""
    flats = {}
    for (part, number), array in zip(parts, arrays, strict=True):
        flat = flats.setdefault(number, np.ones(part.count, array.dtype))
        part.of(flat)[...] = array
    return [Tensor(flats[number]) for _, number in parts]


def both_ways(layout, dtype, kind, size):
    """y, lse, dq, dk and dv of whole tensors, and of parts."""
    own = np.random.default_rng((5, *size))
    n, heads, key_heads, queries, keys, width, value_width = size
    q, k, v, y = (n, heads, queries, width), (n, key_heads, keys, width), (n, key_heads, keys, value_width), (n, heads, queries, value_width)
    tensors = [Tensor(own.normal(size=shape).astype(np.float32)).astype(dtype) for shape in (q, k, v, y)]
    more, attrs = masks_of(kind, size, own)
    attrs["scale"] = 0.3
    want = list(ops.attention(*tensors[:3], *more, **attrs))
    want += ops.attention_grad(*tensors[:3], *want, tensors[3], *more, **attrs)

    numbers = [x.numpy() for x in tensors]
    ins, (out,) = laid_out(layout, q, k, v), laid_out(layout, y)
    given = placed(ins, numbers[:3])
    views = [part.view for part, _ in ins]
    attrs["extents"] = (n, heads, key_heads, queries, keys, width, value_width)
    made, lse = ops.attention_of_parts(*given, *more, **attrs, views=sum([*views, out[0].view], ()))
    (dy,), gradients = laid_out(layout, y), laid_out(layout, q, k, v)
    (given_dy,) = placed([dy], numbers[3:])
    all_views = sum([*views, out[0].view, dy[0].view, *(part.view for part, _ in gradients)], ())
    grads = ops.attention_grad_of_parts(*given, made, lse, given_dy, *more, **attrs, views=all_views, outputs=tuple(number for _, number in gradients))
    grads = grads if isinstance(grads, tuple) else (grads,)
    got = [out[0].of(made.numpy()), lse.numpy()]
    got += [part.of(grads[number].numpy()) for part, number in gradients]
    return [x.numpy() for x in want], got


@pytest.mark.parametrize("kind", ["all", "causal", "mask", "selection", "dropout"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_parts_have_the_bits_of_whole_tensors(size, layout, dtype, kind):
    """On a CPU parts are taken and set by slices around the op; on a GPU its kernels and cuDNN's take them as they lie."""
    want, got = both_ways(layout, dtype, kind, size)
    for name, a, b in zip(("y", "lse", "dq", "dk", "dv"), got, want, strict=True):
        if HAS_GPU:
            assert np.array_equal(bits(a), bits(b)), name
        else:  # the formulas of the op, as expanded
            a, b = a.astype(np.float64), b.astype(np.float64)
            assert np.abs(a - b).max() <= (2e-5 if dtype == "float32" else 2e-2) * max(1, np.abs(b).max()), name


WRONG = {
    "extents are 7 numbers of at least 1": {"extents": (1, 2, 2, 3, 3, 0, 4)},
    "there are 31 numbers of views, not 32": {"views": (0,) * 31},
    r"outputs number those of dq, dk and dv, from 0 on, not \[0, 2, 1\]": {"outputs": (0, 2, 1)},
    "is no box of 72 elements": {"views": (0, 0, 5, 24)},
    "from element 60 on": {"views": (60, 0, 4, 24)},
    "two results are written into one part of output 0": {"views": (0, 0, 4, 24, 8, 0, 4, 24, 8, 0, 4, 24)},
}


@pytest.mark.parametrize("words", WRONG)
def test_what_is_no_part_is_refused(words):
    """Two heads of three positions, of width 4, in the middle of a projection [3, 24]."""
    q, y = (0, 0, 4, 24, 8, 0, 4, 24, 16, 0, 4, 24), (0, 0, 4, 8)
    given, attrs = WRONG[words], {"extents": (1, 2, 2, 3, 3, 4, 4), "outputs": (0, 0, 0)}
    attrs.update({name: value for name, value in given.items() if name != "views"})
    attrs["views"] = q + y + y + q
    if "two results" in words:
        attrs["views"] = q + y + y + given["views"]
    elif "views" in given:
        attrs["views"] = given["views"] if len(given["views"]) == 31 else given["views"] + attrs["views"][4:]
    qkv, out, lse = F.ones((3, 24)), F.ones((3, 8)), F.ones((1, 2, 3))
    with pytest.raises((ValueError, RuntimeError), match=words):
        ops.attention_grad_of_parts(qkv, qkv, qkv, out, lse, out, scale=1.0, **attrs)


def test_parts_have_one_dtype():
    x = F.ones((24,))
    with pytest.raises((TypeError, ValueError, RuntimeError), match="of one dtype, not bf16"):
        ops.attention_of_parts(x, x.astype("bfloat16"), x, scale=1.0, extents=(1, 2, 2, 3, 3, 4, 4), views=(0, 0, 4, 8) * 4)


N, L, H, D = 2, 40, 3, 16
W = H * D


def heads(x, count=H):
    return F.transpose(x.reshape(N, L, count, -1), (0, 2, 1, 3))


def joined(y):
    return F.transpose(y, (0, 2, 1, 3)).reshape(N, L, -1)


def attend(q, k, v, **options):
    return joined(F.scaled_dot_product_attention(q, k, v, is_causal=True, **options))


def by_parts(qkv):
    split = qkv.reshape(N, L, 3, W)
    return attend(*(heads(split[:, :, i]) for i in range(3)))


def by_split(qkv):
    return attend(*map(heads, F.split(qkv, 3, axis=2)))


def by_columns(qkv):
    return attend(*(heads(qkv[:, :, i * W : (i + 1) * W]) for i in range(3)))


def by_turned_parts(qkv):
    split = F.transpose(qkv.reshape(N, L, 3, H, D), (2, 0, 3, 1, 4))
    return attend(split[0], split[1], split[2])


def by_inward_parts(qkv):
    split = qkv.reshape(N, L, H, 3, D)
    return attend(*(F.transpose(split[:, :, :, i], (0, 2, 1, 3)) for i in range(3)))


def with_fewer_heads_of_keys(qkv):
    """Four heads of queries to two of keys, and of values, of 18 columns each."""
    q, k, v = F.split(qkv, [72, 108], axis=2)
    return attend(heads(q, 4), heads(k, 2), heads(v, 2), enable_gqa=True)


def with_one_head_of_keys(qkv):
    q, k, v = F.split(qkv, [96, 120], axis=2)
    return attend(heads(q, 4), heads(k, 1), heads(v, 1), enable_gqa=True)


def as_two(qkv):
    """Queries apart, keys and values together."""
    q, kv = qkv[:, :, :W] * 2.0, qkv[:, :, W:] * 0.5
    return attend(heads(q), *map(heads, F.split(kv, 2, axis=2)))


def of_sums(qkv):
    """Parts that others read, too: their gradients are sums."""
    q, k, v = F.split(qkv, 3, axis=2)
    return attend(*map(heads, (q, k, v))) + v


def of_one_part(qkv):
    """Attention would keep all of it for one part."""
    q = heads(qkv[:, :, :W])
    return attend(q, q, q)


def with_marks(qkv):
    q, k, v = (keep(heads(x)) for x in F.split(qkv, 3, axis=2))
    return attend(q, k, v)


def step_of(function, dtype):
    qkv = mge.Parameter(np.random.default_rng(2).normal(size=(N, L, 3 * W)).astype(np.float32))
    weights = Tensor(np.random.default_rng(3).normal(size=(N, L, 1)).astype(np.float32))
    gm = GradManager().attach([qkv])

    def step():
        qkv.grad = None
        with gm:
            y = function((qkv * 1.5).astype(dtype)).astype("float32")
            gm.backward((F.tanh(y) * weights).sum())
        return y, qkv.grad

    return step


def run(function, dtype, **options):
    step = trace(step_of(function, dtype), symbolic=True, **options)
    for _ in range(2):
        found = [x.numpy() for x in step()]
    return found, [line.split()[1] for line in step.memory_plan().steps]


MOVES = ("transpose", "slice", "slice_set", "concat")
PLACED = [by_parts, by_split, by_columns, by_turned_parts, by_inward_parts, with_fewer_heads_of_keys, with_one_head_of_keys]
OTHERS = [as_two, of_sums, of_one_part, with_marks]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("function", PLACED + OTHERS, ids=lambda f: f.__name__)
def test_a_program_has_the_bits_of_level_2(function, dtype):
    """Exact: gradients of slices are not set in one tensor then, results and operands are parts."""
    got, steps = run(function, dtype, opt_level=3, numerics="exact")
    want, _ = run(function, dtype, opt_level=2, numerics="exact")
    for a, b in zip(got, want, strict=True):
        assert np.array_equal(bits(a), bits(b))
    assert ("attention_of_parts" in steps) == HAS_GPU


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("function", PLACED + OTHERS, ids=lambda f: f.__name__)
def test_no_heads_are_copied(function, dtype):
    got, steps = run(function, dtype, opt_level=3)
    want, _ = run(function, dtype, opt_level=2)
    for a, b in zip(got, want, strict=True):
        assert np.abs(a - b).max() <= (1e-5 if dtype == "float32" else 2e-2) * max(1, np.abs(b).max())
    if HAS_GPU and function in PLACED:
        assert [step for step in steps if step in MOVES] == []
    if function in (of_one_part, with_marks):
        assert any(step in MOVES for step in steps)
