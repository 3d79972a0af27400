"""Loss scaling against underflow of low precision gradients (Micikevicius et al., 2018)."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from .. import _core
from ..core import ops
from ..core.row_gradient import RowGradient, changed
from ..core.scopes import note_name
from ..core.tensor.shapes import default_gradient
from ..tensor import Tensor
from . import decisions

if TYPE_CHECKING:
    from ..autodiff import GradManager
    from ..module import Module


class _Number:
    """A float32 that eager code reads and writes as a number, and a traced step as a tensor, a state of its graph.

    Until a program writes another number into the tensor, it is known without a read.
    """

    __slots__ = ("_id", "_number", "tensor")

    def __init__(self, number: float) -> None:
        self._number = number
        self.tensor = Tensor(np.float32(number))
        self._id = self.tensor._value_id()

    def __reduce__(self) -> Any:
        return _Number, (self._known(),)

    def read(self) -> float:
        return float(self.tensor.item()) if _core.is_tracing() else self._known()  # a trace must learn of a read

    def _known(self) -> float:
        if self.tensor._value_id() != self._id:
            self._number, self._id = float(self.tensor.item()), self.tensor._value_id()
        return self._number

    def write(self, number: float) -> None:
        self.tensor._reset(Tensor(np.float32(number), device=self.tensor._device_name))
        self._number, self._id = number, self.tensor._value_id()

    def near(self, other: Tensor) -> Tensor:
        """Returns the tensor on the device of ``other``."""
        if self.tensor._device_name != other._device_name:
            self.tensor = Tensor(np.float32(self._known()), device=other._device_name)
            self._id = self.tensor._value_id()
        return self.tensor


class GradScaler:
    """Scales the loss so that gradients in low precision do not underflow, and adapts the scale.

    Parameters
    ----------
    init_scale : float
        The scale at first.
    growth_factor : float
        Factor of the scale after growth_interval good steps.
    backoff_factor : float
        Factor of the scale after a step with a gradient that is infinite or NaN; all gradients of
        that step become None, so that the optimizer skips it.
    growth_interval : int
        Number of good steps before the scale grows; 0 fixes the scale.

    See Also
    --------
    autocast : Computes in low precision.

    Notes
    -----
    A traced step reads no values: the scale and the number of good steps are states of its graph.
    If one of its gradients is not finite, all become zeros instead of None, and the optimizer's
    next step keeps parameters and states. The scale is a float32.

    References
    ----------
    Micikevicius et al. 2018, "Mixed Precision Training".

    Examples
    --------
    >>> import megengine as mge
    >>> from megengine.amp import GradScaler
    >>> p, scaler = mge.Parameter([1.0]), GradScaler(init_scale=8.0)
    >>> p.grad = mge.Tensor([float("inf")])
    >>> scaler.unscale([p]).update()
    >>> p.grad is None, scaler.scale_factor
    (True, 4.0)
    """

    def __init__(
        self,
        init_scale: float = 2.0**4,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        self._scale = _Number(float(init_scale))
        self._good_steps = _Number(0)
        self._found = Tensor(False)  # whether a gradient was not finite since the last update
        self.growth_factor = float(growth_factor)
        self.backoff_factor = float(backoff_factor)
        self.growth_interval = growth_interval

    @property
    def scale_factor(self) -> float:
        """The scale. A number that is written here holds from the next `backward` on."""
        return self._scale.read()

    @scale_factor.setter
    def scale_factor(self, value: float) -> None:
        self._scale.write(float(value))

    @property
    def _growth_tracker(self) -> int:
        return int(self._good_steps.read())

    @_growth_tracker.setter
    def _growth_tracker(self, value: int) -> None:
        self._good_steps.write(int(value))

    def backward(
        self,
        gm: "GradManager",
        y: Tensor | list[Tensor] | tuple[Tensor, ...] | None = None,
        dy: Tensor | list[Tensor] | tuple[Tensor, ...] | None = None,
        *,
        unscale_grad: bool = True,
        update_scale: bool | Literal["if_unscale_grad"] = "if_unscale_grad",
    ) -> None:
        """Runs ``gm.backward(y, dy)`` on a scaled dy, unscales the gradients, updates the scale.

        Parameters
        ----------
        gm : GradManager
            GradManager that records the forward computation.
        y, dy : Tensor, list of Tensor, tuple of Tensor or None
            Results to differentiate, and gradients with respect to them, ones by default; see
            `GradManager.backward`.
        unscale_grad : bool
            Whether to call `unscale`; False leaves that to the caller, for example after adding up
            the gradients of several calls.
        update_scale : bool or {"if_unscale_grad"}
            Whether to call `update`; "if_unscale_grad" does so if unscale_grad.

        Examples
        --------
        >>> import megengine as mge
        >>> from megengine import amp, autodiff
        >>> p, scaler = mge.Parameter([3.0]), amp.GradScaler()
        >>> gm = autodiff.GradManager().attach(p)
        >>> with gm, amp.autocast():
        ...     scaler.backward(gm, p * p)
        >>> p.grad.tolist()
        [6.0]
        """
        _backward(gm, y, dy, self._near if _core.is_tracing() else lambda _: np.float32(self._scale.read()))
        if unscale_grad:
            self.unscale(gm.attached_tensors())
        if unscale_grad if update_scale == "if_unscale_grad" else update_scale:
            self.update()

    def unscale(self, grad_tensors: Iterable[Tensor]) -> Self:
        """Divides ``grad`` of the tensors by the scale, in place.

        Parameters
        ----------
        grad_tensors : iterable of Tensor
            Tensors whose ``grad`` is divided; if one gradient is not finite, all become None.

        Returns
        -------
        Self
            The scaler itself.
        """
        tensors = [t for t in grad_tensors if getattr(t, "grad", None) is not None]
        if not tensors:
            return self
        is_tracing = _core.is_tracing()
        inverse = 1.0 / (self._near(tensors[0]) if is_tracing else np.float32(self._scale.read()))
        finite = None
        for t in tensors:
            _core.note_grad(t)
            grad: Any = changed(t.grad, lambda part: ops.mul(part, inverse.astype(part.dtype) if is_tracing else float(inverse)))
            t.grad = grad
            if self.growth_interval != 0:
                this = _all_finite(grad.totals()[1] if isinstance(grad, RowGradient) else grad)
                finite = this if finite is None else ops.logical_and(finite, this)
        if finite is None:
            return self
        finite = _in_all_processes(finite, tensors)
        if is_tracing:
            self._decide(tensors, finite)
        elif not finite.item():  # one read for all, as each read waits for the device
            self._found._hold(decisions.settled(True, self._found._device_name))
            for t in tensors:
                t.grad = None
        return self

    def _near(self, tensor: Tensor) -> Tensor:
        """Returns the scale in a traced step, on the device of ``tensor``, and moves the rest of
        the state there.
        """
        scale, good_steps = self._scale.near(tensor), self._good_steps.near(tensor)
        if self._found._device_name != tensor._device_name:
            self._found = Tensor(False, device=tensor._device_name)
        if _core.is_recording():
            for each, name in ((scale, "scale"), (good_steps, "good_steps")):
                note_name(each, f"scaler.{name}")
        return scale

    def _decide(self, tensors: list[Tensor], finite: Tensor) -> None:
        """Decides in a traced step: unless ``finite``, gradients become zeros and the optimizer
        changes nothing.
        """
        self._found._reset(ops.logical_or(self._found, ops.logical_not(finite)))
        for t in tensors:
            grad: Any = t.grad
            t.grad = changed(grad, lambda part: ops.where(finite, part, ops.full(shape=(), value=0.0, dtype=part.dtype.name, device=part)))
            decisions.decide(t, finite)

    def update(self, new_scale: float | None = None) -> None:
        """Adapts the scale to what `unscale` found since the last update.

        Parameters
        ----------
        new_scale : float or None
            Value that the scale gets instead; None adapts it.
        """
        if self.growth_interval == 0:
            return
        if new_scale is not None:
            self.scale_factor = new_scale
        elif _core.is_tracing():
            self._adapt_by_where()
        elif decisions.read(self._found):
            self._scale.write(float(np.float32(self._scale.read()) * np.float32(self.backoff_factor)))
            self._good_steps.write(0)
        else:
            good_steps = self._growth_tracker + 1
            if is_grown := good_steps >= self.growth_interval:
                self._scale.write(float(np.float32(self._scale.read()) * np.float32(self.growth_factor)))
            self._good_steps.write(0 if is_grown else good_steps)
        self._found._hold(decisions.settled(False, self._found._device_name))

    def _adapt_by_where(self) -> None:
        scale, found = self._scale.tensor, self._found
        good_steps = ops.where(found, 0.0, self._good_steps.tensor + 1.0)
        is_grown = good_steps >= self.growth_interval
        factor = ops.where(found, self.backoff_factor, ops.where(is_grown, self.growth_factor, 1.0))
        scale._reset(scale * factor)
        self._good_steps.tensor._reset(ops.where(is_grown, 0.0, good_steps))

    def state_dict(self) -> dict[str, Any]:
        """Returns a dict of settings and state."""
        return {
            "scale_factor": self.scale_factor,
            "growth_factor": self.growth_factor,
            "backoff_factor": self.backoff_factor,
            "growth_interval": self.growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the scale and the settings from a dict that `state_dict` returned.

        Parameters
        ----------
        state : dict of str
            Dict that `state_dict` returned.
        """
        for name in self.state_dict():
            setattr(self, name, state[name])


