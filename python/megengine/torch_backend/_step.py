"""`step`: a whole training step of a PyTorch model as one program, with one plan for its memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree

from .. import _core
from ..core import ops
from ..jit.replay import Replay
from ..jit.report import MemoryPlan
from ..tensor import Tensor
from ._devices import as_readable, device_of_tensors, place_on
from ._exported import Exported, Whole, exported
from ._names import line_at, users_frame
from ._partition import is_check, place_of, reasons_against
from ._program import (
    Program,
    as_theirs,
)
from ._rules import RULES, Group, Rule, clipped
from ._strides import is_channels_last, lies_as_ours


class Lent:
    """A tensor of torch's whose memory the programs read and write."""

    def __init__(self, theirs: torch.Tensor) -> None:
        self.theirs, self._lies = theirs, (0, ())
        self.ours = self._borrowed()

    def _borrowed(self) -> Tensor:
        self._lies = self.theirs.data_ptr(), self.theirs.stride()
        self.is_channels_last = is_channels_last(self.theirs)
        borrowed: Tensor = place_on(self.theirs.device).exchange.lent(as_readable(self.theirs.detach()), writable=True)
        return borrowed

    def before(self) -> None:
        """Updates the tensor before a call: torch may have replaced its memory, and memory in
        another order is copied each time.
        """
        if self._lies != (self.theirs.data_ptr(), self.theirs.stride()) or not lies_as_ours(self.theirs):
            self.ours._reset(self._borrowed())

    def laid_out(self, value: Tensor) -> Tensor:
        """Returns the value in the order of torch's memory."""
        return ops.relayout(value, layout="channels_last") if self.is_channels_last else value

    def has_moved(self) -> bool:
        """Whether the new value lies outside torch's memory."""
        return bool(_core.address(self.ours) != self.theirs.data_ptr())


def bring_back(lent: Sequence[Lent]) -> None:
    """Copies new values to torch's memory, if the plan could not put them there; some may lie in
    the memory of others.
    """
    moved = [each for each in lent if each.has_moved()]
    values = [place_on(each.theirs.device).lent(each.ours).clone() for each in moved]
    with torch.no_grad():
        for each, value in zip(moved, values, strict=True):
            each.theirs.copy_(value)
            each.ours._reset(each._borrowed())


class _Trained:
    """One parameter that a step updates: its rule, its group, its states."""

    def __init__(self, parameter: torch.Tensor, group: Group, rule: Rule, states: dict[torch.Tensor, dict[str, Any]]) -> None:
        self.parameter, self.group, self.rule, self._of_all = parameter, group, rule, states
        self.names = list(rule.states(group))

    @property
    def states(self) -> dict[str, Any]:
        return self._of_all.get(self.parameter, {})

    def make_states(self) -> None:
        if not self.names:
            return
        states = self._of_all[self.parameter]  # the parameter's rule makes the state
        if self.rule.counts and "step" not in states:
            states["step"] = torch.zeros(())
        for name in self.names:
            if states.get(name) is None:
                states[name] = torch.zeros_like(self.parameter, memory_format=torch.preserve_format)


class Step:
    """The compiled step that `step` returns."""

    def __init__(self, model: torch.nn.Module, loss: Callable[..., Any], optimizer: torch.optim.Optimizer, options: dict[str, Any]) -> None:
        if type(optimizer) not in RULES:
            known = ", ".join(each.__name__ for each in RULES)
            raise TypeError(f"step: there is no rule for {type(optimizer).__name__}, only for torch's {known}\n  fix: torch.compile(model, backend=\"megjit\") works with any optimizer")
        self._model, self._loss, self._optimizer, self._options = model, loss, optimizer, options
        self._made = line_at(users_frame())
        self._lent: dict[torch.Tensor, Lent] = {}
        self._programs: dict[Any, _StepProgram] = {}

    def __call__(self, inputs: Any, *targets: Any) -> torch.Tensor:
        """Runs one step and returns the loss. inputs: what the model is given: a tensor, a tuple or list of arguments, or a dict by name."""
        program, arguments = self._program((inputs, targets))
        return program.run(arguments)

    def plan(self, inputs: Any, *targets: Any) -> MemoryPlan:
        """Returns the memory plan of such a step; nothing is computed or changed. MemoryError as of the step."""
        program, arguments = self._program((inputs, targets))
        return program.plan(arguments)

    def _program(self, batch: Any) -> tuple[_StepProgram, list[torch.Tensor]]:
        leaves, form = _pytree.tree_flatten(batch)
        arguments = [each for each in leaves if isinstance(each, torch.Tensor)]
        rest = tuple((tuple(each.shape), each.dtype) if isinstance(each, torch.Tensor) else each for each in leaves)
        modes = tuple(module.training for module in self._model.modules())
        options = tuple(tuple((name, value) for name, value in group.items() if name not in ("params", "lr", "initial_lr")) for group in self._optimizer.param_groups)
        device = device_of_tensors([*self._model.parameters(), *arguments]).type
        mixed = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        key = (form, rest, modes, options, mixed)
        if key not in self._programs:
            self._programs[key] = _StepProgram(exported(Whole(self._model, self._loss, leaves, form, mixed, self._made), arguments), self._optimizer, self._lent, f"step of {type(self._model).__name__}", self._options)
        return self._programs[key], arguments


