"""Adam and AdamW with moments of 8 bits, see _blocks.py."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .. import _core
from ..core import ops
from ..distributed._parts import ShardedParameter, whole_shape
from ..tensor import Parameter, Tensor
from ._blocks import block_length, decoded, shared, signed_codes, unsigned_codes
from ._steps import Counted, add_steps
from .adam import Adam, Moments
from .optimizer import write

__all__ = ["Adam8bit", "AdamW8bit"]

_CODES = {"exp_avg": np.dtype(np.int8), "exp_avg_sq": np.dtype(np.uint8)}


class Adam8bit(Adam):
    """`Adam` with both averages in 8 bits: 2.03 bytes of state for each element, in place of 8.

    The averages are those of `Adam`, in float32, while a parameter is updated. Between steps an
    element is one byte. Each ``block_size`` neighbouring elements share a float32 scale s, the
    largest magnitude of the block. The bytes c stand for ``m = s * sign(c) * (|c| / 127)^4``
    and ``v = s * ((c + 1) / 256)^4``.

    Parameters
    ----------
    params : iterable of Parameter or iterable of dict of str
        Parameters, or groups of them: dicts with ``params`` and options of their own.
    lr : float
        Learning rate, the factor of each step.
    betas : (float, float)
        Weights (b1, b2) of the old averages of the gradient and of its square, each in [0, 1).
    eps : float
        Number that is added to the root, so that nothing is divided by 0.
    weight_decay : float
        Weight decay: this number times the parameter is added to the gradient. `AdamW8bit`
        subtracts it from the parameter instead.
    block_size : int
        Largest number of elements that share a scale, at least 16. The blocks of a parameter have
        the largest length from ``block_size / 4`` to ``block_size`` that divides its size.
    min_size : int or float
        Parameters with fewer elements (biases, norms) keep averages as in `Adam`, and so do those
        whose size no length of a block divides. ``math.inf`` in a group keeps all of its averages.

    Raises
    ------
    ValueError
        For betas outside of [0, 1), a ``block_size`` below 16 or a ``min_size`` below 0.
    TypeError
        For a ``block_size`` that is no int, or a ``min_size`` that is no number.

    See Also
    --------
    Adam : Keeps averages in float32.
    AdamW8bit : Has the weight decay beside the gradient.
    Adafactor : Keeps averages of rows and columns alone.

    Notes
    -----
    State: ``exp_avg`` (int8) and ``exp_avg_sq`` (uint8) of the parameter's shape, ``exp_avg_scale``
    and ``exp_avg_sq_scale`` (float32, one for each block), ``step``. Neighbouring values of v
    are 1.6 % apart at the scale, 3 % at a tenth of it and 16 % at 1e-4 of it, and those of m are
    twice as far apart. Codes are rounded up or down at random, in proportion to the distance: slow
    averages do not stand still between two codes. The random numbers are low bits of the averages,
    therefore a step has the same bits in each run. A gradient that is not finite spoils the
    averages of its block.

    `sharded` and `distributed.fully_shard` divide the state by whole blocks: they refuse a
    parameter whose number of blocks is no multiple of that of the processes, unless its averages
    are float32. It takes no `autodiff.RowGradient`.

    References
    ----------
    Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization" (its blocks; the map of
    codes is our own). Kingma & Ba 2015, "Adam: A Method for Stochastic Optimization", algorithm 1.

    Examples
    --------
    >>> import megengine as mge, megengine.functional as F, megengine.optimizer as optim
    >>> p = mge.Parameter(F.ones((64, 64)))
    >>> p.grad = F.ones((64, 64))
    >>> opt = optim.Adam8bit([p], lr=0.5).step()
    >>> {name: (value.dtype.name, value.size) for name, value in opt.state_dict()["state"][0].items()}
    {'exp_avg': ('int8', 4096), 'exp_avg_scale': ('float32', 16), 'exp_avg_sq': ('uint8', 4096), 'exp_avg_sq_scale': ('float32', 16), 'step': ('float32', 1)}
    """

    _takes_rows = False

    def __init__(
        self,
        params: Iterable[Parameter] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        block_size: int = 256,
        min_size: float = 4096,
    ) -> None:
        options = {"lr": lr, "weight_decay": weight_decay, "betas": betas, "eps": eps}
        Counted.__init__(self, params, {**options, "block_size": block_size, "min_size": min_size})

    def _check_options(self, group: Mapping[str, Any]) -> None:
        super()._check_options(group)
        block_size, min_size = group.get("block_size", 256), group.get("min_size", 0)
        if isinstance(block_size, bool) or not isinstance(block_size, int):
            raise TypeError(f"{type(self).__name__}: block_size must be an int, got {block_size!r}")
        if block_size < 16:
            raise ValueError(f"Invalid block_size: {block_size}\n  why: blocks of {type(self).__name__} have a scale of 4 bytes, and at least 16 elements")
        if isinstance(min_size, bool) or not isinstance(min_size, (int, float)):
            raise TypeError(f"{type(self).__name__}: min_size must be a number, got {min_size!r}")
        if not min_size >= 0:  # refuses NaN, too
            raise ValueError(f"Invalid min_size: {min_size}\n  why: min_size of {type(self).__name__} is a number of elements, at least 0")

    def _check_division(self, param: Parameter, group: Mapping[str, Any], processes: int) -> None:
        shape, length = whole_shape(param), _block_length(param, group)
        if length and math.prod(shape) // length % processes:
            raise ValueError(
                f"{type(self).__name__}: {processes} processes cannot share a parameter of shape {shape}\n"
                f"  why: it has {math.prod(shape) // length} blocks of {length} elements\n"
                "  fix: put it into a group with min_size=math.inf, whose averages are float32"
            )

    def _create_state(self, param_group: dict[str, Any]) -> None:
        for param in param_group["params"]:
            length = _block_length(param, param_group)
            if not length:
                self._add_state(param, "exp_avg")
                self._add_state(param, "exp_avg_sq", dtype=np.float32)
                continue
            for name, dtype in _CODES.items():
                self._add_state(param, name, dtype=dtype)
                self._state[param][name].format = "default"  # blocks follow the order of axes
                self._add_state(param, f"{name}_scale", np.zeros(math.prod(param._tuple_shape) // length, np.float32))
        add_steps(self._state, param_group["params"])

    def _moved(self, param: Parameter, grad: Tensor, moments: Moments) -> tuple[Tensor, Tensor]:
        states = self._state[param]
        if "exp_avg_scale" not in states:
            return super()._moved(param, grad, moments)
        own = {name: decoded(states[name], states[f"{name}_scale"]) for name in _CODES}
        rows = grad.reshape(own["exp_avg"]._tuple_shape).astype("float32")
        first, second = moments.update(own, rows)
        for moment in (first, second):
            _core.mark_kept(moment)  # computing one again would split the kernel of the update
        first_scales, first_roots = shared(first)
        scales, roots = shared(second)
        write(states["exp_avg"], signed_codes(first, first_roots).reshape(param._tuple_shape))
        write(states["exp_avg_scale"], first_scales.reshape(-1))
        write(states["exp_avg_sq"], unsigned_codes(roots).reshape(param._tuple_shape))
        write(states["exp_avg_sq_scale"], scales.reshape(-1))
        # The root depends on the scales, so the kernel updates the parameter in its last pass, and therefore in place.
        return first, roots * ops.sqrt(scales)

    def _check_saved(self, group: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
        super()._check_saved(group, saved)
        for name in ("block_size", "min_size"):
            if name in saved and saved[name] != group[name]:
                raise ValueError(
                    f"load_state_dict: {name} of {type(self).__name__} is {group[name]} here and {saved[name]} in the state dict\n"
                    f"  fix: make the optimizer with {name}={saved[name]}"
                )

    def _state_types(self, param: Parameter) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        types = super()._state_types(param)
        processes = param._group.size if isinstance(param, ShardedParameter) else 1
        for name, value in self._state.get(param, {}).items():
            if name.endswith("_scale"):
                types[name] = ((value._tuple_shape[0] * processes,), value.dtype)
        return types


def _block_length(param: Parameter, group: Mapping[str, Any]) -> int:
    """The length of a parameter's blocks; 0 if its averages are float32."""
    size = math.prod(whole_shape(param))
    return block_length(size, group["block_size"]) if size >= max(group["min_size"], 1) else 0


