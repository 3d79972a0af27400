"""Whole networks: the same results as torch's, for batch sizes other than the example's."""

import pytest
import torch
import torchvision
from agree import assert_agree, check, with_free_batch

from megengine import fx

VISION = [
    ("resnet18", 64), ("mobilenet_v2", 64), ("mobilenet_v3_small", 64), ("vgg11_bn", 64), ("densenet121", 64),
    ("squeezenet1_1", 64), ("googlenet", 64), ("shufflenet_v2_x0_5", 64), ("efficientnet_b0", 64),
    ("regnet_y_400mf", 64), ("convnext_tiny", 64), ("resnext50_32x4d", 64), ("alexnet", 96), ("inception_v3", 96),
    ("vit_b_32", 224),
]  # fmt: skip


def network(name):
    torch.manual_seed(0)
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(name, weights=None, **options).eval()


@pytest.mark.parametrize("name, size", VISION, ids=[name for name, _ in VISION])
def test_networks_of_torchvision_give_torchs_results(name, size):
    module = network(name)
    converted = check(module, torch.randn(2, 3, size, size))
    assert_agree(module, converted, torch.randn(1, 3, size, size))


EXPORTED = [("resnet18", 64), ("mobilenet_v2", 64), ("densenet121", 64), ("vit_b_32", 224), ("convnext_tiny", 64)]


@pytest.mark.parametrize("core", [False, True], ids=["as exported", "core operators"])
@pytest.mark.parametrize("name, size", EXPORTED, ids=[name for name, _ in EXPORTED])
def test_exported_networks_give_torchs_results_for_other_batch_sizes(name, size, core):
    module = network(name)
    program = with_free_batch(module, torch.randn(2, 3, size, size))
    converted = fx.from_torch(program.run_decompositions() if core else program)
    assert_agree(module, converted, torch.randn(3, 3, size, size))
    assert_agree(module, converted, torch.randn(1, 3, size, size))


def test_a_network_that_only_torch_export_can_trace_gives_torchs_results():
    module = network("swin_t")
    program = with_free_batch(module, torch.randn(2, 3, 64, 64)).run_decompositions()
    assert_agree(module, fx.from_torch(program), torch.randn(3, 3, 64, 64))
