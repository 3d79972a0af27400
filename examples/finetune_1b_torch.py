"""Fine-tunes a Llama of transformers with PEFT's adapters through PyTorch's door, on weights of 4 bits, under a limit.

    python examples/finetune_1b_torch.py --limit 1400 --length 1024   # 1.1 billion parameters
    python examples/finetune_1b_torch.py --millions 20                # a small one

The network is transformers' own, made without memory for its weights; each frozen matrix then becomes a module that holds it in blocks of 4 or 8 bits
and decodes it where it is read. Adapters of rank 16 (Hu et al. 2021, "LoRA") are PEFT's, the optimizer is PyTorch's. The loss walks over parts of the
vocabulary, so that all logits never lie in memory together. `torch.compile` plans forward and backward under --limit: what does not fit is computed
again, decoded weights first of all. What was trained goes to a file after each step, and a run that was killed goes on from there.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from finetune_1b import GROUP, RANK, SHAPES, Shape, corpus, most_memory
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from torch import nn
from transformers import LlamaConfig, LlamaModel

PARTS = 8  # of the vocabulary, in the loss


def encoded(matrix: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes of 4 bits, two in a byte, or of 8; and a scale for each 32 weights: the largest of them is the largest code."""
    groups = matrix.unflatten(-1, (-1, GROUP))
    most = 2 ** (bits - 1) - 1
    scales = (groups.abs().amax(-1, keepdim=True) / most).clamp(min=1e-8)
    codes = (groups / scales).round().clamp(-most, most).add(most + 1).to(torch.uint8).flatten(-2)
    if bits == 4:
        codes = codes[..., 0::2] | codes[..., 1::2] << 4
    return codes, scales.squeeze(-1).half()


def decoded(codes: torch.Tensor, scales: torch.Tensor, bits: int) -> torch.Tensor:
    if bits == 4:
        codes = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)
    values = codes.float() - 2 ** (bits - 1)
    return (values.unflatten(-1, (-1, GROUP)) * scales.float().unsqueeze(-1)).flatten(-2)


class InBlocks(nn.Linear):  # type: ignore[misc]  # torch has no types here
    """A frozen linear layer, or table of words, whose weights lie in blocks: codes and scales. `weight` is empty, PEFT asks for its dtype alone."""

    def __init__(self, rows: int, columns: int, bits: int, size: float) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.bits, self.bias = columns, rows, bits, None
        self.weight = nn.Parameter(torch.empty(0), requires_grad=False)
        self.register_buffer("codes", torch.empty(rows, columns * bits // 8, dtype=torch.uint8))
        self.register_buffer("scales", torch.empty(rows, columns // GROUP, dtype=torch.float16))
        for first in range(0, rows, 64):  # few rows at a time: what is made on the way takes memory, too
            part = slice(first, min(first + 64, rows))
            self.codes[part], self.scales[part] = encoded(torch.randn(part.stop - first, columns) * size, bits)

    def rows(self, first: int, last: int) -> torch.Tensor:
        return decoded(self.codes[first:last], self.scales[first:last], self.bits)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.rows(0, self.out_features))


class Words(InBlocks):
    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return decoded(self.codes[numbers], self.scales[numbers], self.bits)


class Language(nn.Module):  # type: ignore[misc]
    """Numbers of words, and of those that follow -> the loss."""

    def __init__(self, shape: Shape, length: int) -> None:
        super().__init__()
        config = LlamaConfig(
            vocab_size=shape.words, hidden_size=shape.width, intermediate_size=shape.inner, num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads, num_key_value_heads=shape.groups, max_position_embeddings=length, use_cache=False,
        )  # fmt: skip
        with torch.device("meta"):
            self.net = LlamaModel(config)
        self.fill(shape)
        adapters = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
        self.net = get_peft_model(self.net, adapters)
        self.head = InBlocks(shape.words, shape.width, 8, shape.width**-0.5)

    def fill(self, shape: Shape) -> None:
        """Weights in place of those without memory."""
        residual = (2 * shape.layers) ** -0.5
        for name, module in list(self.net.named_modules()):
            parent, _, own = name.rpartition(".")
            if isinstance(module, nn.Linear):
                size = module.in_features**-0.5 * (residual if own in ("o_proj", "down_proj") else 1.0)
                setattr(self.net.get_submodule(parent), own, InBlocks(module.out_features, module.in_features, 4, size))
            elif own.endswith("norm"):
                module.weight = nn.Parameter(torch.ones(shape.width))
        self.net.embed_tokens = Words(shape.words, shape.width, 8, 1.0)
        self.net.rotary_emb = type(self.net.rotary_emb)(self.net.config)

    def forward(self, numbers: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.net(input_ids=numbers).last_hidden_state.flatten(0, 1)
        targets, width = targets.flatten(), -(-self.head.out_features // PARTS)
        sums, chosen = [], torch.zeros(len(x))
        for first in range(0, self.head.out_features, width):
            last = min(first + width, self.head.out_features)
            logits = F.linear(x, self.head.rows(first, last))
            sums.append(logits.logsumexp(-1))
            is_here = (targets >= first) & (targets < last)
            chosen = chosen + torch.where(is_here, logits.gather(-1, (targets - first).clamp(0, last - first - 1)[:, None])[:, 0], 0.0)
        return (torch.stack(sums).logsumexp(0) - chosen).mean()


def save(file: Path, steps: int, model: Language, optimizer: torch.optim.Optimizer) -> None:
    """Beside the file, which is replaced at the end: it is whole, or the one before."""
    beside = file.with_suffix(".new")
    torch.save({"steps": steps, "adapters": get_peft_model_state_dict(model.net), "optimizer": optimizer.state_dict()}, beside)
    beside.replace(file)


def restore(file: Path, model: Language, optimizer: torch.optim.Optimizer) -> int:
    saved: dict[str, Any] = torch.load(file)
    set_peft_model_state_dict(model.net, saved["adapters"])
    optimizer.load_state_dict(saved["optimizer"])
    return int(saved["steps"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=int, choices=SHAPES, default=1100, help="parameters of the network")
    parser.add_argument("--length", type=int, default=256, help="words of a step")
    parser.add_argument("--limit", type=float, help="megabytes that a forward or a backward pass may take, weights included")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--eager", action="store_true", help="PyTorch alone")
    parser.add_argument("--file", type=Path, default=Path("adapters.pt"), help="where what was trained goes after each step")
    args = parser.parse_args()
    shape = SHAPES[args.millions]
    numbers = corpus(shape.words)

    torch.manual_seed(0)
    model = Language(shape, args.length)
    trained = [each for each in model.parameters() if each.requires_grad]
    print(f"{sum(each.numel() for each in trained) / 1e6:.1f} million numbers are trained")
    if not args.eager:
        model.compile(backend="megjit", options={"fallback": False, **({"memory_limit": int(args.limit * 1e6)} if args.limit else {})})
    optimizer = torch.optim.AdamW(trained, lr=2e-4, weight_decay=0.0)
    first = restore(args.file, model, optimizer) if args.file.exists() else 0
    for i in range(first, args.steps):
        start = np.random.default_rng(i).integers(0, len(numbers) - args.length)
        row = torch.from_numpy(numbers[None, start : start + args.length + 1].astype("int64"))
        loss = model(row[:, :-1], row[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        save(args.file, i + 1, model, optimizer)
        print(f"step {i + 1}: loss {loss.item():.4f}", flush=True)
    print(f"the process held {most_memory():.0f} MB at most")


if __name__ == "__main__":
    main()
