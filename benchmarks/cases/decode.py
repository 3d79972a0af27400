"""How fast does a network of GPT-2's size write, token by token, and read a text: float32, and with int8 weights?"""

from functools import partial

import numpy as np
from case import Case, Subject, Target
from cases import _frameworks as on

LAYERS, WIDTH, HEADS, TOKENS, CONTEXT = on.size(12, 1), on.size(768, 96), 12, on.size(50257, 512), 1024
READ, FIRST = 128, 512  # tokens that are read at once; where writing begins
# Weights that each token needs: 12 * width^2 a block, and the scores.
WEIGHTS = LAYERS * 12 * WIDTH**2 + TOKENS * WIDTH


def weights():
    """By name, as the layers below are called; small enough that 12 layers of them give sound scores."""
    rng = np.random.RandomState(0)
    shapes = {"token": (TOKENS, WIDTH), "place": (CONTEXT, WIDTH)}
    for i in range(LAYERS):
        shapes |= {f"{i}.qkv": (3 * WIDTH, WIDTH), f"{i}.mix": (WIDTH, WIDTH), f"{i}.up": (4 * WIDTH, WIDTH), f"{i}.down": (WIDTH, 4 * WIDTH)}
    shapes["scores"] = (TOKENS, WIDTH)
    return {name: (rng.standard_normal(shape) * 0.02).astype(np.float32) for name, shape in shapes.items()}


def network(linear, norm, gelu, attend, swapped, weights):
    """function(tokens [n], places [n]) -> scores behind the last. attend(i, q, k, v, places): [1, heads, n, width / heads] each, over
    all so far. swapped(x): with axes 1 and 2 swapped.
    """

    def forward(tokens, places):
        x = weights["token"][tokens] + weights["place"][places]
        for i in range(LAYERS):
            qkv = linear(f"{i}.qkv", norm(x)).reshape(-1, 3, HEADS, WIDTH // HEADS)
            y = attend(i, *(swapped(qkv[:, k].reshape(1, -1, HEADS, WIDTH // HEADS)) for k in range(3)), places)
            x = x + linear(f"{i}.mix", swapped(y).reshape(-1, WIDTH))
            x = x + linear(f"{i}.down", gelu(linear(f"{i}.up", norm(x))))
        return linear("scores", norm(x[-1:]))

    return forward


def subject(step, put, read, reads):
    """step(tokens, places) -> scores. reads: how many tokens a call reads; 1: it writes."""
    tokens = np.random.RandomState(1).randint(0, TOKENS, CONTEXT).astype(np.int32)

    def call(first, count):
        return step(put(tokens[first : first + count]), put(np.arange(first, first + count, dtype=np.int32)))

    def run(calls):
        for i in range(calls):
            first = 0 if reads > 1 else FIRST + i % (CONTEXT - FIRST)
            read(call(first, reads))

    def result():
        scores = [read(call(0, READ)), *(read(call(READ + i, 1)) for i in range(3))]
        if reads == 1:
            call(0, FIRST)
        return {"scores": np.concatenate([s / np.abs(s).max() for s in scores])}

    return Subject(run, result)


def megjit(reads, is_int8=False):
    on.setup_megjit()
    import megengine as mge
    import megengine.functional as F
    import megengine.module as M
    from megengine.jit import trace
    from megengine.quantization import quantize_weights

    arrays = weights()
    values = {name: mge.Parameter(arrays[name]) for name in ("token", "place")}
    layers = {}
    for name in arrays.keys() - values:
        layers[name] = M.Linear(arrays[name].shape[1], arrays[name].shape[0], bias=False)
        layers[name].weight[...] = mge.tensor(arrays[name])
        if is_int8:
            layers[name] = quantize_weights(layers[name])
    shape = (1, HEADS, CONTEXT, WIDTH // HEADS)
    keys, cached = ([F.zeros(shape) for _ in range(LAYERS)] for _ in range(2))
    every = mge.tensor(np.arange(CONTEXT, dtype=np.int32))

    def attend(i, q, k, v, places):
        keys[i][:, :, places] = k
        cached[i][:, :, places] = v
        return F.scaled_dot_product_attention(q, keys[i], cached[i], every <= places.reshape(-1, 1))

    step = network(lambda name, x: layers[name](x), lambda x: F.layer_norm(x, (WIDTH,), False), F.gelu, attend, lambda x: x.transpose(0, 2, 1, 3), values)
    traced = trace(step, symbolic=True, opt_level=3, without_host=True)
    return subject(traced, mge.tensor, lambda y: y.numpy(), reads)


def torch(reads):
    import torch
    import torch.nn.functional as F

    on.setup_torch()
    values = {name: on.torch_of(array) for name, array in weights().items()}
    shape = (1, HEADS, CONTEXT, WIDTH // HEADS)
    keys, cached = ([torch.zeros(shape) for _ in range(LAYERS)] for _ in range(2))

    def attend(i, q, k, v, places):
        first, end = int(places[0]), int(places[-1]) + 1
        keys[i][:, :, first:end] = k
        cached[i][:, :, first:end] = v
        is_causal = first == 0 and end > 1
        return F.scaled_dot_product_attention(q, keys[i][:, :, :end], cached[i][:, :, :end], is_causal=is_causal)

    step = network(lambda name, x: F.linear(x, values[name]), lambda x: F.layer_norm(x, (WIDTH,)), F.gelu, attend, lambda x: x.transpose(1, 2), values)
    return subject(torch.inference_mode()(step), lambda array: on.torch_of(array).long(), on.numpy_of_torch, reads)


def case(name, label, reads, is_int8, at_most):
    work = {"flops": 2.0 * reads * WEIGHTS} if reads > 1 else {"bytes": WEIGHTS * (1.0 if is_int8 else 4.0)}
    return Case(
        name=name,
        builders={"megjit": partial(megjit, reads, is_int8), "torch": partial(torch, reads)},
        targets=(Target(label, against=("torch",), at_most=at_most),),
        rtol=0,
        atol=0.05 if is_int8 else 1e-3,
        rounds=(7, 3),
        seconds=0.5,
        work=work,
    )


CASES = [
    case("decode", "GPT-2 (124M), a token", 1, False, 1 / 1.2),
    case("decode_int8", "GPT-2 (124M), a token, int8 weights ÷ float32's", 1, True, 1 / 3),
    case("prefill", f"GPT-2 (124M), {READ} tokens read", READ, False, None),
    case("prefill_int8", f"GPT-2 (124M), {READ} tokens read, int8 weights ÷ float32's", READ, True, None),
]
