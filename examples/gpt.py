"""Trains a small GPT on the text of this repository, letter by letter, and lets it write.

    python examples/gpt.py                               # some minutes: text that looks like this documentation
    python examples/gpt.py --steps 60 --width 64 --layers 2   # seconds
    python examples/gpt.py --text FILE...                # another text

Sampling keeps keys and values of what was read (the KV cache), so that each further letter costs one row of the network. The
cache has a fixed size, and a step writes at a place that is a tensor: all letters run through one compiled program.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from tqdm import tqdm

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace

ROOT = Path(__file__).resolve().parents[1]
START = "A tensor "
Cache = tuple[mge.Tensor, mge.Tensor]  # keys and values of one block


def corpus(files: list[Path]) -> tuple[np.ndarray, list[str]]:
    """(letters of the files as numbers, the alphabet)."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
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
        batch, letters, width = x._tuple_shape
        parts = x.reshape(batch, letters, 3, self.heads, width // 3 // self.heads).transpose(2, 0, 3, 1, 4)
        return parts[0], parts[1], parts[2]

    def attend(self, x: mge.Tensor, q: mge.Tensor, k: mge.Tensor, v: mge.Tensor, seen: mge.Tensor | None = None) -> mge.Tensor:
        """seen: which keys; None: those up to each query's own place."""
        y = F.scaled_dot_product_attention(q, k, v, seen, is_causal=seen is None)
        y = y.transpose(0, 2, 1, 3).reshape(*x._tuple_shape)
        x = x + self.mix(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return self.attend(x, *self.split(self.qkv(self.norm1(x))))

    def extend(self, x: mge.Tensor, cache: Cache, here: mge.Tensor, seen: mge.Tensor) -> tuple[mge.Tensor, Cache]:
        """One letter: its key and value are put into the cache where ``here`` is true."""
        q, k, v = self.split(self.qkv(self.norm1(x)))
        keys, values = (F.where(here, new + F.zeros_like(old), old) for new, old in zip((k, v), cache, strict=True))
        return self.attend(x, q, keys, values, seen), (keys, values)


class GPT(M.Module):
    def __init__(self, letters: int, context: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.context, self.width, self.heads = context, width, heads
        self.letter = M.Embedding(letters, width)
        self.place = mge.Parameter(np.random.RandomState(0).randn(context, width).astype("float32") * 0.02)
        self.blocks = [Block(width, heads) for _ in range(layers)]
        self.norm, self.out = M.LayerNorm(width), M.Linear(width, letters)

    def forward(self, numbers: mge.Tensor) -> mge.Tensor:
        n = numbers._tuple_shape[1]
        x = self.letter(numbers) + self.place[:n]
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))

    def extend(self, number: mge.Tensor, place: mge.Tensor, caches: list[Cache]) -> tuple[mge.Tensor, list[Cache]]:
        """Scores of the letter after ``number``, which stands at ``place``; and the caches with it."""
        places = mge.tensor(np.arange(self.context, dtype="int32"))
        here = (places == place).reshape(1, 1, self.context, 1)
        seen = (places <= place).reshape(1, 1, 1, self.context)
        x = self.letter(number.reshape(1, 1)) + F.sum(F.where(here[0, 0], self.place, F.zeros_like(self.place)), axis=0)
        made = []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, cache = block.extend(x, cache, here, seen)
            made.append(cache)
        return self.out(self.norm(x)).reshape(-1), made

    def empty_caches(self) -> list[Cache]:
        shape = (1, self.heads, self.context, self.width // self.heads)
        return [(F.zeros(shape), F.zeros(shape)) for _ in self.blocks]


def train(net: GPT, numbers: np.ndarray, steps: int, batch: int) -> list[float]:
    gm, optimizer = GradManager().attach(net.parameters()), optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.01)

    @trace(symbolic=True, opt_level=3)
    def step(inputs: mge.Tensor, targets: mge.Tensor) -> mge.Tensor:
        with gm:
            logits = net(inputs)
            loss = F.loss.cross_entropy(logits.reshape(-1, logits._tuple_shape[-1]), targets.reshape(-1))
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


def write(net: GPT, alphabet: list[str], start: str, count: int, temperature: float = 0.7) -> tuple[str, trace]:
    """``start`` and up to ``count`` letters more, each drawn by its probability."""
    extend = trace(net.extend, symbolic=True, opt_level=3)
    caches, rng, text = net.empty_caches(), np.random.RandomState(0), list(start)
    for place in range(min(len(start) + count, net.context) - 1):
        number = alphabet.index(text[place])
        scores, caches = extend(mge.tensor(number), mge.tensor(place), caches)
        if place + 1 == len(text):
            chances = F.softmax(scores / temperature, axis=0).numpy().astype("float64")
            text.append(alphabet[rng.choice(len(alphabet), p=chances / chances.sum())])
    return "".join(text), extend


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    documents = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
    parser.add_argument("--text", type=Path, nargs="+", default=documents, help="files to learn from (the documents of this repository)")
    args = parser.parse_args()

    mge.random.seed(0)
    numbers, alphabet = corpus(args.text)
    if len(numbers) < args.context + 2:
        parser.error(f"{len(numbers)} letters are too few for a context of {args.context}; name longer files with --text")
    net = GPT(len(alphabet), args.context, args.width, heads=4, layers=args.layers)
    losses = train(net, numbers, args.steps, args.batch)
    print(f"loss {losses[0]:.2f} at first, {np.mean(losses[-10:]):.2f} at last; guessing has {np.log(len(alphabet)):.2f}")

    text, extend = write(net, alphabet, START, 80)
    print("it writes:", json.dumps(text, ensure_ascii=False))
    # With the cache and without it the network says the same.
    whole = net(mge.tensor([[alphabet.index(letter) for letter in text[:-1]]])).numpy()[0, -1]
    caches = net.empty_caches()
    for place, letter in enumerate(text[:-1]):
        scores, caches = extend(mge.tensor(alphabet.index(letter)), mge.tensor(place), caches)
    print("the cache changes nothing:", bool(np.abs(scores.numpy() - whole).max() < 1e-3))
    print(extend.explain().splitlines()[0], "of the function that extends the text")


if __name__ == "__main__":
    main()
