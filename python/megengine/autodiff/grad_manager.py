"""GradManager: records computations on attached tensors and differentiates them."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from .. import _core
from ..amp import decisions
from ..core import ops
from ..core.row_gradient import RowGradient, added, refuse_rows
from ..core.tensor.shapes import default_gradient
from ..tensor import Tensor
from ._batched import Batched
from ._batching_rules import refuse

__all__ = ["AttachSpec", "GradManager", "GradManagerGroup", "get_backwarding_grad_manager"]

Callback = Callable[[Tensor, Tensor], Tensor | None]

_backwarding: ContextVar[GradManager | None] = ContextVar("backwarding", default=None)
_DIFFERENTIABLE = frozenset({"float32", "float16", "bfloat16", "float64"})


class _Recording(threading.local):
    """The managers that record in this thread."""

    def __init__(self) -> None:
        self.managers: weakref.WeakSet[GradManager] = weakref.WeakSet()  # another thread may end one


_recording = _Recording()


def note_remote(sent: Tensor) -> None:
    """Notes a tensor that another process goes on with: backward passes fetch its gradient from
    there.
    """
    for manager in _recording.managers:
        if manager._recording:
            manager._remote.append(sent)


def get_backwarding_grad_manager() -> GradManager | None:
    """The manager whose `GradManager.backward` runs now, seen from callbacks and from Function.backward."""
    return _backwarding.get()


class ProcessSum:
    """A callback that begins with a gradient's sum over processes: ``distributed.make_allreduce_cb``.

    If one is the first callback of a tensor, backward itself sums the gradient, in buckets, while
    it computes the others.
    """

    def _group_key(self, tensor: Tensor | None) -> str:
        """Returns the key of a group of processes; "" for this process alone."""
        return ""

    def _of_sum(self, total: Tensor) -> Tensor:
        """The gradient that the callback makes of the sum."""
        return total


class Lookup(NamedTuple):
    """Rows that were looked up in a table of this shape: their numbers, and their values as the
    tape knows them.
    """

    spec: AttachSpec
    numbers: Tensor
    rows: Tensor
    shape: tuple[int, ...]


class AttachSpec:
    """An attached tensor, held weakly, its callbacks, and its value when the recording began."""

    __slots__ = ("callbacks", "snapshot", "tensor")

    def __init__(self, tensor: weakref.ref[Any], callbacks: list[Callback]) -> None:
        self.tensor = tensor
        self.callbacks = callbacks
        self.snapshot: Tensor | None = None


# snapshots hold this between recordings, so that values are not kept alive
_NOTHING = Tensor(0.0, device="cpu0")


class GradManager:
    """Adds gradients with respect to attached tensors to their ``.grad``.

    ``with gm:`` or `record` begins a recording. `backward` differentiates what was computed since
    then and ends the recording; `release`, or leaving the block, ends it, too. Gradients are with
    respect to the value that an attached tensor had when the recording began, or at `attach` if
    that came later; in-place writes do not change that.

    Managers nest: the outer one also records the backward pass of the inner one, which gives
    derivatives of higher order. ``with gm1 | gm2:`` opens both as equals: neither sees the other's
    backward.

    See Also
    --------
    jit.trace : Compiles a whole training step.
    optimizer.Optimizer : Changes parameters by their gradients.
    jacobian : All derivatives of a function.

    Examples
    --------
    >>> import megengine as mge
    >>> x = mge.Tensor([3.0])
    >>> gm = GradManager().attach(x)
    >>> with gm:
    ...     y = x * x
    ...     gm.backward(y)
    >>> x.grad.numpy()
    array([6.], dtype=float32)
    """

    def __init__(self) -> None:
        self._attach_specs: dict[int, AttachSpec] = {}
        self._recording = False
        self._tape: Any = None
        self._watched: list[AttachSpec] = []
        self._lookups: list[Lookup] = []
        self._remote: list[Tensor] = []  # tensors whose gradient another process computes

    def attached_tensors(self) -> list[Tensor]:
        """Returns the attached tensors that are still alive.

        Returns
        -------
        list of Tensor
            In the order in which they were attached.
        """
        tensors = (spec.tensor() for spec in self._attach_specs.values())
        return [tensor for tensor in tensors if tensor is not None]

    def attach(
        self,
        tensors: Tensor | Iterable[Tensor],
        callbacks: Callback | Iterable[Callback] | None = None,
    ) -> GradManager:
        """Asks for gradients with respect to these tensors; allowed at any time.

        Parameters
        ----------
        tensors : Tensor or iterable of Tensor
            One tensor or several, of dtype float32, float16 or bfloat16; the manager holds them
            weakly.
        callbacks : callable, iterable of callable or None
            Functions that are called in order with (tensor, gradient) when gradients are complete;
            a result other than None replaces the gradient. Attaching a tensor again appends
            callbacks.

        Returns
        -------
        GradManager
            The manager itself.

        Raises
        ------
        AssertionError
            For a tensor of another dtype.

        Notes
        -----
        If ``distributed.make_allreduce_cb`` is the first callback, its sum is computed while the
        rest of backward runs.
        """
        callbacks = _as_list(callbacks, callable, "callbacks takes functions of (tensor, gradient)")
        given = _as_list(tensors, lambda x: isinstance(x, Tensor), "Object to be attached should be Tensor")
        _refuse_examples(given)
        for tensor in given:
            if tensor.dtype.name not in _DIFFERENTIABLE:
                raise AssertionError(
                    f"attach: no gradients for dtype {tensor.dtype}, only for {', '.join(sorted(_DIFFERENTIABLE))}"
                )
        for tensor in given:
            spec = self._attach_specs.get(id(tensor))
            if spec is None or spec.tensor() is not tensor:
                tensor._become_variable()
                spec = AttachSpec(self._weak(tensor), list(callbacks))
                self._attach_specs[id(tensor)] = spec
                if self._recording:
                    self._watch(spec)
            else:
                spec.callbacks.extend(callbacks)
        return self

    def _weak(self, tensor: Tensor) -> weakref.ref[Any]:
        key, manager = id(tensor), weakref.ref(self)

        def forget(dead: weakref.ref[Any]) -> None:
            self = manager()
            if self is not None:
                spec = self._attach_specs.get(key)
                if spec is not None and spec.tensor is dead:
                    del self._attach_specs[key]

        return weakref.ref(tensor, forget)

    def _watch(self, spec: AttachSpec) -> None:
        tensor = spec.tensor()
        if tensor is None:
            return
        if self._tape.watches(
            tensor
        ):  # Tensor(x) shares the value of an attached x: tell them apart
            tensor._reset(tensor.detach())
        self._tape.watch(tensor)
        if spec.snapshot is None:
            spec.snapshot = Tensor(0.0)
        spec.snapshot._hold(tensor)
        self._watched.append(spec)

    def _spec_of(self, tensor: Tensor) -> AttachSpec | None:
        """Returns the spec of the attached tensor that had this value when the recording began."""
        value = tensor._value_id()
        return next((spec for spec in self._watched if spec.snapshot._value_id() == value), None)  # type: ignore[union-attr]

    def _look_up(self, lookup: Lookup) -> None:
        """Asks for the gradient of these rows."""
        held = Tensor(0.0)
        held._hold(lookup.rows)  # the program may write to the tensor that it gave
        self._tape.watch(held)
        self._lookups.append(lookup._replace(rows=held))

    # -- recording -------------------------------------------------------------------------------

    def record(self) -> None:
        """Begins a recording.

        Raises
        ------
        RuntimeError
            If one is on.
        """
        self._prepare()
        self._tape.open()

    def _prepare(self) -> None:
        if self._recording:
            raise RuntimeError(
                "already recording\n"
                "  fix: call backward() or release() first; use a second GradManager for higher orders"
            )
        self._tape = _core.Tape()
        self._recording = True
        _recording.managers.add(self)
        try:
            for spec in list(self._attach_specs.values()):
                self._watch(spec)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Ends the recording, if one is on, and frees its history."""
        tape, self._tape = self._tape, None
        _recording.managers.discard(self)
        self._recording = False
        self._remote = []
        if self._lookups:
            self._lookups = []
        for spec in self._watched:
            spec.snapshot._hold(_NOTHING)  # type: ignore[union-attr]  # watching made it
        self._watched = []
        if tape is not None:
            tape.close()
            tape.clear()

    def __enter__(self) -> GradManager:
        self.record()
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        self.release()

    # -- differentiating -------------------------------------------------------------------------

    def backward(
        self,
        y: Tensor | Sequence[Tensor] | None = None,
        dy: Tensor | Sequence[Tensor] | None = None,
    ) -> None:
        """Adds the gradients of ``y`` to ``.grad`` of the attached tensors, and ends the recording.

        Parameters
        ----------
        y : Tensor, sequence of Tensor or None
            Result to differentiate: a Tensor of any shape, several, or None if all results went to
            other processes.
        dy : Tensor, sequence of Tensor or None
            Gradient with respect to each y, of its shape, from which the chain rule starts; None is
            ones.

        Raises
        ------
        RuntimeError
            If the manager does not record.
        ValueError
            When the numbers or shapes of y and dy differ.

        Notes
        -----
        A tensor that y does not depend on keeps its grad. If y depends on no attached tensor, a
        UserWarning says so.
        """
        if not self._recording:
            raise RuntimeError(
                "no computation history. did you forget record() or call a method that clears the history?\n"
                "  fix: compute y and call backward inside 'with gm:', and backward only once in it"
            )
        if not self._attach_specs and not self._remote:
            warnings.warn(
                "backward: no tensor is attached to this GradManager, so none gets a gradient; call attach(model.parameters()) first",
                stacklevel=2,
            )
        outside = _backwarding.set(self)
        try:
            ys = _as_list(y, lambda x: isinstance(x, Tensor), "backward: y takes Tensors")
            _refuse_examples(ys)
            dys = _gradients_of(ys, dy)
            ys = ys + self._remote
            dys = dys + [ops.full(shape=(), value=0.0, dtype="float32", device=sent) for sent in self._remote]
            watched = [spec for spec in self._watched if spec.tensor() is not None]
            groups = [_group_of(spec) for spec in watched]
            wanted = [spec.snapshot for spec in watched]
            if lookups := self._lookups:
                for lookup in lookups:
                    if _group_of(lookup.spec):
                        refuse_rows("make_allreduce_cb", lookup.shape)
                wanted += [lookup.rows for lookup in lookups]
                groups += [""] * len(lookups)
            # some gradients go only to other processes
            is_known = not wanted or any(self._tape.tracks(each) for each in ys)
            grads = self._tape.backward(ys, dys, wanted, groups if any(groups) else []) if ys else ()
            if ys and not is_known and all(grad is None for grad in grads):
                warnings.warn(
                    f"backward: y depends on none of the {len(watched)} attached tensors, so none gets a gradient; "
                    "compute it inside 'with gm:', from what was attached before",
                    stacklevel=2,
                )
            self.release()
            by_rows = _gradients_by_rows(lookups, grads[len(watched) :]) if lookups else None
            for spec, group, grad in zip(watched, groups, grads, strict=False):
                tensor = spec.tensor()
                if by_rows:
                    for rows in by_rows.get(id(spec), ()):
                        grad = rows if grad is None else added(grad, rows)
                if grad is not None and tensor is not None:
                    _deliver(spec, tensor, grad, group)
        finally:
            _backwarding.reset(outside)
            self.release()

    # -- groups ----------------------------------------------------------------------------------

    def __or__(self, other: GradManager | GradManagerGroup) -> GradManagerGroup:
        """``with gm1 | gm2:`` records with both, see GradManagerGroup."""
        return GradManagerGroup([self]).merge_with(other)

    def __ror__(self, other: GradManager | GradManagerGroup) -> GradManagerGroup:
        return GradManagerGroup([self]).__ror__(other)