def _checks_of(graph: fx.GraphModule, options: dict[str, Any]) -> Program | None:
    """The checks of a graph, without its results."""
    if not any(is_check(node) for node in graph.graph.nodes):
        return None
    alone = fx.Graph()
    alone.graph_copy(graph.graph, {})
    alone.output(())
    alone.eliminate_dead_code()
    return Program(fx.GraphModule(graph, alone), options)


class _StepProgram:
    """Steps with batches of one form."""

    def __init__(self, exported: Exported, optimizer: torch.optim.Optimizer, lent: dict[torch.Tensor, Lent], name: str, options: dict[str, Any]) -> None:
        if left := reasons_against(exported.graph):
            node, why = next(iter(left.items()))
            raise RuntimeError(f"step: megjit cannot compile this model: {place_of(node)} ({why})\n  fix: torch.compile(model, backend=\"megjit\") leaves such operations to torch")
        places = [each.untyped_storage().data_ptr() for each in dict.fromkeys(exported.held) if each.numel()]
        if len(set(places)) < len(places):
            raise ValueError("step: two parameters or buffers of the model are views of one memory, which a step cannot write twice\n  fix: make them one parameter, or copies")
        self._exported, self._lent = exported, lent
        self._name, self._options = name, dict(options)
        self._max_grad_norm: float | None = self._options.pop("max_grad_norm")
        self._program = Program(exported.graph, self._options)
        self._place = self._program.place
        self._checks = _checks_of(exported.graph, self._options)
        rule = RULES[type(optimizer)]
        known = {parameter: group for group in optimizer.param_groups for parameter in group["params"]}
        self._trained = [_Trained(each, known[each], rule, optimizer.state) for each in exported.trained if each in known]
        # key: the pattern of the optimizer's numbers, and the orders of lent tensors
        self._replays: dict[Any, Replay] = {}

    def plan(self, arguments: list[torch.Tensor]) -> MemoryPlan:
        with _core.OnDevice(self._place.name):
            replay, given, _ = self._ready(arguments)
            return replay.plan(given)

    def run(self, arguments: list[torch.Tensor]) -> torch.Tensor:
        if self._checks:  # before anything is written
            self._checks([*self._exported.held, *arguments, torch.ones((), dtype=self._exported.loss.dtype)])
        self._place.exchange.begin()
        if self._program.draws:
            self._place.seed()
        with _core.OnDevice(self._place.name):
            replay, given, lent = self._ready(arguments)
            (loss,) = replay(given)
        self._place.exchange.end()
        bring_back(lent)
        counts = [each.states["step"] for each in self._trained if "step" in each.states]
        if counts:
            torch._foreach_add_(counts, 1)
        torch.autograd.graph.increment_version([each.theirs for each in lent])
        result: torch.Tensor = as_theirs(self._place, loss, self._exported.loss)
        return result

    def _ready(self, arguments: list[torch.Tensor]) -> tuple[Replay, list[Tensor], list[Lent]]:
        """Returns the program for the present numbers of the optimizer, its arguments, and the
        tensors lent to it.
        """
        rows = [tuple(each.rule.numbers(each.group, each.states)) for each in self._trained]
        distinct = list(dict.fromkeys(rows))
        places = {row: place for place, row in enumerate(distinct)}
        pattern = tuple(places[row] for row in rows)
        for each in self._trained:
            each.make_states()
        lent = [self._lent_of(each) for each in self._exported.held]
        lent += [self._lent_of(each.states[name]) for each in self._trained for name in each.names]
        for memory in lent:
            memory.before()
        form = pattern, tuple(each.is_channels_last for each in lent)
        if form not in self._replays:
            self._replays[form] = self._place.share_arena(Replay(lambda *given: self._body(pattern, list(given)), self._name, **self._options))
        numbers = [Tensor(number) for row in distinct for number in row]
        return self._replays[form], [*map(self._place.as_ours, arguments), *numbers], lent

    def _lent_of(self, theirs: torch.Tensor) -> Lent:
        if theirs not in self._lent:
            self._lent[theirs] = Lent(theirs)
        return self._lent[theirs]

    def _body(self, pattern: Sequence[int], given: list[Tensor]) -> list[Tensor]:
        """Computes forward, loss, backward and the updates. given: arguments, and numbers of the
        optimizer.
        """
        inputs, numbers = given[: self._exported.input_count], given[self._exported.input_count :]
        one = Tensor(1.0, dtype=str(self._exported.loss.dtype).removeprefix("torch."))  # the gradient of the loss
        self._name_held()
        held = [self._lent[each].ours for each in self._exported.held]
        found = self._exported.results(self._program.interpret([*held, *inputs, one], with_checks=False))
        gradients = [found.gradients[each.parameter] for each in self._trained]
        if self._max_grad_norm is not None:
            gradients = clipped(gradients, self._max_grad_norm)
        for each, gradient in zip(self._trained, gradients, strict=True):
            width = len(numbers) // (max(pattern, default=0) + 1)
            own = numbers[pattern[self._trained.index(each)] * width :][:width]
            parameter, *states = (self._lent[tensor] for tensor in (each.parameter, *(each.states[name] for name in each.names)))
            new, new_states = each.rule.update(each.group, parameter.ours, parameter.laid_out(gradient), [state.ours for state in states], own)
            for target, value in zip([parameter, *states], [new, *new_states], strict=True):
                target.ours._reset(target.laid_out(value.astype(target.ours.dtype)))
        for buffer, value in found.buffers.items():
            target = self._lent[buffer]
            target.ours._reset(target.laid_out(value))
        return [found.loss]

    def _name_held(self) -> None:
        """Tells the recording what the user's model calls its parameters, buffers and states."""
        for tensor, name in self._exported.names.items():
            _core.set_name(self._lent[tensor].ours, name)
        for each in self._trained:
            for state in each.names:
                _core.set_name(self._lent[each.states[state]].ours, f"{self._exported.names[each.parameter]}.{state}")


