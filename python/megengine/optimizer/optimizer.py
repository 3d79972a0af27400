"""Optimizer: groups of parameters with options, and the state of each parameter.

A step under a trace is part of the graph, therefore options become Tensors once a step and group: they are inputs
of the graph, and a schedule may change them between calls.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from .. import _core, distributed
from ..amp import decisions
from ..core import ops
from ..core._telling import deprecated
from ..core.row_gradient import RowGradient, refuse_rows, set_to_zero
from ..distributed._parts import ShardedParameter, own_array, whole_array, whole_shape
from ..tensor import Parameter, Tensor

__all__ = ["Optimizer", "required"]

# The beginning of the error for a negative option.
_INVALID = {
    "lr": "Invalid learning rate", "weight_decay": "Invalid weight_decay value", "eps": "Invalid epsilon value",
    "momentum": "Invalid momentum value", "lr_decay": "Invalid learning rate decay",
}  # fmt: skip


class _Required:
    def __repr__(self) -> str:
        return "<required>"


required = _Required()  # the default of an option that has none


def scalar(value: float, near: Tensor) -> Tensor:
    """Returns an option as a float32 Tensor on the device of ``near``; in a trace it is an input.
    """
    return Tensor(float(value), device=near._device_name)


def option(group: dict[str, Any], read: Callable[[dict[str, Any]], float], name: str = "") -> Tensor:
    """An option of a group as a float32 Tensor. A trace that later runs without this code reads it anew.

    name: its name in the state of a dumped function; "" if it is a constant there.
    """
    tensor = scalar(read(group), group["params"][0])
    if name:
        _core.note_option(tensor, name)
    if _core.is_capturing():
        _core.note_getter(tensor, _reader(group, read))
    return tensor


def _reader(group: dict[str, Any], read: Callable[[dict[str, Any]], float]) -> Callable[[], Tensor]:
    """Gives the option's tensor, which is made anew only when the number has changed."""
    digits = ""
    tensor: Any = None  # a Tensor after the first call

    def current() -> Tensor:
        nonlocal digits, tensor
        number = float(read(group))
        if number.hex() != digits:  # unlike ==, tells -0.0 from 0.0
            digits, tensor = number.hex(), scalar(number, group["params"][0])
        return tensor

    return current


def is_tracing() -> bool:
    """Whether a trace runs: then steps record the weight decay even if it is 0."""
    return _core.is_tracing()


