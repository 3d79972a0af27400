"""Loss scaling against underflow of low precision gradients (Micikevicius et al., 2018)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from .. import _core
from ..core import ops
from ..tensor import Tensor

if TYPE_CHECKING:
    from ..autodiff import GradManager
    from ..module import Module


class GradScaler:
    """Scales the loss, unscales gradients, and adapts the scale.

    After ``growth_interval`` good steps the scale is multiplied by growth_factor; a step with an
    infinite or nan gradient gets None gradients (optimizers then skip it) and multiplies it by
    backoff_factor. growth_interval 0 fixes the scale.

    >>> from megengine.amp import GradScaler
    >>> GradScaler(init_scale=8.0).scale_factor
    8.0
    """

    def __init__(
        self,
        init_scale: float = 2.0**4,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        self.scale_factor: Any = float(init_scale)  # of a Xla_GradScaler a Tensor
        self.growth_factor = float(growth_factor)
        self.backoff_factor = float(backoff_factor)
        self.growth_interval = growth_interval
        self._growth_tracker = 0
        self._found_non_finite = False

    def backward(
        self,
        gm: "GradManager",
        y: Tensor | list[Tensor] | tuple[Tensor, ...] | None = None,
        dy: Tensor | list[Tensor] | tuple[Tensor, ...] | None = None,
        *,
        unscale_grad: bool = True,
        update_scale: bool | Literal["if_unscale_grad"] = "if_unscale_grad",
    ) -> None:
        """``gm.backward(y, dy)`` with dy scaled; then unscales the gradients and updates the scale."""
        _backward(gm, y, dy, self.scale_factor)
        if unscale_grad:
            self.unscale(gm.attached_tensors())
        if unscale_grad if update_scale == "if_unscale_grad" else update_scale:
            self.update()

    def unscale(self, grad_tensors: Iterable[Tensor]) -> Self:
        """Divides ``.grad`` of the tensors by the scale; sets all to None when one of them is not
        finite.
        """
        tensors = [t for t in grad_tensors if getattr(t, "grad", None) is not None]
        inverse = 1.0 / self.scale_factor
        finite = None
        for t in tensors:
            _core.note_grad(t)
            t.grad = ops.mul(t.grad, inverse)
            if self.growth_interval != 0:
                this = _all_finite(t.grad)
                finite = this if finite is None else ops.logical_and(finite, this)
        if finite is not None and not finite.item():  # one read, for each waits for the device
            self._found_non_finite = True
            for t in tensors:
                t.grad = None
        return self

    def update(self, new_scale: float | None = None) -> None:
        """Adapts the scale to what `unscale` found since the last update, or sets it."""
        if self.growth_interval == 0:
            return
        if new_scale is not None:
            self.scale_factor = float(new_scale)
        elif self._found_non_finite:
            self.scale_factor *= self.backoff_factor
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker >= self.growth_interval:
                self.scale_factor *= self.growth_factor
                self._growth_tracker = 0
        self._found_non_finite = False

    def state_dict(self) -> dict[str, Any]:
        """Settings and state."""
        return {
            "scale_factor": self.scale_factor,
            "growth_factor": self.growth_factor,
            "backoff_factor": self.backoff_factor,
            "growth_interval": self.growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` gave."""
        for name in self.state_dict():
            setattr(self, name, state[name])


def _backward(gm: "GradManager", y: Any, dy: Any, scale: Any) -> None:
    """``gm.backward(y, dy)`` with dy, ones where it is None, times ``scale``."""
    ys, dys = _as_list(y), _as_list(dy)
    if dy is None:
        dys = [ops.full(shape=v._tuple_shape, value=1.0, dtype=v.dtype.name, device=v) for v in ys]
    gm.backward(y=ys, dy=[ops.mul(d, scale) for d in dys])


def _as_list(value: Any) -> list[Tensor]:
    """One tensor, several or None as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _all_finite(x: Tensor) -> Tensor:
    """Whether every element is finite, as a 0-d bool."""
    return ops.reduce_min(ops.isfinite(x), axes=tuple(range(x.ndim)), keepdims=False)


class Xla_GradScaler(GradScaler):
    """A GradScaler for steps compiled as a whole: non-finite steps restore the parameters
    afterwards.
    """

    def __init__(
        self,
        model: "Module",
        init_scale: float = 2.0**4,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        super().__init__(init_scale, growth_factor, backoff_factor, growth_interval)
        self.scale_factor = Tensor(float(init_scale))
        self.origin_params = [np.copy(p.numpy()) for p in model.parameters()]

    def backward(  # type: ignore[override]  # the scale is an argument of the compiled step
        self,
        gm: "GradManager",
        scale_factor: Tensor,
        y: Any = None,
        dy: Any = None,
    ) -> None:
        """``gm.backward`` with dy times ``scale_factor``; gradients are divided by it."""
        _backward(gm, y, dy, scale_factor)
        for t in gm.attached_tensors():
            if t.grad is not None:
                t.grad = ops.true_div(t.grad, scale_factor)

    def update(  # type: ignore[override]  # checks the parameters instead of gradients
        self, model: "Module", new_scale: float | None = None
    ) -> None:
        """After an optimizer step: keeps it when all parameters are finite, else restores the ones
        before.
        """
        if self.growth_interval == 0:
            return
        parameters = list(model.parameters())
        values = [p.numpy() for p in parameters]
        if all(np.isfinite(v).all() for v in values):
            self.origin_params = [np.copy(v) for v in values]
            self._growth_tracker += 1
            grown = self._growth_tracker >= self.growth_interval
            factor = self.growth_factor if grown else 1.0
        else:
            for p, before in zip(parameters, self.origin_params, strict=False):
                p[...] = Tensor(before, dtype=p.dtype)
            grown, factor = True, self.backoff_factor
        if grown:
            self._growth_tracker = 0
        scale = float(self.scale_factor.item()) * factor if new_scale is None else float(new_scale)
        self.scale_factor[...] = scale
