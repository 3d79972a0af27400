"""GGUF files: metadata, plain tensors, blocks with few bits, and what is refused."""

import io
import math
import struct

import numpy as np
import pytest
from writing import DTYPES, floats, gguf, gguf_of, halves, tensor, text, value_of, written

import megengine as mge
import megengine.module as M
from megengine import fx
from megengine.serialization import QuantizedBlocks


@pytest.fixture(params=[False, True], ids=["read", "mapped"])
def mmap(request):
    return request.param


# ---- values of one block, element by element, as the documentation of ggml has them


def scales_of(content):
    return np.frombuffer(content, "<f2").astype(np.float32)


def nibbles(qs):
    return [byte & 15 for byte in qs] + [byte >> 4 for byte in qs]


def with_fifth_bits(qh, qs):
    (bits,) = struct.unpack("<I", qh)
    return [q + 16 * (bits >> i & 1) for i, q in enumerate(nibbles(qs))]


def q4_0(block):
    (d,) = scales_of(block[:2])
    return [d * np.float32(q - 8) for q in nibbles(block[2:])]


def q4_1(block):
    d, m = scales_of(block[:4])
    return [d * np.float32(q) + m for q in nibbles(block[4:])]


def q5_0(block):
    (d,) = scales_of(block[:2])
    return [d * np.float32(q - 16) for q in with_fifth_bits(block[2:6], block[6:])]


def q5_1(block):
    d, m = scales_of(block[:4])
    return [d * np.float32(q) + m for q in with_fifth_bits(block[4:8], block[8:])]


def q8_0(block):
    (d,) = scales_of(block[:2])
    return [d * np.float32(q) for q in np.frombuffer(block[2:], np.int8)]


def six_bits(scales, part):
    """Scale and least value of a part of a Q4_K or Q5_K block."""
    if part < 4:
        return scales[part] & 63, scales[part + 4] & 63
    low = scales[part + 4]
    return low & 15 | (scales[part - 4] >> 6) << 4, low >> 4 | (scales[part] >> 6) << 4