class GradManagerGroup:
    """Managers that record together; none of them sees the backward pass of another."""

    def __init__(self, gms: Iterable[GradManager]) -> None:
        self._gms = list(gms)

    def merge_with(self, other: GradManager | GradManagerGroup) -> GradManagerGroup:
        """A group of the managers of both. TypeError for other things."""
        if isinstance(other, GradManager):
            other = GradManagerGroup([other])
        if not isinstance(other, GradManagerGroup):
            raise TypeError(f"a GradManager cannot be grouped with a {type(other).__name__}")
        return GradManagerGroup([*self._gms, *other._gms])

    __or__ = merge_with

    def __ror__(self, other: GradManager | GradManagerGroup) -> GradManagerGroup:
        if isinstance(other, GradManager):
            other = GradManagerGroup([other])
        return other.merge_with(self) if isinstance(other, GradManagerGroup) else NotImplemented

    def __enter__(self) -> GradManagerGroup:
        prepared = []
        try:
            for manager in self._gms:
                manager._prepare()
                prepared.append(manager)
            _core.Tape.open_group([manager._tape for manager in self._gms])
        except BaseException:
            for manager in prepared:
                manager.release()
            raise
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        for manager in reversed(self._gms):
            manager.release()


def _group_of(spec: AttachSpec) -> str:
    """Returns the group of processes over which backward sums the gradient; "": none."""
    first = spec.callbacks[0] if spec.callbacks else None
    return first._group_key(spec.tensor()) if isinstance(first, ProcessSum) else ""


