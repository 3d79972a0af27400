"""Fine-tunes a language model of a billion parameters on two cores, in 1.5 GB of memory.

    python examples/finetune_1b.py --limit 1150            # adapters beside weights of 4 bits, 1,024 words: 1.5 GB
    python examples/finetune_1b.py --full --limit 7600     # all parameters in float32, 512 words: 8 GB
    python examples/finetune_1b.py --millions 20           # a small one: seconds
    python examples/finetune_1b.py --weights model.safetensors --tokens text.npy   # a Llama's weights, and text in its tokens

The network has Llama's shape (Touvron et al. 2023). Its weights are drawn, or read from a mapped file, and rounded some rows at a time, so
that it never exists in float32; adapters of rank 16 (Hu et al. 2021, "LoRA") are trained beside them. The step is planned before it runs:
--limit is a promise, and what does not fit is computed again. What was trained goes to a file after each step, and a run that was killed
goes on from there with the numbers that it would have had.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pydoc_data import topics
from typing import Any

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.module.quantized import BlockwiseEmbedding, BlockwiseLinear

RANK, GROUP = 16, 32


@dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    inner: int
    heads: int
    groups: int  # heads of keys and values
    words: int


SHAPES = {
    1100: Shape(22, 2048, 5632, 32, 4, 32000),
    350: Shape(16, 1280, 3456, 20, 4, 32000),
    20: Shape(6, 384, 1024, 6, 2, 8000),
}  # by millions of parameters


class Weights:
    """Matrices by Hugging Face's names for a Llama: of a mapped file, or random ones."""

    def __init__(self, file: Path | None, layers: int) -> None:
        self.state: dict[str, Any] | None = None if file is None else mge.load(file, mmap=True)
        self.rng, self.residual = np.random.default_rng(0), (2 * layers) ** -0.5

    def rows(self, name: str, rows: int, columns: int, together: int = 512) -> Iterator[np.ndarray]:
        """The matrix in float32, some rows at a time. Random sums keep their size from layer to layer."""
        size = 1.0 if "embed" in name else columns**-0.5 * (self.residual if re.search("o_proj|down_proj", name) else 1.0)
        for first in range(0, rows, together):
            last = min(rows, first + together)
            if self.state is None:
                yield self.rng.standard_normal((last - first, columns), "float32") * np.float32(size)
            else:
                yield self.state[f"{name}.weight"][first:last].astype("float32").numpy()

    def blocks(self, name: str, rows: int, columns: int, bits: int) -> mge.Tensor:
        parts = self.rows(name, rows, columns)
        return mge.tensor(np.concatenate([F.quantized.quantize_blocks(part, bits, GROUP).numpy() for part in parts]))

    def fill(self, parameter: mge.Parameter, name: str) -> None:
        rows, columns = map(int, parameter.shape)
        first = 0
        for part in self.rows(name, rows, columns):
            parameter[first : first + len(part)] = part
            first += len(part)

    def norm(self, name: str, width: int) -> M.RMSNorm:
        made = M.RMSNorm(width, eps=1e-5)
        if self.state is not None:
            made.load_state_dict({"weight": self.state[f"{name}.weight"].astype("float32")})
        return made


class Adapted(M.Module):
    """A frozen linear layer, and a product of two thin matrices beside it, which is zero at first."""

    def __init__(self, frozen: M.Module, inputs: int, outputs: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.frozen = frozen
        self.down = mge.Parameter(rng.standard_normal((RANK, inputs), "float32") * np.float32(inputs**-0.5))
        self.up = mge.Parameter(np.zeros((outputs, RANK), "float32"))

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return self.frozen(x) + F.linear(F.linear(x, self.down), self.up) * 2.0


def linear(weights: Weights, name: str, inputs: int, outputs: int, full: bool) -> M.Module:
    """A layer that is trained itself, or has 4 bits and an adapter."""
    if not full:
        frozen = BlockwiseLinear.from_blocks(weights.blocks(name, outputs, inputs, 4))
        return Adapted(frozen, inputs, outputs, weights.rng)
    layer = M.Linear(inputs, outputs, bias=False)
    weights.fill(layer.weight, name)
    return layer


def turned(x: mge.Tensor, cos: mge.Tensor, sin: mge.Tensor) -> mge.Tensor:
    """Pairs of numbers, turned by an angle for each place (Su et al. 2021, "RoFormer")."""
    half = int(x.shape[-1]) // 2
    a, b = x[..., :half], x[..., half:]
    return F.concat([a * cos - b * sin, b * cos + a * sin], axis=-1)


class Block(M.Module):
    def __init__(self, weights: Weights, name: str, shape: Shape, full: bool) -> None:
        super().__init__()
        self.heads, self.groups = shape.heads, shape.groups
        width, inner = shape.width, shape.inner
        narrow = width // shape.heads * shape.groups
        self.norm1 = weights.norm(f"{name}.input_layernorm", width)
        self.norm2 = weights.norm(f"{name}.post_attention_layernorm", width)
        extents = {"q": width, "k": narrow, "v": narrow, "o": width}
        self.q, self.k, self.v, self.o = (linear(weights, f"{name}.self_attn.{each}_proj", width, to, full) for each, to in extents.items())
        self.gate, self.up = (linear(weights, f"{name}.mlp.{each}_proj", width, inner, full) for each in ("gate", "up"))
        self.down = linear(weights, f"{name}.mlp.down_proj", inner, width, full)

    def split(self, x: mge.Tensor, heads: int) -> mge.Tensor:
        batch, length, width = map(int, x.shape)
        return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)

    def forward(self, x: mge.Tensor, cos: mge.Tensor, sin: mge.Tensor) -> mge.Tensor:
        y = self.norm1(x)
        q, k = (turned(self.split(layer(y), heads), cos, sin) for layer, heads in ((self.q, self.heads), (self.k, self.groups)))
        y = F.scaled_dot_product_attention(q, k, self.split(self.v(y), self.groups), is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(0, 2, 1, 3).reshape(*map(int, x.shape)))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(M.Module):
    def __init__(self, weights: Weights, shape: Shape, length: int, full: bool) -> None:
        super().__init__()
        self.words: M.Module
        if full:
            words = self.words = M.Embedding(shape.words, shape.width)
            weights.fill(words.weight, "model.embed_tokens")
            self.head = linear(weights, "lm_head", shape.width, shape.words, full)
        else:
            self.words = BlockwiseEmbedding.from_blocks(weights.blocks("model.embed_tokens", shape.words, shape.width, 8))
            self.head = BlockwiseLinear.from_blocks(weights.blocks("lm_head", shape.words, shape.width, 8), bits=8)
        self.blocks = [Block(weights, f"model.layers.{i}", shape, full) for i in range(shape.layers)]
        self.norm = weights.norm("model.norm", shape.width)
        half = shape.width // shape.heads // 2
        angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(half) / half)
        self.cos, self.sin = (mge.tensor(f(angles).astype("float32")) for f in (np.cos, np.sin))

    def forward(self, numbers: mge.Tensor) -> mge.Tensor:
        x = self.words(numbers)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