def of_parts(block, integer):
    d, dmin = scales_of(block[:4])
    found = []
    for i in range(256):
        scale, least = six_bits(block[4:16], i // 32)
        found.append(d * np.float32(scale) * np.float32(integer(i)) - dmin * np.float32(least))
    return found


def four_bits(qs, i):
    """Integer i of 256: 64 of them lie in 32 bytes."""
    byte = qs[i // 64 * 32 + i % 32]
    return byte >> 4 if i % 64 >= 32 else byte & 15


def q4_k(block):
    return of_parts(block, lambda i: four_bits(block[16:], i))


def q5_k(block):
    qh, qs = block[16:48], block[48:]
    return of_parts(block, lambda i: four_bits(qs, i) + 16 * (qh[i % 32] >> i // 32 & 1))


def q6_k(block):
    ql, qh, scales = block[:128], block[128:192], np.frombuffer(block[192:208], np.int8)
    (d,) = scales_of(block[208:])
    found = []
    for i in range(256):
        side, row, column = i // 128, i % 128 // 32, i % 32
        low = ql[side * 64 + row % 2 * 32 + column]
        high = qh[side * 32 + column] >> 2 * row & 3
        q = (low >> 4 if row >= 2 else low & 15) | high << 4
        found.append(d * np.float32(scales[i // 16]) * np.float32(q - 32))
    return found


# By format: elements of a block, places of its float16, its bytes, its values.
BLOCKS = {
    "Q4_0": (32, [0], 18, q4_0),
    "Q4_1": (32, [0, 2], 20, q4_1),
    "Q5_0": (32, [0], 22, q5_0),
    "Q5_1": (32, [0, 2], 24, q5_1),
    "Q8_0": (32, [0], 34, q8_0),
    "Q4_K": (256, [0, 2], 144, q4_k),
    "Q5_K": (256, [0, 2], 176, q5_k),
    "Q6_K": (256, [208], 210, q6_k),
}


def random_blocks(format, count):
    """Bytes of blocks whose integers are random and whose scales are finite."""
    _, places, size, _ = BLOCKS[format]
    random = np.random.RandomState(size)
    blocks = random.randint(0, 256, (count, size)).astype(np.uint8)
    for place in places:
        scales = random.uniform(-2, 2, count).astype("<f2")
        blocks[:, place : place + 2] = scales.view(np.uint8).reshape(count, 2)
    return blocks.tobytes()


@pytest.mark.parametrize("format", BLOCKS)
def test_blocks_have_the_values_of_the_documentation(format, mmap, tmp_path):
    elements, _, size, values = BLOCKS[format]
    content, shape = random_blocks(format, 6), (3, 2 * elements)
    path = written(tmp_path / "a.gguf", gguf({"w": (format, shape, content)}))
    found = mge.load(path, mmap=mmap)["w"]
    assert isinstance(found, QuantizedBlocks) and found.blocks.shape == (3, 2)
    assert found.nbytes == len(content) and found.blocks.tobytes() == content
    wanted = [values(content[i * size : (i + 1) * size]) for i in range(6)]
    assert np.array_equal(found.dequantize(), np.array(wanted, np.float32).reshape(shape))
    assert np.array_equal(np.asarray(found), found.dequantize())
    assert repr(found) == f"QuantizedBlocks({format}, {list(shape)}, {len(content)} bytes)"


def test_scales_and_integers_are_views_of_the_file(mmap, tmp_path):
    content = halves(0.5) + bytes(range(16)) + halves(-2) + bytes(range(16, 32))
    path = written(tmp_path / "a.gguf", gguf({"w": ("Q4_0", (1, 64), content)}))
    found = mge.load(path, mmap=mmap)["w"]
    assert found.blocks["d"].tolist() == [[0.5, -2]] and found.group == 32
    assert found.blocks["qs"][0, 1].tolist() == list(range(16, 32))
    assert found.blocks.base is not None and found.blocks.flags.writeable is not mmap


def test_a_scale_that_is_no_number_gives_none():
    values = QuantizedBlocks("Q4_0", (32,), np.full(18, 0xFF, np.uint8)).dequantize()
    assert np.isnan(values).all()


def test_many_blocks_are_converted_in_parts():
    count = (1 << 18) // 32 + 3
    content = np.frombuffer((halves(1) + bytes(range(32))) * count, np.uint8)
    values = QuantizedBlocks("Q8_0", (count, 32), content).dequantize()
    assert np.array_equal(values, np.tile(np.arange(32, dtype=np.float32), (count, 1)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("Q4_7", (32,), 18), "unknown format 'Q4_7'"),
        (("Q4_0", (33,), 18), "do not fill the last axis"),
        (("Q4_0", (64,), 18), "takes 36 bytes as Q4_0, got 18"),
    ],
)
def test_blocks_of_a_wrong_size_are_refused(given, words):
    format, shape, size = given
    with pytest.raises(ValueError, match=words):
        QuantizedBlocks(format, shape, np.zeros(size, np.uint8))


def test_blocks_are_not_an_array_without_a_copy():
    with pytest.raises(ValueError, match="its values are computed"):
        np.array(QuantizedBlocks("Q4_0", (32,), np.zeros(18, np.uint8)), copy=False)


def test_a_module_takes_blocks_for_their_values(mmap, tmp_path):
    content = gguf({"weight": ("Q4_0", (2, 32), random_blocks("Q4_0", 2))})
    found = mge.load(written(tmp_path / "a.gguf", content), mmap=mmap)
    layer = M.Linear(32, 2, bias=False)
    layer.load_state_dict(found)
    assert np.array_equal(layer.weight.numpy(), found["weight"].dequantize())
    with pytest.raises(ValueError, match="param `weight` shape mismatch"):
        M.Linear(16, 4, bias=False).load_state_dict(found)


# ---- plain tensors, metadata


def file_of(format, shape, mmap, tmp_path):
    content = gguf({"weight": (format, shape, random_blocks(format, math.prod(shape) // 32))})
    return mge.load(written(tmp_path / "m.gguf", content), mmap=mmap)


@pytest.mark.parametrize(("format", "bits"), [("Q4_0", 4), ("Q8_0", 8)])
def test_layers_of_blocks_read_a_file_as_it_is(format, bits, mmap, tmp_path):
    weights = file_of(format, (6, 64), mmap, tmp_path)
    values, x = weights["weight"].dequantize(), np.random.default_rng(1).normal(size=(3, 64)).astype(np.float32)
    linear = M.quantized.BlockwiseLinear.from_blocks(weights["weight"], bits=bits)
    np.testing.assert_allclose(linear(mge.Tensor(x)).numpy(), x @ values.T, rtol=1e-5, atol=1e-4)
    words = M.quantized.BlockwiseEmbedding.from_blocks(weights["weight"], bits=bits)
    np.testing.assert_array_equal(words(mge.Tensor([5, 0])).numpy(), values[[5, 0]])
    for source in (weights, lambda path, target: weights[path]):
        loaded = M.quantized.BlockwiseLinear(64, 6, bias=False, bits=bits)
        loaded.load_state_dict(source)
        np.testing.assert_array_equal(loaded(mge.Tensor(x)).numpy(), linear(mge.Tensor(x)).numpy())
    before = weights["weight"].blocks.tobytes()
    loaded.weight[...] = 0
    assert weights["weight"].blocks.tobytes() == before


@pytest.mark.parametrize("format", ["Q8_0", "Q4_1", "Q5_0"])
@pytest.mark.parametrize("group", [32, 64])
def test_layers_of_blocks_refuse_other_formats(format, group, mmap, tmp_path):
    """32 weights of 8 bits take as many bytes as 64 of 4 bits."""
    weights = file_of(format, (6, 64), mmap, tmp_path)
    with pytest.raises(ValueError, match=f"blocks of 4 bits does not read {format}"):
        M.quantized.BlockwiseLinear.from_blocks(weights["weight"])
    layer = M.quantized.BlockwiseLinear(2 * group, 6, bias=False, group=group)
    with pytest.raises(ValueError, match=f"blocks of 4 bits does not read {format}"):
        layer.load_state_dict(weights)
    with pytest.raises(ValueError, match="param `weight` shape mismatch"):
        M.quantized.BlockwiseLinear(128, 6, bias=False).load_state_dict(file_of("Q4_0", (6, 64), mmap, tmp_path))


@pytest.mark.parametrize("word", ["F32", "F16", "BF16", "I8", "I16", "I32", "I64", "F64"])
def test_plain_tensors(word, mmap, tmp_path):
    array = np.arange(6).reshape(2, 3).astype(DTYPES[word])
    content = gguf({"before": ("I8", (1,), b"1"), "x": (word, (2, 3), array.tobytes())})
    x = mge.load(written(tmp_path / "a.gguf", content), mmap=mmap)["x"]
    assert x.shape == (2, 3) and x.dtype == array.dtype and x.numpy().tobytes() == array.tobytes()


def test_metadata(mmap, tmp_path):
    metadata = {"general.architecture": "llama", "n": 3, "f": 0.5, "is": True, "numbers": [1, 2]}
    metadata |= {"words": ["a", "\u00e9"], "deep": [["x"], ["y"]]}
    found = mge.load(written(tmp_path / "a.gguf", gguf({}, metadata)), mmap=mmap).metadata
    assert found.pop("numbers").tolist() == metadata.pop("numbers") and found == metadata


@pytest.mark.parametrize(("version", "alignment"), [(2, 32), (3, 128)])
def test_another_version_and_alignment(version, alignment, mmap, tmp_path):
    tensors = {"a": ("F32", (1,), floats(1)), "b": ("F32", (1,), floats(2))}
    path = written(tmp_path / "a.gguf", gguf(tensors, alignment=alignment, version=version))
    assert [each.tolist() for each in mge.load(path, mmap=mmap).values()] == [[1], [2]]


# ---- damaged files


def with_key(content):
    """A file whose only key has this content: kind and value."""
    return gguf_of(0, 1, text("k") + content)


def with_tensor(*told, data=bytes(64)):
    return gguf_of(1, 0, tensor("x", *told), data)


ONE = gguf({"x": ("F32", (2,), bytes(8))})
TWO = tensor("x", "F32", (16,), 0) + tensor("y", "F32", (1,), 32)
DAMAGED = {
    "a truncated header": (ONE[:26], "it has 26 bytes, a number in its header ends at 32"),
    "a truncated file": (ONE[:-1], "'x' ends at byte 8 of its data, of which it has 7"),
    "a large count": (gguf_of(1 << 40, 0, b""), "holds 1099511627776 values"),
    "a large text": (gguf_of(1, 0, struct.pack("<Q", 1 << 60)), "a text in its header ends at"),
    "a large list": (with_key(struct.pack("<IIQ", 9, 4, 1 << 60)), "a list in its header ends at"),
    "many texts": (with_key(struct.pack("<IIQ", 9, 8, 1 << 40)), "values; .* are the limit"),
    "nested lists": (with_key(struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9), "4 deep"),
    "an unknown kind": (with_key(struct.pack("<I", 13)), "the unknown kind 13"),
    "a key twice": (gguf_of(0, 2, (text("k") + value_of(1)) * 2), "the key 'k' twice"),
    "a tensor twice": (gguf_of(2, 0, tensor("x", "I8", (1,), 0) * 2, bytes(64)), "'x' twice"),
    "an overlap": (gguf_of(2, 0, TWO, bytes(64)), "'y' overlaps another tensor at byte 32"),
    "a place behind the end": (with_tensor("F32", (1,), 1 << 40), "'x' ends at byte"),
    "a place between": (with_tensor("F32", (1,), 4), "'x' begins at byte 4 .* no multiple of 32"),
    "large extents": (with_tensor("F32", (1 << 62, 1 << 62), 0), "'x' ends at byte"),
    "large extents of nothing": (with_tensor("F32", (0, 1 << 63), 0), "which no tensor can have"),
    "many axes": (with_tensor("F32", (1,) * 9, 0), "'x' has 9 axes"),
    "rows without an end": (with_tensor("Q4_0", (33,), 0), "'x' is Q4_0 .* blocks of 32 do not"),
    "an unread format": (with_tensor(23, (256,), 0), "'x' has the dtype 'IQ4_XS'.*convert"),
    "an unknown format": (with_tensor(99, (256,), 0), "'x' has the dtype 'number 99'"),
    "another version": (gguf({}, version=1), "it has version 1"),
    "big-endian numbers": (gguf({}, version=3 << 24), "its numbers are big-endian"),
    "an alignment of 0": (gguf({}, {"general.alignment": 0}), "general.alignment is 0"),
    "no UTF-8": (gguf_of(0, 1, struct.pack("<Q", 1) + b"\xff"), "no UTF-8"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_file_is_refused(what, mmap, tmp_path):
    content, words = DAMAGED[what]
    with pytest.raises(RuntimeError, match=f"(?s)a.gguf: .*{words}") as told:
        mge.load(written(tmp_path / "a.gguf", content), mmap=mmap)
    assert "\n  fix: " in str(told.value) and len(str(told.value).splitlines()) <= 6


def test_readers_of_models_say_what_a_gguf_file_is():
    words = "it is a GGUF file\n  fix: load its tensors with megengine.load"
    with pytest.raises(fx.ModelFileError, match=words):
        fx.load(io.BytesIO(ONE))
