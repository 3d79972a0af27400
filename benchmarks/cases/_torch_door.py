"""What all cases of PyTorch's door share: networks, steps, and a counter of what a process takes at most.

    python _torch_door.py SITE NAME HOW [LIMIT]     prints the bytes that a step takes at most, in a process of its own
"""

from __future__ import annotations

import functools
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

WARM_STEPS = 3


class Net(NamedTuple):
    """model: called with the inputs, which have names or stand alone. blocks: what activation checkpointing computes again, one by one."""

    model: Any
    inputs: dict[str, Any]
    blocks: list[Any]

    def loss(self, run: Any) -> Any:
        result = run(*self.inputs.values()) if len(self.inputs) == 1 else run(**self.inputs)
        return result.loss if hasattr(result, "loss") else result.square().mean()


# -- ten networks, of which activations are most


def _language(kind, **config):
    """blocks: where their list lies in the model."""

    def make():
        import torch
        import transformers

        config_of, model_of, path = {
            "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel, "transformer.h"),
            "bert": (transformers.BertConfig, transformers.BertForMaskedLM, "bert.encoder.layer"),
            "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, "model.layers"),
        }[kind]
        model = model_of(config_of(vocab_size=512, use_cache=False, **config))
        tokens = torch.randint(0, 512, (16, 128))
        return Net(model, {"input_ids": tokens, "labels": tokens}, list(model.get_submodule(path)))

    return make


def _images(build, batch, size, blocks):
    def make():
        import torch

        model = build()
        return Net(model, {"x": torch.rand(batch, 3, size, size)}, blocks(model))

    return make


def _vit():
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(img_size=64, patch_size=8, embed_dim=128, depth=6, num_heads=4, num_classes=10)


def _mixer():
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(img_size=64, patch_size=8, embed_dim=128, num_blocks=6, num_classes=10)


def _resnet():
    from timm.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, layers=(2, 2, 2, 2), channels=(16, 32, 64, 128), num_classes=10)


def _convnext():
    from timm.models.convnext import ConvNeXt

    return ConvNeXt(depths=(2, 2, 2, 2), dims=(24, 48, 96, 128), num_classes=10)


def _mobilenet():
    from torchvision.models import mobilenet_v2

    return mobilenet_v2(width_mult=0.5, num_classes=10)


def _vgg():
    """VGG without its large linear layers, made of torchvision's parts."""
    from torch import nn
    from torchvision.models.vgg import make_layers

    layers = make_layers([32, 32, "M", 64, 64, "M", 64, 64], batch_norm=True)
    return nn.Sequential(layers[:7], layers[7:14], layers[14:], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def _perceptron():
    import torch
    from torch import nn

    parts = [nn.Sequential(nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU(), nn.Dropout(0.1)) for _ in range(12)]
    return Net(nn.Sequential(*parts), {"input": torch.rand(8192, 256)}, parts)


def _stages(model):
    return [block for stage in model.stages for block in stage.blocks]


NETWORKS: dict[str, Callable[[], Net]] = {
    "gpt2": _language("gpt2", n_embd=128, n_layer=4, n_head=4, n_positions=128),
    "bert": _language("bert", hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512),
    "llama": _language("llama", hidden_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, intermediate_size=352),
    "vit": _images(_vit, 32, 64, lambda model: list(model.blocks)),
    "mixer": _images(_mixer, 32, 64, lambda model: list(model.blocks)),
    "resnet": _images(_resnet, 32, 96, lambda model: [*model.layer1, *model.layer2, *model.layer3, *model.layer4]),
    "convnext": _images(_convnext, 16, 96, _stages),
    "mobilenet": _images(_mobilenet, 16, 96, lambda model: list(model.features)),
    "vgg": _images(_vgg, 8, 64, lambda model: list(model[:3])),
    "perceptron": _perceptron,
}  # fmt: skip


# -- steps


def setup(threads: int | None = None) -> None:
    """This process is PyTorch's own, and megjit a guest in it."""
    import warnings

    import torch

    warnings.simplefilter("ignore")
    sys.path.append(site())
    torch.set_num_threads(threads or int(os.environ.get("OMP_NUM_THREADS", 2)))
    torch._dynamo.config.cache_size_limit = 64


@functools.cache
def site() -> str:
    """The folder that has our package, which is installed in another environment."""
    find = "import megengine, pathlib; print(pathlib.Path(megengine.__file__).parents[1])"
    return os.environ.get("MEGJIT_SITE") or subprocess.run([os.environ["BENCH_OURS"], "-c", find], capture_output=True, text=True, check=True).stdout.strip()


def compiled(model: Any, how: str, limit: int = 0) -> Any:
    """how: "eager", "inductor", "door"."""
    import torch

    if how == "eager":
        return model
    if how == "inductor":
        return torch.compile(model)
    from megengine.torch_backend import backend

    return torch.compile(model, backend=backend, options={"memory_limit": limit} if limit else {})


def step_of(net: Net, how: str, limit: int = 0) -> Callable[[], None]:
    """A training step: forward, loss, backward; gradients are there at its end and go with the next."""
    run = compiled(net.model, how, limit)

    def step():
        net.model.zero_grad(set_to_none=True)
        net.loss(run).backward()

    return step


def checkpointed(net: Net, count: int) -> Net:
    """The first blocks keep their inputs alone."""
    from torch.utils.checkpoint import checkpoint

    for block in net.blocks[:count]:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    return net


# -- what a process takes at most


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


def _release() -> int:
    """Gives the system all memory that nobody uses. Returns the bytes that stay with us between steps: the arena of programs."""
    import ctypes

    gc.collect()
    ours = 0
    if megengine := sys.modules.get("megengine"):
        megengine.coalesce_free_memory()
        ours = megengine.get_reserved_memory()
    ctypes.CDLL(None).malloc_trim(0)
    return ours


def peak_of(net: Net, step: Callable[[], None]) -> int:
    """Bytes that a step takes at most: parameters, inputs, and by how much the process grows beyond what it has between steps without gradients.

    After the first steps, which compile: the kernel's counter of the process' peak starts there.
    """
    for _ in range(WARM_STEPS):
        step()
    net.model.zero_grad(set_to_none=True)
    arena = _release()
    before = _status("VmRSS") - arena
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    for _ in range(2):
        step()
    grown = _status("VmHWM") - before
    given = [*net.model.parameters(), *net.model.buffers(), *net.inputs.values()]
    return grown + sum(each.numel() * each.element_size() for each in {id(each): each for each in given}.values())


def measured_apart(name: str, how: str, limit: int = 0, blocks: int = 0) -> int:
    """`peak_of` in a process of its own, so that nothing of another is in it."""
    command = [sys.executable, __file__, site(), name, how, str(limit), str(blocks)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name}, {how}: {(done.stderr.strip().splitlines() or ['nothing'])[-1]}")
    return int(done.stdout.strip().splitlines()[-1])


def seconds_of(step: Callable[[], None], calls: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        step()
    return time.perf_counter() - start


def _main(path: str, name: str, how: str, limit: str = "0", blocks: str = "0") -> None:
    import torch

    os.environ["MEGJIT_SITE"] = path
    setup()
    torch.manual_seed(0)
    net = checkpointed(NETWORKS[name](), int(blocks))
    print(peak_of(net, step_of(net, how, int(limit))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
