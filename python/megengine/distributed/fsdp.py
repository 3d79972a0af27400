"""Modules whose parameters a group holds once: each process a part, gathered for the layer that computes (ZeRO, stage 3).

`fully_shard` cuts the parameters; their gradients and the optimizer's states are cut like them. A
layer's
forward gathers its own; in a traced step they are let go of behind it and gathered again for backward
(jit/plan/passes/rematerialize.cpp), and the memory plan counts them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..autodiff import Function
from ..core import ops
from ..tensor import Parameter, Tensor
from ._parts import ShardedParameter, cut, rows_of, whole_of
from .functional import _run
from .group import WORLD, Group

__all__ = ["fully_shard", "gathered"]

_SMALL = 16 << 10  # bytes of a part: those of one layer are gathered together
_Place = tuple[Any, Any]  # a module's attributes, or a list or dict in these; and a key of it


def fully_shard(
    module: Any,
    group: Group = WORLD,
    reduce_method: str = "mean",
    unit: type | tuple[type, ...] = (),
) -> Any:
    """Cuts the parameters of a module into parts, one for each process, in place (ZeRO, stage 3).

    All processes call it together; the values are those of the first process. Afterwards each Parameter
    is this process's part, flat, with a gradient and a state of the optimizer as large as that. While a layer's
    ``forward`` runs, the layer has whole parameters.

    Parameters
    ----------
    module : Module
        A network. Make its optimizer afterwards: SGD, Adam, AdamW, Adam8bit, AdamW8bit,
        RMSprop, Lion, Adagrad or Adadelta.
    group : Group
        The processes that share it.
    reduce_method : str
        "mean" or "sum" of the gradients over the processes; attach parameters without ``make_allreduce_cb``.
    unit : type or tuple of type
        Classes of modules whose parameters are gathered together, with those of all modules within. Other
        modules are gathered each by itself.

    Returns
    -------
    Module
        The same module; in a group of one process nothing has changed.

    Raises
    ------
    ValueError
        For another reduce_method, and where there is nothing to cut: no parameters, or parts already.
    TypeError
        For a parameter in a tuple, which cannot be replaced.

    Notes
    -----
    A parameter that another module reads (tied weights) is whole in its own module alone: read it under
    `gathered`, hold it in both modules, or name their parent's class in ``unit``. In eager mode backward keeps
    what forward gathered; the traced step lets go of it. ``state_dict`` gives whole arrays, and
    ``load_state_dict`` takes them, in modules and optimizers; all processes call them together.

    References
    ----------
    Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models".

    Examples
    --------
    >>> import megengine.module as M, megengine.optimizer as optim
    >>> from megengine.distributed.fsdp import fully_shard
    >>> net = fully_shard(M.Sequential(M.Linear(8, 32), M.ReLU(), M.Linear(32, 1)))
    >>> opt = optim.Adam(net.parameters(), lr=0.01)
    """
    if reduce_method not in ("mean", "sum"):
        raise ValueError(f'fully_shard: reduce_method must be "mean" or "sum", got {reduce_method!r}')
    parameters = list(module.parameters())
    if not parameters:
        raise ValueError(f"fully_shard: {type(module).__name__} has no parameters")
    if any(isinstance(each, ShardedParameter) for each in parameters):
        raise ValueError("fully_shard: some of the parameters are parts already\n  fix: call it once, for the network")
    if group.size == 1:
        return module
    for name, inner in module.named_modules():
        for value in inner.__dict__.values():
            if isinstance(value, tuple) and any(isinstance(each, Parameter) for each in value):
                raise TypeError(f"fully_shard: {name or 'the module'} holds parameters in a tuple\n  fix: hold them in a list")
    for parameter in parameters:
        _cut_in_place(parameter, group)
    in_units: set[int] = set()
    for inner in module.modules():  # outer ones first
        if id(inner) in in_units:
            continue
        is_whole = isinstance(inner, unit)
        members = list(inner.modules()) if is_whole else [inner]
        if any(True for member in members for _ in _parts_in(member.__dict__)):
            forward = inner.__dict__.get("forward") or functools.partial(type(inner).forward, inner)
            inner.__dict__["forward"] = functools.partial(_forward, inner, forward, is_whole, reduce_method)
        if is_whole:
            in_units.update(map(id, members))
    return module


def gathered(module: Any) -> _Gathered:
    """Gives a module, and all modules within, whole parameters until the block ends; all processes do it together.

    Parameters
    ----------
    module : Module
        What `fully_shard` has cut, or a part of it. What is written to the parameters is lost.

    Returns
    -------
    context manager
        For a ``with`` statement.

    Examples
    --------
    >>> import megengine.module as M
    >>> from megengine.distributed.fsdp import fully_shard, gathered
    >>> net = fully_shard(M.Linear(8, 2))
    >>> with gathered(net):
    ...     net.weight.shape
    (2, 8)
    """
    return _Gathered(list(module.modules()), "mean")


def _cut_in_place(parameter: Any, group: Group) -> None:
    shape = parameter._tuple_shape
    part: Any = _run("scatter_from_root", rows_of(parameter.detach(), group.size), group)
    parameter.__class__ = ShardedParameter
    parameter._shape_of_whole, parameter._group = shape, group
    parameter._reset(part)


def _forward(module: Any, forward: Callable[..., Any], is_whole: bool, reduce_method: str, *args: Any, **kwargs: Any) -> Any:
    """Runs in place of ``module.forward``."""
    with _Gathered(list(module.modules()) if is_whole else [module], reduce_method):
        return forward(*args, **kwargs)


def _parts_in(container: Any) -> Iterator[_Place]:
    """Iterates over the parts of a module: in its attributes, and in the lists and dicts among
    these.
    """
    for key, value in container.items() if isinstance(container, dict) else enumerate(container):
        if isinstance(value, ShardedParameter):
            yield container, key
        elif isinstance(value, (list, dict)):
            yield from _parts_in(value)


class _Gathered:
    """Gives the modules whole parameters while it lasts. (No generator: errors are to name the line
    that calls forward.)
    """

    def __init__(self, modules: Sequence[Any], reduce_method: str) -> None:
        self._modules, self._reduce_method = modules, reduce_method
        self._before: list[tuple[_Place, ShardedParameter]] = []

    def __enter__(self) -> None:
        places = [place for module in self._modules for place in _parts_in(module.__dict__)]
        self._before = [((container, key), container[key]) for container, key in places]
        parts = {id(part): part for _, part in self._before}
        wholes = dict(zip(parts, _wholes_of(list(parts.values()), self._reduce_method), strict=True))
        for (container, key), part in self._before:
            container[key] = wholes[id(part)]

    def __exit__(self, *_: object) -> None:
        for (container, key), part in self._before:
            container[key] = part


def _wholes_of(parts: list[ShardedParameter], reduce_method: str) -> list[Tensor]:
    """Gathers the parameters in their order. Small ones are gathered together, and no op stands
    between a layer's exchanges.
    """
    together: dict[Any, list[int]] = {}
    for i, part in enumerate(parts):
        is_small = part.dtype.itemsize * part._tuple_shape[0] <= _SMALL
        together.setdefault((not is_small, part.dtype.name, part._device_name, 0 if is_small else i), []).append(i)
    found: dict[int, Tensor] = {}
    groups = [places for _, places in sorted(together.items())]
    joint = [ops.concat(*(parts[i] for i in places), axis=0) if len(places) > 1 else parts[places[0]] for places in groups]
    rows: list[Any] = [_Gather(parts[0]._group, reduce_method)(each) for each in joint]
    for places, of_all in zip(groups, rows, strict=True):
        counts = [parts[i]._tuple_shape[0] for i in places]
        for i, columns in zip(places, cut(of_all, counts) if len(places) > 1 else (of_all,), strict=True):
            found[i] = whole_of(columns, parts[i]._shape_of_whole)
    return [found[i] for i in range(len(parts))]


class _Gather(Function):
    """Makes all rows of a row from each process. The gradient of this process's row is the sum or mean of its gradients over the processes."""

    def __init__(self, group: Group, reduce_method: str) -> None:
        self._group, self._is_mean = group, reduce_method == "mean"

    def forward(self, part: Tensor) -> Tensor:
        whole: Any = _run("all_gather", part, self._group, is_transient=1)
        return whole

    def backward(self, grad: Tensor) -> Tensor:
        total: Any = _run("reduce_scatter_sum", grad, self._group)
        return total / self._group.size if self._is_mean else total
