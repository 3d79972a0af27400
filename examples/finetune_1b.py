"""Fine-tunes a language model of a billion parameters on two cores, in 1.5 GB of memory.

    python examples/finetune_1b.py                         # adapters beside weights of 4 bits, 1,024 words: 1.5 GB
    python examples/finetune_1b.py --full                  # all parameters in float32, 512 words: 8 GB
    python examples/finetune_1b.py --millions 20           # a small one: seconds

The network has Llama's shape (Touvron et al. 2023). Its weights are made and rounded layer by layer, so that it never exists in float32;
adapters of rank 16 (Hu et al. 2021, "LoRA") are trained beside them. The step is planned before it runs: `--limit` is a promise, and what
does not fit is computed again. Adapters, moments and the number of steps go to a file after each step, and a run that was killed goes on
from there with the numbers that it would have had.
"""

import argparse
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from pydoc_data import topics

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.module.quantized import BlockwiseEmbedding, BlockwiseLinear

RANK, GROUP = 16, 32
RNG = np.random.default_rng(0)


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


class Adapted(M.Module):
    """A frozen linear layer, and a product of two thin matrices beside it, which is zero at first."""

    def __init__(self, frozen: M.Module, inputs: int, outputs: int) -> None:
        super().__init__()
        self.frozen = frozen
        self.down = mge.Parameter(RNG.standard_normal((RANK, inputs), "float32") / np.float32(np.sqrt(inputs)))
        self.up = mge.Parameter(np.zeros((outputs, RANK), "float32"))

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return self.frozen(x) + F.linear(F.linear(x, self.down), self.up) * 2.0


def drawn(rows: int, columns: int, bits: int, size: float) -> mge.Tensor:
    """Blocks of normal numbers, some rows at a time."""
    parts = [slice(i, min(rows, i + 512)) for i in range(0, rows, 512)]
    numbers = (RNG.standard_normal((part.stop - part.start, columns), "float32") * np.float32(size) for part in parts)
    return mge.tensor(np.concatenate([F.quantized.quantize_blocks(each, bits, GROUP).numpy() for each in numbers]))


def linear(inputs: int, outputs: int, full: bool, size: float) -> M.Module:
    """A layer of normal numbers, which is trained itself, or has 4 bits and an adapter."""
    if not full:
        return Adapted(BlockwiseLinear.from_blocks(drawn(outputs, inputs, 4, size)), inputs, outputs)
    layer = M.Linear(inputs, outputs, bias=False)
    layer.weight[...] = RNG.standard_normal((outputs, inputs), "float32") * np.float32(size)
    return layer


def turned(x: mge.Tensor, cos: mge.Tensor, sin: mge.Tensor) -> mge.Tensor:
    """Pairs of numbers, turned by an angle for each place (Su et al. 2021, "RoFormer")."""
    half = int(x.shape[-1]) // 2
    a, b = x[..., :half], x[..., half:]
    return F.concat([a * cos - b * sin, b * cos + a * sin], axis=-1)


class Block(M.Module):
    def __init__(self, shape: Shape, full: bool) -> None:
        super().__init__()
        self.heads, self.groups = shape.heads, shape.groups
        width, size = shape.width, shape.width**-0.5
        narrow = width // shape.heads * shape.groups
        self.norm1, self.norm2 = M.RMSNorm(width), M.RMSNorm(width)
        self.q, self.k, self.v = (linear(width, outputs, full, size) for outputs in (width, narrow, narrow))
        self.o = linear(width, width, full, size / np.sqrt(2 * shape.layers))
        self.gate, self.up = (linear(width, shape.inner, full, size) for _ in range(2))
        self.down = linear(shape.inner, width, full, shape.inner**-0.5 / np.sqrt(2 * shape.layers))

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
    def __init__(self, shape: Shape, length: int, full: bool) -> None:
        super().__init__()
        if full:
            self.words = M.Embedding(shape.words, shape.width)
            self.head = linear(shape.width, shape.words, full, shape.width**-0.5)
        else:
            self.words = BlockwiseEmbedding.from_blocks(drawn(shape.words, shape.width, 8, 1.0))
            self.head = BlockwiseLinear.from_blocks(drawn(shape.words, shape.width, 8, shape.width**-0.5), bits=8)
        self.blocks = [Block(shape, full) for _ in range(shape.layers)]
        self.norm = M.RMSNorm(shape.width)
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


def memory() -> tuple[float, float]:
    """(megabytes that the process holds, the most that it has held)."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Vm"))
    return int(lines["VmRSS"].split()[0]) / 1000, int(lines["VmHWM"].split()[0]) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=int, choices=SHAPES, default=1100, help="parameters of the network")
    parser.add_argument("--full", action="store_true", help="train all parameters, in float32")
    parser.add_argument("--length", type=int, help="words of a step (1024; 512 with --full)")
    parser.add_argument("--limit", type=float, help="megabytes that a step may take, weights included")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument("--file", type=Path, default=Path("finetuned.pkl"), help="where adapters and moments go after each step")
    args = parser.parse_args()
    length = args.length or (512 if args.full else 1024)
    shape = SHAPES[args.millions]

    net = Llama(shape, length, args.full)
    trained = [parameter for parameter in net.parameters() if args.full or min(parameter.shape) == RANK]
    print(f"{sum(p.size for p in trained) / 1e6:.1f} million numbers are trained; the process holds {memory()[0]:.0f} MB")
    gm = GradManager().attach(trained)
    optimizer = optim.AdamW(trained, lr=args.rate, weight_decay=0.0)

    def step(inputs: mge.Tensor, targets: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.loss.cross_entropy(net(inputs).reshape(-1, shape.words), targets.reshape(-1))
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    limit = None if args.limit is None else int(args.limit * 1e6)
    run = trace(step, symbolic=True, opt_level=3, memory_limit=limit)
    numbers = corpus(shape.words)
    first = 0
    if args.file.exists():
        state = mge.load(args.file)
        first = state["steps"]
        optimizer.load_state_dict(state["optimizer"])
        for parameter, value in zip(trained, state["trained"], strict=True):
            parameter[...] = value
        print(f"goes on after step {first}")
    for i in range(first, args.steps):
        start = np.random.RandomState(i).randint(0, len(numbers) - length - 1)
        row = numbers[None, start : start + length + 1]
        if i == first:
            print(run.plan(mge.tensor(row[:, :-1]), mge.tensor(row[:, 1:])))
        loss = run(mge.tensor(row[:, :-1]), mge.tensor(row[:, 1:])).item()
        new = args.file.with_suffix(".new")
        mge.save({"steps": i + 1, "optimizer": optimizer.state_dict(), "trained": [p.detach() for p in trained]}, new)
        os.replace(new, args.file)  # a file is whole, or it is the one before
        print(f"step {i + 1}: loss {loss:.4f}, {memory()[1]:.0f} MB at most", flush=True)


if __name__ == "__main__":
    main()