def step(
    model: torch.nn.Module,
    loss: Callable[..., Any],
    optimizer: torch.optim.Optimizer,
    memory_limit: int | str | None = None,
    *,
    max_grad_norm: float | None = None,
    opt_level: int = 3,
    numerics: str = "fast",
) -> Step:
    """Makes one program of a training step: forward, loss, backward and the optimizer's update, under one limit.

    ``train = step(model, loss, optimizer, "2GB"); value = train(x, y)`` does what these lines do: ``value = loss(model(x), y);
    value.backward(); optimizer.step(); optimizer.zero_grad()``. Parameters, buffers and the optimizer's states are torch's own tensors, which
    the program reads and writes where they lie: state dicts, schedulers of the learning rate and
    evaluation between steps work as usual.
    Gradients live within the step alone (``.grad`` is left as it is).

    model: called with ``x``: a tensor, a tuple or list of arguments, or a dict by name. loss: of the model's result and the further
    arguments of the call; gives a number. optimizer: torch's SGD, Adam or AdamW. memory_limit:
    bytes, or text such as "2GB", that a step may take for parameters, states, batch and
    intermediate values; kept by computing values again. max_grad_norm: gradients of the optimizer's
    parameters are scaled where
    their norm is larger, as by ``torch.nn.utils.clip_grad_norm_``. opt_level, numerics: as of `megengine.jit.trace`.

    A call under ``torch.autocast(device, dtype)`` runs model and loss in mixed precision, as torch's own loop does. One program is made for each form of a batch
    (shapes, dtypes), such a dtype, mode of the modules and setting of the optimizer other than the learning rate. ``train.plan(x, y)`` gives its memory plan, and runs nothing. TypeError for another optimizer; RuntimeError for an operation that
    megjit does not have, or a model that reads values of tensors, with the line; ValueError for parameters that are views of one memory, and a loss that is not one number; MemoryError, before anything runs or changes, for a limit that cannot be kept.
    """
    return Step(model, loss, optimizer, {"memory_limit": memory_limit, "max_grad_norm": max_grad_norm, "opt_level": opt_level, "numerics": numerics})