def rates(group: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
    """Returns -lr and weight_decay of a group; None for a decay of 0 outside of traces, where it
    cannot change later.
    """
    decays = group["weight_decay"] != 0.0 or is_tracing()
    decay = option(group, lambda group: group["weight_decay"], "weight_decay") if decays else None
    if _core.records_for_dump():  # a file has the rate itself
        return ops.neg(option(group, lambda group: group["lr"], "lr")), decay
    return option(group, lambda group: -group["lr"]), decay


def decayed(param: Tensor, decay: Tensor | None, update: Any) -> Tensor:
    """``update + decay * param``."""
    return update if decay is None else ops.fma3(param, decay, update)


def squared(grad: Tensor) -> Tensor:
    """Computes ``grad ** 2`` in float32: in float16 it would be infinite above 255, and 0 below
    2e-4.
    """
    return ops.square(grad if grad.dtype.itemsize == 4 else grad.astype("float32"))


def same_value(tensor: Tensor) -> Tensor:
    """Returns another Tensor with the present value of ``tensor``. It is rebound, so it gets the
    old value back if a trace undoes its call.
    """
    other = scalar(0.0, tensor)
    other._hold(tensor)
    return other


def updates_where_finite(optimizer: Optimizer, group: dict[str, Any]) -> None:
    """Runs ``optimizer._updates(group)``. Parameters whose gradients a traced step found not finite
    keep value and state.
    """
    if not _core.is_tracing():
        _drop_gradients(group["params"])
        optimizer._updates(group)
        return
    decided = [(param, decision) for param in group["params"] if (decision := decisions.decision_of(param)) is not None and param.grad is not None]
    before = [{name: same_value(target) for name, target in _targets(optimizer, param)} for param, _ in decided]
    optimizer._made, done = {}, set()
    try:
        optimizer._updates(group)
        for (param, is_finite), olds in zip(decided, before, strict=True):
            for name, target in _targets(optimizer, param):
                old = olds[name] if name in olds else optimizer._made[id(target)]
                if id(target) not in done and target._value_id() != old._value_id():
                    done.add(id(target))
                    write(target, ops.where(is_finite, target, old))
    finally:
        del optimizer._made
    for param, _ in decided:
        decisions.settle(param)


def _targets(optimizer: Optimizer, param: Parameter) -> list[tuple[str, Tensor]]:
    return [("", param), *optimizer._state.get(param, {}).items()]


def _drop_gradients(params: Iterable[Parameter]) -> None:
    """Drops, outside of a trace, gradients that a traced call has found not finite."""
    for param in params:
        if (decision := decisions.decision_of(param)) is not None:
            if not decision.item():
                param.grad = None
            decisions.settle(param)


def write(target: Tensor, value: Tensor) -> None:
    """Makes the handle hold ``value`` in its own dtype."""
    if value.dtype != target.dtype:
        value = value.astype(target.dtype)
    target._reset(value)


def write_rows(target: Tensor, rows: Tensor, values: Tensor) -> None:
    """Makes these rows of the handle's value ``values``, in its own dtype."""
    if values.dtype != target.dtype:
        values = values.astype(target.dtype)
    target._reset(ops.index_set(target, values, rows, axes=(0,)))


class Optimizer:
    """Base of optimizers: groups of Parameters with options, and the state of each Parameter.

    Subclasses define ``_create_state(param_group)`` and ``_updates(param_group)``.

    Parameters
    ----------
    params : iterable of Parameter, Parameter, iterable of dict of str or dict of str
        Parameters, or groups: dicts with ``params`` and options of their own, such as ``lr``.
    defaults : dict of str
        Values of the options for groups that do not set them.

    Raises
    ------
    TypeError
        For anything but Parameters, or for a mixture.
    ValueError
        For an empty list, a missing option or a negative one.
    AssertionError
        For a Parameter given twice.

    See Also
    --------
    autodiff.GradManager : Computes the gradients.
    LRScheduler : Changes learning rates from epoch to epoch.

    Notes
    -----
    ``param_groups`` is the list of groups; values that are written there count from the next step
    on.

    Examples
    --------
    >>> import megengine.autodiff as ad, megengine.functional as F
    >>> import megengine.module as M, megengine.optimizer as optim
    >>> model = M.Linear(4, 1)
    >>> opt, gm = optim.SGD(model.parameters(), lr=0.1), ad.GradManager().attach(model.parameters())
    >>> with gm:
    ...     gm.backward(F.mean(model(F.ones((8, 4))) ** 2))
    >>> opt = opt.step().clear_grad()
    """

    # whether an element's update depends on its parameter, gradient and state alone
    _is_elementwise = False
    # whether a row's update depends on its gradient and state alone, and is zero if the gradient is 0
    _takes_rows = False
    _later_states: tuple[str, ...] = ()  # states that a parameter has or not, by the options
    _processes = 1  # the group among which `sharded` divides the state
    # id of a state -> its first value, in updates that may be taken back
    _made: dict[int, Tensor] | None = None

    def __init__(
        self,
        params: Iterable[Parameter] | Parameter | Iterable[dict[str, Any]] | dict[str, Any],
        defaults: dict[str, Any],
    ) -> None:
        self._state: dict[Parameter, dict[str, Tensor]] = {}
        self._defaults = defaults
        self.param_groups: list[dict[str, Any]] = []
        for group in _groups_of(params):
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group, a dict with ``params`` and options, and makes its state.

        Parameters
        ----------
        param_group : dict of str
            Has ``params``, one Parameter or several, and options.

        Raises
        ------
        TypeError
            Unless it is a dict with Parameters.
        ValueError
            For no Parameters or a missing option.
        AssertionError
            For a Parameter that is in a group already.
        """
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise TypeError("add_param_group: param_group must be a dict with an entry 'params'")
        group = dict(param_group)
        given = group["params"]
        params: list[Any] = [given] if isinstance(given, Tensor) else list(given)
        if not params:
            raise _no_parameters()
        known = {id(other) for old in self.param_groups for other in old["params"]}
        for param in params:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"optimizer can only optimize Parameters, but one of the params is {type(param)}\n"
                    "  fix: pass model.parameters(), or make it a megengine.Parameter"
                )
            if id(param) in known:
                raise AssertionError(
                    "some parameters appear in more than one parameter group\n"
                    f"  why: one of shape {param._tuple_shape} was given twice\n"
                    "  fix: put each parameter into one group, once"
                )
            known.add(id(param))
            if isinstance(param, ShardedParameter) and not self._is_elementwise:
                raise ValueError(
                    f"{type(self).__name__} needs whole parameters (their norms, say), and fully_shard has left this process parts\n"
                    "  fix: use SGD, Adam, AdamW, RMSprop, Lion, Adagrad or Adadelta"
                )
        group["params"] = params
        for name, default in self._defaults.items():
            if name not in group and default is required:
                raise ValueError(
                    f"optimizer: a group lacks the option {name!r}, which has no default"
                )
            group.setdefault(name, default)
        self._check_options(group)
        for param in params:
            self._check_division(param, group, param._group.size if isinstance(param, ShardedParameter) else self._processes)
        self.param_groups.append(group)
        self._create_state(group)

    def _check_options(self, group: Mapping[str, Any]) -> None:
        """Raises ValueError for options that cannot be, TypeError for a text in place of a number.
        """
        for name in _INVALID:
            value = group.get(name, 0)
            if isinstance(value, str):
                raise TypeError(f"{type(self).__name__}: {name} must be a number, got {value!r}")
            if isinstance(value, (int, float)) and not value >= 0:  # refuses NaN, too
                raise ValueError(f"{_INVALID[name]}: {value}\n  why: {name} of {type(self).__name__} must be at least 0")
        betas = group.get("betas", (0, 0))
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise TypeError(f"{type(self).__name__}: betas must be a pair of numbers, got {betas!r}")
        for index, beta in enumerate(betas):
            if not 0 <= beta < 1:
                raise ValueError(f"Invalid beta parameter at index {index}: {beta}\n  why: betas of {type(self).__name__} must lie in [0, 1)")

    def _check_division(self, param: Parameter, group: Mapping[str, Any], processes: int) -> None:
        """Raises ValueError if the state of an element-wise optimizer cannot be divided evenly."""

    # -- for subclasses --------------------------------------------------------------------------

    def _create_state(self, param_group: dict[str, Any]) -> None:
        """Makes the state of each parameter with `_add_state`."""

    def _updates(self, param_group: dict[str, Any]) -> None:
        """Updates each parameter of the group that has a gradient."""
        raise TypeError(f"{type(self).__name__} does not define _updates(param_group)")

    def _add_state(self, param: Parameter, state_name: str, initializer: Any = None, dtype: Any = None) -> None:
        """Adds a state of a parameter: a Tensor of its shape, dtype and format, zeros unless given.
        """
        if initializer is None:
            shape, dtype = param._tuple_shape, param.dtype if dtype is None else dtype
            # In a recording the zeros are made of host data, and are a value of the step.
            initializer = np.zeros(shape, dtype) if _core.is_recording() else _core.zeros(shape, dtype, str(param.device))
        states = self._state.setdefault(param, {})
        if state_name in states:
            raise AssertionError(f"optimizer: state {state_name!r} of a parameter exists already")
        state = Tensor(initializer, device=str(param.device))
        if state._tuple_shape == param._tuple_shape:
            # updates leave this format, so the next traced step is the same
            state.format = param.format
        states[state_name] = state
        if self._made is not None:
            self._made[id(state)] = same_value(state)

    # -- use -------------------------------------------------------------------------------------

    def step(self) -> Optimizer:
        """Updates the Parameters that have gradients, in place.

        Returns
        -------
        Optimizer
            The optimizer itself.
        """
        if _core.is_recording():
            for param, states in self._state.items():
                for name, state in states.items():
                    _core.note_name_like(state, param, name)
        if RowGradient._are_there:
            for group in self.param_groups:
                for param in group["params"]:
                    if isinstance(param.grad, RowGradient):
                        self._check_takes_rows(group, param.grad)
        for group in self.param_groups:
            for param in group["params"]:
                if isinstance(param, ShardedParameter):
                    self._check_is_cut(param)
            if decisions.held:
                updates_where_finite(self, group)
            else:
                self._updates(group)
        return self

    def _check_takes_rows(self, group: Mapping[str, Any], grad: RowGradient) -> None:
        """Raises TypeError where rows without a gradient move as well."""
        name = type(self).__name__
        if not self._takes_rows:
            refuse_rows(f"optimizer.{name}", grad.shape, "train it with SGD or Adam")
        for option in ("weight_decay", "momentum"):
            if group.get(option, 0.0) != 0.0:
                refuse_rows(f"optimizer.{name} with {option}={group[option]}", grad.shape, f"put it into a group with {option}=0")

    def _check_is_cut(self, param: ShardedParameter) -> None:
        """Refuses a parameter that `fully_shard` cut after this optimizer was made."""
        for name, (shape, _) in self._state_types(param).items():
            if name != "step" and self._state[param][name]._tuple_shape != (-(-math.prod(shape) // param._group.size),):
                raise ValueError(
                    f"{type(self).__name__}: fully_shard has cut a parameter of shape {param._shape_of_whole} after this optimizer was made\n"
                    "  fix: make the optimizer behind fully_shard(net)"
                )

    def clear_grad(self) -> Optimizer:
        """Sets the gradients of all Parameters to None.

        Returns
        -------
        Optimizer
            The optimizer itself.
        """
        for group in self.param_groups:
            for param in group["params"]:
                if decisions.held:
                    decisions.settle(param)
                _core.note_grad(param)
                param.grad = None
        return self

    @deprecated("Optimizer.zero_grad")
    def zero_grad(self) -> Optimizer:
        """Sets all gradients to zero.

        Returns
        -------
        Optimizer
            The optimizer itself.
        """
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    set_to_zero(param.grad)
        return self

    def backward(self, loss: Tensor) -> None:
        """Refuses: gradients come from an `autodiff.GradManager`.

        Parameters
        ----------
        loss : Tensor
            Has no effect; it is not read.

        Raises
        ------
        RuntimeError
            Always.
        """
        raise RuntimeError(
            "Optimizer.backward does not exist any more\n"
            "  fix: gm = GradManager().attach(model.parameters()); with gm: ...; gm.backward(loss)"
        )

    def bcast_param(self) -> None:
        """Gives all processes the parameters of rank 0; without a process group nothing happens."""
        if not distributed.is_distributed():
            return
        for group in self.param_groups:
            for param in group["params"]:
                param._reset(distributed.functional.broadcast(param))

    # -- state dict ------------------------------------------------------------------------------

    def state_dict(self, keep_var: bool = False) -> dict[str, Any]:
        """Returns ``{"param_groups": [options, "params": ids], "state": {id: {name: ndarray}}}``.

        Parameters
        ----------
        keep_var : bool
            Whether to give Tensors instead of ndarrays.

        Returns
        -------
        dict of str
            Options and states; an id is the place of a Parameter in the order of all groups.
        """
        ids: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for param in group["params"]:
                ids[id(param)] = len(ids)
            packed = {name: copy.copy(value) for name, value in group.items() if name != "params"}
            packed["params"] = [ids[id(param)] for param in group["params"]]
            groups.append(packed)
        state = {
            ids[id(param)]: {
                name: value if keep_var else (value.numpy() if name == "step" else whole_array(param, value, self._state_types(param)[name][0]))
                for name, value in states.items()
            }
            for param, states in self._state.items()
        }
        return {"param_groups": groups, "state": state}

    def _state_of_parts(self) -> dict[str, Any]:
        """Returns `state_dict` with a Part in place of each array that is cut, as this process
        holds only parts.
        """
        found = self.state_dict(keep_var=True)
        params = [param for group in self.param_groups for param in group["params"]]
        for number, states in found["state"].items():
            if isinstance(param := params[number], ShardedParameter):
                types = self._state_types(param)
                states.update({name: param._as_part(value, types[name][0]) for name, value in states.items() if name != "step"})
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over options and state from what `state_dict` of an equal optimizer returned.

        All of it is checked before anything changes. Floats are converted to the dtype of the state
        at hand.

        Parameters
        ----------
        state : mapping of str
            Mapping that `state_dict` of an equal optimizer returned.

        Raises
        ------
        ValueError
            If the numbers of groups differ, or the numbers of Parameters in a group; if a state is
            missing, unknown or has another shape; and for options out of range.
        TypeError
            If a state or an option is no number.
        """
        if "param_groups" not in state:
            raise ValueError(f"load_state_dict: the keys are {list(state)}, without 'param_groups'\n  fix: pass what state_dict() of an optimizer returned")
        saved_groups = state["param_groups"]
        ours = [len(group["params"]) for group in self.param_groups]
        theirs = [len(group["params"]) for group in saved_groups]
        if ours != theirs:
            raise ValueError(
                "load_state_dict: the groups differ: "
                f"parameters per group are {ours} here and {theirs} in the state dict\n"
                "  fix: build the model and the optimizer with the sizes and the groups of the saved ones"
            )
        loaded = {}
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            self._check_saved(group, saved)
            shared: dict[float, Tensor] = {}
            for param, number in zip(group["params"], saved["params"], strict=True):
                arrays = self._checked_state(param, number, state["state"].get(number, {}))
                loaded[param] = _loaded(param, arrays, shared)
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            group.update({name: value for name, value in saved.items() if name != "params"})
        self._state.update(loaded)

    def _check_saved(self, group: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
        """Raises ValueError for saved options that cannot take the place of those of a group."""
        self._check_options(saved)

    def _state_types(self, param: Parameter) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of each state that the parameter has, whole."""
        return {
            name: (whole_shape(param) if self._is_elementwise and name != "step" else value._tuple_shape, value.dtype)
            for name, value in self._state.get(param, {}).items()
        }

    def _checked_state(self, param: Parameter, number: Any, saved: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Returns the arrays to load for a parameter, in the dtypes of its states."""
        types = {name: (whole_shape(param), param.dtype) for name in self._later_states if name in saved}
        types |= self._state_types(param)
        missing = types.keys() - saved.keys() - set(self._later_states)
        if missing or saved.keys() - types.keys():
            raise ValueError(
                f"load_state_dict: parameter {number} has the states {sorted(saved)}, and {type(self).__name__} "
                f"needs {sorted(types)}\n  fix: load it into an optimizer of the class that saved it"
            )
        arrays = {}
        for name, value in saved.items():
            array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
            shape, dtype = types[name]
            if array.dtype.kind not in "fiub":
                raise TypeError(f"load_state_dict: {name} of parameter {number} holds no numbers, but {array.dtype}")
            if name == "step":
                array = array.reshape(()) if array.size == 1 else array
            if array.shape != shape:
                raise ValueError(
                    f"load_state_dict: {name} of parameter {number} has the shape {array.shape}, and its parameter needs {shape}\n"
                    "  fix: give the optimizer the parameters in the order in which they were saved"
                )
            arrays[name] = array.astype(dtype, copy=False)
        return arrays


def _loaded(param: Parameter, saved: Mapping[str, np.ndarray], shared: dict[float, Tensor]) -> dict[str, Any]:
    """The saved state of one parameter. Equal steps become one Tensor again, see _steps.py."""
    states = {}
    for name, array in saved.items():
        if name == "step":
            count = float(array)
            if count not in shared:
                shared[count] = Tensor(np.float32(count), device=str(param.device))
            states[name] = shared[count]
        else:
            own = own_array(param, array) if isinstance(param, ShardedParameter) else array
            states[name] = Tensor(own, device=str(param.device))
    return states


def _no_parameters() -> ValueError:
    return ValueError(
        "optimizer got an empty parameter list\n"
        "  fix: pass model.parameters(); a generator gives its items once, so keep list(...) to use them twice"
    )


def _groups_of(params: Any) -> list[dict[str, Any]]:
    """Returns the groups that the constructor's argument means."""
    if isinstance(params, Tensor):
        return [{"params": [params]}]
    if isinstance(params, dict):
        return [params]
    try:
        items = list(params)
    except TypeError:
        raise TypeError(
            f"optimizer: params must be Parameters or dicts, got a {type(params).__name__}\n"
            "  fix: pass model.parameters()"
        ) from None
    if not items:
        raise _no_parameters()
    kinds = {isinstance(item, dict) for item in items}
    if len(kinds) == 2:
        raise TypeError("optimizer: params mixes dicts and Parameters; use one kind")
    return items if kinds == {True} else [{"params": items}]
