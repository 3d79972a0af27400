"""F14: fusers that are written by hand, a published one among them (conv_bn_fuser.py)."""

import copy
import runpy
from pathlib import Path

from small_modules import close, tensor, warmed

import megengine.module as M
from megengine import fx
from megengine.fx.experimental.optimization import (
    matches_module_pattern,
    replace_node_module,
)
from megengine.utils.fusion import fuse_conv_bn_eval


def test_the_helpers_of_a_fuser_written_by_hand():
    model = warmed(M.Sequential(M.Conv2d(1, 1, 1), M.BatchNorm2d(1)))
    gm = fx.symbolic_trace(copy.deepcopy(model))
    modules = dict(gm.named_modules())
    pattern = (M.Conv2d, M.BatchNorm2d)
    matched = [node for node in gm.graph.nodes if matches_module_pattern(pattern, node, modules)]
    assert [node.target for node in matched] == ["1"]
    conv_node = matched[0].args[0]
    replace_node_module(conv_node, modules, fuse_conv_bn_eval(modules["0"], modules["1"]))
    matched[0].replace_all_uses_with(conv_node)
    gm.graph.erase_node(matched[0])
    gm.graph.lint()
    gm.recompile()
    x = tensor(5, 1, 1, 1)
    close(gm(x), model(x))


class WrappedBatchNorm(M.Module):
    def __init__(self):
        super().__init__()
        self.mod = M.BatchNorm2d(1)

    def forward(self, x):
        return self.mod(x)


class Nested(M.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1, self.conv2 = M.Conv2d(1, 1, 1), M.BatchNorm2d(1), M.Conv2d(1, 1, 1)
        self.nested = M.Sequential(M.BatchNorm2d(1), M.Conv2d(1, 1, 1))
        self.wrapped = WrappedBatchNorm()

    def forward(self, x):
        return self.wrapped(self.nested(self.conv2(self.bn1(self.conv1(x)))))


def replaced(node, modules, new_module):
    parent, _, name = node.target.rpartition(".")
    print(f"Modules[{parent}].{name} <- {type(new_module).__name__}")
    setattr(modules[parent], name, new_module)


def fuse_by_hand(model):
    """Uses nothing of ours but the graph; looks at what stands before a normalization, be it what it may."""
    gm = fx.symbolic_trace(copy.deepcopy(model))
    modules = dict(gm.named_modules())
    for node in gm.graph.nodes:
        if node.op != "call_module" or not isinstance(modules[node.target], M.BatchNorm2d):
            continue
        before = modules.get(node.args[0].target)
        if not isinstance(before, M.Conv2d) or len(node.args[0].users) > 1:
            continue
        replaced(node.args[0], modules, fuse_conv_bn_eval(before, modules[node.target]))
        node.replace_all_uses_with(node.args[0])
        gm.graph.erase_node(node)
    gm.graph.lint()
    gm.recompile()
    return gm


def test_nested_and_wrapped_normalizations_are_fused(capsys):
    model = warmed(Nested())
    fused = fuse_by_hand(model)
    assert capsys.readouterr().out.splitlines() == [
        "Modules[].conv1 <- Conv2d", "Modules[].conv2 <- Conv2d", "Modules[nested].1 <- Conv2d",
    ]  # fmt: skip
    called = [node.target for node in fused.graph.nodes if node.op == "call_module"]
    assert called == ["conv1", "conv2", "nested.1"]
    close(fused(tensor(5, 1, 1, 1)), model(tensor(5, 1, 1, 1)))


def test_a_model_that_begins_with_a_normalization_is_left_as_it_is(capsys):
    model = warmed(M.Sequential(M.BatchNorm2d(1), M.Conv2d(1, 1, 1)))
    close(fuse_by_hand(model)(tensor(5, 1, 1, 1)), model(tensor(5, 1, 1, 1)))
    assert capsys.readouterr().out == ""


def test_the_published_fuser_fuses_all_three_pairs(capsys):
    runpy.run_path(str(Path(__file__).with_name("conv_bn_fuser.py")))
    printed = capsys.readouterr().out
    assert printed.startswith(
        "Modules[].conv1 <- Conv2d\nModules[].conv2 <- Conv2d\nModules[nested].1 <- Conv2d\n"
        "The `forward` code after fusion:"
    )
    assert "bn1" not in printed and "mod" not in printed.split("fusion:")[1]
    assert printed.endswith("Fuse successfully\n")
