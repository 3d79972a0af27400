"""Trains a small GPT on the reference of the Python language, letter by letter, and lets it write.

    python examples/gpt.py                               # some minutes: text that looks like the reference
    python examples/gpt.py --steps 60 --width 64 --layers 2   # seconds
    python examples/gpt.py --text FILE...                # another text

Writing keeps keys and values of what was read (the KV cache), so that each further letter costs one row of the network. The
cache has a fixed size and is written in place, at places that are a tensor: all letters run through one compiled program.
generate.py writes with a large network.
"""

import argparse
import json
from pathlib import Path
from pydoc_data import topics

import numpy as np
from tqdm import tqdm

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace

START = "The statement "


class Cache:
    """Keys and values [1, heads, capacity, width / heads] of all that a block has read."""

    def __init__(self, heads: int, capacity: int, width: int) -> None:
        shape = (1, heads, capacity, width // heads)
        self.keys, self.values = F.zeros(shape), F.zeros(shape)


def corpus(text: str) -> tuple[np.ndarray, list[str]]:
    """(letters of the text as numbers, the alphabet)."""
    alphabet = sorted({*text, *START})
    number = {letter: i for i, letter in enumerate(alphabet)}
    return np.array([number[letter] for letter in text], "int32"), alphabet


class Block(M.Module):
    """Attention and a two-layer network, each on the normalized input and added to it (Radford et al. 2019)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = M.LayerNorm(width), M.LayerNorm(width)
        self.qkv, self.mix = M.Linear(width, 3 * width), M.Linear(width, width)
        self.up, self.down = M.Linear(width, 4 * width), M.Linear(4 * width, width)

    def split(self, x: mge.Tensor) -> tuple[mge.Tensor, mge.Tensor, mge.Tensor]:
        """[batch, letters, 3 * width] to queries, keys and values, each [batch, heads, letters, width / heads]."""
        batch, letters, width = map(int, x.shape)
        parts = x.reshape(batch, letters, 3, self.heads, width // 3 // self.heads).transpose(2, 0, 3, 1, 4)
        return parts[0], parts[1], parts[2]

    def attend(self, x: mge.Tensor, q: mge.Tensor, k: mge.Tensor, v: mge.Tensor, seen: mge.Tensor | None = None) -> mge.Tensor:
        """seen: which keys; None: those up to each query's own place."""
        y = F.scaled_dot_product_attention(q, k, v, seen, is_causal=seen is None)
        y = y.transpose(0, 2, 1, 3).reshape(*map(int, x.shape))
        x = x + self.mix(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return self.attend(x, *self.split(self.qkv(self.norm1(x))))

    def read(self, x: mge.Tensor, place: mge.Tensor, seen: mge.Tensor, cache: Cache) -> mge.Tensor:
        """Letters at ``place`` (int32 [letters]), behind those in the cache, which takes their keys and values."""
        q, k, v = self.split(self.qkv(self.norm1(x)))
        cache.keys[:, :, place] = k
        cache.values[:, :, place] = v
        return self.attend(x, q, cache.keys, cache.values, seen)


class GPT(M.Module):
    def __init__(self, letters: int, context: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.context, self.width, self.heads = context, width, heads
        self.letter = M.Embedding(letters, width)
        self.place = mge.Parameter(np.random.RandomState(0).randn(context, width).astype("float32") * 0.02)
        self.blocks = [Block(width, heads) for _ in range(layers)]
        self.norm, self.out = M.LayerNorm(width), M.Linear(width, letters)

    def forward(self, numbers: mge.Tensor) -> mge.Tensor:
        n = int(numbers.shape[1])
        x = self.letter(numbers) + self.place[:n]
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))

    def read(self, numbers: mge.Tensor, place: mge.Tensor, caches: list[Cache]) -> mge.Tensor:
        """Scores of the letter behind ``numbers`` [1, letters], which stand at ``place`` (int32 [letters])."""
        seen = mge.tensor(np.arange(self.context, dtype="int32")) <= place.reshape(-1, 1)
        x = self.letter(numbers) + self.place[place]
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block.read(x, place, seen, cache)
        return self.out(self.norm(x[:, -1])).reshape(-1)


class Writer:
    """Reads letters, and keeps their keys and values for the next ones."""

    def __init__(self, net: GPT) -> None:
        self.context, self.length = net.context, 0
        caches = [Cache(net.heads, net.context, net.width) for _ in net.blocks]
        self.step = trace(lambda numbers, place: net.read(numbers, place, caches), symbolic=True, opt_level=3, without_host=True)

    def read(self, numbers: list[int]) -> np.ndarray:
        """Scores of the letter behind all that was read. The first call reads a text, each later one a letter."""
        place = np.arange(self.length, self.length + len(numbers), dtype="int32")
        self.length += len(numbers)
        return self.step(mge.tensor([numbers], dtype="int32"), mge.tensor(place)).numpy()

    def write(self, start: list[int], count: int, temperature: float = 0.7) -> list[int]:
        """Up to ``count`` letters behind ``start``, each drawn by its probability."""
        rng, written, new = np.random.RandomState(0), [], start
        for _ in range(min(count, self.context - len(start))):
            scores = self.read(new).astype("float64") / temperature
            chances = np.exp(scores - scores.max())
            new = [int(rng.choice(len(chances), p=chances / chances.sum()))]
            written += new
        return written


def train(net: GPT, numbers: np.ndarray, steps: int, batch: int) -> list[float]:
    gm, optimizer = GradManager().attach(net.parameters()), optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.01)

    @trace(symbolic=True, opt_level=3)
    def step(inputs: mge.Tensor, targets: mge.Tensor) -> mge.Tensor:
        with gm:
            logits = net(inputs)
            loss = F.loss.cross_entropy(logits.reshape(-1, int(logits.shape[-1])), targets.reshape(-1))
            gm.backward(loss)
        optim.clip_grad_norm(net.parameters(), 1.0)
        optimizer.step().clear_grad()
        return loss

    rng, losses = np.random.RandomState(0), []
    for _ in tqdm(range(steps), disable=None):
        starts = rng.randint(0, len(numbers) - net.context - 1, batch)
        rows = np.stack([numbers[s : s + net.context + 1] for s in starts])
        losses.append(step(mge.tensor(rows[:, :-1]), mge.tensor(rows[:, 1:])).item())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--text", type=Path, nargs="+", help="files to learn from (what help() says of the language)")
    args = parser.parse_args()

    mge.random.seed(0)
    texts = [path.read_text(encoding="utf-8") for path in args.text or ()] or topics.topics.values()
    numbers, alphabet = corpus("\n".join(texts))
    if len(numbers) < args.context + 2:
        parser.error(f"{len(numbers)} letters are too few for a context of {args.context}; name longer files with --text")
    net = GPT(len(alphabet), args.context, args.width, heads=4, layers=args.layers)
    losses = train(net, numbers, args.steps, args.batch)
    print(f"loss {losses[0]:.2f} at first, {np.mean(losses[-10:]):.2f} at last; guessing has {np.log(len(alphabet)):.2f}")

    writer, start = Writer(net), [alphabet.index(letter) for letter in START]
    written = writer.write(start, 80)
    print("it writes:", json.dumps(START + "".join(alphabet[n] for n in written), ensure_ascii=False))
    # With the cache and without it the network says the same.
    whole = net(mge.tensor([start + written])).numpy()[0, -1]
    print("the cache changes nothing:", bool(np.abs(writer.read(written[-1:]) - whole).max() < 1e-3))
    print(writer.step.explain().splitlines()[0], "of the function that reads")


if __name__ == "__main__":
    main()
