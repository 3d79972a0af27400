"""What torch does not promise to keep, each part by itself, and the releases that are known."""

import contextlib
import warnings

import pytest
import torch
from torch import nn

from megengine.torch_backend import _private as private


def joint_of(function, *tensors, **options):
    """The joint graph that AOTAutograd gives to a partitioner, with its inputs and the number of forward's results."""
    found = []

    def partition(joint, inputs, *, num_fwd_outputs, **more):
        found.append((joint, inputs, num_fwd_outputs))
        return private.default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **more)

    def eager(graph, _):
        return graph

    compiled = private.aot_autograd(fw_compiler=eager, bw_compiler=eager, inference_compiler=eager, partition_fn=partition, decompositions=private.decompositions())
    torch._dynamo.reset()
    torch.compile(function, backend=compiled, **options)(*tensors)
    return found[0]


def chain():
    weight = torch.rand(4, 4, requires_grad=True)
    return joint_of(lambda x: torch.tanh(torch.tanh(x @ weight)), torch.rand(4, 4))


def test_aot_autograd_asks_for_a_cut_of_the_joint_graph():
    joint, inputs, count = chain()
    names = [node.name for node in joint.graph.find_nodes(op="placeholder")]
    assert count == 1 and any("tangents" in name for name in names) and len(names) == len(torch.utils._pytree.tree_leaves(inputs))


@pytest.mark.parametrize("partition", [private.default_partition, private.min_cut_rematerialization_partition])
def test_partitions_give_forward_and_backward(partition):
    joint, inputs, count = chain()
    forward, backward = partition(joint, inputs, num_fwd_outputs=count)
    kept = [node.name for node in forward.graph.output_node().args[0][count:]]
    assert kept == [node.name for node in backward.graph.find_nodes(op="placeholder") if "tangents" not in node.name]


def test_a_cut_of_ones_own_is_extracted():
    joint, _, count = chain()
    inner, *_ = [node for node in joint.graph.nodes if node.target is torch.ops.aten.tanh.default]
    inputs = [node for node in joint.graph.find_nodes(op="placeholder") if "tangents" not in node.name]
    forward, backward = private.extract_forward_and_backward(joint, [*inputs, inner], [], num_fwd_outputs=count)
    assert inner.name in [node.name for node in backward.graph.find_nodes(op="placeholder")]
    assert inner.name in [node.name for node in forward.graph.output_node().args[0][count:]]


def test_symbols_of_sizes_are_arguments_and_are_found():
    weight = torch.rand(4, 4, requires_grad=True)
    joint, *_ = joint_of(lambda x: torch.tanh(x @ weight), torch.rand(6, 4), dynamic=True)
    inputs = [node.meta["val"] for node in joint.graph.find_nodes(op="placeholder")]
    known = {each.node.expr for each in inputs if isinstance(each, torch.SymInt) and each.node.expr.is_symbol}
    assert known and {symbol for node in joint.graph.nodes for symbol in private.free_symbols(node.meta.get("val"))} == known
    rows = next(iter(known))
    assert (rows * 2).xreplace({rows: 3}) == 6


def test_decompositions_leave_attention_in_one_piece():
    rules = private.decompositions()
    assert torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default not in rules and torch.ops.aten.addcmul.default in rules


def test_descriptors_tell_parameters_buffers_and_gradients():
    net = nn.BatchNorm1d(3)
    with contextlib.ExitStack() as stack:
        joint = private.aot_export_joint_with_descriptors(stack, net, (torch.rand(4, 3),), decompositions=private.decompositions()).graph_module
    inputs = [node.meta["desc"] for node in joint.graph.find_nodes(op="placeholder")]
    assert {each.target for each in inputs if isinstance(each, private.ParamAOTInput)} == {"weight", "bias"}
    assert "running_mean" in {each.target for each in inputs if isinstance(each, private.BufferAOTInput)}
    results = joint.graph.output_node().meta["desc"]
    assert {each.grad_of.target for each in results if isinstance(each, private.GradAOTOutput) and isinstance(each.grad_of, private.ParamAOTInput)} == {"weight", "bias"}
    assert any(each.mutated_input.target == "running_mean" for each in results if isinstance(each, private.InputMutationAOTOutput))
    assert any(isinstance(each, private.PlainAOTOutput) for each in results)


def test_arguments_are_told_by_where_dynamo_found_them_and_by_their_numbers():
    found, net = [], nn.Linear(3, 3)

    def backend(graph, inputs):
        found.extend(private.source_of_argument(node) for node in graph.graph.find_nodes(op="placeholder"))
        return graph.forward

    torch._dynamo.reset()
    torch.compile(lambda x: net(x), backend=backend)(torch.rand(2, 3))
    assert any(each.endswith("._parameters['weight']") for each in found) and "L['x']" in found
    weight = torch.rand(4, 4, requires_grad=True)
    joint, inputs, count = joint_of(lambda x: torch.tanh(x @ weight), torch.rand(4, 4))
    given = [node.meta["desc"] for node in joint.graph.find_nodes(op="placeholder")]
    assert [each.idx for each in given if isinstance(each, private.PlainAOTInput)] == [0, 1]
    assert isinstance(given[2], private.TangentAOTInput)
    forward, backward = private.default_partition(joint, inputs, num_fwd_outputs=count)
    kinds = [{type(each).__name__ for each in graph.graph.output_node().meta["desc"] if each} for graph in (forward, backward)]
    assert kinds == [{"PlainAOTOutput", "SavedForBackwardsAOTOutput"}, {"GradAOTOutput"}]
    assert private.active_ddp() is None


def test_a_graph_says_whether_it_breaks_and_comes_with_the_tensors_of_the_call():
    found = []

    def backend(graph, inputs):
        found.append((private.breaks_behind(graph), [type(each) for each in inputs], [each.data_ptr() for each in inputs]))
        return graph

    def broken(x):
        x = x * 2
        torch._dynamo.graph_break()
        return x + 1

    torch._dynamo.reset()
    x = torch.rand(4)
    torch.compile(broken, backend=backend)(x)
    assert [breaks for breaks, *_ in found] == [True, False]
    assert all(types == [torch.Tensor] for _, types, _ in found) and found[0][2] == [x.data_ptr()]


def test_fake_tensors_have_no_values_and_can_be_left():
    with private.FakeTensorMode() as mode:
        x = mode.from_tensor(torch.ones(3))
        with pytest.raises(private.DataDependentOutputException):
            x.sum().item()
        with pytest.raises(private.DynamicOutputShapeException):
            x.nonzero()
        with private.unset_fake_temporarily():
            assert type(torch.ones(2)) is torch.Tensor and torch.ones(2).sum().item() == 2


def test_releases_that_are_not_known():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for release in private.KNOWN:
            private.check_release(f"{release}.1+cpu")
    with pytest.warns(UserWarning, match=private.KNOWN[-1]):
        private.check_release("9.0.0a0+git1234")
    with pytest.raises(ImportError, match=f"{private.KNOWN[0]} to {private.KNOWN[-1]}, and this is 2.4.1"):
        private.check_release("2.4.1")