def _deliver(spec: AttachSpec, tensor: Tensor, grad: Tensor, group: str) -> None:
    """group: the processes whose gradients are in ``grad`` already."""
    callbacks = spec.callbacks
    if group:
        first, *callbacks = callbacks
        grad = first._of_sum(grad)  # type: ignore[attr-defined]  # _group_of has looked
    for callback in callbacks:
        changed = callback(tensor, grad)
        if changed is not None:
            grad = changed
    if decisions.held:
        decisions.settle(tensor)
    _core.note_grad(tensor)
    tensor.grad = grad if tensor.grad is None else added(tensor.grad, grad)


def _gradients_by_rows(lookups: Iterable[Lookup], grads: Iterable[Any]) -> dict[int, list[RowGradient]]:
    """Maps the id of each spec to the gradients of the lookups of its tensor."""
    found: dict[int, list[RowGradient]] = {}
    for lookup, grad in zip(lookups, grads, strict=True):
        if grad is not None:
            values = ops.reshape(grad, shape=(lookup.numbers._tuple_shape[0], *lookup.shape[1:]))
            found.setdefault(id(lookup.spec), []).append(RowGradient(lookup.numbers, values, lookup.shape))
    return found


def _gradients_of(ys: list[Tensor], dy: Any) -> list[Tensor]:
    if dy is None:
        return [default_gradient(y) for y in ys]
    dys = _as_list(dy, lambda x: isinstance(x, Tensor), "backward: dy takes Tensors")
    if len(dys) != len(ys):
        raise ValueError(f"backward: {len(ys)} tensors y but {len(dys)} gradients dy")
    for y, dy in zip(ys, dys, strict=True):
        if y._tuple_shape != dy._tuple_shape:
            raise ValueError(
                f"backward: y has shape {y._tuple_shape} but its dy has {dy._tuple_shape}\n"
                "  fix: give dy the shape of y"
            )
    return dys


def _refuse_examples(tensors: Iterable[Tensor]) -> None:
    if any(isinstance(each, Batched) for each in tensors):
        refuse(
            "the function uses a GradManager",
            "gradients would be added up over the examples",
            "a GradManager around vmap, or autodiff.jacobian in the function",
        )


def _as_list(value: Any, fits: Callable[[Any], bool], rule: str) -> list[Any]:
    """Returns None as an empty list, one item as a list, several as a list. TypeError, which tells
    this rule, for other things.
    """
    if value is None:
        return []
    if fits(value):
        return [value]
    try:
        items = list(value)
    except TypeError:
        items = [value]
    for item in items:
        if not fits(item):
            fix = "\n  fix: pass model.parameters()" if hasattr(item, "parameters") else ""
            raise TypeError(f"{rule}, got a {type(item).__name__}{fix}")
    return items
