"""Fine-tunes a PyTorch network in half of the memory that PyTorch takes for it, and draws what each way costs.

    pip install torch torchvision
    python examples/torch_memory_limit.py                  # a network of GPT-2's shape
    python examples/torch_memory_limit.py --network vit    # a vision transformer of torchvision

A step is forward, loss, backward and AdamW. Each way is measured in a process of its own: PyTorch's eager mode, its activation checkpointing,
`torch.compile`, the same with its memory budget, and megjit with several limits. Nothing is downloaded: weights and data are random, the
rule to learn is not. The picture (limit.svg) shows memory and time of a step.
"""

import argparse
import ctypes
import functools
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

PARTS = (1.0, 0.75, 0.5)  # of what eager mode takes


class Block(nn.Module):  # type: ignore[misc]  # torch has no types here
    """A layer of GPT-2."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(self.ln_1(x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):  # type: ignore[misc]
    def __init__(self, vocabulary: int, length: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.ln_f = nn.LayerNorm(width)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.t()


def task(network: str, tiny: bool) -> tuple[nn.Module, list[Any], torch.Tensor, torch.Tensor]:
    """(model, its blocks, a batch, what is to be learnt of it)."""
    torch.manual_seed(0)
    if network == "gpt2":
        width, depth, batch, length = (32, 2, 16, 128) if tiny else (256, 6, 16, 256)
        net = GPT2(512, length, width, depth, 4)
        tokens = torch.arange(length).mul(7).add(torch.arange(batch)[:, None] * 31) % 64
        return net, list(net.blocks), tokens[:, :-1], tokens[:, 1:]
    from torchvision.models import VisionTransformer

    size, width, depth, batch = (64, 64, 4, 32) if tiny else (96, 192, 6, 32)
    vit = VisionTransformer(size, 8, depth, 4, width, 4 * width, num_classes=10)
    images = torch.rand(batch, 3, size, size)
    return vit, list(vit.encoder.layers), images, torch.arange(batch) % 10


def loss_of(result: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(result.flatten(0, -2), target.flatten())


def step_of(how: str, limit: int, net: nn.Module, blocks: list[Any]) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A training step, which gives the loss."""
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    if how == "megjit":
        from megengine.torch_backend import step

        return step(net, loss_of, optimizer, memory_limit=limit or None)
    if how == "checkpointing":
        for block in blocks:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    if how == "budget":
        from torch._functorch import config

        config.activation_memory_budget = 0.5
    run = torch.compile(net) if how in ("torch.compile", "budget") else net

    def train(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = loss_of(run(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return train


# -- a measurement


def status(name: str) -> int:
    """VmRSS or VmHWM: what the process has, and had at most, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {name}: this example measures on Linux")


def measure(how: str, network: str, tiny: bool, limit: int, steps: int) -> dict[str, Any]:
    """Trains. Returns what a step takes at most (parameters and states of the optimizer are part of it), its time and the losses."""
    net, blocks, x, target = task(network, tiny)
    train = step_of(how, limit, net, blocks)
    losses = [float(train(x, target)) for _ in range(3)]
    gc.collect()
    kept = 3 * sum(each.numel() * each.element_size() for each in net.parameters())  # with two states each
    if how == "megjit":
        import megengine

        megengine.coalesce_free_memory()
        kept += megengine.get_reserved_memory()
    ctypes.CDLL(None).malloc_trim(0)
    before = status("VmRSS") - kept
    Path("/proc/self/clear_refs").write_text("5")  # the kernel's counter starts again
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        losses.append(float(train(x, target)))
        times.append(time.perf_counter() - start)
    return {"bytes": status("VmHWM") - before, "seconds": sorted(times)[len(times) // 2], "losses": losses}


def apart(how: str, options: argparse.Namespace, limit: int = 0) -> dict[str, Any]:
    """`measure` in another process."""
    command = [sys.executable, __file__, "--measure", how, "--limit", str(limit), "--network", options.network, "--steps", str(options.steps)]
    done = subprocess.run([*command, *["--tiny"] * options.tiny], capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"failed": next((line for line in reversed(lines) if "Error" in line), "no result")}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# -- the picture


def draw(rows: list[tuple[str, dict[str, Any]]], file: Path) -> None:
    """Memory to the right, time upwards; megjit's limits are joined."""
    most, slowest = (1.1 * max(row[key] for _, row in rows) for key in ("bytes", "seconds"))

    def place(row: dict[str, Any]) -> tuple[float, float]:
        return 60 + 520 * row["bytes"] / most, 340 - 310 * row["seconds"] / slowest

    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="640" height="400" font-family="sans-serif" font-size="12">']
    parts += ['<path d="M60 20V340H590" fill="none" stroke="#888"/>', '<text x="590" y="375" text-anchor="end">memory of a step (MiB)</text>', '<text x="10" y="14">time of a step (ms)</text>']
    for part in (0.25, 0.5, 0.75, 1.0):
        parts.append(f'<text x="{60 + 520 * part:.0f}" y="356" text-anchor="middle">{most * part / 2**20:.0f}</text>')
        parts.append(f'<text x="55" y="{344 - 310 * part:.0f}" text-anchor="end">{1e3 * slowest * part:.0f}</text>')
    ours = [place(row) for name, row in rows if name.startswith("megjit")]
    parts.append(f'<polyline points="{" ".join(f"{x:.0f},{y:.0f}" for x, y in ours)}" fill="none" stroke="#06c"/>')
    for name, row in rows:
        x, y = place(row)
        colour = "#06c" if name.startswith("megjit") else "#c40"
        parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="4" fill="{colour}"/><text x="{x + 6:.0f}" y="{y - 6:.0f}">{name}</text>')
    file.write_text("\n".join([*parts, "</svg>\n"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--network", choices=("gpt2", "vit"), default="gpt2")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="a size for trying it")
    parser.add_argument("--peers", nargs="*", default=["checkpointing", "torch.compile", "budget"], help="what of PyTorch's is measured beside eager mode")
    parser.add_argument("--out", type=Path, default=Path("limit.svg"))
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.network, options.tiny, options.limit, options.steps)))
        return
    eager = apart("eager", options)
    found = [("eager", eager), *((how, apart(how, options)) for how in options.peers)]
    found += [(f"megjit, {part:.0%}", apart("megjit", options, int(part * eager["bytes"]))) for part in PARTS]
    for name, row in found:
        told = f"{row['bytes'] / 2**20:7.1f} MiB, {1e3 * row['seconds']:7.1f} ms a step, loss {row['losses'][0]:.3f} to {row['losses'][-1]:.3f}" if "bytes" in row else row["failed"]
        print(f"{name:14} {told}")
    draw([(name, row) for name, row in found if "bytes" in row], options.out)
    print(f"the picture: {options.out}")


if __name__ == "__main__":
    main()
