"""How long does a step take that fine-tunes a Llama of 350 million parameters by adapters, beside weights of 4 bits?

The network is that of examples/finetune_1b.py. bitsandbytes has other blocks of 4 bits (NF4), so losses are not compared.
"""

import sys
from pathlib import Path

import numpy as np
from case import Case, Subject, Target
from cases import _frameworks as on

LENGTH, RANK = 1024, 16
LAYERS, WIDTH, INNER, HEADS, GROUPS, WORDS = 16, 1280, 3456, 20, 4, 32000
# Forward, and backward to the inputs of each layer, whose weights have no gradient; words are looked up.
FLOPS = 4.0 * 316e6 * LENGTH


def batch():
    return np.random.RandomState(0).randint(0, WORDS, (1, LENGTH + 1))


def subject(step):
    """step() -> the loss."""

    def run(calls):
        for _ in range(calls):
            step()

    return Subject(run, lambda: {"loss": np.float32(step())})


def megjit():
    on.setup_megjit()
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    import finetune_1b as example

    import megengine as mge
    import megengine.functional as F
    from megengine import optimizer
    from megengine.autodiff import GradManager
    from megengine.jit import trace

    shape = example.Shape(LAYERS, WIDTH, INNER, HEADS, GROUPS, WORDS)
    net = example.Llama(example.Weights(None, LAYERS), shape, LENGTH, full=False)
    trained = [each for each in net.parameters() if min(each.shape) == RANK]
    manager, adam = GradManager().attach(trained), optimizer.AdamW8bit(trained, lr=2e-4, weight_decay=0.0)

    def step(inputs, targets):
        with manager:
            loss = F.loss.cross_entropy(net(inputs).reshape(-1, WORDS), targets.reshape(-1))
            manager.backward(loss)
        adam.step().clear_grad()
        return loss

    row = mge.tensor(batch().astype(np.int32))
    inputs, targets = row[:, :-1], row[:, 1:]
    traced = trace(step, symbolic=True, opt_level=3)
    return subject(lambda: traced(inputs, targets).item())


def torch_peft_bitsandbytes():
    import bitsandbytes
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    on.setup_torch()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=GROUPS
    )
    net = LlamaForCausalLM(config)
    for name, layer in list(net.model.named_modules()):
        if isinstance(layer, torch.nn.Linear):
            few = bitsandbytes.nn.Linear4bit(layer.in_features, layer.out_features, bias=False, compute_dtype=torch.float32, quant_type="nf4")
            few.weight = bitsandbytes.nn.Params4bit(layer.weight.data, requires_grad=False, quant_type="nf4")
            parent, _, own = name.rpartition(".")
            setattr(net.model.get_submodule(parent), own, few.to("cpu"))
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    net = get_peft_model(net, LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=names))
    adam = bitsandbytes.optim.AdamW8bit([each for each in net.parameters() if each.requires_grad], lr=2e-4, weight_decay=0.0)
    row = torch.from_numpy(batch())

    def step():
        loss = net(input_ids=row[:, :-1], labels=row[:, 1:].contiguous(), shift_labels=row[:, 1:].contiguous()).loss
        loss.backward()
        adam.step()
        adam.zero_grad()
        return loss.item()

    return subject(step)


CASES = [
    Case(
        name="finetune_step",
        builders={"megjit": megjit, "torch_peft_bitsandbytes": torch_peft_bitsandbytes},
        targets=(Target("350 million parameters, adapters beside 4 bits", against=("torch_peft_bitsandbytes",), at_most=0.7),),
        reference=None,
        rounds=(5, 3),
        seconds=0.5,
        work={"flops": FLOPS},
    )
]
