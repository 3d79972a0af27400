"""How fast does a network of GPT-2's size write, token by token, and read a text: float32, and with weights of 8 and 4 bits?"""

import os
import tempfile
from functools import partial
from pathlib import Path

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


def megjit(reads, bits=32):
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
        if bits < 32:
            layers[name] = quantize_weights(layers[name], bits=bits)
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


def write_gguf(path):
    """Write the network with blocks of 4 bits, as llama.cpp reads it."""
    import gguf

    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(4 * WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-5)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(TOKENS)
    names = {"token": "token_embd", "place": "position_embd", "scores": "output"}
    parts = {"qkv": "attn_qkv", "mix": "attn_output", "up": "ffn_up", "down": "ffn_down"}
    for name, array in weights().items():
        if name in ("token", "place"):
            writer.add_tensor(f"{names[name]}.weight", array)
            continue
        kind = gguf.GGMLQuantizationType.Q4_0
        layer, _, part = name.partition(".")
        called = f"blk.{layer}.{parts[part]}" if part else names[name]
        writer.add_tensor(f"{called}.weight", gguf.quants.quantize(array, kind), raw_dtype=kind)
        if part:
            writer.add_tensor(f"{called}.bias", np.zeros(len(array), np.float32))
    for norm in (*(f"blk.{i}.{part}_norm" for i in range(LAYERS) for part in ("attn", "ffn")), "output_norm"):
        writer.add_tensor(f"{norm}.weight", np.ones(WIDTH, np.float32))
        writer.add_tensor(f"{norm}.bias", np.zeros(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama_cpp(reads):
    import llama_cpp as llama

    silent = llama.llama_log_callback(lambda level, text, data: None)
    llama.llama_log_set(silent, None)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "network.gguf")
        write_gguf(path)
        llama.llama_backend_init()
        model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
    options = llama.llama_context_default_params()
    options.n_ctx, options.n_batch, options.n_ubatch = CONTEXT, FIRST, FIRST
    options.n_threads = options.n_threads_batch = int(os.environ.get("OMP_NUM_THREADS", 2))
    context = llama.llama_init_from_model(model, options)
    batch = llama.llama_batch_init(FIRST, 0, 1)

    def step(tokens, places):
        llama.llama_memory_seq_rm(llama.llama_get_memory(context), 0, int(places[0]), -1)
        batch.n_tokens = len(tokens)
        for i, (token, place) in enumerate(zip(tokens.tolist(), places.tolist())):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, place, 1, 0
            batch.logits[i] = i == len(tokens) - 1
        if llama.llama_decode(context, batch):
            raise RuntimeError(f"llama_decode failed at {places[0]}")
        return np.ctypeslib.as_array(llama.llama_get_logits_ith(context, -1), (TOKENS,)).copy().reshape(1, -1)

    return subject(step, lambda array: array, lambda scores: scores, reads)


def case(name, label, reads, bits, at_most, peer=("torch", torch)):
    work = {"flops": 2.0 * reads * WEIGHTS} if reads > 1 else {"bytes": WEIGHTS * (4.5 if bits == 4 else bits) / 8}
    return Case(
        name=name,
        builders={"megjit": partial(megjit, reads, bits), peer[0]: partial(peer[1], reads)},
        targets=(Target(label, against=(peer[0],), at_most=at_most),),
        reference=peer[0],
        rtol=0,
        atol={32: 1e-3, 8: 0.05, 4: 0.25}[bits],
        rounds=(7, 3),
        seconds=0.5,
        work=work,
    )


LLAMA = ("llama.cpp", llama_cpp)
CASES = [
    case("decode", "GPT-2 (124M), a token", 1, 32, 1 / 1.2),
    case("decode_int8", "GPT-2 (124M), a token, int8 weights ÷ float32's", 1, 8, 1 / 3),
    case("decode_4bit", "GPT-2 (124M), a token, weights of 4 bits ÷ Q4_0's", 1, 4, 1, LLAMA),
    case("prefill", f"GPT-2 (124M), {READ} tokens read", READ, 32, None),
    case("prefill_int8", f"GPT-2 (124M), {READ} tokens read, int8 weights ÷ float32's", READ, 8, None),
    case("prefill_4bit", f"GPT-2 (124M), {READ} tokens read, weights of 4 bits ÷ Q4_0's", READ, 4, 1 / 0.8, LLAMA),
]
