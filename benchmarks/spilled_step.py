"""A training step of a GPT-2 under a limit on memory, with a disk behind it, beside the same step in memory.

    python benchmarks/spilled_step.py medium --limit 1700MB --folder /var/tmp
    python benchmarks/spilled_step.py medium

The second line is the step without a limit. What the process takes at most, interpreter and libraries included, is told
for each step by itself: in the first one parameters lie in memory, where the program has made them, until they are written
to the file. So a control group's bound (memory.max) has to have room for them.
"""

import argparse
import time

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace

# width, layers, heads, words of the vocabulary, length
SHAPES = {
    "tiny": (128, 4, 4, 1024, 64),
    "small": (768, 12, 12, 50257, 512),
    "medium": (1024, 24, 16, 50257, 512),
}


class Block(M.Module):
    """Attention and two layers, each behind a normalization and beside its input."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = [M.LayerNorm(width), M.LayerNorm(width)]
        self.into, self.out = M.Linear(width, 3 * width), M.Linear(width, width)
        self.up, self.down = M.Linear(width, 4 * width), M.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        split = self.into(self.norms[0](x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = (split[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(0, 2, 1, 3).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Transformer(M.Module):
    def __init__(self, width, layers, heads, words, length):
        super().__init__()
        self.words, self.places = M.Embedding(words, width), M.Embedding(length, width)
        self.blocks = [Block(width, heads) for _ in range(layers)]
        self.norm = M.LayerNorm(width)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(F.arange(tokens.shape[1], dtype="int32"))
        for block in self.blocks:
            x = block(x)
        return F.matmul(self.norm(x), self.words.weight, transpose_b=True)


def peak_since_reset():
    """MiB that the process has taken at most since the last call, as the system counts them; it counts anew from here."""
    with open("/proc/self/status") as file:
        most = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return most / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--limit", help="memory_limit; none: the step in memory")
    parser.add_argument("--folder", help="for what the limit has no room for")
    given = parser.parse_args()
    mge.random.seed(0)
    *shape, words, length = SHAPES[given.shape]
    net = Transformer(*shape, words, length)
    optimizer, gm = optim.Adam(net.parameters(), lr=1e-4), GradManager().attach(net.parameters())

    @trace(symbolic=True, opt_level=3, memory_limit=given.limit, spill=given.folder)
    def step(tokens, labels):
        with gm:
            loss = F.nn.cross_entropy(net(tokens).reshape(-1, words), labels.reshape(-1))
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    tokens, labels = (mge.tensor(np.random.RandomState(seed).randint(0, words, (given.batch, length)).astype("int32")) for seed in (0, 1))
    begin = time.perf_counter()
    plan = step.plan(tokens, labels)
    print(f"planned in {time.perf_counter() - begin:.1f} s")
    print(plan)
    for number in range(given.steps):
        begin = time.perf_counter()
        loss = step(tokens, labels).item()
        seconds = time.perf_counter() - begin
        print(f"step {number}: {seconds:.2f} s, loss {loss:.6f}, process at most {peak_since_reset():.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