def corpus(words: int) -> np.ndarray:
    """What help() says of the language, as numbers of its words; the rarest of them share one."""
    found = re.findall(r"\w+|\W", "\n".join(topics.topics[name] for name in sorted(topics.topics)))
    number = {word: i for i, (word, _) in enumerate(Counter(found).most_common(words - 1))}
    return np.array([number.get(word, words - 1) for word in found], "int32")


def save(file: Path, steps: int, trained: list[mge.Parameter], optimizer: optim.Optimizer) -> None:
    """One tensor after the other, beside the file, which is replaced at the end: it is whole, or the one before."""
    state = {f"trained.{i}": parameter for i, parameter in enumerate(trained)} | {"steps": mge.tensor([steps])}
    for i, states in optimizer.state_dict(keep_var=True)["state"].items():
        state |= {f"state.{i}.{name}": value for name, value in states.items()}
    mge.save(state, file)


def restore(file: Path, trained: list[mge.Parameter], optimizer: optim.Optimizer) -> int:
    """Takes over what a file has; the number of steps that were taken."""
    saved, state = mge.load(file, mmap=True), optimizer.state_dict(keep_var=True)
    for i, states in state["state"].items():
        states.update({name: saved[f"state.{i}.{name}"] for name in states})
    optimizer.load_state_dict(state)
    for i, parameter in enumerate(trained):
        parameter[...] = saved[f"trained.{i}"]
    return saved["steps"].item()


def most_memory() -> float:
    """Megabytes that the process has held at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=int, choices=SHAPES, default=1100, help="parameters of the network")
    parser.add_argument("--full", action="store_true", help="train all parameters, in float32")
    parser.add_argument("--weights", type=Path, help="a safetensors file with a network of this shape, as Hugging Face names its tensors")
    parser.add_argument("--tokens", type=Path, help="a .npy file with the text as integers")
    parser.add_argument("--length", type=int, help="words of a step (1024; 512 with --full)")
    parser.add_argument("--limit", type=float, help="megabytes that a step may take, weights included")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rate", type=float, help="of learning (2e-4; 1e-5 with --full)")
    parser.add_argument("--file", type=Path, default=Path("finetuned.safetensors"), help="where what was trained goes after each step")
    args = parser.parse_args()
    shape, length = SHAPES[args.millions], args.length or (512 if args.full else 1024)
    numbers = corpus(shape.words) if args.tokens is None else np.load(args.tokens).astype("int32")

    net = Llama(Weights(args.weights, shape.layers), shape, length, args.full)
    trained = [parameter for parameter in net.parameters() if args.full or min(parameter.shape) == RANK]
    print(f"{sum(p.size for p in trained) / 1e6:.1f} million numbers are trained")
    gm = GradManager().attach(trained)
    optimizer = optim.AdamW8bit(trained, lr=args.rate or (1e-5 if args.full else 2e-4), weight_decay=0.0)

    def step(inputs: mge.Tensor, targets: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.loss.cross_entropy(net(inputs).reshape(-1, shape.words), targets.reshape(-1))
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    limit = None if args.limit is None else int(args.limit * 1e6)
    run = trace(step, symbolic=True, opt_level=3, memory_limit=limit)
    first = restore(args.file, trained, optimizer) if args.file.exists() else 0
    if first:
        print(f"goes on after step {first}")
    for i in range(first, args.steps):
        start = np.random.default_rng(i).integers(0, len(numbers) - length)
        row = mge.tensor(numbers[None, start : start + length + 1])
        inputs, targets = row[:, :-1], row[:, 1:]
        if i == first:
            print(f"a step takes {run.plan(inputs, targets).planned_bytes / 1e6:.0f} MB")
        loss = run(inputs, targets).item()
        save(args.file, i + 1, trained, optimizer)
        print(f"step {i + 1}: loss {loss:.4f}", flush=True)
    print(f"the process held {most_memory():.0f} MB at most")


if __name__ == "__main__":
    main()
