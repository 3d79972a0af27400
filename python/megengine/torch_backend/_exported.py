"""A model and its loss as one graph of ATen operations, forward and backward."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx import traceback
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from ._devices import device_of_tensors
from ._joint import prepare
from ._names import is_users, line_at
from ._private import (
    BufferAOTInput,
    DataDependentOutputException,
    DynamicOutputShapeException,
    GradAOTOutput,
    InputMutationAOTOutput,
    ParamAOTInput,
    PlainAOTOutput,
    aot_export_joint_with_descriptors,
    decompositions,
    with_one_attention,
)


class _Lines(TorchFunctionMode):  # type: ignore[misc]  # torch has no types here
    """Notes the user's line and the layer of each operation, and of those that backward derives from it.

    names: the names of the model's modules, by their ids. made: the line that made the step; it
    stands for operations that no line of the user calls.
    """

    def __init__(self, names: dict[int, str], made: str) -> None:
        super().__init__()
        self._names, self._made = names, made

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        traceback.set_stack_trace([self._line(sys._getframe(1)) + "\n"])
        return func(*args, **(kwargs or {}))

    def _line(self, frame: FrameType | None) -> str:
        layer = ""
        while frame and frame.f_code is not Whole.forward.__code__:
            layer = layer or self._names.get(id(frame.f_locals.get("self")), "")
            if is_users(frame):
                break
            frame = frame.f_back
        line = line_at(frame) if frame and is_users(frame) else self._made
        return f"{line} ({layer})" if layer else line


class Whole(torch.nn.Module):  # type: ignore[misc]
    """Tensors of a batch -> its loss. leaves, form: those of (the model's arguments, the loss's
    further arguments). mixed: the dtype of `torch.autocast`, if any. made: the line that made the
    step.
    """

    def __init__(self, model: torch.nn.Module, loss: Callable[..., Any], leaves: Sequence[Any], form: Any, mixed: torch.dtype | None, made: str) -> None:
        super().__init__()
        self.model, self.loss, self._mixed = model, loss, mixed
        self._device = device_of_tensors([*model.parameters(), *(each for each in leaves if isinstance(each, torch.Tensor))]).type
        self._lines = {id(module): name for name, module in model.named_modules()}, made
        self._leaves, self._form = [None if isinstance(each, torch.Tensor) else each for each in leaves], form
        self._places = [place for place, each in enumerate(leaves) if isinstance(each, torch.Tensor)]

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor]:
        leaves = list(self._leaves)
        for place, each in zip(self._places, tensors, strict=True):
            leaves[place] = each
        inputs, targets = _pytree.tree_unflatten(leaves, self._form)
        with _Lines(*self._lines), torch.autocast(self._device, self._mixed, self._mixed is not None):
            if isinstance(inputs, dict):
                result = self.model(**inputs)
            else:
                result = self.model(*inputs) if isinstance(inputs, (tuple, list)) else self.model(inputs)
            return (self.loss(result, *targets),)


class Found(NamedTuple):
    """The results of a graph, by the tensors that they belong to."""

    loss: Any
    gradients: dict[torch.Tensor, Any]
    buffers: dict[torch.Tensor, Any]  # new values


class Exported:
    """The graph takes the tensors ``held``, then ``input_count`` of a batch."""

    def __init__(self, module: Whole, graph: fx.GraphModule, input_count: int) -> None:
        self.graph, self.input_count = graph, input_count
        own: dict[str, torch.Tensor] = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}
        givers = [node.meta["desc"] for node in graph.graph.find_nodes(op="placeholder")]
        names = [each.target for each in givers if isinstance(each, (ParamAOTInput, BufferAOTInput))]
        self.held = [own[name] for name in names]
        # names in the user's model
        self.names = {own[name]: name.removeprefix("model.") for name in names}
        output = graph.graph.output_node()
        self._takers: list[tuple[str, Any]] = []
        for node, each in zip(output.args[0], output.meta["desc"], strict=True):
            if isinstance(each, InputMutationAOTOutput):
                self._takers.append(("buffer", own[each.mutated_input.target]))
            elif isinstance(each, GradAOTOutput) and isinstance(each.grad_of, ParamAOTInput) and node is not None:
                self._takers.append(("gradient", own[each.grad_of.target]))
            elif isinstance(each, PlainAOTOutput):
                self._takers.append(("loss", None))
                self.loss = node.meta["val"]
            else:
                self._takers.append(("", None))
        self.trained = self._of("gradient")
        self.changed = self._of("buffer")

    def _of(self, what: str) -> list[torch.Tensor]:
        return list(dict.fromkeys(tensor for kind, tensor in self._takers if kind == what))

    def results(self, outputs: Sequence[Any]) -> Found:
        loss, gradients, buffers = None, dict[torch.Tensor, Any](), dict[torch.Tensor, Any]()
        for (kind, tensor), value in zip(self._takers, outputs, strict=True):
            if kind == "loss":
                loss = value
            elif kind == "buffer":
                buffers[tensor] = value
            elif kind == "gradient":  # a tied parameter has several
                gradients[tensor] = gradients[tensor] + value if tensor in gradients else value
        return Found(loss, gradients, buffers)


def exported(module: Whole, tensors: Sequence[torch.Tensor]) -> Exported:
    """Runs the module once, on tensors without values. ValueError where the loss is not one number, RuntimeError for a module that reads values."""
    device = device_of_tensors([*module.parameters(), *tensors])
    with contextlib.ExitStack() as stack, torch.enable_grad(), torch.autocast(device.type, enabled=False), traceback.preserve_node_meta(), with_one_attention(device):
        try:
            joint = aot_export_joint_with_descriptors(stack, module, tuple(tensors), decompositions=decompositions())
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            line = "".join(traceback.format_stack()).strip()
            raise RuntimeError(
                f"step: the model asks for values of tensors ({error.func}, {line}), which are not there when its program is made\n"
                '  fix: torch.compile(model, backend="megjit") runs such lines by themselves'
            ) from error
    prepare(joint.graph_module)
    found = Exported(module, joint.graph_module, len(tensors))
    if found.loss.numel() != 1 or not found.loss.is_floating_point():
        raise ValueError(f"step: the loss is to be one number, not a tensor of {found.loss.dtype} of shape {tuple(found.loss.shape)}")
    return found
