"""Step counts as graph state.

Every parameter has a state ``step``, the number of its updates. Parameters that are always updated together hold one
and the same Tensor, so that a step counts, and computes bias corrections, once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from .._core import note_variant
from ..amp import decisions
from ..core.scopes import note_lookup
from ..tensor import Parameter, Tensor
from .optimizer import Optimizer, same_value


def add_steps(states: dict[Parameter, dict[str, Tensor]], params: list[Parameter]) -> None:
    """Gives the parameters of a new group a common step of 0."""
    step = Tensor(np.float32(0), device=params[0]._device_name)
    for param in params:
        states.setdefault(param, {})["step"] = step


class Counted(Optimizer):
    """An optimizer whose parameters have the states ``_states``, zero at first, and a step.

    Sums of squares (``_squares``) are float32 whatever the parameter is: in halves they would be 0 or infinite.
    """

    _states: tuple[str, ...] = ()
    _squares: tuple[str, ...] = ()

    def _create_state(self, param_group: dict[str, Any]) -> None:
        for param in param_group["params"]:
            for name in self._states:
                self._add_state(param, name)
            for name in self._squares:
                self._add_state(param, name, dtype=np.float32)
        add_steps(self._state, param_group["params"])


def counted(
    states: dict[Parameter, dict[str, Tensor]], params: list[Parameter]
) -> Iterator[tuple[Tensor, list[Parameter]]]:
    """Iterates over (step, parameters): those with a gradient, by their step, which is one more
    than before.
    """
    holders: dict[int, int] = {}
    together: dict[tuple[int, int], list[Parameter]] = {}
    for param in params:
        step = states[param]["step"]
        holders[id(step)] = holders.get(id(step), 0) + 1
        if param.grad is not None:
            decision = decisions.decision_of(param) if decisions.held else None  # another one may keep the old count
            together.setdefault((id(step), decision._value_id() if decision is not None else 0), []).append(param)
    note_variant(str([*map(len, together.values())]))
    for key, active in together.items():
        step = states[active[0]]["step"]
        if len(active) != holders[key[0]]:  # the others keep the old count
            step = same_value(step)
            for param in active:
                states[param]["step"] = step
        for param in active:
            note_lookup(partial(states[param].__getitem__, "step"))
        step._reset(step + 1.0)
        yield step, active

