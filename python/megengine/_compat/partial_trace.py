"""``partial_trace`` and ``xla_trace``: other spellings of :class:`trace`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .._core import default_random_state
from ..core._telling import no_effect
from ..jit.tracing import trace
from ..module import Module
from ..module._reach import tensors_in
from ..tensor import Tensor
from ..utils.dlpack import to_dlpack


def partial_trace(
    func: Callable[..., Any] | None = None,
    *,
    backend: str = "default",
    without_host: bool = True,
    trace_gmcallback: bool = True,
    **trace_options: Any,
) -> Any:
    """Traces a forward function whose gradients are computed outside of it.

    Inside an open GradManager the function runs eagerly, so that its operations are recorded for
    backward; elsewhere it is a `trace` with these options, and ``without_host`` by default.

    Parameters
    ----------
    func : callable or None
        The function; None makes a decorator.
    backend : str
        "default", or "xla", which warns that megjit's compiler is used.
    without_host : bool
        Whether calls after the first leave out the Python body; see `trace`.
    trace_gmcallback : bool
        Has no effect, and False warns so: callbacks run as in any backward.
    **trace_options : object
        Other options of `trace`, by name.

    Returns
    -------
    trace or callable
        The traced function, or a decorator.

    Raises
    ------
    ValueError
        For another backend.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import Parameter, autodiff, jit
    >>> w = Parameter([3.0])
    >>> forward = jit.partial_trace(lambda x: F.relu(x * w))
    >>> with autodiff.GradManager().attach(w) as gm:
    ...     gm.backward(forward(F.ones(1)))
    >>> w.grad.item(), forward(F.ones(1)).item()
    (1.0, 3.0)
    """
    if backend not in ("default", "xla"):
        raise ValueError(f"partial_trace: backend must be 'default' or 'xla', got {backend!r}")
    no_effect("partial_trace", "megjit's own compiler is used", backend=backend == "xla")
    no_effect("partial_trace", "callbacks run as in any backward", trace_gmcallback=not trace_gmcallback)
    if func is None:
        return functools.partial(
            partial_trace,
            backend=backend,
            without_host=without_host,
            trace_gmcallback=trace_gmcallback,
            **trace_options,
        )
    return trace(func, without_host=without_host, **trace_options)


class xla_trace(trace[..., Any]):
    """A `trace` with the defaults of MegEngine's XLA interface, compiled by megjit itself.

    These are ``symbolic=True``, ``opt_level=3``, ``without_host=True`` and
    ``symbolic_shape=False``.

    Parameters
    ----------
    function : callable
        Function to compile; None makes a decorator.
    without_host : bool
        Whether calls after the first leave out the Python body; see `trace`.
    symbolic_shape : bool
        Whether ``x.shape`` is a Tensor inside the function.
    **kwargs : object
        Other options of `trace`, by name.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import jit, tensor
    >>> @jit.xla_trace
    ... def area(x):
    ...     return x.shape[0] * x.shape[1]  # plain ints
    >>> area(F.ones((2, 3)))
    6
    """

    third_party_backend = True

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        without_host: bool = True,
        symbolic_shape: bool = False,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("symbolic", True)
        kwargs.setdefault("opt_level", 3)
        super().__init__(
            function, without_host=without_host, symbolic_shape=symbolic_shape, **kwargs
        )

    def get_random_seed(self) -> int:
        """Returns the seed of the stream that random operations draw from."""
        return default_random_state().current_seed

    def convert_params_to_xla(self) -> dict[str, np.ndarray]:
        """Returns the parameters of the modules that the function refers to, by dotted path, as
        arrays.
        """
        code = self.__wrapped__.__code__
        names = dict(self.__wrapped__.__globals__)
        names.update(
            zip(code.co_freevars, (c.cell_contents for c in self.__wrapped__.__closure__ or ()))
        )
        used = [
            name
            for name in (*code.co_names, *code.co_freevars)
            if isinstance(names.get(name), Module)
        ]
        return {
            f"{name}.{path}": value.numpy()
            for name in used
            for path, value in names[name].named_parameters()
        }

    def prepare_xla_inputs(self, tensors: Any) -> list[np.ndarray]:
        """Gives the values of the tensors in nested containers, flat.

        Parameters
        ----------
        tensors : Tensor or container
            Lists, tuples and dicts may hold tensors.

        Returns
        -------
        list of ndarray
            An array for each tensor.
        """
        return [tensor.numpy() for tensor in tensors_in(tensors)]

    def to_dlpack(self, x: Tensor, take_ownership: bool = True) -> Any:
        """Makes a DLPack capsule of a copy of a tensor.

        Parameters
        ----------
        x : Tensor
            Tensor of any shape, which is copied.
        take_ownership : bool
            Has no effect, and False warns so: the receiver owns the copy.

        Returns
        -------
        PyCapsule
            The capsule, as `utils.dlpack.to_dlpack` makes it.
        """
        no_effect("xla_trace.to_dlpack", "the receiver owns the copy", take_ownership=not take_ownership)
        return to_dlpack(x)