def _backward(gm: "GradManager", y: Any, dy: Any, scale_near: Callable[[Tensor], Any]) -> None:
    """Runs ``gm.backward(y, dy)`` with dy times the scale; None stands for ones."""
    ys, dys = _as_list(y), _as_list(dy)
    if dy is None:
        dys = [default_gradient(v) for v in ys]
    gm.backward(y=ys, dy=[ops.mul(d, scale_near(v).astype(d.dtype)) for v, d in zip(ys, dys, strict=False)])


def _as_list(value: Any) -> list[Tensor]:
    """One tensor, several or None as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _all_finite(x: Tensor) -> Tensor:
    """Whether every element is finite, as a 0-d bool."""
    return ops.reduce_min(ops.isfinite(x), axes=tuple(range(x.ndim)), keepdims=False)


def _in_all_processes(finite: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """Combines the decisions of all processes, which hold different parts of parameters or
    gradients: all go on, or none.
    """
    for tensor in tensors:
        least: Any = getattr(tensor, "_least_of_all", None) or decisions.together.get(tensor)
        if least is not None:
            return least(finite) > 0
    return finite


class Xla_GradScaler(GradScaler):
    """A `GradScaler` for training steps that are compiled as a whole.

    The step itself decides nothing: `update` checks the parameters afterwards, and if one is not
    finite it restores all parameters to their values before the step.

    Parameters
    ----------
    model : Module
        Module whose parameters are checked.
    init_scale, growth_factor, backoff_factor : float
        The scale at first, its factor after growth_interval good steps, and its factor after a step
        that made a parameter infinite or NaN.
    growth_interval : int
        Number of good steps before the scale grows; 0 fixes the scale.

    Notes
    -----
    ``scale_factor`` is a Tensor, which the step takes as an argument.

    Examples
    --------
    >>> import megengine.module as M
    >>> from megengine.amp import Xla_GradScaler
    >>> model = M.Linear(2, 1)
    >>> scaler = Xla_GradScaler(model, init_scale=8.0)
    >>> M.init.fill_(model.bias, float("nan"))  # a step that went wrong
    >>> scaler.update(model)
    >>> model.bias.tolist(), scaler.scale_factor.item()
    ([0.0], 4.0)
    """

    scale_factor: Any = None  # a Tensor, the argument of the step

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
        y: Tensor | list[Tensor] | tuple[Tensor, ...] | None = None,
        dy: Tensor | list[Tensor] | tuple[Tensor, ...] | None = None,
    ) -> None:
        """Runs ``gm.backward(y, dy)`` on dy * ``scale_factor``; divides the gradients by it.

        Parameters
        ----------
        gm : GradManager
            GradManager that records the forward computation.
        scale_factor : Tensor
            The scale, a 0-d float32 tensor.
        y, dy : Tensor, list of Tensor, tuple of Tensor or None
            Results to differentiate, and gradients with respect to them, ones by default; see
            `GradManager.backward`.
        """
        _backward(gm, y, dy, lambda _: scale_factor)
        for t in gm.attached_tensors():
            if t.grad is not None:
                t.grad = changed(t.grad, lambda part: ops.true_div(part, scale_factor))

    def update(  # type: ignore[override]  # checks the parameters instead of gradients
        self, model: "Module", new_scale: float | None = None
    ) -> None:
        """Keeps an optimizer step if all parameters of ``model`` are finite, else undoes it.

        The scale grows or shrinks accordingly, or becomes ``new_scale``.

        Parameters
        ----------
        model : Module
            Module whose parameters are checked.
        new_scale : float or None
            Value that the scale gets instead; None adapts it.
        """
        if self.growth_interval == 0:
            return
        parameters = list(model.parameters())
        values = [p.numpy() for p in parameters]
        finite = Tensor(all(np.isfinite(v).all() for v in values))
        if _in_all_processes(finite, parameters).item():
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