class AdamW8bit(Adam8bit):
    """`AdamW` with both averages in 8 bits: 2.03 bytes of state for each element, in place of 8.

    ``p -= lr * (m' / (sqrt(v') + eps) + weight_decay * p)``. The state is that of `Adam8bit`.

    Parameters
    ----------
    params : iterable of Parameter or iterable of dict of str
        Parameters, or groups of them: dicts with ``params`` and options of their own.
    lr : float
        Learning rate, the factor of each step.
    betas : (float, float)
        Weights (b1, b2) of the old averages of the gradient and of its square, each in [0, 1).
    eps : float
        Number that is added to the root, so that nothing is divided by 0.
    weight_decay : float
        Weight decay beside the gradient: each step subtracts ``lr * weight_decay * p``.
    block_size : int
        Largest number of elements that share a scale, see `Adam8bit`.
    min_size : int or float
        Parameters with fewer elements keep averages as in `AdamW`, see `Adam8bit`.

    Raises
    ------
    ValueError
        For betas outside of [0, 1), a ``block_size`` below 16 or a ``min_size`` below 0.
    TypeError
        For a ``block_size`` that is no int, or a ``min_size`` that is no number.

    See Also
    --------
    AdamW : Keeps averages in float32.
    Adam8bit : Has the weight decay in the gradient, and explains the state.

    References
    ----------
    Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization". Dettmers et al. 2022, "8-bit
    Optimizers via Block-wise Quantization".

    Examples
    --------
    >>> import math, megengine.module as M, megengine.optimizer as optim
    >>> model = M.Sequential(M.Embedding(1000, 64), M.Linear(64, 64))
    >>> groups = [
    ...     {"params": model[0].parameters(), "min_size": math.inf},  # averages in float32
    ...     {"params": model[1].parameters()},
    ... ]
    >>> opt = optim.AdamW8bit(groups, lr=1e-3)
    >>> states = opt.state_dict()["state"]
    >>> states[0]["exp_avg"].dtype.name, states[2]["exp_avg"].dtype.name
    ('float32', 'int8')
    """

    _decoupled = True

    def __init__(
        self,
        params: Iterable[Parameter] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        block_size: int = 256,
        min_size: float = 4096,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, block_size, min_size)
