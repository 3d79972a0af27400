"""Edits of traced modules by hand, which tests make on originals and on copies."""

import numpy as np
from nets import tensor

import megengine.functional as F
import megengine.module as M
import megengine.module.qat as Q
from megengine.traced_module.expr import CallMethod
from megengine.traced_module.node import ModuleNode, TensorNode


def scale_around(traced, example):
    """A further input, with which the first is multiplied, and by which the result is divided."""
    graph = traced.graph
    x, out = graph.inputs[1], graph.outputs[0]
    y = graph.add_input_node(shape=(), name="y")
    with graph.insert_exprs():
        scaled = x * y
    graph.replace_node({x: scaled})
    y.value = example
    with graph.insert_exprs():
        result = out / y
    graph.replace_node({out: result})
    graph.compile()


def absorb_constants(traced):
    """Factors behind a convolution go into its weight and bias."""
    for div in traced.graph.get_method_by_type("__truediv__").as_list():
        product, divisor = div.args
        if isinstance(divisor, TensorNode):
            continue
        value, factor = product.expr.args
        call = value.expr
        conv = call.inputs[0].owner
        conv.weight = conv.weight * factor / divisor
        conv.bias = conv.bias * factor / divisor
        call.top_graph.replace_node({div.outputs[0]: call.outputs[0]})
        call.top_graph.compile()


def halve_large_layers(traced, size):
    """Linear layers of at least ``size`` weights compute in half precision."""
    for node in traced.graph.get_module_by_type(M.Linear).as_list():
        linear, call = node.owner, node.users[0]
        if linear.in_features * linear.out_features < size:
            continue
        linear.weight, linear.bias = (
            linear.weight.astype(np.float16),
            linear.bias.astype(np.float16),
        )
        x, out, graph = call.inputs[1], call.outputs[0], call.top_graph
        with graph.insert_exprs():
            half = x.astype(np.float16)
        call.replace_inputs({x: half})
        with graph.insert_exprs():
            whole = out.astype(np.float32)
        graph.replace_node({out: whole})
        graph.compile()


class _WithoutQuantization:
    def __init__(self, conv, bn):
        self.conv, self.bn = conv, bn

    def apply_quant_weight(self, weight):
        return weight


def joined(conv, bn):
    """One module for both: a convolution in evaluation, `ConvBn2d` in training."""
    kind = M.ConvBn2d if conv.training else M.Conv2d
    new = kind(
        conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation,
        conv.groups, conv.bias is not None, conv.conv_mode, conv.compute_mode, name=conv.name,
    )  # fmt: skip
    if conv.training:
        new.conv.weight, new.conv.bias, new.bn = conv.weight, conv.bias, bn
        return new
    new.eval()
    folded = Q.ConvBn2d.fold_weight_bias(
        _WithoutQuantization(conv, bn), bn.running_mean, bn.running_var
    )
    new.weight, new.bias = folded
    return new


def fuse_normalizations(traced):
    """Each convolution whose result only a normalization reads becomes one module with it."""
    for node in traced.graph.get_module_by_type(M.Conv2d).as_list():
        call = node.users[0]
        result = call.outputs[0]
        if len(node.users) > 1 or len(result.users) > 1:
            continue
        after = result.users[0]
        if not isinstance(after, CallMethod) or not isinstance(after.inputs[0], ModuleNode):
            continue
        if after.inputs[0].module_type is not M.BatchNorm2d:
            continue
        graph, name = node.top_graph, node.owner._name
        setattr(graph.inputs[0].owner, name, joined(node.owner, after.inputs[0].owner))
        with graph.insert_exprs():
            fused = getattr(graph.inputs[0], name)(call.inputs[1])
        graph.replace_node({after.outputs[0]: fused})
        graph.compile()


class Net(M.Module):
    """Something for each of the edits to find."""

    def __init__(self):
        super().__init__()
        self.conv = M.Conv2d(3, 4, 1)
        self.conv_bn = M.Sequential(M.Conv2d(4, 4, 1, bias=False), M.BatchNorm2d(4))
        self.wide, self.small = M.Linear(4, 64), M.Linear(64, 2)

    def forward(self, x):
        x = self.conv(x) * 8 / 128
        x = F.relu(self.conv_bn(x)).mean(axis=(2, 3))
        return self.small(self.wide(x))


X = tensor(2, 3, 4, 4)
SURGERIES = {
    "scale_around": (lambda traced: scale_around(traced, tensor(1)[0] + 1), (X, tensor(1)[0] + 2)),
    "absorb_constants": (absorb_constants, (X,)),
    "halve_large_layers": (lambda traced: halve_large_layers(traced, 256), (X,)),
    "fuse_normalizations": (fuse_normalizations, (X,)),
}
